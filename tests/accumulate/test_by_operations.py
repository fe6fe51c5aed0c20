"""Sums by elementwise operations: their flags, and FP64 in modes other than to nearest even."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.formats.exact_numbers import exact_number, exact_result
from simfloat.sums import tiles
from tests.accumulate.definition import exact_sums
from tests.bits import DETERMINISTIC, assert_bits
from tests.checks import assert_refused

MODES = [mode for mode in DETERMINISTIC if mode != sf.nearest_even]

EDGES = [0.0, -0.0, 2.0**-14, 2.0**-24, 65504.0, -65504.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0**-8, 300.0]


class FlaggedOperations:
    """Operations in one format and mode, and the flags that they have raised."""

    def __init__(self, format, rounding):
        self.options, self.flags = (format, rounding), np.uint8(0)

    def __getattr__(self, name):
        def operation(*operands):
            result, raised = getattr(sf, name)(*operands, *self.options, flags=True)
            self.flags |= raised
            return result

        return operation


def sequential(u, products):
    total = np.zeros(products[0][0].shape)
    for a, b in products:
        total = u.fma(a, b, total)
    return total


def kahan(u, products):
    s, c = np.zeros((2, *products[0][0].shape))
    for a, b in products:
        y = u.subtract(u.multiply(a, b), c)
        t = u.add(s, y)
        s, c = t, u.subtract(u.subtract(t, s), y)
    return s


def pairwise(u, products):
    nodes = [u.multiply(a, b) for a, b in products]
    while len(nodes) > 1:
        odd = nodes[len(nodes) - len(nodes) % 2 :]
        nodes = [u.add(*nodes[i : i + 2]) for i in range(0, len(nodes) - 1, 2)] + odd
    return nodes[0]


ORDERS = {"sequential": sequential, "kahan": kahan, "pairwise": pairwise}


@pytest.mark.parametrize("name", ORDERS)
def test_flags_are_the_union_of_those_of_the_steps(name, rng):
    a, b = rng.choice(EDGES, (2, 160, 5))
    a[80:], b[80:] = sf.round(rng.standard_normal((2, 80, 5)) * 2.0 ** rng.integers(-12, 9, (2, 80, 5)), sf.FP16)
    for rounding in (sf.nearest_even, sf.toward_negative, sf.to_odd):
        u = FlaggedOperations(sf.FP16, rounding)
        want = ORDERS[name](u, list(zip(a.T, b.T, strict=True)))
        accumulator = getattr(sf, name)(sf.FP16, rounding=rounding)
        results, flags = sf.matmul(a[:, None], b[:, :, None], accumulate=accumulator, flags=True)
        assert_bits(results.ravel(), want)
        assert np.array_equal(flags.ravel(), u.flags) and len(np.unique(flags)) > 4


def test_results_are_those_without_flags(rng):
    a, b = sf.round(rng.standard_normal((2, 3, 4, 5)) * 20, sf.FP16)
    for accumulator in (
        *(sf.sequential(sf.FP32, products=sf.FP16), sf.blocked(3, sf.FP16, sf.FP32), sf.numpy_sum(sf.FP16)),
        *(sf.lanes(3, sf.FP16, sf.pairwise(sf.FP16)), sf.tree("(0 + 1) + (2 + (3 + 4))", sf.E4M3)),
    ):
        results, flags = sf.matmul(a, b.swapaxes(-1, -2), accumulate=accumulator, flags=True)
        assert_bits(results, sf.matmul(a, b.swapaxes(-1, -2), accumulate=accumulator))
        assert flags.shape == results.shape and flags.dtype == np.uint8 and (flags & 1).all()


def test_stacks_and_parts_have_the_sums_and_flags_of_their_matrices(rng, monkeypatch):
    monkeypatch.setattr(tiles, "BATCH", 8)
    a, b = sf.round(rng.standard_normal((2, 5, 3, 4)) * 20, sf.E5M2)
    b, draws, adder = (
        b.swapaxes(-1, -2),
        rng.integers(0, 16, 5 * 9 * 4),
        sf.sequential(sf.FP16, rounding=sf.stochastic(4)),
    )
    scaled, e8m0 = sf.cast(sf.E4M3, scale=sf.block(2, sf.FP32)), 2.0 ** rng.integers(-9, 9, (2, 5, 3, 1))
    blackwell = sf.tensor_core("blackwell", sf.E5M2, scales=(32, sf.E8M0))
    for x, y, accumulate, scales, inputs in (
        (a, b, sf.FP16, None, None), (a, b[0], sf.kahan(sf.FP16), None, None), (a[:0], b[:0], sf.FP16, None, None),
        (a[0], b, sf.fused(2, 3, sf.FP16), None, None), (a[:, :1], b, sf.matrix_core("cdna2", sf.FP16), None, None),
        (a, b, sf.FP16, e8m0, None), (a, b, blackwell, e8m0, None), (a, b, sf.BF16, None, scaled),
        (a, b, adder, None, None), (a[:, :2], b[..., :1], adder, None, None),
    ):  # fmt: skip
        options = dict(accumulate=accumulate, inputs=inputs, flags=True)
        words = draws[: 5 * 4 * x.shape[-2] * y.shape[-1]] if accumulate is adder else np.zeros(0, int)
        whole, *streams = (sf.GivenBits(part) if part.size else None for part in (words, *np.split(words, 5)))
        pair = None if scales is None else (scales[0], scales[1].swapaxes(-1, -2))
        results, flags = sf.matmul(x, y, scales=pair, stream=whole, **options)
        for i in range(len(results)):
            left, right = (z if z.ndim == 2 else z[i] for z in (x, y))
            of_matrix = None if pair is None else (pair[0][i], pair[1][i])
            sums, raised = sf.matmul(left, right, scales=of_matrix, stream=streams[i], **options)
            assert_bits(results[i], sums)
            assert np.array_equal(flags[i], raised)


def test_an_outer_matrix_unit_reads_sums_of_runs_in_its_own_format():
    unit = sf.blocked(1, sf.fused(1, 13, sf.Format(4, 3)), sf.matrix_core("cdna3", sf.TF32))
    options = dict(accumulate=unit, initial=-(2.0**-70))  # 2^-9 is subnormal for the inner sum, and normal in TF32
    assert_bits(sf.sum([2.0**-9], **options, flags=True)[0], sf.sum([2.0**-9], **options))


def test_flags_include_the_rounding_to_output_and_start_values():
    assert sf.sum([1.0, 2.0**-20], accumulate=sf.FP32, output=sf.FP16, flags=True)[1] == 1
    assert sf.sum([1.0, 2.0], accumulate=sf.FP32, output=sf.FP16, flags=True)[1] == 0
    assert sf.sum([60000.0, 60000.0], accumulate=sf.FP32, output=sf.FP16, flags=True)[1] == 5
    assert sf.dot([1.0], [1.0], accumulate=sf.FP16, initial=2048.0, flags=True)[1] == 1
    results, flags = sf.sum(np.ones((3, 4)), axis=0, accumulate=sf.FP16, flags=True)
    assert flags.shape == results.shape == (4,) and not flags.any()
    assert sf.sum([], accumulate=sf.FP16, flags=True)[1] == 0
    adder = sf.sequential(sf.FP16, rounding=sf.stochastic(bits=4))
    want = sf.sum([1.0, 0.0001], accumulate=adder, stream=sf.GivenBits([0, 15]))
    assert sf.sum([1.0, 0.0001], accumulate=adder, stream=sf.GivenBits([0, 15]), flags=True) == (want, 1)


def test_sums_in_fp64_are_rounded_in_every_deterministic_mode(rng):
    a, b = rng.standard_normal((2, 3, 12)) * 2.0 ** rng.integers(-600, 400, (2, 3, 12))
    a[1], b[1] = rng.standard_normal((2, 12))
    a[2], b[2] = 1 + 2.0**-52 * rng.integers(1, 9, 12), rng.choice([1.0, -1.0, 0.5], 12)
    for rounding, (x, y) in product(MODES, zip(a, b, strict=True)):
        total, totals, adder = 0.0, [], sf.sequential(sf.FP64, rounding=rounding)
        for factors in zip(x, y, strict=True):
            terms = *map(exact_number, factors), exact_number(total)
            exact = exact_result("fma", *terms, negative_zero_sums=rounding.zero_sum < 0)
            totals.append(total := round_value(exact, sf.FP64, rounding))
        assert sf.dot(x, y, accumulate=adder) == total
        assert sf.partial_sums(x, y, accumulate=adder).tolist() == totals
        assert sf.dot(x, y, accumulate=adder, flags=True)[1] == 1
        ((whole,),) = exact_sums(x[None], y[:, None])
        exact = sf.dot(x, y, accumulate=sf.exact, output=sf.FP64, rounding=rounding)
        assert exact == round_value(whole, sf.FP64, rounding)
        products = [(np.array(p), np.array(q)) for p, q in zip(x, y, strict=True)]
        for name, order in ORDERS.items():
            want = order(FlaggedOperations(sf.FP64, rounding), products)
            assert_bits(sf.dot(x, y, accumulate=getattr(sf, name)(sf.FP64, rounding=rounding)), want)


def test_arrays_and_convolutions_are_intervals_in_fp64():
    ends = [sf.array([0.1, 0.2], sf.FP64, rounding=mode) for mode in (sf.toward_negative, sf.toward_positive)]
    low, high = ((x @ x + x.sqrt()).numbers for x in ends)
    assert (low < high).all() and (np.nextafter(low, 9) >= np.nextafter(high, -9)).all()
    patch, down = np.full((1, 1, 2, 2), 0.1), sf.sequential(sf.FP64, rounding=sf.toward_zero)
    assert sf.conv2d(patch, patch, accumulate=down).item() == sf.dot(*2 * [patch.reshape(-1)], accumulate=down)


def test_sums_without_flags_or_mode_raise_value_error():
    library, drawing = sf.library_sum("torch-sum"), sf.sequential(sf.FP16, rounding="stochastic")
    draws = dict(stream=sf.BitStream(0), flags=True)
    assert_refused(
        (lambda: sf.sum([1.0], accumulate=library, flags=True), "not all of its steps are rounded"),
        (lambda: sf.dot([1], [1], accumulate=sf.FP16, flags=2), "flags must be True or False"),
        (lambda: sf.sum(iter([[1.0]]), accumulate=sf.FP16), r"simfloat.sum_blocks\(x, accumulate"),
        (lambda: sf.conv2d(np.ones((1, 1, 2, 2)), np.ones((1, 1, 1, 1)), accumulate=sf.FP16, flags=True),
         "conv2d takes"),
        (lambda: sf.sum([1.0], accumulate=drawing, **draws), "GivenBits"),
        (lambda: sf.sum([1.0], accumulate=sf.FP16, output=sf.E4M3, rounding="stochastic", **draws),
         "needs deterministic roundings of operands and results, got stochastic.*without flags"),
        (lambda: sf.sequential(sf.FP64, rounding=sf.stochastic(4)), "every deterministic mode"),
        (lambda: sf.exp(1.0, sf.FP64, sf.toward_zero), "at most 50 bits"),
        (lambda: sf.array([1.0], sf.FP64, rounding="to_odd").exp(), "at most 50 bits"),
    )  # fmt: skip
