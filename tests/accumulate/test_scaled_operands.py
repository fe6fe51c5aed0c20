"""Products of blocks that contain their scales, and scales of NaN."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.accumulate.definition import exact_sums
from tests.bits import assert_bits
from tests.checks import assert_refused

MX = sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0))
NV = sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3))


def quantized(rng, format=sf.E4M3, scale=sf.E8M0, depth=96):
    a, b = rng.standard_normal((5, depth)), rng.standard_normal((depth, 4))
    return sf.block_quantize(a, format, scale=scale), sf.block_quantize(b, format, scale=scale, axis=0)


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
    for (elements, scale), so_far in product(scaled, (0.0, 1.0, np.inf, -np.inf)):
        unit, scales = sf.tensor_core("blackwell", elements, scales=scale), np.ones((1, 128 // scale[0]))
        for block, a in product(range(scales.size), (np.ones((1, 128)), np.zeros((1, 128)))):
            a_scales = scales.copy()
            a_scales[0, block] = np.nan
            got = sf.matmul(a, np.ones((128, 1)), accumulate=unit, scales=(a_scales, scales.T), initial=so_far)
            assert np.isnan(got).all()
    x = rng.standard_normal((2, 64))
    x[0, 3] = np.nan
    got = sf.matmul(sf.block_quantize(x, sf.E4M3), np.ones((64, 1)), accumulate=MX)
    assert np.isnan(got[0, 0]) and np.isfinite(got[1, 0])
