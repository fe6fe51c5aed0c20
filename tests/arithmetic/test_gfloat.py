"""Compare the rounding of float64 numbers with gfloat, which accepts the integers of stochastic rounding."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.definitions import draws
from tests.bits import assert_bits

FORMATS = {
    "binary16": sf.FP16, "bfloat16": sf.BF16, "binary32": sf.FP32, "ocp_e4m3": sf.E4M3, "ocp_e5m2": sf.E5M2,
    "ocp_e3m2": sf.E3M2, "ocp_e2m1": sf.E2M1,
}  # fmt: skip
MODES = {
    "TiesToEven": sf.nearest_even, "TiesToAway": sf.nearest_away, "TowardZero": sf.toward_zero,
    "TowardPositive": sf.toward_positive, "TowardNegative": sf.toward_negative,
}  # fmt: skip
VARIANTS = {"StochasticFastest": "A", "StochasticFast": "B", "Stochastic": "C"}


def numbers(format, rng, count):
    """Numbers of all exponents of the format and a few beyond its ends, some of them near ties."""
    exponents = rng.integers(format.emin - format.mantissa_bits - 2, format.emax, count)
    x = (1 + rng.integers(0, 2 ** (format.mantissa_bits + 3), count) * format.eps / 8) * 2.0**exponents
    x[::2] *= 1 + rng.standard_normal(x[::2].size) * 2.0**-40
    x = x * rng.choice([-1.0, 1.0], count)
    # What happens beyond max is a choice; there gfloat's is another.
    return x[np.abs(x) < format.max]


@pytest.mark.parametrize("name", FORMATS)
def test_roundings_agree_with_gfloat_given_the_same_random_bits(name, rng, gfloat):
    format, info = FORMATS[name], getattr(gfloat.formats, f"format_info_{name}")
    x = numbers(format, rng, 20_000)
    for mode, rounding in MODES.items():
        assert_bits(sf.round(x, format, rounding), gfloat.round_ndarray(info, x, gfloat.RoundMode[mode]), x)
    x = x[:1500]
    for bits, (mode, variant) in product((1, 3, 8, 32), VARIANTS.items()):
        rounding = sf.stochastic(bits, variant)
        random = np.array(draws(x.size, rounding, seed=5))
        want = gfloat.round_ndarray(info, x, gfloat.RoundMode[mode], srbits=random, srnumbits=bits)
        assert_bits(sf.round(x, format, rounding, stream=sf.BitStream(5)), want, x)
