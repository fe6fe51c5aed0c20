"""What is computed twice: with NumPy's arrays, and with what stands for CuPy's; every case gives a list of arrays.

Run as a program it computes cases with the stand-in, and writes what they gave.
"""

import pickle
import sys

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from tests.bits import adversarial

MODES = (sf.nearest_even, sf.nearest_away, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd)
DRAWING = (sf.stochastic(), sf.stochastic(8, "A"), sf.stochastic(5, "B"))

#: Formats for each way of rounding: by instruction, in the image, on a plain grid, and without haste.
FORMATS = (
    sf.FP16,
    sf.BF16,
    sf.E4M3,
    sf.FP32,
    sf.FP64,
    sf.E2M1,
    sf.E8M0,
    sf.p3109(8, 3),
    sf.Format(5, 3, subnormals=False),
)


class Events(sf.Observer):
    def __init__(self):
        self.seen = []

    def observe(self, events, operation, path="", phase="forward"):
        self.seen.append(np.array(events))


def numbers(format, dtype=np.float64, count=60):
    """Numbers that are hard to round to the format."""
    x = np.asarray(adversarial(format, np.random.default_rng(5)), np.float64)
    x = np.random.default_rng(6).choice(x, count)
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(dtype)


def rounding(move):
    for format in FORMATS:
        for dtype in (np.float32, np.float64):
            x = numbers(format, dtype)
            for mode in (*MODES, *DRAWING, sf.nearest_even.saturating()):
                if format.has_nan or not np.isnan(x).any():
                    if not (format == sf.FP64 and mode != sf.nearest_even):
                        yield sf.round(move(x), format, mode, stream=sf.BitStream(7))


def given_bits(move):
    x = numbers(sf.FP16, count=23)
    yield sf.round(move(x), sf.FP16, sf.stochastic(4), stream=sf.GivenBits(np.arange(23) % 16))
    yield sf.add(move(x), 1.0, sf.FP16, sf.stochastic(4), stream=sf.GivenBits(np.arange(23) % 16))


def codes(move):
    for format in FORMATS:
        if format.bits <= 32:
            x = sf.round(numbers(format)[:40], format) if format.has_nan else np.array([0.5, 1.0, -0.0])
            found = sf.encode(move(x), format)
            yield found
            yield sf.decode(found, format)


def exact_operations(move):
    for name, row in FUNCTIONS.items():
        for dtype in (np.float32, np.float64) if row.accuracy == "exact" else ():
            x = numbers(sf.FP16, dtype, 24)
            given = [move(np.roll(x, i)) for i in range(len(row.operands))]
            for format in (sf.FP16, sf.E4M3, sf.FP32, sf.FP64):
                yield getattr(sf, name)(*given, format)
            yield getattr(sf, name)(*given, sf.BF16, sf.toward_negative)


def functions(move):
    x = numbers(sf.FP16, count=24)
    for name, row in FUNCTIONS.items():
        if row.accuracy == "elementary":
            given = [move(np.roll(x, i)) for i in range(len(row.operands))]
            yield getattr(sf, name)(*given, sf.FP16)
            yield getattr(sf, name)(*given, sf.BF16, sf.toward_negative)


def careful_operations(move):
    """Those that float64's round-to-odd does not serve: long draws, and FP64."""
    x = numbers(sf.FP16, count=24)
    for name in ("add", "fma", "exp"):
        given = [move(np.roll(x, i)) for i in range(len(FUNCTIONS[name].operands))]
        yield getattr(sf, name)(*given, sf.FP32, sf.stochastic(), stream=sf.BitStream(3))
        yield getattr(sf, name)(*given, sf.FP64)


def shapes(move):
    x = np.arange(24.0).reshape(2, 3, 4)
    yield sf.add(move(x), move(x[0, :1]), sf.E4M3)
    yield sf.add(move(x), 0.1, sf.E4M3)
    yield sf.multiply(2, move(x.T), sf.E4M3)
    yield sf.divide(move(np.ones(1)), move(x), sf.E4M3)
    yield sf.round(move(x).transpose(2, 0, 1), sf.E2M1)
    yield sf.round(move(x[:, :0]), sf.E2M1)
    yield sf.sqrt(move(np.arange(5)), sf.E4M3)
    yield sf.sqrt(move(np.arange(5, dtype=np.float16)), sf.E4M3)


def events(move):
    watching = Events()
    for format in (sf.FP16, sf.E4M3, sf.p3109(8, 3)):
        x = numbers(format)
        for mode in (sf.nearest_even, sf.toward_zero, sf.nearest_even.saturating(), sf.stochastic()):
            yield sf.round(move(x), format, mode, stream=sf.BitStream(2), observer=watching)
        yield sf.add(move(x), move(np.roll(x, 1)), format, observer=watching)
        yield sf.subtract(move(x), 1.0, format, observer=watching)
    yield from watching.seen


CASES = {
    case.__name__: case
    for case in (rounding, given_bits, codes, exact_operations, functions, careful_operations, shapes, events)
}


def results(name, move):
    """What a case gives; on the GPU, that which stayed there."""
    return [x if isinstance(x, np.ndarray) else x.get() for x in CASES[name](move)]


if __name__ == "__main__":
    from simfloat.cuda import launching
    from tests.cuda import simulated, standin

    standin.install()
    launching.launch = getattr(simulated, sys.argv[1])
    found = {}
    for case in sys.argv[3:]:
        with np.errstate(all="ignore"):
            found[case] = results(case, standin.moved)
    with open(sys.argv[2], "wb") as file:
        pickle.dump(found, file)
