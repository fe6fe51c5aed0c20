"""Parameters: tensors that a model learns, stored in the policy's `weights`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.machines import Machine, is_sealed, machine_of, seal
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.owned import Owned
from simfloat.autodiff.tensor import Tensor
from simfloat.formats import Format, nearest_even
from simfloat.hints import warn
from simfloat.simulation import Place, Simulation, current


class Parameter(Owned, Tensor):
    """A tensor that a model learns: stored and updated in the policy's `weights`.

    With `requires_grad=False` it has no gradient, and optimizers leave it as it is.

    A value outside that format is rounded to it, to nearest even, before its next use. `data` may be assigned, and is
    then copied, or written to: what it hands out is the array that is used, until a step, an assignment or the first
    rounding of a float64 array to a format that float32 holds replaces it. An array that was replaced is read-only, so
    that writing to it is an error; views that were taken of it are not, and what is written to them is lost: take them
    anew from `data` after a step. `path` is the parameter's place in the model, such as ``hidden.0.weight``.

    Examples:
        >>> p = sf.Parameter([1.0, 2.0])
        >>> p.requires_grad, p.shape
        (True, (2,))
    """

    is_weight = True
    name = ""  # its path as long as no module owns it

    def __init__(self, data: ArrayLike | Tensor, requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad)
        self.format = None
        self.numbers = np.array(self.numbers, like=self.numbers)
        self._is_lent = False  # whether others may write to the array
        self._drawn: tuple[int, int] | None = None  # seed and number of the simulation that updated it at random

    @property
    def path(self) -> str:
        """The names from the model down to the parameter, joined by dots."""
        return super().path or self.name

    @property
    def data(self) -> NDArray[np.floating]:
        """The numbers; the next use rounds what is written to them, or assigned, to `weights`."""
        self._is_lent = True
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        if value is not self.numbers:  # as after ``p.data -= x``, which has written to it already
            numbers = as_operand(value, "data")
            self._replace(np.array(numbers, like=numbers))
        self.format = self._drawn = None

    @property
    def held_format(self) -> Format | None:
        """What its numbers were rounded to, unless others may have written to them since."""
        return None if self._is_lent else self.format

    def move(self, machine: Machine) -> None:
        """Take the numbers, and the gradient, to a machine."""
        if machine is not machine_of(self.numbers):
            self._replace(machine.take(self.numbers))
        if self.grad is not None:
            self.grad = machine.take(self.grad)

    def store(self, value: NDArray, format: Format) -> None:
        """Take numbers of `format` as the new value."""
        self._replace(value)
        self.format = format

    def conform(self, format: Format) -> None:
        """Round the value to `format` unless it is known to be in it."""
        if self.format == format and not self._is_lent:
            return
        rounded = round_array(self.numbers, Target(format, nearest_even, carrier_of(format)))
        if self._is_lent and self.numbers.dtype == rounded.dtype and not is_sealed(self.numbers):
            self.numbers[...] = rounded
            self.format = format
        else:
            self.store(rounded, format)

    def conform_in(self, simulation: Simulation) -> str:
        """Round the value to what the simulation stores it in; returns its path there."""
        return self.place_in(simulation).path

    def place_in(self, simulation: Simulation) -> Place:
        """The place of its updates, once the value is rounded to what the simulation stores it in."""
        place = simulation.place("update", simulation.path_of(self))
        weights = place.recipe.weights
        try:
            self.conform(weights)
        except ValueError as error:
            raise ValueError(
                f"The parameter {place.path!r} is stored in {weights}, its role weights: {error}"
            ) from None
        return place

    def _replace(self, numbers: NDArray) -> None:
        if self._is_lent:
            seal(self.numbers)
        self.numbers, self._is_lent = numbers, False


def forget_gradients(parameters: Iterable[Parameter], set_to_none: bool) -> None:
    """Take their gradients away, or set those that there are to zero, which optimizers then take for gradients.

    Raises ValueError unless set_to_none is True or False.
    """
    if not isinstance(set_to_none, bool):
        raise ValueError(f"set_to_none must be True or False, got {set_to_none!r}.")
    for parameter in parameters:
        parameter.grad = None if set_to_none or parameter.grad is None else np.zeros_like(parameter.grad)


def begin_update(parameter: Parameter) -> Place:
    """The place of a parameter's update, with the parameter brought into its format.

    Warns where a stochastic update would draw the random bits of an earlier simulation again.
    """
    simulation = current()
    place = parameter.place_in(simulation)
    if place.recipe.update == "stochastic":
        _note_draws(parameter, simulation)
    return place


def _note_draws(parameter: Parameter, simulation: Simulation) -> None:
    before, now = parameter._drawn, (simulation.seed, simulation.number)
    parameter._drawn = now
    repeats = before is not None and before != now and before[0] == now[0] and not simulation.is_restored
    if repeats and simulation.warn_once():
        warn(
            f"{parameter.path or 'A parameter'} was updated in another simulation of seed {simulation.seed}, and draws "
            "the same random bits again. Keep one simulation, `sim = simfloat.simulate(...)`, and enter it for every "
            "step, `with sim:`; or give each a seed of its own, or go on with sim.load_state(state)."
        )
