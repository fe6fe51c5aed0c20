"""Products of blocks that contain their scales, and scales of NaN."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.bits import assert_bits

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


def test_the_other_operand_may_have_no_scales(rng):
    a, b = quantized(rng)
    got = sf.matmul(a, b.elements, accumulate=MX)
    assert_bits(got, sf.matmul(a.elements, b.elements, scales=(a.scales, np.ones((3, 4))), accumulate=MX))
    got = sf.matmul(a.elements, b, accumulate=sf.FP32)
    assert_bits(got, sf.matmul(a.elements.astype(float), b.values(), accumulate=sf.FP32))


def test_vectors_and_batches_may_be_quantized(rng):
    x = rng.standard_normal((3, 64))
    rows = sf.block_quantize(x, sf.E4M3)
    batch = sf.block_quantize(rng.standard_normal((2, 64, 3)), sf.E4M3, axis=1)
    vector = sf.block_quantize(x[0], sf.E4M3)
    got = sf.matmul(rows, batch, accumulate=MX)
    assert got.shape == (2, 3, 3)
    one = sf.matmul(rows.elements, batch.elements[1], scales=(rows.scales, batch.scales[1]), accumulate=MX)
    assert_bits(got[1], one)
    squares = sf.matmul(rows, sf.block_quantize(x[0], sf.E4M3), accumulate=MX)
    assert squares.shape == (3,) and squares[0] == sf.dot(vector, vector, accumulate=MX)


def test_a_short_last_block_is_a_block(rng):
    a, b = quantized(rng, depth=70)
    with pytest.raises(ValueError, match="one scale for each block of k"):
        sf.matmul(a.elements, b.elements, scales=(a.scales, b.scales), accumulate=sf.FP32)
    assert_bits(sf.matmul(a, b, accumulate=sf.FP32), sf.matmul(a.values(), b.values(), accumulate=sf.FP32))
    padded = sf.matmul(np.pad(a.elements, ((0, 0), (0, 26))), np.pad(b.elements, ((0, 26), (0, 0))),
                       scales=(a.scales, b.scales), accumulate=MX)  # fmt: skip
    assert_bits(sf.matmul(a, b, accumulate=MX), padded)


@pytest.mark.parametrize("output", [sf.FP32, sf.BF16, sf.FP16], ids=str)
@pytest.mark.parametrize("rounding", [sf.nearest_even, sf.toward_negative], ids=repr)
def test_scales_of_tensors_divide_the_sums_before_they_are_rounded_once(output, rounding, rng):
    a, b = quantized(rng, sf.E2M1, sf.E4M3)
    divisor = Fraction(a.tensor_scale) * Fraction(b.tensor_scale)
    assert divisor != 1
    for accumulate in (NV, sf.FP32):
        options = {} if output == accumulate_format(accumulate) else dict(rounding=rounding)
        got = sf.matmul(a, b, accumulate=accumulate, output=output, **options)
        sums = sf.matmul(a.elements, b.elements, scales=(a.scales, b.scales), accumulate=accumulate, output=sf.FP64)
        mode = options.get("rounding", sf.nearest_even)
        assert_bits(got, [[round_value(Fraction(s) / divisor, output, mode) for s in row] for row in sums.tolist()])
    got = sf.matmul(a, b, accumulate=sf.exact, output=output, rounding=rounding)
    x = a.elements.astype(float) * np.repeat(a.scales, 16, 1)
    y = b.elements.astype(float) * np.repeat(b.scales, 16, 0)
    totals = [
        [sum(Fraction(p) * Fraction(q) for p, q in zip(r, c, strict=True)) for c in y.T.tolist()] for r in x.tolist()
    ]
    assert_bits(got, [[round_value(total / divisor, output, rounding) for total in row] for row in totals])


def accumulate_format(accumulate):
    return accumulate if isinstance(accumulate, sf.Format) else accumulate.result


@pytest.mark.parametrize("unit, format, block", [(MX, sf.E4M3, 32), (NV, sf.E2M1, 16), (sf.FP32, sf.E2M1, 16)], ids=str)
def test_a_scale_of_nan_makes_its_products_nan_even_of_zeros(unit, format, block, rng):
    a, b = sf.round(rng.standard_normal((3, 64)), format), sf.round(rng.standard_normal((64, 4)), format)
    s, t = np.ones((3, 64 // block)), np.ones((64 // block, 4))
    want = sf.matmul(a, b, scales=(s, t), accumulate=unit)
    s[1, 1] = np.nan
    a[1] = 0.0
    want[1] = np.nan
    assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=unit), want)
    t[0, 2] = np.nan
    want[:, 2] = np.nan
    assert_bits(sf.matmul(a, b, scales=(s, t), accumulate=unit), want)


def test_a_quantized_block_with_nan_is_nan(rng):
    x = rng.standard_normal((2, 64))
    x[0, 3] = np.nan
    a = sf.block_quantize(x, sf.E4M3)
    got = sf.matmul(a, np.ones((64, 1)), accumulate=MX)
    assert np.isnan(got[0, 0]) and np.isfinite(got[1, 0])


def test_a_convolution_asks_for_the_numbers_of_quantized_operands():
    x, w = np.ones((1, 32, 2, 2)), np.ones((1, 32, 1, 1))
    quantized = sf.block_quantize(w, sf.E4M3, axis=1)
    with pytest.raises(ValueError, match=r"w is a result of block_quantize, .* pass w.values\(\)"):
        sf.conv2d(x, quantized, accumulate=sf.FP32)
    assert sf.conv2d(x, quantized.values(), accumulate=sf.FP32).tolist() == [[[[32.0] * 2] * 2]]


def test_quantized_operands_that_do_not_fit_are_refused(rng):
    a, b = quantized(rng)
    x = rng.standard_normal((96, 96))
    cases = [
        (lambda: sf.matmul(a, b, scales=(a.scales, b.scales), accumulate=MX), "pass one of both"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, axis=0), b, accumulate=MX), r"blocks of a must run along k"),
        (lambda: sf.matmul(a, sf.block_quantize(x, sf.E4M3), accumulate=MX), r"block_quantize\(b, ..., axis=-2\)"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, block=16), x, accumulate=MX), "takes blocks of 32 products"),
        (lambda: sf.matmul(sf.block_quantize(x, sf.E4M3, block=16), b, accumulate=sf.FP32),
         "blocks of one size along k; a has 16, b has 32"),
        (lambda: sf.matmul(*quantized(rng, sf.E4M3, sf.E4M3), accumulate=MX), "takes blocks of 32 .* of 16"),
    ]  # fmt: skip
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    "elements, scale", [(sf.E2M1, (32, sf.E8M0)), (sf.E2M1, (16, sf.E4M3)), (sf.E4M3, (32, sf.E8M0))]
)
@pytest.mark.parametrize("so_far", [0.0, 1.0, np.inf, -np.inf])
def test_a_nan_scale_makes_every_sum_so_far_nan_an_infinite_one_too(elements, scale, so_far):
    unit = sf.tensor_core("blackwell", elements, scales=scale)
    scales = np.ones((1, 128 // scale[0]))
    for block in range(scales.size):
        a_scales = scales.copy()
        a_scales[0, block] = np.nan
        for a in (np.ones((1, 128)), np.zeros((1, 128))):
            got = sf.matmul(a, np.ones((128, 1)), accumulate=unit, scales=(a_scales, scales.T), initial=so_far)
            assert np.isnan(got).all()
