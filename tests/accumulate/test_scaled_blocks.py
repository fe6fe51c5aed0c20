"""Compare sums of products of block-scaled operands with fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.tools.selftest.orders import RoundedOperations, sequential_dot
from tests.bits import assert_bits
from tests.checks import assert_refused, with_threads
from tests.scalar_casts import block_dot
from tests.scalar_casts import product as scaled_product

ACCUMULATORS = (
    sf.sequential(sf.FP32), sf.sequential(sf.FP16, sf.toward_negative), sf.sequential(sf.FP64),
    sf.sequential(sf.BF16, products=sf.FP32), sf.pairwise(sf.FP32), sf.kahan(sf.BF16),
    sf.blocked(3, sf.FP16, sf.sequential(sf.FP32, sf.toward_zero)), sf.fused(4, 13), sf.exact,
    sf.tensor_core("hopper"), sf.tensor_core("ada"), sf.tensor_core("blackwell"),
)  # fmt: skip
MX, MX_FLOOR = sf.block(4, sf.E8M0), sf.block(4, sf.E8M0, rule="floor")
FINE, SQUARE = sf.block(4, sf.FP32), sf.block((2, 4), sf.FP32)


def spread(rng, shape):
    """Numbers whose rows and columns differ by many binades."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-9, 9, shape)


@pytest.mark.parametrize("accumulate", ACCUMULATORS, ids=str)
def test_a_blocks_sum_is_divided_by_its_two_scales_and_added_to_the_running_total(accumulate, rng):
    formats = (sf.E2M3, sf.E2M1) if "FP16" in str(accumulate) else (sf.E4M3, sf.E5M2)
    for scales, depth in product(((FINE, SQUARE), (MX, MX_FLOOR)), (1, 4, 11)):
        a, b, casts = spread(rng, (3, depth)), spread(rng, (depth, 5)), tuple(map(sf.scaled, formats, scales))
        got = sf.matmul(a, b, inputs=casts, accumulate=accumulate, output=sf.BF16)
        want = scaled_product(a, b, casts, accumulate, sf.BF16)
        assert np.isfinite(want).all() and (want != 0).any()
        assert_bits(got, want)


@pytest.mark.parametrize("accumulate", [sf.FP32, sf.exact, sf.pairwise(sf.BF16), sf.tensor_core("hopper")], ids=str)
def test_tall_short_and_empty_products_and_stacks_and_transposes(accumulate, rng):
    options = dict(accumulate=accumulate, output=sf.FP32)
    casts = sf.scaled(sf.E4M3, FINE), sf.scaled(sf.E4M3, SQUARE)
    own = sf.sequential(accumulate) if isinstance(accumulate, sf.Format) else accumulate
    for m, k, n in ((1, 64, 1), (130, 8, 3), (3, 9, 130), (0, 5, 2), (2, 5, 0), (2, 0, 3)):
        a, b = spread(rng, (m, k)), spread(rng, (k, n))
        got = sf.matmul(a, b, inputs=casts, **options)
        # Of long axes the pairs, which have one scale, at both ends and around 64 and 128 are compared.
        i, j = (np.arange(size) if size < 64 else np.r_[0:2, 62:66, 126:130] for size in (m, n))
        want = scaled_product(a[i], b[:, j], casts, own, sf.FP32) if m * k else np.zeros((m, n))
        assert got.shape == (m, n)
        assert_bits(got[np.ix_(i, j)], want)
    a, b = spread(rng, (2, 40, 36)), spread(rng, (2, 36, 70))
    for scale, _ in product((MX, FINE, sf.block(4, sf.E4M3)), with_threads(1, 3)):
        cast = sf.scaled(sf.E4M3, scale)
        whole = sf.matmul(a[1], b[1], inputs=cast, **options)
        if scale.format != sf.E4M3:  # NVFP4 has one more scale for all of an operand
            assert_bits(sf.matmul(a, b, inputs=cast, **options)[1], whole)
        assert_bits(sf.matmul(np.asfortranarray(a[1]), b[1], inputs=cast, **options), whole)
        assert_bits(sf.matmul(b[1].T, a[1].T, inputs=cast, **options), whole.T)


def test_float64_data_at_the_ends_of_the_range_zeros_infinities_and_nan():
    big, small = 1e300, 5e-324
    a = np.array([[big, 1.0, 0.0, 0.0, small, -0.0, small, 2.0, np.inf, 1.0, 2.0, 3.0],
                  [np.nan, 1.0, 1.0, 1.0, 2.0**-140, 0, 0, 0, 0.0, -0.0, 0.0, 0.0]])  # fmt: skip
    b = np.ones((12, 1))
    fine, mx = sf.scaled(sf.E4M3, FINE), sf.scaled(sf.E4M3, MX)
    q, scales = fine.apply_in_blocks(a, -1)
    assert scales.values.tolist() == [[1.0, 224.0, 1.0], [1.0, float(sf.FP32.max), 1.0]]
    assert_bits(q[0], [448.0, 1.0, 0, 0, 0, -0.0, 0, 448, 448, 1, 2, 3])
    q, scales = mx.apply_in_blocks(a, -1)
    assert_bits(scales.values, [[np.nan, 2.0**-7, np.nan], [np.nan, 2.0**-127, 2.0**-127]])
    for accumulate in (sf.FP32, sf.exact):
        got = sf.matmul(a, b, inputs=(fine, sf.E4M3), accumulate=accumulate, output=sf.FP32)
        assert got[0, 0] == 448 + 1 + 2 + 448 + 1 + 2 + 3 and np.isnan(got[1, 0])
        assert np.isnan(sf.matmul(a, b, inputs=(mx, sf.E4M3), accumulate=accumulate, output=sf.FP32)).all()
    ends = sf.matmul(a[1:, 4:], b[4:], inputs=(mx, sf.E4M3), accumulate=sf.FP32)
    # X is 2^-127, and 2^-140 of it a number below E4M3's subnormal ones.
    assert ends == 0.0
    assert sf.matmul([[2.0**-130]], [[1.0]], inputs=(mx, sf.E4M3), accumulate=sf.FP32) == 2.0**-130


NVFP4 = sf.scaled(sf.E2M1, sf.block(16, sf.E4M3))


def test_nvfp4_elements_and_scales_are_those_of_block_quantize(rng):
    a, b = spread(rng, (3, 40)), spread(rng, (40, 2))
    x, y = sf.block_quantize(a, sf.E2M1, scale=sf.E4M3), sf.block_quantize(b, sf.E2M1, scale=sf.E4M3, axis=0)
    q, scales = NVFP4.apply_in_blocks(a, -1)
    assert_bits(q, x.elements)
    assert_bits(scales.values, x.scales)
    assert scales.whole == x.tensor_scale != 1.0
    got = sf.matmul(a, b, inputs=NVFP4, accumulate=sf.exact, output=sf.FP32)
    assert_bits(got, sf.matmul(x, y, accumulate=sf.exact, output=sf.FP32))
    # In steps: scales of blocks where blocks end, those of whole operands in the end.
    whole = Fraction(x.tensor_scale) * Fraction(y.tensor_scale)
    factors = np.einsum("ib,bj->ijb", x.scales, y.scales)
    want = [
        [
            block_dot(x.elements[i].tolist(), y.elements[:, j].tolist(), factors[i, j].tolist(), (sf.E2M1,) * 2, 16,
                      sf.sequential(sf.BF16), sf.BF16, divide=False)
            for j in range(2)
        ]
        for i in range(3)
    ]  # fmt: skip
    want = [[round_value(Fraction(total) / whole, sf.FP32, sf.nearest_even) for total in row] for row in want]
    assert_bits(sf.matmul(a, b, inputs=NVFP4, accumulate=sf.BF16, output=sf.FP32), want)


def test_units_with_block_scales_take_them_themselves(rng):
    for elements, scale in (
        *((sf.E2M1, sf.block(16, sf.E4M3)), (sf.E2M1, sf.block(32, sf.E8M0)), (sf.E4M3, sf.block(32, sf.E8M0))),
        (sf.E4M3, sf.block((32, 32), sf.E8M0)),
    ):
        cast, scales = sf.scaled(elements, scale), (scale.along, scale.format)
        a, b = spread(rng, (5, 70)).astype(np.float32), spread(rng, (70, 90)).astype(np.float32)
        (q, s), (r, t) = cast.apply_in_blocks(a, -1), cast.apply_in_blocks(b, -2)
        unit, pad = sf.tensor_core("blackwell", elements, scales=scales), -70 % scale.along
        q, r = np.pad(q, ((0, 0), (0, pad))), np.pad(r, ((0, pad), (0, 0)))
        want = sf.matmul(q, r, scales=(s.values, t.values), accumulate=unit, output=sf.FP32)
        for accumulate in (unit, sf.tensor_core("blackwell", scales=scales)):
            got = sf.matmul(a, b, inputs=cast, accumulate=accumulate)
            assert_bits(got, sf.divide(want, s.whole * t.whole, sf.FP32))


def test_stochastic_accumulators_draw_for_freed_sums_and_totals_at_the_places_of_blocked_ones(rng):
    a, b = spread(rng, (2, 10)), spread(rng, (10, 3))
    rounding, cast = sf.stochastic(9), sf.scaled(sf.E4M3, FINE)
    accumulate = sf.sequential(sf.BF16, rounding)
    got = sf.matmul(a, b, inputs=cast, accumulate=accumulate, stream=sf.BitStream(5))
    (q, s), (r, t) = cast.apply_in_blocks(a, -1), cast.apply_in_blocks(b, -2)
    for i, j in np.ndindex(2, 3):
        do, total = RoundedOperations(sf.BF16, rounding, i * 3 + j, 5), 0.0
        for run in range(3):
            k = slice(4 * run, 4 * run + 4)
            inner = sequential_dot(q[i, k].tolist(), r[k, j].tolist(), sf.BF16, rounding, None, element=i * 3 + j,
                                   seed=5, stage=3, step=4 * run)  # fmt: skip
            freed = do("divide", inner, float(s.values[i, run]) * float(t.values[run, j]), step=run, stage=1)
            total = do("add", total, freed, step=run, stage=0)
        assert got[i, j] == total
    with pytest.raises(
        ValueError, match=r"too few to round them to FP32 with 32 random bits; use stochastic\(bits=27\) at most"
    ):
        sf.matmul(a, b, inputs=cast, accumulate=sf.sequential(sf.FP32, sf.stochastic()), stream=sf.BitStream(5))


def test_the_running_total_starts_from_initial(rng):
    a, b, c = spread(rng, (3, 9)), spread(rng, (9, 2)), sf.round(spread(rng, (3, 2)), sf.FP32)
    casts = (sf.scaled(sf.E4M3, FINE),) * 2
    for accumulate in (sf.sequential(sf.FP32), sf.exact):
        got = sf.matmul(a, b, inputs=casts, accumulate=accumulate, output=sf.FP32, initial=c)
        for i, j in np.ndindex(3, 2):
            want = scaled_product(a[i : i + 1], b[:, j : j + 1], casts, accumulate, sf.FP32, start=float(c[i, j]))
            assert_bits(got[i : i + 1, j : j + 1], want)


def test_partial_sums_stop_after_every_block(rng):
    (x, y), mx = spread(rng, (2, 11)), sf.scaled(sf.E4M3, sf.block(32, sf.E8M0))
    for cast, accumulate in ((sf.scaled(sf.E4M3, FINE), sf.FP32), (mx, UNIT)):
        ends = [*range(cast.scale.along, 11, cast.scale.along), 11]
        sums = sf.partial_sums(x, y, inputs=cast, accumulate=accumulate)
        assert_bits(sums, [sf.dot(x[:end], y[:end], inputs=cast, accumulate=accumulate) for end in ends])


def test_squares_give_a_weight_the_same_elements_along_both_of_its_axes(rng):
    for scale in (sf.block((4, 4), sf.FP32), sf.block((4, 4), sf.E8M0), sf.block((4, 4), sf.E4M3)):
        w, cast = spread(rng, (10, 7)), sf.scaled(sf.E2M1, scale)
        (q, s), (r, t) = cast.apply_in_blocks(w, -1), cast.apply_in_blocks(w.T, -1)
        assert_bits(q, r.T)
        assert_bits(s.values[::4], t.values[::4].T)
        assert s.whole == t.whole
        rows = sf.scaled(sf.E2M1, sf.block(4, scale.format))
        assert (rows.apply_in_blocks(w, -1)[0] != rows.apply_in_blocks(w.T, -1)[0].T).any()


def test_elements_and_scales_of_casts_are_those_of_block_quantize(rng):
    formats, rules = (sf.E4M3, sf.E5M2, sf.E2M1, sf.E3M2), ("floor", "ceil", "rceil", "even")
    for format, rule, dtype in product(formats, rules, (np.float32, np.float64)):
        x = spread(rng, (3, 70)).astype(np.float32).astype(dtype)
        want = sf.block_quantize(x, format, rule=rule)
        q, s = sf.scaled(format, sf.block(32, sf.E8M0, rule=rule)).apply_in_blocks(x, -1)
        assert_bits(q, want.elements)
        assert_bits(s.values, want.scales)
    cast = sf.cast(sf.E2M1, sf.stochastic(), scale=sf.block(16, sf.E4M3))
    drawn = sf.block_quantize(x, sf.E2M1, scale=sf.E4M3, rounding=sf.stochastic(), stream=sf.BitStream(3))
    assert_bits(cast.apply_in_blocks(x, -1, sf.arithmetic.bit_stream.Draw(0, 3))[0], drawn.elements)
    # A sum scales its elements, and not the ones.
    want = sf.matmul(x, np.ones((70, 1)), inputs=(sf.scaled(sf.E4M3, FINE), sf.E4M3), accumulate=sf.BF16)
    assert_bits(sf.sum(x, 1, inputs=sf.scaled(sf.E4M3, FINE), accumulate=sf.BF16), want[:, 0])


def test_operands_may_be_scaled_in_different_ways(rng):
    a, b = spread(rng, (3, 11)), spread(rng, (11, 2))
    fine, mx = sf.scaled(sf.E4M3, FINE), sf.scaled(sf.E4M3, MX)
    q, s = sf.scaled(sf.E4M3, sf.per_tensor()).apply(a)
    got = sf.matmul(a, b, inputs=(sf.scaled(sf.E4M3, sf.per_tensor()), fine), accumulate=sf.FP32)
    assert_bits(got, sf.divide(sf.matmul(q, b, inputs=(sf.E4M3, fine), accumulate=sf.FP32), s, sf.FP32))
    # Powers of two that multiply a's blocks, and quotients that divide b's.
    (q, powers), (r, quotients) = mx.apply_in_blocks(a, -1), fine.apply_in_blocks(b, -2)
    for casts, x, y in (((mx, fine), a, b), ((fine, mx), b.T, a.T)):
        got = sf.matmul(x, y, inputs=casts, accumulate=sf.BF16)
        got = got if x is a else got.T
        for i, j in np.ndindex(3, 2):
            scales = [float(quotients.values[run, j]) / float(powers.values[i, run]) for run in range(3)]
            row, column, by = q[i].tolist(), r[:, j].tolist(), sf.sequential(sf.BF16)
            want = block_dot(row, column, scales, (sf.E4M3,) * 2, 4, by, sf.BF16, divide=True)
            assert got[i, j] == want


@pytest.mark.parametrize("accumulate", [sf.FP32, sf.exact, sf.tensor_core("hopper")], ids=str)
def test_blocks_of_a_convolution_run_along_k_of_its_im2col(accumulate, rng):
    for scale, size in product((FINE, SQUARE, MX, sf.block(4, sf.E4M3)), (3, 9)):
        # One operand has a single scale of E4M3, for all patches.
        images, groups = (1, [slice(0, 2)]) if scale.format == sf.E4M3 else (2, [slice(0, 2), slice(2, 4)])
        x, w = spread(rng, (images, 2 * len(groups), size, size)), spread(rng, (6, 2, 3, 2))
        casts = sf.scaled(sf.E4M3, scale), sf.scaled(sf.E5M2, scale)
        options = dict(inputs=casts, accumulate=accumulate, output=sf.FP32)
        c = sf.round(spread(rng, (images, 6, size, size - 1)), sf.FP32)
        initial = {} if scale.format == sf.E4M3 else dict(initial=c)
        got = sf.conv2d(x, w, padding=(1, 0), groups=len(groups), **initial, **options)
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
        for image, (number, channels) in product(range(images), enumerate(groups)):
            windows = np.lib.stride_tricks.sliding_window_view(padded[image, channels], (3, 2), (1, 2))
            patches = windows.transpose(0, 3, 4, 1, 2).reshape(12, -1)
            outputs = slice(number * 6 // len(groups), (number + 1) * 6 // len(groups))
            start = dict(initial=c[image, outputs].reshape(-1, patches.shape[1]).T) if initial else {}
            want = sf.matmul(patches.T, w[outputs].reshape(-1, 12).T, **start, **options)
            assert_bits(got[image, outputs], want.T.reshape(got[image, outputs].shape))


def test_stochastic_results_of_a_convolution_by_blocks_are_numbered_in_c_order(rng):
    casts = (sf.scaled(sf.E4M3, FINE),) * 2
    for size in (3, 9):
        x, w = spread(rng, (2, 4, size, size)), spread(rng, (6, 4, 2, 2))
        plain = sf.conv2d(x, w, inputs=casts, accumulate=sf.FP32)
        got = sf.conv2d(x, w, inputs=casts, accumulate=sf.FP32, output=sf.BF16, rounding=sf.stochastic(),
                        stream=sf.BitStream(4))  # fmt: skip
        assert_bits(got, sf.round(plain, sf.BF16, sf.stochastic(), stream=sf.BitStream(4)))
        steps = sf.sequential(sf.BF16, sf.stochastic(8))
        drawn = sf.conv2d(x[:1], w[:1], inputs=casts, accumulate=steps, stream=sf.BitStream(4))
        whole = sf.conv2d(x, w, inputs=casts, accumulate=steps, stream=sf.BitStream(4))
        assert_bits(whole[0, 0], drawn[0, 0])


def test_every_element_that_saturates_or_vanishes_is_observed():
    x = np.array([[500.0, 1.0, 1e-9, 1.0, 1.0, 1e-9, 1.0, 0.0]])
    for scale, overflow in ((MX_FLOOR, 1), (MX, 0), (FINE, 0)):  # 500 is beyond 448
        recorder, casts = sf.Recorder(), (sf.scaled(sf.E4M3, scale), sf.E4M3)
        sf.matmul(x, np.ones((8, 1)), inputs=casts, accumulate=sf.FP32, observer=recorder)
        heard = recorder.counts(operation="cast_input")
        assert (heard["total"], heard["overflow"], heard["underflow"]) == (16, overflow, 2)


def test_blocks_that_do_not_fit_are_refused():
    assert_refused(
        (lambda: sf.block(0, sf.E8M0), "size of a block is a positive integer"),
        (lambda: sf.block((1, 2, 3), sf.E8M0), "or a pair of elements across k"),
        (lambda: sf.block(True, sf.E8M0), "size of a block is a positive integer"),
        (lambda: sf.block(16, sf.FP64), "in a format that float32 can represent, got FP64"),
        (lambda: sf.block(16, sf.E4M3, rule="floor"), "it needs E8M0 scales"),
        (lambda: sf.block(16, sf.E8M0, rule="up"), "rule must be one of floor, ceil, rceil, even"),
        (lambda: sf.scaled(sf.FP32, sf.block(16, sf.E4M3)), "Elements scaled by E4M3"),
        (lambda: multiply((FINE, sf.block(8, sf.FP32))), "blocks of one size along k; a has 4, b has 8"),
        (lambda: multiply((FINE, sf.block(4, sf.E4M3))), "scale both operands by blocks of one kind"),
        (lambda: multiply((FINE, FINE), accumulate=UNIT), "takes blocks of 32 products with E8M0 scales, got"),
        (lambda: multiply((sf.per_tensor(), sf.per_tensor()), accumulate=UNIT), "needs scales="),
        (lambda: multiply((MX, MX), initial=np.float32(0.1).astype(float) / 3), "must hold numbers of FP32"),
        (lambda: multiply((sf.block(4, sf.E4M3),) * 2, initial=1.0), "add it to the result"),
        (lambda: multiply((FINE, FINE), rounding=sf.toward_zero), "are not rounded again to this format"),
    )


UNIT = sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))


def multiply(scales, accumulate=sf.FP32, **options):
    casts = tuple(sf.scaled(sf.E4M3, scale) for scale in scales)
    return sf.matmul(np.ones((2, 8)), np.ones((8, 2)), inputs=casts, accumulate=accumulate, **options)
