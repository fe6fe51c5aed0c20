"""Loops of functions, whose long vectors are computed in chunks, and exact results in round-to-odd."""

import ast
import math
import pathlib
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels import functions
from simfloat.kernels.compile.intrinsics import binade, fma, round_sum_to_odd
from simfloat.kernels.elementwise import loops
from simfloat.kernels.elementwise.exact import nearest_integer, power_of_two, round_pair_to_odd, scale_by_power, split
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


def test_split_gives_significand_and_exponent(rng):
    x = rng.standard_normal(500) * 2.0 ** rng.integers(-1070, 1000, 500)
    for v in [*x.tolist(), 5e-324, 2.0**-1022, 1.7976931348623157e308]:
        significand, exponent = split(v)
        assert 1 <= abs(significand) < 2
        assert Fraction(significand) * Fraction(2) ** exponent == Fraction(v)
    for v in (0.0, -0.0, math.inf, -math.inf):
        assert split(v) == (v, 0)
    assert math.isnan(split(math.nan)[0])


def test_scaled_rounds_at_most_once(rng):
    for _ in range(500):
        x, exponent = float(rng.uniform(1, 4)), int(rng.integers(-1200, 1100))
        want = Fraction(x) * Fraction(2) ** exponent
        try:
            want = float(want)
        except OverflowError:
            want = math.inf
        assert scale_by_power(x, exponent) == want


def test_odd_of_keeps_a_last_bit_of_tiny_results_and_huge_ones_finite(rng):
    for sign, exponent, result in ((1.5, -3000, 5e-324), (-1.5, -3000, -5e-324), (1.5, 3000, 1.7976931348623157e308)):
        assert round_pair_to_odd(sign, 0.0, exponent) == result
    unit = Fraction(2) ** -1074
    for _ in range(300):
        x, exponent = float(rng.uniform(1, 2)), int(rng.integers(-1090, -1000))
        exact = Fraction(x) * Fraction(2) ** exponent
        below = math.floor(exact / unit)
        is_exact = exact >= Fraction(2) ** -1022 or below * unit == exact
        assert round_pair_to_odd(x, 0.0, exponent) == (exact if is_exact else (below | 1) * unit)


def test_machine_functions_mean_the_same_compiled_and_plain(rng):
    from numba import njit

    compiled = {
        "binade": njit(lambda x: binade(x)),
        "fma": njit(lambda a, b, c: fma(a, b, c)),
        "odd": njit(lambda s, e: round_sum_to_odd(s, e)),
    }
    for dtype in (np.float32, np.float64):
        a, b, c = (dtype(v) for v in rng.standard_normal(3))
        for scale in (1, 2.0**-30, 2.0**-70):
            c = dtype(-a * b + dtype(scale) * c)
            assert compiled["fma"](a, b, c) == fma(a, b, c)
        for e in (dtype(0), dtype(1e-30), dtype(-1e-30)):
            assert compiled["odd"](a, e) == round_sum_to_odd(a, e)
        assert compiled["binade"](abs(a)) == binade(abs(a))


def test_power_of_two_covers_the_normal_range():
    assert [power_of_two(n) for n in (-1022, -1, 0, 10, 1023)] == [2.0**-1022, 0.5, 1.0, 1024.0, 2.0**1023]


def test_nearest_integer_rounds_half_to_even_at_every_size(rng):
    sizes = [2.0**n for n in range(-2, 54)]
    numbers = [size * part for size in sizes for part in (1.0, 1.5, *(1 + rng.random(8)))]
    numbers += [np.nextafter(size, np.inf) for size in sizes] + [size + 0.5 for size in sizes]
    for x in numbers:
        assert nearest_integer(x) == round(x) and nearest_integer(-x) == -round(x), x.hex()
    assert math.copysign(1.0, nearest_integer(-0.25)) == 1.0 and nearest_integer(math.inf) == math.inf
