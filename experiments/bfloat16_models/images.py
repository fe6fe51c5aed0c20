"""Images: a convolutional network on digits instead of ResNet-18 on CIFAR-10."""

from __future__ import annotations

from functools import partial

import numpy as np

import simfloat as sf
from experiments.digits import digits_problem
from experiments.judging import accuracy, judged
from experiments.problem import Problem
from simfloat import nn


def convolutional(seed: int) -> nn.Module:
    """Two convolutions with ReLU and pooling, and a linear layer: 1 898 weights."""
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10, rng=rng),
    )


def images(seed: int, tiny: bool) -> Problem:
    """Classify 1797 images of digits, 8 x 8; a quarter is held out."""
    problem = digits_problem(
        partial(convolutional, seed),
        partial(sf.optim.SGD, lr=0.005, momentum=0.9, weight_decay=5e-4),
        batch=32,
        steps=1 if tiny else 600,
        shape=(1, 8, 8),
    )
    return judged(problem, "accuracy", accuracy, tiny)
