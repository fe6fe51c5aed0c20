"""Compare convolutions with products of patches, which are gathered one position at a time, and with PyTorch."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import threads
from simfloat.sums import convolution
from tests.bits import assert_bits
from tests.checks import with_threads

STOCHASTIC = sf.sequential(sf.FP16, rounding=sf.stochastic())

#: Images, kernels and options; the last ones have few pixels and many channels.
CASES = [
    ((2, 3, 7, 6), (4, 3, 3, 3), {}), ((2, 3, 7, 6), (4, 3, 3, 2), dict(padding=1)),
    ((1, 4, 9, 8), (6, 2, 3, 3), dict(padding=(2, 1), stride=2, groups=2)),
    ((3, 4, 8, 11), (4, 1, 2, 3), dict(stride=(1, 3), dilation=(3, 2), groups=4)),
    ((2, 2, 5, 4), (3, 2, 2, 2), dict(padding=(0, 5), dilation=(1, 3))),
    ((1, 1, 2, 3), (2, 1, 1, 1), dict(padding=4, stride=3)), ((2, 5, 6, 6), (3, 5, 1, 1), {}),
    ((2, 6, 6, 6), (4, 3, 1, 1), dict(groups=2, stride=2)), ((1, 2, 4, 5), (3, 2, 4, 5), {}),
    ((2, 4, 3, 3), (40, 2, 3, 3), dict(padding=1, groups=2)), ((2, 3, 40, 33), (5, 3, 3, 3), dict(padding=1)),
]  # fmt: skip


def patches(x, window, stride, padding, dilation):
    """The matrix (channel and kernel place, pixel) of one image (channels, height, width), place by place."""
    (h, w), (top, left), (down, right) = window, padding, dilation
    rows = (x.shape[1] + 2 * top - down * (h - 1) - 1) // stride[0] + 1
    columns = (x.shape[2] + 2 * left - right * (w - 1) - 1) // stride[1] + 1
    out = np.zeros((x.shape[0] * h * w, rows * columns))
    for k, (channel, r, s) in enumerate(itertools.product(range(x.shape[0]), range(h), range(w))):
        for p, (i, j) in enumerate(itertools.product(range(rows), range(columns))):
            row, column = i * stride[0] + r * down - top, j * stride[1] + s * right - left
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                out[k, p] = x[channel, row, column]
    return out, (rows, columns)


def by_products(x, w, *, stride=1, padding=0, dilation=1, groups=1, accumulate, **options):
    """The convolution as one product of matrices for all images and groups: elements are numbered alike."""
    stride, padding, dilation = (v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation))
    n, o = len(x), len(w)
    parts = x.reshape(n * groups, -1, *x.shape[2:])
    gathered = [patches(part, w.shape[2:], stride, padding, dilation) for part in parts]
    right = np.stack([matrix for matrix, _ in gathered])
    left = np.tile(w.reshape(groups, o // groups, -1), (n, 1, 1))
    return sf.matmul(left, right, accumulate=accumulate, **options).reshape(n, o, *gathered[0][1])


@pytest.mark.parametrize("images, kernels, options", CASES, ids=str)
def test_a_convolution_is_the_product_of_kernels_and_patches(images, kernels, options, rng):
    x, w = sf.round(rng.standard_normal(images), sf.FP16), sf.round(rng.standard_normal(kernels), sf.FP16)
    for accumulate in (sf.FP16, sf.FP32, sf.sequential(sf.BF16, products=sf.BF16), STOCHASTIC, sf.exact):
        by = {"accumulate": accumulate, "output": sf.BF16 if accumulate is sf.exact else None, **options}
        want = by_products(x, w, stream=sf.BitStream(4), **by)
        assert_bits(sf.conv2d(x, w, stream=sf.BitStream(4), **by), want)
        single = sf.conv2d(np.float32(x), np.float32(w), stream=sf.BitStream(4), **by)
        assert single.dtype == np.float32
        assert_bits(single, want)


def test_sums_without_error_are_torchs(rng):
    torch = pytest.importorskip("torch", reason="needs PyTorch as an oracle")
    for images, kernels, options in CASES:
        x, w = (rng.integers(-9, 10, shape).astype(np.float64) for shape in (images, kernels))
        want = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()
        for accumulate in (sf.FP64, sf.FP32):
            got = sf.conv2d(x, w, accumulate=accumulate, **options)
            assert got.shape == want.shape and got.dtype == np.float64 and (got == want).all()


@pytest.mark.parametrize("images, kernels, options", [CASES[2], CASES[9], CASES[10]], ids=str)
def test_threads_tiles_and_layouts_give_the_same_bits(images, kernels, options, rng, monkeypatch):
    x, w = sf.round(rng.standard_normal(images), sf.FP16), sf.round(rng.standard_normal(kernels), sf.FP16)
    layouts = (x, np.asfortranarray(x), x[::-1, :, ::-1].copy()[::-1, :, ::-1], np.broadcast_to(x, x.shape))
    for accumulate in (sf.FP16, STOCHASTIC):
        want = sf.conv2d(x, w, accumulate=accumulate, stream=sf.BitStream(7), **options)
        with monkeypatch.context() as patch:
            patch.setattr(threads, "LEAST_WORK", 1)
            patch.setattr(convolution, "LEAST_PIXELS", 1)
            for _, gathered, layout in itertools.product(with_threads(1, 2, 5), (1, 1 << 18), layouts):
                patch.setattr(convolution, "PATCH_ELEMENTS", gathered)
                assert_bits(sf.conv2d(layout, w, accumulate=accumulate, stream=sf.BitStream(7), **options), want)


def test_places_in_the_padding_count():
    x, w = np.full((1, 1, 1, 1), -0.0), np.ones((1, 1, 3, 3))
    down = sf.sequential(sf.FP16, rounding=sf.toward_negative)
    assert not np.signbit(sf.conv2d(x, w[:, :, :1, :1], accumulate=sf.FP16))
    assert np.signbit(sf.conv2d(x, w[:, :, :1, :1], accumulate=down)), "-0 alone stays -0 here"
    assert np.signbit(sf.conv2d(x, w, padding=1, accumulate=down)), "+0 + -0 is -0 toward negative"
    w[0, 0, 0, 2] = np.inf
    got = sf.conv2d(np.ones((1, 1, 4, 4)), w, padding=1, accumulate=sf.FP16)
    beyond = np.zeros((4, 4), bool)
    beyond[0], beyond[:, 3] = True, True  # where the upper right place of the kernel lies in the padding
    assert (np.isnan(got[0, 0]) == beyond).all(), "0 * inf"
    assert (got[0, 0][~beyond] == np.inf).all()


def test_operands_are_rounded_to_inputs_and_results_to_output(rng):
    x, w = rng.standard_normal((2, 3, 5, 5)), rng.standard_normal((4, 3, 3, 3))
    options = dict(padding=1, accumulate=sf.FP32)
    got = sf.conv2d(x, w, inputs=(sf.E4M3, sf.E5M2), output=sf.BF16, rounding=sf.toward_zero, **options)
    sums = sf.conv2d(sf.round(x, sf.E4M3), sf.round(w, sf.E5M2), **options)
    assert_bits(got, sf.round(sums, sf.BF16, sf.toward_zero))
    assert_bits(sf.conv2d(x, w, inputs="fp16", **options), sf.conv2d(x, w, inputs=(sf.FP16, sf.FP16), **options))
    assert sf.conv2d(np.float32(x), np.float32(w), output=sf.FP64, **options).dtype == np.float64
    for images, kernels, shape in (  # without images, kernels or channels
        ((0, 3, 4, 4), (2, 3, 3, 3), (0, 2, 2, 2)), ((2, 3, 4, 4), (0, 3, 3, 3), (2, 0, 2, 2)),
        ((2, 0, 4, 4), (5, 0, 3, 3), (2, 5, 2, 2)),
    ):  # fmt: skip
        assert_bits(sf.conv2d(np.ones(images), np.ones(kernels), accumulate=sf.FP16), np.zeros(shape))


def test_a_stochastic_convolution_takes_one_call_and_an_observer_receives_its_results():
    stream, recorder, x = sf.BitStream(0), sf.Recorder(), np.ones((2, 3, 4, 4))
    sf.conv2d(x, x, padding=1, accumulate=sf.FP16, stream=stream)
    assert stream.calls == 0
    sf.conv2d(x, x, padding=1, accumulate=STOCHASTIC, output=sf.E4M3, rounding=sf.stochastic(), stream=stream)
    assert stream.calls == 1
    sf.conv2d(x * 600, x[:, :, :2, :2] * 100, accumulate=sf.FP32, output=sf.FP16, observer=recorder)
    assert recorder.counts()["overflow"] == recorder.counts()["total"] == 2 * 2 * 3 * 3


def test_bad_input_is_refused():
    for options, message in (
        (dict(x=np.ones((3, 8, 8))), r"conv2d needs x \(N, C, H, W\).*got shapes \(3, 8, 8\) and \(6, 4, 3, 3\)"),
        (dict(w=np.ones((6, 4))), r"got shapes \(2, 4, 8, 8\) and \(6, 4\)"),
        (dict(groups=2), r"C and O multiples of groups, got shapes .* with groups=2"),
        (dict(w=np.ones((5, 2, 3, 3)), groups=2), r"\(5, 2, 3, 3\) with groups=2"),
        (dict(groups=0), "groups must be a positive integer, got 0"),
        (dict(groups=1.0), "groups must be a positive integer, got 1.0"),
        (dict(stride=0), r"stride must be an integer of at least 1, or a pair \(rows, columns\) of them; got 0"),
        (dict(stride=(1, 2, 3)), r"stride must be .* got \(1, 2, 3\)"),
        (dict(padding=-1), "padding must be an integer of at least 0, .* got -1"),
        (dict(padding="same"), "padding must be .* got 'same'"),
        (dict(dilation=(1, 0)), r"dilation must be an integer of at least 1, .* got \(1, 0\)"),
        (dict(dilation=True), "dilation must be .* got True"),
        (dict(dilation=4), r"with dilation \(4, 4\) spans 9 x 9, x of shape .* with padding \(0, 0\) has 8 x 8"),
        (dict(w=np.ones((6, 4, 0, 3))), "at least one element"),
        (dict(accumulate=sf.exact), "pass output="),
        (dict(accumulate=STOCHASTIC), "pass stream="),
        (dict(inputs=(sf.FP16,) * 3), "a pair of formats"),
        (dict(rounding="nearest"), "rounding must be"),
    ):
        with pytest.raises(ValueError, match=message):
            sf.conv2d(**dict(x=np.ones((2, 4, 8, 8)), w=np.ones((6, 4, 3, 3)), accumulate=sf.FP32) | options)


def test_units_of_two_formats_read_each_operand_in_its_format(rng):
    # Subnormal operands are read with the emin of their own format.
    unit = sf.tensor_core("blackwell", (sf.E5M2, sf.E4M3))
    for images in ((2, 3, 9, 9), (2, 40, 3, 3)):
        kernels = (70, images[1], 3, 3)
        x = sf.round(rng.standard_normal(images) * 2.0 ** rng.integers(-18, 0, images), sf.E5M2)
        w = sf.round(rng.standard_normal(kernels) * 2.0 ** rng.integers(-10, 0, kernels), sf.E4M3)
        got = sf.conv2d(x, w, padding=1, accumulate=unit)
        for n in range(len(x)):
            right, size = patches(x[n], (3, 3), (1, 1), (1, 1), (1, 1))
            products = sf.matmul(right.T, w.reshape(len(w), -1).T, accumulate=unit)
            assert_bits(got[n], products.T.reshape(len(w), *size))
