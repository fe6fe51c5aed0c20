"""Roundings, codes and elementwise operations, for arrays of every shape, layout and type."""

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.formats.format import TININESS
from tests.bits import DETERMINISTIC, adversarial

DRAWING = (sf.stochastic(), sf.stochastic(8, "A"), sf.stochastic(5, "B"))

#: Formats for each way of rounding: by instruction, in the image, on a plain grid, and without haste.
FORMATS = (
    sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.FP64, sf.E2M1, sf.E8M0, sf.p3109(8, 3),
    *(sf.Format(5, 3, subnormals=False, tininess=tininess) for tininess in TININESS),
)  # fmt: skip


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
            for mode in (*DETERMINISTIC, *DRAWING, sf.nearest_even.saturating()):
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
        if row.accuracy in ("elementary", "single"):
            given = [move(np.roll(x, i)) for i in range(len(row.operands))]
            yield getattr(sf, name)(*given, sf.FP16)
            yield getattr(sf, name)(*given, sf.BF16, sf.toward_negative)


def careful_functions(move):
    """Draws longer than float64 shows, and results in FP64."""
    x = np.array([0.5, -1.5, 3.0, 1e-3, 700.0, 0.0, np.inf, np.nan])
    for name, row in FUNCTIONS.items():
        given = [move(np.roll(x, i)) for i in range(len(row.operands))]
        yield getattr(sf, name)(*given, sf.FP32, sf.stochastic(), stream=sf.BitStream(3))
        yield getattr(sf, name)(*given, sf.FP64)
        if row.accuracy == "exact":
            yield getattr(sf, name)(*given, sf.FP64, sf.toward_negative)


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


def layouts(move):
    """Transposed, with gaps, backwards, repeated, of other types; two operands that lie differently."""
    x = np.arange(-12.0, 12.0).reshape(2, 3, 4) / 3
    there = move(x)
    views = (there.T, there[:, ::2, 1:], there[::-1, :, ::-3], np.broadcast_to(there[0], (2, 3, 4)), there[0, 0, 0])
    for view in views:
        yield sf.round(view, sf.E4M3)
        yield sf.multiply(view, view[..., ::-1] if view.ndim else view, sf.E4M3)
        yield sf.decode(sf.encode(sf.round(view, sf.E2M3), sf.E2M3), sf.E2M3)
        yield sf.sum(view, accumulate=sf.BF16)
    for view in views[:4]:
        yield sf.matmul(view, view.swapaxes(-1, -2), inputs=sf.FP16, accumulate=sf.kahan(sf.FP16))
    for dtype in (np.float16, np.int8, np.uint64, bool):
        yield sf.add(move(x[0].astype(dtype)) if dtype != np.uint64 else move(np.arange(3, dtype=dtype)), 0.3, sf.BF16)
    images = there[np.newaxis].transpose(0, 3, 2, 1)
    yield sf.conv2d(images, images[:, :, ::-1, :1], padding=1, inputs=sf.FP16, accumulate=sf.FP32)


def spacings(move):
    x = np.array([0.0, -0.0, 1.0, -1.5, 448.0, 2.0**-9])
    for dtype in (np.float32, np.float64):
        given = move(x.astype(dtype))
        yield sf.ulp(given, sf.E4M3)
        yield sf.nextafter(given, np.inf, sf.E4M3)
        yield sf.nextafter(1.0, given, sf.E4M3)
        yield sf.nextafter(given, given[::-1], sf.E4M3)


class Events(sf.Observer):
    def __init__(self):
        self.seen = []

    def observe(self, events, operation, path="", phase="forward"):
        self.seen.append(np.array(events))


def events(move):
    watching = Events()
    watching.more = True
    for format in (sf.FP16, sf.E4M3, sf.p3109(8, 3)):
        x = numbers(format)
        for mode in (sf.nearest_even, sf.toward_zero, sf.nearest_even.saturating(), sf.stochastic()):
            yield sf.round(move(x), format, mode, stream=sf.BitStream(2), observer=watching)
        yield sf.add(move(x), move(np.roll(x, 1)), format, observer=watching)
        yield sf.subtract(move(x), 1.0, format, observer=watching)
    yield from watching.seen
