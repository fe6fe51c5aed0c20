"""Condition numbers of sums and products, and the growth factor of an elimination."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.theory.bounds import check_positive, gamma
from simfloat.common import as_rectangular_array, check_count
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64
from simfloat.sums import exact, matmul


@in_usual_environment
def sum_condition(x: ArrayLike) -> float:
    """Return the condition number of a sum, sum |x_i| / |sum x_i|.

    The relative error of a computed sum is at most this number times a bound such as gamma_(n-1). Both sums are exact,
    and each is rounded once to float64.

    Parameters:
        x: a vector of finite numbers.

    Returns:
        The condition number, at least 1; infinity if the sum is 0 and some numbers are not 0, and NaN if all numbers
        are 0.

    Raises:
        ValueError: if x is not a vector.

    Source: Higham 2002, section 4.2.

    Examples:
        >>> sf.theory.sum_condition([1.0, 2.0, 3.0]), sf.theory.sum_condition([1.0, 1e-16, -1.0])
        (1.0, 2e+16)
    """
    vector = _check_vector(x, "x")
    return dot_condition(vector, np.ones_like(vector))


@in_usual_environment
def dot_condition(a: ArrayLike, b: ArrayLike) -> float:
    """Return the condition number of a dot product, sum |a_i b_i| / |sum a_i b_i|.

    Parameters:
        a, b: two vectors of equal length, of finite numbers.

    Returns:
        The condition number, as in :func:`sum_condition`.

    Raises:
        ValueError: if a or b is not a vector, or if their lengths differ.

    Source: Higham 2002, section 3.1. Ogita, Rump and Oishi (2005) define it with a factor of 2.

    Examples:
        >>> sf.theory.dot_condition([1.0, 2.0], [3.0, 4.0]), sf.theory.dot_condition([1.0, 2.0], [3.0, -1.0])
        (1.0, 5.0)
    """
    first, second = _check_vector(a, "a"), _check_vector(b, "b")
    if len(first) != len(second):
        raise ValueError(f"a and b must be vectors of equal length, got lengths {len(first)} and {len(second)}.")
    return float(matvec_condition(first[np.newaxis], second)[0])


@in_usual_environment
def matvec_condition(A: ArrayLike, x: ArrayLike) -> NDArray[np.float64]:
    """Return the condition numbers of the elements of A x, (|A| |x|)_i / |A x|_i.

    A computed product satisfies |y - A x| <= gamma_n |A| |x|, element by element. The relative error of
    element i is therefore at most gamma_n times condition number i.

    Parameters:
        A: a matrix (m, n) of finite numbers.
        x: a vector (n,).

    Returns:
        A float64 array (m,). An element is infinite if the element of A x is 0, and NaN if all its products are 0.

    Raises:
        ValueError: if the shapes are wrong.

    Source: Higham 2002, section 3.5.

    Examples:
        >>> sf.theory.matvec_condition([[1.0, 1.0], [3.0, -2.0]], [1.0, 1.0])
        array([1., 5.])
    """
    matrix, vector = as_rectangular_array(A, "A", np.float64), _check_vector(x, "x")
    if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
        raise ValueError("Condition numbers are those of finite numbers, got infinity or NaN among them.")
    if matrix.ndim != 2 or matrix.shape[1] != len(vector):
        raise ValueError(
            f"A must be a matrix with {len(vector)} columns, one for each element of x; got shape {matrix.shape}."
        )
    # A power of two as the factor of a row does not change its condition number, and brings its sums into range.
    exponents = np.frexp(matrix)[1] + np.frexp(vector)[1]
    excess = exponents.max(1, initial=0, where=(matrix != 0) & (vector != 0)) + len(vector).bit_length() - FP64.emax
    matrix = np.ldexp(matrix, -np.maximum(excess, 0)[:, np.newaxis])
    sizes, sums = (
        np.asarray(matmul(left, right, accumulate=exact, output=FP64), np.float64)
        for left, right in ((np.abs(matrix), np.abs(vector)), (matrix, vector))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sizes / np.abs(sums))


@in_usual_environment
def growth_factor(A: ArrayLike, factors: Any) -> float:
    """Return Wilkinson's growth factor of an elimination, max |a_ij^(k)| / max |a_ij| over all steps k.

    The matrix after k steps is A[permutation] minus the product of the first k columns of `lower` with the first k rows
    of `upper`, computed in float64. The factor is at least 1. Partial pivoting limits it to 2^(n-1).

    Parameters:
        A: a matrix (m, n) that is not zero.
        factors: the result of :func:`simfloat.linalg.lu`, or any triple (permutation, lower, upper).

    Returns:
        The growth factor.

    Raises:
        ValueError: if A is not a matrix or has no element other than 0; if the shapes of the factors do not fit.

    Source: Wilkinson, J. ACM 8 (1961); Higham 2002, section 9.3.

    Examples:
        >>> A = np.tril(-np.ones((5, 5)), -1) + np.eye(5)
        >>> A[:, -1] = 1
        >>> sf.theory.growth_factor(A, sf.linalg.lu(A, format=sf.FP16))
        16.0
    """
    matrix = as_rectangular_array(A, "A", np.float64)
    if matrix.ndim != 2 or not matrix.any():
        raise ValueError(f"A must be a matrix that is not zero, got shape {matrix.shape}.")
    if not isinstance(factors, tuple | list) or len(factors) != 3:
        content = f"a {type(factors).__name__}" if isinstance(factors, tuple | list) else repr(factors)
        raise ValueError(
            f"factors must be a triple (permutation, lower, upper), as simfloat.linalg.lu returns it, got {content}."
        )
    permutation, lower, upper = factors
    lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    rest = matrix[permutation]
    if (lower.shape[0], upper.shape[1]) != rest.shape or lower.shape[1] != upper.shape[0]:
        raise ValueError(f"The factors have shapes {lower.shape} and {upper.shape}; A has {matrix.shape}.")
    # Elements of `upper` are taken as computed: an element of a step is the same element of `upper` in its last step.
    first = largest = np.abs(rest).max()
    for k in range(len(upper)):
        largest = max(largest, np.abs(upper[k, k:]).max())
        rest = rest[1:] - lower[k + 1 :, k : k + 1] * upper[k]
        largest = max(largest, np.abs(rest[:, k + 1 :]).max(initial=0.0))
    return float(largest / first)


@in_usual_environment
def elimination_bound(n: int, unit_roundoff: float, growth: float) -> float:
    """Return n^2 gamma_3n growth, a bound on the backward error of a linear system that is solved by elimination.

    The computed solution solves (A + E) x = b exactly, and the infinity norm of E, its largest sum of magnitudes in a
    row, is at most this number times the infinity norm of A. In practice errors are far smaller.

    Parameters:
        n: the order of the matrix, 1 or more.
        unit_roundoff: u, the largest relative error of one rounding.
        growth: the growth factor with pivoting (:func:`growth_factor`).

    Returns:
        The bound; infinity if 3 n u is 1 or more.

    Raises:
        ValueError: if n is not a positive integer, `unit_roundoff` is not between 0 and 1, or `growth` is not positive.

    Source: Wilkinson 1961; Higham 2002, theorem 9.5.

    Examples:
        >>> round(sf.theory.elimination_bound(10, sf.FP32.unit_roundoff, growth=2.0), 6)
        0.000358
    """
    check_count("n", n)
    check_positive("growth", growth)
    return float(n * n * gamma(3 * n, unit_roundoff) * growth)


def _check_vector(x: ArrayLike, name: str) -> NDArray[np.float64]:
    vector = as_rectangular_array(x, name, np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {vector.shape}.")
    return vector
