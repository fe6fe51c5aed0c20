"""Linear algebra in a format, every operation rounded, each algorithm in an order of operations that is written down.

Matrices are arrays of `simfloat.array`, whose format, mode and order of sums are used, or anything that NumPy reads
together with ``format=``. A right-hand side is rounded to the matrix's format first, from whatever format it has.
Results are `simfloat.Array`.
"""

from simfloat.linalg.cholesky_factorization import cholesky
from simfloat.linalg.conjugate_gradients import cg
from simfloat.linalg.eigenvalues import eigh
from simfloat.linalg.householder import lstsq, qr
from simfloat.linalg.lu_factorization import lu
from simfloat.linalg.refinement import solve
from simfloat.linalg.singular_values import svd
from simfloat.linalg.substitution import solve_triangular

__all__ = ["cg", "cholesky", "eigh", "lstsq", "lu", "qr", "solve", "solve_triangular", "svd"]
