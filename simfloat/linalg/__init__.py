"""Linear algebra in a format, every operation rounded, each algorithm in an order of operations that is written down.

Matrices are arrays of `simfloat.array`, whose format, mode and order of sums are used, or anything that NumPy reads
together with ``format=``. A right-hand side is rounded to the matrix's format first, from whatever format it has.
Results are `simfloat.Array`.
"""

from simfloat.linalg.factorizations import cholesky, lstsq, lu, qr
from simfloat.linalg.jacobi import eigh, svd
from simfloat.linalg.matrices import solve_triangular
from simfloat.linalg.solvers import cg, solve

__all__ = ["cg", "cholesky", "eigh", "lstsq", "lu", "qr", "solve", "solve_triangular", "svd"]
