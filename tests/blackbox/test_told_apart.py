"""`reveal` distinguishes functions that are nearly one of our accumulators, and returns operands as a proof."""

import math
import re
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis import reveal
from simfloat.analysis.reveal.candidates import Candidate
from simfloat.analysis.reveal.check import equal, exclusion
from simfloat.analysis.reveal.probe import BlackBox
from simfloat.formats.definition import round_value
from tests.blackbox.test_reveal import FLUSHED_FP16, assert_gives_bits


def flushed(least, accumulator=sf.FP16):
    """Sums whose results are zero below `least`."""

    def f(a, b):
        s = float(sf.dot(a, b, accumulate=accumulator))
        return 0.0 if abs(s) < least else s

    return f


def clamped(most):
    return lambda a, b: np.clip(sf.dot(a, b, accumulate=sf.FP16), -most, most)


NEARLY = {
    "flushed to 2^-14": flushed(2.0**-14),
    "flushed to 2^-20": flushed(2.0**-20),
    "kahan flushed to 2^-20": flushed(2.0**-20, sf.kahan(sf.FP16)),
    "clamped to 60000": clamped(60000.0),
    "clamped to 64000": clamped(64000.0),
    "clamped to 65472": clamped(65472.0),
}


@pytest.mark.parametrize(("name", "k"), [*product(NEARLY, [3]), ("clamped to 60000", 29)])
def test_sums_that_differ_from_an_accumulator_at_an_end_of_the_range_only_are_distinguished_from_it(name, k):
    f = NEARLY[name]
    found = sf.reveal(f, k, seed=k, inputs=sf.FP32)
    if name == "flushed to 2^-14":
        assert (found.accumulator, found.output) == (sf.sequential(sf.FP16), FLUSHED_FP16)
        assert_gives_bits(found, f, k)
    else:
        assert found.accumulator is None and "and each gives other bits. If f rounds its operands" in found.reason
    for (accumulator, output, rounding), a, b, result, other, _ in found.excluded[:50]:
        ours = sf.dot(a, b, accumulate=accumulator, output=output, rounding=rounding)
        assert equal(f(a, b), result) and equal(ours, other) and not equal(ours, result)


def fp16(x, rounding=sf.nearest_even):
    return round_value(x, sf.FP16, rounding)


def infinite(x):
    return math.copysign(math.inf, x)


#: How an exact sum is rounded, and whether it is the last one: FP16 but for one rare thing.
RARE = {
    "ties in the last binade go away": lambda x, last: fp16(x, sf.nearest_away if abs(x) >= 2**15 else sf.nearest_even),
    "ties of subnormals go away": lambda x, last: fp16(x, sf.nearest_away if abs(x) < 2**-14 else sf.nearest_even),
    "negative subnormals are flushed": lambda x, last: 0.0 if -(2**-14) < x < 0 else fp16(x),
    "the smallest results are flushed": lambda x, last: 0.0 if last and abs(x) < 2**-23 else fp16(x),
    "inner sums saturate": lambda x, last: fp16(x, sf.nearest_even if last else sf.nearest_even.saturating()),
    "negative sums saturate": lambda x, last: fp16(x, sf.nearest_even if x > 0 else sf.nearest_even.saturating()),
    "NaN stands for infinity": lambda x, last: fp16(x) if math.isfinite(fp16(x)) else math.nan,
    "all beyond max is infinite": lambda x, last: infinite(x) if abs(x) > 65504 else fp16(x),
    "what rounds to 65536 is max": lambda x, last: (
        fp16(x) if abs(x) >= 65536 else fp16(x, sf.nearest_even.saturating())
    ),
    "a binade lacks a bit": lambda x, last: round_value(x, sf.Format(5, 9), sf.toward_zero) if 8 <= x < 16 else fp16(x),
}


def in_order(step):
    def f(a, b):
        s = 0.0
        for place, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True), start=1):
            if math.isfinite(s):
                s = step(Fraction(s) + Fraction(x) * Fraction(y), place == len(a))
        return s

    return f


@pytest.mark.parametrize("name", RARE)
def test_sums_that_differ_from_an_accumulator_in_one_rare_way_are_distinguished_from_it(name):
    found = sf.reveal(in_order(RARE[name]), 4, inputs=sf.FP32)
    assert found.accumulator is None and "other bits" in found.reason


def test_accumulators_that_were_hard_to_exclude_are_printed_with_operands():
    found = sf.reveal(in_order(RARE["all beyond max is infinite"]), 3)
    close = [exclusion for exclusion in found.excluded if exclusion.is_close]
    assert [exclusion.candidate.accumulator for exclusion in close] == [sf.sequential(sf.FP16)]
    lines = str(found).split("\n")[3:]
    difference = r"gives \S+, f \S+ for a = \[.*\], b = \[.*\]"
    assert len(lines) == 3 and found.nearest[0] is close[0]
    assert re.fullmatch(rf"  closest: sequential\(FP16\): \d+ of \d+ sums agree; it {difference}", lines[0])
    assert re.fullmatch(rf"  excluded: .* {difference}", lines[1])


def test_the_closest_accumulator_of_the_order_is_printed_first(monkeypatch):
    """It differs only for subnormal operands. Matrix units of other orders are tried before it."""
    monkeypatch.setattr(reveal, "MOST_CANDIDATES", 40)
    computed = {}

    def without_subnormals(a):
        return np.where(abs(a) < 2.0**-126, 0, a)

    def f(a, b):
        computed[a.tobytes(), b.tobytes()] = a, b
        return sf.dot(without_subnormals(a), b, inputs=sf.BF16, accumulate=unit)

    unit = sf.blocked(4, sf.fused(4, 16, sf.FP32), sf.FP32)
    found = sf.reveal(f, 6, inputs=sf.BF16)
    a, b = map(np.array, zip(*computed.values(), strict=True))
    sums = [sf.matmul(x, b.T, inputs=sf.BF16, accumulate=unit).diagonal() for x in (a, without_subnormals(a))]
    agreement = equal(*sums).sum(), len(a)
    assert found.accumulator is None and found.nearest[0].agreement == agreement
    assert f"\n  closest: {unit}: {agreement[0]} of {len(a)} sums agree; it gives " in str(found)
    assert sf.tensor_core("ampere", sf.BF16) in [each.candidate.accumulator for each in found.excluded]
    assert {each.candidate.accumulator.maker for each in found.nearest} == {"blocked"}


def test_accumulators_that_round_once_and_through_a_wider_format_are_distinguished():
    """No random sums are compared, only those that are built to break a candidate that is nearly right."""
    aligned, wide = sf.fused(4, 24, sf.BF16), sf.fused(4, 24)
    for once, twice, output, k in (
        (sf.blocked(4, aligned, sf.BF16), sf.blocked(4, wide, sf.numpy_sum(sf.BF16)), None, 18),
        (
            sf.lanes(3, aligned, sf.FP32),
            sf.lanes(3, wide, sf.numpy_sum(sf.FP32, products=sf.BF16)),
            None,
            14,
        ),
        (aligned, wide, sf.BF16, 4),
    ):
        candidates = Candidate(once), Candidate(twice, output)
        for unknown, candidate in (candidates, candidates[::-1]):
            f = partial(sf.dot, inputs=sf.E4M3, accumulate=unknown.accumulator, output=unknown.output)
            difference = exclusion(candidate, BlackBox(f, k, (sf.E4M3, sf.E4M3)))
            assert difference is not None and difference.is_close, (unknown, candidate)
            assert f(difference.a, difference.b) == difference.result != difference.other
