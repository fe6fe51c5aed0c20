"""An optimizer's step: the update of one parameter under the policy in force."""

from __future__ import annotations

from numpy.typing import NDArray

from simfloat.autodiff import Parameter
from simfloat.autodiff.parameter import begin_update
from simfloat.simulation.simulation import Simulation, current
from simfloat.updates.update_arithmetic import UpdateArithmetic


class Step(UpdateArithmetic):
    """The update of one parameter under the policy in force: its arithmetic and its state.

    Results are rounded to `weights`, moments to `optimizer_state`; numbers are exact operands. An observer receives the
    events of the last addition at the parameter's own path, those of a moment at its name below, as operation
    ``moment``, and those of everything else at ``update`` below.
    """

    __slots__ = ("_simulation", "parameter")

    def __init__(self, parameter: Parameter, state: dict[str, NDArray], simulation: Simulation | None = None) -> None:
        self.parameter = parameter
        self._simulation = current() if simulation is None else simulation
        place = begin_update(parameter, self._simulation)
        super().__init__(place, parameter.operand_at(place).numbers, state)

    def store(self, weight: NDArray) -> None:
        """Give the parameter its new numbers."""
        self.parameter.store(weight, self._place.weights, self._simulation.streams)
