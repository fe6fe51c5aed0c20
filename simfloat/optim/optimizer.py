"""What optimizers share: parameters, state, and the arithmetic of a step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, current


class Optimizer:
    """An optimizer of `params` with learning rate `lr`; each kind defines its `direction`."""

    def __init__(self, params: Iterable[Parameter], lr: float) -> None:
        self.params = list(params)
        if not self.params:
            raise ValueError("An optimizer needs parameters; got none.")
        for parameter in self.params:
            if not isinstance(parameter, Parameter):
                raise ValueError(f"An optimizer takes model.parameters(), got a {type(parameter).__name__} among them.")
        if not lr >= 0:
            raise ValueError(f"lr must not be negative, got {lr!r}.")
        self.lr = lr
        self.state: list[dict[str, NDArray]] = [{} for _ in self.params]

    def zero_grad(self) -> None:
        """Forget the gradients of the parameters."""
        for parameter in self.params:
            parameter.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient; inside a `simulate` block."""
        for parameter, state in zip(self.params, self.state, strict=True):
            if parameter.grad is not None:
                step = Step(parameter, state)
                step.finish(step.multiply(-self.lr, self.direction(step, parameter.grad)))

    def direction(self, step: Step, gradient: NDArray) -> NDArray:
        """What is subtracted from the parameter, before it is multiplied by lr."""
        raise ValueError(f"{type(self).__name__} has no direction method; define one.")

    def state_dict(self) -> dict[str, Any]:
        """Copies of the state of every parameter, in their order, and lr."""
        return {"lr": self.lr, "state": [{key: value.copy() for key, value in state.items()} for state in self.state]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave. Raises ValueError if it is of another number of parameters."""
        if len(state["state"]) != len(self.params):
            raise ValueError(f"The state is of {len(state['state'])} parameters, the optimizer has {len(self.params)}.")
        self.lr = state["lr"]
        self.state = [{key: np.array(value) for key, value in entry.items()} for entry in state["state"]]


class Step:
    """The update of one parameter under the policy in force: its arithmetic and its state.

    Results are rounded to `weights`, moments to `optimizer_state`. An observer hears of the last addition at the
    parameter's own path, and of everything else at names below it.
    """

    def __init__(self, parameter: Parameter, state: dict[str, NDArray]) -> None:
        self.parameter, self.state = parameter, state
        self._place = current().place("update", parameter.path)
        parameter.conform(self._place.recipe.weights)

    @property
    def weight(self) -> NDArray:
        """The parameter's numbers."""
        return self.parameter.data

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        """a + b, rounded to `weights`."""
        return self._place.to_update.apply("add", a, b)

    def subtract(self, a: NDArray, b: NDArray) -> NDArray:
        """a - b, rounded to `weights`."""
        return self._place.to_update.apply("subtract", a, b)

    def multiply(self, scalar: float, b: NDArray) -> NDArray:
        """An exact number times b, rounded to `weights`."""
        return self._place.to_update.apply("multiply", np.array(scalar), b)

    def moment(self, name: str, a: NDArray, b: NDArray | None = None) -> NDArray:
        """a, or a + b, rounded to `optimizer_state` and kept under `name`."""
        unit = self._place.to_moment
        self.state[name] = unit.round(a) if b is None else unit.apply("add", a, b)
        return self.state[name]

    def finish(self, u: NDArray) -> None:
        """Add the update u to the parameter, in the way that the policy's `update` says."""
        recipe, unit, w = self._place.recipe, self._place.to_parameter, self.parameter.data
        if recipe.update == "kahan":
            # Kahan 1965, as algorithm 1 of arXiv 2010.06192; `compensation` is what the sum has lost so far, negated.
            lost = self.state.get("compensation")
            y = u if lost is None else self.subtract(u, lost)
            s = unit.apply("add", w, y)
            self.state["compensation"] = self.subtract(self.subtract(s, w), y)
        else:
            s = unit.apply("add", w, u)
        self.parameter.store(s, recipe.weights)
