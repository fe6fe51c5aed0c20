"""Infinity, NaN and -0: which codes hold them, by the name of the convention."""

from __future__ import annotations

from typing import Literal, NamedTuple

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
