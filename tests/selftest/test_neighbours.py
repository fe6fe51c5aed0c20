"""The second definition of rounding agrees with the first, and with ml_dtypes."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.checks import DETERMINISTIC, all_values
from simfloat.tools.selftest.definitions import operate, operate_on_arrays
from simfloat.tools.selftest.operations import EIGHT_BITS, QUOTIENTS, SIX_BITS
from tests.bits import assert_bits

MODES = [mode for plain in DETERMINISTIC for mode in (plain, plain.saturating())]


@pytest.mark.parametrize("format", [*EIGHT_BITS, *SIX_BITS], ids=str)
def test_neighbours_agree_with_fractions(format, rng):
    a, b = rng.choice(all_values(format), (2, 60))
    b[::4] = -a[::4]
    for operation in QUOTIENTS:
        keep = (a != 0) | (b != 0) | (operation != "divide") | format.has_nan
        for rounding in MODES:
            want = [operate(operation, format, rounding, *pair) for pair in zip(a[keep], b[keep], strict=True)]
            assert_bits(operate_on_arrays(operation, (a[keep], b[keep]), format, rounding), want, a[keep], b[keep])


@pytest.mark.parametrize("format", [sf.E4M3, *SIX_BITS], ids=str)
def test_neighbours_agree_with_fractions_on_fma(format, rng):
    triple = rng.choice(all_values(format), (3, 100))
    triple[2, ::4] = -triple[0, ::4] * np.sign(triple[1, ::4])
    for rounding in MODES:
        want = [operate("fma", format, rounding, *numbers) for numbers in zip(*triple, strict=True)]
        assert_bits(operate_on_arrays("fma", tuple(triple), format, rounding), want, *triple)


@pytest.mark.parametrize(
    "format, name",
    [
        (sf.E4M3, "float8_e4m3fn"),
        (sf.E5M2, "float8_e5m2"),
        (sf.E3M4, "float8_e3m4"),
        (sf.E4M3_IEEE, "float8_e4m3"),
        (sf.E4M3FNUZ, "float8_e4m3fnuz"),
        (sf.E5M2FNUZ, "float8_e5m2fnuz"),
        (sf.E4M3B11FNUZ, "float8_e4m3b11fnuz"),
    ],
    ids=lambda x: str(x),
)
@pytest.mark.parametrize("operation", QUOTIENTS)
def test_neighbours_agree_with_ml_dtypes_on_every_pair(operation, format, name, ml_dtypes):
    # ml_dtypes computes in float32, whose 24 bits are at least 2p + 2: rounding twice is then harmless (Figueroa 1995).
    dtype = getattr(ml_dtypes, name)
    a, b = np.meshgrid(all_values(format), all_values(format))
    with np.errstate(all="ignore"):
        want = getattr(np, operation)(a.astype(dtype), b.astype(dtype)).astype(np.float64)
    assert_bits(operate_on_arrays(operation, (a, b), format, sf.nearest_even), want, a, b)


def test_neighbours_do_not_draw_random_bits():
    with pytest.raises(ValueError, match="deterministic modes, got stochastic"):
        operate_on_arrays("add", (np.ones(1), np.ones(1)), sf.E4M3, sf.stochastic())
