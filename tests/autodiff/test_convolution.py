"""Compare convolutions and their derivatives with sums term by term, and with torch in double precision."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_all_bits, assert_bits

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

#: Images, kernels (O, C / groups, h, w) and options.
CASES = [
    ((2, 3, 5, 4), (4, 3, 3, 3), {}),
    ((1, 3, 5, 4), (2, 3, 3, 2), dict(padding=1)),
    ((2, 4, 7, 6), (6, 2, 3, 3), dict(padding=(2, 1), stride=2, groups=2)),
    ((2, 4, 8, 9), (4, 1, 2, 3), dict(stride=(1, 3), dilation=(3, 2), groups=4)),
    ((2, 2, 5, 4), (3, 2, 2, 2), dict(padding=(0, 5), dilation=(1, 3))),
    ((1, 1, 2, 3), (2, 1, 1, 1), dict(padding=4, stride=3)),
    ((2, 5, 6, 6), (3, 5, 1, 1), dict(stride=2)),
    ((1, 2, 8, 8), (3, 2, 3, 3), dict(stride=3, padding=1)),
    ((1, 2, 6, 5), (3, 2, 4, 2), dict(padding="same", dilation=(1, 2))),
    ((1, 2, 6, 5), (3, 2, 3, 2), dict(padding="valid")),
    ((1, 2, 3, 3), (70, 2, 3, 3), dict(padding=1)),
]

#: The same for kernels (C, O / groups, h, w) of the transpose.
TRANSPOSED = [
    ((2, 4, 4, 3), (4, 3, 3, 3), {}),
    ((1, 4, 3, 4), (4, 3, 4, 4), dict(stride=2, padding=1, groups=2)),
    ((2, 4, 3, 4), (4, 3, 3, 3), dict(stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(1, 2))),
    ((1, 2, 3, 3), (2, 3, 1, 1), dict(output_padding=2, dilation=3)),
    ((1, 2, 3, 3), (2, 2, 2, 2), dict(stride=3, padding=3)),
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), dict(stride=(2, 1, 2), padding=(1, 0, 1), output_padding=(1, 0, 0))),
]


def along(value, axes):
    return value if isinstance(value, tuple) else (value,) * axes


def borders(window, options):
    """The zeros before an image along each axis."""
    padding, dilation = options.get("padding", 0), along(options.get("dilation", 1), len(window))
    if padding == "same":
        return [d * (n - 1) // 2 for d, n in zip(dilation, window, strict=True)]
    return along(0 if padding == "valid" else padding, len(window))


class Terms:
    """Which products each sum of a convolution is made of, in its order; None stands for a zero that is no pixel."""

    def __init__(self, images, kernels, result, options):
        (_, self.channels, *self.size), (self.outputs, _, *self.window) = images, kernels
        self.batch, self.result, self.groups = images[0], result, options.get("groups", 1)
        self.stride, self.gap = (along(options.get(name, 1), len(self.window)) for name in ("stride", "dilation"))
        self.border = borders(self.window, options)

    def pixel(self, n, channel, at, place):
        sides = zip(at, self.stride, place, self.gap, self.border, strict=True)
        met = [r * s + a * d - p for r, s, a, d, p in sides]
        return (n, channel, *met) if all(0 <= i < size for i, size in zip(met, self.size, strict=True)) else None

    def forward(self, n, o, *at):
        inner = self.channels // self.groups
        first = o // (self.outputs // self.groups) * inner
        for c, *place in itertools.product(range(inner), *map(range, self.window)):
            yield self.pixel(n, first + c, at, place), (o, c, *place)

    def to_image(self, n, channel, *at):
        inner, many = self.channels // self.groups, self.outputs // self.groups
        group = channel // inner
        for o, *mirrored in itertools.product(range(many), *map(range, self.window)):
            place = [size - 1 - a for size, a in zip(self.window, mirrored, strict=True)]
            moved = [i + p - a * d for i, p, a, d in zip(at, self.border, place, self.gap, strict=True)]
            hit = all(m % s == 0 and 0 <= m // s < r for m, s, r in zip(moved, self.stride, self.result, strict=True))
            there = [m // s for m, s in zip(moved, self.stride, strict=True)]
            yield (n, group * many + o, *there) if hit else None, (group * many + o, channel % inner, *place)

    def to_kernel(self, o, c, *place):
        inner = self.channels // self.groups
        channel = o // (self.outputs // self.groups) * inner + c
        for n, *at in itertools.product(range(self.batch), *map(range, self.result)):
            yield (n, o, *at), self.pixel(n, channel, at, place)


def summed(terms, shape, a, b, **options):
    """Every element as a dot product of its terms."""
    out = np.empty(shape)
    for index in np.ndindex(*shape):
        pairs = list(terms(*index))
        left, right = (
            [0.0 if where is None else x[where] for where in places]
            for x, places in zip((a, b), zip(*pairs, strict=True), strict=True)
        )
        out[index] = sf.dot(left, right, **options)
    return out


POLICIES = [
    sf.Policy(
        compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP16, activations=sf.BF16,
        activation_gradients=sf.Format(8, 9), weight_gradients=sf.FP32,
        accumulate=sf.FP16, accumulate_gradients=sf.pairwise(sf.FP16),
    ),
    sf.Policy(compute=sf.BF16, accumulate=sf.blocked(4, sf.BF16, sf.FP32), accumulate_gradients=sf.kahan(sf.BF16)),
    sf.Policy(compute=sf.FP16, accumulate=sf.tensor_core("volta", sf.FP16)),
]  # fmt: skip


#: Volumes.
VOLUMES = [
    ((1, 2, 3, 2, 4), (2, 2, 2, 2, 2), {}),
    ((2, 2, 3, 4, 2), (2, 1, 2, 1, 2), dict(stride=(2, 1, 1), padding=(1, 0, 1), dilation=(1, 2, 1), groups=2)),
]


@pytest.mark.parametrize("policy, images, kernels, options", [
    *((POLICIES[0], *case) for case in (*CASES[:-1], *VOLUMES)),
    *((policy, *case) for policy in POLICIES[1:] for case in (*CASES[2:4], VOLUMES[1])),
], ids=str)  # fmt: skip
def test_every_contraction_of_a_convolution_is_one_sum_in_the_documented_order(policy, images, kernels, options, rng):
    x, w = (sf.Tensor(rng.standard_normal(shape), requires_grad=True) for shape in (images, kernels))
    with sf.simulate(policy):
        y = (x.conv2d if len(images) == 4 else x.conv3d)(w, **options)
        g = rng.standard_normal(y.shape)
        y.backward(g)
    recipe, terms = policy.recipe(), Terms(images, kernels, y.shape[2:], options)
    casts, back = (recipe.compute, recipe.compute), (recipe.compute_gradients, recipe.compute)
    ahead = dict(inputs=casts, accumulate=recipe.accumulate, output=recipe.activations)
    behind = dict(inputs=back, accumulate=recipe.accumulate_gradients, output=recipe.activation_gradients)
    assert_bits(y.data, summed(terms.forward, y.shape, x.data, w.data, **ahead))
    assert_bits(x.grad, summed(terms.to_image, images, g, w.data, **behind))
    assert_bits(w.grad, summed(terms.to_kernel, kernels, g, x.data, **behind))


@pytest.mark.parametrize("images, kernels, options", TRANSPOSED, ids=str)
def test_a_transposed_convolution_sums_as_the_gradient_of_an_image_does(images, kernels, options, rng):
    x, w = (sf.Tensor(rng.standard_normal(shape), requires_grad=True) for shape in (images, kernels))
    policy = POLICIES[1]
    with sf.simulate(policy):
        y = (x.conv_transpose2d if len(images) == 4 else x.conv_transpose3d)(w, **options)
        g = rng.standard_normal(y.shape)
        y.backward(g)
    recipe, terms = policy.recipe(), Terms(y.shape, kernels, images[2:], options)
    ahead = dict(inputs=sf.BF16, accumulate=recipe.accumulate, output=sf.BF16)
    behind = dict(inputs=sf.BF16, accumulate=recipe.accumulate_gradients, output=sf.BF16)
    assert_bits(y.data, summed(terms.to_image, y.shape, x.data, w.data, **ahead))
    assert_bits(x.grad, summed(terms.forward, images, g, w.data, **behind))
    assert_bits(w.grad, summed(terms.to_kernel, kernels, x.data, g, **behind))


@pytest.mark.parametrize("images, kernels, options", CASES[:4], ids=str)
def test_the_kernels_gradient_is_a_product_of_matrices_random_bits_included(images, kernels, options, rng):
    groups, outputs = options.get("groups", 1), kernels[0]
    stochastic = sf.sequential(sf.BF16, rounding=sf.stochastic())
    policy = sf.Policy(compute=sf.BF16, accumulate=sf.FP32, accumulate_gradients=stochastic)
    x, w = rng.standard_normal(images), sf.Tensor(rng.standard_normal(kernels), requires_grad=True)
    with sf.simulate(policy, seed=3) as simulation:
        y = sf.Tensor(x).conv2d(w, **options)
        g = rng.standard_normal(y.shape)
        y.backward(g)
        stream = sf.BitStream(simulation.streams.stream_at("", "backward", "conv2d", 1).seed)
    terms = Terms(images, kernels, y.shape[2:], options)
    left = np.moveaxis(g.reshape(len(g), groups, outputs // groups, -1), 0, 2).reshape(groups, outputs // groups, -1)
    met = np.zeros((*kernels[1:], groups, left.shape[-1]))
    for group, *place in itertools.product(range(groups), *map(range, kernels[1:])):
        places = [where for _, where in terms.to_kernel(group * (outputs // groups), *place)]
        met[(*place, group)] = [0.0 if where is None else x[where] for where in places]
    right = met.reshape(-1, groups, left.shape[-1]).transpose(1, 2, 0)
    want = sf.matmul(left, right, inputs=sf.BF16, accumulate=stochastic, stream=stream)
    assert_bits(w.grad, want.reshape(kernels))


def test_a_bias_of_channels_gets_one_sum_rounded_once(rng):
    x, bias = sf.Tensor(rng.standard_normal((3, 2, 4, 5))), sf.Tensor(rng.standard_normal(2), requires_grad=True)
    policy = sf.Policy(compute=sf.BF16, reduce=sf.FP16, gradients=sf.Format(8, 9))
    with sf.simulate(policy):
        y = x.add_bias(bias, axis=1)
        y.backward(x.data)
    assert_bits(y.data, sf.add(x.data, bias.data[:, None, None], sf.BF16))
    rows = x.data.swapaxes(0, 1).reshape(2, -1)
    assert_bits(bias.grad, sf.sum(rows, 1, accumulate=sf.FP16, output=sf.Format(8, 9)))


def test_zeros_in_the_padding_count_as_operands():
    with sf.simulate("fp32"):
        x, w = sf.Tensor(np.ones((1, 1, 2, 2)), requires_grad=True), sf.Tensor(np.full((1, 1, 3, 3), np.inf))
        y = x.conv2d(w, padding=1)
        assert np.isnan(y.data).all()
        strided = sf.Tensor(np.ones((1, 1, 3, 3)), requires_grad=True)
        strided.conv2d(np.full((1, 1, 1, 1), np.inf), stride=2).backward(np.ones((1, 1, 2, 2)))
    want = np.full((3, 3), np.nan)
    want[::2, ::2] = np.inf
    assert_bits(strided.grad[0, 0], want)


def test_an_empty_batch_gives_an_empty_result_and_zero_gradients():
    x, w = sf.Tensor(np.ones((0, 2, 4, 4)), requires_grad=True), sf.Tensor(np.ones((3, 2, 3, 3)), requires_grad=True)
    with sf.simulate("bf16-standard"):
        y = x.conv2d(w)
        y.backward(np.ones((0, 3, 2, 2)))
    assert y.shape == (0, 3, 2, 2) and x.grad.shape == x.shape
    assert_bits(w.grad, np.zeros(w.shape))


def test_memory_of_any_layout_gives_the_same_bits(rng):
    x, w, g = rng.standard_normal((2, 3, 6, 6)), rng.standard_normal((4, 3, 3, 3)), rng.standard_normal((2, 4, 4, 4))
    bits = []
    for order in (np.ascontiguousarray, lambda a: np.ascontiguousarray(a.T).T, np.float32):
        a, b = (sf.Tensor(order(np.float32(v)), requires_grad=True) for v in (x, w))
        with sf.simulate("bf16-fp32-weights"):
            y = a.conv2d(b)
            y.backward(order(np.float32(g)))
        bits.append((y.data, a.grad, b.grad))
    for other in bits[1:]:
        assert_all_bits(bits[0], other)


@pytest.mark.parametrize("call, message", [
    (lambda x, w: x.conv2d(w[0]), r"needs x \(N, C, H, W\) and w"),
    (lambda x, w: x.conv2d(w, groups=2), "with C and O multiples of groups"),
    (lambda x, w: x.conv2d(w, stride=0), "stride must be an integer of at least 1"),
    (lambda x, w: x.conv2d(w, padding="full"), "'valid' or, with a stride of 1, 'same'; got 'full'"),
    (lambda x, w: x.conv2d(w, stride=2, padding="same"), r"'same' with stride \(2, 2\)"),
    (lambda x, w: x.conv2d(w, dilation=4), "Kernels need at least one element and must fit into the padded image"),
    (lambda x, w: x.conv_transpose2d(w), r"needs x \(N, C, H, W\) and weight \(C, O / groups, h, w\)"),
    (lambda x, w: x.conv_transpose2d(w[:3], groups=2), "divides the 3 channels, got 2"),
    (lambda x, w: x.conv_transpose2d(w[:3], output_padding=1), "output_padding must be smaller"),
    (lambda x, w: x.conv_transpose2d(w[:3], padding=4), "at least one of each is needed"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call(sf.Tensor(np.ones((2, 3, 5, 5))), np.ones((4, 3, 3, 3)))


@pytest.mark.parametrize("transposed", [False, True], ids=("plain", "transposed"))
def test_random_shapes_and_options_give_torchs_whole_numbers_and_refusals(transposed, rng):
    computed = refused = 0
    for _ in range(60):
        groups = int(rng.integers(1, 4))
        inputs, outputs = (groups * int(n) for n in rng.integers(1, 4, 2))
        window, stride, dilation = (tuple(map(int, rng.integers(1, most, 2))) for most in (5, 4, 4))
        options = dict(stride=stride, dilation=dilation, groups=groups, padding=tuple(map(int, rng.integers(0, 4, 2))))
        if transposed:
            options["output_padding"] = tuple(map(int, rng.integers(0, 3, 2)))
        kernels = (inputs, outputs // groups, *window) if transposed else (outputs, inputs // groups, *window)
        shapes = (int(rng.integers(1, 4)), inputs, *map(int, rng.integers(1, 9, 2))), kernels
        arrays = [rng.integers(-5, 6, shape).astype(float) for shape in shapes]
        theirs, ours = [torch.tensor(a, requires_grad=True) for a in arrays], [sf.Tensor(a, True) for a in arrays]
        function = "conv_transpose2d" if transposed else "conv2d"
        mine = getattr(sf.Tensor, function)
        with sf.simulate("fp64"):
            try:
                want = getattr(torch.nn.functional, function)(*theirs, **options)
            except RuntimeError:
                refused += 1
                with pytest.raises(ValueError):
                    mine(*ours, **options)
                continue
            got, g = mine(*ours, **options), rng.integers(-5, 6, tuple(want.shape)).astype(float)
            got.backward(g)
        want.backward(torch.tensor(g))
        computed += 1
        for ready, other in [(got.data, want.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]:
            assert ready.shape == tuple(other.shape) and (ready == other.numpy()).all(), (shapes, options)
    assert min(computed, refused) > 10
