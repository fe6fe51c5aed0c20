"""Sums and only sums: accumulators, and the products that use them."""

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.blocked import blocked
from simfloat.accumulate.convolution import conv2d
from simfloat.accumulate.exact import exact
from simfloat.accumulate.fused import fused
from simfloat.accumulate.kahan import kahan
from simfloat.accumulate.matrix_core import matrix_core
from simfloat.accumulate.pairwise import pairwise
from simfloat.accumulate.product import dot, matmul, sum
from simfloat.accumulate.sequential import sequential
from simfloat.accumulate.tensor_core import tensor_core

__all__ = [
    "Accumulator", "blocked", "conv2d", "dot", "exact", "fused", "kahan", "matmul", "matrix_core", "pairwise",
    "sequential", "sum", "tensor_core",
]  # fmt: skip
