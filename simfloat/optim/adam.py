"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, decay, flag, number_from_zero, several
from simfloat.optim.step import Step


class Adam(Optimizer):
    """m = b1 m + (1 - b1) d; v = b2 v + (1 - b2) d^2; w = w - lr (m / c1) / (sqrt(v / c2) + eps).

    With Q the rounding to `weights` and S that to `optimizer_state`, c1 = 1 - b1^t and c2 = 1 - b2^t in step t::

        d = Q(g + Q(weight_decay w))
        m = S(Q(b1 m) + Q((1 - b1) d));  v = S(Q(b2 v) + Q((1 - b2) Q(d^2)))
        u = Q(-lr Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)))

    and w + u follows the policy's `update`. lr, betas, 1 - betas, eps, c1 and c2 are exact float64 operands; without
    weight_decay d is g. With `amsgrad`, v in the last line is the largest v so far. Kept are `exp_avg`, `exp_avg_sq`,
    `max_exp_avg_sq` and `step`. Options and their meaning are torch.optim.Adam's.

    In BF16 0.999 times v is v for many v, which then never decays: the observer's `unchanged` of `exp_avg_sq` tells. In
    FP16 an eps of 1e-8 is lost, and the square of a small gradient is zero, so that a quotient may be NaN: there eps is
    to be larger, or `weights` wider.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Kingma
    and Ba, arXiv 1412.6980; the order of operations is that of arXiv 2010.06192.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.Adam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    kept_with: ClassVar[Mapping[str, str] | None] = {"max_exp_avg_sq": "amsgrad"}
    is_elementwise = True
    marks = {"decoupled_weight_decay": False}

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    amsgrad = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * direction, of the gradient with weight_decay * w."""
        d = step.with_decay(gradient, options.weight_decay)
        return step.multiply(-options.lr, self.direction(step, d, options))

    def direction(self, step: Step, d: NDArray, options: SimpleNamespace) -> NDArray:
        """The average of d over the root of that of d^2, both without the bias of their start at zero."""
        (b1, b2), t = options.betas, step.count()
        m = step.moment("exp_avg", d, keep=b1, take=1 - b1)
        v = step.moment("exp_avg_sq", step.multiply(d, d), keep=b2, take=1 - b2)
        if options.amsgrad:
            v = step.largest("max_exp_avg_sq", v)
        root = step.sqrt(step.divide(v, 1 - b2**t))
        return step.divide(step.divide(m, 1 - b1**t), step.add(root, options.eps))


class AdamW(Adam):
    """Adam, whose weights decay beside it and not by way of its averages.

    As in :class:`Adam`, with d = g, and::

        u = Q(-lr Q(Q(Q(m / c1) / Q(Q(sqrt(Q(v / c2))) + eps)) + Q(weight_decay w)))

    so that weight_decay meets w first, and both then lr: a decay that is lost in w is lost as part of u, to which the
    policy's `update` applies. (A factor 1 - lr * weight_decay would do nothing in BF16 below 2^-9.) Options and their
    meaning are torch.optim.AdamW's.

    Raises ValueError as Adam does. Source: Loshchilov and Hutter, arXiv 1711.05101; the order of operations is that of
    arXiv 2010.06192.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.AdamW([weight], lr=0.1, weight_decay=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.890625 , 3.890625 ]], dtype=float32)
    """

    marks = {"decoupled_weight_decay": True}
    is_elementwise = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * (direction + weight_decay * w)."""
        d = self.direction(step, gradient, options)
        return step.multiply(-options.lr, step.with_decay(d, options.weight_decay))
