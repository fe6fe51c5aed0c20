"""Parameters: tensors that a model learns, used and updated in the role `weights` of the policy; and their paths.

The paths of modules and parameters are derived from weak links to their owners.
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
from simfloat.autodiff.variable import Variable
from simfloat.common import check_flags
from simfloat.formats import Format, nearest_even
from simfloat.simulation.place import Place
from simfloat.simulation.simulation import Simulation, current
from simfloat.simulation.streams import Streams


class Owned:
    """Base class of modules and parameters, which modules own as attributes.

    A part may have several owners, as a shared layer has; its path goes through the first owner that still has it.
    The links are weak, so that a copy or a pickle of a part does not contain the whole model.
    """

    _owners: tuple[tuple[ref[Any], str], ...] = ()

    @property
    def path(self) -> str:
        """The names from the outermost module to this part, through its first owner, joined by dots.

        It is empty for a part without an owner.
        """
        for owner, name in self._holders():
            return f"{above}.{name}" if (above := owner.path) else name
        return ""

    def _attach(self, owner: Any, name: str) -> None:
        """Record that `owner` has this part as its attribute `name`."""
        alive = tuple((holder, its_name) for holder, its_name in self._owners if holder() is not None)
        if not any(holder() is owner and its_name == name for holder, its_name in alive):
            alive += ((ref(owner), name),)
        self._owners = alive

    def _holders(self) -> Iterator[tuple[Any, str]]:
        """Yield the current owners and the attribute names, in the order of attachment."""
        for holder, name in self._owners:
            owner = holder()
            if owner is not None and vars(owner).get(name) is self:
                yield owner, name

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_owners"}


def outermost_owner(part: Any) -> Any:
    """Return the module at which the path of a part begins; None if the part has no owner."""
    for owner, _ in part._holders():
        return outermost_owner(owner) if owner.path else owner
    return None


class Parameter(Owned, Tensor):
    """A tensor that a model learns, updated in the role `weights` of the policy.

    Operations use the values rounded to `weights` (to nearest even). The stored values change only by a step of an
    optimizer, by loading, or if you write to them. You can therefore compare policies on one model in any order.

    `data` returns the stored array. You can assign to it (the array is copied) or write to it. A step or an
    assignment replaces the array. The old array becomes read-only, but views of it do not: writing to an old view has
    no effect. Take new views of `data` after each step.

    `format` is the format of the stored values, None if it is unknown. `path` is the path of the parameter in the
    model, such as ``hidden.0.weight``.

    Parameters:
        data: the initial values, an array, a tensor or numbers.
        requires_grad: False for a parameter without gradient, which optimizers leave unchanged.

    Raises:
        ValueError: if `data` are not real numbers, or `requires_grad` is not True or False.

    Examples:
        >>> p = sf.Parameter([1.0, 2.0])
        >>> p.requires_grad, p.shape
        (True, (2,))
    """

    internal_names = Tensor.internal_names | {"has_numbers", "move", "store"}
    is_weight = True
    name = ""  # its path until a module owns it

    def __init__(self, data: ArrayLike | Tensor, requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad)
        self.format = None
        self.numbers = np.array(self.numbers, like=self.numbers)
        self._is_lent = False  # True if `data` returned the array, so that callers may write to it
        self._rounded: tuple[Format, NDArray] | None = None  # the values as last used, if they differ

    @property
    def path(self) -> str:
        """The names from the model to the parameter, joined by dots."""
        return super().path or self.name

    @property
    def _outermost(self) -> Any:
        """The module at which the path begins; None if no module owns the parameter."""
        return outermost_owner(self)

    @property
    def data(self) -> NDArray[np.floating]:
        """The stored values; you can write to them and assign them."""
        if not self._is_lent and self.format is not None:
            # Keep the values that operations used: callers may write to the array that is returned.
            self._rounded, self.numbers = (self.format, self.numbers), np.array(self.numbers, like=self.numbers)
        self._is_lent = True
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        if value is not self.numbers:  # after ``p.data -= x``, which has already written to it
            numbers = as_operand(value, "data")
            self._replace(np.array(numbers, like=numbers))
        self.format = self.made_with = None

    @property
    def current_format(self) -> Format | None:  # type: ignore[override]
        """The format of the values, if it is known; None after a read of `data`: callers may write to that array."""
        return None if self._is_lent else self.format

    def move(self, machine: Device) -> None:
        """Move the values and the gradient to a device."""
        if machine is not device_of(self.numbers):
            self._replace(machine.to_device(self.numbers))
        if self.grad is not None:
            self.grad = machine.to_device(self.grad)

    def store(self, value: NDArray, format: Format, streams: Streams | None = None) -> None:
        """Store values of `format`, computed by a simulation with these random streams."""
        self._replace(value)
        self.format, self.made_with = format, streams

    def operand_at(self, place: Place) -> Variable:
        """Return the operand that operations read: the parameter, if it is in its format there, otherwise a rounded
        copy.
        """
        weights = place.weights
        own_format = self.format
        if not self._is_lent and own_format is not None and (own_format is weights or own_format == weights):
            return self
        try:
            rounded = self._as_rounded(weights)
        except ValueError as error:
            raise ValueError(
                f"The parameter {place.path!r} cannot be rounded to {weights}, its role weights: {error}"
            ) from None
        return RoundedParameter(self, rounded, weights)

    def has_numbers(self, numbers: NDArray, format: Format | None) -> bool:
        """True if `numbers` equals, bit for bit, the values of the parameter rounded to `format`."""
        if not self._is_lent and (numbers is self.numbers or numbers is (self._rounded or (format, None))[1]):
            return True
        try:
            return same_bits(self.numbers if format is None else self._as_rounded(format), numbers)
        except ValueError:  # for values that the format cannot represent
            return False

    def _as_rounded(self, format: Format) -> NDArray:
        """Return the values in `format`: the stored array if it has such values and was not returned by `data`, or a
        copy.

        The result is cached; it remains the same array while the stored values do not change.
        """
        rounded_format, last_rounded = self._rounded or (None, self.numbers)
        if (rounded_format is format or rounded_format == format) and not self._is_lent:
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
    """A parameter as operations under a policy read it: a read-only copy rounded to `weights`."""

    is_weight = True

    def __init__(self, parameter: Parameter, numbers: NDArray, format: Format) -> None:
        # The constructor of the base class, written out: operations create one for each rounded parameter.
        self.numbers, self.requires_grad, self.format, self.node = numbers, parameter.requires_grad, format, None
        self.trace, self.current_format = parameter, format


def forget_gradients(parameters: Iterable[Parameter], set_to_none: bool) -> None:
    """Remove gradients, or set existing ones to zero, which optimizers then use as gradients.

    Raises ValueError unless set_to_none is True or False.
    """
    check_flags(set_to_none=set_to_none)
    for parameter in parameters:
        parameter.grad = None if set_to_none or parameter.grad is None else np.zeros_like(parameter.grad)


def begin_update(parameter: Parameter, simulation: Simulation | None = None) -> Place:
    """Return the place of the update of a parameter; warn if the simulation repeats random bits of an earlier one."""
    simulation = current() if simulation is None else simulation
    simulation.repeated_draws.update(parameter.made_with)
    return simulation.update_place(parameter)
