"""What the values of a role can be, and how one follows from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from simfloat.accumulate import Accumulator, sequential
from simfloat.accumulate._sequential import as_accumulator
from simfloat.arithmetic._cast import Cast, as_cast
from simfloat.arithmetic.hadamard import Hadamard
from simfloat.formats import FP32, Format, Rounding, as_format
from simfloat.formats.rounding import as_rounding

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
