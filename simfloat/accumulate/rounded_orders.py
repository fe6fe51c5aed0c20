"""The orders of summation that a format and a rounding mode make: the table that says which there are.

The self-test, `simfloat warmup` and `reveal` go through all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from simfloat.accumulate._kahan import kahan
from simfloat.accumulate._pairwise import pairwise
from simfloat.accumulate._sequential import sequential
from simfloat.accumulate._tree import numpy_sum
from simfloat.accumulate.accumulator import Accumulator
from simfloat.formats import Format, Rounding


class RoundedOrder(NamedTuple):
    """An order, as a function of the format of its sums and of how they are rounded."""

    make: Callable[[Format, Rounding], Accumulator]
    order: Literal["chain", "neighbours", "numpy"] = "chain"  # one after the other, or one of two kinds of trees
    compensates: bool = False  # whether its corrections may make the sums look like those of other formats and modes


def _with_rounded_products(format: Format, rounding: Rounding) -> Accumulator:
    return sequential(format, rounding, products=format)


#: Of those that are chains, the likely ones come first.
ROUNDED_ORDERS = (
    RoundedOrder(sequential),
    RoundedOrder(_with_rounded_products),
    RoundedOrder(kahan, compensates=True),
    RoundedOrder(pairwise, "neighbours"),
    RoundedOrder(numpy_sum, "numpy"),
)
