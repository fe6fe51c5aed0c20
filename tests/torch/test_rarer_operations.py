"""Rarer operations of PyTorch: plain PyTorch's results, and every step of their formulas rounded."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.ao.quantization import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    default_fused_per_channel_wt_fake_quant,
)

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import Function, check_format, compare_with_plain

RANDOM = torch.Generator().manual_seed(5)
X = torch.randn(4, 6, generator=RANDOM, dtype=torch.float64)
ROWS = torch.tensor([[1, 3, 1], [2, 1, 0]])
LENGTHS, LABELS = torch.tensor([2, 0, 2]), torch.tensor([[1, 4, -1, 2, 0, 0]]).expand(4, -1)
IMAGES = torch.randn(2, 3, 5, 7, generator=RANDOM, dtype=torch.float64)
SAMPLES = torch.rand(2, 3, 2, generator=RANDOM, dtype=torch.float64)


def segments(x, reduce):
    return torch.segment_reduce(x, reduce, lengths=LENGTHS, initial=0.5)


def drawn_slopes(x):
    torch.manual_seed(3)
    return F.rrelu(x, training=True)


FUNCTIONS = {
    **{f"segments {how}": lambda x, how=how: segments(x, how) for how in ("sum", "mean", "max", "min", "prod")},
    "an exponential of matrices": lambda x: torch.linalg.matrix_exp((x.mT @ x).reshape(4, 3, 3) - 1),
    "rows by how often they are taken": lambda x: F.embedding(ROWS, x, 2, scale_grad_by_freq=True),
    "a product of a segment with a zero": lambda x: segments(x * (x > 0), "prod"),
    "segments of inner axes": lambda x: torch.segment_reduce(x, "mean", offsets=torch.tensor([[0, 2, 5]] * 4), axis=1),
    "logaddexp2": lambda x: torch.logaddexp2(x, x.flip(0)),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.5),
    "rrelu": drawn_slopes,
    "rrelu in evaluation": lambda x: F.rrelu(x),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, LABELS, reduction="none"),
    "multilabel_margin_loss of one": lambda x: F.multilabel_margin_loss(x[0], LABELS[0]),
    "fractional pooling": lambda x: F.fractional_max_pool2d(
        IMAGES.to(x.dtype) * x[0, 0], 2, (3, 4), _random_samples=SAMPLES.to(x.dtype)
    ),
    **{
        f"antialiased {mode} {size} {corners}": lambda x, mode=mode, size=size, corners=corners: F.interpolate(
            IMAGES.to(x.dtype) * x[0, 0], size, mode=mode, antialias=True, align_corners=corners
        )
        for mode, size, corners in (
            ("bilinear", (2, 3), False), ("bilinear", (9, 4), True), ("bicubic", (2, 12), False),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(Function.of(FUNCTIONS[name]), X)
    if name in ["segments mean", "renorm", "rrelu", "multilabel_margin_loss"]:
        check_format(Function.of(FUNCTIONS[name]), X)


def computed(function, *arrays, policy="bf16-standard"):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        found = function(*map(torch.from_numpy, arrays))
    return found.numpy() if isinstance(found, torch.Tensor) else [x.numpy() for x in found]


NUMBERS = sf.round(np.float32([0.1, 2.7, -1.3, 0.6, 3.9, -0.2]), sf.BF16)


def test_a_mean_of_a_segment_is_a_sum_and_a_quotient():
    found = computed(lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([4, 2])), NUMBERS)
    parts = [NUMBERS[:4], NUMBERS[4:]]
    totals = [sf.sum(part, accumulate=sf.FP32, output=sf.BF16) for part in parts]
    assert_bits(found, np.float32([sf.divide(t, len(p), sf.BF16) for t, p in zip(totals, parts, strict=True)]))


def test_a_slice_is_shortened_by_a_rounded_quotient():
    f = sf.BF16
    norm = sf.sqrt(sf.sum(sf.multiply(NUMBERS, NUMBERS, f), accumulate=sf.FP32, output=f), f)
    factor = sf.divide(1.5, sf.add(norm, 1e-7, f), f)
    assert_bits(computed(lambda x: torch.renorm(x.reshape(1, -1), 2, 0, 1.5), NUMBERS)[0],
                sf.multiply(NUMBERS, factor, f))  # fmt: skip


def test_slopes_that_pytorch_draws_are_exact_factors():
    torch.manual_seed(3)
    noise = torch.empty(6)
    torch.ops.aten.rrelu_with_noise(torch.from_numpy(NUMBERS), noise, 1 / 8, 1 / 3, True)
    torch.manual_seed(3)
    found = computed(lambda x: F.rrelu(x, training=True), NUMBERS)
    assert_bits(found, sf.multiply(NUMBERS, noise.numpy(), sf.BF16))
    assert_bits(
        computed(F.rrelu, NUMBERS), sf.multiply(NUMBERS, np.where(NUMBERS > 0, 1, (1 / 8 + 1 / 3) / 2), sf.BF16)
    )


SCALES, ZEROS = torch.tensor([0.1, 0.07, 0.3, 0.02, 0.5, 0.25]), torch.tensor([0, 1, 2, -3, 5, 0])


def twice(layer, x):
    """The second result of a layer that observes."""
    layer(x.flip(0) * 0.3)
    return layer(x)


@pytest.mark.parametrize("call", [
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 3, -20, 20),
    lambda x: torch.fake_quantize_per_tensor_affine(x, SCALES[0], ZEROS[2].int(), -20, 20),
    lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 1, -20, 20),
    lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.float(), 1, -20, 20),
    lambda x: twice(FakeQuantize(MovingAverageMinMaxObserver, averaging_constant=0.25), x),
    lambda x: twice(FusedMovingAvgObsFakeQuantize(averaging_constant=0.25), x),
    lambda x: twice(default_fused_per_channel_wt_fake_quant(averaging_constant=0.25), x),
])  # fmt: skip
def test_numbers_that_integers_stand_for_and_what_passes_their_bounds_are_pytorchs_under_fp32(call):
    found = []
    for policy in (None, "fp32", "as-written"):
        x = (X.float() * 2).requires_grad_()
        with nullcontext() if policy is None else sf.torch.simulate(torch.nn.Identity(), policy):
            y = call(x)
            y.backward(X.float())
        found.append((y.detach(), x.grad))
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(one, found[0], strict=True))


def test_a_dequantized_integer_is_a_rounded_product():
    found = computed(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.3, 1, -3, 4), NUMBERS)
    q = np.rint(sf.multiply(NUMBERS, sf.divide(1.0, 0.3, sf.BF16), sf.BF16)) + 1
    assert_bits(found, sf.multiply(q.clip(-3, 4) - 1, 0.3, sf.BF16))


def test_the_next_number_is_that_of_the_policys_format():
    assert_bits(computed(torch.nextafter, NUMBERS, -NUMBERS), sf.nextafter(NUMBERS, -NUMBERS, sf.BF16))


def test_weights_of_a_histogram_are_added_and_counts_are_exact():
    weights = np.float32([1.0, 2**-9, 2**-9, 3.0, 1.0, 0.5])

    def counted(x, w):
        edges = torch.tensor([-2.0, 0.0, 1.0, 4.0])
        return *torch.histogram(x, edges, weight=w), torch.histogram(torch.zeros(1001), 2, range=(0, 1))[0]

    found, edges, many = computed(counted, NUMBERS, weights)
    groups = [weights[[2, 5]], weights[[0, 3]], weights[[1, 4]]]
    assert_bits(found, np.float32([sf.sum(group, accumulate=sf.FP32, output=sf.BF16) for group in groups]))
    assert edges.tolist() == [-2.0, 0.0, 1.0, 4.0] and many.tolist() == [1001, 0]


def test_a_pixel_of_a_smaller_image_is_a_sum_of_products_with_exact_weights():
    image = NUMBERS[:4].reshape(1, 1, 1, 4)
    found = computed(lambda x: F.interpolate(x, (1, 2), mode="bilinear", antialias=True), image)
    # Four pixels to two: a triangle of width 4 around the places 1 and 3, whose weights end at the border.
    for result, weights in zip(found.ravel(), ([3, 3, 1, 0], [0, 1, 3, 3]), strict=True):
        total = None
        for pixel, weight in zip(NUMBERS[:4], np.array(weights) / 7, strict=True):
            if weight:
                term = sf.multiply(pixel, weight, sf.BF16)
                total = term if total is None else sf.add(total, term, sf.BF16)
        assert_bits(np.float32(result), np.float32(total))


def test_batch_normalization_has_the_same_bits_by_all_its_names():
    x, aten = torch.randn(8, 3, generator=RANDOM), torch.ops.aten

    def normalized(x):
        means, variances = torch.zeros(3), torch.ones(3)
        return [
            aten.native_batch_norm(x, None, None, means.clone(), variances.clone(), True, 0.1, 1e-5)[0],
            aten._native_batch_norm_legit(x, None, None, means, variances, True, 0.1, 1e-5)[0],
            aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)[0],
            aten._batch_norm_with_update(x, None, None, means.clone(), variances.clone(), 0.1, 1e-5)[0],
            means,
        ]

    first, *others, means = computed(normalized, x.numpy())
    for other in others:
        assert_bits(other, first)
    assert means.any()
