"""Small products: equal calls share a cached plan, and no result depends on the cache."""

from itertools import cycle

import numpy as np

import simfloat as sf
from simfloat.sums import operands as operand_bounds
from simfloat.sums import plan, product
from tests.bits import assert_bits
from tests.checks import assert_refused

ACCUMULATORS = [
    *(sf.FP32, sf.FP64, sf.FP16, sf.BF16, sf.E4M3, sf.E4M3FNUZ, sf.E3M2, sf.Format(5, 3, subnormals=False)),
    *(sf.sequential(sf.FP16, products=sf.FP16), sf.sequential(sf.FP32, sf.toward_negative), sf.pairwise(sf.FP16)),
    *(sf.sequential(sf.FP16, sf.nearest_even.saturating()), sf.kahan(sf.FP16), sf.fused(4, 10)),
    *(sf.blocked(2, sf.FP16, sf.FP32), sf.blocked(3, sf.fused(2, 20), sf.BF16)),
]

#: Signed zeros, infinities, NaN with a payload, overflow, and numbers that no narrow format has.
STRANGE = np.array([-0.0, 1.0, np.inf, 65504.0, 3e38, 1.0000001, -(2.0**-149)], np.float32)


def plan_of(accumulate, **keywords):
    x = np.ones((2, 2), np.float32)
    given = {"inputs": None, "output": None, "rounding": None, "stream": None, "observer": None, **keywords}
    return product.read_options([x, x], accumulate=accumulate, **given, operation="matmul").plan


def test_calls_that_differ_in_nothing_but_numbers_share_a_plan():
    for keywords in ({}, {"inputs": sf.E5M2}, {"inputs": (sf.E4M3, sf.cast(sf.E4M3, scale=sf.per_tensor()))}):
        for accumulate in (sf.FP16, sf.tensor_core("hopper", sf.E4M3), sf.sequential(sf.FP16, sf.stochastic())):
            assert plan_of(accumulate, **keywords) is plan_of(accumulate, **keywords)
    assert plan_of(sf.FP16) is plan_of("fp16", observer=sf.Recorder()), "an observer changes no plan"
    assert plan_of(sf.FP16) is not plan_of(sf.FP16, output=sf.FP32)
    assert plan_of(sf.FP16, output=sf.FP32) is not plan_of(sf.FP16, output=sf.FP32, rounding=sf.toward_zero)


def test_an_engine_that_follows_from_formats_is_in_the_plan():
    double, single = plan_of(sf.FP32).engines
    assert double is None and single is not None, "float64 operands may be no FP32 numbers"
    assert None not in plan_of(sf.FP32, inputs=sf.FP16).engines
    assert None not in plan_of(sf.tensor_core("hopper"), inputs=sf.E4M3).engines
    assert plan_of(sf.tensor_core("hopper", sf.FP16)).engines == (None, None), "the operands may be no FP16 numbers"
    assert plan_of(sf.FP16, inputs=sf.E4M3).engines == (None, None), "steps are chosen by bounds on the numbers"


def test_a_small_product_has_the_bits_of_the_same_in_a_large_one_and_in_a_stack():
    """Its engine is one for all numbers of the formats, that of a large one for those that are there."""
    rng, casts = np.random.default_rng(4), cycle([sf.FP16, sf.E5M2, (sf.cast(sf.BF16, sf.toward_zero), sf.FP32)])
    for accumulate, inputs in zip(ACCUMULATORS, casts, strict=False):
        exponents = rng.integers(-30, 10 if accumulate is sf.E3M2 else 17, (2, 3, 64))
        a, b = (rng.standard_normal((2, 3, 64)) * 2.0**exponents).astype(np.float32)
        if accumulate is not sf.E3M2:  # which has no NaN
            a[0, :7], b[1, 5:12] = STRANGE, STRANGE
        with np.errstate(over="ignore", invalid="ignore"):
            small = sf.matmul(a, b.T, inputs=inputs, accumulate=accumulate)
            large = sf.matmul(np.tile(a, (40, 1)), np.tile(b.T, (1, 40)), inputs=inputs, accumulate=accumulate)
            stack = sf.matmul(np.stack([a, a]), np.stack([b.T, b.T]), inputs=inputs, accumulate=accumulate)
        for same in (large[:3, :3], large[-3:, -3:], stack[1]):
            assert_bits(small, same, of=str(accumulate))


def test_every_call_reads_the_present_values_of_an_array():
    """The first call may need less care than the second one."""
    a, b = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
    assert_bits(sf.matmul(a, b, accumulate=sf.FP16), np.full((3, 3), 3.0, np.float32))
    a[0, 0], b[1, 1] = 2.0**-24, 65504.0
    want = sf.matmul(a.astype(np.float64), b.astype(np.float64), accumulate=sf.FP16)
    assert_bits(sf.matmul(a, b, accumulate=sf.FP16), want.astype(np.float32))
    a[2, 2] = np.nan
    assert np.isnan(sf.matmul(a, b, accumulate=sf.FP16)[2]).all()


def test_the_layout_and_type_of_operands_change_no_bit(ml_dtypes):
    a, b = sf.round(np.random.default_rng(1).standard_normal((2, 6, 6)).astype(np.float32), sf.E4M3)
    sealed = a.copy()
    sealed.flags.writeable = False
    strided = np.zeros((12, 18), np.float32)[::2, ::3]
    strided[:] = a
    for accumulate in (sf.FP32, sf.FP16, sf.blocked(2, sf.FP16, sf.FP32)):
        want = sf.matmul(a, b, accumulate=accumulate)
        for x in (np.asfortranarray(a), a.T.copy().T, sealed, strided, a[::-1].copy()[::-1], a.astype(">f4")):
            assert_bits(sf.matmul(x, b, accumulate=accumulate), want)
        for x in (a.astype(np.float64), a.astype(np.float16), a.astype(ml_dtypes.float8_e4m3fn), a.tolist()):
            assert_bits(sf.matmul(x, b, accumulate=accumulate), want.astype(np.float64))


def test_invalid_arguments_are_refused_at_every_call():
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    for _ in range(2):
        sf.matmul(a, b, accumulate=sf.FP16)
        assert_refused(
            (lambda: sf.matmul(a, b[:2], accumulate=sf.FP16), "got shapes"),
            (lambda: sf.matmul(a, b, accumulate=[1]), "accumulate must be"),
            (lambda: sf.matmul(a, b, accumulate=sf.FP16, rounding=sf.toward_zero), "rounding="),
            (lambda: sf.matmul(a * np.nan, b, inputs=sf.E2M1, accumulate=sf.FP16), "NaN"),
            (lambda: sf.matmul(a, b, accumulate=sf.FP16, observer=1), "observer"),
        )


def test_small_products_are_observed_too():
    a, b = np.full((2, 2, 2), 300.0, np.float32)
    keywords = {"inputs": sf.FP16, "accumulate": sf.FP32, "output": sf.FP16}
    unwatched = sf.matmul(a, b, **keywords)
    for _ in range(2):
        recorder = sf.Recorder()
        assert_bits(sf.matmul(a, b, **keywords, observer=recorder), unwatched)
        totals = {name: recorder.counts(operation=name)["total"] for name in ("cast_input", "matmul")}
        assert totals == {"cast_input": 8, "matmul": 4} and recorder.counts()["overflow"] == 4


def test_the_cache_is_bounded():
    kept = (
        product._default_options, plan.product_plan, plan._engine_by_bounds, plan._prepare_by_bounds,
        operand_bounds.bounds_after_cast,
    )  # fmt: skip
    assert all(function.cache_info().maxsize is not None for function in kept)
