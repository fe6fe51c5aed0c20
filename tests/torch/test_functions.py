"""Functions, distances, points in images and CTC in PyTorch models: plain PyTorch's values, every step rounded."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import Function, check_format, compare_with_plain

RANDOM = torch.Generator().manual_seed(3)
X = torch.rand(4, 6, generator=RANDOM, dtype=torch.float64) + 0.1
IMAGES = torch.randn(2, 3, 4, 5, generator=RANDOM, dtype=torch.float64)
VOLUMES = torch.randn(2, 3, 4, 5, 3, generator=RANDOM, dtype=torch.float64)
SCORES = torch.randn(6, 3, 5, generator=RANDOM, dtype=torch.float64)
TARGETS, IN_A_ROW = torch.tensor([[1, 2, 2], [3, 1, 4], [2, 0, 0]]), torch.tensor([1, 2, 2, 3, 1, 2])


def looked_up(x, images, mode, padding, corners):
    axes = images.ndim - 2
    grid = (x[:, :axes].repeat(1, 4) * 2.7 - 1.9).reshape(2, 2, *[1] * (axes - 2), 4, axes)
    images = images.to(x.dtype) * x[0, 0]
    return F.grid_sample(images, grid, mode, padding, corners)


def ctc(x, *arguments, **options):
    scores = (SCORES.to(x.dtype) * x[0, 0]).log_softmax(2)
    return F.ctc_loss(scores, *arguments, **options)


FUNCTIONS = {
    **{name: getattr(torch, name) for name in "log1p log10 expm1 sinh cosh tan sinc erfc atan asinh".split()},
    "asin": lambda x: torch.asin(x / 2),
    "acos": lambda x: torch.acos(x / 2),
    "atanh": lambda x: torch.atanh(x / 2),
    "acosh": lambda x: torch.acosh(x + 1),
    "atan2": lambda x: torch.atan2(x - 0.5, x.flip(0) - 0.6),
    "xlog1py": lambda x: torch.special.xlog1py(x, x.flip(0)) + torch.special.xlog1py(0.0, x),
    # Python numbers are the float64 numbers that they are, and no float32 ones.
    "xlog1py of numbers": lambda x: torch.special.xlog1py(x, 0.1) + torch.special.xlog1py(0.1, x),
    "xlogy of numbers": lambda x: torch.xlogy(x, 0.1) + torch.xlogy(0.1, x),
    "entr": torch.special.entr,
    "cummax": lambda x: x.cummax(1)[0] + x.cummin(0)[0],
    "std_mean": lambda x: sum(torch.std_mean(x, 1)),
    **{f"norm {p}": lambda x, p=p: torch.linalg.vector_norm(x - 0.5, p, 1) for p in (0.5, 1, 3, math.inf, -math.inf)},
    "norm 0": lambda x: torch.linalg.vector_norm(x.relu() - x[0, 0], 0, 1) + x[:, 0],
    "cdist of one and itself": lambda x: torch.cdist(x, x),
    "cdist of many": lambda x: torch.cdist(x.repeat(8, 1), x.repeat(8, 1).flip(0) + 0.3),
    **{f"cdist {p}": lambda x, p=p: torch.cdist(x, x[:3].flip(0) + 0.05, p) for p in (0, 0.5, 1, 1.5, 2, 3, math.inf)},
    "a pooled image whose channels are last": lambda x: F.adaptive_avg_pool1d(x.unsqueeze(0).transpose(1, 2), 1),
    "affine_grid": lambda x: F.affine_grid(x.reshape(4, 2, 3), [4, 1, 3, 4], False),
    "affine_grid of volumes": lambda x: F.affine_grid(x[:2].reshape(1, 3, 4), [1, 1, 2, 3, 4], True),
    **{
        f"grid_sample {images.ndim - 2}d {mode} {padding} {corners}": lambda x, a=(images, mode, padding, corners): (
            looked_up(x, *a)
        )
        for images in (IMAGES, VOLUMES)
        for mode, padding, corners in (
            ("bilinear", "zeros", False), ("bilinear", "zeros", True), ("bilinear", "border", False),
            ("bilinear", "reflection", False), ("bilinear", "reflection", True), ("nearest", "zeros", False),
            ("nearest", "reflection", True),
        )
    },
    **{
        f"grid_sample bicubic {padding} {corners}": lambda x, a=(IMAGES, "bicubic", padding, corners): looked_up(x, *a)
        for padding, corners in (("zeros", False), ("zeros", True), ("border", False), ("reflection", False),
            ("reflection", True))
    },
    **{
        f"ctc {reduction}": lambda x, r=reduction: ctc(
            x, TARGETS, torch.tensor([6, 5, 4]), torch.tensor([3, 2, 1]), reduction=r
        )
        for reduction in ("none", "mean", "sum")
    },
    "ctc in a row": lambda x: ctc(x, IN_A_ROW, [6, 5, 4], [3, 2, 1]),
    "ctc without steps or targets": lambda x: ctc(x, TARGETS, [6, 0, 4], [3, 0, 0], reduction="none"),
    "ctc of what fits no way": lambda x: ctc(x, TARGETS, [6, 2, 4], [3, 3, 1], zero_infinity=True),
    "ctc with another blank": lambda x: ctc(x, TARGETS[:, :1], [6, 6, 4], [1, 1, 1], blank=4),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(Function.of(FUNCTIONS[name]), X)
    check_format(Function.of(FUNCTIONS[name]), X)


def computed(function, *arrays, policy="bf16-standard"):
    with sf.torch.simulate(torch.nn.Identity(), policy):
        return function(*map(torch.from_numpy, arrays)).numpy()


SMALL = np.array([2.0**-9, 0.01, 0.3, 1.5, -0.25], np.float32)


@pytest.mark.parametrize("name", ["log1p", "expm1", "sinh", "cosh", "tan", "asin", "atan", "erfc", "asinh"])
def test_functions_of_the_catalog_are_rounded_once(name):
    x = sf.round(SMALL, sf.BF16)
    x = x[np.abs(x) < 1] if name == "asin" else x
    assert_bits(computed(getattr(torch, name), x), getattr(sf, name)(x, sf.BF16))


@pytest.mark.parametrize("name, steps", {
    "xlog1py": lambda x, f: sf.multiply(x, sf.log1p(x, f), f),
    "entr": lambda x, f: sf.multiply(-x, sf.log(x, f), f),
}.items())  # fmt: skip
def test_every_operation_of_a_formula_is_rounded(name, steps):
    x = sf.round(np.abs(SMALL), sf.BF16)
    function = {"xlog1py": lambda x: torch.special.xlog1py(x, x), "entr": torch.special.entr}[name]
    assert_bits(computed(function, x), steps(x, sf.BF16))


LOGITS = "binary_cross_entropy_with_logits"


@pytest.mark.parametrize("name, steps", {
    "softplus": lambda t, f: t,
    "logsigmoid": lambda t, f: sf.subtract(-18.0, t, f),
    "mish": lambda t, f: sf.multiply(-18.0, sf.tanh(t, f), f),
    LOGITS: lambda t, f: t,
    "logaddexp": lambda t, f: t,
}.items())  # fmt: skip
def test_a_tiny_value_is_not_zero(name, steps):
    x, least = np.float32([-18.0]), sf.log1p(sf.exp(-18.0, sf.FP32), sf.FP32)
    of_two = {
        LOGITS: lambda x: F.binary_cross_entropy_with_logits(-x, torch.ones(1)),
        "logaddexp": lambda x: torch.logaddexp(x, torch.zeros(1)),
    }
    function = of_two.get(name) or getattr(F, name)
    found = computed(function, x, policy="fp32").reshape(())
    assert_bits(found, np.float32(steps(least, sf.FP32)))


def test_the_root_of_two_squares_neither_overflows_nor_vanishes_on_the_way():
    a = np.float32([3 * 2.0**125, 3 * 2.0**-140, 3, np.inf, -np.inf, 0])
    b = np.float32([4 * 2.0**125, 4 * 2.0**-140, -4, np.nan, 1, -0.0])
    found = computed(lambda x: torch.hypot(x, torch.from_numpy(b)), a, policy="fp32")
    assert_bits(found, np.hypot(a.astype(np.float64), b).astype(np.float32))


def test_distances_are_norms_of_rounded_differences():
    x, y = np.float32([[1.0, 0.1]]), np.float32([[0.3, 2.7]])
    d = sf.subtract(x, y, sf.BF16)
    squares = sf.multiply(d, d, sf.BF16)
    total = sf.sum(squares, 1, accumulate=sf.FP32, output=sf.BF16)
    assert_bits(computed(torch.cdist, x, y)[0], sf.sqrt(total, sf.BF16))


def test_a_pixel_next_to_a_point_counts_by_its_rounded_nearness():
    image, f = np.float32([[[[1.0, 3.0], [0.5, 7.0]]]]), sf.BF16
    grid = np.float32([[[[0.1, -0.3]]]])
    at = sf.add(sf.multiply(grid[0, 0, 0], 1.0, f), 0.5, f)
    x, y = at - np.floor(at)
    left, above = sf.subtract(1.0, x, f), sf.subtract(1.0, y, f)
    weights = sf.multiply([left, x, left, x], [above, above, y, y], f)
    total, *others = sf.multiply(image.reshape(-1), weights, f)
    for term in others:
        total = sf.add(total, term, f)
    found = computed(lambda *given: F.grid_sample(*given, align_corners=False), image, grid)
    assert_bits(found.reshape(()), total.astype(np.float32))


def test_a_point_outside_of_a_large_image_stays_outside_however_coarse_the_format():
    image, grid = np.ones((1, 1, 1, 1001), np.float32), np.float32([[[[1.01, 0.0], [0.5, 0.0], [-1.01, 0.0]]]])
    found = computed(lambda *given: F.grid_sample(*given, mode="nearest", align_corners=True), image, grid)
    assert found.ravel().tolist() == [0, 1, 0]


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_the_border_of_an_image_is_its_last_pixel_though_the_format_lacks_its_number(mode):
    image = np.arange(1004.0, dtype=np.float32).reshape(1, 1, 1, 1004) % 8  # BF16 lacks 1003
    grid = np.float32([[[[1.0, 0.0]]]])
    found = computed(lambda *given: F.grid_sample(*given, mode, "border", align_corners=True), image, grid)
    assert found.ravel().tolist() == [1003 % 8]


def test_the_steps_of_a_ctc_loss_are_those_of_our_own():
    scores, lengths = SCORES.log_softmax(2).numpy(), ([6, 5, 4], [3, 2, 1])
    found = computed(lambda x: F.ctc_loss(x, TARGETS, *lengths, reduction="none"), scores.astype(np.float32))
    with sf.simulate("bf16-standard"):
        assert_bits(found, sf.nn.ctc_loss(scores.astype(np.float32), TARGETS.numpy(), *lengths, reduction="none").data)


def together(x, w, ends):
    """Products of groups, one after the other."""
    starts = [0, *ends[:-1]]
    return torch.cat([x[start:end] @ matrix for start, end, matrix in zip(starts, ends, w, strict=True)])


@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 4, 6]], ids=str)
def test_products_of_groups_are_products_of_each_group(ends):
    x, w, found = torch.randn(ends[-1], 16, generator=RANDOM), torch.randn(3, 16, 8, generator=RANDOM), []
    offsets = torch.tensor(ends, dtype=torch.int32)
    for product in (lambda x, w: F.grouped_mm(x, w, offs=offsets), lambda x, w: together(x, w, ends)):
        experts, given = Function(lambda x, w, product=product: product(x, w)), [x.clone(), w.clone()]
        given = [each.requires_grad_() for each in given]
        with sf.torch.simulate(experts, "fp8-hybrid"):
            result = experts(*given)
            (result * torch.arange(8.0)).sum().backward()
        found.append([result.detach(), *(each.grad for each in given)])
    for one, other in zip(*found, strict=True):
        assert_bits(one.numpy(), other.numpy())


def test_numbers_that_are_counted_are_not_rounded():
    with sf.torch.simulate(torch.nn.Identity(), sf.Policy(compute=sf.E4M3)):
        assert torch.histc(torch.zeros(1001), 2, 0, 1).tolist() == [1001, 0]


def spread(x, targets, *others):
    """The CTC loss of one sequence of 16 steps and classes."""
    return F.ctc_loss(x[0, 0].unsqueeze(1), torch.tensor(targets), *others)


@pytest.mark.parametrize("call, message", [
    (lambda x: torch.grid_sampler(x, x[..., :3], 0, 0, False), r"takes a grid \(1, ..., 2\) .* got \(1, 1, 16, 3\)"),
    (
        lambda x: torch.grid_sampler(x, x[..., :2].expand(2, -1, -1, -1), 0, 0, False),
        r"x of shape \(1, 1, 16, 16\), got \(2, 1, 16, 2\)",
    ),
    (lambda x: torch.cdist(x, x, -1.0), "cdist takes p of at least 0, got -1.0"),
    (lambda x: torch.special.hermite_polynomial_h(x, 10**10), "up to degree 65536; got 10000000000.*paused"),
    (lambda x: spread(x, [[1, 2]], [17], [2]), r"takes 1 input lengths, .* from 0 to 16; got \[17\]"),
    (lambda x: spread(x, [[1, 2]], [16, 16], [2, 2]), r"takes 1 input lengths, .* got \[16, 16\]"),
    (lambda x: spread(x, [[1, 2]], [16], [3]), r"1 target lengths, .* from 0 to 2; got \[3\]"),
    (lambda x: spread(x, [[1, 16]], [16], [2]), r"targets from 0 to 15, got \[1, 16\]"),
    (lambda x: spread(x, [1, 2], [16], [1]), r"1 concatenated, .* got \(2,\)"),
    (lambda x: spread(x, [[1, 2]], [16], [2], 16), "blank from 0 to 15, got 16"),
    (
        lambda x: F.grouped_mm(x[0, 0], x[0].expand(2, -1, -1), offs=torch.tensor([9, 3], dtype=torch.int32)),
        r"an end for each of 2 groups, ascending up to 16, .* got \[9, 3\]",
    ),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with sf.torch.simulate(torch.nn.Identity(), "fp32"), pytest.raises(ValueError, match=message):
        call(torch.zeros(1, 1, 16, 16))


def test_functions_without_a_clear_definition_are_refused_with_advice():
    table = torch.nn.Embedding(4, 3, max_norm=1.0)
    with sf.torch.simulate(table, "fp32"):
        with pytest.raises(ValueError, match="leave max_norm out of nn.Embedding"):
            table(torch.tensor([0]))
        with pytest.raises(ValueError, match="linalg_eig"):
            torch.linalg.eig(torch.eye(2))
