"""Lion."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, decay, flag, number_from_zero, several
from simfloat.optim.step import Step


class Lion(Optimizer):
    """w = w - lr (sign(b1 m + (1 - b1) g) + weight_decay w); then m = b2 m + (1 - b2) g.

    With Q the rounding to `weights` and S that to `optimizer_state`::

        c = Q(Q(b1 m) + Q((1 - b1) g))
        u = Q(-lr Q(sign(c) + Q(weight_decay w)))
        m = S(Q(b2 m) + Q((1 - b2) g))

    and w + u follows the policy's `update`. lr, betas, 1 - betas and weight_decay are exact float64 operands. m, kept
    as `exp_avg`, starts as zeros; without weight_decay u is Q(-lr sign(c)).

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: algorithm
    2 of Chen et al. 2023, arXiv 2302.06675, whose betas are the defaults; lr and weight_decay are those of its
    reference code.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Lion([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("exp_avg",)
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    weight_decay = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay, maximize=maximize)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * (sign(c) + weight_decay * w)."""
        b1, b2 = options.betas
        m = step.previous_moment("exp_avg", gradient.shape)
        c = step.mix(b1, m, 1 - b1, gradient)
        step.moment("exp_avg", gradient, keep=b2, take=1 - b2)
        return step.multiply(-options.lr, step.with_decay(step.sign(c), options.weight_decay))
