"""Compare IEEE exceptions with an adder, a multiplier and a divider in integers, and with fractions."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.formats.exceptions import flags_of
from simfloat.tools.selftest.checks import adversarial, operands
from simfloat.tools.selftest.definitions import exact
from simfloat.tools.selftest.operations import SPECIALS
from tests import softfloat
from tests.bits import CUSTOM, DETERMINISTIC, assert_bits

TININESS = ("after_rounding", "before_rounding")
PAIRS = ("add", "subtract", "multiply", "divide")
NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16


def assert_flags(got, want, *inputs):
    assert got.dtype == np.uint8
    at = np.flatnonzero(got != np.asarray(want))[:1]
    assert not at.size, (got[at], np.asarray(want)[at], [np.broadcast_to(x, got.shape)[at] for x in inputs])


@pytest.mark.parametrize("tininess", TININESS)
def test_every_pair_of_8_bit_numbers_has_the_bits_and_flags_of_softfloat_in_every_mode(tininess):
    codes = np.arange(256, dtype=np.uint8)
    x, y = (codes.ravel() for codes in np.meshgrid(codes, codes))
    for base, operation, rounding in itertools.product((sf.E5M2, sf.E4M3_IEEE, sf.Format(3, 4)), PAIRS, DETERMINISTIC):
        format = replace(base, tininess=tininess)
        a, b = sf.decode(x, format), sf.decode(y, format)
        want_codes, want = getattr(softfloat, operation)(x, y, format, rounding.mode, tininess)
        got, flags = getattr(sf, operation)(a, b, format, rounding, flags=True)
        assert_bits(got, sf.decode(want_codes, format), a, b)
        assert_flags(flags, want, a, b)


def by_definition(x, numbers, format, rounding, draw=0, is_fma=False):
    return [flags_of(*case, format, rounding, draw, is_fma) for case in zip(x, numbers, strict=True)]


@pytest.mark.parametrize("format", [*CUSTOM, sf.FP64, sf.FP32, sf.BF16, sf.FP16, sf.E4M3, sf.E2M1, sf.E8M0], ids=repr)
def test_roundings_have_the_flags_of_the_definition(format, rng):
    x = np.concatenate([adversarial(format, rng, 3), [0.0, -0.0, np.inf, -np.inf]])
    if not format.has_nan:
        x = x[~np.isnan(x) & ((x >= 0) | format.signed)]
    for rounding in (*DETERMINISTIC, sf.nearest_even.saturating()):
        got, flags = sf.round(x, format, rounding, flags=True)
        assert_bits(got, sf.round(x, format, rounding), x)
        assert_flags(flags, by_definition(x.tolist(), [()] * x.size, format, rounding), x)


def test_draws_decide_what_overflows_and_what_is_tiny():
    for base, tininess in itertools.product((sf.E4M3, sf.E5M2, sf.Format(3, 2, special="finite"), sf.E8M0), TININESS):
        format = replace(base, tininess=tininess)
        ends = (format.smallest_normal, format.max)
        x = np.concatenate([end * np.arange(200 + (end > 1), 300 + 60 * (end > 1)) / 256 for end in ends])
        for variant, draw in itertools.product("ABC", (0, 3, 4, 7)):
            rounding = sf.stochastic(3, variant)
            stream = sf.GivenBits(np.full(x.size, draw))
            _, flags = sf.round(x, format, rounding, stream=stream, flags=True)
            assert_flags(flags, by_definition(x.tolist(), [()] * x.size, format, rounding, draw), x)


@pytest.mark.parametrize(
    "format",
    [sf.FP64, sf.FP32, sf.FP16, sf.E4M3, sf.Format(11, 20, subnormals=False), sf.p3109(8, 3, signed=False)],
    ids=str,
)
def test_operations_on_any_numbers_have_the_flags_of_fractions(format, rng):
    specials = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    triples = np.array(list(itertools.product(specials, repeat=3))).T
    near = rng.standard_normal((3, 150)) * 2.0 ** rng.integers(-9, 9, (3, 150))
    edges = [5e-324, 2.0**-1022, 2.0**-1074 * 3, 1.7976931348623157e308, -(2.0**1023), 2.0**-511, 1.5 * 2.0**-512]
    ends = rng.choice(edges, (3, 120)) * rng.choice([1.0, 0.5, 0.75], (3, 120))
    narrow = sf.round(near, sf.E4M3)
    given = np.concatenate([triples, near, ends, narrow, operands(rng, 60)], axis=1)
    modes = (sf.nearest_even,) if format == sf.FP64 else (sf.nearest_even, sf.toward_negative, sf.to_odd)
    for operation, rounding in itertools.product((*PAIRS, "fma"), modes):
        numbers = given[: 3 if operation == "fma" else 2]
        got, flags = getattr(sf, operation)(*numbers, format, rounding, flags=True)
        assert_bits(got, getattr(sf, operation)(*numbers, format, rounding), *numbers)
        cases = list(zip(*numbers.tolist(), strict=True))
        results = [exact(operation, *case) for case in cases]
        assert_flags(flags, by_definition(results, cases, format, rounding, is_fma=len(numbers) == 3), *numbers)


def test_roots_and_reciprocals_are_inexact_unless_their_inverse_says_so(rng):
    x = np.concatenate([rng.integers(1, 99, 200) ** 2.0, 2.0 ** rng.integers(-1074, 1000, 200), rng.random(200)])
    for format in (sf.FP64, sf.FP32, sf.FP16):
        for function, undone in ((sf.sqrt, lambda r, v: r**2 == v), (sf.reciprocal, lambda q, v: q * v == 1)):
            results, flags = function(x, format, sf.nearest_even.saturating(), flags=True)
            pairs = zip(map(Fraction, results.tolist()), map(Fraction, x.tolist()), strict=True)
            assert_flags(flags & NX, np.array([not undone(*pair) for pair in pairs], np.uint8), x)


def test_functions_raise_the_exceptions_of_section_9_of_ieee_754():
    cases = [
        ("log", (0.0,), DZ), ("log", (-0.0,), DZ), ("log2", (0.0,), DZ), ("log", (-1.0,), NV), ("log", (1.0,), 0),
        ("log2", (8.0,), 0), ("log2", (3.0,), NX), ("rsqrt", (0.0,), DZ), ("rsqrt", (-0.0,), DZ),
        ("rsqrt", (-1.0,), NV), ("rsqrt", (4.0,), 0), ("rsqrt", (np.inf,), 0), ("sqrt", (-1.0,), NV),
        ("sqrt", (-0.0,), 0), ("reciprocal", (-0.0,), DZ), ("sin", (np.inf,), NV), ("cos", (-np.inf,), NV),
        ("sin", (0.0,), 0), ("cos", (0.0,), 0), ("sin", (1.0,), NX), ("exp", (1000.0,), OF | NX),
        ("exp", (-1000.0,), UF | NX), ("exp", (0.0,), 0), ("exp", (-np.inf,), 0), ("exp", (1.0,), NX),
        ("tanh", (np.inf,), 0), ("tanh", (40.0,), NX), ("sigmoid", (-np.inf,), 0), ("erf", (9.0,), NX),
        ("expm1", (-np.inf,), 0), ("expm1", (1000.0,), OF | NX), ("log1p", (-1.0,), DZ), ("log1p", (-1.5,), NV),
        ("sinh", (-0.0,), 0), ("sinh", (-1000.0,), OF | NX), ("cosh", (0.0,), 0), ("cosh", (1.0,), NX),
        ("tan", (np.inf,), NV), ("tan", (1.0,), NX), ("asin", (1.5,), NV), ("asin", (1.0,), NX), ("acos", (1.0,), 0),
        ("acos", (-np.inf,), NV), ("atan", (-0.0,), 0), ("atan", (np.inf,), NX), ("erfc", (np.inf,), 0),
        ("log10", (100.0,), 0), ("log10", (0.0,), DZ), ("log10", (-1.0,), NV), ("asinh", (np.inf,), 0),
        ("asinh", (1.0,), NX), ("acosh", (1.0,), 0), ("acosh", (0.5,), NV), ("atanh", (1.0,), DZ),
        ("atanh", (2.0,), NV), ("atan2", (0.0, 1.0), 0), ("atan2", (0.0, -1.0), NX), ("erfc", (30.0,), UF | NX),
        ("erfcx", (0.0,), 0), ("erfcx", (-30.0,), OF | NX), ("erfinv", (1.0,), DZ), ("erfinv", (2.0,), NV),
        ("ndtri", (0.0,), DZ), ("ndtri", (0.5,), 0), ("ndtri", (-1.0,), NV), ("log_ndtr", (np.inf,), 0),
        ("log_ndtr", (1.0,), NX), ("lgamma", (0.0,), DZ), ("lgamma", (2.0,), 0), ("lgamma", (-3.0,), DZ),
        ("digamma", (-2.0,), NV), ("digamma", (0.0,), DZ), ("digamma", (1.0,), NX), ("zeta", (1.0, 2.0), DZ),
        ("zeta", (0.5, 2.0), NV), ("zeta", (2.0, 1.0), NX), ("i0", (0.0,), 0), ("i0", (800.0,), OF | NX),
        ("i0e", (np.inf,), 0), ("i0e", (1.0,), NX), ("i1", (-0.0,), 0), ("i1", (1.0,), NX), ("i1e", (0.0,), 0),
        ("i1e", (1.0,), NX), ("gelu", (-np.inf,), 0), ("power", (0.0, -1.0), DZ), ("power", (0.0, -np.inf), 0),
        ("power", (-1.0, 0.5), NV), ("power", (-8.0, 3.0), 0), ("power", (np.nan, 0.0), 0),
        ("power", (2.0, 2000.0), OF | NX), ("power", (2.0, 0.5), NX), ("power", (np.nan, 2.0), 0),
        ("exp2", (2000.0,), OF | NX), ("exp2", (3.0,), 0), ("exp10", (2.0,), 0), ("exp10", (0.5,), NX),
        ("sinpi", (0.5,), 0), ("cospi", (0.25,), NX), ("cbrt", (27.0,), 0), ("cbrt", (2.0,), NX),
        ("hypot", (3.0, 4.0), 0), ("hypot", (1.0, 1.0), NX), ("hypot", (np.inf, np.nan), 0),
    ]  # fmt: skip
    for name, row in FUNCTIONS.items():
        for x, value in zip(SPECIALS, row.specials, strict=False):
            if not np.isfinite(value) or value in (-1.0, 0.0, 0.5, 1.0, 2.0):
                raised = NV if np.isnan(value) and not np.isnan(x) else DZ if np.isinf(value) and not np.isinf(x) else 0
                cases.append((name, (x,), raised))
    assert {name for name, *_ in cases} == set(FUNCTIONS) - {*PAIRS, "fma"}
    for (name, numbers, want), format in itertools.product(cases, (sf.FP64, sf.FP32, sf.BF16)):
        _, flags = getattr(sf, name)(*numbers, format, flags=True)
        assert flags == want, (name, numbers, format, int(flags))


def test_flags_do_not_depend_on_threads_blocks_observers_or_array_types(rng):
    x = rng.standard_normal(200_003) * 2.0 ** rng.integers(-30, 30, 200_003)
    for numbers, format, rounding in itertools.product(
        (x, x.astype(np.float32)), (sf.E4M3, sf.FP32), (sf.nearest_even, sf.stochastic(4))
    ):
        parts = [sf.multiply(v, numbers[7], format, flags=True)[1] for v in np.array_split(numbers, 9)]
        recorder, stream = sf.Recorder(), sf.BitStream(1)
        got, flags = sf.multiply(numbers, numbers[7], format, rounding, stream=stream, observer=recorder, flags=True)
        assert_bits(got, sf.multiply(numbers, numbers[7], format, rounding, stream=sf.BitStream(1)))
        assert recorder.counts()["overflow"] == np.count_nonzero(flags & OF)
        if rounding is sf.nearest_even:
            assert_flags(flags, np.concatenate(parts))


def test_flags_are_asked_for_by_true_and_nothing_else():
    for wrong, call in itertools.product((None, 1, "no"), (sf.round, sf.exp)):
        with pytest.raises(ValueError, match="flags must be True or False, got"):
            call([1.0], sf.BF16, flags=wrong)
    words = r"Inexact results of add cannot be detected in e11m49, .* 2\^-1070\. Compute without flags=True\.$"
    with pytest.raises(ValueError, match=words):
        sf.add(1.0, 2.0, sf.Format(11, 49), flags=True)


LANES = [
    *(sf.FP16, sf.BF16, sf.E4M3, sf.E5M2FNUZ, sf.E2M1, sf.TF32, sf.FP32, sf.Format(8, 7, subnormals=False)),
    *(sf.Format(8, 20, tininess="before_rounding"), sf.Format(8, 21)),
    sf.Format(5, 10, subnormals=False, tininess="before_rounding"),
]


@pytest.mark.parametrize("format", LANES, ids=repr)
def test_flags_of_float32_operands_are_those_of_float64_ones(format, rng):
    ends = np.array([format.smallest_subnormal, format.smallest_normal, format.max, 1.0, 3.0])
    near = (ends * (1 + np.array([0, 2.0**-23, -(2.0**-24), format.eps / 2, -format.eps / 4])[:, None])).ravel()
    ends = [0.0, -0.0, np.inf, -np.inf] if format.has_nan else [0.5]
    with np.errstate(over="ignore"):
        numbers = np.concatenate([near, -near, ends]).astype(np.float32)
    numbers = numbers[np.isfinite(numbers) | format.has_nan]
    counts = {"round": 1, "multiply": 2, "fma": 3, "reciprocal": 1}
    if format in (sf.FP16, sf.FP32):  # each operation in a narrower format, and in that of float32
        counts |= {"add": 2, "subtract": 2, "divide": 2, "sqrt": 1}
    usual = rng.standard_normal(2500).astype(np.float32)  # a block without any of these numbers, and more
    modes = [mode for plain in DETERMINISTIC for mode in (plain, plain.saturating())]
    for (operation, count), rounding in itertools.product(counts.items(), modes):
        operands = rng.choice(numbers, (count, 400))
        if rounding is sf.nearest_even:
            operands = np.concatenate([rng.choice(usual, (count, 2500)), operands], 1)
        if not format.has_nan and operation == "sqrt":
            operands = np.abs(operands)
        call = getattr(sf, operation)
        got, flags = call(*operands, format, rounding, flags=True)
        want, wanted = call(*operands.astype(np.float64), format, rounding, flags=True)
        assert_bits(got.astype(np.float64), want, *operands)
        assert_flags(flags, wanted, *operands)


def test_flags_of_functions_that_are_looked_up_are_those_that_are_computed():
    images = np.arange(1 << 16, dtype=np.uint32)
    for inputs, x in ((sf.BF16, (images << 16).view(np.float32)), (sf.FP16, sf.decode(images.astype("u2"), sf.FP16))):
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = x.astype(np.float64)
        for name, format in (("exp", sf.FP16), ("log", sf.E4M3), ("tanh", inputs), ("rsqrt", sf.BF16)):
            want = getattr(sf, name)(wide, format, flags=True)
            for _ in range(3):  # at first there is no table
                got = getattr(sf, name)(x, format, flags=True)
                assert_bits(got[0].astype(np.float64), want[0], x)
                assert_flags(got[1], want[1], x)


def test_exact_results_of_53_bits_raise_no_flag_in_fp64():
    exact = [("hypot", (1.0 + 2.0**-52, 0.0)), ("hypot", (3 * 1501199875790165.0, 4 * 1501199875790165.0))]
    for name, numbers in [*exact, ("exp2", (-1074.0,)), ("exp2", (np.full(3, -1074.0),))]:
        assert not getattr(sf, name)(*numbers, sf.FP64, flags=True)[1].any(), (name, numbers)
    assert sf.hypot(1.0, 1.0, sf.FP64, flags=True)[1] == NX
    assert sf.exp2(-1074.5, sf.FP64, flags=True)[1] == UF | NX


def test_saturating_results_in_fp64_have_the_flags_of_those_in_fp32():
    """For results that both formats round alike."""
    mode = sf.nearest_even.saturating()
    for name, numbers in [
        ("add", (1.0, 2.0)), ("divide", (1.0, 0.0)), ("reciprocal", (-0.0,)), ("rsqrt", (0.0,)), ("log", (0.0,)),
        ("sqrt", (np.inf,)), ("multiply", (np.inf, 0.0)), ("hypot", (np.inf, 1.0)), ("exp", (1e4,)), ("sqrt", (-1.0,)),
    ]:  # fmt: skip
        narrow, wide = (getattr(sf, name)(*numbers, f, mode, flags=True)[1] for f in (sf.FP32, sf.FP64))
        assert narrow == wide, name
    assert sf.add(1.7e308, 1.7e308, sf.FP64, mode, flags=True) == (sf.FP64.max, OF | NX)
    assert sf.exp(["1000", "1.1", "0"], sf.FP64, mode, flags=True)[1].tolist() == [OF | NX, NX, 0], "one by one"
    order = sf.pairwise(sf.FP64, rounding=mode)
    assert sf.dot([1e308, 1e308], [1.0, 1.0], accumulate=order, flags=True) == (sf.FP64.max, OF | NX)
