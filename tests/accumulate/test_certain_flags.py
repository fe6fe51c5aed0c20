"""Flags of sums that bounds and the sums decide: they are those of the steps, computed one by one."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums import certain_flags
from simfloat.sums.by_operations import OperationsEngine
from tests.bits import assert_bits

NARROW, WIDE = sf.Format(6, 9), sf.Format(8, 4)
ORDERS = (
    *(sf.sequential(sf.FP32), sf.sequential(sf.FP32, products=sf.BF16, rounding=sf.toward_negative), sf.kahan(WIDE)),
    *(sf.sequential(sf.Format(5, 4), rounding=sf.to_odd), sf.kahan(sf.Format(5, 3)), sf.pairwise(NARROW)),
    *(sf.numpy_sum(sf.BF16), sf.tree("(0 + 1) + (2 + (3 + 4))", sf.E5M2)),
    *(sf.sequential(sf.Format(6, 9, subnormals=False)), sf.fused(2, 3, NARROW, align=sf.toward_negative)),
    *(sf.fused(4, 9, WIDE, zero_exponent=3), sf.blocked(2, sf.FP32, sf.fused(2, 7, NARROW))),
    *(sf.lanes(3, sf.kahan(sf.FP32), sf.BF16), sf.sequential(sf.FP64), sf.pairwise(WIDE, rounding=sf.toward_positive)),
    *(sf.tensor_core("hopper", sf.E5M2, instruction=name) for name in ("wgmma", "mma")),
    *(sf.matrix_core(name, sf.BF16) for name in ("cdna1", "cdna2", "cdna3")),
)


def operands(rng, shape):
    """Generate numbers of E5M2: of usual sizes, wide, whole, rare, special, and in pairs that cancel or nearly do."""
    usual, rare = rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9), rng.random(shape) < 0.1
    pairs = np.where(np.arange(shape[-1]) % 2, -1, 1) * np.repeat(usual[..., ::2], 2, axis=-1)[..., : shape[-1]]
    for numbers in (
        *(usual, usual * 2.0 ** rng.integers(-16, 16, shape), rng.integers(-4, 5, shape), usual * rare, pairs),
        np.where(rare, rng.choice([np.inf, -np.inf, np.nan, 2.0**15, 2.0**-16], shape), rng.integers(0, 3, shape)),
        pairs + rare * 2.0 ** rng.integers(-16, 10, shape),
    ):
        yield sf.round(numbers, sf.E5M2)


def by_steps(monkeypatch, *args, **options):
    """Return sums and flags of matmul, all computed step by step."""
    with monkeypatch.context() as patch:
        patch.setattr(certain_flags, "facts_of", lambda accumulator: None)
        return sf.matmul(*args, **options, flags=True)


@pytest.mark.parametrize("accumulate", ORDERS, ids=str)
def test_sums_and_flags_are_those_of_the_steps(accumulate, rng, monkeypatch):
    monkeypatch.setattr(certain_flags, "MOST_LEFT", 1.0)
    monkeypatch.setattr(certain_flags, "GATHERED", 40)
    depth = 5 if isinstance(accumulate, type(ORDERS[7])) else 18
    for a, b in zip(operands(rng, (2, 4, depth)), operands(rng, (2, 5, depth)), strict=True):
        start = sf.round(a @ rng.standard_normal(depth), sf.E5M2)[..., None] if accumulate.takes_initial else None
        for x, y, initial in ((a, b, None), (a, b, start), (np.float32(a[0]), b, None), (a, np.ones((1, depth)), None)):
            options = dict(accumulate=accumulate, initial=initial, output=sf.FP32)
            results, flags = sf.matmul(x, y.swapaxes(-1, -2), **options, flags=True)
            wanted, raised = by_steps(monkeypatch, x, y.swapaxes(-1, -2), **options)
            assert_bits(results, wanted)
            assert np.array_equal(flags, raised)


def test_rare_flags_of_sums_with_usual_results():
    for accumulate, x, y, raised in (
        (sf.FP32, [2.0**127, 2.0**127], [1, -1], 0), (sf.FP32, [2.0**127, 2.0**127, -(2.0**127)], [1, 1, 1], 5),
        (sf.sequential(sf.FP32, rounding=sf.toward_zero), [2.0**127, 2.0**127, -(2.0**126)], [1, 1, 1], 5),
        # Errors cancel: of two steps, of two terms, or of both halves.
        (sf.FP32, [2.0**24 + 2, 1, 1], np.ones(3), 1), (sf.fused(1, 3), [8.0, 8, 1, -1], np.ones(4), 1),
        (sf.fused(2, 24, zero_exponent=30), [1.0, -1], np.ones(2), 1),
        (sf.FP32, [2.0**24, 1.0, -1.0, 1.0, 0.0, 0.0], np.ones(6), 1), (sf.FP32, [2.0**24, 1.0, -1.0], np.ones(3), 1),
        (sf.fused(2, 3), [1024.0, 1.0, -1.0, 0], np.ones(4), 1), (sf.fused(2, 3), [1024.0, 128, 128, 0], np.ones(4), 0),
        (sf.fused(1, 24, zero_exponent=30), [1.0, 64.0], np.ones(2), 1), (sf.fused(1, 24), [1.0, 64.0], np.ones(2), 0),
        (sf.FP32, [2.0**-100, 2.0**-100], [2.0**-50, 1], 3), (sf.FP32, [2.0**-100, 0], [2.0**-49, 1], 0),
        # The terms beyond float64's precision are added first.
        (sf.pairwise(sf.FP32), [2.0**-20, 1.0, 2.0**60, -(2.0**60)], np.ones(4), 0),
        (sf.FP32, [2.0**-20, 1.0, 2.0**60, -(2.0**60)], np.ones(4), 1),
        (sf.sequential(sf.Format(8, 23, subnormals=False)), [2.0**-100], [2.0**-27], 3),
        (sf.tensor_core("ampere", sf.TF32), [1 + 2.0**-23], [1], 0),
        (sf.blocked(1, sf.FP32, sf.tensor_core("ampere", sf.TF32)), [1 + 2.0**-23], [1], 0),
        (sf.matrix_core("cdna2", sf.BF16), [2.0**-127], [1], 0),
        (sf.tensor_core("hopper", sf.FP16), [2.0**14, -(2.0**14), 2.0**-24], np.ones(3), 1),
        (sf.tensor_core("hopper", sf.BF16), [2.0**-126, -(2.0**-126) * 1.5, 2.0**-133], np.ones(3), 0),
        (sf.fused(3, 5, sf.FP16), [2.0**-11, -(2.0**-11) + 2.0**-16, 2.0**-17], np.ones(3), 3),
    ):  # fmt: skip
        total, flags = sf.dot(np.array(x), np.array(y), accumulate=accumulate, flags=True)
        assert flags == raised, (accumulate, x)
        assert_bits(total, sf.dot(np.array(x), np.array(y), accumulate=accumulate))
    assert sf.sum([1.0, 1], accumulate=sf.FP32, initial=2.0**24 + 2, flags=True)[1] == 1


def test_usual_sums_need_no_steps(rng, monkeypatch):
    def refuse(*args):
        raise AssertionError("The steps were computed.")

    monkeypatch.setattr(OperationsEngine, "run", refuse)
    a, b = sf.round(rng.standard_normal((2, 20, 64)), sf.FP16)
    for accumulate in (
        *(
            sf.FP32,
            sf.BF16,
            sf.kahan(sf.FP32),
            sf.blocked(8, sf.FP32, sf.FP32),
            sf.sequential(sf.FP32, products=sf.BF16),
        ),
        *(sf.fused(4, 20), sf.tensor_core("hopper", sf.FP16), sf.matrix_core("cdna3", sf.FP16)),
    ):
        results, flags = sf.matmul(a, b.T, accumulate=accumulate, flags=True)
        assert_bits(results, sf.matmul(a, b.T, accumulate=accumulate))
        assert (flags == 1).all()
    assert not sf.matmul(np.ones((5, 99)), np.ones((99, 4)), accumulate=sf.FP16, flags=True)[1].any()
