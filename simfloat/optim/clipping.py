"""Clipping of gradients, by their norm and by value.

Measurements are summed in float64 in one fixed order: that of NumPy, CuPy and Python differs by version and machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import inf, isfinite
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import as_array, on_cpu
from simfloat.autodiff import Parameter
from simfloat.autodiff.parameter import begin_update
from simfloat.environment import in_usual_environment
from simfloat.optim.options import check_distinct, flag, list_parameters, number_from_zero
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.simulation import current

#: What PyTorch adds to the norm before it divides by it.
SMALL = 1e-6

Parameters = Parameter | Iterable[Parameter]


@in_usual_environment
def clip_grad_norm_(
    parameters: Parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> np.float64:
    """Scale the gradients such that the norm of all of them together is at most `max_norm`; returns what it was.

    Every operation is rounded to the parameter's `weights`, in which a loss scale's `unscale_`, to be called before,
    leaves gradients too, and sums follow `reduce`. With Q the rounding of the policy's own `weights`, q that of a
    parameter's::

        norm = Q(sqrt(Q(sum over parameters q(sum q(g^2)))))
        k = Q(max_norm / Q(norm + 1e-6));  g = q(k g) where k is below 1 or NaN, else g stays as it is

    For norm_type 1 squares and root are left out; for other p they are the powers p and 1/p; for inf the norm is the
    largest |g|, exactly. Inside a `simulate` block, whose observer receives the events at ``clip``, and at ``clip``
    below each parameter. See torch.nn.utils.clip_grad_norm_.

    Raises ValueError for what is no parameter, a negative max_norm, a norm_type that is not above zero, and, with
    `error_if_nonfinite`, for a norm that is not finite; then gradients stay as they are.

    Examples:
        >>> weight = sf.Parameter([3.0, 4.0])
        >>> with sf.simulate("fp32"):
        ...     (weight * weight).sum().backward()
        ...     norm = sf.optim.clip_grad_norm_([weight], 1.0)
        >>> norm, weight.grad
        (np.float64(10.0), array([0.59999996, 0.79999995], dtype=float32))
    """
    most, p = _limit("max_norm", max_norm), _limit("norm_type", inf if norm_type == "inf" else norm_type)
    if not p:
        raise ValueError(f"norm_type must be above zero, got {norm_type!r}.")
    whole = current().place("update", "").to_clipped.with_operation("clip_grad_norm")
    with_gradients = _with_gradients(parameters, "clip_grad_norm")
    norm = _norm([_power_sum(arithmetic, g, p) for _, g, arithmetic in with_gradients], whole, p)
    if flag("error_if_nonfinite", error_if_nonfinite) and not isfinite(norm):
        raise ValueError(f"The norm of the gradients is {norm}, and error_if_nonfinite forbids to clip by it.")
    k = whole.divide(np.array(most), whole.add(norm, np.array(SMALL)))
    if not k >= 1:
        for parameter, g, arithmetic in with_gradients:
            parameter.grad = arithmetic.multiply(k, g)
    return np.float64(norm)


@in_usual_environment
def clip_grad_value_(parameters: Parameters, clip_value: float) -> None:
    """Bring every element of the gradients between -clip_value and clip_value, rounded to the parameter's `weights`.

    Elements between these stay as they are, and so does NaN. Inside a `simulate` block. See
    torch.nn.utils.clip_grad_value_.

    Raises ValueError for what is no parameter, and for a negative clip_value.

    Examples:
        >>> weight = sf.Parameter([3.0, 4.0])
        >>> with sf.simulate("fp32"):
        ...     (weight * weight).sum().backward()
        ...     sf.optim.clip_grad_value_([weight], 7.0)
        >>> weight.grad
        array([6., 7.], dtype=float32)
    """
    most = _limit("clip_value", clip_value)
    for parameter, g, arithmetic in _with_gradients(parameters, "clip_grad_value"):
        if isfinite(most):
            low, high = arithmetic.round(np.array([-most, most]))
            parameter.grad = np.clip(g, low, high)


def _limit(name: str, value: Any) -> float:
    """A number that is not negative, or infinity."""
    return inf if isinstance(value, float | np.floating) and value == inf else number_from_zero(name, value)


def _with_gradients(parameters: Any, operation: str) -> list[tuple[Parameter, NDArray, Arithmetic]]:
    """The parameters that have a gradient, with it and with the arithmetic of clipping it."""
    parameter_list = [parameters] if isinstance(parameters, Parameter) else list_parameters(parameters, "Clipping")
    check_distinct(parameter_list, taker="Clipping")
    return [
        (p, p.grad, begin_update(p).to_clipped.with_operation(operation)) for p in parameter_list if p.grad is not None
    ]


def _power_sum(arithmetic: Arithmetic, g: NDArray, p: float) -> NDArray:
    """The sum of |g|^p, or the largest |g| where p is infinite."""
    size = np.abs(g)
    if p == inf:
        return np.array(float(size.max()) if size.size else 0.0)
    if p == 2:
        size = arithmetic.multiply(g, g)
    elif p != 1:
        size = arithmetic.apply("power", as_array(size), np.array(p))
    return arithmetic.sum(as_array(size), tuple(range(g.ndim)))


def _norm(parts: list[NDArray], arithmetic: Arithmetic, p: float) -> NDArray:
    """The norm of what these are the power sums of."""
    sums = np.array([float(part) for part in parts])
    if p == inf:
        return np.array(sums.max(initial=0.0))
    total = arithmetic.sum(sums, (0,))
    if p == 1:
        return total
    return arithmetic.apply("sqrt", total) if p == 2 else arithmetic.apply("power", total, np.array(1 / p))


#: So many numbers, or fewer, are added one after another.
FEW = 64


def sequential_sum(values: Iterable[float]) -> float:
    """The sum of numbers, one after another; Python's `sum` compensates from 3.12 on."""
    return reduce(add, values, 0.0)


def sum_of_squares(x: NDArray) -> float:
    """The sum of all x^2, an infinity or NaN where there is one; x may lie on a GPU.

    Of n numbers in C order the second half is added to the first, whose middle one stays alone where n is odd, and so
    on until few are left, which are added one after another.
    """
    squares = x.ravel().astype(np.float64)
    with np.errstate(all="ignore"):
        squares *= squares
        while squares.size > FEW:
            half = (squares.size + 1) // 2
            squares[: squares.size - half] += squares[half:]
            squares = squares[:half]
        return sequential_sum(on_cpu(squares).tolist())
