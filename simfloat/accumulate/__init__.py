"""Sums and only sums: accumulators, and the products that use them."""

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.exact import exact
from simfloat.accumulate.kahan import kahan
from simfloat.accumulate.pairwise import pairwise
from simfloat.accumulate.product import dot, matmul, sum
from simfloat.accumulate.sequential import sequential

__all__ = ["Accumulator", "dot", "exact", "kahan", "matmul", "pairwise", "sequential", "sum"]
