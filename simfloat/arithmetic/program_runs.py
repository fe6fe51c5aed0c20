"""Programs: rounded operations on vectors that are written down first, and carried out in one go.

Each operation is rounded once, as `compute` rounds it, and draws the same random bits; what is saved are passes over
memory and calls. A program serves all vectors to which the same is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.plan import COUNTING, DRAWING, element_ranges
from simfloat.arithmetic.program_writer import Instructions
from simfloat.arithmetic.threads import LEAST_WORK, run_all
from simfloat.kernels.events import SIZE
from simfloat.kernels.program_table import INPUTS, OUTPUTS

#: Nanoseconds that an instruction takes for an element.
COST = 0.15

#: What stands for vectors that a program has not.
NONE = (np.zeros(0, np.float32),) * INPUTS

Vectors = Sequence[NDArray[np.float32]]


def run(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    inputs: Vectors,
    outputs: Vectors,
    take_draw: Callable[[str], Draw],
) -> NDArray[np.int64] | None:
    """Carry out a program on float32 vectors of one length, which may be read and written; draws are taken by name.

    Returns the events of what is counted, a row each; None where counting is not for programs, and all is to be done
    in another way.
    """
    rows, drawing = instructions.rows, instructions.draws
    draws = np.zeros((len(rows), 2) if drawing else (1, 2), np.uint64)
    for row, stream in drawing:
        draw = take_draw(stream)
        draws[row] = draw.seed, draw.call
    counts = len(instructions.counted)
    cost = len(rows) * COST + len(drawing) * DRAWING + counts * COUNTING
    work = partial(_run_piece, instructions, scalars, draws, inputs, outputs)
    size = inputs[0].size
    if size * cost < LEAST_WORK:
        return work((0, size))
    parts = run_all(work, element_ranges(size, cost))
    counted = [events for events in parts if events is not None]
    return np.sum(counted, axis=0) if len(counted) == len(parts) else None


def _run_piece(
    instructions: Instructions,
    scalars: NDArray[np.float64],
    draws: NDArray[np.uint64],
    inputs: Vectors,
    outputs: Vectors,
    piece: tuple[int, int],
) -> NDArray[np.int64] | None:
    start, stop = piece
    if stop - start < inputs[0].size:
        inputs, outputs = ([x[start:stop] for x in vectors] for vectors in (inputs, outputs))
    read = (*inputs, *NONE[len(inputs) : INPUTS])
    written = (*outputs, *NONE[len(outputs) : OUTPUTS])
    rows, registers, grids, signs, _, counted = instructions
    events = np.zeros((len(counted), SIZE), np.int64)
    is_done = CPU.loops.programs.run_program(
        rows, registers, scalars, grids, signs, draws, start, read, written, events
    )
    return events if is_done else None
