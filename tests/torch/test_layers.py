"""Layers, functions, losses and writes to views: under fp64 plain PyTorch's values, and in the policy's format."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from simfloat.torch.search import USERS, forget
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


@pytest.fixture
def own_rules():
    """A test's own rules are forgotten at its end: another test's operation may be differentiated by theirs."""
    before = dict(USERS)
    yield
    USERS.clear()
    USERS.update(before)
    forget()


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


RANDOM = torch.Generator().manual_seed(3)
POSITIVE = torch.rand(4, 6, generator=RANDOM, dtype=torch.float64) + 0.1
SMALL_IMAGES, DEEP, SCORES, SIGNED, MATRICES = (
    torch.randn(*shape, generator=RANDOM, dtype=torch.float64)
    for shape in ((2, 3, 4, 5), (2, 3, 4, 5, 3), (6, 3, 5), (4, 6), (2, 4, 4))
)
TARGETS, IN_A_ROW = torch.tensor([[1, 2, 2], [3, 1, 4], [2, 0, 0]]), torch.tensor([1, 2, 2, 3, 1, 2])


def looked_up(x, images, mode, padding, corners):
    axes = images.ndim - 2
    grid = (x[:, :axes].repeat(1, 4) * 2.7 - 1.9).reshape(2, 2, *[1] * (axes - 2), 4, axes)
    return F.grid_sample(images.to(x.dtype) * x[0, 0], grid, mode, padding, corners)


def ctc(x, *arguments, **options):
    return F.ctc_loss((SCORES.to(x.dtype) * x[0, 0]).log_softmax(2), *arguments, **options)


FUNCTIONS = {
    **{name: getattr(torch, name) for name in "log1p log10 expm1 sinh cosh tan sinc erfc atan asinh".split()},
    "inverses": lambda x: torch.asin(x / 2) + torch.acos(x / 2) + torch.atanh(x / 2) + torch.acosh(x + 1),
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
        for images, mode, padding, corners in (
            (SMALL_IMAGES, "bilinear", "zeros", False), (DEEP, "bilinear", "zeros", True),
            (SMALL_IMAGES, "bilinear", "border", False), (DEEP, "bilinear", "border", True),
            (SMALL_IMAGES, "bilinear", "reflection", True), (DEEP, "bilinear", "reflection", False),
            (SMALL_IMAGES, "nearest", "zeros", False), (DEEP, "nearest", "reflection", True),
            (SMALL_IMAGES, "bicubic", "zeros", False), (SMALL_IMAGES, "bicubic", "border", True),
            (SMALL_IMAGES, "bicubic", "reflection", False), (SMALL_IMAGES, "bicubic", "reflection", True),
        )
    },
    **{
        f"ctc {how}": lambda x, r=how: ctc(x, TARGETS, torch.tensor([6, 5, 4]), torch.tensor([3, 2, 1]), reduction=r)
        for how in ("none", "mean", "sum")
    },
    "ctc in a row": lambda x: ctc(x, IN_A_ROW, [6, 5, 4], [3, 2, 1]),
    "ctc without steps or targets": lambda x: ctc(x, TARGETS, [6, 0, 4], [3, 0, 0], reduction="none"),
    "ctc of what fits no way": lambda x: ctc(x, TARGETS, [6, 2, 4], [3, 3, 1], zero_infinity=True),
    "ctc with another blank": lambda x: ctc(x, TARGETS[:, :1], [6, 6, 4], [1, 1, 1], blank=4),
}  # fmt: skip

SEGMENT_ROWS, LENGTHS = torch.tensor([[1, 3, 1], [2, 1, 0]]), torch.tensor([2, 0, 2])
LABELS = torch.tensor([[1, 0, -1, 2, 4, 0]]).expand(4, -1)
SAMPLES = torch.rand(2, 3, 2, generator=RANDOM, dtype=torch.float64)


def segments(x, reduce):
    return torch.segment_reduce(x, reduce, lengths=LENGTHS, initial=0.5)


def drawn_slopes(x):
    torch.manual_seed(3)
    return F.rrelu(x, training=True)


RARER = {
    **{f"segments {how}": lambda x, how=how: segments(x, how) for how in ("sum", "mean", "max", "min", "prod")},
    "an exponential of matrices": lambda x: torch.linalg.matrix_exp((x.mT @ x).reshape(4, 3, 3) - 1),
    "rows by how often they are taken": lambda x: F.embedding(SEGMENT_ROWS, x, 2, scale_grad_by_freq=True),
    "a product of a segment with a zero": lambda x: segments(x * (x > 0), "prod"),
    "segments of inner axes": lambda x: torch.segment_reduce(x, "mean", offsets=torch.tensor([[0, 2, 5]] * 4), axis=1),
    "logaddexp2": lambda x: torch.logaddexp2(x, x.flip(0)),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.5),
    "rrelu": drawn_slopes,
    "rrelu in evaluation": lambda x: F.rrelu(x),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, LABELS, reduction="none"),
    "multilabel_margin_loss of one": lambda x: F.multilabel_margin_loss(x[0], LABELS[0]),
    "fractional pooling": lambda x: F.fractional_max_pool2d(
        SMALL_IMAGES.to(x.dtype) * x[0, 0], 2, (3, 4), _random_samples=SAMPLES.to(x.dtype)
    ),
    **{
        f"antialiased {mode} {size} {corners}": lambda x, mode=mode, size=size, corners=corners: F.interpolate(
            SMALL_IMAGES.to(x.dtype) * x[0, 0], size, mode=mode, antialias=True, align_corners=corners
        )
        for mode, size, corners in (
            ("bilinear", (2, 3), False), ("bilinear", (9, 4), True), ("bicubic", (2, 12), False),
        )
    },
}  # fmt: skip


def definite(x):
    return x @ x.mT + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def side(x):
    """Right-hand sides that depend on the matrix too."""
    return x[..., :2] * 1.5 - x[..., 2:].flip(-1)


MATRIX_FUNCTIONS = {
    "solve": lambda a: torch.linalg.solve(a, side(a)),
    "solve from the right": lambda a: torch.linalg.solve(a, side(a).mT, left=False),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), side(a), adjoint=True),
    "matrix_power": lambda a: torch.linalg.matrix_power(a, -2),
}
FACTORIZATIONS = {
    "cholesky": lambda x: torch.linalg.cholesky(definite(x)),
    "cholesky upper": lambda x: torch.linalg.cholesky(definite(x), upper=True),
    "cholesky_solve": lambda x: torch.cholesky_solve(side(x), torch.linalg.cholesky(definite(x))),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(torch.linalg.cholesky(definite(x))),
    "solve_triangular": lambda x: torch.linalg.solve_triangular(definite(x).tril(), side(x), upper=False),
    "solve_triangular from the right": lambda x: torch.linalg.solve_triangular(
        definite(x).triu(), side(x).mT, upper=True, left=False
    ),
    "qr": lambda x: torch.cat(torch.linalg.qr(x), -1),
    "qr of few columns": lambda x: torch.linalg.qr(x[..., :2])[0],
    **{f"{name} of a transposed": lambda x, f=f: f(x.mT.contiguous().mT) for name, f in MATRIX_FUNCTIONS.items()},
    **MATRIX_FUNCTIONS,
    "svdvals": torch.linalg.svdvals,
    "svd": lambda x: torch.linalg.svd(x[..., :3], full_matrices=False)[0].abs(),
    "eigh": lambda x: torch.linalg.eigh(definite(x))[1].abs(),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(x + x.mT, UPLO="U"),
    "pinv": lambda x: torch.linalg.pinv(x[..., :3]),
    "pinv of a symmetric": lambda x: torch.linalg.pinv(definite(x), hermitian=True),
    "lstsq": lambda x: torch.linalg.lstsq(x[..., :2], side(x)).solution,
    "lstsq of few rows": lambda x: torch.linalg.lstsq(x[:, :2], side(x)[:, :2]).solution,
    "householder_product": lambda x: torch.linalg.householder_product(x.tril(-1), x[..., 0].sigmoid()),
    "nuclear norm": lambda x: torch.linalg.matrix_norm(x, "nuc"),
    "lu": lambda x: torch.cat(torch.linalg.lu(x)[1:], -1),
    **{
        name: lambda x, name=name: getattr(torch.special, name)(x.detach() / 3, torch.arange(4)) + 0 * x
        for name in ("chebyshev_polynomial_t", "shifted_chebyshev_polynomial_w", "hermite_polynomial_he")
        + ("laguerre_polynomial_l", "legendre_polynomial_p")
    },
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "pdist": lambda x: F.pdist(x[0], 3.0),
    "scatter of products": lambda x: x[0].scatter_reduce(
        0, torch.tensor([[0, 1, 0, 0], [2, 1, 0, 3]]), x[1, :2], "prod"
    ),
    "index_reduce": lambda x: x[0].index_reduce(1, torch.tensor([0, 3, 0]), x[1, :, :3], "mean"),
}

#: Functions with results and gradients that the policy rounds, in addition to all functions of the first table.
ROUNDED = (
    "segments mean", "renorm", "rrelu", "multilabel_margin_loss", "cholesky", "solve", "inv", "det", "qr", "svdvals",
    "eigh", "pinv", "lstsq",
)  # fmt: skip

CASES = LAYERS | {
    name: (Function.of(function), x)
    for table, x in ((FUNCTIONS, POSITIVE), (RARER, SIGNED), (FACTORIZATIONS, MATRICES))
    for name, function in table.items()
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(*CASES[name])
    if name in LAYERS or name in FUNCTIONS or name in ROUNDED:
        check_format(*CASES[name])
