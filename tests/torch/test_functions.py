"""Functions, points in images, CTC, segments and factorizations: plain PyTorch's values, every step rounded."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.torch.compared import Function, check_format, compare_with_plain

RANDOM = torch.Generator().manual_seed(3)
X = torch.rand(4, 6, generator=RANDOM, dtype=torch.float64) + 0.1
IMAGES, VOLUMES, SCORES, Y, MATRICES = (
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
            (IMAGES, "bilinear", "zeros", False), (VOLUMES, "bilinear", "zeros", True),
            (IMAGES, "bilinear", "border", False), (VOLUMES, "bilinear", "border", True),
            (IMAGES, "bilinear", "reflection", True), (VOLUMES, "bilinear", "reflection", False),
            (IMAGES, "nearest", "zeros", False), (VOLUMES, "nearest", "reflection", True),
            (IMAGES, "bicubic", "zeros", False), (IMAGES, "bicubic", "border", True),
            (IMAGES, "bicubic", "reflection", False), (IMAGES, "bicubic", "reflection", True),
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

ROWS, LENGTHS = torch.tensor([[1, 3, 1], [2, 1, 0]]), torch.tensor([2, 0, 2])
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

#: Those whose results and gradients are rounded as the policy says, besides all functions of the first table.
ROUNDED = (
    "segments mean", "renorm", "rrelu", "multilabel_margin_loss", "cholesky", "solve", "inv", "det", "qr", "svdvals",
    "eigh", "pinv", "lstsq",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", [*FUNCTIONS, *RARER, *FACTORIZATIONS])
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    function = Function.of((FUNCTIONS | RARER | FACTORIZATIONS)[name])
    x = X if name in FUNCTIONS else Y if name in RARER else MATRICES
    compare_with_plain(function, x)
    if name in FUNCTIONS or name in ROUNDED:
        check_format(function, x)
