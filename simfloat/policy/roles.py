"""The roles of a policy as one table: what each takes, what it is where it is left out, what it concerns and means."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar, overload

from simfloat.accumulate import Accumulator
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic.hadamard import Hadamard
from simfloat.formats import FP32, Format, Rounding, nearest_even
from simfloat.policy.role_types import (
    ADDITION,
    FLAG,
    FORWARD_RESULT,
    MODE,
    OPERAND,
    RESULT,
    ROTATION,
    STORAGE,
    SUM,
    WRITTEN,
    RoleType,
    Widest,
    format_of,
    itself,
    without_matrix_unit,
)

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
