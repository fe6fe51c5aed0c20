"""Sums: accumulators, and the products that use them."""

from simfloat.sums.accumulator import Accumulator
from simfloat.sums.blocked import blocked, lanes, systolic
from simfloat.sums.convolution import conv2d
from simfloat.sums.custom import custom
from simfloat.sums.exact import exact
from simfloat.sums.fused import fused
from simfloat.sums.in_blocks import sum_blocks
from simfloat.sums.libraries import library_sum
from simfloat.sums.one_format import kahan, pairwise
from simfloat.sums.partial_sums import all_reduce, partial_sums
from simfloat.sums.product import dot, matmul, sum
from simfloat.sums.sequential import sequential
from simfloat.sums.test_vectors import read_vectors, write_vectors
from simfloat.sums.trees import numpy_sum, tree
from simfloat.sums.units import matrix_core, tensor_core

__all__ = [
    "Accumulator", "all_reduce", "blocked", "conv2d", "custom", "dot", "exact", "fused", "kahan", "lanes",
    "library_sum", "matmul", "matrix_core", "numpy_sum", "pairwise", "partial_sums", "read_vectors", "sequential",
    "sum", "sum_blocks", "systolic", "tensor_core", "tree", "write_vectors",
]  # fmt: skip
