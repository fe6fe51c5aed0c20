"""Operands of a product turned along k by one orthogonal matrix, which leaves the exact product as it was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import exact, matmul
from simfloat.arithmetic.bit_stream import BitStream
from simfloat.arithmetic.hadamard import Hadamard
from simfloat.arithmetic.machines import beside
from simfloat.formats import FP32


class Rotation(NamedTuple):
    """A transform with the signs of a simulation."""

    transform: Hadamard
    stream: BitStream  # whose seed the signs follow from; no call of it is taken

    def of(self, a: NDArray, b: NDArray) -> tuple[NDArray, NDArray]:
        """Matrices (..., m, k) and (..., k, n), turned along k."""
        return self._turned(a), self._turned(b.swapaxes(-1, -2)).swapaxes(-1, -2)

    def _turned(self, x: NDArray) -> NDArray:
        """The numbers of runs of the last axis, filled up with zeros, transformed and rounded once to FP32."""
        size = self.transform.size
        short = -x.shape[-1] % size
        filled = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, short)]) if short else x
        runs = filled.reshape(-1, size)
        turned = matmul(runs, beside(self.transform.matrix(self.stream.seed), x), accumulate=exact, output=FP32)
        return turned.reshape(filled.shape)
