"""The problems, each at the best learning rate for FP32 and, except for speech, at a tenth of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from experiments.problem import Problem
from experiments.real_size.late_flights import clicks
from experiments.real_size.speakers import speech
from experiments.real_size.verses import gpt, lstm, verses
from experiments.real_size.words import phonemes
from experiments.task import Task
from experiments.training import Problems

_MADE: dict[str, Callable[..., Problem]] = {
    "phonemes": phonemes,
    "GPT": partial(verses, gpt, 32, 250),
    "LSTM": partial(verses, lstm, 64, 150),
    "speech": speech,
    "clicks": clicks,
}

#: The best rates for FP32 with seeds 0 and 1, among rates that differ by factors of about three.
RATES = {"phonemes": 0.03, "GPT": 0.003, "LSTM": 0.03, "speech": 0.03, "clicks": 1.0}

#: The problems that are also trained at a tenth of the rate, by their names. CTC learns nothing with it in 150 steps.
SMALL = {f"{problem}, small steps": problem for problem in RATES if problem != "speech"}

PROBLEMS: Problems = {
    **{problem: partial(_MADE[problem], rate=rate) for problem, rate in RATES.items()},
    **{small: partial(_MADE[problem], rate=RATES[problem] / 10) for small, problem in SMALL.items()},
}

TASKS = {
    "phonemes": Task("LSTMs with attention, phonemes", "accuracy", "accuracy (%)"),
    "GPT": Task("GPT, King James Bible", "perplexity", "perplexity"),
    "LSTM": Task("LSTM, King James Bible", "perplexity", "perplexity"),
    "speech": Task("GRU with CTC, speakers", "accuracy", "accuracy (%)"),
    "clicks": Task("DLRM, flights", "auc", "AUC (%)"),
}


def task_of(problem: str) -> Task:
    """Return the task of a problem, at any rate."""
    return TASKS[SMALL.get(problem, problem)]
