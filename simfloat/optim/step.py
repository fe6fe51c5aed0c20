"""The arithmetic of an optimizer's step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, begin_update

#: Under this name a Kahan update keeps what the sum of a parameter has lost so far, negated.
COMPENSATION = "compensation"


class Step:
    """The update of one parameter under the policy in force: its arithmetic and its state.

    Results are rounded to `weights`, moments to `optimizer_state`. An observer hears of the last addition at the
    parameter's own path, and of everything else at names below it.
    """

    __slots__ = ("_place", "parameter", "state")

    def __init__(self, parameter: Parameter, state: dict[str, NDArray]) -> None:
        self.parameter, self.state = parameter, state
        self._place = begin_update(parameter)

    @property
    def weight(self) -> NDArray:
        """The parameter's numbers."""
        return self.parameter.numbers

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        """a + b, rounded to `weights`."""
        return self._place.to_update.apply("add", a, b)

    def subtract(self, a: NDArray, b: NDArray) -> NDArray:
        """a - b, rounded to `weights`."""
        return self._place.to_update.apply("subtract", a, b)

    def multiply(self, scalar: float, b: NDArray) -> NDArray:
        """An exact number times b, rounded to `weights`."""
        return self._place.to_update.apply("multiply", np.array(float(scalar)), b)

    def moment(self, name: str, a: NDArray, b: NDArray | None = None) -> NDArray:
        """a, or a + b, rounded to `optimizer_state` and kept under `name`."""
        arithmetic = self._place.to_moment
        self.state[name] = arithmetic.round(a) if b is None else arithmetic.apply("add", a, b)
        return self.state[name]

    def finish(self, u: NDArray) -> None:
        """Add the update u to the parameter, in the way that the policy's `update` says."""
        w, last = self.parameter.numbers, self._place.to_parameter
        if self._place.recipe.update == "kahan":
            # Kahan 1965, as algorithm 1 of arXiv 2010.06192.
            lost = self.state.get(COMPENSATION)
            u = u if lost is None else self.subtract(u, lost)
            s = last.apply("update", w, u)
            self.state[COMPENSATION] = self.subtract(self.subtract(s, w), u)
        else:
            s = last.apply("update", w, u)
        self.parameter.store(s, self._place.recipe.weights)
