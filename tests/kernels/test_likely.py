"""The likely result of a draw is the result by the definition or reported as doubtful, and then computed again."""

from itertools import product

import numba
import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.rounding.grid import pack_grid, unpack_grid
from simfloat.kernels.sums import rows, trees
from simfloat.kernels.sums.likely import SURE_FROM, dropped_bits, round_unless_in_doubt
from simfloat.sums.one_format import program_of_neighbours
from simfloat.tools.selftest.checks import adversarial
from tests.bits import assert_bits
from tests.reference import operate

FORMATS = [sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.TF32, sf.E2M1]
MODES = [sf.stochastic(), sf.stochastic(32, "A"), sf.stochastic(13, "B"), sf.stochastic(8), sf.stochastic(5, "A")]


@numba.njit
def rounded(x, words, out, told, grid_numbers):
    cut = dropped_bits(unpack_grid(grid_numbers))
    for i in range(x.size):
        out[i], told[i] = round_unless_in_doubt(x[i], words[i], np.uint32(0), cut)


def told_of(a, b, words, format, rounding):
    """The likely results of a + b, and whether they are certain."""
    with np.errstate(all="ignore"):
        exact = (a + b).astype(np.float32)
    out, told = np.empty_like(exact), np.empty(exact.size, np.uint32)
    rounded(exact, words, out, told, pack_grid(format, rounding))
    return out, told >= SURE_FROM


def definition(a, b, words, format, rounding):
    draws = words >> np.uint32(32 - rounding.bits)
    cases = zip(a, b, draws, strict=True)
    return np.array([operate("add", format, rounding, x, y, random=r) for x, y, r in cases])


def hard_cases(format, rng):
    """Numbers of the format, addends from a spacing down to a tiny part of it, and draws that almost carry."""
    some = np.unique(sf.round(adversarial(format, rng), format).astype(np.float32))
    some = np.concatenate([rng.choice(some, min(40, some.size), replace=False), np.float32([0.0, -0.0])])
    with np.errstate(all="ignore"):
        spacing = np.nan_to_num(np.maximum(np.abs(some), format.smallest_normal) * np.float32(format.eps)) % np.float32(
            1e30
        )
    parts = [s * 2.0**-e for e in (0, 1, 2, 8, 13, 14, 23, 24, 25, 33, 34, 60) for s in (1.0, -1.0, 1 + 2.0**-20)]
    dropped = 23 - format.mantissa_bits
    upper = np.array([0, 1, 2 ** (dropped - 1), 2**dropped - 2, 2**dropped - 1], np.uint64) << np.uint64(32 - dropped)
    lower = np.array([0, 1, 2 ** (31 - dropped), 2 ** (32 - dropped) - 1], np.uint64)
    words = [int(u | v) for u, v in product(upper, lower)]
    cases = [(x, d * p, w) for x, d in zip(some, spacing, strict=True) for p in parts for w in rng.choice(words, 4)]
    a, b, w = zip(*cases, strict=True)
    with np.errstate(all="ignore"):
        return np.float32(a), np.float32(b), np.uint32(w)


#: Every format with 32 bits, and every mode in some format.
PAIRS = [*product(FORMATS, MODES[:1]), *zip(FORMATS, MODES[1:] * 2, strict=False)]


def test_a_certain_result_is_the_result_of_the_definition(rng):
    for format, rounding in PAIRS:
        a, b, words = hard_cases(format, rng)
        out, certain = told_of(a, b, words, format, rounding)
        want = definition(a, b, words, format, rounding)
        assert_bits(out[certain], want[certain], a[certain], b[certain], words[certain], of=f"{format} {rounding}")
        if rounding.bits > 13:
            assert 0.5 < np.mean(certain) < 0.9, "the cases are not hard"


def test_every_draw_of_eight_bits_of_a_small_format(rng):
    format, words = sf.E4M3, np.tile(np.arange(256, dtype=np.uint32) << 24, 30)
    for variant in "ABC":
        a = sf.round(np.repeat(rng.choice(np.arange(-1, 1, 1 / 512), 30), 256), format).astype(np.float32)
        b = np.repeat(rng.choice([2.0**-9, -(2.0**-14), 3 * 2.0**-30, 0.0, -0.4375], 30), 256).astype(np.float32)
        out, certain = told_of(a, b, words, format, sf.stochastic(8, variant))
        want = definition(a, b, words, format, sf.stochastic(8, variant))
        assert_bits(out[certain], want[certain], a[certain], b[certain])
        assert np.mean(certain) > 0.98


def test_two_draws_of_two_to_the_number_of_dropped_bits_are_in_doubt(rng):
    a, b = rng.standard_normal((2, 2**20)).astype(np.float32)
    words = rng.integers(0, 2**32, a.size, np.uint32)
    for format in FORMATS:
        _, certain = told_of(a, b, words, format, sf.stochastic())
        want = a.size * 2.0 ** (1 + format.mantissa_bits - 23)
        assert abs(np.sum(~certain) - want) < 5 * np.sqrt(want) + 5


@pytest.mark.parametrize(
    "scale, rounding", [(1.0, sf.stochastic()), (2.0**-14, sf.stochastic(13, "B")), (2.0**7, sf.stochastic(8, "A"))]
)
def test_a_doubtful_result_is_computed_again(scale, rounding, rng):
    # About a million roundings to FP16, of which 250 are in doubt, and a third of all draws of 8 zero bits.
    a, b = (sf.round(rng.standard_normal(shape), sf.FP16).astype(np.float32) for shape in ((24, 150), (150, 300)))
    b = sf.round(scale * b, sf.FP16).astype(np.float32)
    grid, place, seed = pack_grid(sf.FP16, rounding), np.array([5, 300, 1, 7, 1, 0]), np.uint64(2**40 + 1)
    for loops, read in (
        *((rows.stepwise_loops[order], (grid, grid)) for order in ("fused", "unfused")),
        (trees.tree_loops, (program_of_neighbours(150), grid)),
    ):
        results = []
        for kind, carrier in (("likely", np.float32), ("drawn_odd", np.float64)):
            out = np.zeros((24, 300), carrier)
            loops[kind](a.astype(carrier), b.astype(carrier), out, *read, carrier(1.0), False, place, seed)
            results.append(out)
        assert_bits(*results)
