"""The formats that have names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfloat.formats.format import NAMED, Format

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

#: Every format above by its name.
CATALOG: dict[str, Format] = {name: value for name, value in list(globals().items()) if isinstance(value, Format)}
NAMED.update((name.lower(), format) for name, format in CATALOG.items())

if not TYPE_CHECKING:  # type checkers find the names above without
    __all__ = ["CATALOG", *CATALOG]
