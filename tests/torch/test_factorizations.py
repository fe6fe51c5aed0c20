"""Factorizations, systems and polynomials in PyTorch models: plain PyTorch's values, in documented orders."""

import numpy as np
import pytest
import torch

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import Function, check_format, compare_with_plain

RANDOM = torch.Generator().manual_seed(7)
X = torch.randn(2, 4, 4, generator=RANDOM, dtype=torch.float64)


def definite(x):
    return x @ x.mT + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def side(x):
    """Right-hand sides that depend on the matrix too."""
    return x[..., :2] * 1.5 - x[..., 2:].flip(-1)


FUNCTIONS = {
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
    **{
        f"{name}{where}": lambda x, name=name, turned=turned: MATRIX_FUNCTIONS[name](turned(x))
        for name in ("solve", "solve from the right", "inv", "det", "slogdet", "lu_solve", "matrix_power")
        for where, turned in (("", lambda x: x.contiguous()), (" of a transposed", lambda x: x.mT.contiguous().mT))
    },
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
    "pdist": lambda x: torch.nn.functional.pdist(x[0], 3.0),
    "scatter of products": lambda x: x[0].scatter_reduce(
        0, torch.tensor([[0, 1, 0, 0], [2, 1, 0, 3]]), x[1, :2], "prod"
    ),
    "index_reduce": lambda x: x[0].index_reduce(1, torch.tensor([0, 3, 0]), x[1, :, :3], "mean"),
}
MATRIX_FUNCTIONS = {
    "solve": lambda a: torch.linalg.solve(a, side(a)),
    "solve from the right": lambda a: torch.linalg.solve(a, side(a).mT, left=False),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": lambda a: torch.linalg.slogdet(a)[1],
    "lu_solve": lambda a: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), side(a), adjoint=True),
    "matrix_power": lambda a: torch.linalg.matrix_power(a, -2),
}


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_those_of_plain_pytorch_and_numbers_of_the_policys_format(name):
    compare_with_plain(Function.of(FUNCTIONS[name]), X)
    if name in ["cholesky", "solve", "inv", "det", "qr", "svdvals", "eigh", "pinv", "lstsq"]:
        check_format(Function.of(FUNCTIONS[name]), X)


def test_factors_have_the_bits_of_our_own():
    a, definite_ = X.float(), definite(X.float())
    options = dict(format=sf.BF16, accumulate=sf.FP32)
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        lower = torch.linalg.cholesky(definite_)
        packed, pivots = torch.linalg.lu_factor(a)
        q, r = torch.linalg.qr(a)
    for i in range(2):
        rounded = sf.round(definite_[i].numpy(), sf.BF16)
        assert_bits(lower[i].numpy(), sf.linalg.cholesky(rounded, **options).numbers.astype(np.float32))
        m = sf.round(a[i].numpy(), sf.BF16)
        order, left, right = sf.linalg.lu(m, **options)
        assert_bits(packed[i].tril(-1).numpy(), np.tril(left.numbers, -1).astype(np.float32))
        assert_bits(packed[i].triu().numpy(), right.numbers.astype(np.float32))
        rows = list(range(4))
        for k, at in enumerate(pivots[i].tolist()):
            rows[k], rows[at - 1] = rows[at - 1], rows[k]
        assert rows == order.tolist()
        found = sf.linalg.qr(m, **options)
        assert_bits(q[i].numpy(), found.q.numbers.astype(np.float32))
        assert_bits(r[i].numpy(), found.r.numbers.astype(np.float32))


def test_reflections_singular_values_and_eigenvalues_have_the_bits_of_our_own():
    a, options = X.float(), dict(format=sf.BF16, accumulate=sf.FP32)
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        found = [*torch.linalg.svd(a), *torch.linalg.eigh(a)]
        packed, tau = torch.geqrf(a)
        q, other = torch.linalg.householder_product(packed, tau), torch.ormqr(packed, tau, torch.eye(4).expand(a.shape))
    for i in range(2):
        m = sf.round(a[i].numpy(), sf.BF16)
        ours = [*sf.linalg.svd(m, full_matrices=True, **options), *sf.linalg.eigh(m, **options)]
        for got, due in zip(found, ours, strict=True):
            assert_bits(got[i].numpy(), due.numbers.astype(np.float32))
        factors = sf.linalg.qr(m, **options)
        assert_bits(packed[i].triu().numpy(), factors.r.numbers.astype(np.float32))
        assert_bits(q[i].numpy(), factors.q.numbers.astype(np.float32))
        assert_bits(other[i].numpy(), q[i].numpy())


def test_a_matrix_without_factors_is_refused_with_what_to_do():
    with sf.torch.simulate(torch.nn.Identity(), "bf16-standard"):
        with pytest.raises(ValueError, match="not positive definite"):
            torch.linalg.cholesky(-torch.eye(2))
        with pytest.raises(ValueError, match="singular|pivot"):
            torch.linalg.inv(torch.zeros(2, 2))
