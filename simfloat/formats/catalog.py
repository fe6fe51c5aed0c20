"""The formats that have names."""

from __future__ import annotations

import re

from simfloat.formats.format import Format

FP64 = Format(11, 52, name="FP64")
FP32 = Format(8, 23, name="FP32")
TF32 = Format(8, 10, name="TF32")
BF16 = Format(8, 7, name="BF16")
FP16 = Format(5, 10, name="FP16")

# OCP 8-bit Floating Point Specification (OFP8) 1.0
E5M2 = Format(5, 2, name="E5M2")
E4M3 = Format(4, 3, special="fn", name="E4M3")

# IEEE-like 8-bit formats of ml_dtypes
E3M4 = Format(3, 4, name="E3M4")
E4M3_IEEE = Format(4, 3, name="E4M3_IEEE")

# Noune et al. 2022, arXiv 2206.02915; the bias of 11 is Google's
E5M2FNUZ = Format(5, 2, special="fnuz", name="E5M2FNUZ")
E4M3FNUZ = Format(4, 3, special="fnuz", name="E4M3FNUZ")
E4M3B11FNUZ = Format(4, 3, bias=11, special="fnuz", name="E4M3B11FNUZ")

# OCP Microscaling Formats (MX) 1.0
E3M2 = Format(3, 2, special="finite", name="E3M2")
E2M3 = Format(2, 3, special="finite", name="E2M3")
E2M1 = Format(2, 1, special="finite", name="E2M1")
E8M0 = Format(8, 0, bias=127, special="scale", subnormals=False, signed=False, name="E8M0")

#: Every named format by its name.
CATALOG: dict[str, Format] = {
    format.name: format
    for format in (
        *(FP64, FP32, TF32, BF16, FP16, E5M2, E4M3, E3M4, E4M3_IEEE, E5M2FNUZ, E4M3FNUZ, E4M3B11FNUZ),
        *(E3M2, E2M3, E2M1, E8M0),
    )
    if format.name is not None
}


def p3109(bits: int, precision: int, signed: bool = True, extended: bool = True) -> Format:
    """The IEEE P3109 format Binary{bits}p{precision}, signed or unsigned, extended (with infinities) or finite.

    Source: P3109 interim report 4.0 (2026). Raises ValueError where no exponent bit is left.
    """
    exponent_bits = bits - precision + (0 if signed else 1)
    if precision < 1 or exponent_bits < 1:
        most = bits - 1 if signed else bits
        raise ValueError(f"A P3109 format of {bits} bits has a precision from 1 to {most}, got {precision}.")
    name = f"Binary{bits}p{precision}{'s' if signed else 'u'}{'e' if extended else 'f'}"
    special = "p3109" if extended else "p3109_finite"
    return Format(exponent_bits, precision - 1, special=special, signed=signed, name=name)


def as_format(x: Format | str) -> Format:
    """The format that `x` names: a Format itself, a catalog name in any case, or text like ``"e5m10"`` (ieee).

    Raises ValueError with the nearest names if there is no such format.
    """
    if isinstance(x, Format):
        return x
    if isinstance(x, str):
        if x.upper() in CATALOG:
            return CATALOG[x.upper()]
        if widths := re.fullmatch(r"e(\d+)m(\d+)", x.lower()):
            return Format(int(widths[1]), int(widths[2]))
        from difflib import get_close_matches  # only a mistake needs it

        near = get_close_matches(x.upper(), CATALOG, n=3, cutoff=0.0)
        raise ValueError(f"Unknown format {x!r}. Nearest names: {', '.join(near)}; or write e5m10 for 5 and 10 bits.")
    raise ValueError(f"A format is a simfloat.Format or its name, got {x!r} of type {type(x).__name__}.")
