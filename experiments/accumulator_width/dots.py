"""Errors of dot products by the width of their accumulator, their length, and the length of chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.operands import Operands, draw_operands
from simfloat.studies import Job

#: Stored mantissa bits of the accumulator. It has the exponents of FP32, so that nothing overflows.
BITS, TINY_BITS = range(2, 15), range(3, 8)

#: Products per sum, and rows and columns of a matrix of sums.
LENGTHS, TINY_LENGTHS = (64, 256, 1024, 4096, 16384), (64, 256)
SIZE, TINY_SIZE = 16, 4

#: Products per chunk; the sum of a chunk starts at zero and is added to the sums of earlier chunks.
CHUNK = 64

#: Lengths of chunks that are tried at one length, with one accumulator.
CHUNKS, TINY_CHUNKS, CHUNKED_LENGTH, CHUNKED_BITS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048), (4, 64), 4096, 7

#: The format of the factors: eight bits, as in the trainings for which such accumulators are made.
INPUTS = sf.E4M3


def accumulator(bits: int, chunk: int = 0) -> sf.Accumulator:
    """Return an accumulator with this number of stored mantissa bits: sequential, or in chunks."""
    format = sf.Format(8, bits)
    return sf.blocked(chunk, format, format) if chunk else sf.sequential(format)


def measure_dots(job: Job) -> list[dict[str, Any]]:
    """Return a row for each length, bits and chunk: the root mean square error relative to that of the sums."""
    lengths, bits = (TINY_LENGTHS, TINY_BITS) if job["tiny"] else (LENGTHS, BITS)
    rows = []
    for length in lengths:
        operands = operands_of(job, length)
        rows += [
            {"length": length, "bits": width, "chunk": chunk, "error": error(operands, accumulator(width, chunk))}
            for width in bits
            for chunk in (0, CHUNK)
        ]
    operands = operands_of(job, lengths[-1] if job["tiny"] else CHUNKED_LENGTH)
    chunks = TINY_CHUNKS if job["tiny"] else CHUNKS
    return rows + [
        {"only_chunk": chunk, "error": error(operands, accumulator(CHUNKED_BITS, chunk))} for chunk in chunks
    ]


def operands_of(job: Job, length: int) -> Operands:
    """Return the operands of the job's sums."""
    return draw_operands(job["data"], job["seed"], length, TINY_SIZE if job["tiny"] else SIZE, INPUTS)


def error(operands: Operands, accumulate: sf.Accumulator) -> float:
    """Return the error of sums by this accumulator, relative to the exact ones."""
    lost = sf.matmul(operands.a, operands.b, accumulate=accumulate) - operands.exact
    return float(np.sqrt(np.mean(lost**2) / np.mean(operands.exact**2)))


def needed_bits(bits: NDArray, errors: NDArray, allowed: float) -> float:
    """Return the bits for an error of `allowed`, interpolated by the logarithm of the error; NaN if none is enough.

    Errors fall with the bits; the smallest number of bits with a small enough error is searched.
    """
    enough = np.flatnonzero(errors <= allowed)
    if not enough.size:
        return float("nan")
    first = int(enough[0])
    if first == 0:
        return float(bits[0])
    above, below = np.log2(errors[first - 1]), np.log2(max(errors[first], 2.0**-60))
    return float(bits[first - 1] + (above - np.log2(allowed)) / (above - below))
