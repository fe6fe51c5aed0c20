"""Sums and only sums: accumulators, and the products that use them."""

from simfloat.accumulate._blocked import blocked
from simfloat.accumulate._exact import exact
from simfloat.accumulate._fused import fused
from simfloat.accumulate._kahan import kahan
from simfloat.accumulate._lanes import lanes
from simfloat.accumulate._library_sum import library_sum
from simfloat.accumulate._matrix_core import matrix_core
from simfloat.accumulate._pairwise import pairwise
from simfloat.accumulate._partial_sums import partial_sums
from simfloat.accumulate._sequential import sequential
from simfloat.accumulate._tensor_core import tensor_core
from simfloat.accumulate._tree import numpy_sum, tree
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.collectives import all_reduce
from simfloat.accumulate.convolution import conv2d
from simfloat.accumulate.product import dot, matmul, sum

__all__ = [
    "Accumulator", "all_reduce", "blocked", "conv2d", "dot", "exact", "fused", "kahan", "lanes", "library_sum",
    "matmul", "matrix_core", "numpy_sum", "pairwise", "partial_sums", "sequential", "sum", "tensor_core", "tree",
]  # fmt: skip
