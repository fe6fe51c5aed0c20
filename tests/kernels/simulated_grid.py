"""Run by test_simulator.py: the scalar functions on a simulated GPU grid, one thread per element."""

import sys

import numpy as np
from numba import cuda

from simfloat.kernels.elementwise import exact
from simfloat.kernels.functions import powers_and_logarithms, trigonometric
from simfloat.kernels.rounding import grid, one_number, random
from simfloat.kernels.sums import orders
from simfloat.kernels.units import aligned, matrix_cores


@cuda.jit
def compute(a, b, c, numbers, out):
    i = cuda.grid(1)
    if i < a.size:
        g = grid.unpack_grid(numbers)
        word = random.words_at(*(np.uint64(v) for v in (i // 4, 0, 3, 0, 2**40)))[i % 4]
        out[0, i] = one_number.one_nan(one_number.nearest(exact.add_odd(a[i], b[i], 1.0), g))
        out[1, i] = one_number.one_nan(one_number.nearest(exact.fma_odd(a[i], b[i], c[i], 1.0), g))
        out[2, i] = one_number.one_nan(one_number.round_to_any_grid(exact.multiply_odd(a[i], b[i]), word, g))
        out[3, i] = one_number.one_nan(one_number.round_by_threshold(exact.divide_odd(a[i], b[i]), word, g))
        out[4, i] = one_number.one_nan(one_number.nearest(trigonometric.sin_quick(a[i]), g))
        high, low, exponent = trigonometric.cos_wide(2.0**60 * a[i])
        out[5, i] = one_number.one_nan(one_number.nearest(exact.round_pair_to_odd(high, low, exponent), g))
        high, low, exponent = powers_and_logarithms.power_wide(a[i], 2.0 * b[i])
        out[6, i] = one_number.one_nan(one_number.nearest(exact.round_pair_to_odd(high, low, exponent), g))
        out[7, i] = one_number.one_nan(aligned.truncate_to_format(a[i] * b[i], g))
        out[8, i] = one_number.one_nan(matrix_cores._nearest_sum(*exact.two_product(a[i], b[i]), c[i]))
        out[9, i] = one_number.one_nan(
            orders.wide_add(a[i], b[i], np.float64(word), orders.StepOptions(g, g, 1.0, False))
        )


if __name__ == "__main__":
    data = np.load(sys.argv[1])
    out = np.empty((10, data["a"].size))
    with np.errstate(all="ignore"):
        for name in ("nearest", "stochastic"):
            compute[-(-data["a"].size // 32), 32](data["a"], data["b"], data["c"], data[name], out)
            np.save(sys.argv[1] + "." + name, out)
