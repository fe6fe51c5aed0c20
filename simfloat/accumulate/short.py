"""The shortest way of a small product: what calls that are alike need beside their operands is found once."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.bounds import Bounds, RawBounds, raw_bounds_of
from simfloat.accumulate.casting import take_unobserved
from simfloat.accumulate.engine import Engine, is_direct, keeps_sums
from simfloat.accumulate.one_tile import sums_of_one_tile
from simfloat.accumulate.operand_bounds import OperandBounds, Problem
from simfloat.arithmetic._cast import Cast
from simfloat.arithmetic._round import round_vector
from simfloat.arithmetic.arrays import FEW
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operands import FLOAT32
from simfloat.arithmetic.plan import Plan, plan_for
from simfloat.arithmetic.target import Target
from simfloat.formats import Format, Rounding

#: Products above which a call is no longer what takes the time.
MOST = 1 << 18

#: Of the left and the right operand: how they are rounded, and the formats that they are then known to be in.
Casts = tuple[Cast, Cast]
Formats = tuple[Format | None, Format | None]


class Short(NamedTuple):
    """Calls of matrix products alike, in which nobody watches and nothing is drawn or scaled."""

    accumulator: Accumulator
    casts: Casts | None
    formats: Formats
    engine: Engine | None  # for float32 operands, if it does not depend on their numbers
    keeps: bool  # whether sums in the accumulator's format need no rounding
    plans: tuple[Plan, Plan]  # for rounding sums in float32, in float64

    def product(
        self, a: NDArray, b: NDArray, target: Target, settled: tuple[bool, bool], shape: tuple[int, ...] | None = None
    ) -> NDArray | None:
        """a (m, k) times b (k, n), rounded to the target, in an array of `shape` if it is to have another one; None
        where more is to be done than here.

        `settled` tells of which operands it is known that their casts leave them as they are.
        """
        if type(a) is not np.ndarray or type(b) is not np.ndarray or a.ndim != 2 or b.ndim != 2:
            return None
        size = a.shape[0] * b.shape[1]
        if size >= FEW or size * a.shape[1] > MOST:
            return None
        if self.casts is None:
            engine, quiet = self._engine_as_is(a, b)
        else:
            looks = self.engine is None
            x = take_unobserved(a, self.casts[0], settled[0], looks)
            y = take_unobserved(b, self.casts[1], settled[1], looks)
            engine, quiet = self._engine_of(x, y, a.shape[1]), x.are_quiet and y.are_quiet
            assert x.array is not None and y.array is not None
            a, b = x.array, y.array
        sums = sums_of_one_tile(engine, a, b, None, quiet, True)
        carrier = engine.carrier
        if self.keeps and carrier is target.dtype and is_direct(engine):
            return sums if shape is None else sums.reshape(shape)
        shape = sums.shape if shape is None else shape
        return round_vector(sums.reshape(-1), self.plans[carrier is np.float64], shape, target, None)

    def _engine_as_is(self, a: NDArray, b: NDArray) -> tuple[Engine, bool]:
        """The engine for operands as they are, and whether there is no signalling NaN among them for certain."""
        single = a.dtype == FLOAT32, b.dtype == FLOAT32
        if self.engine is not None and single == (True, True):
            return self.engine, False
        x, y = raw_bounds_of(a), raw_bounds_of(b)
        return _engine_for(self.accumulator, x, y, self.formats, single, a.shape[1]), x[-1] and y[-1]

    def _engine_of(self, x: OperandBounds, y: OperandBounds, depth: int) -> Engine:
        """The engine for operands that were taken to their formats."""
        single = x.is_float32, y.is_float32
        if self.engine is not None and single == (True, True):
            return self.engine
        return _engine_for(self.accumulator, x.bounds, y.bounds, self.formats, single, depth)


def formats_of(casts: Casts | None) -> Formats:
    """The formats that operands are known to be in."""
    return (casts[0].format, casts[1].format) if casts else (None, None)


def short_for(accumulator: Accumulator, casts: Casts | None, target: Target) -> Short | None:
    """The short way of such calls, if there is one; their streams do not matter, for none is drawn from."""
    return _short_for(accumulator, casts, target.format, target.rounding) if target.observer is None else None


@lru_cache(maxsize=1024)
def _short_for(accumulator: Accumulator, casts: Casts | None, format: Format, rounding: Rounding) -> Short | None:
    result, formats, all_casts = accumulator.result, formats_of(casts), casts or ()
    if result is None or not result.has_nan or accumulator.is_matrix_unit or accumulator.scales:
        return None
    roundings = (rounding, *accumulator.roundings, *(cast.rounding for cast in all_casts))
    if any(mode.is_stochastic for mode in roundings) or any(cast.scale is not None for cast in all_casts):
        return None
    accumulator, engine = accumulator.for_inputs(*formats), None
    if not accumulator.reads_numbers:
        unread = OperandBounds(None, None, True)
        engine = accumulator.engine(Problem(unread, unread, 1, result))
    plans = plan_for(format, rounding, np.float32, CPU), plan_for(format, rounding, np.float64, CPU)
    return Short(accumulator, casts, formats, engine, keeps_sums(result, format, rounding), plans)


@lru_cache(maxsize=4096)
def _engine_for(
    accumulator: Accumulator, a: RawBounds, b: RawBounds, formats: Formats, single: tuple[bool, bool], depth: int
) -> Engine:
    """The engine for such operands; `single` tells which are float32."""
    x, y = OperandBounds(Bounds._make(a), formats[0], single[0]), OperandBounds(Bounds._make(b), formats[1], single[1])
    assert accumulator.result is not None
    return accumulator.engine(Problem(x, y, depth, accumulator.result))
