"""Sums of sums, and products of scaled blocks."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import CPU, GPU
from simfloat.sums.blocked import rows_at_once
from simfloat.tools.selftest import definitions, orders
from simfloat.tools.selftest.checks import hard_operands
from simfloat.tools.selftest.orders import dot
from tests.accumulate.definition import check
from tests.bits import assert_bits
from tests.checks import assert_refused

STOCHASTIC = sf.stochastic()
PARTS = [
    (sf.FP16, sf.FP32), (sf.BF16, sf.BF16), (sf.sequential(sf.E4M3, products=sf.E4M3), sf.pairwise(sf.FP16)),
    (sf.pairwise(sf.FP16), sf.kahan(sf.BF16)), (sf.kahan(sf.FP16), sf.sequential(sf.FP16, rounding=sf.toward_negative)),
    (sf.sequential(sf.FP16, rounding=STOCHASTIC), sf.sequential(sf.BF16, rounding=STOCHASTIC, products=sf.FP16)),
    (sf.pairwise(sf.FP16, rounding=STOCHASTIC), sf.kahan(sf.FP16, rounding=sf.stochastic(8, "A"))),
    (sf.blocked(3, sf.FP16, sf.sequential(sf.FP16, rounding=STOCHASTIC)), sf.pairwise(sf.FP32)),
]  # fmt: skip


@pytest.mark.parametrize("inner, outer", PARTS, ids=str)
def test_blocked_sums_follow_the_definition(inner, outer, rng):
    for size, (m, terms, n) in ((1, (2, 9, 3)), (6, (2, 23, 3)), (32, (2, 20, 3)), (4, (70, 12, 2))):
        check(sf.blocked(size, inner, outer), *hard_operands(rng, sf.FP16, m, terms, n))


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


def test_run_results_are_the_left_operands_of_an_outer_unit(rng):
    # Exponents of subnormals are read by their own format, and a pair of formats is not the same the other way round.
    inner, a = sf.sequential(sf.E5M2), sf.round(rng.standard_normal((70, 12)), sf.E5M2)
    for columns in (1, 3, 80):
        b = sf.round(rng.standard_normal((12, columns)), sf.E5M2)
        for unit in (sf.tensor_core("blackwell", (sf.E5M2, sf.E2M1)), sf.fused(4, 10, sf.FP16)):
            got = sf.matmul(a * 2.0**-8, b, accumulate=sf.blocked(2, inner, unit))
            runs = [sf.matmul(a[:, k : k + 2] * 2.0**-8, b[k : k + 2], accumulate=inner) for k in range(0, 12, 2)]
            results = np.stack(runs, axis=-1)
            assert_bits(got, sf.matmul(results, np.ones((6, 1)), inputs=(sf.E5M2, sf.E2M1), accumulate=unit)[..., 0])
    with pytest.raises(ValueError, match="takes E2M1 operands"):
        sf.matmul(a, b, accumulate=sf.blocked(2, inner, sf.tensor_core("blackwell", (sf.E2M1, sf.E5M2))))


def test_runs_that_make_no_sense_are_refused():
    quantized = sf.block_quantize(np.full((1, 16), 100.0), sf.E2M1, block=16, scale=sf.E4M3)
    other = sf.block_quantize(np.full((16, 1), 100.0), sf.E2M1, block=16, scale=sf.E4M3, axis=-2)
    scaled = sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))
    assert_refused(
        (lambda: sf.blocked(0, sf.FP16, sf.FP32), "size must be a positive integer"),
        (lambda: sf.blocked(2.5, sf.FP16, sf.FP32), "got 2.5"),
        (lambda: sf.blocked(8, sf.exact, sf.FP32), "accumulators that have a format, got exact"),
        (lambda: sf.blocked(8, sf.FP16, sf.exact), "accumulators that have a format, got exact"),
        (lambda: sf.blocked(8, sf.FP16, 7), "accumulate must be a simfloat accumulator or a format, got 7"),
        (lambda: sf.blocked(48, scaled, sf.FP32), "whole blocks of 32 products, got size=48"),
        (lambda: sf.blocked(32, sf.FP16, scaled), "run results, which have no block scales"),
        (lambda: sf.sum(np.ones(8), accumulate=sf.blocked(4, sf.FP32, sf.tensor_core("hopper", sf.FP16))),
         "takes FP16 operands, but these are sums in FP32"),
        (lambda: sf.matmul(quantized, other, accumulate=sf.tensor_core("blackwell", sf.E2M1)),
         r"and a\[0, 0\] = .* is not one.*, such as results of block_quantize, pass scales=\(32, E8M0\) or"),
        (lambda: sf.systolic(0, 1), "rows must be an integer of at least 1"),
        (lambda: sf.systolic(1, 1.5), "columns must be an integer of at least 1"),
    )  # fmt: skip


def test_a_systolic_array_is_a_blocked_sum_whose_columns_change_no_bit():
    assert (
        sf.systolic(4, 1, sf.BF16, total=sf.FP32)
        == sf.systolic(4, 99, sf.BF16, sf.FP32)
        == sf.blocked(4, sf.BF16, sf.FP32)
        == sf.Policy.from_dict({"compute": "bf16", "accumulate": "systolic(4, 9, BF16, FP32)"}).accumulate
    )
    assert sf.systolic(128, 128) == sf.blocked(128, sf.FP32, sf.FP32)


def test_on_a_gpu_every_run_of_a_large_product_is_summed_at_once():
    # 32 runs of 1024 columns: on the CPU so many rows that the results stay in a cache.
    assert rows_at_once(32 * 1024, CPU) == 32
    assert rows_at_once(32 * 1024, GPU) == 2048
