"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable

from numpy.typing import NDArray

from simfloat.autodiff import Parameter
from simfloat.optim.optimizer import Optimizer, Step


class SGD(Optimizer):
    """d = g + weight_decay * w; m = momentum * m + (1 - dampening) * d; w = w - lr * m (Nesterov: d + momentum * m).

    Every + and * is rounded once: to `optimizer_state` where m is made, to `weights` everywhere else. lr, momentum,
    dampening and weight_decay are exact float64 operands. The last addition follows the policy's `update`. Options
    and their meaning are torch.optim.SGD's; m starts as d.
    """

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
        super().__init__(params, lr)
        for name, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value!r}.")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum needs a momentum above zero and no dampening.")
        self.momentum, self.dampening, self.weight_decay = momentum, dampening, weight_decay
        self.nesterov, self.maximize = nesterov, maximize

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
            fresh = d if not self.dampening else step.multiply(1 - self.dampening, d)
            m = step.moment("momentum_buffer", step.multiply(self.momentum, before), fresh)
        return step.add(d, step.multiply(self.momentum, m)) if self.nesterov else m
