"""Formats, rounding modes, and the definition of rounding for one number."""

from simfloat.formats.catalog import *  # noqa: F403 (one for each row of the catalog)
from simfloat.formats.catalog import CATALOG, as_format, fixed, p3109
from simfloat.formats.format import Format
from simfloat.formats.limits import finfo
from simfloat.formats.rounding import (
    Rounding,
    nearest_away,
    nearest_down,
    nearest_even,
    nearest_toward_zero,
    nearest_up,
    stochastic,
    to_odd,
    toward_negative,
    toward_positive,
    toward_zero,
)

__all__ = [
    "CATALOG",
    "Format",
    "Rounding",
    "as_format",
    "finfo",
    "fixed",
    "nearest_away",
    "nearest_down",
    "nearest_even",
    "nearest_toward_zero",
    "nearest_up",
    "p3109",
    "stochastic",
    "to_odd",
    "toward_negative",
    "toward_positive",
    "toward_zero",
    *CATALOG,
]
