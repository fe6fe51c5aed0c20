"""Clipping of gradients, by their norm and by value.

Measured sums are float64 sums in one fixed order, because the order of NumPy, CuPy and Python depends on the version
and the processor.
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
from simfloat.optim.options import check_distinct, list_parameters, number_from_zero
from simfloat.options import flag
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.simulation import current

#: PyTorch adds this number to the norm before the division.
SMALL = 1e-6

Parameters = Parameter | Iterable[Parameter]


@in_usual_environment
def clip_grad_norm_(
    parameters: Parameters, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> np.float64:
    """Scale all gradients by one factor so that their common norm is at most `max_norm`; return the norm before.

    Every operation is rounded to the parameter's `weights`, and sums follow `reduce`. A loss scale's `unscale_` also
    rounds gradients to `weights`; call it first. Q is the rounding to the policy's own `weights`, and q the rounding to
    a parameter's `weights`::

        norm = Q(sqrt(Q(sum over parameters q(sum q(g^2)))))
        k = Q(max_norm / Q(norm + 1e-6));  g = q(k g) if k is below 1 or NaN, otherwise g is unchanged

    With norm_type 1, squares and root are omitted; with another p, they are the powers p and 1/p; with inf, the norm is
    the largest |g|, exactly. Call the function inside a `simulate` block. An observer receives the events at ``clip``,
    and at ``clip`` below each parameter.

    Parameters:
        parameters: a parameter, or an iterable of them.
        max_norm: the largest norm, a number that is at least 0; it may be infinite.
        norm_type: the exponent p of the norm, a number above 0, or infinity ("inf").
        error_if_nonfinite: True to raise ValueError if the norm is infinite or NaN; the gradients are then unchanged.

    Returns:
        The norm before clipping, a numpy.float64.

    Raises:
        ValueError: if an object is not a parameter; if max_norm is negative; if norm_type is not above zero; if the
            norm is not finite and error_if_nonfinite is True.

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
        raise ValueError(f"The norm of the gradients is {norm}, and error_if_nonfinite forbids clipping by it.")
    k = whole.divide(np.array(most), whole.add(norm, np.array(SMALL)))
    if not k >= 1:
        for parameter, g, arithmetic in with_gradients:
            parameter.grad = arithmetic.multiply(k, g)
    return np.float64(norm)


@in_usual_environment
def clip_grad_value_(parameters: Parameters, clip_value: float) -> None:
    """Clip every element of the gradients to [-clip_value, clip_value], rounded to the parameter's `weights`.

    Elements inside the range are unchanged, and so is NaN. Call the function inside a `simulate` block.

    Parameters:
        parameters: a parameter, or an iterable of them.
        clip_value: the largest absolute value, a number that is at least 0; it may be infinite.

    Raises:
        ValueError: if an object is not a parameter; if clip_value is negative.

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
    """Return a number from 0, or infinity; raise ValueError for any other value."""
    return inf if isinstance(value, float | np.floating) and value == inf else number_from_zero(name, value)


def _with_gradients(parameters: Any, operation: str) -> list[tuple[Parameter, NDArray, Arithmetic]]:
    """Return the parameters that have a gradient, each with its gradient and the arithmetic for clipping it."""
    parameter_list = [parameters] if isinstance(parameters, Parameter) else list_parameters(parameters, "Clipping")
    check_distinct(parameter_list, taker="Clipping")
    return [
        (p, p.grad, begin_update(p).to_clipped.with_operation(operation)) for p in parameter_list if p.grad is not None
    ]


def _power_sum(arithmetic: Arithmetic, g: NDArray, p: float) -> NDArray:
    """Return the sum of |g|^p, or the largest |g| if p is infinite."""
    size = np.abs(g)
    if p == inf:
        return np.array(float(size.max()) if size.size else 0.0)
    if p == 2:
        size = arithmetic.multiply(g, g)
    elif p != 1:
        size = arithmetic.apply("power", as_array(size), np.array(p))
    return arithmetic.sum(as_array(size), tuple(range(g.ndim)))


def _norm(parts: list[NDArray], arithmetic: Arithmetic, p: float) -> NDArray:
    """Return the norm that belongs to these power sums."""
    sums = np.array([float(part) for part in parts])
    if p == inf:
        return np.array(sums.max(initial=0.0))
    total = arithmetic.sum(sums, (0,))
    if p == 1:
        return total
    return arithmetic.apply("sqrt", total) if p == 2 else arithmetic.apply("power", total, np.array(1 / p))


#: At most this many numbers are added one after another.
FEW = 64


def sequential_sum(values: Iterable[float]) -> float:
    """Return the sum of numbers, added one after another; the built-in `sum` compensates in Python 3.12 and later."""
    return reduce(add, values, 0.0)


def sum_of_squares(x: NDArray) -> float:
    """Return the sum of all x^2, or an infinity or NaN if x contains one; x may be on a GPU.

    The second half of the squares, in C order, is added to the first half. This repeats until few are left, which are
    added one after another. If the count is odd, the middle square has no partner.
    """
    squares = x.ravel().astype(np.float64)
    with np.errstate(all="ignore"):
        squares *= squares
        while squares.size > FEW:
            half = (squares.size + 1) // 2
            squares[: squares.size - half] += squares[half:]
            squares = squares[:half]
        return sequential_sum(on_cpu(squares).tolist())
