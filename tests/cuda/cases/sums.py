"""Products of matrices and convolutions: every accumulator, every rounding of a step, every way to call them."""

import numpy as np

import simfloat as sf
from simfloat.tools.selftest.orders import dot
from tests.bits import DETERMINISTIC
from tests.cuda.cases.elementwise import DRAWING
from tests.reference import matrix_product

FLUSHED = sf.Format(5, 3, subnormals=False)

ALIGNMENTS = (sf.toward_zero, sf.nearest_even, sf.to_odd, sf.toward_negative)

#: Of units of one's own: output and mode, one pair for each way to round a total.
TOTALS = (
    *((sf.FP32, None), (sf.BF16, None), (sf.BF16, sf.toward_positive), (sf.BF16, sf.to_odd), (sf.FP64, None)),
    *((sf.BF16, sf.stochastic()), (sf.E4M3, sf.stochastic(8, "A").saturating()), (FLUSHED, sf.to_odd)),
    (FLUSHED, sf.stochastic(6)),
)

ACCUMULATORS = [
    *(sf.FP16, sf.FP32, sf.FP64, sf.sequential(sf.BF16), sf.sequential(sf.FP16, products=sf.FP16)),
    *(sf.sequential(sf.FP16, rounding=mode) for mode in (sf.toward_zero, sf.to_odd, *DRAWING)),
    *(sf.sequential(sf.E5M2, products=sf.E4M3, rounding=mode) for mode in (sf.nearest_even, *DRAWING[:2])),
    sf.sequential(sf.Format(5, 3, subnormals=False, tininess="before_rounding")),
    *(sf.sequential(sf.p3109(8, 3)), sf.sequential(sf.Format(5, 3, subnormals=False), rounding=sf.stochastic(6))),
    *(sf.pairwise(sf.FP16), sf.pairwise(sf.BF16), sf.pairwise(sf.E8M0)),
    *(sf.pairwise(sf.FP16, rounding=mode) for mode in (sf.toward_zero, *DRAWING[:2])),
    sf.pairwise(sf.Format(8, 1, bias=15), rounding=sf.toward_zero),  # of numbers beyond float32's
    *(sf.kahan(sf.FP16), sf.kahan(sf.BF16), sf.kahan(sf.FP32), sf.kahan(sf.FP16, rounding=DRAWING[1])),
    *(sf.blocked(4, sf.FP16, sf.FP32), sf.blocked(3, sf.pairwise(sf.BF16), sf.kahan(sf.FP16))),
    sf.blocked(4, sf.FP16, sf.sequential(sf.FP16, rounding=sf.stochastic())),
    *(sf.numpy_sum(sf.FP16), sf.numpy_sum(sf.BF16, DRAWING[0]), sf.lanes(4, sf.FP16, sf.pairwise(sf.FP32))),
    sf.tree("4 + 10 + (0 + 7 + (2 + (1 + 8))) + (3 + 9 + (5 + 6))", sf.FP16, sf.stochastic(8)),
    *(sf.library_sum("openblas-avx2"), sf.exact, sf.fused(4, 10), sf.fused(3, 12, sf.FP16, zero_exponent=-3)),
    *(sf.fused(3, 6, *parts, rounding=mode, align=align) for align in ALIGNMENTS for *parts, mode in TOTALS),
    *(sf.tensor_core(name, sf.FP16) for name in ("volta", "ampere", "hopper")),
    *(sf.tensor_core("volta", sf.FP16, sf.FP16), sf.tensor_core("hopper", sf.E5M2, instruction="mma")),
    *(sf.matrix_core(name, sf.FP16) for name in ("cdna1", "cdna2", "cdna3")),
    sf.matrix_core("cdna3", sf.E5M2FNUZ),
]


def sums(move):
    """Every accumulator, of numbers with zeros and cancellation among them, and of some that are not finite."""
    rng = np.random.default_rng(8)
    a, b = (sf.round(rng.standard_normal(shape), sf.E5M2FNUZ, sf.nearest_even) for shape in ((3, 11), (11, 2)))
    a[0, 2:4], b[5], a[1, :4] = [1.5, -1.5], 0.0, a[1, 4:8]
    b[2] = b[3]
    for accumulate in ACCUMULATORS:
        yield sf.matmul(move(a), move(b), accumulate=accumulate, output=sf.FP32, stream=sf.BitStream(1))
    special = a.copy()
    special[1, 3], special[2, 4:6] = np.inf, [np.nan, -np.inf]
    for accumulate in (sf.FP16, sf.kahan(sf.BF16), sf.pairwise(sf.FP16), sf.exact, sf.tensor_core("hopper", sf.FP16)):
        yield sf.matmul(move(special), move(b), accumulate=accumulate, output=sf.FP32)


def steps(move):
    """Sums in every mode, of numbers and in formats for which one kind of step after the other is the quickest."""
    rng = np.random.default_rng(14)
    few, half = rng.integers(-9, 9, (2, 9)) / 4.0, sf.round(rng.standard_normal((2, 9)), sf.FP16)
    far = rng.random((2, 9), np.float32) * 2.0 ** rng.integers(-30, 30, (2, 9))
    for x in (few, few * 2.0**18, few * 2.0**-140, half * 2.0**-12):
        yield from sums_of(move, x, sf.FP16)
    for format in (sf.BF16, sf.FP64, sf.Format(5, 3, subnormals=False)):
        yield from sums_of(move, few, format)
    for format in (sf.FP32, sf.Format(8, 30)):
        yield from sums_of(move, far, format)


def sums_of(move, x, format):
    for mode in (*DETERMINISTIC, *DRAWING) if format != sf.FP64 else (sf.nearest_even,):
        for accumulate in orders(format, mode):
            yield product_of(move, x, x[:, ::-1].T, accumulate)


def product_of(move, a, b, accumulate, start=None):
    """A product; on the CPU by the definition, since a loop of each order and step takes seconds to compile."""
    there = move(a)
    if isinstance(there, np.ndarray):
        starts = np.zeros((len(a), b.shape[1])) if start is None else start
        place = {"seed": 6, "starts": starts.ravel().tolist()}
        return matrix_product(a, b, lambda *row: sum_by_definition(accumulate, *row, **place)).astype(a.dtype)
    options = {"initial": None if start is None else move(start), "stream": sf.BitStream(6)}
    output = {"output": sf.FP32} if a.dtype == np.float32 else {}
    return sf.matmul(there, move(b), accumulate=accumulate, **options, **output)


def sum_by_definition(accumulate, x, y, element, seed, starts):
    return dot(accumulate, x, y, start=starts[element], element=element, seed=seed)


def orders(format, mode):
    yield sf.sequential(format, rounding=mode)
    for products in (format,) if format == sf.FP64 else (format, sf.BF16):
        yield sf.sequential(format, rounding=mode, products=products)
    yield sf.pairwise(format, rounding=mode)
    yield sf.numpy_sum(format, rounding=mode)
    yield sf.kahan(format, rounding=mode)


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


def products(move):
    """Shapes, casts, scales, what sums start from, and outputs."""
    rng = np.random.default_rng(9)
    a, b, c = (rng.standard_normal(shape) for shape in ((2, 3, 8), (8, 2), (3, 2)))
    draws = sf.cast(sf.E4M3, sf.stochastic())
    for inputs in (None, sf.FP16, draws, sf.scaled(sf.E4M3, sf.per_tensor()), sf.scaled(sf.E4M3, sf.block(4, sf.E8M0))):
        yield sf.matmul(move(a), move(b), inputs=inputs, accumulate=sf.FP32, stream=sf.BitStream(5))
    yield sf.matmul(move(a), move(sf.round(b, sf.FP16)), accumulate=sf.FP16, initial=move(sf.round(c, sf.FP16)))
    yield sf.matmul(move(a[0]), move(b), accumulate=sf.exact, output=sf.FP64)
    yield sf.matmul(move(a[0] * 2.0**700), move(b * 2.0**200), accumulate=sf.exact, output=sf.BF16)
    yield sf.dot(move(a[0, 0]), move(b[:, 0]), accumulate=sf.BF16, output=sf.E5M2)
    yield sf.sum(move(a), 1, accumulate=sf.BF16)
    yield sf.sum(move(a), accumulate=sf.pairwise(sf.FP32))
    found = sf.block_quantize(move(a), sf.E2M1, block=4)
    yield from (found.elements, found.scales)
    found = sf.block_quantize(move(a), sf.E2M1, block=4, scale=sf.E4M3)
    yield from (found.elements, found.scales)


def convolutions(move):
    rng = np.random.default_rng(10)
    x, w = rng.standard_normal((2, 4, 5, 4)), rng.standard_normal((2, 2, 2, 3))
    for options in (dict(padding=1), dict(stride=2, padding=(0, 1)), dict(dilation=(2, 1), padding=1)):
        for accumulate in (sf.FP16, sf.sequential(sf.BF16, rounding=sf.stochastic())):
            yield sf.conv2d(
                move(x),
                move(w),
                groups=2,
                inputs=sf.cast(sf.FP16, sf.stochastic()),
                accumulate=accumulate,
                stream=sf.BitStream(4),
                **options,
            )


def nothing(move):
    """Products and blocks of nothing, and a sum of no numbers."""
    a, b = move(np.ones((2, 5))), move(np.ones((5, 0)))
    for scale in (sf.block(4, sf.FP32), sf.block((2, 2), sf.FP32), sf.block(2, sf.E8M0), sf.per_tensor()):
        for x, y in ((a, b), (b, b.T), (b.T, a.T)):
            yield sf.matmul(x, y, inputs=sf.scaled(sf.E4M3, scale), accumulate=sf.FP32)
    yield sf.sum(b, accumulate=sf.pairwise(sf.FP16))
    yield sf.partial_sums(b[0], b[0], accumulate=sf.FP16)
    yield sf.conv2d(move(np.ones((0, 1, 3, 3))), move(np.ones((2, 1, 2, 2))), accumulate=sf.FP16)
