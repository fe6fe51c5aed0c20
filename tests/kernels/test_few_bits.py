"""Operations on 16-bit numbers in one float32 operation have the bits of round-to-odd in float64."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.sources import ByHalfConversion, InFloat32Lanes, route_of
from simfloat.kernels.compile import processor
from simfloat.kernels.elementwise.float32 import COUNTS, FEW
from simfloat.kernels.elementwise.loops import BLOCK
from simfloat.kernels.rounding.grid import FEW_BITS
from tests.bits import assert_bits
from tests.kernels.test_single import hostile

MODES = (sf.nearest_even, sf.nearest_away, sf.nearest_even.saturating(), sf.nearest_away.saturating())

#: Formats with float32's exponents and at most 8 bits, and the one that the hardware converts to.
FORMATS = (sf.BF16, sf.Format(8, 3), sf.Format(8, 1), sf.FP16)


def assert_float64_agrees(name, operands, format, mode):
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = [x.astype(np.float64) for x in operands]
    function = getattr(sf, name)
    assert_bits(function(*operands, format, mode), function(*wide, format, mode), *operands)


def significands(bits):
    """All pairs of numbers in [1, 2) with this many bits."""
    some = np.float32(1 + np.arange(2 ** (bits - 1)) / 2 ** (bits - 1))
    return (x.reshape(-1) for x in np.meshgrid(some, some))


def test_the_short_loops_serve_the_modes_to_nearest():
    for name in FEW:
        for format in FORMATS[:3]:
            for mode in MODES:
                assert route_of(name, format, mode, True, CPU).rounds[1] == FEW_BITS
            assert route_of(name, format, sf.toward_zero, True, CPU).rounds[1] != FEW_BITS
        assert route_of(name, sf.TF32, sf.nearest_even, True, CPU).rounds[1] != FEW_BITS
        source = ByHalfConversion if processor.CONVERTS_FP16 else InFloat32Lanes
        assert route_of(name, sf.FP16, sf.nearest_even, True, CPU).source is source


def test_products_quotients_and_sums_of_all_significands_of_bfloat16():
    """Near both ends of the range and among the subnormals, where the last bits of both fall below float32's."""
    x, y = significands(8)
    for first, second in ((0, 0), (-126, 0), *((-120, low) for low in range(-15, -5)), (127, 0), (0, 126)):
        for mode in MODES[:2]:
            assert_float64_agrees("multiply", (np.ldexp(x, first), np.ldexp(y, second)), sf.BF16, mode)
            assert_float64_agrees("divide", (np.ldexp(x, first), np.ldexp(y, -second)), sf.BF16, mode)
    for gap in range(27):
        assert_float64_agrees("add", (x, np.ldexp(y, -gap)), sf.BF16, sf.nearest_even)
        assert_float64_agrees("subtract", (x, np.ldexp(y, -gap)), sf.BF16, sf.nearest_away)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_numbers_of_the_format(name, format, rng):
    count = COUNTS.get(name, 2)
    x, y, z = (sf.round(hostile(rng, 3 * BLOCK + 5), format) for _ in range(3))
    near = sf.round(rng.standard_normal((3, 2 * BLOCK)).astype(np.float32), format)
    # Ends of the range, cancelled products and sums just beside ties.
    z[::5], y[::7] = -sf.multiply(x, y, format)[::5], -x[::7]
    for mode in MODES:
        assert_float64_agrees(name, (x, y, z)[:count], format, mode)
        assert_float64_agrees(name, near[:count], format, mode)


def test_every_number_has_its_root_and_reciprocal():
    with np.errstate(invalid="ignore"):  # signalling NaN
        numbers = {
            sf.BF16: (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32),
            sf.FP16: np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32),
        }
    for format, x in numbers.items():
        for name in ("sqrt", "reciprocal"):
            assert_float64_agrees(name, (x,), format, sf.nearest_even)


def test_one_operand_with_more_bits_selects_the_careful_loop():
    """A sum just above a tie is one only if the addend beyond the format's bits counts."""
    ones = np.ones(2 * BLOCK, np.float32)
    for format, place in product((sf.BF16, sf.FP16), (0, BLOCK - 1, BLOCK, -1)):
        other = np.full(2 * BLOCK, format.eps / 2, np.float32)
        other[place] *= np.float32(1 + 2.0**-23)
        for got in (sf.add(ones, other, format), sf.fma(ones, ones, other, format)):
            assert got[place] == 1 + format.eps and np.sum(got != 1) == 1


def test_products_that_float32_has_not_are_added_exactly(rng):
    """x y + z where x y is beyond float32's range, and where its last bits are."""
    pair = np.float32([2.0**64, 2.0**-70, 1.9921875 * 2.0**-64, 2.0**-126, 0, np.inf])
    x, y, z = (v.reshape(-1) for v in np.meshgrid(pair, pair, np.float32([-(2.0**127), 2.0**-133, -0.0, 1, np.nan])))
    for mode in MODES:
        assert_float64_agrees("fma", (x, y, z), sf.BF16, mode)


def test_operands_that_broadcast(rng):
    x = sf.round(rng.standard_normal((3, BLOCK)).astype(np.float32), sf.BF16)
    for format in (sf.BF16, sf.FP16):
        for other in (np.float32(0.5), np.float32(0.1), x[:1], x[:, :1]):
            whole = np.broadcast_to(other, x.shape).copy()
            assert_bits(sf.multiply(x, other, format), sf.multiply(x, whole, format))
            assert_bits(sf.subtract(other, x, format), sf.subtract(whole, x, format))
            assert_bits(sf.fma(x, other, x, format), sf.fma(x, whole, x, format))
