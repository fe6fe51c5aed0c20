"""Compare batches of results with the expected ones, bit for bit, and report a run.

This module has operands that are hard to round, the modes in which they are rounded, and the checks of random bits: the
generator, the frequencies, and that results depend only on the seed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

import simfloat as sf
from simfloat.formats.rounding import MODES, Rounding
from simfloat.kernels.rounding.random import philox
from simfloat.tools.selftest import definitions


class Batch(NamedTuple):
    """The results `got` of `function(*operands, *options)` and the expected ones; operands broadcast to the results."""

    function: str
    operands: tuple[ArrayLike, ...]
    options: tuple[Any, ...]
    got: ArrayLike
    want: ArrayLike

    @property
    def cases(self) -> int:
        """The number of results."""
        return np.asarray(self.want).size

    def first_difference(self) -> str | None:
        """Return the first wrong case as a sentence, or None if every bit is right."""
        got, want = np.asarray(self.got), np.asarray(self.want)
        if got.shape != want.shape:
            return f"{self._call()} has shape {got.shape}, expected {want.shape}"
        wrong = ~equal_bits(got, want)
        if not wrong.any():
            return None
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        return f"{self._call(place)} is {_text(got[place])}, expected {_text(want[place])}"

    def _call(self, place: tuple[int, ...] | None = None) -> str:
        """Return the call as text, with the operands of one result."""
        shape = np.shape(self.want)
        shown = [] if place is None else [_text(np.broadcast_to(x, shape)[place]) for x in self.operands]
        return f"{self.function}({', '.join([*shown, *map(str, self.options)])})"


#: A function that yields batches, fewer of them if its argument is True.
Check: TypeAlias = Callable[[bool], Iterator[Batch]]


def call(
    function: str,
    operands: tuple[ArrayLike, ...],
    format: sf.Format,
    rounding: sf.Rounding,
    want: ArrayLike,
    seed: int = 0,
) -> Batch:
    """Return the batch of `simfloat.function(*operands, format, rounding)`, with a new stream of that seed."""
    got = getattr(sf, function)(*operands, format, rounding, stream=sf.BitStream(seed))
    return Batch(function, operands, (format, rounding), got, want)


def equal_bits(a: ArrayLike, b: ArrayLike) -> NDArray[np.bool_]:
    """Return True for each pair of equal numbers, of zeros of the same sign, or of two NaN."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "f":
        return a == b
    return (np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))


def _text(x: Any) -> str:
    """Return a float in hexadecimal, and anything else as text."""
    return float(x).hex() if np.asarray(x).dtype.kind == "f" else str(x)


class Examination(NamedTuple):
    """The number of cases that a check compared, and its first wrong one."""

    cases: int
    failure: str | None


def run(checks: Mapping[str, Check], quick: bool = False) -> bool:
    """Run the checks, print a line for each and a last one for all; return True if every check passed."""
    start = time.perf_counter()
    outcomes = []
    width = max(map(len, checks))
    for name, check in checks.items():
        outcome = examine(check(quick))
        print(f"{name:{width}}  {outcome.cases:>10,} cases  {outcome.failure or 'ok'}", flush=True)
        outcomes.append(outcome)
    failed = sum(outcome.failure is not None for outcome in outcomes)
    verdict = f"{failed} of {len(outcomes)} checks failed" if failed else f"All {len(outcomes)} checks passed"
    print(f"{verdict}: {sum(o.cases for o in outcomes):,} cases in {time.perf_counter() - start:.1f} s.")
    return not failed


def examine(batches: Iterator[Batch]) -> Examination:
    """Run a check up to the first batch with a wrong case, and count its cases; an exception counts as wrong."""
    cases = 0
    try:
        for batch in batches:
            cases += batch.cases
            if failure := batch.first_difference():
                return Examination(cases, failure)
    except Exception as error:  # a check that cannot run has failed; the others continue
        return Examination(cases, f"{type(error).__name__}: {error}")
    return Examination(cases, None)


Array = NDArray[np.float64]

DETERMINISTIC = tuple(map(Rounding, MODES))

SPECIALS = (0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**-1022, 1.0, -1.0)


def all_values(format: sf.Format) -> Array:
    """Return the value of every code of a format, including NaN and infinities."""
    return sf.decode(np.arange(2**format.bits), format).astype(np.float64)


def adversarial(format: sf.Format, rng: np.random.Generator, count: int = 20) -> Array:
    """Return values around `count` random numbers of the format: ties, neighbours of ties, edges, specials."""
    codes = rng.integers(0, format.max_code + 1, count)
    base = format.magnitudes(codes).tolist()
    base += [0.0, format.smallest_subnormal, format.smallest_normal, format.max]
    if format.flushes:
        base.append(format.smallest_normal * (1 - format.eps / 2))  # the last number that is tiny after rounding
    numbers: list[float] = []
    for v in base:
        spacing = 2.0 ** (max(int(np.frexp(v)[1]) - 1 if v else -2000, format.last_exponent) - format.mantissa_bits)
        for part in (0, 0.25, 0.5, 0.75, 1.0, 1e-9, 1 - 1e-9, rng.random()):
            w = v + part * spacing
            numbers += [w, math.nextafter(w, math.inf), math.nextafter(w, 0.0)]
    wide = rng.standard_normal(20) * 2.0 ** rng.integers(-1000, 1000, 20)
    positive = np.concatenate([numbers, np.abs(wide), [1e308, 5e-324, 2.0**-1022, np.inf]])
    values = np.concatenate([positive, -positive, [np.nan]])
    if format.has_nan:
        return values
    values = values[~np.isnan(values)]
    return values if format.signed else values[~np.signbit(values)]


def operands(rng: np.random.Generator, count: int, scale: int = 1000) -> tuple[Array, Array, Array]:
    """Return operands of several precisions over the range of float64, with cancellations, far addends and specials."""
    a, b, c = (_mixture(rng, count, scale) for _ in range(3))
    with np.errstate(all="ignore"):
        c[::7], c[1::11] = -(a * b)[::7], (a * b)[1::11] * 2.0**-60
        b[::13], b[1::13] = -a[::13], a[1::13] * 2.0**-70
    return a, b, c


def _mixture(rng: np.random.Generator, count: int, scale: int) -> Array:
    """Return values of several precisions and ranges, one in twenty of them special."""
    x = rng.standard_normal(count)
    wide = x * 2.0 ** rng.integers(-scale, scale, count)
    kinds = [
        x,
        x.astype(np.float32),
        x.astype(np.float16),
        wide,
        x.astype(np.float32) * 2.0 ** rng.integers(-60, 60, count),
    ]
    mixed: Array = np.choose(rng.integers(0, len(kinds), count), [np.asarray(k, np.float64) for k in kinds])
    special = rng.random(count) < 0.05
    mixed[special] = rng.choice(SPECIALS, special.sum())
    return mixed


def hard_operands(
    rng: np.random.Generator, inputs: sf.Format, m: int, k: int, n: int
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return matrices (m, k) and (k, n) of `inputs` whose sums have ties, cancellations and very different sizes."""
    a = rng.standard_normal((m, k)) * 2.0 ** rng.integers(-12, 6, (m, k))
    b = rng.standard_normal((k, n)) * 2.0 ** rng.integers(-6, 6, (k, n))
    # Powers of two and their neighbours cause ties; a repeated column with the opposite sign cancels.
    short = rng.random((m, k)) < 0.4
    a[short] = rng.choice([1.0, 0.5, 1.5, -1.0, 3.0, 2.0**-8, 2.0**-11, 257.0, 0.0], short.sum())
    a[:, 1::5] = -a[:, 0:-1:5][:, : a[:, 1::5].shape[1]]
    b[1::5] = b[0:-1:5][: b[1::5].shape[0]]
    far = rng.random((k, n)) < 0.1
    b[far] *= 2.0**-20
    saturating = sf.nearest_even.saturating()
    return sf.round(a, inputs, saturating), sf.round(b, inputs, saturating)


RANDOM = sf.stochastic()


def generator(quick: bool) -> Iterator[Batch]:
    """Check that Philox4x32-10 gives the known answers of its authors' library."""
    for counter, key, answer in definitions.PHILOX:
        words = [np.uint64(int(word, 16)) for word in f"{counter} {key}".split()]
        got = np.array([int(word) for word in philox(*words)])
        yield Batch("philox", (), (counter, key), got, np.array([int(word, 16) for word in answer.split()]))


def frequencies(quick: bool) -> Iterator[Batch]:
    """Check that the share of values that round up equals their distance from below, within six standard deviations."""
    count = 1 << (14 if quick else 18)
    for format in (sf.FP16, sf.BF16, sf.E4M3):
        for nu in (1 / 3, 0.5, 0.9, 2.0**-8):
            x = np.full(count, 1 + nu * format.eps)
            ups = np.mean(sf.round(x, format, RANDOM, stream=sf.BitStream(8)) > 1)
            near = abs(ups - nu) < 6 * math.sqrt(nu * (1 - nu) / count)
            yield Batch("share of ups is right for", (), (f"1 + {nu:g} eps", format), np.array(near), np.array(True))


def threads(quick: bool) -> Iterator[Batch]:
    """Check that one thread and several give the same bits, also with stochastic rounding."""
    rng = np.random.default_rng(10)
    x, a = rng.standard_normal(1 << (18 if quick else 21)), rng.standard_normal((2, 160, 160))
    random, nearest = sf.sequential(sf.BF16, rounding=RANDOM), sf.sequential(sf.FP16)
    work: dict[str, Callable[[], NDArray]] = {
        "round": lambda: sf.round(x, sf.FP16, RANDOM, stream=sf.BitStream(1)),
        "multiply": lambda: sf.multiply(x, x, sf.BF16, RANDOM, stream=sf.BitStream(1)),
        "exp": lambda: sf.exp(x, sf.BF16),
        "matmul, nearest": lambda: sf.matmul(*a, inputs=sf.FP16, accumulate=nearest),
        "matmul, stochastic": lambda: sf.matmul(*a, inputs=sf.BF16, accumulate=random, stream=sf.BitStream(1)),
        "matmul, exact": lambda: sf.matmul(*a, inputs=sf.BF16, accumulate=sf.exact, output=sf.FP32),
    }
    before = sf.get_threads()
    try:
        for name, function in work.items():
            sf.set_threads(1)
            want = function()
            for count in (2, 3, max(4, before)):
                sf.set_threads(count)
                yield Batch(name, (), (f"{count} threads",), function(), want)
    finally:
        sf.set_threads(before)


def streams(quick: bool) -> Iterator[Batch]:
    """Check that a stream restored from its state, and a part of an array, give the bits of an uninterrupted run."""
    x = np.linspace(-3, 3, 1000)
    stream = sf.BitStream(2**63)
    whole = [sf.round(x, sf.BF16, RANDOM, stream=stream) for _ in range(3)]
    again = sf.BitStream(2**63)
    yield Batch("round", (), ("first call",), sf.round(x, sf.BF16, RANDOM, stream=again), whole[0])
    resumed = sf.BitStream.from_state(again.state)
    yield Batch("round", (), ("second call, resumed",), sf.round(x, sf.BF16, RANDOM, stream=resumed), whole[1])
    head = sf.round(x[:100], sf.BF16, RANDOM, stream=sf.BitStream.from_state(resumed.state))
    yield Batch("round", (), ("third call, first elements",), head, whole[2][:100])
