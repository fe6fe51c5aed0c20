"""NAdam."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, decay, flag, number_from_zero, several
from simfloat.optim.step import Step


class NAdam(Optimizer):
    """Adam with Nesterov's momentum, mu = b1 (1 - 0.96^(t momentum_decay) / 2) in step t.

    With Q the rounding to `weights` and S that to `optimizer_state`, c2 = 1 - b2^t, p the product of mu up to this step
    and mu' that of the next step::

        d = Q(g + Q(weight_decay w))
        m = S(m + Q((1 - b1) Q(d - m)));  v = S(Q(b2 v) + Q(Q((1 - b2) d) d))
        x = Q(Q(sqrt(Q(v / c2))) + eps)
        w = w + Q(Q(-lr (1 - mu) / (1 - p) d) / x)
        w = w + Q(Q(-lr mu' / (1 - p mu') m) / x)

    where both additions to w follow the policy's `update`. If b1 <= 1/2, m = S(d - Q(b1' Q(d - m))) with b1' = 1 -
    (1 - b1). Factors are exact float64 operands; one of 1 or -1 rounds nothing. p, kept as `mu_product`, is a float32
    number, as in PyTorch. With decoupled_weight_decay d is g, and w = Q((1 - lr weight_decay) w) comes first. Kept are
    `exp_avg`, `exp_avg_sq`, `mu_product` and `step`. Options and their meaning are torch.optim.NAdam's, whose bits
    these are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, negative ones, and betas outside [0, 1). Source: Dozat,
    Incorporating Nesterov Momentum into Adam, ICLR workshop 2016.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.NAdam([weight], lr=0.1)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.89453125, 1.890625  ],
               [2.90625   , 3.90625   ]], dtype=float32)
    """

    kept = ("step", "mu_product", "exp_avg", "exp_avg_sq")
    kept_with: ClassVar[Mapping[str, str] | None] = {}
    is_elementwise = True

    betas = Option(several(decay, decay))
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    momentum_decay = Option(number_from_zero)
    decoupled_weight_decay = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """The second part of what is added to the parameter, that of the average; that of the gradient is added."""
        (b1, b2), lr, t = options.betas, options.lr, step.count()
        d = apply_decay(step, gradient, options)
        mu, following = (b1 * (1.0 - 0.5 * 0.96 ** (n * options.momentum_decay)) for n in (t, t + 1))
        product = step.product("mu_product", mu)
        m = step.lerp("exp_avg", d, 1 - b1)
        v = step.mean_square("exp_avg_sq", d, b2)
        x = step.add(step.sqrt(step.divide(v, 1 - b2**t)), options.eps)
        step.advance(step.divide(step.times(-lr * (1.0 - mu) / (1.0 - product), d), x))
        return step.divide(step.times(-lr * following / (1.0 - product * following), m), x)


def apply_decay(step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
    """The gradient with the weight's decay; where that is decoupled, itself, and the weight is multiplied at once."""
    if not options.decoupled_weight_decay:
        return step.with_decay(gradient, options.weight_decay)
    if options.weight_decay:
        step.shrink(1 - options.lr * options.weight_decay)
    return gradient
