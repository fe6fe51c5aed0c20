"""Parameters: tensors that a model learns, used and updated in the policy's `weights`; and their paths.

The paths of modules and parameters are found by weak links to their owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import Device, device_of, freeze
from simfloat.arithmetic.operands import as_operand, same_bits
from simfloat.arithmetic.operations import round_array
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.tensor import Tensor
from simfloat.autodiff.variable import Guard, ParameterGuard, Variable
from simfloat.common import check_flags
from simfloat.formats import Format, nearest_even
from simfloat.simulation.place import Place
from simfloat.simulation.simulation import Simulation, current
from simfloat.simulation.streams import Streams


class Owned:
    """What modules hold as attributes: modules and parameters.

    A part may have several owners, as a shared layer has; its path is by way of the first of those that hold it now.
    Links are weak, so that neither a copy nor a pickle of a part carries the whole model.
    """

    _owners: tuple[tuple[ref[Any], str], ...] = ()

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, by way of its first owner, joined by dots.

        Empty for what has no owner.
        """
        for owner, name in self._holders():
            return f"{above}.{name}" if (above := owner.path) else name
        return ""

    def _attach(self, owner: Any, name: str) -> None:
        """Note that `owner` holds this as its attribute `name`."""
        alive = tuple((holder, its_name) for holder, its_name in self._owners if holder() is not None)
        if not any(holder() is owner and its_name == name for holder, its_name in alive):
            alive += ((ref(owner), name),)
        self._owners = alive

    def _holders(self) -> Iterator[tuple[Any, str]]:
        """The owners that hold this now, and under which name, the first one first."""
        for holder, name in self._owners:
            owner = holder()
            if owner is not None and vars(owner).get(name) is self:
                yield owner, name

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_owners"}


def outermost_owner(part: Any) -> Any:
    """The module at which the part's path begins; None for what has no owner."""
    for owner, _ in part._holders():
        return outermost_owner(owner) if owner.path else owner
    return None


class Parameter(Owned, Tensor):
    """A tensor that a model learns: updated in the policy's `weights`, and stored as it was last written.

    With `requires_grad=False` it has no gradient, and optimizers leave it as it is.

    Numbers outside of `weights` are used as rounded to that format, to nearest even, and stay as they are: only a step
    of an optimizer, loading and the program's own writing change what is stored, so that policies can be compared on
    one model in any order. `data` is what is stored. It may be assigned, and is then copied, or written to, until a
    step or an assignment replaces the array. An array that was replaced is read-only, so that writing to it is an
    error; views that were taken of it are not, and what is written to them is lost: take them anew from `data` after a
    step. `format` is what the stored numbers are known to be rounded to, None where that is not known. `path` is the
    parameter's place in the model, such as ``hidden.0.weight``.

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
        self._is_lent = False  # whether `data` handed out the array, to which callers may write
        self._rounded: tuple[Format, NDArray] | None = None  # the numbers as they were last used, where they differ

    @property
    def path(self) -> str:
        """The names from the model down to the parameter, joined by dots."""
        return super().path or self.name

    @property
    def _outermost(self) -> Any:
        """The module at which the path begins; None where no module owns the parameter."""
        return outermost_owner(self)

    @property
    def data(self) -> NDArray[np.floating]:
        """The numbers that are stored; they may be written to, and assigned."""
        if not self._is_lent and self.format is not None:
            # What operations used stays as it was when callers write to the array that is handed out.
            self._rounded, self.numbers = (self.format, self.numbers), np.array(self.numbers, like=self.numbers)
        self._is_lent = True
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        if value is not self.numbers:  # as after ``p.data -= x``, which has written to it already
            numbers = as_operand(value, "data")
            self._replace(np.array(numbers, like=numbers))
        self.format = self.made_with = None

    @property
    def current_format(self) -> Format | None:
        """What its numbers were rounded to, unless callers may have written to them since."""
        return None if self._is_lent else self.format

    def move(self, machine: Device) -> None:
        """Take the numbers, and the gradient, to a machine."""
        if machine is not device_of(self.numbers):
            self._replace(machine.to_device(self.numbers))
        if self.grad is not None:
            self.grad = machine.to_device(self.grad)

    def store(self, value: NDArray, format: Format, streams: Streams | None = None) -> None:
        """Take numbers of `format` as the new value, which a simulation with these random streams computed."""
        self._replace(value)
        self.format, self.made_with = format, streams

    def operand_at(self, place: Place) -> Variable:
        """What operations read: itself where it is known to be in its format there, else a rounded copy."""
        weights = place.weights
        if not self._is_lent and (self.format is weights or self.format == weights):
            return self
        try:
            rounded = self._as_rounded(weights)
        except ValueError as error:
            raise ValueError(f"The parameter {place.path!r} is used in {weights}, its role weights: {error}") from None
        return RoundedParameter(self, rounded, weights)

    @property
    def origin(self) -> Guard:
        """Itself, with the numbers that it has now."""
        return ParameterGuard(self, self.numbers, self.format)

    def has_numbers(self, numbers: NDArray, format: Format | None) -> bool:
        """Whether these are, bit for bit, its numbers as they are used in a format."""
        if numbers is self.numbers and not self._is_lent:
            return True
        try:
            return same_bits(self.numbers if format is None else self._as_rounded(format), numbers)
        except ValueError:  # for numbers that the format lacks
            return False

    def _as_rounded(self, format: Format) -> NDArray:
        """Its numbers in `format`: the array itself where it was not handed out and holds such numbers, or a copy.

        It is kept, and is the same array again as long as the stored numbers stay as they are.
        """
        rounded_format, last_rounded = self._rounded or (None, self.numbers)
        if rounded_format == format and not self._is_lent:
            return last_rounded
        rounded = round_array(self.numbers, Target(format, nearest_even, carrier_of(format)))
        if rounded_format == format and same_bits(last_rounded, rounded):
            return last_rounded
        if not self._is_lent and same_bits(self.numbers, rounded):
            rounded = self.numbers
            self.format = self.format or format
        self._rounded = format, rounded
        return rounded

    def _replace(self, numbers: NDArray) -> None:
        if self._is_lent:
            freeze(self.numbers)
        self.numbers, self._is_lent, self._rounded = numbers, False, None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_rounded": None, "made_with": None}


class RoundedParameter(Variable):
    """A parameter as operations under a policy read it: its numbers as rounded to `weights`, never written to."""

    is_weight = True

    def __init__(self, parameter: Parameter, numbers: NDArray, format: Format) -> None:
        super().__init__(numbers, parameter.requires_grad, format)
        self._parameter = parameter

    @property
    def path(self) -> str:
        """That of the parameter."""
        return self._parameter.path

    @property
    def _outermost(self) -> Any:
        """That of the parameter."""
        return self._parameter._outermost

    @property
    def trace(self) -> Variable:
        """What the record holds of it: the parameter."""
        return self._parameter

    @property
    def current_format(self) -> Format | None:
        """What its numbers were rounded to."""
        return self.format

    @property
    def origin(self) -> Guard:
        """The parameter, with the numbers that are used of it."""
        return ParameterGuard(self._parameter, self.numbers, self.format)


def forget_gradients(parameters: Iterable[Parameter], set_to_none: bool) -> None:
    """Remove their gradients, or set existing ones to zero, which optimizers then use as gradients.

    Raises ValueError unless set_to_none is True or False.
    """
    check_flags(set_to_none=set_to_none)
    for parameter in parameters:
        parameter.grad = None if set_to_none or parameter.grad is None else np.zeros_like(parameter.grad)


def begin_update(parameter: Parameter, simulation: Simulation | None = None) -> Place:
    """The place of a parameter's update; warns where the simulation draws random bits of an earlier one again."""
    simulation = current() if simulation is None else simulation
    simulation.repeated_draws.update(parameter.made_with)
    return simulation.place("update", simulation.path_of(parameter))
