"""Rotations of two rows or columns, by which Jacobi's methods make an element zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arrays.array_arithmetic import ArrayArithmetic
from simfloat.formats import Format

#: Sweeps over all pairs after which a method ends; they converge in about log2(log2(1 / eps)) + 3.
SWEEPS = 30


class PlaneRotation(NamedTuple):
    """The tangent, cosine and sine of an angle of at most an eighth of a turn, arrays of one element."""

    t: NDArray
    c: NDArray
    s: NDArray

    @classmethod
    def of(cls, u: ArrayArithmetic, first: NDArray, last: NDArray, between: NDArray) -> PlaneRotation:
        """The rotation that makes [[first, between], [between, last]] diagonal, every operation rounded.

        gap = last - first, tau = gap / (2 between), t = sign(tau) / (|tau| + sqrt(1 + tau^2)), where tau^2 + 1 is
        rounded once; where that reaches the format's largest number, t = between / gap, the limit for large tau.
        c = 1 / sqrt(1 + t^2), which are three operations too, and s = t c. All are NaN where gap or 2 between lies
        beyond the largest number.
        """
        one, largest = np.ones(1, u.dtype), u.format.max
        gap, twice = u.compute("subtract", last, first), u.compute("multiply", 2 * one, between)
        tau = u.compute("divide", gap, twice)
        square = u.compute("fma", tau, tau, one)
        if max(abs(float(last[0]) - float(first[0])), 2 * abs(float(between[0]))) > largest:
            t = np.full(1, np.nan, u.dtype)
        elif square[0] < largest:
            sign = np.where(tau < 0, -one, one)
            t = u.compute("divide", sign, u.compute("add", np.abs(tau), u.compute("sqrt", square)))
        else:
            t = u.compute("divide", between, gap)
        c = u.compute("divide", one, u.compute("sqrt", u.compute("fma", t, t, one)))
        return cls(t, c, u.compute("multiply", t, c))

    def apply(self, u: ArrayArithmetic, x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        """(c x - s y, s x + c y): a product that is rounded, and an fma."""
        turned = u.compute("fma", self.c, x, -u.compute("multiply", self.s, y))
        return turned, u.compute("fma", self.c, y, u.compute("multiply", self.s, x))


def convergence_error(what: str, format: Format) -> ValueError:
    """The error where rotations go on and on."""
    return ValueError(
        f"{what} did not converge in {SWEEPS} sweeps in {format}: scale the matrix, or use a format of more bits."
    )
