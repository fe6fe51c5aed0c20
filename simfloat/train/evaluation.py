"""Evaluation during training, which changes no bit of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from numbers import Real
from typing import Any

from simfloat.arithmetic.machines import on_cpu
from simfloat.checks import one_number
from simfloat.train.tensor_trees import is_tensor


def run_evaluation(model: Any, evaluate: Callable[[Any], Any], aside: AbstractContextManager[Any]) -> dict[str, float]:
    """Return the numbers that `evaluate(model)` gives, by name; the model is in evaluation mode meanwhile.

    `aside` is a block in which `evaluate` changes no bit of the training.
    """
    with _evaluation_mode(model), aside:
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
    number = one_number(value.tolist() if is_tensor(value) else on_cpu(value))
    if number is None:
        raise ValueError(f"{what} must be a number, got {value!r}.")
    return number


@contextmanager
def _evaluation_mode(model: Any) -> Iterator[None]:
    """A ``with`` block in which the model is in evaluation."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
