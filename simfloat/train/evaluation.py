"""Evaluation during training, which changes no bit of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import on_cpu
from simfloat.nn import Module
from simfloat.simulation import Simulation, no_grad


def evaluated(model: Module, evaluate: Callable[[Module], Any], simulation: Simulation) -> dict[str, float]:
    """What `evaluate(model)` gives by name, as numbers; of a model in evaluation, without recording for backward.

    It runs aside, so that it changes no bit of the training.
    """
    with _evaluating(model), simulation.aside(), no_grad():
        values = evaluate(model)
    if not isinstance(values, Mapping) or not values:
        raise ValueError(f"evaluate must give numbers by name, such as {{'accuracy': 0.9}}, got {values!r}.")
    if "step" in values:
        raise ValueError("evaluate cannot name a number 'step', under which the history tells when it was called.")
    return {name: as_number(f"evaluate's {name}", value) for name, value in values.items()}


def as_number(what: str, value: Any) -> float:
    """The value as a float; ValueError, saying what it is of, for what is no number."""
    if isinstance(value, Real):
        return float(value)
    array = np.asarray(on_cpu(value))
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be a number, got {value!r}.")
    return float(array.item())


@contextmanager
def _evaluating(model: Module) -> Iterator[None]:
    """A ``with`` block in which the model is in evaluation."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
