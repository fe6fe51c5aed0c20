"""Text: a BERT that classifies topics instead of MNLI, and a GPT that predicts characters instead of Wiki103."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments import datasets
from experiments.judging import accuracy, judged, perplexity
from experiments.models import GPT, BERTClassifier
from experiments.problem import Problem

#: Long topics of Python's documentation, none of which is a part of another.
TOPICS = (
    "specialnames",
    "compound",
    "types",
    "formatstrings",
    "typesseq",
    "string-methods",
    "debugger",
    "typesmapping",
)

#: Words of the vocabulary, in addition to 0 for padding and 1 for all others; words of a passage.
WORDS, PASSAGE = 500, 16

#: Characters of a context, and the number of held-out windows.
CONTEXT, HELD_OUT = 24, 200


@cache
def passages() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return passages (N, 16) of the topics as numbers of words, one after the other, and their topics."""
    texts = {topic: re.findall(r"\w+|[^\w\s]", datasets.python_topics()[topic].lower()) for topic in TOPICS}
    common = Counter(word for words in texts.values() for word in words).most_common(WORDS)
    number = {word: place for place, (word, _) in enumerate(common, 2)}
    found, labels = [], []
    for topic, words in enumerate(texts.values()):
        tokens = np.array([number.get(word, 1) for word in words])
        found.append(tokens[: len(tokens) // PASSAGE * PASSAGE].reshape(-1, PASSAGE))
        labels += [topic] * len(found[-1])
    return np.concatenate(found), np.array(labels)


def topics(seed: int, tiny: bool) -> Problem:
    """Predict which of eight topics a passage of 16 words is from; every fourth passage is held out."""
    x, y = passages()
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[order % 4 != 0], order[order % 4 == 0]
    problem = Problem(
        x=x[train],
        y=y[train],
        model=partial(BERTClassifier, WORDS + 2, PASSAGE, 32, layers=1, heads=2, classes=len(TOPICS), seed=seed),
        loss=sf.nn.cross_entropy,
        optimizer=partial(sf.optim.AdamW, lr=7e-4, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=1 if tiny else 250,
        test=(x[test], y[test]),
    )
    return judged(problem, "accuracy", accuracy, tiny)


@cache
def characters() -> tuple[NDArray[np.int64], int]:
    """Return the topics as numbers of characters, in successive windows (N, 25), and the size of the alphabet."""
    text = "".join(datasets.python_topics()[topic] for topic in TOPICS)
    alphabet = sorted(set(text))
    number = {letter: place for place, letter in enumerate(alphabet)}
    tokens = np.array([number[letter] for letter in text])
    return tokens[: len(tokens) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1), len(alphabet)


def next_characters(logits: sf.Tensor, following: NDArray[np.int64]) -> sf.Tensor:
    """Return the cross-entropy of all next characters."""
    return sf.nn.cross_entropy(logits.reshape(-1, logits.shape[-1]), following.reshape(-1))


def language(seed: int, tiny: bool) -> Problem:
    """Predict the next character; 200 of about 10 000 windows of 25 characters are held out."""
    windows, alphabet = characters()
    test, train = np.split(np.random.default_rng(0).permutation(windows), [HELD_OUT])
    problem = Problem(
        x=train[:, :-1],
        y=train[:, 1:],
        model=partial(GPT, alphabet, CONTEXT, 32, layers=1, heads=2, seed=seed),
        loss=next_characters,
        optimizer=partial(sf.optim.AdamW, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01),
        batch=16,
        steps=1 if tiny else 200,
        test=(test[:, :-1], test[:, 1:]),
    )
    return judged(problem, "perplexity", perplexity, tiny, HELD_OUT)
