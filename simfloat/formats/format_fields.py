"""The fields of a format: where its infinities, NaN and -0 stand, its default bias, and which values are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from simfloat.checks import message_text

#: Widths of float64's fields.
LIMITS = {"exponent_bits": 11, "mantissa_bits": 52}

#: Which results are tiny: those below the smallest normal number after rounding without bounds, or before it.
TININESS = ("after_rounding", "before_rounding")

#: Where NaN stands: in the top exponent field, beside infinity; at the top code; at that of -0, the top code where
#: formats are unsigned; nowhere.
PlaceOfNan = Literal["top field", "top", "negative zero", ""]


class Special(NamedTuple):
    """Which codes of a format are not plain finite numbers. Without NaN there, the code of -0 is -0."""

    infinity: bool
    nan: PlaceOfNan
    clamps: bool = False  # results beyond the largest number stop there, in every rounding mode
    wide_bias: bool = False  # the default bias is 2^(e-1), one more than IEEE's
    is_fixed: bool = False  # codes are integers in two's complement, all numbers have one spacing, and there is no -0


#: IEEE 754-2019 section 3.4; OCP OFP8 1.0 (fn); AMD/Graphcore (fnuz); OCP MX 1.0 (finite, scale);
#: IEEE P3109 interim report 4.0 (p3109 with infinities, p3109_finite without). Fixed-point numbers have all codes, or
#: lack the lowest one (fixed_symmetric), as OCP MX 1.0 allows for INT8.
SPECIALS = {
    "ieee": Special(infinity=True, nan="top field"),
    "fn": Special(infinity=False, nan="top"),
    "fnuz": Special(infinity=False, nan="negative zero", wide_bias=True),
    "finite": Special(infinity=False, nan="", clamps=True),
    "p3109": Special(infinity=True, nan="negative zero", wide_bias=True),
    "p3109_finite": Special(infinity=False, nan="negative zero", clamps=True, wide_bias=True),
    "scale": Special(infinity=False, nan="top"),
    "fixed": Special(infinity=False, nan="", clamps=True, is_fixed=True),
    "fixed_symmetric": Special(infinity=False, nan="", clamps=True, is_fixed=True),
}


def default_bias(exponent_bits: int, special: str) -> int:
    """The bias of a format that gives none."""
    if exponent_bits == 0:
        return 0
    return 2 ** (exponent_bits - 1) - (0 if SPECIALS[special].wide_bias else 1)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise ValueError, naming it, for a value that its field cannot have, beside those of the others."""
    keys = "mantissa_bits", "bias", "special", "name", "tininess", "signed"
    mantissa_bits, bias, special, name, tininess, signed = (fields[key] for key in keys)
    has_field = not (special == "fixed" and signed is True)  # two's complement's lowest number needs no exponent field
    for key, least in (("exponent_bits", int(has_field)), ("mantissa_bits", 0)):
        width = fields[key]
        if not isinstance(width, int) or isinstance(width, bool) or width < least:
            raise ValueError(f"{key} must be an integer of at least {least}, got {message_text(width)}.")
        if width > 64:
            raise ValueError(
                f"Numbers travel as float64: {key} must be at most {LIMITS[key]}, got {message_text(width)}."
            )
    if bias is not None and (not isinstance(bias, int) or isinstance(bias, bool)):
        raise ValueError(f"bias must be an integer, got {fields['bias']!r}.")
    if not isinstance(special, str) or special not in SPECIALS:
        raise ValueError(f"special must be one of {', '.join(SPECIALS)}; got {fields['special']!r}.")
    if name is not None and not isinstance(name, str):
        raise ValueError(f"name must be text or None, got {fields['name']!r}.")
    if not isinstance(tininess, str) or tininess not in TININESS:
        raise ValueError(f"tininess must be one of {', '.join(TININESS)}; got {fields['tininess']!r}.")
    for key in ("subnormals", "signed"):
        if not isinstance(fields[key], bool):
            raise ValueError(f"{key} must be True or False, got {fields[key]!r}.")
    if special == "fnuz" and not signed:
        raise ValueError("An unsigned fnuz format (signed=False) has no code of -0 to hold its NaN; use special='fn'.")
    if special == "scale" and (signed or mantissa_bits):
        raise ValueError("A scale format holds powers of two: it needs mantissa_bits=0 and signed=False.")
    if SPECIALS[special].is_fixed:
        _check_fixed(fields, has_field)
    if special == "ieee" and mantissa_bits == 0:
        raise ValueError("An ieee format with mantissa_bits=0 has no code for NaN; use special='fn' or 'finite'.")


def _check_fixed(fields: Mapping[str, Any], has_field: bool) -> None:
    """Raise ValueError for fields that no fixed-point numbers have."""
    widths = fields["exponent_bits"] == has_field and (has_field or fields["mantissa_bits"] > 0)
    usual = fields["subnormals"] and fields["tininess"] == TININESS[0] and (fields["signed"] or has_field)
    if not (widths and usual) or (fields["special"] == "fixed_symmetric" and not fields["signed"]):
        raise ValueError(
            f"Fixed-point numbers are made by simfloat.fixed(bits, fraction_bits, signed=..., symmetric=...); "
            f"special={fields['special']!r} does not go with exponent_bits={fields['exponent_bits']}, "
            f"mantissa_bits={fields['mantissa_bits']}, signed={fields['signed']}, subnormals={fields['subnormals']}, "
            f"tininess={fields['tininess']!r}."
        )
