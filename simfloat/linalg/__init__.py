"""Linear algebra in a format: every operation is rounded, and each function documents the order of its operations.

A matrix is a `simfloat.array`, which provides the format, the rounding mode and the accumulator; or anything that
NumPy reads, together with ``format=``. A right-hand side is first rounded to the format of the matrix. Results are
`simfloat.Array`.
"""

from simfloat.linalg.factorizations import cholesky, lstsq, lu, qr
from simfloat.linalg.jacobi import eigh, svd
from simfloat.linalg.krylov import cg, gmres
from simfloat.linalg.matrices import solve_triangular
from simfloat.linalg.solvers import solve

__all__ = ["cg", "cholesky", "eigh", "gmres", "lstsq", "lu", "qr", "solve", "solve_triangular", "svd"]
