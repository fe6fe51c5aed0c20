"""Sums of sums, and products of scaled blocks."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import CPU, GPU
from simfloat.sums.blocked import rows_at_once
from simfloat.tools.selftest import definitions, orders
from simfloat.tools.selftest.checks import hard_operands
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits
from tests.reference import matrix_product

STOCHASTIC = sf.stochastic()
PARTS = [
    (sf.FP16, sf.FP32),
    (sf.BF16, sf.BF16),
    (sf.sequential(sf.E4M3, products=sf.E4M3), sf.pairwise(sf.FP16)),
    (sf.pairwise(sf.FP16), sf.kahan(sf.BF16)),
    (sf.kahan(sf.FP16), sf.sequential(sf.FP16, rounding=sf.toward_negative)),
    (sf.sequential(sf.FP16, rounding=STOCHASTIC), sf.sequential(sf.BF16, rounding=STOCHASTIC, products=sf.FP16)),
    (sf.pairwise(sf.FP16, rounding=STOCHASTIC), sf.kahan(sf.FP16, rounding=sf.stochastic(8, "A"))),
    (sf.blocked(3, sf.FP16, sf.sequential(sf.FP16, rounding=STOCHASTIC)), sf.pairwise(sf.FP32)),
]


@pytest.mark.parametrize("inner, outer", PARTS, ids=str)
@pytest.mark.parametrize("size, terms", [(1, 9), (6, 23), (32, 20)])
def test_blocked_sums_follow_the_definition(inner, outer, size, terms, rng):
    a, b = hard_operands(rng, sf.FP16, 2, terms, 3)
    accumulate = sf.blocked(size, inner, outer)
    got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(3))
    want = matrix_product(a, b, lambda x, y, element: dot(accumulate, x, y, element=element, seed=3))
    assert_bits(got, want)


def test_no_run_uses_random_words_of_another(monkeypatch):
    sums = sf.sequential(sf.FP16, rounding=STOCHASTIC)
    places = []

    def draw(rounding, element, step, seed, call, stage):
        places.append((element, step, stage)) if rounding.is_stochastic else None
        return 0

    monkeypatch.setattr(orders, "step_draw", draw)
    monkeypatch.setattr(definitions, "step_draw", draw)
    tree = sf.pairwise(sf.FP16, rounding=STOCHASTIC)
    for accumulate in (
        sf.blocked(4, sf.blocked(1, sums, sf.FP32), sf.FP32),
        sf.blocked(6, sf.blocked(2, tree, sums), tree),
        sf.blocked(5, sums, sf.blocked(1, sums, sf.blocked(2, tree, sums))),
    ):
        places.clear()
        dot(accumulate, [1.0] * 23, [0.1] * 23)
        assert len(places) == len(set(places)) >= 23


def test_nested_runs_err_independently():
    # 16 sums of one stochastic rounding each: their errors' variances add up.
    rounding = sf.stochastic()
    accumulate = sf.blocked(4, sf.blocked(1, sf.sequential(sf.FP16, rounding=rounding), sf.FP32), sf.FP32)
    x = np.full((4000, 16), 1.0 + 2.0**-11)  # midway between two numbers
    sums = sf.sum(x, 1, accumulate=accumulate, stream=sf.BitStream(1))
    errors = (sums - x[0].sum()) * 2.0**11
    assert abs(errors.var() - 16) < 16 * 0.15


def test_tall_products_are_numbered_like_wide_ones(rng):
    accumulate = sf.blocked(4, sf.sequential(sf.FP16, rounding=STOCHASTIC), sf.pairwise(sf.FP16, rounding=STOCHASTIC))
    a, b = hard_operands(rng, sf.FP16, 70, 12, 2)
    got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(5))
    want = matrix_product(a, b, lambda x, y, element: dot(accumulate, x, y, element=element, seed=5))
    assert_bits(got, want)


def test_a_sum_of_runs_is_the_sum_of_their_results(rng):
    x = sf.round(rng.standard_normal(100), sf.FP16)
    runs = [sf.sum(x[i : i + 16], accumulate=sf.FP16) for i in range(0, 100, 16)]
    assert sf.sum(x, accumulate=sf.blocked(16, sf.FP16, sf.BF16)) == sf.sum(runs, accumulate=sf.BF16)
    assert sf.sum([], accumulate=sf.blocked(16, sf.FP16, sf.BF16)) == 0


def test_chunks_keep_sums_from_stagnating():
    ones = np.ones(4096, np.float32)
    assert sf.sum(ones, accumulate=sf.blocked(64, sf.FP16, sf.FP16)) == 4096
    assert sf.sum(ones, accumulate=sf.FP16) == 2048


@pytest.mark.parametrize("columns", [1, 3, 80])
def test_run_results_are_the_left_operands_of_an_outer_unit(columns, rng):
    # Exponents of subnormals are read by their own format, and a pair of formats is not the same the other way round.
    inner = sf.sequential(sf.E5M2)
    a, b = sf.round(rng.standard_normal((70, 12)), sf.E5M2), sf.round(rng.standard_normal((12, columns)), sf.E5M2)
    for unit in (sf.tensor_core("blackwell", (sf.E5M2, sf.E2M1)), sf.fused(4, 10, sf.FP16)):
        got = sf.matmul(a * 2.0**-8, b, accumulate=sf.blocked(2, inner, unit))
        runs = [sf.matmul(a[:, k : k + 2] * 2.0**-8, b[k : k + 2], accumulate=inner) for k in range(0, 12, 2)]
        results = np.stack(runs, axis=-1)
        want = sf.matmul(results, np.ones((6, 1)), inputs=(sf.E5M2, sf.E2M1), accumulate=unit)[..., 0]
        assert_bits(got, want)
    with pytest.raises(ValueError, match="takes E2M1 operands"):
        sf.matmul(a, b, accumulate=sf.blocked(2, inner, sf.tensor_core("blackwell", (sf.E2M1, sf.E5M2))))


def test_tensor_cores_are_promoted(rng):
    a, b = sf.round(rng.standard_normal((2, 96, 96)), sf.E4M3)
    unit = sf.tensor_core("hopper", sf.E4M3)
    parts = [sf.matmul(a[:, k : k + 32], b[k : k + 32], accumulate=unit) for k in (0, 32, 64)]
    want = sf.add(sf.add(parts[0], parts[1], sf.FP32), parts[2], sf.FP32)
    assert_bits(sf.matmul(a, b, accumulate=sf.blocked(32, inner=unit, outer=sf.FP32)), want)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: sf.blocked(0, sf.FP16, sf.FP32), "size must be a positive integer"),
        (lambda: sf.blocked(2.5, sf.FP16, sf.FP32), "got 2.5"),
        (lambda: sf.blocked(8, sf.exact, sf.FP32), "accumulators that have a format, got exact"),
        (lambda: sf.blocked(8, sf.FP16, sf.exact), "accumulators that have a format, got exact"),
        (lambda: sf.blocked(8, sf.FP16, 7), "accumulate must be a simfloat accumulator or a format, got 7"),
        (lambda: sf.blocked(48, sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0)), sf.FP32),
         "whole blocks of 32 products, got size=48"),
        (lambda: sf.blocked(32, sf.FP16, sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))),
         "run results, which have no block scales"),
        (lambda: sf.sum(np.ones(8), accumulate=sf.blocked(4, sf.FP32, sf.tensor_core("hopper", sf.FP16))),
         "takes FP16 operands, but these are sums in FP32"),
    ],
)  # fmt: skip
def test_runs_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


UNIT = sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))


def quantized(rng, format=sf.E4M3, scale=sf.E8M0, block=32, depth=96):
    a, b = rng.standard_normal((5, depth)), rng.standard_normal((depth, 4))
    a = sf.block_quantize(a, format, block=block, scale=scale)
    b = sf.block_quantize(b, format, block=block, scale=scale, axis=0)
    return (a.elements, a.scales), (b.elements, b.scales)


@pytest.mark.parametrize("accumulate", [sf.FP32, sf.exact, sf.blocked(32, sf.FP16, sf.FP32)], ids=str)
@pytest.mark.parametrize("format, scale, block", [(sf.E4M3, sf.E8M0, 32), (sf.E2M1, sf.E4M3, 16)], ids=str)
def test_other_accumulators_sum_products_of_scaled_operands(accumulate, format, scale, block, rng):
    (a, s), (b, t) = quantized(rng, format, scale, block)
    got = sf.matmul(a, b, scales=(s, t), accumulate=accumulate, output=sf.FP32)
    x, y = a * np.repeat(s, block, 1), b * np.repeat(t, block, 0)
    assert_bits(got, sf.matmul(x.astype(float), y.astype(float), accumulate=accumulate, output=sf.FP32))


def test_promoted_blocks_keep_their_scales(rng):
    (a, s), (b, t) = quantized(rng)
    parts = [
        sf.matmul(a[:, 32 * i : 32 * i + 32], b[32 * i : 32 * i + 32], scales=(s[:, [i]], t[[i]]), accumulate=UNIT)
        for i in range(3)
    ]
    want = sf.add(sf.add(parts[0], parts[1], sf.FP32), parts[2], sf.FP32)
    assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=sf.blocked(32, UNIT, sf.FP32)), want)


def test_batches_and_narrow_products_keep_their_scales(rng):
    a, b = rng.standard_normal((3, 80, 64)), rng.standard_normal((64, 2))
    (a, s), (b, t) = sf.block_quantize(a, sf.E4M3), sf.block_quantize(b, sf.E4M3, axis=0)
    got = sf.matmul(a, b, scales=(s, t), accumulate=UNIT)
    for i in range(3):
        for j in range(2):
            column = sf.matmul(a[i], b[:, [j]], scales=(s[i], t[:, [j]]), accumulate=UNIT)
            assert_bits(got[i][:, [j]], column)


def test_a_short_last_block_is_padded_with_zeros(rng):
    (a, s), (b, t) = quantized(rng, depth=70)
    assert s.shape == (5, 3)
    x, y = np.pad(a, ((0, 0), (0, 26))), np.pad(b, ((0, 26), (0, 0)))
    assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=UNIT), sf.matmul(x, y, scales=(s, t), accumulate=UNIT))
    with pytest.raises(ValueError, match="one scale for each block of k"):
        sf.matmul(a, b, scales=(s, t), accumulate=sf.FP32)


def test_scales_that_do_not_fit_are_refused(rng):
    (a, s), (b, t) = quantized(rng)
    s, t = s.astype(float), t.astype(float)
    cases = [
        (dict(accumulate=UNIT), r"needs scales=\(a_scales, b_scales\) in E8M0, blocks of 32"),
        (dict(accumulate=UNIT, scales=s), "scales must be a pair"),
        (dict(accumulate=UNIT, scales=(s, t.T)), r"must have shapes \(5, 3\) and \(3, 4\)"),
        (dict(accumulate=UNIT, scales=(s * np.inf, t)), r"a finite number or NaN, and that of a\[0, 0\] is inf"),
        (dict(accumulate=UNIT, scales=(s, t * 3)), "an E8M0 number"),
        (dict(accumulate=sf.FP32, scales=(s * np.inf, t)), "a finite number"),
        (dict(accumulate=sf.FP32, scales=(np.full_like(s, 2.0**-1070), t)), "are not float64 numbers"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="needs scales="):
        sf.sum(a, accumulate=UNIT)
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            sf.matmul(a, b, **options)


def test_on_a_gpu_every_run_of_a_large_product_is_summed_at_once():
    # 32 runs of 1024 columns: on the CPU so many rows that the results stay in a cache.
    assert rows_at_once(32 * 1024, CPU) == 32
    assert rows_at_once(32 * 1024, GPU) == 2048
