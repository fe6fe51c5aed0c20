"""Conversions: zeros in E8M0 as in other libraries, integers on a GPU, and FP64 in modes other than nearest even."""

from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import is_on_gpu
from tests.bits import assert_bits
from tests.cuda.devices import StandIn

#: The upper nine bits of a float32, with remainders of zero, below half, half, and above half a step.
RESTS = np.array([0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF], np.uint32)
POSITIVE = (np.arange(256, dtype=np.uint32)[:, np.newaxis] << np.uint32(23) | RESTS).ravel().view(np.float32)

#: PyTorch and ml_dtypes round float32 values between 2^-127 and 3 * 2^-128 up, although 2^-127 is nearer.
ARE_NEAREST = ~((POSITIVE > 2.0**-127) & (POSITIVE < 1.5 * 2.0**-127))


def codes(x, rounding, zero):
    return sf.encode(sf.round(x, sf.E8M0, rounding, zero=zero), sf.E8M0)


def test_zeros_become_nan_as_in_ml_dtypes_or_the_smallest_number_as_in_torch():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    with np.errstate(all="ignore"):
        nan = POSITIVE.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    smallest = torch.tensor(POSITIVE).to(torch.float8_e8m0fnu).view(torch.uint8).numpy()
    assert (nan[POSITIVE == 0], smallest[POSITIVE == 0]) == (255, 0)
    for theirs, zero in ((nan, "nan"), (smallest, "smallest")):
        ours = codes(POSITIVE, sf.nearest_away, zero)
        assert np.array_equal(ours[ARE_NEAREST], theirs[ARE_NEAREST])
        assert not ours[~ARE_NEAREST].any() and (theirs[~ARE_NEAREST] == 1).all()


def test_zeros_become_the_smallest_number_as_in_cuda():
    # cuda_fp8.hpp: results below 2^-127 are clipped to it; `satfinite` clips results above 2^127 and infinities.
    bits = POSITIVE.view(np.uint32)
    exponent, rest = bits >> np.uint32(23), (bits & np.uint32(0x7FFFFF)) != 0
    up = np.minimum(np.where(exponent, exponent + rest, bits > 0x400000), 254)
    for rounding, want in ((sf.toward_positive, up), (sf.toward_zero, np.minimum(exponent, 254))):
        want = np.where(np.isnan(POSITIVE), 255, want)
        assert np.array_equal(codes(POSITIVE, rounding.saturating(), "smallest"), want)


def test_the_option_zero_changes_only_results_for_zeros():
    x = np.array([[0.0, -0.0, -1.0], [np.nan, 3.0, 1e-45]], np.float32)
    results, flags = sf.round(x, sf.E8M0, zero="smallest", flags=True)
    assert_bits(results, np.array([[2.0**-127, 2.0**-127, np.nan], [np.nan, 2.0, 2.0**-127]], np.float32))
    assert flags.tolist() == [[1, 1, 16], [0, 1, 3]]
    assert x[0, 0] == 0 and sf.round(0.0, sf.E8M0, zero="smallest") == 2.0**-127
    assert np.isnan(sf.round(0.0, sf.E8M0, zero="nan"))
    assert sf.round([Fraction(0), Fraction(1, 3)], sf.E8M0, zero="smallest").tolist() == [2.0**-127, 0.25]
    assert sf.round(x, sf.E8M0, zero="smallest", out=x) is x and x[0, 0] == 2.0**-127
    with pytest.raises(ValueError, match="flags must be True or False, got 0"):
        sf.round(x, sf.E8M0, zero="smallest", flags=0)
    for format, zero, words in (("bf16", "nan", "BF16 has one. Omit zero="), ("e8m0", 0, "'nan', 'smallest'; got 0")):
        with pytest.raises(ValueError, match=words):
            sf.round(0.0, format, zero=zero)


def test_integers_on_a_gpu_are_rounded_once_and_results_are_on_the_gpu():
    integers, device = np.array([2**60 + 2**36 + 1, -(2**53) - 1, 3]), StandIn()
    with device.present():
        moved = device.take(integers)
        for call in (
            lambda x: sf.round(x, sf.FP32), lambda x: sf.round(x * 0 + 2**60, sf.FP32),
            lambda x: sf.add(x, 1, sf.FP64), lambda x: sf.rint(x, sf.FP32), lambda x: sf.fmod(x % 1000, 7, sf.FP32),
            lambda x: sf.round(x * (x != 3), sf.E8M0, zero="smallest"),
        ):  # fmt: skip
            there = call(moved)
            assert is_on_gpu(there)
            assert_bits(there.get(), call(integers))


def test_the_error_for_a_mode_in_fp64_names_the_operations_that_support_it():
    with pytest.raises(ValueError, match="Sums and .* have FP64 in every deterministic mode") as error:
        sf.exp2(0.5, sf.FP64, sf.toward_zero)
    counts = {"fma": 3, "fmod": 2, "remainder": 2, "copysign": 2, "hypot": 2}
    for name in "rint floor ceil trunc fmod remainder copysign cbrt hypot reciprocal rsqrt fma sqrt".split():
        assert name in str(error.value)
        assert getattr(sf, name)(*[0.5] * counts.get(name, 1), sf.FP64, sf.toward_zero) >= 0
    with pytest.raises(
        ValueError, match="add rounds to formats with at most 50 bits of precision, or to FP64 in every"
    ):
        sf.add(0.5, 0.5, sf.Format(11, 50))
