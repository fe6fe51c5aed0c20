"""A signalling NaN operand becomes the quiet NaN, without a warning.

The conversion of a signalling NaN between float32 and float64 sets the processor's flag for invalid operations, and
NumPy warns about this flag.
"""

import numpy as np
import pytest

import simfloat as sf

OPERANDS = {
    "float32": np.array([0x7F800001, 0x3F800000, 0x40000000, 0xFFA00000], np.uint32).view(np.float32),
    "float64": np.array([0x7FF0 << 48 | 1, 0x3FF0 << 48, 0x4000 << 48, 0xFFF4 << 48], np.uint64).view(np.float64),
}

SCALINGS = [sf.per_tensor(), sf.block(2, sf.E8M0), sf.block(2, sf.E4M3), sf.block(2, sf.FP32)]
UNITS = [
    *(sf.FP16, sf.FP32, sf.FP64, sf.kahan(sf.FP32), sf.fused(4, 10), sf.blocked(3, sf.FP16, sf.FP32)),
    *(sf.tensor_core("hopper", sf.TF32), sf.matrix_core("cdna2", sf.BF16), sf.matrix_core("cdna3", sf.FP16)),
]


def is_the_one_nan(x):
    image = np.asarray(x, np.float64).view(np.uint64)
    return (image == np.float64(np.nan).view(np.uint64)).all()


@pytest.fixture(params=OPERANDS)
def x(request):
    return OPERANDS[request.param]


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
def test_in_a_scaled_operand(x, scaling):
    assert is_the_one_nan(sf.dot(x, np.ones_like(x), inputs=sf.scaled(sf.E4M3, scaling), accumulate=sf.FP32))


@pytest.mark.parametrize("rule", ["floor", "ceil", "rceil", "even"])
def test_in_a_block(x, rule):
    assert np.isnan(sf.block_quantize(x, sf.E4M3, block=2, rule=rule).scales).all()


@pytest.mark.parametrize("accumulate", UNITS, ids=str)
def test_in_a_sum_and_in_what_it_starts_from(x, accumulate):
    ones = np.ones_like(x)
    assert is_the_one_nan(sf.dot(x, ones, accumulate=accumulate))
    assert is_the_one_nan(sf.dot(ones, ones, accumulate=accumulate, initial=x[0]))
    assert is_the_one_nan(sf.partial_sums(x, ones, accumulate=accumulate))


def test_in_what_a_convolution_starts_from(x):
    image, kernel = np.ones((1, 1, 2, 2)), np.ones((1, 1, 1, 1))
    assert is_the_one_nan(sf.conv2d(image, kernel, accumulate=sf.FP32, initial=x[0]))
