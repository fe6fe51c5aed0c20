"""Number formats: the numbers that a format contains, and the layout of their codes.

The fields of a format determine its codes of infinity, NaN and -0, and its default bias. Some combinations of values
are rejected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.common import hashed_once, message_text, store_as_pythons
from simfloat.environment import in_usual_environment
from simfloat.formats.text import arguments_of, fixed_text, html

#: The widths of the fields of float64.
LIMITS = {"exponent_bits": 11, "mantissa_bits": 52}

#: The two definitions of a tiny result: below the smallest normal number after rounding without bounds, or before it.
TININESS = ("after_rounding", "before_rounding")

#: The code of NaN: in the top exponent field, like infinity; the top code; the code of -0, or the top code in unsigned
#: formats; none.
PlaceOfNan = Literal["top field", "top", "negative zero", ""]


class Special(NamedTuple):
    """The codes of a format that are not plain finite numbers. If NaN does not have the code of -0, that code is -0."""

    infinity: bool
    nan: PlaceOfNan
    clamps: bool = False  # results beyond the largest number become the largest number, in every rounding mode
    wide_bias: bool = False  # the default bias is 2^(e-1), one more than IEEE's
    is_fixed: bool = False  # codes are integers in two's complement, the spacing is constant, and -0 does not exist


#: IEEE 754-2019 section 3.4; OCP OFP8 1.0 (fn); AMD/Graphcore (fnuz); OCP MX 1.0 (finite, scale); IEEE P3109 interim
#: report 4.0 (p3109 with infinities, p3109_finite without). Fixed-point formats use all codes, or all except the lowest
#: one (fixed_symmetric), as OCP MX 1.0 allows for INT8.
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
    """Return the bias of a format for which none is given."""
    if exponent_bits == 0:
        return 0
    return 2 ** (exponent_bits - 1) - (0 if SPECIALS[special].wide_bias else 1)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the field, if a field has an invalid value, also in combination with other fields."""
    keys = "mantissa_bits", "bias", "special", "name", "tininess", "signed"
    mantissa_bits, bias, special, name, tininess, signed = (fields[key] for key in keys)
    has_field = not (special == "fixed" and signed is True)  # the lowest number of two's complement replaces the field
    for key, least in (("exponent_bits", int(has_field)), ("mantissa_bits", 0)):
        width = fields[key]
        if not isinstance(width, int) or isinstance(width, bool) or width < least:
            raise ValueError(f"{key} must be an integer of at least {least}, got {message_text(width)}.")
        if width > 64:
            raise ValueError(
                f"Numbers are stored as float64: {key} must be at most {LIMITS[key]}, got {message_text(width)}."
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
        raise ValueError("An unsigned fnuz format has no code of -0, which would be its NaN; use special='fn'.")
    if special == "scale" and (signed or mantissa_bits):
        raise ValueError("A scale format contains only powers of two: it needs mantissa_bits=0 and signed=False.")
    if SPECIALS[special].is_fixed:
        _check_fixed(fields, has_field)
    if special == "ieee" and mantissa_bits == 0:
        raise ValueError("An ieee format with mantissa_bits=0 has no code for NaN; use special='fn' or 'finite'.")


def _check_fixed(fields: Mapping[str, Any], has_field: bool) -> None:
    """Raise ValueError for fields that no fixed-point format has."""
    widths = fields["exponent_bits"] == has_field and (has_field or fields["mantissa_bits"] > 0)
    usual = fields["subnormals"] and fields["tininess"] == TININESS[0] and (fields["signed"] or has_field)
    if not (widths and usual) or (fields["special"] == "fixed_symmetric" and not fields["signed"]):
        raise ValueError(
            f"Fixed-point formats are created by simfloat.fixed(bits, fraction_bits, signed=..., symmetric=...); "
            f"special={fields['special']!r} cannot be combined with exponent_bits={fields['exponent_bits']}, "
            f"mantissa_bits={fields['mantissa_bits']}, signed={fields['signed']}, subnormals={fields['subnormals']}, "
            f"tininess={fields['tininess']!r}."
        )


#: log2 of the largest spacing s for which float64 can represent 2^53 s, the number at which its own spacing is 2 s.
LARGEST_SPACING = 1023 - 53


@hashed_once
@dataclass(frozen=True)
class Format:
    """A number format: a sign, an exponent field E and a fraction T, with the rules for infinity, NaN and -0.

    A code represents (-1)^s * (T / 2^m + [E > 0]) * 2^(max(E, 1) - bias), where m is `mantissa_bits`. The first two
    arguments are the widths, and the options are passed by name. float64 must be able to represent every number of a
    format.

    Parameters:
        exponent_bits: the width of the exponent field.
        mantissa_bits: the width of the fraction. The significand has one bit more (`precision`).
        bias: the exponent bias; by default 2^(e-1) - 1 for e exponent bits, and 2^(e-1) for fnuz and p3109.
        special: the codes that are not finite numbers; see the list below.
        subnormals: False to flush tiny results to a zero of their sign, and to decode subnormal codes to zero.
        tininess: the results that are tiny (IEEE 754-2019, section 7.5). Tiny results raise the underflow flag if they
            are inexact. Without subnormals they become zero. ``"after_rounding"``: the result would be below
            `smallest_normal` if it were rounded with an exponent without bounds, as in the flush-to-zero mode of x86.
            ``"before_rounding"``: the exact value is below it, as on ARM and in MATLAB's chop.
        signed: False for a format without a sign bit.
        name: a name, stored as the attribute `name`; it takes no part in equality or hash. `str` and tables contain
            the call that creates the format, which can be read back, and not this name.

    `special` is one of:

    * ``"ieee"``: the top exponent field contains infinities (fraction 0) and NaN;
    * ``"fn"``: no infinity; NaN is the all-ones code of each sign;
    * ``"fnuz"``: no infinity and no -0; NaN is the code of -0;
    * ``"finite"``: no infinity, no NaN; -0 exists;
    * ``"p3109"``: NaN is the code of -0 (unsigned: the top code); infinities are the top codes;
    * ``"p3109_finite"``: like p3109, without infinities;
    * ``"scale"``: unsigned powers of two without zero; NaN is the all-ones code (E8M0 of OCP MX);
    * ``"fixed"`` and ``"fixed_symmetric"``: integers times a power of two, with codes in two's complement; use
      :func:`simfloat.fixed`.

    Raises:
        ValueError: if a field or the combination of fields is invalid, or if float64 cannot represent the numbers.

    Examples:
        >>> half = sf.Format(5, 10)
        >>> half == sf.FP16
        True
        >>> half.max, half.eps, half.smallest_subnormal
        (65504.0, 0.0009765625, 5.960464477539063e-08)
        >>> sf.Format(2, 1, special="finite").values()
        array([-6. , -4. , -3. , -2. , -1.5, -1. , -0.5,  0. ,  0.5,  1. ,  1.5,
                2. ,  3. ,  4. ,  6. ], dtype=float32)
    """

    exponent_bits: int
    mantissa_bits: int
    _: KW_ONLY
    bias: int = None  # type: ignore[assignment]  # filled in below
    special: str = "ieee"
    subnormals: bool = True
    tininess: str = "after_rounding"
    signed: bool = True
    name: str | None = field(default=None, compare=False)

    def __new__(cls, *widths: Any, **options: Any) -> Format:
        """Make a format. More than two widths raise ValueError, and unknown options TypeError."""
        if len(widths) > 2:
            raise ValueError(
                f"Format takes the widths of exponent and mantissa, and options by name, such as bias={widths[2]!r}; "
                f"got {', '.join(map(repr, widths))}."
            )
        unknown = options.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise TypeError(
                f"Format has no option {min(unknown)}. A precision of p bits is mantissa_bits=p - 1, and a smallest "
                "exponent emin is bias=1 - emin. The largest exponent follows from the width of the exponent and the "
                f"bias. The options are {', '.join(list(cls.__dataclass_fields__)[2:])}."
            )
        return super().__new__(cls)

    @in_usual_environment
    def __post_init__(self) -> None:
        store_as_pythons(self)
        check_fields(vars(self))
        if self.bias is None:
            object.__setattr__(self, "bias", default_bias(self.exponent_bits, self.special))
        _check_range(self)

    def __repr__(self) -> str:
        bias = default_bias(self.exponent_bits, self.special)
        defaults = {field.name: field.default for field in fields(self)[2:]} | {"bias": bias}
        options = [
            f", {key}={getattr(self, key)!r}" for key, default in defaults.items() if getattr(self, key) != default
        ]
        return f"Format({self.exponent_bits}, {self.mantissa_bits}{''.join(options)})"

    def __str__(self) -> str:
        return self._text

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)

    def _repr_html_(self) -> str:
        return html(self)

    @cached_property
    def _text(self) -> str:
        """The shortest text that `read_format` reads back, with the name of the format if it has one."""
        widths = f"e{self.exponent_bits}m{self.mantissa_bits}"
        short = self.name or (fixed_text(**self._fixed_options) if self.is_fixed else widths)
        try:
            return short if read_format(short) == self else repr(self)
        except ValueError:  # the name reads like a format that cannot exist
            return repr(self)

    # --- facts -------------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """The width of a code."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @property
    def precision(self) -> int:
        """The number of bits of the significand, including the hidden one."""
        return self.mantissa_bits + 1

    @property
    def is_fixed(self) -> bool:
        """True for fixed-point formats: the spacing is constant, and codes are in two's complement."""
        return SPECIALS[self.special].is_fixed

    @property
    def fraction_bits(self) -> int:
        """The most bits after the binary point that a number of the format needs: 24 for FP16, whose smallest number
        is 2^-24. The width of the fraction in its codes is `mantissa_bits`."""
        return self.mantissa_bits - self.emin

    @property
    def _fixed_options(self) -> dict[str, Any]:
        """The arguments of :func:`simfloat.fixed` that make this fixed-point format."""
        symmetric = self.special == "fixed_symmetric" or not self.signed
        return {
            "bits": self.bits, "fraction_bits": self.fraction_bits, "signed": self.signed, "symmetric": symmetric,
        }  # fmt: skip

    @property
    def has_infinity(self) -> bool:
        """True if +inf (and -inf, if signed) has a code."""
        return SPECIALS[self.special].infinity

    @property
    def has_nan(self) -> bool:
        """True if NaN has a code."""
        return SPECIALS[self.special].nan != ""

    @property
    def has_negative_zero(self) -> bool:
        """True if -0 has its own code."""
        return self.signed and not self.is_fixed and SPECIALS[self.special].nan != "negative zero"

    @property
    def has_zero(self) -> bool:
        """True if zero has a code; False only for scale formats."""
        return self.special != "scale"

    @property
    def flushes(self) -> bool:
        """True if tiny results become zero."""
        return not self.subnormals and self.has_zero

    @property
    def last_exponent(self) -> int:
        """Exponent below which the spacing no longer decreases, before tiny results are flushed: `emin` or `emin - 1`.

        It is `emin - 1` if tininess is detected after rounding. The binade below `emin` must then be rounded at full
        precision to decide whether a result is tiny. A result below that binade is tiny in any case: it can round up to
        the lower end of the binade at most.
        """
        return self.emin - (self.flushes and self.tininess == "after_rounding")

    @property
    def clamps(self) -> bool:
        """True if results beyond `max` become `max` in every rounding mode."""
        return SPECIALS[self.special].clamps

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal number.

        For fixed-point formats it is mantissa_bits - fraction_bits: starting at 2^(emin + 1), a floating-point format
        with these mantissa bits would have a larger spacing.
        """
        return (1 if self.has_zero else 0) - self.bias

    @cached_property
    @in_usual_environment
    def emax(self) -> int:
        """Exponent of the largest finite number."""
        return math.frexp(self.max)[1] - 1

    @cached_property
    @in_usual_environment
    def last_binade(self) -> int:
        """Exponent of the largest finite magnitude: `emax`, or one more for the lowest number of two's complement."""
        return math.frexp(max(self.max, -self.min))[1] - 1

    @cached_property
    @in_usual_environment
    def max(self) -> float:
        """The largest finite number."""
        return self.magnitude(self.max_code)

    @property
    def min(self) -> float:
        """The most negative number; for unsigned formats zero, or the smallest scale."""
        if self.special == "fixed" and self.signed:
            return -self.magnitude(self.max_code + 1)
        return -self.max if self.signed else 0.0 if self.has_zero else self.smallest_normal

    @cached_property
    @in_usual_environment
    def eps(self) -> float:
        """The distance from 1 to the next larger number, 2^-mantissa_bits; for fixed-point formats, the spacing."""
        return 2.0 ** -(self.fraction_bits if self.is_fixed else self.mantissa_bits)

    @cached_property
    @in_usual_environment
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest, 2^-precision; for fixed-point formats, the largest
        error."""
        return self.eps / 2

    @cached_property
    @in_usual_environment
    def smallest_normal(self) -> float:
        """The smallest positive number of full precision; for fixed-point formats, the smallest positive number."""
        return math.ldexp(1.0, -self.fraction_bits if self.is_fixed else self.emin)

    @cached_property
    @in_usual_environment
    def smallest_subnormal(self) -> float:
        """The smallest positive number."""
        gradual = self.subnormals and self.has_zero
        return math.ldexp(1.0, self.emin - self.mantissa_bits) if gradual else self.smallest_normal

    @cached_property
    def fits_float32(self) -> bool:
        """True if float32 can represent every number of the format.

        That is so if precision is at most 24, emax is at most 127, and emin - mantissa_bits, the exponent of the last
        place of the smallest normal number, is at least -149. Without subnormals, max and smallest_subnormal are not
        enough to decide it.
        """
        return self.precision <= 24 and self.emax <= 127 and self.emin - self.mantissa_bits >= -149

    # --- codes -------------------------------------------------------------------------------

    @property
    def max_code(self) -> int:
        """The code of the largest finite number."""
        if SPECIALS[self.special].nan == "top field":
            return self._top_code - (1 << self.mantissa_bits)
        return self._top_code - self.has_infinity - (self.nan_code == self._top_code)

    @property
    def infinity_code(self) -> int | None:
        """The code of +inf, or None if the format has no infinity."""
        return self.max_code + 1 if self.has_infinity else None

    @property
    def nan_code(self) -> int | None:
        """The code that NaN encodes to, the positive quiet NaN; None if the format has no NaN."""
        if not self.has_nan:
            return None
        place = SPECIALS[self.special].nan
        if place == "top field":
            return self.max_code + 1 + (1 << (self.mantissa_bits - 1))
        return self._top_code + 1 if place == "negative zero" and self.signed else self._top_code

    @property
    def _top_code(self) -> int:
        """The code with all bits one except the sign."""
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    def magnitude(self, code: int) -> float:
        """Return the number of a code without its sign bit, read as if it were finite."""
        return float(self.magnitudes(np.array([code], np.int64))[0])

    @in_usual_environment
    def magnitudes(self, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the numbers of codes without their sign bits, read as if they were finite."""
        exponents, fractions = np.divmod(codes, 1 << self.mantissa_bits)
        are_small = (exponents == 0) & self.has_zero
        units = np.where(are_small, fractions * self.subnormals, fractions + (1 << self.mantissa_bits))
        powers = np.where(are_small, self.emin, exponents - self.bias) - self.mantissa_bits
        return np.ldexp(units.astype(np.float64), powers.astype(np.intc))

    @in_usual_environment
    def values(self) -> NDArray[np.floating]:
        """Return all finite values in ascending order, with one zero; float32 if the format fits into it, otherwise
        float64.

        Raises ValueError for formats of more than 16 bits.
        """
        if self.bits > 16:
            raise ValueError(f"values() lists formats of at most 16 bits; {self} has {self.bits}.")
        magnitudes = self.magnitudes(np.arange(self.max_code + 1))
        numbers = np.concatenate([[self.min], -magnitudes, magnitudes]) if self.signed else magnitudes
        # -0 == 0, so np.unique keeps one of them; adding +0 makes it +0.
        return (np.unique(numbers) + 0.0).astype(np.float32 if self.fits_float32 else np.float64)


#: The formats that have other names elsewhere, by lower-case name; filled by `formats/catalog.py`.
NAMED: dict[str, Format] = {}


def read_format(text: str) -> Format | None:
    """Return the format that a text names or describes, None for other texts; ValueError for an impossible format."""
    named = NAMED.get(text.lower())
    arguments = None if named else arguments_of(text)
    if arguments is None:
        return named
    try:
        return Format(*arguments.args, **arguments.kwargs)
    except TypeError:  # too many arguments, or unknown ones
        return None


def _check_range(format: Format) -> None:
    shape = f"exponent_bits={format.exponent_bits}, mantissa_bits={format.mantissa_bits}, special={format.special!r}"
    least_code = (1 << format.mantissa_bits) if format.has_zero else 0
    if format.max_code < least_code and not format.is_fixed:
        raise ValueError(f"A format with {shape} has no normal number; give it more exponent bits.")
    lowest = format.emin - format.mantissa_bits
    highest = (format.max_code >> format.mantissa_bits) - format.bias
    if format.mantissa_bits > 52 or highest > 1023 or lowest < -1074:
        raise ValueError(
            f"Numbers are stored as float64 (53 significant bits, exponents -1074 to 1023); a format with {shape}, "
            f"bias={format.bias} has {format.precision} bits and exponents {lowest} to {highest}."
        )
    if lowest > LARGEST_SPACING:
        raise ValueError(
            f"A format with {shape}, bias={format.bias} has a spacing of at least 2^{lowest}; the sums that round to "
            f"multiples of it leave float64's range above 2^{LARGEST_SPACING}. Give it a larger bias."
        )
