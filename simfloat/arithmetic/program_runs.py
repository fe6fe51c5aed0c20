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
from simfloat.arithmetic.plan import DRAWING, pieces
from simfloat.arithmetic.program_writer import Program
from simfloat.arithmetic.threads import LEAST_WORK, run_all
from simfloat.kernels.program_table import INPUTS, OUTPUTS

#: Nanoseconds that an instruction takes for an element.
COST = 0.4

#: What stands for vectors that a program has not.
NONE = (np.zeros(0, np.float32),) * INPUTS

Vectors = Sequence[NDArray[np.float32]]


def run(program: Program, inputs: Vectors, outputs: Vectors, take_draw: Callable[[str], Draw]) -> None:
    """Carry out a program on float32 vectors of one length, which may be read and written; draws are taken by name."""
    rows, drawing = program.instructions.rows, program.instructions.draws
    draws = np.zeros((len(rows), 2) if drawing else (1, 2), np.uint64)
    for row, stream in drawing:
        draw = take_draw(stream)
        draws[row] = draw.seed, draw.call
    cost = len(rows) * COST + len(drawing) * DRAWING
    if inputs[0].size * cost < LEAST_WORK:
        _run_piece(program, draws, inputs, outputs, (0, inputs[0].size))
        return
    run_all(partial(_run_piece, program, draws, inputs, outputs), pieces(inputs[0].size, cost))


def _run_piece(
    program: Program, draws: NDArray[np.uint64], inputs: Vectors, outputs: Vectors, piece: tuple[int, int]
) -> None:
    start, stop = piece
    if stop - start < inputs[0].size:
        inputs, outputs = ([x[start:stop] for x in vectors] for vectors in (inputs, outputs))
    rows, registers, grids, signs, _ = program.instructions
    read = (*inputs, *NONE[len(inputs) : INPUTS])
    written = (*outputs, *NONE[len(outputs) : OUTPUTS])
    CPU.loops.programs.run(rows, registers, program.scalars, grids, signs, draws, start, read, written)
