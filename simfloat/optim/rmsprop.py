"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, flag, number_from_zero
from simfloat.optim.step import Step


class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) d^2; w = w - lr d / (sqrt(v) + eps), with d = g + weight_decay w.

    With Q the rounding to `weights` and S that to `optimizer_state`::

        d = Q(g + Q(weight_decay w))
        v = S(Q(alpha v) + Q(Q((1 - alpha) d) d))
        u = Q(Q(-lr d) / Q(Q(sqrt(v)) + eps))

    and w + u follows the policy's `update`. With momentum, of which m starts as zeros::

        m = S(Q(momentum m) + Q(d / Q(Q(sqrt(v)) + eps)));  u = Q(-lr m)

    `centered` takes the square of the mean gradient a from v: the root is that of Q(v + Q(-a a)) with::

        a = S(a + Q((1 - alpha) Q(d - a))), or S(d - Q(alpha' Q(d - a))) with alpha' = 1 - (1 - alpha) if alpha <= 1/2

    lr, alpha, 1 - alpha, momentum, eps and weight_decay are exact float64 operands; without weight_decay d is g, and a
    factor of 1 or -1 rounds nothing. Kept are `square_avg`, `grad_avg`, `momentum_buffer` and `step`. Options and their
    meaning are torch.optim.RMSprop's, whose bits these are under `simfloat.torch`.

    Raises ValueError for options that are no finite numbers, and negative ones. Source: Tieleman and Hinton, lecture
    6.5 of COURSERA: Neural Networks for Machine Learning, 2012; `centered`: Graves, arXiv 1308.0850.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.RMSprop([weight], lr=0.01)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.8984375, 1.8984375],
               [2.90625  , 3.90625  ]], dtype=float32)
    """

    kept = ("step", "square_avg", "grad_avg", "momentum_buffer")
    kept_with: ClassVar[Mapping[str, str] | None] = {"grad_avg": "centered", "momentum_buffer": "momentum"}
    is_elementwise = True

    alpha = Option(number_from_zero)
    eps = Option(number_from_zero)
    weight_decay = Option(number_from_zero)
    momentum = Option(number_from_zero)
    centered = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        *,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            alpha=alpha,
            eps=eps,
            weight_decay=weight_decay,
            momentum=momentum,
            centered=centered,
            maximize=maximize,
        )

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * d over the root of the mean square."""
        step.count()
        d = step.with_decay(gradient, options.weight_decay)
        v = step.mean_square("square_avg", d, options.alpha)
        if options.centered:
            mean = step.lerp("grad_avg", d, 1 - options.alpha)
            v = step.add(v, step.multiply(step.negative(mean), mean))
        root = step.add(step.sqrt(v), options.eps)
        if not options.momentum:
            return step.divide(step.times(-options.lr, d), root)
        m = step.moment("momentum_buffer", step.divide(d, root), keep=options.momentum)
        return step.times(-options.lr, m)
