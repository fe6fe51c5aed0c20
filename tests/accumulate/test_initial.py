"""Sums that start from an addend: D = A B + C."""

import itertools
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums.blocked import RunsEngine, StackedRunsEngine
from simfloat.tools.selftest.checks import DETERMINISTIC, hard_operands
from tests.accumulate.definition import MODES, check
from tests.bits import assert_bits, equal_bits

INF, NAN = np.inf, np.nan


#: Formats and modes: every mode in FP16; in other formats a mode to nearest, a directed mode or a stochastic mode.
STARTED = [
    *((sf.FP16, rounding) for rounding in (*DETERMINISTIC, sf.stochastic(), sf.stochastic(5, "A"))),
    *((format, sf.nearest_even) for format in (sf.BF16, sf.FP32, sf.E4M3, sf.Format(8, 15), sf.FP64)),
    *((sf.BF16, sf.toward_negative), (sf.E4M3, sf.to_odd), (sf.Format(8, 15), sf.nearest_away)),
    *((format, sf.stochastic()) for format in (sf.BF16, sf.FP32, sf.E4M3)),
]


def test_sums_start_from_the_addend(rng):
    # A sum from c is the sum of one product more, c times one, that comes first; a step of three draws no others.
    a, b = hard_operands(rng, sf.E4M3, 2, 16, 3)
    for format, rounding in STARTED:
        scale = 1.0 if format == sf.E4M3 else 2.0 ** rng.integers(-30, 30)
        c = sf.round(rng.standard_normal((2, 3)) * scale, format)
        check(sf.sequential(format, rounding=rounding), a, b, initial=c)
    for format, rounding in itertools.product((sf.FP16, sf.BF16, sf.FP32), MODES[sf.kahan]):
        c = sf.round(rng.standard_normal((2, 3)) * 2.0 ** rng.choice([0, -9, 9]), format)
        for order in (sf.kahan(format, rounding), sf.sequential(format, rounding, products=sf.BF16)):
            check(order, a, b, initial=c)
    check(sf.blocked(5, sf.FP16, sf.sequential(format, rounding)), a, b, initial=c)
    # Zeros are zeros in formats far from one.
    far = sf.Format(3, 23, bias=-237, special="fnuz")
    for a, c in itertools.product(([1.0, 2.0], [far.max, -far.smallest_normal]), (0.0, far.smallest_subnormal)):
        check(sf.kahan(far, rounding=sf.stochastic(8, "A")), np.array([a]), np.ones((2, 1)), initial=c)


UNITS = [
    sf.tensor_core("hopper", sf.FP16), sf.tensor_core("ampere", sf.FP16, sf.FP16), sf.fused(4, 20),
    sf.fused(4, 13, sf.Format(8, 13)), sf.tensor_core("ada", sf.E4M3), sf.tensor_core("hopper", sf.E4M3, sf.FP16),
    sf.tensor_core("hopper", sf.E4M3, sf.FP16, instruction="mma"),
    sf.tensor_core("blackwell", sf.E5M2, instruction="mma"),
    *(sf.matrix_core(arch, sf.FP16) for arch in ("cdna1", "cdna2", "cdna3")), sf.matrix_core("cdna3", sf.E4M3FNUZ),
    sf.tensor_core("volta", sf.FP64), sf.matrix_core("cdna1", sf.FP32), sf.blocked(32, sf.FP16, sf.fused(2, 10)),
]  # fmt: skip


def test_a_sum_that_is_interrupted_continues_from_its_running_sum(rng):
    for unit in UNITS:
        format = (getattr(unit, "inputs", None) or (sf.E4M3,))[0]
        a, b = sf.round(rng.standard_normal((70, 192)), format), sf.round(rng.standard_normal((192, 3)), format)
        running = None
        for k in (0, 64, 128):
            running = sf.matmul(a[:, k : k + 64], b[k : k + 64], accumulate=unit, initial=running, inputs=format)
        assert_bits(running, sf.matmul(a, b, accumulate=unit, inputs=format), of=str(unit))


def test_an_exact_sum_adds_any_addend_exactly():
    def total(a, b, initial, output=sf.FP64, rounding=sf.nearest_even):
        return sf.dot(a, b, accumulate=sf.exact, output=output, rounding=rounding, initial=initial)

    for c in (1.7e308, 5e-324, -(2.0**1023), 0.1, -0.0, INF, -INF):
        assert equal_bits(total([0.0], [1.0], c), c + 0.0)
        assert equal_bits(total([], [], c), c + 0.0)
    assert total([1.0, 2.0**-40], [1.0, 1.0], -1.0, sf.FP32) == 2.0**-40
    assert total([-1.0, 2.0**-1000], [2.0**1023, 2.0**-60], 2.0**1023) == 2.0**-1060
    # Above the tie of FP16 by float64's smallest number, and on it.
    tie = 1.0 + 2.0**-11
    assert total([5e-324], [1.0], tie, sf.FP16) == 1.0 + 2.0**-10 and total([0.0], [1.0], tie, sf.FP16) == 1.0
    assert total([1e300], [1e300], 0.0) == INF and total([1e300], [1e300], 0.0, sf.FP16, sf.toward_zero) == 65504


def test_an_addend_broadcasts_to_the_result(rng):
    a, b = sf.round(rng.standard_normal((2, 6, 8)), sf.FP16), sf.round(rng.standard_normal((8, 5)), sf.FP16)
    bias = sf.round(rng.standard_normal(5), sf.FP32)
    got = sf.matmul(a, b, accumulate=sf.FP32, initial=bias)
    assert_bits(got, sf.matmul(a, b, accumulate=sf.FP32, initial=np.broadcast_to(bias, (2, 6, 5))))
    for i in range(2):
        for j in range(5):
            column = sf.matmul(a[i], b[:, j], accumulate=sf.FP32, initial=bias[j])
            assert_bits(got[i, :, j], column)
    assert got.dtype == sf.matmul(a, b, accumulate=sf.FP32).dtype
    assert_bits(sf.sum(a, 1, accumulate=sf.FP32, initial=3.0), sf.sum(np.insert(a, 0, 3.0, 1), 1, accumulate=sf.FP32))


def test_a_convolution_starts_from_the_addend(rng):
    x, w = sf.round(rng.standard_normal((2, 4, 6, 5)), sf.FP16), sf.round(rng.standard_normal((6, 2, 3, 3)), sf.FP16)
    bias = sf.round(rng.standard_normal((6, 1, 1)), sf.FP16)
    got = sf.conv2d(x, w, initial=bias, accumulate=sf.FP16, padding=1, groups=2)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for n, o, i, j in np.ndindex(got.shape):
        channels = slice(2 * (o // 3), 2 * (o // 3) + 2)
        patch = padded[n, channels, i : i + 3, j : j + 3].ravel()
        assert got[n, o, i, j] == sf.dot(patch, w[o].ravel(), accumulate=sf.FP16, initial=bias[o, 0, 0])
    shapes = (2, 200, 2, 2), (200, 200, 1, 1), (2, 200, 2, 2)  # few pixels: computed transposed
    x, w, c = (sf.round(rng.standard_normal(shape), sf.FP16) for shape in shapes)
    want = sf.dot(w[7].ravel(), x[1, :, 1, 0], accumulate=sf.FP16, initial=c[1, 7, 1, 0])
    assert sf.conv2d(x, w, accumulate=sf.FP16, initial=c)[1, 7, 1, 0] == want


def test_an_empty_sum_is_the_addend():
    flushing = sf.matrix_core("cdna2", sf.FP16)  # which reads an addend as its operands: subnormal numbers are zero
    for accumulate in (
        *(sf.sequential(sf.FP16), sf.kahan(sf.FP16), sf.tensor_core("hopper", sf.FP16), flushing),
        sf.blocked(4, sf.FP16, sf.FP16),
    ):
        assert equal_bits(sf.dot([], [], accumulate=accumulate, initial=1.5), 1.5)
        got = sf.matmul(np.ones((2, 0)), np.ones((0, 2)), accumulate=accumulate, initial=[1.0, 2.0])
        assert_bits(got, [[1, 2], [1, 2]])
    assert equal_bits(sf.dot([], [], accumulate=flushing, initial=2.0**-140), 2.0**-140)
    assert equal_bits(sf.dot([0.0], [0.0], accumulate=flushing, initial=2.0**-127), 0.0)


def test_zeros_and_specials_of_the_addend():
    down = sf.sequential(sf.FP16, rounding=sf.toward_negative)
    assert np.signbit(sf.dot([-1.0], [0.0], accumulate=sf.sequential(sf.FP16), initial=-0.0))
    assert np.signbit(sf.dot([1.0], [0.0], accumulate=down, initial=-0.0))
    for unit in (sf.tensor_core("hopper", sf.FP16), sf.tensor_core("hopper", sf.E4M3, instruction="mma")):
        assert not np.signbit(sf.dot([-1.0], [0.0], accumulate=unit, initial=-0.0))
        assert sf.dot([1.0], [1.0], accumulate=unit, initial=-INF) == -INF
        assert np.isnan(sf.dot([1.0], [1.0], accumulate=unit, initial=NAN))


def test_addends_that_do_not_fit_are_refused():
    eight = dict(inputs=sf.E4M3, accumulate=sf.tensor_core("hopper", sf.E4M3))
    for options, message in [
        (dict(accumulate=sf.pairwise(sf.FP16), initial=1.0), r"pairwise\(FP16\) has no partial sum"),
        (dict(accumulate=sf.blocked(2, sf.FP16, sf.pairwise(sf.FP16)), initial=1.0), "has no partial sum"),
        (dict(accumulate=sf.FP16, initial=[[1.0, 0.1]]), r"numbers of FP16, .* initial\[0, 1\] = 0\.1 is not one"),
        (dict(accumulate=sf.E4M3, initial=INF), "numbers of E4M3"),
        (dict(accumulate=sf.FP16, initial=np.zeros((2, 2, 2))), r"shape \(2, 2, 2\), the result \(2, 2\)"),
        (dict(accumulate=sf.FP16, initial=np.zeros(3)), "without enlarging it"),
        (dict(accumulate=sf.blocked(2, sf.FP32, sf.FP16), initial=1 + 2.0**-11), "numbers of FP16"),
        (dict(**eight, initial=1.0 + 2.0**-24), r"numbers of FP32.*initial = 1\.000000"),
        (eight | dict(accumulate=eight["accumulate"].unit, initial=1.0 + 2.0**-20),
         r"Round it first\. A tensor core with such sums truncates it: simfloat\.round"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            sf.matmul(np.ones((2, 4)), np.ones((4, 2)), **options)


def test_sums_follow_the_definition_for_random_addends():
    # The addend may lie far above the products or far below them, in every carrier.
    rng = np.random.default_rng(300)
    for _ in range(120):
        format = rng.choice([sf.FP16, sf.BF16, sf.FP32, sf.E5M2, sf.TF32, sf.Format(8, 15)])
        products = format if rng.random() < 0.5 else None
        rounding = rng.choice(MODES[sf.kahan if products else sf.sequential])
        a, b = hard_operands(rng, rng.choice([sf.E4M3, sf.BF16, sf.FP16]), 2, 12, 2)
        a = a * 2.0 ** rng.integers(format.emin // 2, format.emax // 2)
        c = sf.round(rng.standard_normal((2, 2)) * 2.0 ** rng.integers(format.emin - 9, format.emax - 2), format)
        check(sf.sequential(format, rounding=rounding, products=products), a, b, initial=c)


RANDOM = sf.fused(2, 9, sf.BF16, rounding=sf.stochastic(4))
DRAWN = [order(sf.FP16, rounding=sf.stochastic(8, "A")) for order in (sf.sequential, sf.kahan)]


def test_partial_sums_are_the_running_sums(rng):
    x, y = sf.round(rng.standard_normal((2, 40)), sf.E4M3)
    for accumulate, step in [
        (sf.sequential(sf.FP16), 1), (sf.kahan(sf.FP16), 1), (DRAWN[0], 1), (sf.kahan(sf.FP32), 1), (DRAWN[1], 1),
        (sf.blocked(3, sf.FP16, sf.kahan(sf.FP32)), 3),
        (sf.fused(3, 12), 3), (sf.tensor_core("hopper", sf.E4M3), 32), (sf.blocked(16, sf.FP16, sf.FP32), 16),
        (sf.tensor_core("hopper", sf.E4M3, sf.FP16, instruction="mma"), 32), (sf.matrix_core("cdna2", sf.FP16), 4),
        (sf.blocked(4, sf.pairwise(sf.FP16), DRAWN[0]), 4),
        (sf.blocked(4, sf.FP16, sf.fused(2, 20)), 8), (sf.tensor_core("hopper", sf.FP64), 1),
        (sf.fused(3, 12, sf.BF16, rounding=sf.stochastic(9)), 3),
        (sf.sequential(sf.FP16, rounding=DRAWN[0].rounding, products=sf.E5M2), 1),
        (sf.blocked(8, sf.blocked(2, RANDOM, RANDOM), sf.blocked(2, RANDOM, RANDOM)), 32),
        (sf.blocked(2, RANDOM, DRAWN[1]), 2),
    ]:  # fmt: skip
        for more in ({}, {"initial": -1.5}, {"output": sf.E4M3, "rounding": sf.stochastic()}):
            options = {"inputs": sf.E4M3, "accumulate": accumulate, **more}
            got = sf.partial_sums(x, y, stream=sf.BitStream(3), **options)
            ends = [*range(step, 40, step), 40]
            assert_bits(got, [sf.dot(x[:end], y[:end], stream=sf.BitStream(3), **options) for end in ends])
    assert sf.partial_sums([], [], accumulate=sf.FP16).shape == (0,)
    assert_bits(sf.partial_sums([-0.0], [1.0], accumulate=sf.FP16, initial=-0.0), [-0.0])


@pytest.fixture
def work(monkeypatch):
    """The products that partial_sums hands to the engines and loops that it calls, by how many at once."""
    handed = []

    def counted(owner, name, length):
        call = getattr(owner, name)

        def counting(*operands):
            handed.append(length(*operands))
            return call(*operands)

        monkeypatch.setattr(owner, name, counting)

    partial_sums = import_module("simfloat.sums.partial_sums")
    counted(partial_sums, "running_sums", lambda accumulator, row, *others: row.size)
    for engine in (RunsEngine, StackedRunsEngine):
        counted(engine, "results", lambda engine, row, *others: row.size)
    resumed = partial_sums._resumed_sums

    class Counted(NamedTuple):
        engine: Any

        @property
        def carrier(self):
            return self.engine.carrier

        def run(self, row, *others):
            handed.append(row.size)
            self.engine.run(row, *others)

    monkeypatch.setattr(
        partial_sums,
        "_resumed_sums",
        lambda row, column, engine, *others: resumed(row, column, Counted(engine), *others),
    )
    return handed


@pytest.mark.parametrize(
    "accumulate, step",
    [(sf.sequential(sf.FP32), 1), (DRAWN[0], 1), (DRAWN[1], 1), (sf.kahan(sf.FP32), 1), (RANDOM, 2),
     (sf.tensor_core("hopper", sf.FP16), 16), (sf.blocked(4, DRAWN[1], DRAWN[1]), 4),
     (sf.blocked(8, sf.blocked(2, *DRAWN), sf.FP32), 8), (sf.blocked(2, sf.blocked(2, *DRAWN), DRAWN[0]), 2),
     (sf.blocked(2, sf.FP16, sf.blocked(2, sf.FP16, sf.FP32)), 4), (sf.blocked(2, *DRAWN[::-1]), 2),
     (sf.blocked(2, DRAWN[0], sf.blocked(2, DRAWN[1], sf.blocked(2, *DRAWN))), 8),
     (sf.blocked(3, sf.lanes(2, *DRAWN), RANDOM), 6), (sf.blocked(2, sf.pairwise(sf.FP16), DRAWN[1]), 2)],
    ids=str,
)  # fmt: skip
def test_partial_sums_hand_over_a_number_of_products_that_grows_with_the_terms_alone(accumulate, step, work, rng):
    x, counts = sf.round(rng.standard_normal(1600), sf.FP16), []
    for terms in (400, 1600):
        work.clear()
        got = sf.partial_sums(x[:terms], x[:terms], accumulate=accumulate, stream=sf.BitStream(3))
        # Draws come in fours, or in sixteens, and a sum goes on from where one of these begins.
        assert work and sum(work) <= 16 * terms and len(work) <= 3 * terms
        counts.append(sum(work))
        for end in (step, 3 * step, terms // step * step, terms):
            want = sf.dot(x[:end], x[:end], accumulate=accumulate, stream=sf.BitStream(3))
            assert_bits(got[-(-end // step) - 1], want)
    assert counts[1] <= 4.2 * counts[0]


def test_partial_sums_of_given_draws_continue_with_the_next_ones(rng):
    x, y = sf.round(rng.standard_normal((2, 9)), sf.FP16)
    draws, kahan = rng.integers(16, size=60), sf.kahan(sf.BF16, rounding=sf.stochastic(4))
    steps = (
        *((RANDOM, 2), (sf.sequential(sf.BF16, rounding=sf.stochastic(4), products=sf.BF16), 1), (kahan, 1)),
        *((sf.blocked(2, kahan, sf.FP32), 2), (sf.blocked(2, sf.FP16, kahan), 2), (sf.blocked(2, kahan, RANDOM), 4)),
    )
    for (accumulate, step), initial in itertools.product(steps, (None, -1.5)):
        options = {"accumulate": accumulate, "initial": initial}
        got = sf.partial_sums(x, y, **options, stream=sf.GivenBits(draws))
        ends = [*range(step, 9, step), 9]
        assert_bits(got, [sf.dot(x[:n], y[:n], **options, stream=sf.GivenBits(draws)) for n in ends])


def test_the_fused_sum_of_a_tensor_core_with_sums_of_14_bits_takes_truncated_start_values():
    core = sf.tensor_core("hopper", sf.E4M3)
    a, b = np.array([[1.0, 0.5]]), np.array([[0.75], [2.0]])
    for factor in (1.0, -0.7, 40.0):
        c = sf.round(np.array([[factor * (1.0 + 2.0**-20)]]), sf.FP32)
        cut = sf.round(c, sf.Format(8, 13), sf.toward_zero)
        of_unit = sf.matmul(a, b, accumulate=core.unit, initial=cut, inputs=sf.E4M3)
        assert of_unit == sf.matmul(a, b, accumulate=core, initial=c, inputs=sf.E4M3)
    assert sf.dot([0.0], [1.0], accumulate=core, initial=1.0 + 2.0**-23) == 1.0
