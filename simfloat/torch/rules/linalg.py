"""Rules of linear algebra: factorizations, linear systems, the matrix exponential, and orthogonal polynomials.

Factorizations and systems use the orders of operations of `simfloat.linalg`. Operations have the format of the results,
and sums use `accumulate`. The matrices of a batch are computed one after the other. Partial sums may have another
format than the results, as in `simfloat.linalg`.

The matrix exponential consists of products and sums of matrices, which are simulated.

Orthogonal polynomials use their three-term recurrences, p(k + 1) from p(k) and p(k - 1), and round each step
(Abramowitz and Stegun, Handbook of Mathematical Functions, 22.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat import linalg
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import exact_tensor, host_numbers

Tensor = torch.Tensor
_aten = torch.ops.aten


def matrices(x: NDArray) -> NDArray:
    """Return the matrices of a batch along one axis."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def options_of(call: RuleCall) -> dict[str, Any]:
    """Return the arithmetic of a call as options of `simfloat.linalg`."""
    u = call.arithmetic
    return {
        "format": u.format,
        "rounding": u.target.rounding,
        "accumulate": u.accumulate,
        "stream": u.target.stream,
    }


def map_matrices(function: Callable[..., NDArray], shape: Sequence[int], *batches: NDArray) -> NDArray:
    """Apply a function to each matrix of the batches, and return a batch of this shape."""
    results = (
        [function(*operands) for operands in zip(*map(matrices, batches), strict=True)] if math.prod(shape) else []
    )
    return np.stack(results).reshape(shape) if results else np.zeros(shape, batches[0].dtype)


def cholesky(call: RuleCall, a: Tensor, upper: bool = False) -> Tensor:
    """Return the factor l with a = l l^T, or its transpose."""
    call.begin()
    options, matrix = options_of(call), host_numbers(a)
    matrix = matrix.swapaxes(-1, -2) if upper else matrix
    lower = map_matrices(lambda m: linalg.cholesky(m, **options).numbers, a.shape, matrix)
    return call.tensor(lower.swapaxes(-1, -2) if upper else lower)


def cholesky_ex(call: RuleCall, a: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the factor, and zeros for PyTorch's `info`; a factor that does not exist raises an error."""
    return cholesky(call, a, upper), torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def exchanges(order: NDArray[np.integer], count: int) -> list[int]:
    """Return the row exchanges, numbered from 1 and applied one after the other, that give this order."""
    now, rows = list(range(len(order))), []
    for k in range(count):
        at = now.index(int(order[k]))
        now[k], now[at] = now[at], now[k]
        rows.append(at + 1)
    return rows


def lu_factor(
    call: RuleCall, a: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return both factors in one matrix, the row exchanges, and zeros for PyTorch's `info`."""
    call.begin()
    options, rows = options_of(call), min(a.shape[-2:])
    places: list[list[int]] = []

    def pack_factors(m: NDArray) -> NDArray:
        factors = linalg.lu(m, pivot=pivot, **options)
        places.append(exchanges(factors.permutation, rows))
        packed = np.zeros(m.shape, factors.upper.numbers.dtype)
        packed[:, :rows] += np.tril(factors.lower.numbers, -1)
        packed[:rows] += factors.upper.numbers
        return packed

    packed = call.tensor(map_matrices(pack_factors, a.shape, host_numbers(a)))
    pivots = torch.ones(*a.shape[:-2], rows, dtype=torch.int32, device=a.device)
    if places:
        pivots = torch.tensor(places, dtype=torch.int32, device=a.device).reshape(pivots.shape)
    return packed, pivots, torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)


def triangular(
    call: RuleCall, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return the solution x of a x = b, or of x a = b, for a triangular a."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    call.begin()
    options = options_of(call)
    t, right = (host_numbers(x.expand(*batch, *x.shape[-2:])) for x in (a, b))
    if not left:
        t, right, upper = t.swapaxes(-1, -2), right.swapaxes(-1, -2), not upper

    def solve_one(t: NDArray, right: NDArray) -> NDArray:
        return linalg.solve_triangular(t, right, lower=not upper, unit_diagonal=unitriangular, **options).numbers

    x = map_matrices(solve_one, right.shape, t, right)
    return call.tensor(x if left else x.swapaxes(-1, -2))


def qr(call: RuleCall, a: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Return Householder's q and r; all columns of q if the mode is "complete", none if it is "r"."""
    rows, columns = a.shape[-2:]
    wide = max(rows, columns) if mode == "complete" else columns
    call.begin()
    options, array = options_of(call), host_numbers(a)
    # Columns of zeros have no reflections; they provide space for the other columns of q.
    array = np.concatenate([array, np.zeros((*a.shape[:-1], wide - columns), array.dtype)], -1)
    factors = [linalg.qr(m, **options) for m in matrices(array)] if array.size else []
    least = min(rows, wide)
    q, r = (
        np.stack([getattr(factor, name).numbers for factor in factors]).reshape(*a.shape[:-2], *size)
        if factors
        else np.zeros((*a.shape[:-2], *size), array.dtype)
        for name, size in (("q", (rows, least)), ("r", (least, wide)))
    )
    return call.tensor(q if mode != "r" else np.zeros(0, q.dtype)), call.tensor(r[..., :columns])


def exchange_rows(b: Tensor, pivots: Tensor, back: bool = False) -> Tensor:
    """Return b with its rows exchanged; with `back`, for the transposed system."""
    if not b.numel():
        return b
    # lu_unpack converts exchanges, which are applied one after the other, to a permutation. Values are only moved, not
    # rounded.
    rows = torch.ops.aten.lu_unpack(b.new_zeros(*pivots.shape[:-1], b.shape[-2], b.shape[-2]), pivots, False, True)[0]
    order = rows.argmax(-1 if back else -2)
    order = order.expand(*torch.broadcast_shapes(order.shape[:-1], b.shape[:-2]), order.shape[-1])
    b = b.expand(*order.shape[:-1], *b.shape[-2:])
    return b.gather(-2, order.unsqueeze(-1).expand(b.shape))


def lu_solve(lu: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Return the solution x of a x = b, or of x a = b, by the factors of a; with `adjoint` a is transposed."""
    if not left:
        return lu_solve(lu, pivots, b.mT, left=True, adjoint=not adjoint).mT
    if adjoint:
        y = _aten.linalg_solve_triangular(lu.mT, b, upper=False)
        return exchange_rows(_aten.linalg_solve_triangular(lu.mT, y, upper=True, unitriangular=True), pivots, back=True)
    y = _aten.linalg_solve_triangular(lu, exchange_rows(b, pivots), upper=False, unitriangular=True)
    return _aten.linalg_solve_triangular(lu, y, upper=True)


def solve(
    a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the solution of a x = b or x a = b by LU with partial pivoting, and the factors."""
    lu, pivots, info = _aten.linalg_lu_factor_ex(a)
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if is_vector else b
    x = lu_solve(lu, pivots, columns, left=left)
    return x.squeeze(-1) if is_vector else x, lu, pivots, info


def inverse(a: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Return the inverse, the solution of a x = 1, and PyTorch's `info`."""
    unit = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    x, _, _, info = solve(a, unit)
    return x, info


def lu_parts(a: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the exchange of rows as a matrix, and both factors."""
    lu, pivots, _ = _aten.linalg_lu_factor_ex(a, pivot=pivot)
    p, lower, upper = _aten.lu_unpack(lu, pivots)
    return p if pivot else p.new_zeros(0), lower, upper


def sign_of_exchanges(pivots: Tensor) -> Tensor:
    """Return -1 for an odd number of exchanges of rows, otherwise 1."""
    places = torch.arange(1, pivots.shape[-1] + 1, dtype=pivots.dtype, device=pivots.device)
    return 1 - 2 * ((pivots != places).sum(-1) % 2)


def _lu_for_determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the factors for the backward pass of a determinant: factors of the transpose if a is contiguous."""
    factors: tuple[Tensor, Tensor, Tensor] = _aten.linalg_lu_factor_ex(a.mT if a.is_contiguous() else a)
    return factors


def determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the product of the pivots in order, with the sign of the exchanges, and the factors."""
    lu, pivots, _ = _lu_for_determinant(a)
    # One rounding for each product, in the order of the pivots.
    product = lu.diagonal(dim1=-2, dim2=-1).prod(-1)
    return torch.where(sign_of_exchanges(pivots) < 0, -product, product), lu, pivots


def log_determinant(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sign of the determinant, the sum of the logarithms of the absolute pivots, and the factors."""
    lu, pivots, _ = _lu_for_determinant(a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    sign = sign_of_exchanges(pivots) * (1 - 2 * ((diagonal < 0).sum(-1) % 2))
    return sign.to(a.dtype), diagonal.abs().log().sum(-1), lu, pivots


def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """Return the solution of a x = b by the factor of a."""
    lower = factor.mT if upper else factor
    y = _aten.linalg_solve_triangular(lower, b, upper=False)
    return _aten.linalg_solve_triangular(lower.mT, y, upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """Return the inverse of the matrix with this factor."""
    return cholesky_solve(
        torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand(factor.shape), factor, upper
    )


def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the solution of a x = b for a triangular a, or its transpose, and a."""
    t, is_upper = (a.mT, not upper) if transpose else (a, upper)
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = _aten.linalg_solve_triangular(t, b, upper=is_upper, unitriangular=unitriangular)
    return x, a.expand(*batch, *a.shape[-2:]).clone()


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "linalg_cholesky_ex": Rule("cholesky", cholesky_ex),
    "cholesky": Rule("cholesky", cholesky),
    "linalg_lu_factor_ex": Rule("lu", lu_factor),
    "linalg_solve_triangular": Rule("solve_triangular", triangular),
    "linalg_qr": Rule("qr", qr),
    "linalg_lu": Decomposition("lu", lu_parts),
    "linalg_lu_solve": Decomposition("lu", lu_solve),
    "_linalg_solve_ex": Decomposition("lu", solve),
    "linalg_inv_ex": Decomposition("lu", inverse),
    "_linalg_det": Decomposition("lu", determinant),
    "_linalg_slogdet": Decomposition("lu", log_determinant),
    "cholesky_solve": Decomposition("cholesky", cholesky_solve),
    "cholesky_inverse": Decomposition("cholesky", cholesky_inverse),
    "triangular_solve": Decomposition("solve_triangular", triangular_solve),
}


#: The number of terms after the first. For a matrix with a norm of at most 1, the next term is below half a unit in the
#: last place of float64.
TERMS = 18


def matrix_exp(x: Tensor) -> Tensor:
    """Return the series of y = x / 2^s by Horner's rule, 1 + (y / 1) (1 + (y / 2) (1 + ...)), squared s times.

    s is the smallest number for which the 1-norm of every matrix is at most 1.
    """
    with without_dispatch(), torch.no_grad():
        largest = float(x.double().abs().sum(-2).amax()) if x.numel() else 0.0
    squarings = math.ceil(math.log2(largest)) if 1 < largest < math.inf else 0
    y = x * 2.0**-squarings
    identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    result = identity
    for k in range(TERMS, 0, -1):
        result = identity + torch.matmul(y, result) / k
    for _ in range(squarings):
        result = torch.matmul(result, result)
    return result


#: Rules, by PyTorch's name.
TABLE |= {"linalg_matrix_exp": Decomposition("matmul", matrix_exp)}


#: (x, k, p(k), p(k - 1)) -> p(k + 1)
Step = Callable[[Tensor, int, Tensor, Tensor], Tensor]

#: The highest degree; there is a step for each degree, and more would take minutes.
HIGHEST = 1 << 16


def chebyshev(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """Return 2 x p(k) - p(k - 1)."""
    return (x + x) * p - before


def hermite(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """Return 2 x p(k) - 2 k p(k - 1)."""
    return (x + x) * p - before * (2 * k)


def probabilists_hermite(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """Return x p(k) - k p(k - 1)."""
    return x * p - before * k


def laguerre(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """Return ((2 k + 1 - x) p(k) - k p(k - 1)) / (k + 1)."""
    return ((2 * k + 1 - x) * p - before * k) / (k + 1)


def legendre(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """Return ((2 k + 1) x p(k) - k p(k - 1)) / (k + 1)."""
    return (x * (2 * k + 1) * p - before * k) / (k + 1)


def polynomial(first: Callable[[Tensor], Tensor], step: Step, shifted: bool = False) -> Callable[..., Tensor]:
    """Return the polynomials with p(0) = 1 and this p(1), of 2 x - 1 if `shifted`; negative degrees give 0."""

    def rule(value: Tensor | float, n: Tensor | float) -> Tensor:
        argument, degree = torch.broadcast_tensors(exact_tensor(value), torch.as_tensor(n))
        degree = degree.trunc().long()
        highest = int(degree.max()) if degree.numel() else 0
        if highest > HIGHEST:
            raise ValueError(
                f"Orthogonal polynomials are computed step by step, up to degree {HIGHEST}; got {highest}. "
                "Compute these in `with run.paused():`."
            )
        x = argument + argument - 1 if shifted else argument
        before, p = torch.ones_like(x), first(x)
        result = torch.where(degree == 0, before, torch.zeros_like(x))
        result = torch.where(degree == 1, p, result)
        for k in range(1, highest):
            before, p = p, step(x, k, p, before)
            result = torch.where(degree == k + 1, p, result)
        return result

    return rule


#: The four kinds of Chebyshev polynomials by their p(1).
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "t": lambda x: x * 1,
    "u": lambda x: x + x,
    "v": lambda x: x + x - 1,
    "w": lambda x: x + x + 1,
}

#: Rules, by PyTorch's name.
TABLE |= {
    **{
        f"special_{prefix}chebyshev_polynomial_{kind}": Decomposition(
            "polynomial", polynomial(first, chebyshev, bool(prefix))
        )
        for kind, first in KINDS.items()
        for prefix in ("", "shifted_")
    },
    "special_hermite_polynomial_h": Decomposition("polynomial", polynomial(KINDS["u"], hermite)),
    "special_hermite_polynomial_he": Decomposition("polynomial", polynomial(KINDS["t"], probabilists_hermite)),
    "special_laguerre_polynomial_l": Decomposition("polynomial", polynomial(lambda x: 1 - x, laguerre)),
    "special_legendre_polynomial_p": Decomposition("polynomial", polynomial(KINDS["t"], legendre)),
}
