"""Rules of singular values, symmetric eigenvalues, reflections and least squares, in the orders of `simfloat.linalg`.

Operations have the format of the results, and sums use `accumulate`. The matrices of a batch are computed one after the
other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat import linalg
from simfloat.linalg import orthogonal
from simfloat.linalg.matrices import ArithmeticOptions, arithmetic_of
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.linalg import matrices, options_of
from simfloat.torch.tensors import host_numbers

Tensor = torch.Tensor
_aten = torch.ops.aten


def map_batches(
    function: Callable[..., Sequence[NDArray]], shapes: Sequence[tuple[int, ...]], *batches: NDArray
) -> list[NDArray]:
    """Apply a function to each matrix of the batches, and return a batch of its shape for each of the results."""
    results = [function(*operands) for operands in zip(*map(matrices, batches), strict=True)]
    if not results:
        return [np.zeros(shape, batches[0].dtype) for shape in shapes]
    return [np.stack(parts).reshape(shape) for parts, shape in zip(zip(*results, strict=True), shapes, strict=True)]


def arrays_of(*results: Any) -> list[NDArray]:
    """Return the values of arrays."""
    return [array.numbers for array in results]


def svd(
    call: RuleCall, a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, ...]:
    """Return the factors, or only the singular values."""
    call.begin()
    (*batch, m, n), options = a.shape, options_of(call)
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    shapes = [(*batch, m, left), (*batch, k), (*batch, right, n)]
    u, s, vh = map_batches(
        lambda x: arrays_of(*linalg.svd(x, full_matrices=full_matrices, **options)), shapes, host_numbers(a)
    )
    nothing = np.zeros(0, s.dtype)
    return tuple(call.tensor(x) for x in ((u, s, vh) if compute_uv else (nothing, s, nothing)))


def eigh(call: RuleCall, a: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Return eigenvalues and eigenvectors of the matrix given by one triangle, or only the eigenvalues."""
    call.begin()
    options, matrix = options_of(call), host_numbers(a)
    matrix = matrix.swapaxes(-1, -2) if UPLO.upper() == "U" else matrix
    values, vectors = map_batches(lambda x: arrays_of(*linalg.eigh(x, **options)), [a.shape[:-1], a.shape], matrix)
    return call.tensor(values), call.tensor(vectors if compute_v else np.zeros(0, values.dtype))


def reflections(call: RuleCall, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return r with the vectors v of the reflections below its diagonal, and every tau.

    The first element of each v is 1, and is not stored.
    """
    call.begin()
    u, k = arithmetic_of(0.0, ArithmeticOptions(**options_of(call))), min(a.shape[-2:])

    def pack_reflections(x: NDArray) -> tuple[NDArray, NDArray]:
        r, reflectors = orthogonal.triangularize(u, u.round(x))
        taus = np.zeros(k, r.dtype)
        for column, (v, tau) in enumerate(reflectors):
            r[column + 1 :, column], taus[column] = v[1:], tau[0]
        return r, taus

    r, taus = map_batches(pack_reflections, [tuple(a.shape), (*a.shape[:-2], k)], host_numbers(a))
    return call.tensor(r), call.tensor(taus)


def unpack_reflections(u: Any, a: NDArray, taus: NDArray) -> list[tuple[NDArray, NDArray]]:
    """Return the reflections of a packed matrix."""
    reflectors = []
    for column, tau in enumerate(u.round(taus)):
        v = u.round(a[column:, column])
        v[0] = 1
        reflectors.append((v, np.array([tau], v.dtype)))
    return reflectors


def product_of_reflections(call: RuleCall, a: Tensor, tau: Tensor) -> Tensor:
    """Return the first columns of the product of reflections; the last one is applied first."""
    call.begin()
    u = arithmetic_of(0.0, ArithmeticOptions(**options_of(call)))
    taus = host_numbers(tau)[..., np.newaxis]
    (q,) = map_batches(
        lambda x, t: [orthogonal.multiply_reflections(u, unpack_reflections(u, x, t[:, 0]), *x.shape)],
        [tuple(a.shape)],
        host_numbers(a),
        taus,
    )
    return call.tensor(q)


def times_reflections(
    call: RuleCall, a: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Return q b or b q, for the product q of reflections and a matrix b; `transpose` transposes q."""
    call.begin()
    u = arithmetic_of(0.0, ArithmeticOptions(**options_of(call)))

    def apply_reflections(x: NDArray, t: NDArray, b: NDArray) -> list[NDArray]:
        reflectors = list(enumerate(unpack_reflections(u, x, t[:, 0])))
        c = u.round(b if left else b.T)
        # b q is the transpose of q^T b^T. q is the product of the reflections in their order, so the last one is
        # applied first; the transpose of q has the opposite order.
        for column, (v, tau) in reflectors if left == transpose else reversed(reflectors):
            orthogonal.reflect(u, v, tau, c[column:])
        return [c if left else c.T]

    taus = host_numbers(tau)[..., np.newaxis]
    return call.tensor(
        map_batches(apply_reflections, [tuple(other.shape)], host_numbers(a), taus, host_numbers(other))[0]
    )


def least_squares(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> tuple[Tensor, ...]:
    """Return the x with the smallest b - a x, and the smallest such x, by the q and r of a or of its transpose.

    Like PyTorch's drivers, also return the sums of squared residuals, the rank, which is full, and the singular values.
    """
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    columns = b.unsqueeze(-1) if is_vector else b
    (m, n), driver = a.shape[-2:], driver or "gelsy"
    if m >= n:
        q, r = torch.linalg.qr(a)
        x = _aten.linalg_solve_triangular(r, q.mT @ columns, upper=True)
    else:
        q, r = torch.linalg.qr(a.mT)
        x = q @ _aten.linalg_solve_triangular(r.mT, columns, upper=False)
    d = columns - a @ x if m > n and driver != "gelsy" else a.new_zeros(0)
    residuals = (d * d).sum(-2) if d.numel() else d
    rank = torch.full(a.shape[:-2] if driver != "gels" else (0,), min(m, n), dtype=torch.int64, device=a.device)
    values = _aten._linalg_svd(a, False, False)[1] if driver in ("gelsd", "gelss") else a.new_zeros(0)
    return x.squeeze(-1) if is_vector else x, residuals, rank, values


def pseudoinverse(
    a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """Return v (1 / s) u^T for the singular values or eigenvalues above atol and above rtol times the largest.

    By default rtol is the eps of the dtype times the larger size.
    """
    if not a.numel():
        return a.new_zeros(*a.shape[:-2], a.shape[-1], a.shape[-2])
    default = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
    if rtol is None:
        rtol = torch.full(a.shape[:-2], default, dtype=a.dtype, device=a.device)
        rtol = rtol if atol is None else torch.where(atol > 0, torch.zeros_like(rtol), rtol)
    atol = torch.zeros(a.shape[:-2], dtype=a.dtype, device=a.device) if atol is None else atol
    if hermitian:
        values, vectors = _aten._linalg_eigh(a)
        sizes, left, right = values.abs(), vectors, vectors.mT
    else:
        left, values, right = _aten._linalg_svd(a)
        sizes, left, right = values, right.mT, left.mT
    limit = torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * sizes.amax(-1, keepdim=True))
    inverse = torch.where(sizes > limit, values.reciprocal(), torch.zeros_like(values))
    return (left * inverse.unsqueeze(-2)) @ right


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    "_linalg_svd": Rule("svd", svd),
    "_linalg_eigh": Rule("eigh", eigh),
    "geqrf": Rule("qr", reflections),
    "linalg_householder_product": Rule("qr", product_of_reflections),
    "ormqr": Rule("qr", times_reflections),
    "linalg_lstsq": Decomposition("lstsq", least_squares, 4),
    "linalg_pinv.atol_rtol_tensor": Decomposition("svd", pseudoinverse),
}
