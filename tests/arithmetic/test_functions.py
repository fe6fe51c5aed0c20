"""Compare elementary functions with MPFR."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.elementwise.loops import NATIVE, OPERATION_LOOPS, OPERATIONS
from simfloat.tools.selftest.operations import SPECIALS, UNARY_FUNCTIONS
from tests.bits import DETERMINISTIC, assert_bits

gmpy2 = pytest.importorskip("gmpy2", reason="needs gmpy2 (MPFR) as an oracle")

from tests import mpfr  # noqa: E402

#: No format has numbers as small, nor their reciprocals.
FAR = gmpy2.mpfr("0x1p-1200", 53)


#: Operands, with their number, of functions whose results become small: those of gelu lie on its expansions, too.
UNDERFLOWING = {"exp": (-745.2, 709.7, 800), "gelu": (-39.0, 11.0, 800)}


def numbers(name, rng, count=600):
    """Operands over float64's whole range, around 1, around multiples of pi / 2, and down to the smallest results."""
    count //= 6 if name in mpfr.LONG else 1
    x = [
        rng.standard_normal(count) * 2.0 ** rng.integers(-40, 9, count),
        rng.standard_normal(count // 2) * 2.0 ** rng.integers(-1074, 1022, count // 2),
        rng.uniform(-8, 8, count // 2),
        1 + rng.standard_normal(count) * 2.0 ** rng.integers(-52, -2, count),
        rng.integers(1, 2**50, count) * (np.pi / 2),
        rng.uniform(*UNDERFLOWING.get(name, (-1, 1, 9))),
        np.arange(1, 99) * (np.pi / 2),
        np.array([6381956970095103.0 * 2.0**797, *(n * 2.0**-1074 for n in (1, 3, 5, -1, -3, -5))]),
    ]
    if name == "gelu":
        x.append(np.arange(-39 * 128 + 1, 11 * 128, 3) / 128 + rng.choice([2.0**-9, 2.0**-8], 2133))
    x = np.concatenate(x)
    return np.abs(x) if UNARY_FUNCTIONS[name].positive else x


ODD = "asin asinh atan atanh erf erfinv i1 i1e reciprocal sin sinh tan tanh".split()
EVEN = "cos cosh i0 i0e".split()


def exact_by_magnitude(name, x):
    """Exact results rounded to odd; for odd and even functions, MPFR computes each magnitude once."""
    if name not in (*ODD, *EVEN):
        return mpfr.to_odd(mpfr.UNARY[name], x)
    magnitudes, places = np.unique(np.abs(x), return_inverse=True)
    exact = mpfr.to_odd(mpfr.UNARY[name], magnitudes)[places]
    return np.where(np.signbit(x), -exact, exact) if name in ODD else exact


@pytest.mark.parametrize("name", mpfr.UNARY)
@pytest.mark.parametrize("operands, part", [(sf.FP16, 1), (sf.BF16, 17)], ids=str)
def test_every_operand_of_16_bits_is_correctly_rounded_in_every_mode(name, operands, part):
    # In BF16, where most results are 0, 1 or infinite, every 17th operand is tested. Slow functions are tested with a
    # 32nd of these operands, and formats of 8 bits with a fourth.
    x = operands.values()[:: part * 32 if name in mpfr.LONG else part]
    x = np.concatenate([x, [-0.0, np.inf, -np.inf, np.nan]])
    exact = exact_by_magnitude(name, x)
    for format, step in ((sf.FP16, 1), (sf.BF16, 1), (sf.E4M3, 4), (sf.E5M2, 4)):
        for mode in DETERMINISTIC:
            got = getattr(sf, name)(x[::step], format, mode)
            assert_bits(got, sf.round(exact[::step], format, mode), x[::step])


def pairs(name, x):
    """(high, low, exponent) of every result, by the loop that makes them, or, of what has none, one by one."""
    if name in NATIVE:
        return [tuple(map(float, OPERATIONS[name][1](number, 0.0, 0.0, 1.0))) for number in x.tolist()]
    parts, zero = np.empty((3, x.size)), np.zeros(1)
    OPERATION_LOOPS[name].parts(x, zero, zero, 1.0, parts.reshape(-1))
    return zip(parts[0].tolist(), parts[1].tolist(), map(float, parts[2].view(np.int64).tolist()), strict=True)


@pytest.mark.parametrize("name", mpfr.UNARY)
def test_pairs_are_right_to_74_bits(name, rng):
    operands = numbers(name, rng)
    with gmpy2.context(precision=120, **mpfr.UNBOUNDED):
        for x, pair in zip(operands.tolist(), pairs(name, operands), strict=True):
            want = mpfr.UNARY[name](gmpy2.mpfr(x))
            if not FAR < abs(want) < 1 / FAR:
                continue  # beyond every format's range, where results only have to stay
            high, low, exponent = pair
            assert high + low == high, f"{x.hex()}: the first number is not the nearest one"
            high, low, exponent = map(gmpy2.mpfr, (high, low, exponent))
            assert abs((high + low) * gmpy2.exp2(exponent) - want) <= abs(want) * gmpy2.mpfr(2) ** -74, x.hex()


def assert_mpfrs(function, oracle, *operands, formats=(sf.FP32,)):
    """Compare results in FP64, and in these formats in every mode."""
    assert_bits(function(*operands, sf.FP64), mpfr.nearest(oracle, *operands), *operands)
    exact = mpfr.to_odd(oracle, *operands)
    for format, mode in itertools.product(formats, DETERMINISTIC):
        assert_bits(function(*operands, format, mode), sf.round(exact, format, mode), *operands)


@pytest.mark.parametrize("name", mpfr.UNARY)
def test_fp64_and_fp32_results_of_any_operand_equal_those_of_mpfr(name, rng):
    assert_mpfrs(getattr(sf, name), mpfr.UNARY[name], numbers(name, rng))


def test_lengths_angles_and_powers_of_any_operands_equal_those_of_mpfr(rng):
    # Triples with a hypotenuse of 54 bits, which is a tie of FP64, and squares that cancel, underflow and overflow.
    ties = rng.integers(2**50, 2**51, 500) | 1
    a, b = rng.standard_normal((2, 2000)) * 2.0 ** rng.integers(-30, 30, (2, 2000))
    far = 2.0 ** rng.integers(-1040, 980, 2000)
    a = np.concatenate([3.0 * ties, a, a * far, a * far, 5.0 * ties, [3e-310, 1e308, 2.0**-1074, 0.0, -0.0]])
    b = np.concatenate([4.0 * ties, b, b * far, b, 12.0 * 2.0**-60 * ties, [4e-310, 1e308, 2.0**-1074, -3.0, 0.0]])
    assert_mpfrs(sf.hypot, gmpy2.hypot, a, b, formats=(sf.FP32, sf.FP16))
    assert sf.hypot(np.inf, np.nan, sf.FP16) == sf.hypot(np.nan, -np.inf, sf.FP16) == np.inf
    assert sf.hypot(1.0, 2.0**-200, sf.FP16, "toward_positive") == 1 + 2.0**-10

    values = np.meshgrid(*[[0.0, -0.0, 1.5, -1.5, INF, -INF, NAN]] * 2)
    a, b = (np.append(x, specials) for x, specials in zip(angle_operands(rng), values, strict=True))
    a[::7], b[::5] = a[::7] * 2.0**900, b[::5] * 2.0**-900
    assert_mpfrs(sf.atan2, gmpy2.atan2, a, b)

    a = np.maximum(np.abs(numbers("log", rng)), 2.0**-1074)
    b = rng.uniform(-1080, 1030, a.size) / np.where(a == 1, 1, np.log2(a))
    b[::3] = rng.standard_normal(b[::3].size) * 2.0 ** rng.integers(-1000, 1000, b[::3].size)
    a[::4] *= -1
    b[::4] = np.rint(b[::4])
    a[::5] = np.rint(np.clip(a[::5], 1, 2.0**25))
    b[::5] = rng.integers(1, 10, b[::5].size) / 2
    assert_mpfrs(sf.power, mpfr.power, a, b)


@pytest.mark.parametrize("name", ["reciprocal", "rsqrt"])
def test_algebraic_functions_are_right_where_the_result_is_close_to_a_midpoint(name, rng):
    # The root of 4 - k ulps lies near 1/2 (1 + k 2^-54), the reciprocal of 1 + k ulps near 1 - k ulps.
    k, function, wide = np.arange(-2000, 2000), getattr(sf, name), sf.Format(11, 49)
    x = np.concatenate([4 + k * 2.0**-51, 1 + k * 2.0**-52, 2 + k * 2.0**-51, 1 / rng.integers(1, 2**26, 4000) ** 2.0])
    assert_mpfrs(function, mpfr.UNARY[name], x, formats=())
    exact = mpfr.to_odd(mpfr.UNARY[name], x)
    for mode, scale in itertools.product(DETERMINISTIC, (1.0, 2.0**-800, 2.0**900)):
        shift = 1 / scale if name == "reciprocal" else scale**-0.5
        assert_bits(function(x * scale, wide, mode), sf.round(exact * shift, wide, mode), x)


def test_functions_of_rational_operands_recognise_rational_results():
    # Half a spacing, which only exact results round to even.
    assert sf.sinpi(["1/6", "7/6", "-5/6"], sf.E8M0, "toward_positive").tolist()[0] == 0.5
    assert sf.sinpi(["1/6", "7/6", "-5/6", 2**60 + 1], sf.FP32).tolist() == [0.5, -0.5, -0.5, 0.0]
    assert sf.cospi(["1/3", "-2/3", "5/3"], sf.FP32, sf.to_odd).tolist() == [0.5, -0.5, 0.5]
    assert sf.cbrt((2**60 + 1) ** 3, sf.FP64) == sf.round(2**60 + 1, sf.FP64)
    assert sf.cbrt("-1/27", sf.FP16) == -sf.round("1/3", sf.FP16)
    assert sf.hypot("3/7", "4/7", sf.FP32) == sf.round("5/7", sf.FP32)
    assert sf.exp10([22, 23, 3], sf.FP64, sf.nearest_even).tolist() == [1e22, 1e23, 1000.0]


def angle_operands(rng, count=4000):
    """Coordinates of any ratio, ratios near 1 and near powers of two, and axes."""
    y, x = rng.standard_normal((2, count)) * 2.0 ** rng.integers(-40, 40, (2, count))
    near = x * (1 + rng.standard_normal(count) * 2.0 ** rng.integers(-50, -1, count))
    return np.concatenate([y, near * 2.0 ** rng.integers(-9, 9, count), y * 0.0]), np.concatenate([x, x, x])


def assert_mpfrs_in_every_mode(function, oracle, a, b, outputs):
    exact = mpfr.to_odd(oracle, a, b)
    for output, mode in itertools.product(outputs, DETERMINISTIC):
        assert_bits(function(a, b, output, mode), sf.round(exact, output, mode), a, b)


@pytest.mark.parametrize("format", [sf.FP16, sf.BF16], ids=str)
def test_angles_and_powers_of_16_bit_numbers_are_correctly_rounded_in_every_mode(format, rng):
    outputs = sf.FP16, sf.BF16, sf.E4M3, sf.E5M2
    angles = (sf.round(x, format) for x in angle_operands(rng))
    assert_mpfrs_in_every_mode(sf.atan2, gmpy2.atan2, *angles, outputs)
    assert_mpfrs_in_every_mode(sf.power, mpfr.power, *power_operands(format, rng), outputs)


@pytest.mark.parametrize("format", [sf.E4M3, sf.E5M2], ids=str)
def test_every_power_of_8_bit_numbers_is_correctly_rounded_in_every_mode(format):
    values = sf.decode(np.arange(256), format).astype(np.float64)
    pairs = (x.ravel() for x in np.meshgrid(values, values))
    assert_mpfrs_in_every_mode(sf.power, mpfr.power, *pairs, (sf.FP16, sf.BF16, format))


def power_operands(format, rng, count=8000):
    """Any pair; bases near 1; exponents with few bits, of which many results are exact."""
    codes = rng.integers(0, 1 << format.bits, (2, count))
    near = 1 + rng.standard_normal(count) * 2.0 ** rng.integers(-12, -1, count)
    wide = rng.standard_normal(count) * 2.0 ** rng.integers(-20, 14, count)
    exact = rng.integers(1, 60, count) ** 2.0 ** rng.integers(0, 4, count) * 4.0 ** rng.integers(-2, 3, count)
    short = rng.integers(-40, 200, count) / 2.0 ** rng.integers(0, 6, count)
    a = np.concatenate([sf.decode(codes[0], format), near, exact, -near])
    b = np.concatenate([sf.decode(codes[1], format), wide, short, np.rint(wide)])
    return sf.round(a, format), sf.round(b, format)


def test_exact_results_are_returned_in_every_mode():
    wide, (a, b, want) = sf.Format(11, 49), np.array([
        *[(3, 2, 9), (4, 0.5, 2), (2, -3, 0.125), (0.25, -1.5, 8), (-3, 3, -27), (2.0**-20, 0.25, 2.0**-5), (7, 1, 7)],
        *[(3.0**32, 0.03125, 3), (3, 31, 3.0**31), (1 + 2.0**-24, 2, (1 + 2.0**-24) ** 2)],
        *[(6.25, 1.5, 15.625), (2.0**-1074, 0.5, 2.0**-537), (2.0**1023, -1, 2.0**-1023), (1e300, 0, 1)],
    ]).T  # fmt: skip
    for mode in DETERMINISTIC:
        assert_bits(sf.power(a, b, wide, mode), want, a, b)
        assert_bits(sf.log2([0.125, 1, 2.0**1000, 2.0**-1074], sf.FP32, mode), [-3, 0, 1000, -1074])
        assert_bits(sf.rsqrt([0.25, 1, 2.0**1000, 2.0**-1074], wide, mode), [2, 1, 2.0**-500, 2.0**537])
        assert_bits(sf.log10(10.0 ** np.arange(23), sf.FP32, mode), np.arange(23.0))
    assert sf.power(2.0**27 - 1, 2, sf.FP64) == 2.0**54 - 2.0**28, "a tie of FP64 goes to even"


@pytest.mark.parametrize("format", [sf.FP16, sf.FP32, sf.FP64], ids=str)
def test_specials(format):
    for name, row in UNARY_FUNCTIONS.items():
        assert_bits(getattr(sf, name)(SPECIALS, format), sf.round(row.specials, format), of=name)
    a, want = np.array(POWERS)[:, :1], np.array(POWERS)[:, 1:]
    assert_bits(sf.power(a, EXPONENTS, format), want, a, np.array(EXPONENTS))


#: IEEE 754-2019, 9.2.1: a, and pow(a, b) for b = 0, -0, 3, -3, 2, -2, 0.5, -0.5, inf, -inf, NaN.
EXPONENTS = [0.0, -0.0, 3, -3, 2, -2, 0.5, -0.5, np.inf, -np.inf, np.nan]
INF, NAN = np.inf, np.nan
POWERS = [
    (0.0, 1, 1, 0.0, INF, 0.0, INF, 0.0, INF, 0.0, INF, NAN),
    (-0.0, 1, 1, -0.0, -INF, 0.0, INF, 0.0, INF, 0.0, INF, NAN),
    (1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    (-1.0, 1, 1, -1, -1, 1, 1, NAN, NAN, 1, 1, NAN),
    (4.0, 1, 1, 64, 0.015625, 16, 0.0625, 2, 0.5, INF, 0.0, NAN),
    (-4.0, 1, 1, -64, -0.015625, 16, 0.0625, NAN, NAN, INF, 0.0, NAN),
    (0.25, 1, 1, 0.015625, 64, 0.0625, 16, 0.5, 2, 0.0, INF, NAN),
    (-0.25, 1, 1, -0.015625, -64, 0.0625, 16, NAN, NAN, 0.0, INF, NAN),
    (INF, 1, 1, INF, 0.0, INF, 0.0, INF, 0.0, INF, 0.0, NAN),
    (-INF, 1, 1, -INF, -0.0, INF, 0.0, INF, 0.0, INF, 0.0, NAN),
    (NAN, 1, 1, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN),
]


def test_small_powers_of_float32_numbers_have_the_bits_of_powers_of_the_same_in_float64(rng):
    """The one are rounded products of exact factors, the other powers like any."""
    x = rng.integers(0, 2**32, 20000, np.uint32).view(np.float32)
    x[:9] = [0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-149), 1.0 + 2.0**-23, -1.0]
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = x.astype(np.float64)
    cases = [(sf.FP64, sf.nearest_even)]
    for output in (sf.FP32, sf.FP16, sf.BF16, sf.E4M3, sf.Format(11, 49)):
        cases += [(output, mode) for mode in DETERMINISTIC if mode is not sf.toward_positive]
    for exponent, (output, mode) in itertools.product((2.0, 3.0, 4.0), cases):
        want = sf.power(wide, exponent, output, mode)
        assert_bits(sf.power(x, exponent, output, mode).astype(np.float64), want, x)
    recorders = [sf.Recorder(), sf.Recorder()]
    for given, recorder in zip((x, wide), recorders, strict=True):
        sf.power(given, 3.0, sf.FP16, observer=recorder)
    assert str(recorders[0]) == str(recorders[1]) and recorders[0].counts()["total"] == x.size


def test_power_recognises_integers_and_odd_integers_of_any_size():
    for n in range(48, 54):
        for y in (2.0**n, 2.0**n + 1, 2.0**n - 1, 1.5 * 2.0**n + 1, -(2.0**n) - 1, 2.0**n - 2):
            assert sf.power(-1.0, y, sf.FP16) == (-1.0 if y % 2 else 1.0), y
            assert np.signbit(sf.power(-0.0, y, sf.FP16)) == bool(y % 2), y
            assert sf.power(-2.0, y, sf.FP16) == (0.0 if y < 0 else np.inf if y % 2 == 0 else -np.inf), y
    for y in (2.0**51 + 0.5, 2.0**50 + 0.25, -(2.0**51) - 0.5):
        assert np.isnan(sf.power(-2.0, y, sf.FP16)) and not np.signbit(sf.power(-0.0, y, sf.FP16)), y


def test_zeta_of_any_operands_comes_to_an_end(rng):
    # Terms (q + k)^-s so close to each other that log(q + k) is log(q) were summed for ever.
    for s, q in ((1e201, 1e200), (1e305, 1e300), (1e60, 2.0), (3.0, 1e300)):
        assert sf.zeta(s, q, sf.FP64) == 0.0
        assert sf.zeta(s, q, sf.FP16, sf.toward_positive) == sf.FP16.smallest_subnormal
    s, q = rng.integers(0, 2**64, (2, 20_000), np.uint64).view(np.float64)
    result = sf.zeta(s, q, sf.FP16)
    assert np.isnan(result[(s < 1) | np.isnan(s) | np.isnan(q)]).all()
    assert not np.isnan(result[(s >= 1) & (q > 0)]).any()


def test_zeta_is_its_largest_terms_and_its_integral_where_they_decide():
    odd, even = 2.0**52 + 1, 2.0**1020
    for s, signs in ((odd, (1, -1, 1, 1)), (even, (1, 1, 1, 1))):
        for q, sign in zip((0.7, -0.3, -0.7, -1.7), signs, strict=True):
            assert sf.zeta(s, q, sf.FP16) == sign * np.inf
    for s, q in ((33, -0.5), (441, -2.5), (501, -1.5), (701, -0.5)):  # terms below zero take away those above
        above = 1 - Fraction(q)  # the first term that is left
        assert sf.zeta(float(s), q, sf.FP64) == float(sum((above + k) ** -s for k in range(64)))
    for s, q in ((2.0, 2.0**60), (2.0, 2.0**100), (2.0, 2.0**125), (3.0, 2.0**62)):
        integral = q ** (1 - s) / (s - 1)
        assert sf.zeta(s, q, sf.FP32, sf.toward_zero) == integral
        assert sf.zeta(s, q, sf.FP32, sf.toward_positive) == integral * (1 + 2.0**-23)
    assert sf.zeta(1 + 2.0**-52, 1e308, sf.FP64) == 2.0**52 - 709


def test_directed_modes_depend_on_bits_below_the_last_place():
    up, down = sf.toward_positive, sf.toward_zero
    for tiny in (2.0**-130, 2.0**-1074):
        assert sf.exp(tiny, sf.FP16, up) == 1 + 2.0**-10 and sf.exp(-tiny, sf.FP16, down) == 1 - 2.0**-11
        assert sf.cos(tiny, sf.FP16, down) == 1 - 2.0**-11 and sf.cos(tiny, sf.FP16, up) == 1
        assert sf.power(1 + 2.0**-52, tiny, sf.FP16, up) == 1 + 2.0**-10 and sf.power(3, -tiny, sf.FP16, up) == 1
        assert sf.sigmoid(tiny, sf.FP16, up) == 0.5 + 2.0**-11
        for function in (sf.tanh, sf.sin):
            below = np.nextafter(tiny, 0) if tiny < 2.0**-1000 else tiny * (1 - 2.0**-50)
            assert function(tiny, sf.Format(11, 49), down) == sf.round(below, sf.Format(11, 49), down)
            assert function(-tiny, sf.Format(11, 49), up) == -sf.round(below, sf.Format(11, 49), down)
    assert sf.tanh(50.0, sf.FP16, down) == 1 - 2.0**-11 and sf.tanh(500.0, sf.FP16, up) == 1
    assert sf.erf(50.0, sf.FP16, down) == 1 - 2.0**-11 and sf.erf(-1e300, sf.FP16, down) == -1 + 2.0**-11
    assert sf.sigmoid(500.0, sf.FP16, down) == 1 - 2.0**-11
    assert sf.exp(1000.0, sf.FP16, down) == 65504.0 and sf.exp(-1000.0, sf.FP16, up) == 2.0**-24
    assert sf.exp(1e300, sf.Format(11, 30)) == np.inf and sf.exp(-1e300, sf.Format(11, 30), up) > 0
    assert sf.power(3, 1e300, sf.FP16, down) == 65504.0 and sf.power(3, -1e300, sf.FP16, up) == 2.0**-24
    assert sf.power(-3, 1e15 + 1, sf.FP32, down) == -sf.FP32.max
    assert sf.power(-3, -1e15 - 1, sf.FP64) == 0 and np.signbit(sf.power(-3, -1e15 - 1, sf.FP64))


def test_directed_modes_see_which_side_of_half_the_operand_and_of_the_operand_gelu_is():
    up, down, away, wide = sf.toward_positive, sf.toward_negative, sf.nearest_away, sf.Format(11, 49)
    for tiny in (2.0**-60, 2.0**-200, 2.0**-1000):
        # x / 2 + x^2 / sqrt(2 pi), above x / 2 on either side of zero.
        assert_bits(sf.gelu([tiny, -tiny], wide, down), [tiny / 2, -tiny / 2])
        assert_bits(sf.gelu([tiny, -tiny], wide, up), [tiny / 2 * (1 + 2.0**-49), -tiny / 2 * (1 - 2.0**-50)])
    assert_bits(sf.gelu([2.0**-24, -(2.0**-24)], sf.FP16), [2.0**-24, -0.0])
    assert_bits(sf.gelu([2.0**-24, -(2.0**-24)], sf.FP16, away), [2.0**-24, -0.0])
    for large in (16.0, 2.0**20, 2.0**1000):
        assert_bits(sf.gelu(large, wide, down), large * (1 - 2.0**-50))
        assert_bits(sf.gelu(large * (1 + 2.0**-11), sf.Format(11, 10), away), large)
    for far in (-39.0, -1e300):
        assert_bits(sf.gelu(far, sf.FP16, down), -(2.0**-24))
        assert_bits(sf.gelu(far, sf.FP16, up), -0.0)
        assert_bits(sf.gelu(far, sf.FP64), -0.0)


@pytest.mark.parametrize("name", [*mpfr.UNARY, "power", "atan2"])
def test_stochastic_rounding_chooses_among_the_two_neighbours_and_keeps_exact_results(name, rng):
    x = rng.uniform(0.1, 3, 500)
    x = x / 4 if name in ("asin", "acos", "atanh", "erfinv", "ndtri") else x + 1 if name == "acosh" else x
    operands = (x, rng.uniform(-3, 3, 500)) if name in ("power", "atan2") else (x,)
    function = getattr(sf, name)
    for format in (sf.BF16, sf.FP32):
        low, high = (function(*operands, format, mode) for mode in (sf.toward_negative, sf.toward_positive))
        got = function(*operands, format, sf.stochastic(), stream=sf.BitStream(0))
        assert ((got == low) | (got == high)).all() and (got == low).any() and (got == high).any()
        exact = sf.power([3.0, 0.25, 7.0], [4, -1.5, 2], format, sf.stochastic(), stream=sf.BitStream(0))
        assert exact.tolist() == [81, 8, 49]


def test_float32_and_observer_and_streams_work_as_for_operations(rng):
    x = rng.standard_normal(100).astype(np.float32)
    assert sf.exp(x, sf.BF16).dtype == np.float32 and sf.power(x, x, sf.BF16).dtype == np.float32
    assert sf.power(x[:, None], x, sf.BF16).shape == (100, 100)
    assert_bits(sf.reciprocal(x, sf.FP32), sf.divide(1.0, x.astype(np.float64), sf.FP32), x)
    with pytest.raises(ValueError, match="pass stream="):
        sf.exp(x, sf.BF16, sf.stochastic())
