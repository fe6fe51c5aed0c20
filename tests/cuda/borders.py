"""Cases at the borders of what functions take: arrays however they lie, of every type, with nothing in them."""

import numpy as np

import simfloat as sf


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


def running_sums(move):
    rng = np.random.default_rng(16)
    a, b = (move(sf.round(x, sf.FP16)) for x in rng.standard_normal((2, 11)))
    for accumulate in (sf.FP16, sf.kahan(sf.BF16), sf.blocked(4, sf.FP16, sf.FP32), sf.tensor_core("volta", sf.FP16)):
        yield sf.partial_sums(a, b, accumulate=accumulate)
    drawing = sf.sequential(sf.FP16, rounding=sf.stochastic())
    yield sf.partial_sums(a, b, accumulate=drawing, stream=sf.BitStream(1))
    draws = {"rounding": sf.stochastic(8), "stream": sf.BitStream(2)}
    yield sf.partial_sums(a, b, accumulate=sf.FP32, output=sf.E5M2, **draws)
    yield sf.partial_sums(a, b, inputs=sf.scaled(sf.E4M3, sf.block(4, sf.E8M0)), accumulate=sf.FP32)


def nothing(move):
    """Products and blocks of nothing, and a sum of no numbers."""
    a, b = move(np.ones((2, 5))), move(np.ones((5, 0)))
    for scale in (sf.block(4, sf.FP32), sf.block((2, 2), sf.FP32), sf.block(2, sf.E8M0), sf.per_tensor()):
        for x, y in ((a, b), (b, b.T), (b.T, a.T)):
            yield sf.matmul(x, y, inputs=sf.scaled(sf.E4M3, scale), accumulate=sf.FP32)
    yield sf.sum(b, accumulate=sf.pairwise(sf.FP16))
    yield sf.partial_sums(b[0], b[0], accumulate=sf.FP16)
    yield sf.conv2d(move(np.ones((0, 1, 3, 3))), move(np.ones((2, 1, 2, 2))), accumulate=sf.FP16)
