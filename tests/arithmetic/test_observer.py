"""Observers receive events, and invalid observers are rejected."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import sources
from simfloat.arithmetic.operations import compute
from simfloat.arithmetic.target import Target
from simfloat.formats.definition import round_magnitude
from simfloat.kernels.rounding.events import COUNTS, EVENTS, LOWEST_EXPONENT, NAN, SUBNORMAL, TOTAL, ZERO
from tests.bits import DETERMINISTIC, FORMATS, adversarial
from tests.kernels.test_single import hostile
from tests.reference import draws


class Kept(sf.Observer):
    """Keeps the events of each call; as a container it is empty, which makes it no less an observer."""

    def __init__(self):
        self.events, self.operations = [], []

    def observe(self, events, operation, path="", phase="forward"):
        self.events.append(events)
        self.operations.append(operation)

    def __len__(self):
        return 0

    def counts(self):
        """The counts of each call by their names."""
        return [dict(zip(COUNTS, events[: len(COUNTS)].tolist(), strict=True)) for events in self.events]


def test_sums_that_lost_an_addend_are_unchanged_and_updates_that_lost_the_second(rng):
    tiny, inf, nan = 2.0**-20, np.inf, np.nan
    for operation, a, b, count in (
        *((name, [1.0, tiny, 1.0, 0.0, tiny], [tiny, 1.0, 1.0, 1.0, 0.0], 2) for name in ("add", "subtract")),
        *((name, [inf, nan, 1.0], [1.0, 1.0, nan], 0) for name in ("add", "subtract")),  # only finite results lose one
        ("update", [1.0, tiny, 0.0], [tiny, 1.0, 1.0], 1),
    ):
        kept = Kept()
        compute(operation, [np.array(a), np.array(b)], Target(sf.FP16, sf.nearest_even, np.float64, None, kept))
        assert kept.operations == [operation] and kept.counts()[0]["unchanged"] == count, (operation, a)
    a, b = rng.standard_normal((2, 50))
    target = Target(sf.BF16, sf.nearest_even, np.float64)
    assert (compute("update", [a, b], target) == sf.add(a, b, sf.BF16)).all()


def test_every_call_hands_over_an_array_of_its_own():
    kept = Kept()
    for _ in range(2):
        sf.round([1.0, 2.0], sf.FP16, observer=kept)
    assert kept.events[0] is not kept.events[1] and not np.shares_memory(*kept.events)
    assert kept.events[0].tolist() == kept.events[1].tolist()


def test_an_invalid_observer_is_refused_with_advice():
    for observer in ([], {}, 0, "recorder"):
        with pytest.raises(ValueError, match=r"a method observe, for example simfloat.Recorder\(\)"):
            sf.round(1.0, sf.FP16, observer=observer)


MODES = [mode for plain in DETERMINISTIC for mode in (plain, plain.saturating())]


def by_definition(x, got, format, rounding, random):
    """The counts of one rounding of finite numbers and specials, from the definition."""
    counts = dict.fromkeys(COUNTS, 0)
    for number, result, r in zip(x.tolist(), got.tolist(), random, strict=True):
        counts["total"] += 1
        if math.isfinite(number) and (format.signed or number > 0):
            magnitude = round_magnitude(abs(Fraction(number)), number < 0, format, rounding, int(r))
            counts["overflow"] += magnitude > Fraction(format.max)
        counts["underflow"] += number != 0 and result == 0
        counts["subnormal"] += 0 < abs(result) < format.smallest_normal
        counts["nan"] += math.isnan(result)
        counts["zero"] += result == 0
    return counts


@pytest.mark.parametrize("format", [*FORMATS], ids=repr)
def test_events_of_every_mode_are_those_of_the_definition(format, rng):
    x = adversarial(format, rng, count=1)
    if not format.has_nan:
        x = x[~np.isnan(x)] if format.signed else np.abs(x[~np.isnan(x)])
    for rounding in (*MODES, sf.stochastic(3), sf.stochastic(3).saturating()):
        kept = Kept()
        got = sf.round(x, format, rounding, stream=sf.BitStream(5), observer=kept)
        random = draws(x.size, rounding, 5) if rounding.is_stochastic else np.zeros(x.size, int)
        assert kept.counts() == [by_definition(x, got, format, rounding, random)], rounding


def test_the_histogram_counts_exponents_of_finite_results(rng):
    types = (np.float64, sf.FP64), (np.float32, sf.FP64), (np.float32, sf.FP32)
    for size, (dtype, format) in product((1, 100, 5000, 200_003), types):
        x = rng.standard_normal(size) * 2.0 ** rng.integers(-1074, 1000, size)
        x[rng.integers(0, size, size // 10)] = rng.choice([0.0, -0.0, np.inf, np.nan], size // 10)
        with np.errstate(all="ignore"):
            numbers = x.astype(dtype)
        kept = Kept()
        assert sf.round(numbers, format, observer=kept).dtype == (np.float32 if format == sf.FP32 else np.float64)
        finite = numbers[np.isfinite(numbers) & (numbers != 0)].astype(np.float64)
        want = np.bincount(np.frexp(finite)[1] - 1 - LOWEST_EXPONENT, minlength=EVENTS - len(COUNTS))
        assert (kept.events[0][len(COUNTS) : EVENTS] == want).all()
        assert kept.events[0][[TOTAL, ZERO, NAN]].tolist() == [size, (numbers == 0).sum(), np.isnan(numbers).sum()]


def test_subnormal_numbers_of_the_array_type_are_counted_by_the_range_of_the_format():
    for size, (format, part) in product((3, 6000), ((sf.Format(8, 4, bias=140), 1), (sf.FP32, 2))):
        kept, x = Kept(), np.resize(np.float32([2.0**-130, 2.0**-141, 0.0]), size)
        assert sf.round(x, format, observer=kept).dtype == np.float32
        events = kept.events[0]
        assert events[[SUBNORMAL, ZERO]].tolist() == [size // 3 * part, size // 3]
        assert events[len(COUNTS) - LOWEST_EXPONENT + np.array([-130, -141])].tolist() == [size // 3, size // 3]


def test_operations_count_as_their_exact_results_do():
    for format in (sf.FP64, sf.FP32, sf.FP16, sf.Format(11, 49)):
        top = np.array([format.max, format.max, format.max, format.smallest_subnormal, 1.0, np.inf])
        modes = (sf.nearest_even, sf.stochastic(), sf.nearest_even.saturating())
        for rounding in modes[: 1 if format == sf.FP64 else 3]:
            kept, by = Kept(), np.array([2.0, 1.0, -4.0, 0.25, 0.0, 1.0])
            sf.multiply(top, by, format, rounding, stream=sf.BitStream(0), observer=kept)
            (counts,) = kept.counts()
            assert (counts["overflow"], counts["nan"]) == (2, 0)
            assert counts["underflow"] == (1 if counts["zero"] == 2 else 0)
    # Results beyond float64 are overflow in formats with its exponents, in modes that stop at the largest number too.
    x, by = np.array([1e200, -1e200, 1e308, 1.0]), [1e200, 1e200, 1.0, 2.0]
    modes = sf.toward_zero, sf.to_odd, sf.nearest_even.saturating(), sf.stochastic(3)
    for mode, more in product(modes, ({}, {"special": "fnuz"})):
        kept, options = Kept(), dict(format=sf.Format(11, 2, **more), rounding=mode, stream=sf.BitStream(0))
        sf.multiply(x, by, **options, observer=kept)
        sf.fma(x, by, 1.0, **options, observer=kept)
        assert [counts["overflow"] for counts in kept.counts()] == [2, 2]


def test_exact_results_are_computed_once_for_an_observer(monkeypatch):
    calls, plain = [], sources.InFloat64.exact
    monkeypatch.setattr(sources.InFloat64, "exact", lambda *where: calls.append(where) or plain(*where))
    sf.power([2.0, 3.0], 2.0, sf.BF16, observer=Kept())
    sf.power([1e30, 3.0], 2.0, sf.E4M3, observer=Kept())
    assert len(calls) == 2, "not even where results beyond the largest number are rounded again"


@pytest.mark.parametrize("format", [sf.BF16, sf.TF32, sf.FP16, sf.E4M3, sf.FP32], ids=str)
@pytest.mark.parametrize("name", ["add", "multiply", "divide", "fma", "sqrt"])
def test_results_that_are_rounded_in_float32s_lanes_have_the_events_of_float64s(name, format, rng):
    """Exact results are computed there for zeros, for the largest numbers, and for NaN only."""
    for count in (40, 5000):
        operands = [hostile(rng, count) for _ in range({"fma": 3, "sqrt": 1}.get(name, 2))]
        tame = [sf.round(np.abs(rng.standard_normal(count)).astype(np.float32), format) for _ in operands]
        for given in (operands, tame):
            with np.errstate(invalid="ignore"):  # signalling NaN
                wide = [x.astype(np.float64) for x in given]
            for rounding in (sf.nearest_even, sf.toward_zero, sf.to_odd, sf.nearest_even.saturating()):
                kept = Kept()
                getattr(sf, name)(*given, format, rounding, observer=kept)
                getattr(sf, name)(*wide, format, rounding, observer=kept)
                assert (kept.events[0] == kept.events[1]).all()
