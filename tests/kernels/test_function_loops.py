"""Loops of functions: long vectors are computed in chunks, and rare elements separately."""

import ast
import pathlib

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels import functions
from simfloat.kernels.elementwise import loops
from simfloat.kernels.elementwise.loops import CHUNK
from simfloat.kernels.rounding import grid
from tests.bits import assert_bits

ZERO = np.zeros(1)


@pytest.mark.parametrize("name", ["exp", "power", "lgamma"])
def test_long_vectors_have_the_bits_of_their_pieces(name, rng):
    x = rng.standard_normal(2 * CHUNK + 3)
    x[[0, CHUNK - 1, CHUNK, 2 * CHUNK, -1]] = np.nan, np.inf, 2.0**-400, -np.inf, 2.0**400
    y = np.full(1, 1.5) if name == "power" else ZERO
    words = rng.integers(0, 2**32, x.size, np.uint32)
    numbers = grid.pack_grid(sf.FP32, sf.stochastic())

    def results(start, stop):
        """Rounded to odd, to FP64, and at random."""
        outs = np.empty((3, stop - start))
        operands = x[start:stop], y, ZERO, 1.0
        loops.exact_results[name](*operands, outs[0])
        loops.double_results[name](*operands, outs[1])
        loops.paired_results[name](*operands, words[start:stop], outs[2], numbers)
        return outs

    starts = range(0, x.size, 999)
    pieces = [results(start, min(start + 999, x.size)) for start in starts]
    assert_bits(results(0, x.size), np.concatenate(pieces, axis=1))


def test_functions_call_nothing_of_numpys_but_its_types():
    # A GPU's compiler knows few of NumPy's functions, and all of these of `math` and of `kernels`.
    called = {
        node.func.attr
        for path in pathlib.Path(functions.__file__).parent.glob("*.py")
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.decorator_list
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[:-1] == ["np"]
    }
    assert called <= {"float32", "float64", "int32", "int64", "uint32", "uint64"}
