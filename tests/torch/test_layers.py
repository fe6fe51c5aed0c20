"""Layers, functions, losses and writes to views: under fp64 plain PyTorch's values, and in the policy's format."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch.compared import Function, check_format, compare_with_plain


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


X, IMAGES, VOLUMES, ROWS = numbers(4, 6), numbers(2, 4, 5, 6), numbers(1, 2, 4, 5, 4), numbers(4, 3, 3)
CLASSES, BAGS = torch.tensor([0, 2, 1, 1]), torch.tensor([[0, 4, 4], [1, 2, 0], [2, 6, 1], [2, 2, 3]])
PLACES = torch.tensor([[0], [0], [1], [3]]).expand(4, 6)


class Packed(nn.LSTM):
    """Sequences of several lengths."""

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 3, 1]))
        return nn.utils.rnn.pad_packed_sequence(super().forward(packed)[0])[0]


#: Writes to views, and to tensors with views, of what a function gets: statements, and then the result.
WRITES = """
h[:, :2].mul_(2.0); h
view = h[:, :2]; h.mul_(3.0); h.sum(1) + view.sum(1)
view, other = h[:, :2], h[:, 2:]; h.mul_(3.0); view * other + view.t()[:, :1].sum()
h[0].add_(h[1].relu()); h * h
h[:, 1] = h[:, 0] * 3; h * h
made = torch.zeros_like(h).copy_(h * 2); made[0].copy_(made[1]); made * made
h[:, 0].masked_fill_(h[:, 0] > 1, 0.5); h * h
h.t()[1:3][0].div_(h[0, 0] + 3).clamp_(min=-0.5); h.exp()
h[:, 1] *= 2; h[0] += h[1]; h * h
view = h[:, :2]; view.mul_(2.0); view * 3 + h[:, 2:] * view.add_(1.0)
data = torch.linspace(1, 2, 12, dtype=h.dtype).reshape(3, 4); data.mul_(h).div_(h + 3); data
data = torch.full((3, 8), 2, dtype=h.dtype); data[:, 4:].mul_(h); data * data
"""


def written(line):
    """The function that a line of writes is."""

    def function(x):
        scope, (*statements, result) = {"h": x * 1.0, "torch": torch}, line.split("; ")
        exec("\n".join(statements), scope)
        return eval(result, scope)

    return function


def of(function, x=X, *others):
    return Function.of(function), x, *others


def resized(mode, x, **options):
    return of(lambda x: F.interpolate(x, mode=mode, **options), x)


LAYERS = {
    "Conv3d cut": (lambda: nn.Conv3d(2, 3, 1, (3, 2, 2)), VOLUMES),
    "Conv2d reflect": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), IMAGES),
    "Conv2d same": (lambda: nn.Conv2d(4, 3, 3, padding="same", dilation=2), IMAGES),
    **{
        f"one number for all axes, {options}": of(
            lambda x, w, options=options: (F.conv2d if x.ndim == 4 else F.conv3d)(x, w, **options),
            numbers(1, 2, *[5] * axes), numbers(3, 2, *[2] * axes),
        )
        for axes, options in ((2, {"padding": (1,)}), (3, {"stride": (2,)}), (3, {"dilation": (2,)}))
    },
    "one number for all axes, transposed": of(
        lambda x, w: F.conv_transpose2d(x, w, stride=(2,), padding=(1,), output_padding=(1,)),
        numbers(1, 2, 3, 4), numbers(2, 3, 2, 2),
    ),
    "Bilinear": (lambda: nn.Bilinear(6, 3, 2), X, numbers(4, 3)),
    "LSTM packed": (lambda: Packed(3, 4), ROWS[:, :3]),
    "LSTM projected": (lambda: nn.LSTM(6, 4, proj_size=2), X),
    "GRU both ways": (lambda: nn.GRU(6, 3, 2, bidirectional=True), X),
    "RNN": (lambda: nn.RNN(3, 4, 2, batch_first=True), ROWS),
    "GRUCell": (lambda: nn.GRUCell(6, 3), X),
    "Transformer": (lambda: nn.Transformer(6, 2, 1, 1, 8, 0.0, batch_first=True), numbers(2, 3, 6), numbers(2, 4, 6)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), VOLUMES),
    "running statistics": of(
        lambda x: F.batch_norm(x, X[0].to(x.dtype), X[1].abs().to(x.dtype), X[2].to(x.dtype), X[3].to(x.dtype))
    ),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGES),
    # With a bias and without a weight: PyTorch itself fails for group_norm.
    "layer_norm": of(lambda x, bias: F.layer_norm(x, (6,), None, bias), X, numbers(6)),
    "batch_norm": of(lambda x, bias: F.batch_norm(x, None, None, None, bias, True), X, numbers(6)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), IMAGES),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3).double()), X),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3).double()), X),
    **{f"EmbeddingBag {how}": (lambda h=how: nn.EmbeddingBag(7, 4, mode=h, padding_idx=2), BAGS)
        for how in ("sum", "mean", "max")},
    **{name: of(getattr(F, name)) for name in ("softsign", "tanhshrink", "normalize")},
    "elu_": of(lambda x: F.elu(x * 1.0, 0.5, inplace=True)),
    "cumsum": of(lambda x: x.cumsum(-1) * x.cumsum(1), IMAGES),
    "one image": of(lambda x: F.avg_pool2d(x, 2), IMAGES[0]),
    "one signal": of(lambda x: F.adaptive_avg_pool1d(x, 4), X),
    "max_unpool2d": of(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), IMAGES),
    "unfold and fold": of(lambda x: F.fold(F.unfold(x, 2, padding=1) ** 2, (5, 6), 2, padding=1), IMAGES),
    "reflect": of(lambda x: F.pad(x, (1, 2, 2, 1), "reflect"), IMAGES),
    "replicate": of(lambda x: F.pad(x, (1, 0, 2, 1, 1, 1), "replicate"), VOLUMES),
    "nearest": resized("nearest", IMAGES, scale_factor=1.7),
    "nearest-exact": resized("nearest-exact", IMAGES, size=(7, 4)),
    "nearest volumes": resized("nearest", VOLUMES, scale_factor=2.0),
    "linear": resized("linear", IMAGES[0], size=9),
    "bilinear": resized("bilinear", IMAGES, scale_factor=(1.7, 0.6)),
    "bilinear corners": resized("bilinear", IMAGES, size=(1, 9), align_corners=True),
    "trilinear": resized("trilinear", VOLUMES, scale_factor=2.0),
    "bicubic": resized("bicubic", IMAGES, size=(8, 3)),
    "area": resized("area", IMAGES, size=(2, 4)),
    "addmv": of(lambda x: torch.addmv(x[:, 0], x, x[0], beta=0.5, alpha=2.0)),
    "addbmm": of(lambda x: torch.addbmm(torch.ones(5, 5, dtype=x.dtype), x[0], x[1].transpose(1, 2)), IMAGES),
    "addr": of(lambda x: torch.addr(x[:3, :4], x[:3, 5], x[:, 4], alpha=0.5)),
    "einsum": of(lambda x: torch.einsum("nchw,ndhw->ncd", x, x), IMAGES),
    "cross": of(lambda x: torch.linalg.cross(x[:, :3], x[:, 3:])),
    "prod": of(lambda x: x.prod(1) * x.prod()),
    "cumprod": of(lambda x: x.cumprod(0)),
    "exp2": of(lambda x: 2.0**x * torch.exp2(x)),
    "logaddexp": of(lambda x: torch.logaddexp(x, x.flip(0))),
    "logit": of(lambda x: x.sigmoid().logit(0.4)),
    "hypot": of(lambda x: torch.hypot(x, x.flip(0))),
    "dist": of(lambda x: torch.dist(x, x.flip(0))),
    "cosine_similarity": of(lambda x: F.cosine_similarity(x, x.flip(0))),
    "remainder": of(lambda x: x % 0.3 + x.fmod(0.2) + x.frac()),
    "copysign": of(lambda x: torch.copysign(x, -torch.ones_like(x))),
    "nansum": of(lambda x: torch.where(x > 1, torch.nan, x).nansum(1)),
    "trace": of(lambda x: x[:, :4].trace() + x.diag().sum()),
    "median": of(lambda x: x.median(1)[0] + x.kthvalue(2)[0] + x.aminmax(dim=1)[1]),
    "take": of(lambda x: x.take(torch.tensor([0, 1, 1, -1])) + x.unfold(1, 3, 2)[0, 0, 0]),
    **{
        f"scatter_reduce {how}": of(lambda x, h=how, own=own: x.scatter_reduce(0, PLACES, x, h, include_self=own))
        for how, own in (("sum", False), ("mean", True), ("mean", False))
    },
    "masked_scatter": of(lambda x, other: x.masked_scatter(X > 0, other * x[0, 0]), X, numbers(25)),
    "index_add": of(lambda x: x.index_add(0, torch.tensor([0, 1, 1, 3]), x, alpha=0.5)),
    "block_diag": of(lambda x: torch.block_diag(x, x.rot90())),
    "statistics": of(lambda z: z.logsumexp(1).mean() + z.var() + z.std(0).norm() + z.clamp(-0.5, 0.5).abs().sum()),
    "ignored classes": of(lambda x: F.cross_entropy(x, CLASSES, ignore_index=1)),
    "soft_margin": of(lambda x: F.soft_margin_loss(x, X.sign().to(x.dtype))),
    "multi_margin": of(lambda x: F.multi_margin_loss(x, CLASSES, p=2, margin=0.7)),
    "multi_margin weighted": of(lambda x: F.multi_margin_loss(x, CLASSES, weight=X[0].to(x.dtype))),
    **{
        f"multi_margin of {shape}": of(
            lambda x, target=target: F.multi_margin_loss(x, torch.tensor(target)), numbers(*shape)
        )
        for shape, target in (((), 0), ((3,), 1), ((2, 3), [1, 0]))
    },
    "multilabel_soft_margin": of(lambda x: F.multilabel_soft_margin_loss(x, (X > 0).to(x.dtype))),
    "poisson": of(lambda x: F.poisson_nll_loss(x, X.abs().to(x.dtype))),
    "gaussian": of(lambda x: F.gaussian_nll_loss(x, X.to(x.dtype), x * x + 1)),
    "cosine_embedding": of(lambda x: F.cosine_embedding_loss(x, X.flip(0).to(x.dtype), X[:, 0].sign().to(x.dtype))),
    "triplet": of(lambda x: F.triplet_margin_loss(x, X.flip(0).to(x.dtype), -X.to(x.dtype))),
    "hinge": of(lambda x: F.hinge_embedding_loss(x, X.sign().to(x.dtype))),
    **{line: of(written(line), torch.linspace(-1, 2, 12).reshape(3, 4)) for line in WRITES.strip().split("\n")},
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(*LAYERS[name])
    check_format(*LAYERS[name])


def test_an_operation_that_pytorch_makes_of_others_is_simulated_inside_of_a_rule_too(own_rules):
    @sf.torch.rule("aten::special_i1")
    def rule(x):
        return F.linear(x.to(x.dtype), torch.full((2, 3), 1.001)).softmax(1)

    with sf.torch.simulate(nn.Identity(), "bf16-standard") as run:
        assert torch.equal(torch.special.i1(torch.ones(1, 3)), torch.full((1, 2), 0.5))
    assert "aten.softmax.int" in run.table() and "refused" not in run.table()


def test_rows_of_a_bag_may_have_weights_with_gradients_of_their_own():
    class Weighted(nn.EmbeddingBag):
        def forward(self, weights):
            y = super().forward(torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 3]), weights)
            return y * torch.arange(8.0, dtype=y.dtype).reshape(2, 4)

    compare_with_plain(lambda: Weighted(10, 4, mode="sum", padding_idx=2), numbers(6))
    bag = Weighted(10, 4, mode="sum", padding_idx=2).requires_grad_(False)  # a table that is not trained
    with sf.torch.simulate(bag, "fp32"):
        assert torch.equal(bag(torch.ones(6)), bag(torch.ones(6)))
