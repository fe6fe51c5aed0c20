"""Checks of random bits: the generator, the frequencies, and that results depend on the seed alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.kernels.random import philox
from simfloat.selftest import golden
from simfloat.selftest.comparison import Batch

RANDOM = sf.stochastic()


def generator(quick: bool) -> Iterator[Batch]:
    """Philox4x32-10 gives the known answers of its authors' library."""
    for counter, key, answer in golden.PHILOX:
        words = [np.uint64(int(word, 16)) for word in f"{counter} {key}".split()]
        got = np.array([int(word) for word in philox(*words)])
        yield Batch("philox", (), (counter, key), got, np.array([int(word, 16) for word in answer.split()]))


def frequencies(quick: bool) -> Iterator[Batch]:
    """How often numbers between two neighbours go up: their distance from below, within six standard deviations."""
    count = 1 << (14 if quick else 18)
    for format in (sf.FP16, sf.BF16, sf.E4M3):
        for nu in (1 / 3, 0.5, 0.9, 2.0**-8):
            x = np.full(count, 1 + nu * format.eps)
            ups = np.mean(sf.round(x, format, RANDOM, stream=sf.BitStream(8)) > 1)
            near = abs(ups - nu) < 6 * math.sqrt(nu * (1 - nu) / count)
            yield Batch("share of ups is right for", (), (f"1 + {nu:g} eps", format), np.array(near), np.array(True))


def threads(quick: bool) -> Iterator[Batch]:
    """One thread and several give the same bits, stochastic rounding included."""
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
    """A stream continued from its state, and the parts of an array, give the bits of an unbroken run."""
    x = np.linspace(-3, 3, 1000)
    stream = sf.BitStream(2**63)
    whole = [sf.round(x, sf.BF16, RANDOM, stream=stream) for _ in range(3)]
    again = sf.BitStream(2**63)
    yield Batch("round", (), ("first call",), sf.round(x, sf.BF16, RANDOM, stream=again), whole[0])
    resumed = sf.BitStream.from_state(again.state)
    yield Batch("round", (), ("second call, resumed",), sf.round(x, sf.BF16, RANDOM, stream=resumed), whole[1])
    head = sf.round(x[:100], sf.BF16, RANDOM, stream=sf.BitStream.from_state(resumed.state))
    yield Batch("round", (), ("third call, first elements",), head, whole[2][:100])
