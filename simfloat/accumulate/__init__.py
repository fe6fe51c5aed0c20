"""Sums and only sums: accumulators, and the products that use them."""

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.convolution import conv2d
from simfloat.accumulate.exact import exact
from simfloat.accumulate.product import dot, matmul, sum
from simfloat.accumulate.sequential import sequential

__all__ = ["Accumulator", "conv2d", "dot", "exact", "matmul", "sequential", "sum"]
