"""Adafactor."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import (
    Option,
    flag,
    number_from_one,
    number_from_zero,
    number_up_to_zero,
    optional,
    several,
)
from simfloat.optim.step import Step
from simfloat.updates.update_arithmetic import COMPENSATION, STEP


class Adafactor(Optimizer):
    """Updates by g over the root of a second moment that is kept, for matrices, as its means over rows and columns.

    With Q the rounding to `weights`, S that to `optimizer_state`, rms(x) = Q(sqrt(Q(Q(sum Q(x^2)) / n))) with sums by
    `reduce`, o = t^beta2_decay and r = min(lr, 1 / sqrt(t)) in step t, and eps1 = eps[0], or the eps of `weights` where
    that is None::

        rate = Q(r max(eps[1], rms(w)))
        row = S(Q((1 - o) row) + Q(o Q(Q(sum Q(g^2)) / columns)));  column in the same way, over rows
        v = Q(Q(row column) / max(eps1, Q(Q(sum row) / rows)))
        x = Q(Q(1 / sqrt(max(eps1^2, v))) g)
        u = Q(-Q(rate / max(1, Q(rms(x) / d))) x)
        u = Q(u + Q(-lr Q(weight_decay w)))

    and w + u follows the policy's `update`. Of parameters with one axis or none the second moment itself is kept: v =
    S(Q((1 - o) v) + Q(o Q(g^2))). o, 1 - o, r, lr and the eps are exact float64 operands; the last line is left out
    without weight_decay. Kept are `row_var` and `col_var`, over the last two axes, or `variance`, and `step`. Options
    and their meaning are torch.optim.Adafactor's.

    Raises ValueError for options that are no finite numbers, negative ones, a positive beta2_decay and d below 1.
    Source: Shazeer and Stern, arXiv 1804.04235.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adafactor([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.7890625, 1.703125 ],
               [2.71875  , 3.734375 ]], dtype=float32)
    """

    kept = (STEP, "row_var", "col_var", "variance")
    kept_with: ClassVar[Mapping[str, str] | None] = {}

    beta2_decay = Option(number_up_to_zero)
    eps = Option(several(optional(number_from_zero), number_from_zero))
    d = Option(number_from_one)
    weight_decay = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        *,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, maximize=maximize
        )

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shape of every array that may be kept for a parameter of this `shape`, by name."""
        shapes_by_name: dict[str, tuple[int, ...]] = {STEP: (), COMPENSATION: shape}
        if len(shape) < 2:
            return {**shapes_by_name, "variance": shape}
        return {**shapes_by_name, "row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -rate * x, and the decay."""
        t, (eps1, eps2) = step.count(), options.eps
        eps1 = step.format.eps if eps1 is None else eps1
        rate = step.multiply(min(options.lr, 1 / sqrt(t)), step.at_least(eps2, step.root_mean_square(step.weight)))
        v = self.second_moment(step, gradient, t**options.beta2_decay, eps1)
        x = step.multiply(step.rsqrt(step.at_least(eps1 * eps1, v)), gradient)
        excess = step.at_least(1.0, step.divide(step.root_mean_square(x), options.d))
        u = step.multiply(-step.divide(rate, excess), x)
        if options.weight_decay:
            u = step.add(u, step.multiply(-options.lr, step.multiply(options.weight_decay, step.weight)))
        return u

    def second_moment(self, step: Step, gradient: NDArray, take: float, eps1: float) -> NDArray:
        """The average of the squared gradient, in which this step's counts `take`."""
        keep, squares = 1 - take, step.multiply(gradient, gradient)
        if gradient.ndim < 2:
            return step.moment("variance", squares, keep=keep, take=take)
        row = step.moment("row_var", step.mean(squares, -1), keep=keep, take=take)
        column = step.moment("col_var", step.mean(squares, -2), keep=keep, take=take)
        return step.divide(step.multiply(row, column), step.at_least(eps1, step.mean(row, -2)))
