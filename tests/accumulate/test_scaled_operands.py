"""Sums of products of scaled operands: casts with a scale, blocks that contain their scales, and scales of NaN."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw
from simfloat.formats.definition import round_value
from tests.accumulate.definition import exact_sums
from tests.bits import assert_bits
from tests.checks import assert_refused
from tests.scalar_casts import elements, tensor_scale
from tests.scalar_casts import product as scaled_product

MX = sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))
NV = sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3))


def quantized(rng, format=sf.E4M3, scale=sf.E8M0, depth=96):
    a, b = rng.standard_normal((5, depth)), rng.standard_normal((depth, 4))
    left = sf.block_quantize(a, format, scale=scale)
    left = sf.BlockScaled(left.elements, left.scales, left.block, -1, left.tensor_scale)  # the same axis, from the end
    return left, sf.block_quantize(b, format, scale=scale, axis=0)


def test_quantized_operands_bring_their_scales(rng):
    a, b = quantized(rng)
    promoting = sf.blocked(32, MX, sf.FP32)
    for accumulate in (MX, promoting, sf.FP32, sf.exact, sf.blocked(32, sf.FP16, sf.FP32)):
        want = sf.matmul(a.elements, b.elements, scales=(a.scales, b.scales), accumulate=accumulate, output=sf.FP32)
        assert_bits(sf.matmul(a, b, accumulate=accumulate, output=sf.FP32), want)
        if accumulate not in (MX, promoting):
            assert_bits(want, sf.matmul(a.values(), b.values(), accumulate=accumulate, output=sf.FP32))
    total = np.zeros((5, 4))
    for i in range(3):
        k, scales = slice(32 * i, 32 * i + 32), (a.scales[:, [i]], b.scales[[i]])
        total = sf.add(total, sf.matmul(a.elements[:, k], b.elements[k], scales=scales, accumulate=MX), sf.FP32)
    assert_bits(sf.matmul(a, b, accumulate=promoting), total)


def test_vectors_and_batches_and_one_operand_alone_may_be_quantized(rng):
    x = rng.standard_normal((3, 64))
    rows, vector = sf.block_quantize(x, sf.E4M3), sf.block_quantize(x[0], sf.E4M3)
    batch = sf.block_quantize(rng.standard_normal((2, 64, 3)), sf.E4M3, axis=1)
    got = sf.matmul(rows, batch, accumulate=MX)
    assert got.shape == (2, 3, 3)
    one = sf.matmul(rows.elements, batch.elements[1], scales=(rows.scales, batch.scales[1]), accumulate=MX)
    assert_bits(got[1], one)
    squares = sf.matmul(rows, vector, accumulate=MX)
    assert squares.shape == (3,) and squares[0] == sf.dot(vector, vector, accumulate=MX)
    a, b = quantized(rng)
    got = sf.matmul(a, b.elements, accumulate=MX)
    assert_bits(got, sf.matmul(a.elements, b.elements, scales=(a.scales, np.ones((3, 4))), accumulate=MX))
    got = sf.matmul(a.elements, b, accumulate=sf.FP32)
    assert_bits(got, sf.matmul(a.elements.astype(float), b.values(), accumulate=sf.FP32))


def test_a_short_last_block_is_a_block(rng):
    a, b = quantized(rng, depth=70)
    with pytest.raises(ValueError, match="one scale for each block of k"):
        sf.matmul(a.elements, b.elements, scales=(a.scales, b.scales), accumulate=sf.FP32)
    assert_bits(sf.matmul(a, b, accumulate=sf.FP32), sf.matmul(a.values(), b.values(), accumulate=sf.FP32))
    padded = sf.matmul(np.pad(a.elements, ((0, 0), (0, 26))), np.pad(b.elements, ((0, 26), (0, 0))),
                       scales=(a.scales, b.scales), accumulate=MX)  # fmt: skip
    assert_bits(sf.matmul(a, b, accumulate=MX), padded)


def test_scales_of_tensors_divide_the_sums_before_they_are_rounded_once(rng):
    a, b = quantized(rng, sf.E2M1, sf.E4M3)
    divisor = Fraction(a.tensor_scale) * Fraction(b.tensor_scale)
    assert divisor != 1
    values = (x.elements.astype(float) * np.repeat(x.scales, 16, axis) for x, axis in ((a, 1), (b, 0)))
    exact = exact_sums(*values)
    for output, rounding in product((sf.FP32, sf.BF16, sf.FP16), (sf.nearest_even, sf.toward_negative)):
        for accumulate in (NV, sf.FP32):
            mode = sf.nearest_even if output == sf.FP32 else rounding
            options = {} if output == sf.FP32 else dict(rounding=mode)
            got = sf.matmul(a, b, accumulate=accumulate, output=output, **options)
            sums = sf.matmul(a.elements, b.elements, scales=(a.scales, b.scales), accumulate=accumulate, output=sf.FP64)
            assert_bits(got, [[round_value(Fraction(s) / divisor, output, mode) for s in row] for row in sums.tolist()])
        got = sf.matmul(a, b, accumulate=sf.exact, output=output, rounding=rounding)
        assert_bits(got, [[round_value(total / divisor, output, rounding) for total in row] for row in exact])


def test_quantized_operands_that_do_not_fit_are_refused(rng):
    a, b = quantized(rng)
    x, s, t = rng.standard_normal((96, 96)), a.scales.astype(float), b.scales.astype(float)
    images, w = np.ones((1, 32, 2, 2)), sf.block_quantize(np.ones((1, 32, 1, 1)), sf.E4M3, axis=1)
    assert sf.conv2d(images, w.values(), accumulate=sf.FP32).tolist() == [[[[32.0] * 2] * 2]]

    def scaled(scales, accumulate=MX):
        return sf.matmul(a.elements, b.elements, accumulate=accumulate, scales=scales)

    assert_refused(
        (lambda: sf.matmul(a, b, scales=(s, t), accumulate=MX), "pass one of both"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, axis=0), b, accumulate=MX), r"blocks of a must run along k"),
        (lambda: sf.matmul(a, sf.block_quantize(x, sf.E4M3), accumulate=MX), r"block_quantize\(b, ..., axis=-2\)"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, block=16), x, accumulate=MX), "takes blocks of 32 products"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, block=16), b, accumulate=sf.FP32),
         "blocks of one size along k; a has 16, b has 32"),
        (lambda: sf.matmul(*quantized(rng, sf.E4M3, sf.E4M3), accumulate=MX), "takes blocks of 32 .* of 16"),
        (lambda: sf.conv2d(images, w, accumulate=sf.FP32),
         r"w is a result of block_quantize, .* pass w.values\(\)"),
        (lambda: sf.sum(a.elements, accumulate=MX), "needs scales="),
        (lambda: scaled(None), r"needs scales=\(a_scales, b_scales\) in E8M0, blocks of 32"),
        (lambda: scaled(s), "scales must be a pair"),
        (lambda: scaled((s, t.T)), r"must have shapes \(5, 3\) and \(3, 4\)"),
        (lambda: scaled((s * np.inf, t)), r"a finite number or NaN, and that of a\[0, 0\] is inf"),
        (lambda: scaled((s, t * 3)), "an E8M0 number"),
        (lambda: scaled((s * np.inf, t), sf.FP32), "a finite number"),
        (lambda: scaled((np.full_like(s, 2.0**-1070), t), sf.FP32), "are not float64 numbers"),
    )  # fmt: skip


def test_a_scale_of_nan_makes_its_products_nan_even_of_zeros_and_every_sum_so_far(rng):
    for unit, format, block in ((MX, sf.E4M3, 32), (NV, sf.E2M1, 16), (sf.FP32, sf.E2M1, 16)):
        a, b = sf.round(rng.standard_normal((3, 64)), format), sf.round(rng.standard_normal((64, 4)), format)
        s, t = np.ones((3, 64 // block)), np.ones((64 // block, 4))
        want = sf.matmul(a, b, scales=(s, t), accumulate=unit)
        s[1, 1], a[1], want[1] = np.nan, 0.0, np.nan
        assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=unit), want)
        t[0, 2], want[:, 2] = np.nan, np.nan
        assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=unit), want)
    scaled = (sf.E2M1, (32, sf.E8M0)), (sf.E2M1, (16, sf.E4M3)), (sf.E4M3, (32, sf.E8M0))
    for (format, scale), so_far in product(scaled, (0.0, 1.0, np.inf, -np.inf)):
        unit, scales = sf.tensor_core("blackwell", format, scales=scale), np.ones((1, 128 // scale[0]))
        for block, a in product(range(scales.size), (np.ones((1, 128)), np.zeros((1, 128)))):
            a_scales = scales.copy()
            a_scales[0, block] = np.nan
            got = sf.matmul(a, np.ones((128, 1)), accumulate=unit, scales=(a_scales, scales.T), initial=so_far)
            assert np.isnan(got).all()
    x = rng.standard_normal((2, 64))
    x[0, 3] = np.nan
    got = sf.matmul(sf.block_quantize(x, sf.E4M3), np.ones((64, 1)), accumulate=MX)
    assert np.isnan(got[0, 0]) and np.isfinite(got[1, 0])


ACCUMULATORS = (
    sf.sequential(sf.FP32), sf.sequential(sf.FP16, sf.toward_negative), sf.sequential(sf.FP64),
    sf.sequential(sf.FP32, products=sf.BF16), sf.pairwise(sf.FP32), sf.kahan(sf.BF16),
    sf.blocked(3, sf.FP16, sf.FP32), sf.fused(4, 13), sf.exact,
    sf.tensor_core("hopper"), sf.tensor_core("ada"), sf.tensor_core("blackwell"),
)  # fmt: skip
CURRENT = (sf.scaled(sf.E4M3, sf.per_tensor()), sf.scaled(sf.E5M2, sf.per_tensor()))


def magnitudes(rng, shape, top):
    """Numbers over many binades."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(top - 30, top, shape)


def test_sums_of_elements_are_divided_by_both_scales_before_the_one_rounding(rng):
    outputs = (sf.FP32, sf.nearest_even), (sf.BF16, sf.toward_positive)
    for accumulate, depth, (output, rounding) in product(ACCUMULATORS, (0, 1, 7), outputs):
        # The largest numbers of FP8 are too large for sums in FP16.
        formats = (sf.E2M3, sf.E2M1) if "FP16" in str(accumulate) else (sf.E4M3, sf.E5M2)
        casts = tuple(sf.scaled(format, sf.per_tensor()) for format in formats)
        a, b = magnitudes(rng, (3, depth), 5), magnitudes(rng, (depth, 2), -9)
        a[:1, :1], b[:1, :1] = 2.0**5, 2.0**-9  # so that not every product of elements is 0
        want = scaled_product(a, b, casts, accumulate, output, rounding=rounding)
        assert np.isfinite(want).all() and (want != 0).any() == (depth > 0)
        assert_bits(sf.matmul(a, b, inputs=casts, accumulate=accumulate, output=output, rounding=rounding), want)


def test_elements_are_exact_products_with_the_scale_rounded_once_and_saturating(rng, ml_dtypes):
    formats = sf.E4M3, sf.E5M2, sf.E2M1, sf.FP16, sf.BF16, sf.E4M3FNUZ, sf.p3109(8, 3)
    modes = sf.nearest_even, sf.toward_zero, sf.toward_positive
    for format, dtype, rounding in product(formats, (np.float32, np.float64), modes):
        x = magnitudes(rng, 200, 3).astype(dtype)
        q, s = sf.cast(format, rounding, scale=sf.per_tensor()).apply(x)
        assert s == tensor_scale(x, format) and q.dtype == dtype
        assert_bits(q, elements(x, format, s, rounding))
    for format, name in ((sf.E4M3, "float8_e4m3fn"), (sf.E5M2, "float8_e5m2")):
        x = magnitudes(rng, 1000, 3).astype(np.float32)
        q, s = sf.scaled(format, sf.per_tensor()).apply(x)
        # The product of two float32 numbers is exact in float64, and ml_dtypes rounds that once.
        scaled = np.clip(x.astype(float) * s, -format.max, format.max)
        assert_bits(q, scaled.astype(getattr(ml_dtypes, name)).astype(float))


def test_the_scale_is_a_float32_quotient_and_one_where_amax_is_zero_or_no_finite_number():
    for x, s in (
        ([0.0, -0.0], 1.0), ([], 1.0), ([1.0, np.inf], 1.0), ([1.0, np.nan], 1.0), ([1e300, 1.0], 1.0),
        ([np.inf, -np.inf, np.nan, 3.0], 1.0), ([1e-60, -1e-70], 1.0), ([2.0**-149], sf.FP32.max),
        ([2.0**-126], sf.FP32.max), ([448.0 * 2.0**-128], sf.FP32.max), ([1.75 * 2.0**-119], 2.0**127),
        ([3.0], float(np.float32(448) / np.float32(3))),
        ([-sf.FP32.max], float(np.float32(448) / np.float32(sf.FP32.max))),
    ):  # fmt: skip
        q, scale = sf.scaled(sf.E4M3, sf.per_tensor()).apply(np.array(x, float))
        assert scale == s == tensor_scale(x, sf.E4M3)
        assert_bits(q, elements(x, sf.E4M3, s))


def test_one_operand_may_be_scaled_and_the_other_not(rng):
    a, b = magnitudes(rng, (4, 6), 3), sf.round(rng.standard_normal((6, 3)), sf.BF16)
    q, s = CURRENT[0].apply(a)
    got = sf.matmul(a, b, inputs=(CURRENT[0], sf.BF16), accumulate=sf.FP32)
    assert_bits(got, sf.divide(sf.matmul(q, b, accumulate=sf.FP32), s, sf.FP32))
    got = sf.matmul(a, b, inputs=(CURRENT[0], sf.BF16), accumulate=sf.exact, output=sf.BF16)
    assert_bits(got, sf.divide(q @ b, s, sf.BF16)), "the products of so few bits are exact in float64"


def test_the_output_may_be_rounded_in_a_mode_of_its_own_for_sums_are_divided(rng):
    a, b = rng.standard_normal((4, 6)), rng.standard_normal((6, 3))
    down, up = (sf.matmul(a, b, inputs=CURRENT[0], accumulate=sf.FP32, rounding=rounding)
                for rounding in (sf.toward_negative, sf.toward_positive))  # fmt: skip
    assert_bits(sf.nextafter(down, np.inf, sf.FP32), up)


def test_dot_sum_partial_sums_and_batches_take_scaled_casts(rng):
    x, y = magnitudes(rng, 20, 2), magnitudes(rng, 20, 2)
    options = dict(inputs=CURRENT, accumulate=sf.FP32)
    want = sf.matmul(x[np.newaxis], y[:, np.newaxis], **options)[0, 0]
    assert_bits(sf.dot(x, y, **options), want)
    assert_bits(sf.partial_sums(x, y, **options)[-1], want)
    q, s = CURRENT[0].apply(x)
    total = sf.sum(x, inputs=CURRENT[0], accumulate=sf.FP32)
    assert_bits(total, sf.divide(sf.sum(q, accumulate=sf.FP32), s, sf.FP32)), "ones are not scaled"
    batch = magnitudes(rng, (2, 3, 20), 2)
    q, s = CURRENT[0].apply(batch)
    r, t = CURRENT[1].apply(y)
    want = sf.divide(sf.matmul(q, r, accumulate=sf.FP32), float(s) * t, sf.FP32)
    assert_bits(sf.matmul(batch, y, **options), want)


def test_a_convolution_scales_whole_images_and_kernels(rng):
    x, w = magnitudes(rng, (2, 3, 5, 4), 2), magnitudes(rng, (4, 3, 3, 2), -5)
    q, s = CURRENT[0].apply(x)
    r, t = CURRENT[1].apply(w)
    got = sf.conv2d(x, w, padding=1, stride=(2, 1), inputs=CURRENT, accumulate=sf.FP32)
    want = sf.conv2d(q, r, padding=1, stride=(2, 1), accumulate=sf.FP32)
    assert_bits(got, sf.divide(want, s * t, sf.FP32))


def test_stochastic_scaled_casts_draw_one_word_an_element(rng):
    x = magnitudes(rng, 64, 3)
    cast = sf.cast(sf.E4M3, sf.stochastic(8), scale=sf.per_tensor())
    q, s = cast.apply(x, Draw(0, 7))
    want = sf.multiply(x, s, sf.E4M3, sf.stochastic(8).saturating(), stream=sf.BitStream(7))
    assert_bits(q, want)
    stream = sf.BitStream(3)
    first = sf.matmul(x.reshape(8, 8), np.eye(8), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=stream)
    assert stream.calls == 1
    again = sf.matmul(x.reshape(8, 8), np.eye(8), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=sf.BitStream(3))
    assert_bits(first, again)


def test_casts_of_scaled_operands_are_observed():
    recorder = sf.Recorder()
    x, y = np.array([[1.0, 1e-4, 1e-9, 0.0]]), np.array([[np.inf], [2.0**20], [1.0], [1.0]])
    sf.matmul(x, y, inputs=CURRENT[0], accumulate=sf.FP32, observer=recorder)
    heard = recorder.counts(operation="cast_input")
    # 1e-4 * 448 is a number, 1e-9 * 448 is none; an infinity makes the scale 1, and 2^20 is beyond 448.
    assert (heard["total"], heard["underflow"], heard["overflow"], heard["nan"]) == (8, 1, 1, 0)


def test_an_argument_that_cannot_be_scaled_is_refused():
    def multiply(scale=None, a=((1.0,),), **options):
        inputs = sf.scaled(sf.E4M3, scale or sf.per_tensor())
        return sf.matmul(a, [[1.0]], inputs=inputs, **{"accumulate": sf.FP32, **options})

    wide = sf.Format(11, 51)
    assert_refused(
        (lambda: sf.cast(sf.E4M3, scale=2.0), "scale must be a scaling such as simfloat.per_tensor"),
        (lambda: sf.scaled(sf.E4M3, None), "scaled takes a scaling"),
        (lambda: sf.scaled(sf.FP64, sf.per_tensor()), "formats that float32 can represent, got FP64"),
        (lambda: sf.scaled(sf.E2M1, sf.per_tensor()).apply(np.array([np.nan])), "E2M1 has no NaN"),
        (lambda: sf.delayed(0), "history must be a positive integer"),
        (lambda: sf.delayed(margin=0.5), "margin must be an integer from -64 to 64"),
        (lambda: multiply(sf.delayed()), "use it in a policy inside `with simfloat.simulate"),
        (lambda: multiply(initial=1.0), "add it to the result"),
        (lambda: multiply(output=wide), "at most 50 bits of precision"),
        (lambda: multiply(accumulate=sf.exact, output=wide), "at most 50 bits"),
        (lambda: multiply(scales=([[1.0]], [[1.0]])), "scale them again: pass only one of them"),
        (lambda: multiply(a=sf.block_quantize([[1.0]], sf.E4M3)), "scale them again"),
    )
