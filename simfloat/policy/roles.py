"""The roles of a policy as one table: the accepted values, the default, the use and the meaning of each role.

The first part defines the types of roles, and how one role follows from another.
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
from simfloat.policy.flash_attention import FlashAttention
from simfloat.sums import Accumulator, sequential
from simfloat.sums.sequential import as_accumulator

#: As the format of the result of a forward operation: the widest format of its operands.
Widest = Literal["widest"]
WIDEST: Widest = "widest"

#: The value of `written` for the rules of CUDA; True means the rules of the CPU.
CUDA = "cuda"

#: Kinds of the final addition of an optimizer.
UPDATES = ("nearest", "stochastic", "kahan")


class RoleType(NamedTuple):
    """The type of the values of a role."""

    name: str
    takes: str  # the annotation of an argument
    read: Callable[[Any], Any]  # converts a value; ValueError if it is invalid
    words: tuple[str, ...] = ()  # values that are words, not calls


def _as_operand(value: Any) -> Format | Cast:
    """Return a cast, or only its format if the cast has no other options."""
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


def _as_fused(value: Any) -> bool | FlashAttention:
    return value if isinstance(value, FlashAttention) else _as_flag(value)


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
MOMENT = RoleType("storage format or cast", "Format | Cast | str", _as_operand)
SUM = RoleType("accumulator", "Accumulator | Format | str", as_accumulator)
MODE = RoleType("rounding", "Rounding | str", as_rounding)
ADDITION = RoleType("update", "Rounding | str", _as_update, UPDATES)
FUSED = RoleType("flag", "bool | FlashAttention", _as_fused)
WRITTEN = RoleType("flag", "bool | str", _as_written, (CUDA,))
ROTATION = RoleType("rotation", "Hadamard", _as_rotation)


def itself(value: Any) -> Any:
    """Return the value of the role that is followed."""
    return value


def format_of(operand: Format | Cast) -> Format:
    """Return the format to which operands are rounded."""
    return operand.format if isinstance(operand, Cast) else operand


def without_matrix_unit(accumulator: Accumulator) -> Accumulator:
    """Return the accumulator, or FP32 for a matrix unit, which can only sum products of its narrow formats."""
    return sequential(FP32) if accumulator.is_matrix_unit else accumulator


Given = TypeVar("Given")
Value = TypeVar("Value")

# The subjects of a role: operations of a kind, operations of an optimizer, and parameters in any operation.
CONTRACTION, POINTWISE, REDUCTION, MOVEMENT = "contraction", "pointwise", "reduction", "movement"
COMPOSITE, UPDATE, PARAMETER = "composite", "update", "parameter"
ROUNDED = (CONTRACTION, POINTWISE, REDUCTION)


class _Row:
    """A row of the table, and the descriptor that checks and converts the value of its field.

    `concerns` names the subjects of the role: operations of a kind, updates of an optimizer, parameters.
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
        """The type of a given value, as an annotation."""
        return f"{self.kind.takes} | None" if self.may_be_none else self.kind.takes

    @property
    def may_be_none(self) -> bool:
        """True if the role can be None, because it follows another role."""
        return self.follows is not None

    @property
    def standard(self) -> Any:
        """The default value; None if the role then follows another one, or has no default."""
        return None if self.default is None else self.read(self.default)

    def __set__(self, roles: Roles, value: Any) -> None:
        roles.__dict__[self.name] = self.read(value)

    def read(self, value: Any) -> Any:
        """Convert a value; None if the role then follows another one, or is absent.

        Raises ValueError naming the role if the value is invalid.
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
    """A role with its own default; if `default` is None, it must be given."""

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
    """A role that follows another one if it is None: its value is then the value of that role, or `derive` of it."""

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
    """A role that may be absent (None)."""

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
    """The table of roles; a row defines the type of the field, the role that it follows, its kind, meaning and
    subjects.
    """

    compute: Role[Format | Cast | str, Format | Cast] = Role(
        OPERAND,
        "the format or cast of operands of forward contractions, and of backward operands that are not gradients",
        (CONTRACTION, UPDATE, PARAMETER),
    )
    compute_gradients: Following[Format | Cast | str, Format | Cast] = Following(
        "compute", OPERAND, "the format or cast of gradients as operands of backward contractions", (CONTRACTION,)
    )
    compute_weights: Following[Format | Cast | str, Format | Cast] = Following(
        "compute", OPERAND, "the format or cast of parameters as operands of contractions", (CONTRACTION, PARAMETER)
    )
    weights: Following[Format | str, Format] = Following(
        "compute", STORAGE,
        "the format in which parameters are stored and updated; FP32 with a narrow `compute` is a master copy",
        (PARAMETER,), format_of,
    )  # fmt: skip
    activations: Following[Format | str, Format | Widest] = Following(
        "compute", FORWARD_RESULT,
        'the format of results of forward operations; "widest" means the widest format of the operands, and '
        "then also applies to gradients",
        ROUNDED, format_of,
    )  # fmt: skip
    activation_gradients: Following[Format | str, Format | Widest] = Following(
        "gradients", RESULT, "the format of gradients of activations", (*ROUNDED, MOVEMENT)
    )
    weight_gradients: Following[Format | str, Format | Widest] = Following(
        "gradients", RESULT, "the format of gradients of parameters", (*ROUNDED, MOVEMENT, PARAMETER)
    )
    gradients: Following[Format | str, Format | Widest] = Following(
        "activations", RESULT, "the format of results of backward operations", (*ROUNDED, MOVEMENT)
    )
    accumulate: Role[Accumulator | Format | str, Accumulator] = Role(
        SUM, "the accumulator of forward contractions; a format means `sequential`", (CONTRACTION, UPDATE), FP32
    )
    accumulate_gradients: Following[Accumulator | Format | str, Accumulator] = Following(
        "accumulate", SUM, "the accumulator of backward contractions", (CONTRACTION, PARAMETER)
    )
    rotation: OptionalRole[Hadamard] = OptionalRole(
        ROTATION,
        "the rotation along k of both operands, before they are rounded, in products that compute the gradient of a "
        "parameter: `hadamard(16)`, or None for no rotation",
        (CONTRACTION, PARAMETER),
    )
    reduce: Following[Accumulator | Format | str, Accumulator] = Following(
        "accumulate", SUM, "the accumulator of all other sums; FP32 if it follows a matrix unit",
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER), without_matrix_unit,
    )  # fmt: skip
    rounding: Role[Rounding | str, Rounding] = Role(
        MODE, "the rounding mode of all results, but not of operands and stored weights",
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER), nearest_even,
    )  # fmt: skip
    update: Role[Rounding | str, Rounding | str] = Role(
        ADDITION,
        'the rounding of the final addition w + u of an optimizer: "nearest", "kahan", "stochastic" (the mode '
        "`rounding` if that is stochastic, otherwise with 32 bits), or a mode such as `stochastic(bits=4)`",
        (PARAMETER,), "nearest",
    )  # fmt: skip
    optimizer_state: Following[Format | Cast | str, Format | Cast] = Following(
        "weights", MOMENT,
        "the format of the moments of an optimizer, or a cast that rounds each moment once when it is stored",
        (PARAMETER,),
    )  # fmt: skip
    all_reduce: Following[Format | str, Format | Widest] = Following(
        "weight_gradients", RESULT, "the format of sums of gradients of a parameter over replicas", (PARAMETER,)
    )
    fused: Role[bool | FlashAttention, bool | FlashAttention] = Role(
        FUSED,
        "True if composites such as softmax compute in the format of `reduce` and round their result once; "
        "`flash_attention(...)` means the same, with attention in the order of such a kernel",
        (COMPOSITE,), False,
    )  # fmt: skip
    written: OptionalRole[bool | str] = OptionalRole(
        WRITTEN,
        "True: in PyTorch models, roles that are FP32 in the policy use the dtype of the program instead, and an "
        "operation in a 16-bit dtype rounds only its result, as in the CPU kernels of PyTorch; "
        '"cuda": as in its CUDA kernels; by default dtypes are only storage types',
        (*ROUNDED, MOVEMENT, UPDATE, PARAMETER),
    )


#: All roles by name, in the order of the table.
ROLES: dict[str, Role | Following | OptionalRole] = {field.name: vars(Roles)[field.name] for field in fields(Roles)}


class Recipe(Roles):
    """The roles of one operation in one layer; a role that is left out follows its default.

    Parameters:
        roles: the roles by name, as in `Policy`.

    Raises:
        ValueError: if a role has an invalid value; the message names the role.
    """

    def __init__(self, **roles: Any) -> None:
        super().__init__(**roles)
        for name, value in [(name, self._resolve(name)) for name in ROLES]:
            self.__dict__[name] = value

    def _resolve(self, name: str) -> Any:
        """Return the value of a role: as given, or as it follows from another role."""
        role, value = ROLES[name], self.__dict__[name]
        return role.derive(self._resolve(role.follows)) if value is None and isinstance(role, Following) else value


#: The roles of results; inside a fused composite they have the format of `reduce`.
RESULTS = ("activations", "gradients", "activation_gradients", "weight_gradients")


def followers_of(name: str, given_roles: Collection[str] = ()) -> set[str]:
    """Return the role and all roles that follow it, directly or through others, without roles that are given."""
    led = {name}
    for follower, role in ROLES.items():
        if role.follows == name and follower not in given_roles:
            led |= followers_of(follower, given_roles)
    return led
