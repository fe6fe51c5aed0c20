"""Numbers that float64 lacks are operands of every elementwise operation, and are rounded once."""

import fractions
import math
import random
import re
import time
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.operands import as_operand
from tests.bits import assert_bits
from tests.checks import assert_refused

MODES = (sf.nearest_even, sf.nearest_away, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd)
FORMATS = (sf.FP16, sf.BF16, sf.FP32, sf.E4M3, sf.FP64)
THIRD = Fraction(1, 3)


def magnitude_of(code, format):
    """The number of a code, going on beyond the largest one."""
    field, fraction = divmod(code, 1 << format.mantissa_bits)
    hidden = (1 << format.mantissa_bits) if field else 0
    return (hidden + fraction) * Fraction(2) ** (max(field, 1) - format.bias - format.mantissa_bits)


def rounded_by_codes(x, format, rounding):
    """A fraction rounded by a search among the codes of a format, a definition of its own."""
    size, negative = abs(x), x < 0
    low, high = 0, format.max_code + (2 << format.mantissa_bits)
    if size >= magnitude_of(high, format):
        code = high
    else:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if magnitude_of(middle, format) <= size else (low, middle)
        rest = size - magnitude_of(low, format)
        side = (rest > magnitude_of(high, format) - size) - (rest < magnitude_of(high, format) - size)
        away = {
            "nearest_even": side > 0 or (side == 0 and low % 2 == 1), "nearest_away": side >= 0, "toward_zero": False,
            "toward_positive": not negative, "toward_negative": negative, "to_odd": low % 2 == 0,
        }[rounding.mode]  # fmt: skip
        code = low + bool(rest and away)
    if code <= format.max_code:
        value = float(magnitude_of(code, format))
    elif rounding.stops(negative):
        value = format.max
    else:
        value = math.inf if format.has_infinity else math.nan
    return -value if negative else value


def near_ties(format, rng, count):
    """Fractions at, beside and far from ties of the format: some differ from one in the 300th digit alone."""
    for _ in range(count):
        code = rng.randrange(format.max_code + 2) if rng.random() < 0.8 else rng.randrange(1 << format.mantissa_bits)
        tie = (magnitude_of(code, format) + magnitude_of(code + 1, format)) / 2
        beside = tie if rng.random() < 0.5 else magnitude_of(code, format)
        beside += rng.choice((0, 1, -1)) * beside / Fraction(10) ** rng.choice((20, 50, 300))
        yield beside * rng.choice((1, -1))


def decimal_text(x):
    """A number with a finite decimal expansion, written in full."""
    shift = x.denominator.bit_length() - 1 + 350
    digits = x * Fraction(10) ** shift
    assert digits.denominator == 1
    return f"{Decimal(digits.numerator)}e-{shift}"


def test_a_number_of_any_precision_is_rounded_once():
    for x, format, result in (
        ("17.328679084777833", sf.FP32, 17.32868003845215), (2**60 + 2**36 + 1, sf.FP32, 2.0**60 + 2.0**37),
        ("0x1p3", sf.FP16, 8.0), ("0X1F", sf.FP16, 31.0), ("-0x.8", sf.FP16, -0.5),
        ("0x8a4.d047p-140", sf.FP64, float.fromhex("0x8a4.d047p-140")), ("1/3", sf.FP32, float(np.float32(1 / 3))),
        (THIRD, sf.BF16, 0.333984375), (Decimal("0.1"), sf.FP16, 0.0999755859375), (10**400, sf.FP16, math.inf),
        ("-0", sf.FP16, -0.0), ("-inf", sf.FP16, -math.inf), ("nan", sf.E4M3, math.nan),
        (" +1_0.5e-1 ", sf.FP16, 1.0498046875), (np.uint64(2**63 + 2**39 + 1), sf.FP32, 2.0**63 + 2.0**40),
        (np.int64(-(2**53) - 1), sf.FP64, -(2.0**53)),
    ):  # fmt: skip
        assert_bits(sf.round(x, format), np.array(result), of=x)
        assert_bits(sf.round([x], format), np.array([result]), of=x)
        assert_bits(sf.array(x, format).numbers.astype(np.float64), np.array(result), of=x)
    # NumPy converts all numbers of a list with a text to texts; the text of 0.1 is another number.
    assert_bits(sf.round([0.1, "0.1"], sf.FP64, sf.toward_negative), np.array([0.1, 0.09999999999999999]))
    assert_bits(sf.add([[0.5, "1/3"], [THIRD, 1]], np.float32(0.5), sf.BF16), [[1.0, 0.83203125], [0.83203125, 1.5]])
    out = np.zeros(2)
    assert sf.add(["0.1", 1], ["0.2", 2], sf.FP16, out=out) is out
    assert_bits(out, [0.300048828125, 3.0])
    with pytest.raises(ValueError, match="out must have the results' shape and type"):
        sf.round(["0.1"], sf.FP16, out=np.zeros(1, np.float32))


def test_decimals_are_read_up_to_the_power_that_the_message_names():
    assert_bits(sf.round([Decimal("1e10000"), Decimal("-1e-10000")], sf.FP16), [np.inf, -0.0])
    with pytest.raises(ValueError, match=r"is out of range: numbers are read from 10\^-10000 to 10\^10000"):
        sf.round([Decimal("1e10001")], sf.FP16)


def test_numbers_of_gmpy2_and_long_floats_are_read_exactly():
    gmpy2 = pytest.importorskip("gmpy2", reason="needs gmpy2 as a source of numbers")
    with gmpy2.context(precision=200):
        tie = gmpy2.mpfr(1) + gmpy2.mpfr(2) ** -11
        above = tie + gmpy2.mpfr(2) ** -150
        numbers = [tie, above, gmpy2.mpq(1, 3), gmpy2.mpz(2**60 + 2**36 + 1), gmpy2.mpfr("-0"), gmpy2.nan()]
        far = gmpy2.mpfr(2) ** 10**9
    assert_bits(sf.round(numbers[:3], sf.FP16), [1.0, 1.0009765625, 0.333251953125])
    assert_bits(sf.round(np.array(numbers[3:], object), sf.FP32), [2.0**60 + 2.0**37, -0.0, np.nan])
    with pytest.raises(ValueError, match="is out of range"):
        sf.round(far, sf.FP16)
    if np.finfo(np.longdouble).nmant > 52:
        long = np.array([1, 1, 0], np.longdouble) + np.array([2.0**-11, 2.0**-11, 0.0]).astype(np.longdouble)
        long[1] += np.longdouble(2) ** -60
        assert_bits(sf.round(long, sf.FP16), [1.0, 1.0009765625, 0.0])
        assert as_operand(long[[0, 2]]).dtype == np.float64


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_texts_and_fractions_beside_ties_are_rounded_as_a_search_among_codes_finds(format):
    numbers = list(near_ties(format, random.Random(1), 20))
    for rounding in MODES:
        expected = np.array([rounded_by_codes(x, format, rounding) for x in numbers])
        expected = np.where((expected == 0) & (np.array(numbers) < 0), -0.0, expected)
        for given in (numbers, list(map(decimal_text, numbers)), np.array(list(map(str, numbers)))):
            assert_bits(sf.round(given, format, rounding), expected)


def test_arithmetic_of_fractions_is_rounded_once():
    rng = random.Random(2)
    for format in FORMATS[:4]:
        a, b, c = (list(near_ties(format, rng, 25)) for _ in range(3))
        roots = [abs(x) for x in near_ties(format, rng, 12) if x]
        # The square of a number beside a tie has a root beside it, that of a tie one at it.
        cases = {
            "add": ((a, b), [x + y for x, y in zip(a, b, strict=True)]),
            "subtract": ((a, b), [x - y for x, y in zip(a, b, strict=True)]),
            "multiply": ((a, b), [x * y for x, y in zip(a, b, strict=True)]),
            "divide": ((a, b), [x / y for x, y in zip(a, b, strict=True)]),
            "fma": ((a, b, c), [x * y + z for x, y, z in zip(a, b, c, strict=True)]),
            "reciprocal": ((a,), [1 / x for x in a]),
            "sqrt": (([x * x for x in roots],), roots), "rsqrt": (([1 / (x * x) for x in roots],), roots),
        }  # fmt: skip
        for (name, (operands, results)), rounding in product(cases.items(), MODES):
            expected = [rounded_by_codes(x, format, rounding) for x in results]
            assert_bits(abs(getattr(sf, name)(*operands, format, rounding)), np.abs(expected), of=name)
    assert_bits(sf.sqrt(["-1/3", "inf", "-0", 4, "nan"], sf.FP16), [np.nan, np.inf, -0.0, 2.0, np.nan])


def test_a_draw_is_compared_with_the_exact_result():
    # nu lies beside a threshold of the draws by 2^-200, which no float64 shows.
    draws = ((bits, draw) for bits in (3, 8, 32) for draw in (1, 2 ** (bits - 1), 2**bits - 1))
    for (bits, draw), variant in product(draws, "ABC"):
        rounding = sf.stochastic(bits, variant)
        least = Fraction(2**bits - draw, 2**bits) - {"A": 0, "B": 1, "C": 1}[variant] * Fraction(1, 2 ** (bits + 1))
        # In variant C a half goes to the even one.
        goes_up = variant != "C" or (2**bits - draw) % 2 == 0
        for shift, up in ((-1, False), (0, goes_up), (1, True)):
            x = 1 + (least + shift * Fraction(1, 2**200)) / 1024
            for got in (
                sf.round([x], sf.FP16, rounding, stream=sf.GivenBits([draw])),
                sf.divide([3 * x], [3], sf.FP16, rounding, stream=sf.GivenBits([draw])),
            ):
                assert_bits(got, [1 + up / 1024])


def test_draws_are_those_of_the_same_numbers_in_float64():
    x = np.random.default_rng(4).standard_normal(50)
    texts = [Fraction(v) + Fraction(1, 10**300) for v in x]
    for bits in (5, 16, 32):
        both = (sf.multiply(given, 3.0, sf.E4M3, sf.stochastic(bits), stream=sf.BitStream(7)) for given in (x, texts))
        assert_bits(*both)
    stream = sf.BitStream(1)
    sf.add("0.1", "0.2", sf.FP16, sf.stochastic(), stream=stream)
    assert stream.state == {"seed": 1, "calls": 1}


def test_functions_of_numbers_that_float64_lacks_are_rounded_once():
    mpmath = pytest.importorskip("mpmath", reason="needs mpmath as an oracle")
    rng = random.Random(5)
    of = {name: getattr(mpmath, name) for name in "exp log sin cos tan atan tanh sinh asinh erf".split()}
    with mpmath.workdps(120):
        for name, function in of.items():
            numbers = [Fraction(rng.randrange(1, 10**40), 10**39) for _ in range(12)]
            exact = [function(mpmath.mpf(x.numerator) / x.denominator) for x in numbers]
            fractions = [Fraction(int(mpmath.floor(v * 2**300)), 2**300) for v in exact]
            for format in (sf.FP16, sf.FP32, sf.FP64):
                for rounding in MODES if format != sf.FP64 else (sf.nearest_even,):
                    expected = [rounded_by_codes(v, format, rounding) for v in fractions]
                    assert_bits(getattr(sf, name)(list(map(str, numbers)), format, rounding), expected)


def test_functions_have_their_exact_and_special_results():
    for name, operands, result in (
        ("log10", (["0.001", "1e400", 10**23],), [-3.0, 400.0, 23.0]),
        ("log2", ([2**2000, Fraction(1, 2**2000)],), [2000.0, -2000.0]),
        ("power", (["1/9", "0.01", "8/27"], [0.5, -0.5, THIRD]), [1 / 3, 10.0, 2 / 3]),
        ("power", ([-THIRD, -THIRD, -THIRD], [2, 3, THIRD]), [1 / 9, -1 / 27, np.nan]),
        ("power", ([0.0, -0.0, "1/3"], [THIRD, 2**53 + 1, "inf"]), [0.0, -0.0, 0.0]),
        ("tanh", (["1000000.1", "-1e300"],), [1.0, -1.0]),
        ("exp", (["-1e5000", "1e5000", 1, "inf"],), [0.0, np.inf, math.e, np.inf]),
        ("log", (["-1/3", "inf", 0],), [np.nan, np.inf, -np.inf]),
        ("atan2", (["0.1", "-0.1", "0.1"], [0.0, "-inf", "-0.1"]), np.array([1 / 2, -1, 3 / 4]) * np.pi),
    ):
        assert_bits(getattr(sf, name)(*operands, sf.FP32), sf.round(result, sf.FP32), of=name)


def test_numbers_that_float64_holds_have_the_bits_of_the_compiled_functions():
    x = np.random.default_rng(6).standard_normal(40)
    for name in ("exp", "erf", "lgamma"):
        for rounding, stream in ((sf.nearest_even, lambda: None), (sf.stochastic(), lambda: sf.BitStream(3))):
            alone = getattr(sf, name)(np.append(x, 1.0), sf.FP32, rounding, stream=stream(), flags=True)
            among = getattr(sf, name)([*x, "1/3"], sf.FP32, rounding, stream=stream(), flags=True)
            for one, other in zip(alone, among, strict=True):
                assert np.array_equal(one[:-1], other[:-1])


def test_flags_are_those_of_the_exact_result():
    for name, operands, flags in (
        ("round", (["0.1", "0.5", "1e6", "1e-300", "nan"],), [1, 0, 5, 3, 0]),
        ("divide", (["1/3", "1/3", "0", "1/3"], ["1/3", 0, 0, 7]), [0, 8, 16, 1]),
        ("sqrt", (["1/9", "0.01", "-1/3", "6.25"],), [1, 1, 16, 0]),
        ("exp", (["0.1", "-1e4", "1e4", 0],), [1, 3, 5, 0]),
    ):
        assert getattr(sf, name)(*operands, sf.FP16, flags=True)[1].tolist() == flags, name


def test_an_observer_counts_them_as_the_same_numbers_in_float64():
    floats = np.array([0.3, 1e5, 1e-300, -1e-6, np.nan, 2.0, 512.0])
    exact = [Fraction(x) + Fraction(1, 10**400) if x == x else x for x in floats.tolist()]
    kinds = "total", "overflow", "underflow", "subnormal", "nan"
    for name, others in (("round", ()), ("add", (1e-9,)), ("fma", (1e-5, 3.0)), ("exp", ()), ("divide", (3.0,))):
        counts = []
        for given in (floats, exact):
            recorder = sf.Recorder(more=True)
            getattr(sf, name)(given, *others, sf.FP16, observer=recorder)
            counts.append([recorder.counts()[kind] for kind in kinds])
        assert counts[0] == counts[1]
    for name, operands, lost in (  # an addend that is lost is counted
        ("add", ([512.0, 512.0, "-1/3"], ["1e-9", "1/3", 0]), 1), ("subtract", (["1e-9"], [512.0]), 1),
        ("fma", (["1/3", "1/3", 1], [1e-9, 3, 2], [512.0, "1e-9", 3]), 2),
    ):  # fmt: skip
        recorder = sf.Recorder()
        getattr(sf, name)(*operands, sf.FP16, observer=recorder)
        assert recorder.counts()["unchanged"] == lost


def test_invalid_and_huge_operands_are_refused_at_once():
    start = time.process_time()
    for x in (
        *("1e", "0x", "", "1/0", "0x.p1", "1,5", "1e999999999", "0x1p99999999999", "1e99999999999999999999"),
        *("1" * 10**6, "0." + "1" * 10**6, "1/" + "7" * 10**5, 10**10**6, Fraction(1, 10**10**5)),
        *(Decimal("1e999999"), Decimal("1" * 10**6), [[1.0, "x"]], "1e-10001"),
    ):
        for call in (lambda x: sf.round(x, sf.FP16), lambda x: sf.add(x, 1.0, sf.FP16), lambda x: sf.array(x, sf.FP16)):
            with pytest.raises(ValueError, match="real numbers, and .* is (not a number|out of range)") as refused:
                call(x)
            assert len(str(refused.value)) < 500 and "set_int_max_str_digits" not in str(refused.value)
    assert time.process_time() - start < 20


def test_the_remedy_for_a_number_of_mpmath_is_exact():
    mpmath = pytest.importorskip("mpmath", reason="needs mpmath for its numbers")
    with mpmath.workprec(200):
        x = -(1 + mpmath.mpf(2) ** -11 + mpmath.mpf(2) ** -100)  # float64 has a tie
    for operand in (x, [1.0, x]):
        with pytest.raises(ValueError, match=r"got mpf; pass fractions\.Fraction\(") as error:
            sf.round(operand, sf.FP16)
    remedy = re.search(r"pass (.*), which is exact, or (.*), which is rounded", str(error.value))
    exact, rounded = (eval(text, {"mpmath": mpmath, "fractions": fractions, "x": x}) for text in remedy.groups())
    assert (sf.round(exact, sf.FP16), sf.round(rounded, sf.FP16)) == (-1 - 2.0**-10, -1.0)


def test_a_function_without_exact_operands_says_how_to_round_them_once():
    for given, found in ((["0.5"], "got the text '0.5'"), ([THIRD], "float64 cannot hold exactly, such as 1/3")):
        for call in (
            lambda x: sf.sum(x, accumulate=sf.FP32), lambda x: sf.dot(x, x, accumulate=sf.FP32),
            lambda x: sf.matmul([x], [x], accumulate=sf.FP32), lambda x: sf.Tensor(x),
            lambda x: sf.dot([1.0], [1.0], accumulate=sf.FP32, initial=x[0]), lambda x: sf.block_quantize(x, sf.E4M3),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=rf"{found}.*: pass simfloat.round\(.*rounds such numbers once"):
                call(given)
    assert sf.sum([Fraction(1, 2), Decimal("0.25")], accumulate=sf.FP32) == 0.75
    assert_refused(
        (lambda: sf.gelu(2**53 + 1, sf.FP64),
         "gelu of 9007199254740993 cannot be rounded: 960 digits do not decide"),
        (lambda: sf.zeta(2, "-1.1", sf.FP16), "zeta of 2 and -11/10 is not implemented"),
        (lambda: sf.encode(["0.5", "0.1"], sf.FP16),
         "1/10 at index 1 is not a number of FP16; round to the format first"),
        (lambda: sf.ulp("1e400", sf.FP64), "beyond the range of float64"),
    )  # fmt: skip


def test_spacings_codes_and_neighbours_read_them():
    assert_bits(sf.ulp(["0.1", "1e-400", "inf", 1], sf.FP16), [2.0**-14, 2.0**-24, np.nan, 2.0**-10])
    beside = ["1.0000000000000000001", "0.99999999999999999999", 1]
    assert_bits(sf.nextafter(1.0, beside, sf.FP16), [1.0009765625, 0.99951171875, 1.0])
    assert sf.encode(["0.5", Fraction(1, 4)], sf.FP16).tolist() == [0x3800, 0x3400]
