"""Names of formats: those of the catalog, P3109's, those of other packages' dtypes, and text that describes one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats.format import NAMED, Format, read
from simfloat.formats.format_text import fixed_arguments, p3109_arguments
from simfloat.formats.instead import instead_of
from simfloat.formats.named import (
    BF16,
    CATALOG,
    E2M1,
    E2M3,
    E3M2,
    E3M4,
    E4M3,
    E4M3_IEEE,
    E4M3B11FNUZ,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    FP16,
    FP32,
    FP64,
)

#: What `as_format` reads, as far as types tell: PyTorch's dtypes too.
FormatLike: TypeAlias = Format | str | np.dtype | type[Any]

#: The dtypes of NumPy, ml_dtypes and PyTorch, by their names.
DTYPES: dict[str, Format] = {
    **{"float64": FP64, "double": FP64, "float32": FP32, "single": FP32, "float16": FP16, "half": FP16},
    **{"bfloat16": BF16, "float8_e5m2": E5M2, "float8_e4m3fn": E4M3, "float8_e3m4": E3M4, "float8_e4m3": E4M3_IEEE},
    **{"float8_e5m2fnuz": E5M2FNUZ, "float8_e4m3fnuz": E4M3FNUZ, "float8_e4m3b11fnuz": E4M3B11FNUZ},
    **{"float8_e8m0fnu": E8M0, "float6_e3m2fn": E3M2, "float6_e2m3fn": E2M3, "float4_e2m1fn": E2M1},
    "float4_e2m1fn_x2": E2M1,  # PyTorch's, two to a byte
}
NAMED.update(DTYPES)
# As people shorten them, ``e4m3fn``: where no letters follow, the text means an IEEE format.
NAMED.update({name.partition("_")[2]: format for name, format in DTYPES.items() if name.endswith(("fn", "fnu"))})


@in_usual_environment
def p3109(bits: int, precision: int, signed: bool = True, extended: bool = True) -> Format:
    """The IEEE P3109 format Binary{bits}p{precision}, signed or unsigned, extended (with infinities) or finite.

    Source: P3109 interim report 4.0 (2026). Raises ValueError where no exponent bit is left.

    Examples:
        >>> sf.p3109(8, 3)
        Format(5, 2, special='p3109', name='Binary8p3se')
        >>> sf.p3109(8, 3).max
        49152.0
    """
    _check_integers(bits=bits, precision=precision)
    for key, value in (("signed", signed), ("extended", extended)):
        if not isinstance(value, bool | np.bool):
            raise ValueError(f"{key} must be True or False, got {value!r}.")
    arguments = p3109_arguments(int(bits), int(precision), bool(signed), bool(extended))
    return Format(*arguments.args, **arguments.kwargs)


@in_usual_environment
def fixed(bits: int, fraction_bits: int = 0) -> Format:
    """The symmetric fixed-point numbers of so many bits: the integers from -(2^(bits-1) - 1) up, by 2^fraction_bits.

    Overflow saturates, ties go to the even integer, and there is a -0, in place of two's complement's lowest number.
    `sf.fixed(8)` is INT8 from -127 to 127, `sf.fixed(8, 6)` the elements of MXINT8, `sf.fixed(32)` an accumulator.

    Raises ValueError for fewer than 2 bits, and for more than float64 holds.

    Examples:
        >>> sf.fixed(8)
        Format(1, 6, bias=-5, special='finite', name='fixed(8)')
        >>> sf.round([3.5, 4.5, 1000.0], sf.fixed(8))
        array([  4.,   4., 127.])
    """
    _check_integers(bits=bits, fraction_bits=fraction_bits)
    arguments = fixed_arguments(int(bits), int(fraction_bits))
    return Format(*arguments.args, **arguments.kwargs)


def _check_integers(**given: Any) -> None:
    for key, value in given.items():
        if not is_integer(value):
            raise ValueError(f"{key} must be an integer, got {value!r}.")


@in_usual_environment
def as_format(x: Any) -> Format:
    """The format that `x` names.

    x is a Format; a name of the catalog in any case; a dtype of NumPy, ml_dtypes or PyTorch, or its name (``half``,
    ``bfloat16``, ``float8_e4m3fn`` or ``e4m3fn``); a name of P3109 (``Binary8p3se``); text like ``"e5m10"`` (ieee); or
    what a Format prints: ``as_format(str(f)) == f``.

    Raises ValueError if there is no such format, with the nearest names, or with what there is instead (of posits,
    integers, MXFP4).

    Examples:
        >>> sf.as_format("bf16"), sf.as_format("e5m2"), sf.as_format("e3m4")
        (Format(8, 7, name='BF16'), Format(5, 2, name='E5M2'), Format(3, 4, name='E3M4'))
    """
    if isinstance(x, Format):
        return x
    name = x if isinstance(x, str) else _dtype_name(x)
    if name is None:
        raise ValueError(f"A format is a simfloat.Format, its name or a dtype, got {x!r} of type {type(x).__name__}.")
    format = read(name)
    if format is None:
        answer = instead_of(name) or f"{_nearest(name)}; or write e5m10 for 5 and 10 bits"
        raise ValueError(f"Unknown format {name!r}. {answer}.")
    return format


def _dtype_name(x: Any) -> str | None:
    """The name of a dtype or of an array's element type; None for anything else."""
    if isinstance(x, np.dtype):
        return x.name
    if isinstance(x, type):
        return x.__name__
    # A torch.dtype prints as torch.float16; torch itself is not imported for it.
    return str(x).rpartition(".")[2] if type(x).__name__ == "dtype" else None


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # only a mistake needs it

    known = {known.upper(): known for known in [*DTYPES, *CATALOG]}
    near = get_close_matches(name.upper(), known, n=3, cutoff=0.6)
    if not near:
        return f"There are {', '.join(CATALOG)}"
    return f"Nearest names: {', '.join(known[match] for match in near)}"
