"""The problems: those of other experiments, and a language model of LSTM cells trained by Adagrad."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import simfloat as sf
from experiments.bfloat16_models.speech import speech
from experiments.bfloat16_models.texts import characters, next_characters
from experiments.judging import judged, perplexity
from experiments.loss_scaling.problems import regression
from experiments.models import LSTMLanguageModel
from experiments.operation_lists.problems import convolutional, transformer
from experiments.problem import Problem, turned
from experiments.training import Problems

#: The number of held-out windows, of about 10 000.
HELD_OUT = 100

#: Adam's usual 1e-8 is zero in FP16, and makes the first update NaN.
EPS = 1e-6


def language(seed: int, tiny: bool) -> Problem:
    """Predict the next character by LSTM cells and Adagrad, as in bigLSTM; the last windows are held out."""
    windows, alphabet = characters()
    windows = turned(windows, seed)
    train, test = windows[:-HELD_OUT], windows[-HELD_OUT:]
    problem = Problem(
        x=train[:, :-1],
        y=train[:, 1:],
        model=partial(LSTMLanguageModel, alphabet, 16, 32, seed),
        loss=next_characters,
        optimizer=partial(sf.optim.Adagrad, lr=0.1),
        batch=16,
        steps=1 if tiny else 200,
        test=(test[:, :-1], test[:, 1:]),
    )
    return judged(problem, "perplexity", perplexity, tiny, HELD_OUT)


def autoencoder(seed: int, tiny: bool) -> Problem:
    """Return the autoencoder of loss-scaling, with small gradients; the epsilon of its Adam is a number of FP16."""
    return replace(regression(seed, tiny), optimizer=partial(sf.optim.Adam, lr=0.01, eps=EPS))


PROBLEMS: Problems = {
    "convolutional": convolutional,
    "transformer": transformer,
    "regression": autoencoder,
    "speech": speech,
    "language": language,
}
