"""The operations of Berkeley TestFloat by its names, such as f16_add, f32_to_i64 and f16_roundToInt_rx_minMag.

Source: J. R. Hauser, Berkeley TestFloat Release 3e, TestFloat-general.html. The results of invalid conversions to
integers are those of RISC-V, Arm or x86 (`INVALID_RESULTS`). `compute_testfloat` reads a signalling NaN as a quiet one.
Narrow formats and integers, which TestFloat does not have, follow the same pattern: f32_to_e5m2, e4m3_add, f16_to_i8.
The name to_i8, without the type of the operand, is a conversion of operands in any format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import functions, operations
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.codes import decode, read_code
from simfloat.arithmetic.memory_images import unknown_hint
from simfloat.environment import in_usual_environment
from simfloat.formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    FP16,
    FP32,
    FP64,
    TF32,
    Format,
    Rounding,
    fixed,
    nearest_away,
    nearest_even,
    to_odd,
    toward_negative,
    toward_positive,
    toward_zero,
)
from simfloat.formats.exceptions import DIVISION_BY_ZERO, INEXACT, INVALID, OVERFLOW, UNDERFLOW

#: The kind of a field: a number of a format, an integer of a dtype, or a boolean.
Kind: TypeAlias = Format | np.dtype
BOOLEAN = np.dtype(np.bool_)

#: TestFloat's types that are wider than float64, with their significand bits.
WIDE_TYPES = {"extF80": 64, "f128": 113}

#: TestFloat's names of the other types, and the names of formats and integers that TestFloat does not have.
KINDS: dict[str, Kind] = {
    **{"f16": FP16, "bf16": BF16, "f32": FP32, "f64": FP64},
    **{"e4m3": E4M3, "e5m2": E5M2, "e3m2": E3M2, "e2m3": E2M3, "e2m1": E2M1, "tf32": TF32},
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}

#: Names of operations in simfloat by their names in TestFloat, if these differ.
SIMFLOAT_NAMES = {"sub": "subtract", "mul": "multiply", "div": "divide", "mulAdd": "fma", "rem": "remainder"}

#: Comparisons; True if a quiet NaN raises invalid.
COMPARISONS: dict[str, tuple[Callable[..., Any], bool]] = {
    **{"eq": (np.equal, False), "le": (np.less_equal, True), "lt": (np.less, True)},
    **{"eq_signaling": (np.equal, True), "le_quiet": (np.less_equal, False), "lt_quiet": (np.less, False)},
}

#: The number of operands of each operation of TestFloat.
OPERANDS = dict(add=2, sub=2, mul=2, mulAdd=3, div=2, rem=2, sqrt=1, roundToInt=1) | dict.fromkeys(COMPARISONS, 2)

#: Rounding modes by their names in TestFloat.
MODES: dict[str, Rounding] = {
    **{"near_even": nearest_even, "near_maxMag": nearest_away, "minMag": toward_zero},
    **{"min": toward_negative, "max": toward_positive, "odd": to_odd},
}

#: Results of invalid conversions to an integer, by the variant of Berkeley SoftFloat: below the smallest integer, above
#: the largest one, and of NaN, from both of them and x86's "integer indefinite" (specialize.h of RISCV, ARM-VFPv2 and
#: 8086-SSE in SoftFloat Release 3e).
INVALID_RESULTS: dict[str, Callable[[int, int, int], tuple[int, int, int]]] = {
    "riscv": lambda smallest, largest, _: (smallest, largest, largest),
    "arm": lambda smallest, largest, _: (smallest, largest, 0),
    "x86": lambda _, __, indefinite: (indefinite, indefinite, indefinite),
}

_LONGEST_FIRST = sorted((*OPERANDS, *MODES), key=len, reverse=True)
NAME = re.compile(
    rf"(?:(?P<first>{'|'.join(KINDS)})_)?"
    rf"(?:to_(?P<other>{'|'.join(KINDS)})|(?P<name>{'|'.join(name for name in _LONGEST_FIRST if name in OPERANDS)}))"
    rf"(?:_(?P<how>rx?|x)(?:_(?P<mode>{'|'.join(name for name in _LONGEST_FIRST if name in MODES)}))?)?"
)

#: Codes; flags in two digits. The differences that `testfloat_ver` reports have numbers as sign, exponent and
#: fraction, and flags as letters: invalid, infinite, overflow, underflow, inexact.
DIGITS, FLAGS = (re.compile(pattern, re.IGNORECASE) for pattern in ("[0-9a-f]+", "[0-9a-f]{2}"))
MOST_FLAGS = INEXACT | UNDERFLOW | OVERFLOW | DIVISION_BY_ZERO | INVALID
REPORTED = re.compile(r"(?P<sign>[+-])(?P<exponent>[0-9a-f]+)\.(?P<fraction>[0-9a-f]+)", re.IGNORECASE)
REPORTED_FLAGS = re.compile(r"[v.][i.][o.][u.][x.]")

#: All integers below 2^53 in magnitude, as numbers of a format.
INTEGERS = fixed(54)


class Signature(NamedTuple):
    """An operation of TestFloat: its name without types, the kinds of its operands and of its result, and its mode."""

    operation: str
    kinds: tuple[Kind, ...]
    rounding: Rounding | None  # if the name contains it
    is_exact: bool  # True if a rounding to an integer raises inexact
    takes_format: bool = False  # True if the name does not contain the type of the operand

    @property
    def operands(self) -> int:
        """The number of operands."""
        return len(self.kinds) - 1

    @property
    def is_to_integer(self) -> bool:
        """True for a conversion to an integer."""
        return self.operation == "to" and isinstance(self.kinds[-1], np.dtype)

    @property
    def hides_inexact(self) -> bool:
        """True for a rounding to an integer that does not raise inexact."""
        return (self.operation == "roundToInt" or self.is_to_integer) and not self.is_exact


def signature_of(name: Any, format: Format | None = None) -> Signature | None:
    """Return the signature of an operation of TestFloat; None for any other name.

    `format` is the format of the operand of a name such as to_i8; by default it is FP64.
    """
    parts = NAME.fullmatch(name) if isinstance(name, str) else None
    if parts is None:
        return None
    operation, target = parts["name"], parts["other"]
    rounding = MODES[parts["mode"]] if parts["mode"] else None
    is_exact = "x" in (parts["how"] or "")
    if parts["first"] is None:
        to_integer = target is not None and isinstance(KINDS[target], np.dtype)
        return Signature("to", (format or FP64, KINDS[target]), rounding, is_exact, True) if to_integer else None
    first = KINDS[parts["first"]]
    if target is not None:
        is_conversion = parts["first"] != target and (isinstance(first, Format) or isinstance(KINDS[target], Format))
        return Signature("to", (first, KINDS[target]), rounding, is_exact) if is_conversion else None
    if not isinstance(first, Format):
        return None
    result = BOOLEAN if operation in COMPARISONS else first
    return Signature(operation, (*[first] * OPERANDS[operation], result), rounding, is_exact)


def width_hint(name: str) -> str:
    """Return a sentence on TestFloat's types that are wider than float64; the empty text for any other name."""
    for wide in WIDE_TYPES.keys() & set(name.split("_")):
        return f" More than 53 significand bits are not supported, and {wide} has {WIDE_TYPES[wide]}: use f64, or MPFR."
    return ""


def digits_of(kind: Kind) -> int:
    """Return the number of hexadecimal digits of a code; 1 for a boolean."""
    if isinstance(kind, Format):
        return -(-kind.bits // 4)
    return 1 if kind is BOOLEAN else 2 * kind.itemsize


def without_prefix(text: str, digits: int) -> str:
    """Return the digits of a field without the prefix 0x; 0xxx in a field of four digits has unknown digits."""
    return text[2:] if len(text) == digits + 2 and text[:2].lower() == "0x" else text


def read_field(text: str, kind: Kind) -> int:
    """Return the code of a number, an integer or a boolean in a file of test vectors."""
    digits = digits_of(kind)
    code = without_prefix(text, digits)
    is_code = len(code) == digits and DIGITS.fullmatch(code) is not None
    if isinstance(kind, Format):
        if parts := REPORTED.fullmatch(text):
            exponent, fraction = int(parts["exponent"], 16), int(parts["fraction"], 16)
            if not exponent >> kind.exponent_bits and not fraction >> kind.mantissa_bits:
                return (((parts["sign"] == "-") << kind.exponent_bits | exponent) << kind.mantissa_bits) | fraction
        if not is_code:
            raise ValueError(f"A code of {kind} has {digits} hexadecimal digits, got {text!r}.{unknown_hint(text)}")
        return read_code(code, kind)
    most = 1 if kind is BOOLEAN else 2 ** (8 * kind.itemsize) - 1
    if not is_code or int(code, 16) > most:
        what = "0 or 1" if kind is BOOLEAN else f"{digits} hexadecimal digits of {kind.name}"
        raise ValueError(f"A field of this operation is {what}, got {text!r}.{unknown_hint(text)}")
    return int(code, 16)


def read_flags(text: str) -> int:
    """Read flags in two digits, or in the five letters of a report."""
    if REPORTED_FLAGS.fullmatch(text):
        return int("".join("0" if letter == "." else "1" for letter in text), 2)
    digits = without_prefix(text, 2)
    if not FLAGS.fullmatch(digits) or int(digits, 16) > MOST_FLAGS:
        raise ValueError(f"Flags are two hexadecimal digits from 00 to {MOST_FLAGS:02x}, got {text!r}.")
    return int(digits, 16)


def values_of(codes: NDArray[np.uint64], kind: Kind) -> NDArray[Any]:
    """Return the values that codes represent."""
    if isinstance(kind, Format):
        return decode(codes, kind)
    return codes.astype(f"u{kind.itemsize}").view(kind)


def has_signalling_nan(format: Kind) -> bool:
    """Return True if a format distinguishes signalling from quiet NaN: IEEE formats with two or more fraction bits."""
    return isinstance(format, Format) and format.special == "ieee" and format.mantissa_bits >= 2


def is_signalling(codes: NDArray[np.uint64], format: Format) -> NDArray[np.bool_]:
    """Return for each code of a NaN whether the NaN is signalling: its first fraction bit is 0."""
    if not has_signalling_nan(format):
        return np.zeros(codes.shape, np.bool_)
    return (codes >> np.uint64(format.mantissa_bits - 1)) & np.uint64(1) == 0


@cache
def nan_codes(kind: Kind) -> tuple[int, ...]:
    """Return codes of NaN: signalling and quiet, with the lowest and the highest payload, and with both signs.

    Codes that follow each other differ in these properties. A format with fewer codes of NaN has only its own.
    """
    if not isinstance(kind, Format) or not kind.has_nan:
        return ()
    fractions, quiet = 1 << kind.mantissa_bits, 1 << kind.mantissa_bits >> 1
    largest_exponent = (1 << kind.bits - kind.signed) - fractions
    bodies = [largest_exponent + fraction for fraction in (1, quiet, fractions - 1, quiet - 1, quiet + 1)]
    signs = (0, kind.signed << kind.bits - 1)
    codes = [body | signs[(n + turn) % 2] for turn in range(2) for n, body in enumerate(bodies)]
    valid = [code for code in dict.fromkeys([*codes, int(kind.nan_code or 0)]) if 0 <= code < 1 << kind.bits]
    return tuple(code for code, x in zip(valid, decode(np.array(valid, np.uint64), kind), strict=True) if np.isnan(x))


def exact_name(name: str) -> str:
    """Return the name of the variant of a rounding to an integer that raises inexact."""
    parts = NAME.fullmatch(name)
    assert parts is not None
    end = parts.end("how")
    return f"{name}_x" if end < 0 else f"{name[:end]}x{name[end:]}"


@in_usual_environment
def compute_testfloat(
    signature: Signature,
    operands: Sequence[NDArray],
    rounding: Rounding,
    stream: Stream | None = None,
    invalid: str = "riscv",
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the results of an operation of TestFloat, and their flags."""
    operation, target = signature.operation, signature.kinds[-1]
    x = operands[0]
    if operation in COMPARISONS:
        compare, signals = COMPARISONS[operation]
        unordered = np.isnan(operands[0]) | np.isnan(operands[1])
        return compare(*operands), (INVALID * (unordered & signals)).astype(np.uint8)
    if operation == "roundToInt":
        rounded = _round_to_integers(x, rounding, stream)
        return rounded, _inexact(signature, np.isfinite(x) & (rounded != x))
    if operation == "to" and isinstance(target, np.dtype):
        return _convert_to_integers(x, signature, rounding, stream, invalid)
    name = "round" if operation == "to" else SIMFLOAT_NAMES.get(operation, operation)
    function: Any = operations.round if name == "round" else getattr(functions, name)
    # float64 cannot represent all integers of 64 bits, so integers are read one by one.
    numbers = [x.tolist() if x.dtype.kind in "iu" else x for x in operands]
    results: tuple[NDArray[Any], NDArray[np.uint8]] = function(*numbers, target, rounding, stream=stream, flags=True)
    return results


def _inexact(signature: Signature, differs: NDArray) -> NDArray[np.uint8]:
    return (INEXACT * (differs & signature.is_exact)).astype(np.uint8)


def _round_to_integers(x: NDArray, rounding: Rounding, stream: Stream | None) -> NDArray[np.float64]:
    """Return the integers to which values are rounded, with their signs; infinities and NaN are unchanged."""
    is_fractional = np.abs(x) < 2.0**52
    rounded = operations.round(np.where(is_fractional, x, 0.0), INTEGERS, rounding, stream=stream)
    return np.where(is_fractional, np.copysign(rounded, x), x)


def _convert_to_integers(
    x: NDArray, signature: Signature, rounding: Rounding, stream: Stream | None, invalid: str
) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return integers of the dtype of the result, and their flags (IEEE 754-2019, 5.8 and 7.2)."""
    dtype = signature.kinds[-1]
    assert isinstance(dtype, np.dtype)
    limits, rounded = np.iinfo(dtype), _round_to_integers(x, rounding, stream)
    # Both limits are float64 values, unlike the largest integer of 64 bits.
    is_low, is_high = rounded < float(limits.min), ~(rounded < float(limits.max + 1))  # True for NaN
    is_in_range = ~(is_low | is_high)
    integers = np.where(is_in_range, rounded, 0.0).astype(dtype)
    indefinite = limits.min or limits.max  # the first bit of a signed integer is 1, or all bits of an unsigned one
    low, high, of_nan = (dtype.type(n) for n in INVALID_RESULTS[invalid](limits.min, limits.max, indefinite))
    integers = np.select([np.isnan(x), is_high, is_low], [of_nan, high, low], integers)
    flags = _inexact(signature, is_in_range & (rounded != x))
    return integers, flags | np.where(is_in_range, 0, INVALID).astype(np.uint8)
