"""The roles of a policy as one table: the values that each takes, its default, its use and its meaning.

The first part says which values a role can have, and how one role follows from another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np

from simfloat.arithmetic.casts import Cast, as_cast
from simfloat.arithmetic.scaling import Hadamard
from simfloat.formats import FP32, Format, Rounding, as_format, nearest_even
from simfloat.formats.rounding import as_rounding
from simfloat.sums import Accumulator, sequential
from simfloat.sums.sequential import as_accumulator

#: As the format of a forward operation's result: the widest of its operands' formats.
Widest = Literal["widest"]
WIDEST: Widest = "widest"

#: The device whose rules for numbers a policy may follow that is written for a program's own types, but for the CPU.
CUDA = "cuda"

#: What the optimizer's last addition may be.
UPDATES = ("nearest", "stochastic", "kahan")


class RoleType(NamedTuple):
    """What the values of a role are."""

    name: str
    takes: str  # as the annotation of an argument
    read: Callable[[Any], Any]  # the value that is meant; ValueError for what is none
    words: tuple[str, ...] = ()  # values that are words and not calls


def _as_operand(value: Any) -> Format | Cast:
    """A cast, or its format where that says it all."""
    cast = as_cast(value)
    return cast.format if cast.is_plain else cast


def _as_forward_result(value: Any) -> Format | Widest:
    return WIDEST if isinstance(value, str) and value == WIDEST else as_format(value)


def _as_update(value: Any) -> str | Rounding:
    if isinstance(value, str) and value in UPDATES:
        return value
    if isinstance(value, Rounding | str) and str(value).startswith("stochastic("):
        rounding = as_rounding(value)
        if rounding.is_stochastic:
            return rounding
    raise ValueError(f"update must be one of {', '.join(UPDATES)}, or simfloat.stochastic(bits=4); got {value!r}.")


def _as_flag(value: Any) -> bool:
    if isinstance(value, bool | np.bool):
        return bool(value)
    raise ValueError(f"True or False is expected, got {value!r}.")


def _as_written(value: Any) -> bool | str:
    if isinstance(value, str) and value == CUDA:
        return CUDA
    if isinstance(value, bool | np.bool):
        return bool(value)
    raise ValueError(f"True, False or {CUDA!r} is expected, got {value!r}.")


def _as_rotation(value: Any) -> Hadamard:
    if isinstance(value, Hadamard):
        return value
    raise ValueError(f"A rotation is simfloat.hadamard(16), or None for none; got {value!r}.")


OPERAND = RoleType("operand format", "Format | Cast | str", _as_operand)
RESULT = RoleType("result format", "Format | str", as_format)
FORWARD_RESULT = RoleType("result format", "Format | str", _as_forward_result, (WIDEST,))
STORAGE = RoleType("storage format", "Format | str", as_format)
SUM = RoleType("accumulator", "Accumulator | Format | str", as_accumulator)
MODE = RoleType("rounding", "Rounding | str", as_rounding)
ADDITION = RoleType("update", "Rounding | str", _as_update, UPDATES)
FLAG = RoleType("flag", "bool", _as_flag)
WRITTEN = RoleType("flag", "bool | str", _as_written, (CUDA,))
ROTATION = RoleType("rotation", "Hadamard", _as_rotation)


def itself(value: Any) -> Any:
    """The value that is followed."""
    return value


def format_of(operand: Format | Cast) -> Format:
    """The format that operands are rounded to."""
    return operand.format if isinstance(operand, Cast) else operand


def without_matrix_unit(accumulator: Accumulator) -> Accumulator:
    """The accumulator, or FP32 for a matrix unit, which sums nothing but products of its narrow formats."""
    return sequential(FP32) if accumulator.is_matrix_unit else accumulator


Given = TypeVar("Given")
Value = TypeVar("Value")

# What a role can concern: operations of a kind, those of an optimizer, and parameters, in whatever operation they are.
CONTRACTION, POINTWISE, REDUCTION, MOVEMENT = "contraction", "pointwise", "reduction", "movement"
COMPOSITE, UPDATE, PARAMETER = "composite", "update", "parameter"
ROUNDED = (CONTRACTION, POINTWISE, REDUCTION)


class _Row:
    """A row of the table, and the descriptor of its field: what the field is given is checked and read here.

    `concerns` names what the role can change: operations of a kind, optimizers' updates, parameters.
    """

    follows: str | None = None
    default: Any = None

    def __init__(self, kind: RoleType, meaning: str, concerns: tuple[str, ...]) -> None:
        self.kind, self.meaning, self.concerns = kind, meaning, concerns

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        default = "" if self.follows is self.default is None else f" (default {self.follows or self.default})"
        return self.meaning + default

    @property
    def takes(self) -> str:
        """The type of what is given, as an annotation."""
        return f"{self.kind.takes} | None" if self.may_be_none else self.kind.takes

    @property
    def may_be_none(self) -> bool:
        """Whether it can be left out without a default of its own."""
        return self.follows is not None

    @property
    def standard(self) -> Any:
        """The value where it is left out; None where it then follows another, or has to be given."""
        return None if self.default is None else self.read(self.default)

    def __set__(self, roles: Roles, value: Any) -> None:
        roles.__dict__[self.name] = self.read(value)

    def read(self, value: Any) -> Any:
        """The value that is meant; None where the role then follows another, or is absent.

        Raises ValueError naming the role.
        """
        if value is None and self.may_be_none:
            return None
        if value is None and self.default is None:
            raise ValueError(
                f"A policy needs {self.name}=, a format such as simfloat.BF16: it has no default, got None."
            )
        try:
            return self.kind.read(value)
        except ValueError as error:
            message = str(error)
            raise ValueError(message if message.startswith(self.name) else f"{self.name}: {message}") from None


class Role(_Row, Generic[Given, Value]):
    """A role with a default of its own or, if that is None, with none: then it is always given."""

    def __init__(self, kind: RoleType, meaning: str, concerns: tuple[str, ...], default: Any = None) -> None:
        super().__init__(kind, meaning, concerns)
        self.default = default

    def __get__(self, roles: Roles | None, owner: type) -> Value:
        if roles is not None:
            return roles.__dict__[self.name]
        if self.default is None:
            raise AttributeError(f"{self.name} has no default.")
        return self.default

    def __set__(self, roles: Roles, value: Given) -> None:
        super().__set__(roles, value)


class Following(_Row, Generic[Given, Value]):
    """A role that follows another one where it is None: it is then that one's value, or `derive` of it."""

    follows: str

    def __init__(
        self,
        follows: str,
        kind: RoleType,
        meaning: str,
        concerns: tuple[str, ...],
        derive: Callable[[Any], Any] = itself,
    ) -> None:
        super().__init__(kind, meaning, concerns)
        self.follows, self.derive = follows, derive

    @overload
    def __get__(self, roles: Recipe, owner: type) -> Value: ...
    @overload
    def __get__(self, roles: Roles | None, owner: type) -> Value | None: ...
    def __get__(self, roles: Roles | None, owner: type) -> Value | None:
        return None if roles is None else roles.__dict__[self.name]

    def __set__(self, roles: Roles, value: Given | None) -> None:
        super().__set__(roles, value)


class OptionalRole(_Row, Generic[Value]):
    """A role that may be absent: it is then None."""

    may_be_none = True

    @overload
    def __get__(self, roles: Roles, owner: type) -> Value | None: ...
    @overload
    def __get__(self, roles: None, owner: type) -> None: ...
    def __get__(self, roles: Roles | None, owner: type) -> Value | None:
        return None if roles is None else roles.__dict__[self.name]

    def __set__(self, roles: Roles, value: Value | None) -> None:
        super().__set__(roles, value)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The table. A row: what the field takes and holds, the role that it follows, its kind, meaning and concern."""

    compute: Role[Format | Cast | str, Format | Cast] = Role(
        OPERAND,
        "how operands of forward contractions are rounded, and those of backward ones that are no gradients",
        (CONTRACTION, UPDATE, PARAMETER),
    )
    compute_gradients: Following[Format | Cast | str, Format | Cast] = Following(
        "compute", OPERAND, "how gradients are rounded as operands of backward contractions", (CONTRACTION,)
    )
    compute_weights: Following[Format | Cast | str, Format | Cast] = Following(
        "compute", OPERAND, "how parameters are rounded as operands of contractions", (CONTRACTION, PARAMETER)
    )
    weights: Following[Format | str, Format] = Following(
        "compute", STORAGE, "what parameters are stored and updated in; FP32 with a narrow compute is the master copy",
        (PARAMETER,), format_of,
    )  # fmt: skip
    activations: Following[Format | str, Format | Widest] = Following(
        "compute", FORWARD_RESULT,
        'the results of forward operations; "widest": they keep the widest format of their operands, as gradients then '
        "keep that of theirs",
        ROUNDED, format_of,
    )  # fmt: skip
    activation_gradients: Following[Format | str, Format | Widest] = Following(
        "gradients", RESULT, "results of backward operations that reach an activation", (*ROUNDED, MOVEMENT)
    )
    weight_gradients: Following[Format | str, Format | Widest] = Following(
        "gradients", RESULT, "results of backward operations that reach a parameter", (*ROUNDED, MOVEMENT, PARAMETER)
    )
    gradients: Following[Format | str, Format | Widest] = Following(
        "activations", RESULT, "the results of backward operations", (*ROUNDED, MOVEMENT)
    )
    accumulate: Role[Accumulator | Format | str, Accumulator] = Role(
        SUM, "the accumulator of forward contractions (a format means sequential)", (CONTRACTION, UPDATE), FP32
    )
    accumulate_gradients: Following[Accumulator | Format | str, Accumulator] = Following(
        "accumulate", SUM, "the accumulator of backward contractions", (CONTRACTION, PARAMETER)
    )
    rotation: OptionalRole[Hadamard] = OptionalRole(
        ROTATION,
        "by what both operands of products that give a parameter's gradient are turned along k before they are "
        "rounded: `hadamard(16)`, or None for nothing",
        (CONTRACTION, PARAMETER),
    )
    reduce: Following[Accumulator | Format | str, Accumulator] = Following(
        "accumulate", SUM, "the accumulator of all other sums, FP32 where accumulate is a matrix unit",
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER), without_matrix_unit,
    )  # fmt: skip
    rounding: Role[Rounding | str, Rounding] = Role(
        MODE, "the mode of every rounding but that of operands and stored weights",
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER), nearest_even,
    )  # fmt: skip
    update: Role[Rounding | str, Rounding | str] = Role(
        ADDITION,
        'the last addition of an optimizer, w + u: "nearest", "kahan", "stochastic", as `rounding` is if that is '
        "stochastic, else of 32 bits, or `stochastic(bits=4)` itself",
        (PARAMETER,), "nearest",
    )  # fmt: skip
    optimizer_state: Following[Format | str, Format] = Following(
        "weights", STORAGE, "the moments of an optimizer", (PARAMETER,)
    )
    all_reduce: Following[Format | str, Format | Widest] = Following(
        "weight_gradients", RESULT, "the sums of a parameter's gradients over replicas", (PARAMETER,)
    )
    fused: Role[bool, bool] = Role(
        FLAG, "whether composites such as softmax compute in the format of `reduce`, and round their result once",
        (COMPOSITE,), False,
    )  # fmt: skip
    written: OptionalRole[bool | str] = OptionalRole(
        WRITTEN,
        "True: in PyTorch models, roles that are FP32 here take the format of the program's own type, and an operation "
        'in a 16-bit type rounds its result alone, as CPU kernels of PyTorch do; "cuda": as its CUDA kernels do; '
        "without it types only carry numbers",
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER),
    )


#: Every role by its name, in the order of the table.
ROLES: dict[str, Role | Following | OptionalRole] = {field.name: vars(Roles)[field.name] for field in fields(Roles)}


class Recipe(Roles):
    """What one operation in one layer uses: every role, filled in by the one that it follows where it is left out."""

    def __init__(self, **roles: Any) -> None:
        super().__init__(**roles)
        for name, value in [(name, self._resolve(name)) for name in ROLES]:
            self.__dict__[name] = value

    def _resolve(self, name: str) -> Any:
        """The value of a role: as given, or as it follows from another."""
        role, value = ROLES[name], self.__dict__[name]
        return role.derive(self._resolve(role.follows)) if value is None and isinstance(role, Following) else value


#: The roles of results: inside a fused composite they have the format of `reduce`.
RESULTS = ("activations", "gradients", "activation_gradients", "weight_gradients")


def followers_of(name: str, given_roles: Collection[str] = ()) -> set[str]:
    """The role and all that follow it, directly or through others, none of them among those that are `given`."""
    led = {name}
    for follower, role in ROLES.items():
        if role.follows == name and follower not in given_roles:
            led |= followers_of(follower, given_roles)
    return led
