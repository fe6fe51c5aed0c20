"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import ClassVar

from numpy.typing import NDArray

from simfloat.optim.optimizer import Optimizer, Params
from simfloat.optim.optimizer_options import Option, flag, number, number_from_zero
from simfloat.optim.step import Step
from simfloat.updates.sgd_formula import sgd


class SGD(Optimizer):
    """d = g + weight_decay * w; m = momentum * m + (1 - dampening) * d; w = w - lr * m (Nesterov: d + momentum * m).

    Every + and * is rounded once: to `optimizer_state` where m is made, to `weights` everywhere else; but for that by
    the momentum, a factor of 1 or -1 is no product. lr, momentum, dampening and weight_decay are exact float64
    operands. The last addition follows the policy's `update`. Options
    and their meaning are torch.optim.SGD's; m, kept as `momentum_buffer`, starts as d.

    Raises ValueError for options that are no finite numbers, negative ones (dampening may be), and parameters that are
    none or come twice.

    Examples:
        >>> weight = sf.Parameter([[1.0, 2.0], [3.0, 4.0]])
        >>> optimizer = sf.optim.SGD([weight], lr=0.1, momentum=0.9)
        >>> with sf.simulate("bf16-standard"):
        ...     (weight * weight).sum().backward()
        ...     optimizer.step()
        >>> weight.data
        array([[0.80078125, 1.6015625 ],
               [2.40625   , 3.203125  ]], dtype=float32)
    """

    kept = ("momentum_buffer",)
    kept_with: ClassVar[Mapping[str, str] | None] = {"momentum_buffer": "momentum"}
    is_elementwise = True

    momentum = Option(number_from_zero)
    dampening = Option(number)
    weight_decay = Option(number_from_zero)
    nesterov = Option(flag)
    maximize = Option(flag)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            nesterov=nesterov,
            maximize=maximize,
        )

    def check(self, options: SimpleNamespace) -> None:
        """Raise ValueError unless these options may be used together."""
        if options.nesterov and (options.momentum == 0 or options.dampening != 0):
            raise ValueError("Nesterov momentum needs a momentum above zero and no dampening.")

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter: -lr * m."""
        return sgd(step, gradient, options)
