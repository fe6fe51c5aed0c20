"""Steps that the hardware rounds natively, beside those in FP32 and FP64 to nearest even, which all processors have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.operand_bounds import Problem
from simfloat.arithmetic.machines import machine_of
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import (
    BF16,
    FP16,
    FP32,
    Format,
    Rounding,
    nearest_even,
    toward_negative,
    toward_positive,
    toward_zero,
)

DIRECTED = (toward_zero, toward_positive, toward_negative)

#: Kinds of steps that take the images of numbers.
IMAGES = ("halves", "bfloats")


def own_kind(problem: Problem, rounding: Rounding, *formats: Format) -> str | None:
    """The kind of steps that the machine makes itself for such sums, rounded in `formats`; None if it has none."""
    loops, format = problem.machine.loops, formats[0]
    if any(other != format for other in formats):
        return None
    if format == FP32 and rounding in DIRECTED and loops.processor.COMPUTES_DIRECTED:
        return rounding.mode if problem.a.in_float32 and problem.b.in_float32 else None
    if rounding == nearest_even and format == FP16 and loops.processor.COMPUTES_FP16:
        return "halves" if _inside(problem, FP16) else None
    if rounding == nearest_even and format == BF16 and loops.processor.COMPUTES_BF16 and _inside(problem, BF16):
        return "bfloats"
    can_be_cut = loops.processor.COMPUTES_DIRECTED and kernels.grid.has_exponents_of_float32(format)
    if can_be_cut and not (rounding.saturates or rounding.is_stochastic):
        return f"cut_{rounding.mode}" if problem.a.in_float32 and problem.b.in_float32 else None
    return None


def _inside(problem: Problem, format: Format) -> bool:
    """Whether operands, and what the sums start from, are numbers of the format."""
    known = (problem.a.bounds, problem.b.bounds, problem.initial)
    return all(bounds is None or bounds.inside(format) for bounds in known)


def in_images(engine: Engine, kind: str) -> Engine:
    """The engine of a loop of this kind, for numbers that travel as float32."""
    return InImages(engine, kind) if kind in IMAGES else engine


class InImages(NamedTuple):
    """An engine whose loop takes images."""

    engine: Engine
    kind: str
    carrier: FloatType = np.float32

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        sums = self._images(out)
        self.engine.run(self._images(a), self._images(b), sums, region)
        machine_of(out).loops.halves.numbers_of[self.kind](sums, out)

    def _images(self, x: NDArray) -> NDArray[np.uint16]:
        images = machine_of(x).make("empty", x.shape, np.uint16)
        machine_of(x).loops.halves.images_of[self.kind](x, images)
        return images
