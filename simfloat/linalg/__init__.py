"""Linear algebra in a format: every operation is rounded, and each function documents the order of its operations.

A matrix is a `simfloat.array`, which provides the format, the rounding mode and the accumulator; or anything that
NumPy reads, together with ``format=``. A right-hand side is first rounded to the format of the matrix. Results are
`simfloat.Array`.
"""

from simfloat.linalg.factorizations import cholesky, lu
from simfloat.linalg.inverses import cond, det, inv, norm
from simfloat.linalg.jacobi import eigh, svd
from simfloat.linalg.krylov import cg, gmres
from simfloat.linalg.matrices import solve_triangular
from simfloat.linalg.newton import newton_inverse, newton_sqrt
from simfloat.linalg.operators import as_linear_operator
from simfloat.linalg.orthogonal import lstsq, qr
from simfloat.linalg.solvers import solve

__all__ = [
    "as_linear_operator", "cg", "cholesky", "cond", "det", "eigh", "gmres", "inv", "lstsq", "lu", "newton_inverse",
    "newton_sqrt", "norm", "qr", "solve", "solve_triangular", "svd",
]  # fmt: skip
