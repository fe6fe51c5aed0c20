"""The fields of a format: where its infinities, NaN and -0 stand, its default bias, and which values are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from simfloat.formats.format import Format

#: Widths of float64's fields.
LIMITS = {"exponent_bits": 11, "mantissa_bits": 52}

#: Which results are tiny: those below the smallest normal number after rounding without bounds, or before it.
TININESS = ("after_rounding", "before_rounding")

#: log2 of the largest spacing s for which 2^53 s, the number that has twice this spacing in float64, is a float64.
LARGEST_SPACING = 1023 - 53

#: Where NaN stands: in the top exponent field, beside infinity; at the top code; at that of -0, the top code where
#: formats are unsigned; nowhere.
PlaceOfNan = Literal["top field", "top", "negative zero", ""]


class Special(NamedTuple):
    """Which codes of a format are not plain finite numbers. Without NaN there, the code of -0 is -0."""

    infinity: bool
    nan: PlaceOfNan
    clamps: bool = False  # results beyond the largest number stop there, in every rounding mode
    wide_bias: bool = False  # the default bias is 2^(e-1), one more than IEEE's


#: IEEE 754-2019 section 3.4; OCP OFP8 1.0 (fn); AMD/Graphcore (fnuz); OCP MX 1.0 (finite, scale);
#: IEEE P3109 interim report 4.0 (p3109 with infinities, p3109_finite without).
SPECIALS = {
    "ieee": Special(infinity=True, nan="top field"),
    "fn": Special(infinity=False, nan="top"),
    "fnuz": Special(infinity=False, nan="negative zero", wide_bias=True),
    "finite": Special(infinity=False, nan="", clamps=True),
    "p3109": Special(infinity=True, nan="negative zero", wide_bias=True),
    "p3109_finite": Special(infinity=False, nan="negative zero", clamps=True, wide_bias=True),
    "scale": Special(infinity=False, nan="top"),
}


def default_bias(exponent_bits: int, special: str) -> int:
    """The bias of a format that gives none."""
    return 2 ** (exponent_bits - 1) - (0 if SPECIALS[special].wide_bias else 1)


def check_fields(format: Format) -> None:
    """Raise ValueError, naming it, for a field that is none or that contradicts another."""
    for key, least in (("exponent_bits", 1), ("mantissa_bits", 0)):
        width = getattr(format, key)
        if not isinstance(width, int) or isinstance(width, bool) or width < least:
            raise ValueError(f"{key} must be an integer of at least {least}, got {width!r}.")
        if width > 64:
            raise ValueError(f"Numbers travel as float64: {key} must be at most {LIMITS[key]}, got {width}.")
    if format.bias is not None and (not isinstance(format.bias, int) or isinstance(format.bias, bool)):
        raise ValueError(f"bias must be an integer, got {format.bias!r}.")
    if not isinstance(format.special, str) or format.special not in SPECIALS:
        raise ValueError(f"special must be one of {', '.join(SPECIALS)}; got {format.special!r}.")
    if format.name is not None and not isinstance(format.name, str):
        raise ValueError(f"name must be text or None, got {format.name!r}.")
    if not isinstance(format.tininess, str) or format.tininess not in TININESS:
        raise ValueError(f"tininess must be one of {', '.join(TININESS)}; got {format.tininess!r}.")
    for key in ("subnormals", "signed"):
        if not isinstance(getattr(format, key), bool):
            raise ValueError(f"{key} must be True or False, got {getattr(format, key)!r}.")
    if format.special == "fnuz" and not format.signed:
        raise ValueError("An unsigned fnuz format (signed=False) has no code of -0 to hold its NaN; use special='fn'.")
    if format.special == "scale" and (format.signed or format.mantissa_bits):
        raise ValueError("A scale format holds powers of two: it needs mantissa_bits=0 and signed=False.")
    if format.special == "ieee" and format.mantissa_bits == 0:
        raise ValueError("An ieee format with mantissa_bits=0 has no code for NaN; use special='fn' or 'finite'.")


def check_range(format: Format) -> None:
    """Raise ValueError for a format without normal numbers, or with numbers or sums that float64 cannot hold."""
    shape = f"exponent_bits={format.exponent_bits}, mantissa_bits={format.mantissa_bits}, special={format.special!r}"
    least_code = (1 << format.mantissa_bits) if format.has_zero else 0
    if format.max_code < least_code:
        raise ValueError(f"A format with {shape} has no normal number; give it more exponent bits.")
    lowest = format.emin - format.mantissa_bits
    highest = (format.max_code >> format.mantissa_bits) - format.bias
    if format.mantissa_bits > 52 or highest > 1023 or lowest < -1074:
        raise ValueError(
            f"Numbers travel as float64 (53 significant bits, exponents -1074 to 1023); a format with {shape}, "
            f"bias={format.bias} has {format.precision} bits and exponents {lowest} to {highest}."
        )
    if lowest > LARGEST_SPACING:
        raise ValueError(
            f"A format with {shape}, bias={format.bias} has a spacing of at least 2^{lowest}; the sums that round to "
            f"multiples of it leave float64's range above 2^{LARGEST_SPACING}. Give it a larger bias."
        )
