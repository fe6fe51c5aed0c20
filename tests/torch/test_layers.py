"""Layers, functions and losses of PyTorch: results and gradients equal those of plain PyTorch under fp64."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch.compared import Function, check_format, compare_with_plain


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


X, IMAGES, VOLUMES = numbers(4, 6), numbers(2, 4, 5, 6), numbers(1, 2, 4, 5, 4)
CLASSES = torch.tensor([0, 2, 1, 1])


def resized(mode, x, **options):
    return lambda: Function(lambda x: F.interpolate(x, mode=mode, **options)), x


def of(function, x=X, *others):
    return Function.of(function), x, *others


LAYERS = {
    "Conv3d": (lambda: nn.Conv3d(2, 4, (2, 3, 2), (1, 2, 1), 1, (2, 1, 1), groups=2), VOLUMES),
    "Conv3d cut": (lambda: nn.Conv3d(2, 3, 1, (3, 2, 2)), VOLUMES),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 4, 3, 2, 1, (1, 0, 1), 2, dilation=(1, 2, 1)), VOLUMES),
    "Conv2d reflect": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), IMAGES),
    "Conv2d same": (lambda: nn.Conv2d(4, 3, 3, padding="same", dilation=2), IMAGES),
    "Bilinear": (lambda: nn.Bilinear(6, 3, 2), X, numbers(4, 3)),
    "LSTM projected": (lambda: nn.LSTM(6, 4, proj_size=2), X),
    "GRU both ways": (lambda: nn.GRU(6, 3, 2, bidirectional=True), X),
    "GRUCell": (lambda: nn.GRUCell(6, 3), X),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True), 2),
        numbers(2, 3, 6),
        numbers(2, 4, 6),
    ),
    "Transformer": (lambda: nn.Transformer(6, 2, 1, 1, 8, 0.0, batch_first=True), numbers(2, 3, 6), numbers(2, 4, 6)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(2), VOLUMES),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMAGES),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), IMAGES),
    "RMSNorm": (lambda: nn.RMSNorm(6), X),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3).double()), X),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3).double()), X),
    "PReLU": (lambda: nn.PReLU(4), IMAGES),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(5, 3), torch.tensor([[0, 4, 4], [1, 1, 0]])),
    **{name: of(getattr(F, name), X * 3) for name in ("hardswish", "relu6", "mish", "logsigmoid", "softshrink")},
    **{name: of(getattr(F, name)) for name in ("hardshrink", "glu", "softsign", "tanhshrink", "normalize")},
    "max_pool3d": of(lambda x: F.max_pool3d(x, 2, 1), VOLUMES),
    "avg_pool3d": of(lambda x: F.avg_pool3d(x, (2, 3, 2), 2, (1, 1, 0), True, False), VOLUMES),
    "adaptive_max_pool2d": of(lambda x: F.adaptive_max_pool2d(x, (2, 4)), IMAGES),
    "adaptive_avg_pool3d": of(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), VOLUMES),
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
    "scatter_reduce": of(
        lambda x: x.scatter_reduce(0, torch.tensor([[0], [0], [1], [3]]).expand(4, 6), x, "sum", include_self=False)
    ),
    **{
        f"scatter_reduce mean {with_own}": of(
            lambda x, with_own=with_own: x.scatter_reduce(
                0, torch.tensor([[0], [0], [1], [3]]).expand(4, 6), x, "mean", include_self=with_own
            )
        )
        for with_own in (True, False)
    },
    "index_add": of(lambda x: x.index_add(0, torch.tensor([0, 1, 1, 3]), x, alpha=0.5)),
    "block_diag": of(lambda x: torch.block_diag(x, x.rot90())),
    "bce": of(lambda x: F.binary_cross_entropy(x.sigmoid(), X.sigmoid().to(x.dtype), X.abs().to(x.dtype))),
    "soft_margin": of(lambda x: F.soft_margin_loss(x, X.sign().to(x.dtype))),
    "multi_margin": of(lambda x: F.multi_margin_loss(x, CLASSES, p=2, margin=0.7)),
    "multi_margin weighted": of(lambda x: F.multi_margin_loss(x, CLASSES, weight=X[0].to(x.dtype))),
    "multilabel_soft_margin": of(lambda x: F.multilabel_soft_margin_loss(x, (X > 0).to(x.dtype))),
    "label_smoothing": of(lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1)),
    "poisson": of(lambda x: F.poisson_nll_loss(x, X.abs().to(x.dtype))),
    "gaussian": of(lambda x: F.gaussian_nll_loss(x, X.to(x.dtype), x * x + 1)),
    "cosine_embedding": of(lambda x: F.cosine_embedding_loss(x, X.flip(0).to(x.dtype), X[:, 0].sign().to(x.dtype))),
    "triplet": of(lambda x: F.triplet_margin_loss(x, X.flip(0).to(x.dtype), -X.to(x.dtype))),
    "hinge": of(lambda x: F.hinge_embedding_loss(x, X.sign().to(x.dtype))),
}


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


def test_results_written_to_out_are_rounded():
    x, out = torch.tensor([1.0, 3.0]), torch.zeros(2)
    with sf.torch.simulate(nn.Identity(), "bf16-standard"):
        assert torch.div(x, 3.0, out=out) is out
    assert out.tolist() == [sf.round(1 / 3, sf.BF16), 1.0]


def test_sparse_gradients_and_complex_numbers_are_refused_with_what_to_do():
    table, bag = nn.Embedding(4, 3, sparse=True), nn.EmbeddingBag(4, 3, mode="sum", sparse=True)
    with sf.torch.simulate(nn.ModuleList([table, bag]), "fp32"):
        with pytest.raises(ValueError, match="dense"):
            table(torch.tensor([0])).sum().backward()
        with pytest.raises(ValueError, match="whole table"):
            bag(torch.tensor([[0, 1]])).sum().backward()
        with pytest.raises(ValueError, match="real numbers"):
            torch.fft.rfft(torch.ones(4))


def test_rows_of_a_bag_may_have_weights_with_gradients_of_their_own():
    places, starts = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 3])
    found = []
    for policy in (None, "fp64"):
        torch.manual_seed(0)
        bag = torch.nn.EmbeddingBag(10, 4, mode="sum", padding_idx=2).double()
        weights = torch.rand(6, dtype=torch.float64, requires_grad=True)
        with contextlib.nullcontext() if policy is None else sf.torch.simulate(bag, policy):
            y = bag(places, starts, weights)
            (y * torch.arange(8.0).reshape(2, 4)).sum().backward()
        found.append([y.detach(), bag.weight.grad, weights.grad])
    for plain, simulated in zip(*found, strict=True):
        torch.testing.assert_close(simulated, plain, rtol=1e-13, atol=0)
    with sf.torch.simulate(bag.requires_grad_(False), "fp64"):  # a table that is not trained
        assert torch.equal(bag(places, starts, weights.detach()), found[1][0])
