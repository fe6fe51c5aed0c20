"""New arrays start at a cache line, and bits do not depend on the address of operands."""

import numpy as np

import simfloat as sf
from simfloat.arithmetic import operands
from tests.bits import assert_bits


def test_large_arrays_begin_with_a_line():
    for dtype in (np.float32, np.float64):
        for shape in ((operands.LEAST_ALIGNED,), (130, 127), (3, 1, 9000)):
            x = np.random.default_rng(0).standard_normal(shape[::-1]).T
            for array in (operands.empty(shape, dtype), operands.zeros(shape, dtype), operands.copy(x, dtype)):
                assert operands.is_cache_aligned(array) and array.flags.carray
                assert array.shape == shape and array.dtype == dtype
            assert not operands.zeros(shape, dtype).any()
            assert_bits(operands.copy(x, dtype), x.astype(dtype))
    for shape in ((), (0,), (5, 0, 2), (3, 4)):
        assert operands.empty(shape, np.float32).shape == operands.zeros(shape, np.float32).shape == shape


def test_results_do_not_depend_on_where_operands_begin(rng):
    a, b = np.float32(rng.standard_normal((2, 40, 512)))
    shifted, b = np.zeros(40 * 512 + 16, np.float32), b.reshape(512, 40)
    for accumulate in (sf.FP32, sf.FP16):
        want = sf.matmul(a, b, inputs=sf.BF16, accumulate=accumulate)
        for start in (0, 1, 5):
            right = shifted[start : start + b.size].reshape(512, 40)
            right[:] = b
            assert_bits(sf.matmul(a, right, inputs=sf.BF16, accumulate=accumulate), want)
            exact = sf.matmul(sf.round(a, sf.BF16), sf.round(right, sf.BF16), accumulate=accumulate)
            assert_bits(exact, want)
