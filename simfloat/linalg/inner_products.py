"""What every factorization is made of: numbers less sums of products, s - l u, in an accumulator's order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import matmul
from simfloat.accumulate._sequential import SequentialSum
from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.operand_bounds import first_outside_format
from simfloat.arrays.array_arithmetic import ArrayArithmetic

#: Columns or rows that are eliminated one by one, before products of matrices take over.
LEAF = 24


class InnerProducts(NamedTuple):
    """The sums s - sum over k of l_ik u_kj, where k ascends and the running sum starts from s_ij.

    Where a running sum goes on as if it had not been interrupted, blocks of products are subtracted by products of
    matrices, with the bits of one long sum: `splits` of them are taken apart, or None if sums are whole.
    """

    u: ArrayArithmetic
    accumulator: Accumulator
    splits: int | None

    @classmethod
    def of(cls, u: ArrayArithmetic, matrix: NDArray) -> InnerProducts:
        """Those of an arithmetic; ValueError if the matrix has numbers that no running sum can start from."""
        accumulator = u.accumulator
        if accumulator.takes_initial and accumulator.result is not None:
            place = first_outside_format(matrix, accumulator.result)
            if place is not None:
                raise ValueError(
                    f"Sums start from the numbers of the matrix, and {float(matrix[place])!r} is none of "
                    f"{accumulator.result}, the format of {accumulator}'s sums: take an accumulator of wider sums."
                )
        # What is drawn depends on which numbers are rounded in one call, and an observer counts single operations.
        apart = accumulator.resumes and not u.rounding.is_stochastic and u.current_observer is None
        return cls(u, accumulator, accumulator.chunk if apart else None)

    @property
    def leaf(self) -> int | None:
        """How many columns are eliminated one by one: a multiple of what sums can be taken apart in."""
        return None if self.splits is None else -(-LEAF // self.splits) * self.splits

    @property
    def steps_are_operations(self) -> bool:
        """Whether each step of a sum is an operation of the format, so that all elements may take it together.

        That is quicker than a sum for each where there are few products; and draws belong to operations.
        """
        format, rounding = self.u.format, self.u.rounding
        return self.accumulator in (
            SequentialSum(format, rounding=rounding),
            SequentialSum(format, rounding=rounding, products=format),
        )

    @property
    def dtype(self) -> Any:
        """The array type of running sums."""
        sums = self.accumulator.result
        return self.u.dtype if sums is None or (sums.fits_float32 and self.u.format.fits_float32) else np.float64

    def middle(self, first: int, last: int) -> int:
        """Where a range of more than a leaf is cut in two."""
        assert self.leaf is not None
        leaves = -(-(last - first) // self.leaf)
        return first + leaves // 2 * self.leaf

    def partial(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Running sums with more products subtracted; not rounded to the format yet."""
        return matmul(-left, right, accumulate=self.accumulator, initial=s, stream=self.u.stream)

    def final(self, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
        """Running sums with their last products subtracted, rounded to the format."""
        u, depth = self.u, left.shape[-1]
        if not self.accumulator.takes_initial:
            return u.compute("subtract", s, u.matmul(left, right)) if depth else s
        if depth:
            return u.matmul(-left, right, initial=s)
        return s if self.accumulator.result in (None, u.format) else u.round(s)

    def step(self, s: NDArray, column: NDArray, row: NDArray) -> NDArray:
        """s - column row, one product for each element: an operation that rounds once, or twice with the product."""
        # Filled by hand: to broadcast takes longer than to compute.
        left, right = np.empty((2, *s.shape), s.dtype)
        left[...], right[...] = -column[:, np.newaxis], row
        if self.accumulator == SequentialSum(self.u.format, rounding=self.u.rounding):
            return self.u.compute("fma", left, right, s)
        return self.u.compute("add", s, self.u.compute("multiply", left, right))
