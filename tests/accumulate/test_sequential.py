"""Compare sequential sums that are hard to round, also at both ends of the range, with the definition."""

import itertools
from functools import partial
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.compile import processor
from simfloat.sums.accumulator import Region
from simfloat.sums.operands import Problem, operand_bounds
from simfloat.sums.sequential import StepLoop
from simfloat.tools.selftest.checks import hard_operands
from tests.accumulate.definition import MODES, check
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import matrix_product, sequential_dot


def test_sums_follow_the_definition_where_the_processor_rounds_to_nearest_only(rng, monkeypatch):
    monkeypatch.setattr(processor, "ROUNDS_LANES", False)
    for format, products, rounding in itertools.product((sf.BF16, sf.E4M3), (None, sf.BF16), DETERMINISTIC):
        a, b = (np.ascontiguousarray(x, np.float32) for x in hard_operands(rng, sf.E4M3, 2, 24, 3))
        accumulator = sf.sequential(format, rounding=rounding, products=products)
        # Not by matmul, which keeps engines.
        engine = accumulator.engine(Problem(operand_bounds(a), operand_bounds(b), 24, format))
        got = np.zeros((2, 3), engine.carrier)
        engine.run(a.astype(engine.carrier), b.astype(engine.carrier), got, Region(0, 3, 1, None))
        assert_bits(
            got, matrix_product(a, b, lambda x, y, _, by=(format, rounding, products): sequential_dot(x, y, *by))
        )


def test_sums_near_the_ends_of_float32(rng):
    for exponent in (-120, -63, 50, 53, 57):
        a, b = (x * 2.0**exponent for x in hard_operands(rng, sf.E4M3, 2, 30, 2))
        for rounding, format in itertools.product(DETERMINISTIC, (sf.BF16, sf.TF32, sf.Format(8, 15))):
            check(sf.sequential(format, rounding=rounding), a, b)
            if rounding in MODES[sf.kahan]:
                check(sf.sequential(format, rounding=rounding, products=sf.BF16), a, b)


def test_sums_rounded_outward_grow_with_every_step():
    # toward_positive, each of the tiny terms moves the sum by one spacing: 1 + 1/128 times as far at most.
    for rounding, terms in ((sf.toward_positive, 13_000), (sf.to_odd, 700)):
        a, b = np.full((1, terms), 2.0**-20), np.full((terms, 1), 2.0**-20)
        a[0, 0] = b[0, 0] = 1.0
        check(sf.sequential(sf.BF16, rounding=rounding), a, b)


def test_unfused_half_precision_products_agree_with_apytypes(rng, apytypes):
    # Its accumulator context rounds each product and each sum to the nearest even number. Its numbers are IEEE's.
    a, b = sf.round(rng.standard_normal((40, 100)), sf.FP16), sf.round(rng.standard_normal((100, 50)), sf.FP16)
    left, right = (apytypes.APyFloatArray.from_float(x, 5, 10) for x in (a, b))
    for format, widths in ((sf.FP16, (5, 10)), (sf.E5M2, (5, 2)), (sf.Format(4, 6), (4, 6)), (sf.BF16, (8, 7))):
        nearest = apytypes.QuantizationMode.TIES_EVEN
        with apytypes.APyFloatAccumulatorContext(*widths, quantization=nearest):
            want = (left @ right).to_numpy()
        assert_bits(sf.matmul(a, b, accumulate=sf.sequential(format, products=format)), want)


def carrier_of(a, b, format, **options):
    accumulator = sf.sequential(format, **options)
    engine = accumulator.engine(Problem(operand_bounds(a), operand_bounds(b), a.shape[-1], format))
    name = f"{engine.order}_{engine.kind}" if isinstance(engine, StepLoop) else type(engine).__name__
    return np.dtype(engine.carrier).name, name


def test_quick_carriers_serve_where_they_are_exact(rng, monkeypatch):
    monkeypatch.setattr(processor, "ROUNDS_LANES", False)  # which asks for no proof
    monkeypatch.setattr(processor, "COMPUTES_FP16", False)
    x = rng.standard_normal((64, 64))
    half, brain, eight = (sf.round(x, f) for f in (sf.FP16, sf.BF16, sf.E4M3))
    huge, emulated = brain * 2.0**54, sf.nearest_even.saturating()  # lest the hardware rounds to FP16
    rows = [
        (eight, sf.FP16, dict(rounding=emulated), "float32", "fused_plain"),
        (half, sf.FP16, dict(rounding=emulated), "float64", "fused_plain"),
        (brain, sf.BF16, {}, "float32", "fused_odd"),
        (half, sf.FP16, dict(rounding=emulated, products=sf.FP16), "float32", "unfused_plain"),
        (half, sf.FP32, {}, "float32", "fused_native"),
        (half, sf.FP32, dict(products=sf.FP32), "float32", "unfused_native"),
        (x, sf.FP32, {}, "float64", "fused_wide"),
        (huge, sf.BF16, {}, "float64", "fused_odd"),
        (brain, sf.BF16, dict(rounding=sf.to_odd), "float32", "fused_sticky"),
        (half, sf.FP16, dict(rounding=sf.toward_zero), "float32", "fused_directed"),
    ]
    if processor.CONVERTS_FP16:
        rows += [
            (eight, sf.FP16, {}, "float32", "fused_converted"),
            (half, sf.FP16, {}, "float32", "fused_converted_odd"),
            (half, sf.FP16, dict(products=sf.FP16), "float32", "unfused_converted"),
            (half, sf.FP16, dict(products=sf.BF16), "float32", "unfused_plain"),
        ]
    for operand, format, options, *carrier in rows:
        assert carrier_of(operand, operand, format, **options) == tuple(carrier), (format, options)
    assert carrier_of(x, x, sf.FP16)[0] == "float64", "products of float64 numbers are none of float32"
    long = np.tile(brain, 300)
    assert carrier_of(long, brain, sf.BF16, rounding=sf.toward_zero)[0] == "float32"
    assert carrier_of(long, brain, sf.BF16, rounding=sf.toward_positive)[0] == "float64", "sums may double 100 times"


def test_sums_are_drawn_in_float32_where_that_is_almost_always_enough(rng):
    x = rng.standard_normal((64, 64))
    half, brain, eight = (sf.round(x, f) for f in (sf.FP16, sf.BF16, sf.E4M3))
    wide, tiny, huge = brain * 2.0 ** rng.integers(-60, 1, brain.shape), brain * 2.0**-100, brain * 2.0**100
    for rounding in (sf.stochastic(), sf.stochastic(8), sf.stochastic(8, "B"), sf.stochastic(11, "A")):
        for x, format in ((half, sf.FP16), (brain, sf.BF16), (wide, sf.BF16), (eight, sf.FP16), (eight, sf.E5M2)):
            assert carrier_of(x, x, format, rounding=rounding) == ("float32", "fused_likely")
            assert carrier_of(x, x, format, rounding=rounding, products=format) == ("float32", "unfused_likely")
    # Sums that would often be in doubt are drawn from all bits.
    for a, b, format, rounding, *carrier in (
        (brain, brain, sf.BF16, sf.stochastic(7), "float32", "fused_drawn_odd"),
        (brain, brain, sf.BF16, sf.stochastic(8, "A"), "float32", "fused_drawn_odd"),
        (half, half, sf.Format(8, 17), sf.stochastic(), "float64", "fused_drawn_odd"),
        (tiny, tiny, sf.BF16, sf.stochastic(), "float64", "fused_random"),
        (huge, tiny, sf.BF16, sf.stochastic(), "float32", "fused_likely"),
        (huge, huge, sf.BF16, sf.stochastic(), "float64", "fused_drawn_odd"),
    ):
        assert carrier_of(a, b, format, rounding=rounding) == tuple(carrier), (format, rounding)
    few = {"rounding": sf.stochastic(5), "products": sf.FP16}
    assert carrier_of(half, half, sf.FP16, **few) == ("float32", "unfused_drawn_sums")
    assert carrier_of(eight, eight, sf.E4M3FNUZ, rounding=sf.stochastic())[0] == "float64", "zero has no sign"


def test_terms_far_below_a_sum_are_drawn_exactly():
    # A term of either sign under 1 and 2, from just above the smallest threshold down to what float64 cuts off.
    terms = np.concatenate([[1.0], *(np.array([1, -1, 1, 1, -1, -1]) * 2.0**-e for e in (7, 38, 40, 41, 45, 50, 60))])
    for variant, bits, products in itertools.product("ABC", (1, 5, 32), (None, sf.BF16)):
        rounding = sf.stochastic(bits, variant)
        check(sf.sequential(sf.BF16, rounding, products=products), terms[np.newaxis], np.ones((terms.size, 6)))


def test_draws_of_any_length_follow_the_definition(rng):
    for bits, variant, inputs in (
        *((1, "B", sf.FP16), (4, "A", sf.BF16), (8, "A", sf.E4M3), (8, "B", sf.FP16), (8, "C", sf.BF16)),
        *((11, "C", sf.E4M3), (14, "C", sf.FP16), (24, "B", sf.BF16)),
    ):
        rounding, (a, b) = sf.stochastic(bits, variant), hard_operands(rng, inputs, 2, 22, 2)
        for format in (sf.FP16, sf.BF16, sf.E5M2):
            for left in (a.astype(np.float32), sf.round(a * 2.0 ** (format.emin // 2), inputs)):
                check(sf.sequential(format, rounding), left, b.astype(left.dtype))
            check(sf.sequential(format, rounding, products=format), left, b.astype(left.dtype))
            if (bits, variant) in ((8, "A"), (14, "C")):
                check(sf.pairwise(format, rounding), a.astype(np.float32), b)
                check(sf.kahan(format, rounding), left, b)


def test_no_draw_turns_a_nan_or_an_infinity_into_a_number():
    specials = np.array([0xFFFFFFFF, 0x7FFFFFFF, 0x7F800000, 0xFF800000], np.uint32).view(np.float32)
    for bits, special, format in itertools.product((8, 32), specials, (sf.FP16, sf.BF16, sf.E4M3)):
        a = np.ones((1, 64), np.float32)
        a[0, 5] = special
        want = np.nan if np.isnan(special) or not format.has_infinity else special
        for make in (sf.sequential, partial(sf.sequential, products=format), sf.pairwise):
            accumulate = make(format, rounding=sf.stochastic(bits))
            got = sf.matmul(a, np.ones((64, 40), np.float32), accumulate=accumulate, stream=sf.BitStream(1))
            assert_bits(got, np.broadcast_to(want, got.shape))


FORMATS = [sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E4M3FNUZ, sf.Format(8, 15), sf.Format(4, 6, bias=-20)]


def test_sums_at_the_ends_of_the_range_follow_the_definition(rng):
    modes = [MODES[sf.kahan][place] for place in (0, 1, -1)]
    for place, (format, rounding, end) in enumerate(product(FORMATS, modes, ("large", "small"))):
        exponent = (format.emin - format.mantissa_bits if end == "small" else format.emax) // 2
        inputs = (sf.FP32, sf.BF16)[place % 4 // 2]
        scaled = (np.ldexp(x, exponent) for x in hard_operands(rng, inputs, 2, 20, 2))
        a, b = (sf.round(x, inputs, sf.nearest_even.saturating()) for x in scaled)
        for products in (None, (format, sf.FP16)[place % 2]):
            check(sf.sequential(format, rounding=rounding, products=products), a, b)


def test_terms_below_half_the_smallest_number_add_up_to_zero():
    assert sf.sum(np.full(8, 2.0**-26), accumulate=sf.FP16) == 0


def test_products_below_half_the_smallest_number_of_their_format_are_zero():
    assert sf.dot([2.0**-47], [0.3125], accumulate=sf.sequential(sf.Format(9, 10), products=sf.FP16)) == 0


def test_infinite_products_clamp_where_the_largest_number_is_no_float32():
    format = sf.Format(8, 8, special="finite")
    accumulate = sf.sequential(format, products=sf.FP16)
    assert sf.dot([2.0**20, -(2.0**20)], [1.0, 1.0], accumulate=accumulate) == -format.max


@pytest.mark.parametrize(
    "format", [sf.Format(8, 1, bias=26), sf.Format(8, 7, bias=226), sf.Format(5, 4, bias=160)], ids=str
)
def test_sums_that_a_bias_takes_beyond_float32_are_those_of_the_format(format):
    # Operands are float32 numbers; their products, the sums and what they start from are not.
    far = 2.0 ** (80 if format.emax > 160 else -80)
    orders = [order(format, rounding=mode) for order in MODES for mode in MODES[order]]
    orders += [sf.sequential(format, rounding=mode, products=format) for mode in MODES[sf.kahan]]
    orders += [sf.blocked(2, steps, steps) for steps in orders[:3]]
    for accumulate, dtype in product(orders, (np.float64, np.float32)):
        x = np.full((8, 1), far, dtype)
        squares = sf.matmul(x, x.T, accumulate=accumulate, stream=sf.BitStream(3))
        assert_bits(squares, np.full((8, 8), far * far))
        if accumulate.takes_initial:
            start = sf.matmul(0 * x, 0 * x.T, accumulate=accumulate, initial=far * far, stream=sf.BitStream(3))
            assert_bits(start, np.full((8, 8), far * far))
