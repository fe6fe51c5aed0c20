"""Sums in FP16 where the machine computes in it: their numbers travel as float32, and are summed as images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.known import Problem
from simfloat.arithmetic.machines import machine_of
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import FP16, Format, Rounding, nearest_even


def computes_in_halves(problem: Problem, rounding: Rounding, *formats: Format) -> bool:
    """Whether the machine has arithmetic of its own for such sums, rounded in `formats`: of FP16 numbers, in FP16."""
    if not problem.machine.loops.target.COMPUTES_FP16:
        return False
    if rounding != nearest_even or any(format != FP16 for format in formats):
        return False
    start = problem.start
    return problem.a.facts.inside(FP16) and problem.b.facts.inside(FP16) and (start is None or start.inside(FP16))


class InHalves(NamedTuple):
    """An engine whose loop takes images."""

    engine: Engine
    carrier: FloatType = np.float32

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        sums = _images(out)
        self.engine.run(_images(a), _images(b), sums, region)
        machine_of(out).loops.halves.numbers_of(sums, out)


def _images(x: NDArray) -> NDArray[np.uint16]:
    images = machine_of(x).arrays.empty(x.shape, np.uint16)
    machine_of(x).loops.halves.images_of(x, images)
    return images
