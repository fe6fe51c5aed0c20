"""Adadelta."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, flag, number_from_zero, share
from simfloat.optim.step import Step


class Adadelta(Optimizer):
    """v = rho v + (1 - rho) d^2; x = d sqrt(a + eps) / sqrt(v + eps); a = rho a + (1 - rho) x^2; w = w - lr x.

    With Q the rounding to `weights` and S that to `optimizer_state`, d being the gradient with weight_decay w::

        d = Q(g + Q(weight_decay w))
        v = S(Q(rho v) + Q(Q((1 - rho) d) d))
        x = Q(Q(Q(sqrt(Q(a + eps))) / Q(sqrt(Q(v + eps)))) d)
        a = S(Q(rho a) + Q(Q((1 - rho) x) x))
        u = Q(-lr x)

    and w + u follows the policy's `update`. lr, rho, 1 - rho, eps and weight_decay are exact float64 operands; without
    weight_decay d is g, and a factor of 1 or -1, as that of the default lr, rounds nothing. Kept are `square_avg`,
    `acc_delta`, both zeros at first, and `step`. Options and their meaning are torch.optim.Adadelta's, whose bits these
    are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, negative ones, and rho above 1. Source: Zeiler, arXiv
    1212.5701.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adadelta([weight], eps=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.6875, 1.6875],
               [2.6875, 3.6875]], dtype=float32)
    """

    kept = ("step", "square_avg", "acc_delta")
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    rho = Option(share)
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        *,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * d times the root of the mean square of updates over that of d."""
        step.count()
        d = step.with_decay(gradient, options.weight_decay)
        v = step.mean_square("square_avg", d, options.rho)
        below = step.sqrt(step.add(v, options.eps))
        above = step.sqrt(step.add(step.previous_moment("acc_delta", d.shape), options.eps))
        x = step.multiply(step.divide(above, below), d)
        step.mean_square("acc_delta", x, options.rho)
        return step.times(-options.lr, x)
