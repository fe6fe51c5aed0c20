"""Products in which one thread sums a tile of the result."""

import numpy as np

import simfloat as sf
from tests.cuda.cases.sums import product_of

DIRECTED = (sf.toward_zero, sf.toward_positive, sf.toward_negative)


def unfused(format, rounding):
    return sf.sequential(format, rounding=rounding, products=format)


#: Sums whose steps a GPU makes by an instruction, and some of those that it makes by several.
STEPS = [
    *(sf.sequential(format) for format in (sf.FP32, sf.FP16, sf.BF16)),
    *(sf.sequential(format, products=format) for format in (sf.FP32, sf.FP16, sf.BF16)),
    *(sf.pairwise(sf.BF16), sf.kahan(sf.BF16)),
    *(sf.sequential(sf.FP32, rounding=mode) for mode in DIRECTED),
    *(sf.sequential(sf.FP32, products=sf.FP32, rounding=mode) for mode in DIRECTED),
    *(sf.pairwise(sf.FP32, rounding=sf.toward_zero), sf.kahan(sf.FP32, rounding=sf.toward_positive)),
    *(sf.sequential(sf.BF16, rounding=sf.toward_zero), sf.sequential(sf.BF16, rounding=sf.stochastic())),
]

#: Units whose sums lie below one another in a thread, or not, where totals draw words.
UNITS = [
    *(sf.tensor_core("hopper", sf.BF16), sf.tensor_core("volta", sf.FP16), sf.fused(5, 13, zero_exponent=3)),
    *(sf.fused(3, 11, sf.BF16, align=sf.to_odd), sf.fused(4, 13, sf.BF16, rounding=sf.toward_negative)),
    sf.fused(6, 11, sf.BF16, rounding=sf.stochastic(8)),
]

#: Sums that are cut off after an instruction that rounds down, up or toward zero, in every order and mode.
CUT = [
    *(
        order(sf.TF32 if mode == sf.nearest_even else sf.BF16, rounding=mode)
        for mode in (sf.nearest_even, sf.nearest_away, sf.to_odd, *DIRECTED)
        for order in (sf.sequential, unfused, sf.kahan, sf.pairwise, sf.numpy_sum)
    ),
    sf.pairwise(sf.FP32, rounding=sf.toward_negative),
]

#: The same with sums that are lifted to float32's exponents; what overflows becomes infinite, NaN, or the largest one.
LIFTED = [
    *(
        order(sf.E4M3 if mode == sf.nearest_even else sf.FP16, rounding=mode)
        for mode in (sf.nearest_even, sf.nearest_away, sf.to_odd, *DIRECTED)
        for order in (sf.sequential, unfused, sf.kahan, sf.pairwise, sf.numpy_sum)
    ),
    *(sf.sequential(format) for format in (sf.E5M2, sf.Format(6, 9))),
    *(sf.sequential(sf.E4M3, rounding=mode) for mode in (sf.toward_negative, sf.toward_positive.saturating())),
]


def tiles(move):
    """Products in which threads sum tiles, whole ones and ragged ones, or single elements; and of nothing."""
    from simfloat.kernels.gpu import tiles as thread_tiles

    kept = thread_tiles.LEAST, thread_tiles.WARP
    thread_tiles.LEAST, thread_tiles.WARP = 0, 2
    try:
        for m, n, depth in ((1, 1, 6), (5, 7, 0), (5, 7, 1), (8, 8, 6), (21, 5, 6)):
            yield from stepped(move, *hard_factors(m, n, depth, 12), STEPS)
        yield from stepped(move, *hard_factors(22, 18, 4, 12), STEPS[:6])
        single = [x for x in STEPS if x.result == sf.FP32]
        for m, n, accumulators in ((8, 16, single), (24, 20, [*single[:3], *UNITS])):
            # Rows begin where four numbers are read at once.
            yield from stepped(move, *hard_factors(m, n, 6, 12), accumulators)
        yield from stepped(move, *hard_factors(21, 5, 6, 124), [x for x in STEPS if x.result != sf.FP16])
        for reach, accumulators in ((124, CUT), (12, LIFTED)):
            a, b, start = hard_factors(21, 3, 6, reach)
            for accumulate in accumulators:
                yield product_of(move, a, b, accumulate, inside(start, accumulate))
        for m, n, accumulators in ((2, 3, STEPS), (9, 8, STEPS[:3]), (12, 16, STEPS[:1])):
            # Stacks, in which one matrix may serve all.
            a, b, start = (x.reshape(3, -1, x.shape[-1]) for x in hard_factors(3 * m, n, 6, 12))
            b = np.stack([b.reshape(6, n)[::step] for step in (1, -1, 1)])
            yield from stepped(move, a, b, start, accumulators)
            yield from stepped(move, a[0], b, start, accumulators[::4])
    finally:
        thread_tiles.LEAST, thread_tiles.WARP = kept


def inside(start, accumulate):
    """What a sum may start from, as numbers of its format."""
    if accumulate.maker in ("pairwise", "numpy_sum"):
        return None
    return sf.round(start, accumulate.result, sf.nearest_even.saturating())


def stepped(move, a, b, start, accumulators):
    for accumulate in accumulators:
        initial = inside(start, accumulate)
        options = {"output": sf.FP32, "stream": sf.BitStream(1), "accumulate": accumulate}
        yield sf.matmul(move(a), move(b), initial=None if initial is None else move(initial), **options)


def hard_factors(m, n, depth, reach):
    """Numbers of BF16, and of FP16 up to a reach of 12, whose sums cancel, overflow, underflow and are not finite."""
    rng = np.random.default_rng(13)
    a = rng.integers(-8, 9, (m, depth)) * 2.0 ** rng.integers(-reach, reach, (m, depth))
    b = rng.choice([-1.0, 1.0, 0.0, -0.0, 2.0**-7 + 1, 2.0**-10, 3.0], (depth, n))
    start = rng.choice([0.0, -0.0, 1.0, -3.0, 2.0**-14, -59904.0], (m, n))
    a[m // 2, ::2], a[:, 1:2] = -0.0, -a[:, :1]
    if m > 20:
        a[3, 1:], a[4, 2:3], a[5, 3:4], a[6] = 1.5 * 2.0**reach, np.inf, np.nan, 2.0 ** -(reach + 8)
        a[7], b[1:2, 2], b[2:4, 2] = -a[3], 2.0**7, 2.0**-1
    return tuple(x.astype(np.float32) for x in (a, b, start))
