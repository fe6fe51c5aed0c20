"""Steps that the hardware rounds natively, beside those in FP32 and FP64 to nearest even, which all processors have."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simfloat import kernels
from simfloat.accumulate.engine import Engine, Region
from simfloat.accumulate.lane_engines import can_drop_bits, fits_when_lifted, lift_exponent
from simfloat.accumulate.operand_bounds import Problem
from simfloat.arithmetic.machines import Device
from simfloat.arithmetic.operands import FloatType
from simfloat.formats import BF16, FP16, FP32, Format, Rounding, nearest_even

#: Kinds of steps that take the images of numbers; and what kinds begin with that cut bits off: of sums as they are, and
#: of sums and left factors that are lifted.
IMAGES, CUT, LIFTED = ("halves", "bfloats"), "cut_", "lifted_"


def hardware_kind(problem: Problem, rounding: Rounding, *formats: Format) -> str | None:
    """The kind of steps that the machine makes itself for such sums, rounded in `formats`; None if it has none."""
    loops, format = problem.device.loops, formats[0]
    if any(other != format for other in formats):
        return None
    if format == FP32 and rounding.instruction and loops.processor.COMPUTES_DIRECTED:
        return rounding.mode if problem.a.in_float32 and problem.b.in_float32 else None
    if rounding == nearest_even and format == FP16 and loops.processor.COMPUTES_FP16:
        return "halves" if _are_in_format(problem, FP16) else None
    if rounding == nearest_even and format == BF16 and loops.processor.COMPUTES_BF16 and _are_in_format(problem, BF16):
        return "bfloats"
    # A GPU's fma.rz, .rm and .rp round FP32 in the directed modes. Formats with float32's
    # exponents are made of these by cutting bits off. Others are multiplied by a power of
    # two first, so that both smallest normal numbers are the same.
    is_cut = kernels.grid.has_exponents_of_float32(format) and not rounding.saturates
    kind = f"{CUT if is_cut else LIFTED}{rounding.steps}"
    if not loops.processor.COMPUTES_DIRECTED or f"fused_{kind}" not in loops.sequential.steps:
        return None
    if is_cut:
        return kind if problem.a.in_float32 and problem.b.in_float32 else None
    return kind if _can_be_scaled(problem, rounding, format) else None


def _can_be_scaled(problem: Problem, rounding: Rounding, format: Format) -> bool:
    """Whether sums can be those of float32 cut off, times a power of two, and nothing is quicker: FP16 to nearest even
    is converted by one instruction.
    """
    if not (can_drop_bits(format, format, rounding) and format.has_nan) or (format, rounding) == (FP16, nearest_even):
        return False
    return all(fits_when_lifted(operand, lift_exponent(format)) for operand in (problem.a, problem.b))


def _are_in_format(problem: Problem, format: Format) -> bool:
    """Whether operands, and what the sums start from, are numbers of the format."""
    all_bounds = (problem.a.bounds, problem.b.bounds, problem.initial)
    return all(bounds is None or bounds.are_in_format(format) for bounds in all_bounds)


class ScalableLoop(Engine, Protocol):
    """An engine that can be made for numbers times a power of two."""

    def with_scaled_grids(self, factor: np.float32) -> Engine:
        """The engine with its grids times a power of two, `factor`."""


def hardware_engine(engine: ScalableLoop, kind: str, format: Format) -> Engine:
    """The engine of a loop of this kind, for numbers that travel as float32, and sums in a format."""
    if kind.startswith(LIFTED):
        factor = np.float32(2.0 ** lift_exponent(format))
        return ScaledIntoFloat32(engine.with_scaled_grids(factor), factor)
    return OnBitPatterns(engine, kind) if kind in IMAGES else engine


class ScaledIntoFloat32(NamedTuple):
    """An engine whose loop takes left factors and sums times a power of two, which loses no bit of either."""

    engine: Engine
    factor: np.float32
    carrier: FloatType = np.float32

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        # This engine is chosen only where neither sums nor left factors leave float32's range,
        # so the powers of two lose nothing.
        sums = out * self.factor
        self.engine.run(a * self.factor, b, sums, region)
        out[...] = sums * (np.float32(1.0) / self.factor)


class OnBitPatterns(NamedTuple):
    """An engine whose loop takes images."""

    engine: Engine
    kind: str
    carrier: FloatType = np.float32

    @property
    def cost(self) -> float:
        return self.engine.cost

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        left, right, sums = (_images_of(x, self.kind, region.machine) for x in (a, b, out))
        self.engine.run(left, right, sums, region)
        region.machine.loops.halves.number_loops[self.kind](sums, out)


def _images_of(x: NDArray, kind: str, machine: Device) -> NDArray[np.uint16]:
    images = machine.new_array("empty", x.shape, np.uint16)
    machine.loops.halves.image_loops[kind](x, images)
    return images
