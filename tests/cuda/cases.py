"""What is computed twice: with NumPy's arrays, and with what stands for CuPy's; every case gives a list of arrays."""

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
    watching.more = True
    for format in (sf.FP16, sf.E4M3, sf.p3109(8, 3)):
        x = numbers(format)
        for mode in (sf.nearest_even, sf.toward_zero, sf.nearest_even.saturating(), sf.stochastic()):
            yield sf.round(move(x), format, mode, stream=sf.BitStream(2), observer=watching)
        yield sf.add(move(x), move(np.roll(x, 1)), format, observer=watching)
        yield sf.subtract(move(x), 1.0, format, observer=watching)
    yield from watching.seen


ACCUMULATORS = [
    *(sf.FP16, sf.FP32, sf.FP64, sf.sequential(sf.BF16), sf.sequential(sf.FP16, products=sf.FP16)),
    *(sf.sequential(sf.FP16, rounding=mode) for mode in (sf.toward_zero, sf.to_odd, *DRAWING)),
    *(sf.sequential(sf.E5M2, products=sf.E4M3, rounding=mode) for mode in (sf.nearest_even, *DRAWING[:2])),
    *(sf.sequential(sf.p3109(8, 3)), sf.sequential(sf.Format(5, 3, subnormals=False), rounding=sf.stochastic(6))),
    *(sf.pairwise(sf.FP16), sf.pairwise(sf.BF16), sf.pairwise(sf.E8M0)),
    *(sf.pairwise(sf.FP16, rounding=mode) for mode in (sf.toward_negative, *DRAWING[:2])),
    *(sf.kahan(sf.FP16), sf.kahan(sf.BF16), sf.kahan(sf.FP32), sf.kahan(sf.FP16, rounding=sf.stochastic(8))),
    *(sf.blocked(4, sf.FP16, sf.FP32), sf.blocked(3, sf.pairwise(sf.BF16), sf.kahan(sf.FP16))),
    sf.blocked(4, sf.FP16, sf.sequential(sf.FP16, rounding=sf.stochastic())),
    *(sf.exact, sf.fused(4, 10), sf.fused(3, 12, sf.FP16, zero_exponent=-3)),
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


#: Sums whose steps a GPU makes by an instruction, and some of those that it makes by several.
STEPS = [
    *(sf.sequential(format) for format in (sf.FP32, sf.FP16, sf.BF16)),
    *(sf.sequential(format, products=format) for format in (sf.FP32, sf.FP16, sf.BF16)),
    *(sf.pairwise(sf.BF16), sf.kahan(sf.BF16)),
    *(sf.sequential(sf.FP32, rounding=mode) for mode in MODES[2:5]),
    *(sf.sequential(sf.FP32, products=sf.FP32, rounding=mode) for mode in MODES[2:5]),
    *(sf.pairwise(sf.FP32, rounding=sf.toward_negative), sf.kahan(sf.FP32, rounding=sf.toward_positive)),
    *(sf.sequential(sf.BF16, rounding=sf.toward_zero), sf.sequential(sf.BF16, rounding=sf.stochastic())),
]


def tiles(move):
    """Products in which threads sum tiles, whole ones and ragged ones, or single elements; and of nothing."""
    from simfloat.cuda import tiles

    least, warp = tiles.LEAST, tiles.WARP
    tiles.LEAST, tiles.WARP = 1, 2
    try:
        for m, n in ((1, 1), (5, 7), (8, 8), (33, 9)):
            for depth in (0, 1, 6):
                yield from stepped(move, *hard_factors(m, n, depth, 12), STEPS)
        yield from stepped(move, *hard_factors(33, 9, 6, 124), [x for x in STEPS if x.result != sf.FP16])
        for m, n, accumulators in ((2, 3, STEPS), (9, 8, STEPS[:9])):  # stacks, in which one matrix may serve all
            a, b, start = (x.reshape(3, -1, x.shape[-1]) for x in hard_factors(3 * m, n, 6, 12))
            b = np.stack([b.reshape(6, n)[::step] for step in (1, -1, 1)])
            yield from stepped(move, a, b, start, accumulators)
            yield from stepped(move, a[0], b, start, accumulators[::4])
    finally:
        tiles.LEAST, tiles.WARP = least, warp


def stepped(move, a, b, start, accumulators):
    for accumulate in accumulators:
        initial = None if accumulate.maker == "pairwise" else move(start)
        options = {"initial": initial, "output": sf.FP32, "stream": sf.BitStream(1)}
        yield sf.matmul(move(a), move(b), accumulate=accumulate, **options)


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


def trained(move, model, loss_fn, x, y, policy, make, scaler=None):
    """Two steps: the losses, what was counted, and all that is kept."""
    watching = sf.Recorder()
    if move is not given:
        model.to("cuda")
    with sf.simulate(policy, seed=3, observer=watching):
        optimizer = make(model.parameters())
        batches = [(move(x), move(y))] * 2
        history = sf.train.fit(model, loss_fn, batches, optimizer, scaler=scaler, clip=1.0, progress=False)
    yield np.array(history["loss"])
    yield np.array([list(watching.counts(phase=phase).values()) for phase in ("forward", "backward", "update")])
    yield from model.state_dict().values()
    for kept in optimizer.state_dict()["state"].values():
        yield from kept.values()


def training(move):
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((5, 4)).astype(np.float32), np.array([0, 1, 1, 0, 1])
    for policy in ("bf16-stochastic", "bf16-kahan", "fp8-hybrid"):
        model = sf.nn.MLP([4, 3, 2], rng=1)
        yield from trained(
            move, model, sf.nn.cross_entropy, x, y, policy, lambda p: sf.optim.SGD(p, lr=0.1, momentum=0.9)
        )


def training_of_images(move):
    rng = np.random.default_rng(12)
    x, y = rng.standard_normal((2, 1, 5, 5)).astype(np.float32), rng.standard_normal((2, 2)).astype(np.float32)
    layers = [
        *(sf.nn.Conv2d(1, 2, 2, rng=1), sf.nn.BatchNorm2d(2), sf.nn.ReLU(), sf.nn.MaxPool2d(2), sf.nn.AvgPool2d(2, 1)),
        *(sf.nn.Flatten(), sf.nn.Dropout(0.3), sf.nn.Linear(2, 2, rng=2), sf.nn.LayerNorm(2)),
    ]
    scaler = sf.optim.DynamicLossScale(2.0**4)
    model = sf.nn.Sequential(*layers)
    make = lambda p: sf.optim.AdamW(p, lr=0.01, amsgrad=True)  # noqa: E731
    yield from trained(move, model, sf.nn.mse_loss, x, y, "amp-fp16", make, scaler)


class Text(sf.nn.Module):
    """Words to words, through a layer that looks at all of a line."""

    def __init__(self, kind):
        super().__init__()
        self.words = sf.nn.Embedding(5, 4, rng=1)
        self.layer = kind(4, 2, batch_first=True, rng=2)
        self.head = sf.nn.Linear(4 if kind is sf.nn.MultiHeadAttention else 2, 5, rng=3)

    def forward(self, x):
        known = self.words(x)
        inputs = (known, known, known) if isinstance(self.layer, sf.nn.MultiHeadAttention) else (known,)
        return self.head(self.layer(*inputs)[0].maximum(-0.5))


def training_of_sequences(move):
    x, y = np.array([[0, 1, 2], [3, 0, 1]]), np.array([[1, 2, 0], [4, 1, 2]])
    for kind, policy in ((sf.nn.GRU, "nvfp4"), (sf.nn.MultiHeadAttention, "fp8-delayed")):
        yield from trained(move, Text(kind), sf.nn.cross_entropy, x, y, policy, lambda p: sf.optim.Adagrad(p, lr=0.1))


def given(x):
    """NumPy's arrays as they are."""
    return x


CASES = {
    case.__name__: case
    for case in (
        rounding,
        given_bits,
        codes,
        exact_operations,
        functions,
        shapes,
        events,
        sums,
        tiles,
        products,
        convolutions,
        training,
        training_of_images,
        training_of_sequences,
    )
}


def results(case, move):
    """What a case gives; on the GPU, that which stayed there."""
    return [x if isinstance(x, np.ndarray) else x.get() for x in case(move)]
