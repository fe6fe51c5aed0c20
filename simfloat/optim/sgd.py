"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from simfloat.autodiff import Parameter
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import flag, number, number_from_zero
from simfloat.optim.step import Step


class SGD(Optimizer):
    """d = g + weight_decay * w; m = momentum * m + (1 - dampening) * d; w = w - lr * m (Nesterov: d + momentum * m).

    Every + and * is rounded once: to `optimizer_state` where m is made, to `weights` everywhere else. lr, momentum,
    dampening and weight_decay are exact float64 operands. The last addition follows the policy's `update`. Options
    and their meaning are torch.optim.SGD's; m starts as d.

    Raises ValueError for options that are no finite numbers, negative ones (dampening may be), and parameters that are
    none or come twice.
    """

    options = {
        **Optimizer.options,
        "momentum": number_from_zero,
        "dampening": number,
        "weight_decay": number_from_zero,
        "nesterov": flag,
        "maximize": flag,
    }
    moments = ("momentum_buffer",)

    momentum: float
    dampening: float
    weight_decay: float
    nesterov: bool
    maximize: bool

    def __init__(
        self,
        params: Iterable[Parameter],
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

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError unless these options may be used together."""
        super().check(options)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise ValueError("Nesterov momentum needs a momentum above zero and no dampening.")

    def direction(self, step: Step, gradient: NDArray) -> NDArray:
        """What is subtracted from the parameter, before it is multiplied by lr."""
        d = -gradient if self.maximize else gradient
        if self.weight_decay:
            d = step.add(d, step.multiply(self.weight_decay, step.weight))
        if not self.momentum:
            return d
        before = step.state.get("momentum_buffer")
        if before is None:
            m = step.moment("momentum_buffer", d)
        else:
            fresh = d if not self.dampening else step.multiply(1 - float(self.dampening), d)
            m = step.moment("momentum_buffer", step.multiply(self.momentum, before), fresh)
        return step.add(d, step.multiply(self.momentum, m)) if self.nesterov else m
