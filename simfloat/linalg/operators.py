"""Matrices as linear operators of SciPy, with products in a format."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.matrices import ArithmeticOptions, arithmetic_of, matrix_of, numbers_of
from simfloat.sums.accumulator import Accumulator


@in_usual_environment
def as_linear_operator(
    A: Any,
    *,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Any:
    """Return A as a linear operator of SciPy that multiplies in a format.

    A vector is first rounded to the format. Then each element of the product is one sum through `accumulate`. SciPy
    computes everything else in float64. The operator provides `matvec`, `rmatvec`, `matmat` and `rmatmat`, so that the
    iterative solvers of ``scipy.sparse.linalg`` accept it. :func:`simfloat.linalg.gmres` and :func:`simfloat.linalg.cg`
    round every operation.

    Parameters:
        A: a real matrix (m, n).
        format: the format to multiply in; by default the format of A, which is then an array of a format.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        A ``scipy.sparse.linalg.LinearOperator`` (m, n) with the dtype float64.

    Raises:
        ValueError: if A is not a real matrix, or has values beyond the largest number of the format.
        ValueError: if `format` is missing and A has no format, or if the format is unsigned.
        ValueError: in a product, if the vector has such values.
        ImportError: if SciPy is not installed.

    Examples:
        >>> from scipy.sparse.linalg import gmres
        >>> A = [[2.0, 0.3], [0.1, 1.0]]
        >>> x, _ = gmres(sf.linalg.as_linear_operator(A, format=sf.BF16), [2.3, 1.1], rtol=1e-2)
        >>> bool(abs(x - 1).max() < 0.02)
        True
    """
    try:
        from scipy.sparse.linalg import LinearOperator
    except ImportError:
        raise ImportError("as_linear_operator needs SciPy: pip install scipy.") from None
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u)

    @in_usual_environment
    def multiply(matrix: NDArray, x: NDArray) -> NDArray[np.float64]:
        return u.matmul(matrix, numbers_of(x, u, "x")).astype(np.float64)

    product, transposed_product = partial(multiply, a), partial(multiply, a.T)
    return LinearOperator(
        a.shape,
        matvec=product,
        rmatvec=transposed_product,
        matmat=product,
        rmatmat=transposed_product,
        dtype=np.dtype(np.float64),
    )
