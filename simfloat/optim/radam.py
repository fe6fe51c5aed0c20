"""RAdam."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.nadam import apply_decay
from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, decay, flag, number_from_zero, several
from simfloat.optim.step import Step


class RAdam(Optimizer):
    """Adam with a learning rate that is rectified while the mean square knows few gradients.

    With Q the rounding to `weights` and S that to `optimizer_state`, c1 = 1 - b1^t, c2 = 1 - b2^t in step t, R =
    2 / (1 - b2) - 1 and r = R - 2 t b2^t / c2::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(lr Q(m / c1))
        u = -x, or for r > 5: -Q(Q(x Q(sqrt(c2) Q(1 / Q(Q(sqrt(v)) + eps)))) sqrt((r-4)(r-2)R / ((R-4)(R-2)r)))

    and w + u follows the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 - (1 - b1). Factors
    are exact float64 operands. With decoupled_weight_decay d is g, and w = Q((1 - lr weight_decay) w) comes first. Kept
    are `exp_avg`, `exp_avg_sq` and `step`. Options and their meaning are torch.optim.RAdam's, whose bits these are
    under `simfloat.torch` with ``foreach=False``.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Liu et
    al., arXiv 1908.03265.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.RAdam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.80078125, 1.6015625 ],
               [2.40625   , 3.203125  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_avg_sq")
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    decoupled_weight_decay = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: the average, over the root of the mean square once that is known well."""
        (b1, b2), t = options.betas, step.count()
        d = apply_decay(step, gradient, options)
        m = step.lerp("exp_avg", d, 1 - b1)
        v = step.mean_square("exp_avg_sq", d, b2)
        c2, longest = 1 - b2**t, 2 / (1 - b2) - 1
        x = step.multiply(options.lr, step.divide(m, 1 - b1**t))
        length = longest - 2 * t * (b2**t) / c2  # of the average that v is
        if length > 5.0:
            inverse = step.divide(1.0, step.add(step.sqrt(v), options.eps))
            x = step.multiply(x, step.multiply(c2**0.5, inverse))
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            x = step.multiply(rectified**0.5, x)
        return step.negative(x)
