"""A product of two matrices that one thread sums at once, and arrays as engines take them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.engine import Engine, Region
from simfloat.arithmetic.arrays import FEW, begins_a_line, copy, zeros
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import CPU, Machine, is_on_gpu
from simfloat.arithmetic.operands import FloatType
from simfloat.arithmetic.threads import scratch

#: Columns below which the inner loop, which runs over columns, is too short to be quick.
NARROW = 64

#: Elements up to which memory for sums is used again for the next ones.
REUSED = 1 << 20

#: From so many reads on it is worth copying an array to where a line of the cache begins.
OFTEN = 32

#: The regions of products whose steps do not draw, and of those whose transposed one is summed.
UPRIGHT, TURNED = Region(0, 0, 0, None), Region(0, 0, 0, None, True)


def sums_of_one_tile(engine: Engine, a: NDArray, b: NDArray, draw: Draw | None, quiet: bool, lasting: bool) -> NDArray:
    """The sums (m, n) of matrices a (m, k) and b (k, n) on the CPU; `lasting` if they are nobody's scratch."""
    m, n, carrier = a.shape[0], b.shape[1], engine.carrier
    swap = n < min(m, NARROW)
    if draw is None:
        region = TURNED if swap else UPRIGHT
    else:
        region = Region(0, 1, n, draw, True) if swap else Region(0, n, 1, draw)
    if swap:
        a, b, m, n = b.T, a.T, n, m
    sums = np.zeros((m, n), carrier) if m * n < FEW else zeros_for((m, n), carrier, lasting)
    engine.run(in_carrier(a, carrier, quiet), in_carrier(b, carrier, quiet, m), sums, region)
    return np.ascontiguousarray(sums.T) if swap else sums


def zeros_for(shape: tuple[int, ...], carrier: FloatType, lasting: bool, machine: Machine = CPU) -> NDArray:
    """What sums start from. Where they live until they are rounded only, many share memory that is at hand."""
    size = math.prod(shape)
    if lasting or machine is not CPU or not FEW <= size <= REUSED:
        return zeros(shape, carrier, machine)
    sums = scratch("sums", size, carrier).reshape(shape)
    sums.fill(0)
    return sums


def begin_from(start: NDArray, sums: NDArray) -> None:
    """Let sums start from an addend; a signalling NaN in it is no warning."""
    with np.errstate(invalid="ignore"):
        sums[:] = start


def in_carrier(x: NDArray, carrier: FloatType, quiet: bool, reads: int = 1) -> NDArray:
    """The numbers in the carrier's type and in C order; `quiet` if there is no signalling NaN among them for certain.

    If rows are read often, from a line of the cache on.
    """
    if is_on_gpu(x):
        return x if x.dtype == carrier and x.flags.c_contiguous else copy(x, carrier)
    if x.dtype == carrier:
        lies_well = x.flags.carray and (reads < OFTEN or x.size < FEW or begins_a_line(x))
        return x if lies_well else copy(x, carrier)
    if quiet:
        return copy(x, carrier)
    with np.errstate(invalid="ignore"):
        return copy(x, carrier)
