"""Adamax."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, decay, flag, number_from_zero, several
from simfloat.optim.step import Step


class Adamax(Optimizer):
    """m = b1 m + (1 - b1) d; n = max(b2 n, |d| + eps); w = w - lr / (1 - b1^t) m / n, with d = g + weight_decay w.

    With Q the rounding to `weights` and S that to `optimizer_state`, in step t::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  n = S(max(Q(b2 n), Q(Q(|d|) + eps)))
        u = Q(Q(-(lr / (1 - b1^t)) m) / n)

    and w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1). Factors
    and eps are exact float64 operands; a factor of -1 rounds nothing. Kept are `exp_avg`, `exp_inf` and `step`. Options
    and their meaning are torch.optim.Adamax's, whose bits these are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Kingma
    and Ba, arXiv 1412.6980, algorithm 2.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adamax([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_inf")
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: the average of d over the largest size of d, which decays."""
        (b1, b2), t = options.betas, step.count()
        d = step.with_decay(gradient, options.weight_decay)
        m = step.lerp("exp_avg", d, 1 - b1)
        before = step.multiply(b2, step.previous_moment("exp_inf", d.shape))
        n = step.keep("exp_inf", step.larger(before, step.add(step.magnitude(d), options.eps)))
        return step.divide(step.times(-(options.lr / (1 - b1**t)), m), n)
