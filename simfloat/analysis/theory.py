"""Bounds of rounding error analysis, condition numbers, and the errors that they bound.

u is the largest relative error of one rounding: :func:`roundoff` returns it for a format and a mode. Bounds of sums are
relative to the sum of the magnitudes of the terms. They hold as long as no result overflows, and as long as no product
underflows.

Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 2002; Higham and Mary, SIAM J. Sci. Comput. 41
(2019), A2815; Connolly, Higham and Mary, SIAM J. Sci. Comput. 43 (2021), A566; El Arar, Sohier, de Oliveira Castro and
Petit, SIAM J. Sci. Comput. 45 (2023), C255.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic import round as round_to
from simfloat.arithmetic.bit_stream import BitStream
from simfloat.common import as_rectangular_array, check_count
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums import Accumulator, dot, exact, matmul
from simfloat.sums.blocked import SumOfSums
from simfloat.sums.one_format import InTreeOrder
from simfloat.sums.sequential import SequentialSum, as_accumulator
from simfloat.sums.trees import NumPySum


@in_usual_environment
def roundoff(format: FormatLike, rounding: RoundingLike = nearest_even) -> float:
    """Return the largest relative error of one rounding: u to nearest, and 2 u in every other mode.

    Parameters:
        format: a format, or its name.
        rounding: the rounding mode; by default nearest even.

    Returns:
        The bound on |delta| in fl(x) = x (1 + delta), for results in the normal range.

    Raises:
        ValueError: if `format` or `rounding` is invalid.

    Source: Higham 2002, theorem 2.2; for stochastic rounding Connolly, Higham and Mary 2021, section 2.

    Examples:
        >>> sf.theory.roundoff(sf.FP16) * 2048, sf.theory.roundoff(sf.FP16, sf.stochastic()) * 2048
        (1.0, 2.0)
    """
    return float(as_format(format).unit_roundoff) * (1 if as_rounding(rounding).is_to_nearest else 2)


@in_usual_environment
def gamma(n: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """Return gamma_n = n u / (1 - n u), which bounds the relative error of n roundings.

    If |delta_i| <= u, the product of n factors (1 + delta_i) or 1 / (1 + delta_i) is 1 + theta_n with
    |theta_n| <= gamma_n. The error of a dot product of n terms, added one after the other, is at most gamma_n times
    the sum of |a_i b_i|; of a sum of n numbers it is at most gamma_(n-1) times the sum of |x_i|.

    Parameters:
        n: numbers of roundings, 0 or more, in an array of any shape.
        unit_roundoff: u, the largest relative error of one rounding, between 0 and 1 (:func:`roundoff`).

    Returns:
        A float64 array of the shape of `n`; infinity if n u is 1 or more.

    Raises:
        ValueError: if a number is negative, or if `unit_roundoff` is not between 0 and 1.

    Source: Higham 2002, lemma 3.1 and section 3.1.

    Examples:
        >>> sf.theory.gamma([1, 2047, 2048], sf.FP16.unit_roundoff)
        array([4.88519785e-04, 2.04700000e+03,            inf])
    """
    n, u = _check_lengths(n, unit_roundoff)
    return np.where(n * u < 1, n * u / np.where(n * u < 1, 1 - n * u, 1.0), np.inf)


@in_usual_environment
def probable_gamma(
    n: ArrayLike, unit_roundoff: float, factor: float = 1.0, independent: bool = False
) -> NDArray[np.float64]:
    """Return exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u: a probable bound on n roundings.

    It bounds |theta_n| of :func:`gamma` with the probability 1 - 2 exp(-factor^2 / 2), if errors have mean zero,
    whatever the earlier errors were (*mean independence*). Errors of stochastic rounding have; take u from
    ``roundoff(format, sf.stochastic())``. Errors of rounding to nearest often behave similarly, but not if a sum
    stagnates. A dot product of n terms has n such errors: :func:`confidence` counts them.

    Parameters:
        n: numbers of roundings, 0 or more, in an array of any shape.
        unit_roundoff: u, the largest relative error of one rounding, between 0 and 1.
        factor: a positive number, lambda in the papers; the bound is more probable for larger factors.
        independent: True for the bound of 2019, exp(factor sqrt(n) u + n u^2 / (1 - u)) - 1. It assumes independent
            errors, and its probability is 1 - 2 exp(-factor^2 (1 - u)^2 / 2).

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `factor` is not positive; if a number or `unit_roundoff` is invalid.

    Source: Connolly, Higham and Mary 2021, theorem 4.6; with `independent` Higham and Mary 2019, theorem 2.4.

    Examples:
        >>> round(float(sf.theory.probable_gamma(10_000, sf.FP32.unit_roundoff)) * 2**24, 2)
        100.0
    """
    n, u = _check_lengths(n, unit_roundoff)
    _check_positive("factor", factor)
    with np.errstate(over="ignore"):
        if independent:
            return np.asarray(np.expm1(factor * np.sqrt(n) * u + n * u * u / (1 - u)))
        return np.asarray(np.expm1((factor * np.sqrt(n) * u + n * u * u) / (1 - u)))


@in_usual_environment
def confidence(factor: float, terms: int = 1) -> float:
    """Return 1 - 2 terms exp(-factor^2 / 2), but at least 0: the probability of :func:`probable_gamma`.

    Parameters:
        factor: a positive number.
        terms: how many products of errors are bounded at once: n in a dot product of n terms.

    Returns:
        The probability.

    Raises:
        ValueError: if `factor` is not positive, or `terms` is not a positive integer.

    Source: Connolly, Higham and Mary 2021, theorems 4.6 and 4.8; it follows from Azuma's inequality.

    Examples:
        >>> round(sf.theory.confidence(4.0), 5), round(sf.theory.confidence(6.0, terms=1000), 5)
        (0.99933, 0.99997)
    """
    _check_positive("factor", factor)
    check_count("terms", terms)
    return max(1 - 2 * terms * math.exp(-factor * factor / 2), 0.0)


@in_usual_environment
def confidence_factor(probability: float, terms: int = 1) -> float:
    """Return sqrt(2 log(2 terms / (1 - probability))): the factor for which :func:`confidence` is `probability`.

    Parameters:
        probability: a number from 0 to below 1.
        terms: as in :func:`confidence`.

    Returns:
        The factor.

    Raises:
        ValueError: if `probability` is not from 0 to below 1, or `terms` is not a positive integer.

    Examples:
        >>> round(sf.theory.confidence_factor(0.99), 3), round(sf.theory.confidence_factor(0.99, terms=1000), 3)
        (3.255, 4.941)
    """
    check_count("terms", terms)
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability < 1:
        raise ValueError(f"probability must be a number from 0 to below 1, got {probability!r}.")
    return math.sqrt(2 * math.log(2 * terms / (1 - probability)))


@in_usual_environment
def stochastic_variance(n: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """Return (1 + u^2)^n - 1: a bound on the variance of a sum under stochastic rounding.

    The result of a dot product has the exact value as its mean, and its variance is at most this bound times the square
    of the sum of |a_i b_i|, if a term takes part in at most n roundings. It grows like n u^2, so the standard
    deviation grows like sqrt(n) u.

    Parameters:
        n: numbers of roundings, 0 or more: the terms of a dot product, or the terms of a sum less 1.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if a number is negative, or if `unit_roundoff` is not between 0 and 1.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.BF16, sf.stochastic())
        >>> round(float(sf.theory.stochastic_variance(100, u)) ** 0.5 / u, 2)
        10.02
    """
    n, u = _check_lengths(n, unit_roundoff)
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(n * np.log1p(u * u)))


@in_usual_environment
def chebyshev_bound(n: ArrayLike, unit_roundoff: float, failure: float = 0.05) -> NDArray[np.float64]:
    """Return sqrt(((1 + u^2)^n - 1) / failure): a probable bound on the error of a sum under stochastic rounding.

    The error of a dot product is at most this bound times the sum of |a_i b_i|, except with the probability
    `failure`. This is the inequality of Bienayme and Chebyshev with :func:`stochastic_variance`.

    Parameters:
        n: numbers of roundings, as in :func:`stochastic_variance`.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.
        failure: a probability above 0, at most 1.

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `failure` is not above 0 and at most 1; if a number or `unit_roundoff` is invalid.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.BF16, sf.stochastic())
        >>> round(float(sf.theory.chebyshev_bound(100, u, failure=0.01)) / u, 1)
        100.2
    """
    return np.asarray(np.sqrt(stochastic_variance(n, unit_roundoff) / _check_share("failure", failure)))


@in_usual_environment
def azuma_bound(n: ArrayLike, unit_roundoff: float, failure: float = 0.05) -> NDArray[np.float64]:
    """Return sqrt(u ((1 + u)^(2 n) - 1) log(2 / failure)): a probable bound that grows slowly as `failure` falls.

    As :func:`chebyshev_bound`, but by the inequality of Azuma and Hoeffding for the martingale of the partial sums. For
    small failure it is the smaller one. The sum is one after the other.

    Parameters:
        n: numbers of roundings, as in :func:`stochastic_variance`.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.
        failure: a probability above 0, at most 1.

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `failure` is not above 0 and at most 1; if a number or `unit_roundoff` is invalid.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.FP16, sf.stochastic())
        >>> bool(sf.theory.azuma_bound(100, u, 1e-6) < sf.theory.chebyshev_bound(100, u, 1e-6))
        True
    """
    share = _check_share("failure", failure)
    lengths, u = _check_lengths(n, unit_roundoff)
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(u * np.expm1(2 * lengths * np.log1p(u)) * math.log(2 / share)))


def roundings(accumulate: Accumulator | FormatLike, n: int, *, products: bool = True) -> dict[float, int]:
    """Count the roundings in which one term takes part at most, for each u.

    Parameters:
        accumulate: `sequential`, `pairwise`, `numpy_sum` or `tree`, a format, or `blocked` and `lanes` of these.
        n: the number of terms, 1 or more.
        products: False if the terms are numbers of the format, as in `simfloat.sum`: the first addition of a sum from
            left to right is then exact, and so is the rounding of each product.

    Returns:
        A dictionary from u (see :func:`roundoff`) to the number of roundings.

    Raises:
        ValueError: for other accumulators, in which errors are not products of such factors.

    Source: Higham 2002, sections 3.1 and 4.2.

    Examples:
        >>> u = sf.FP16.unit_roundoff
        >>> [sf.theory.roundings(order, 1000)[u] for order in (sf.FP16, sf.pairwise(sf.FP16), sf.numpy_sum(sf.FP16))]
        [1000, 11, 22]
    """
    check_count("n", n)
    order, counts = as_accumulator(accumulate), dict[float, int]()
    for u, count in _count_roundings(order, int(n), products):
        counts[u] = counts.get(u, 0) + count
    return counts


@in_usual_environment
def error_bound(accumulate: Accumulator | FormatLike, n: int, *, products: bool = True) -> float:
    """Return the bound on the error of a sum of n terms, relative to the sum of the magnitudes of the terms.

    It is gamma_k for k roundings in one format (:func:`roundings`). For several formats the bounds are multiplied:
    (1 + gamma_j(u)) (1 + gamma_k(v)) - 1.

    Parameters:
        accumulate: the accumulator or format, as in :func:`roundings`.
        n: the number of terms, 1 or more.
        products: False for `simfloat.sum` of numbers of the format.

    Returns:
        The bound; infinity if a k u is 1 or more.

    Raises:
        ValueError: as in :func:`roundings`.

    Source: Higham 2002, lemmas 3.1 and 3.3; Blanchard, Higham, Lopez, Mary and Pranesh, SIAM J. Sci. Comput. 42 (2020).

    Examples:
        >>> bound = sf.theory.error_bound
        >>> round(bound(sf.blocked(16, sf.BF16, sf.FP32), 4096), 4), bound(sf.BF16, 4096)
        (0.0667, inf)
    """
    bounds = [float(gamma(count, u)) for u, count in roundings(accumulate, n, products=products).items()]
    return math.prod(1 + bound for bound in bounds) - 1 if bounds else 0.0


@in_usual_environment
def probable_error_bound(
    accumulate: Accumulator | FormatLike, n: int, *, factor: float = 1.0, products: bool = True
) -> float:
    """Return a probable bound on the error of a sum of n terms, relative to the sum of the magnitudes of the terms.

    It is :func:`probable_gamma` of the roundings. For several formats, factor sqrt(n) u becomes the factor times the
    square root of the sum of n u^2 over all formats (Azuma's inequality for steps of several sizes).

    Parameters:
        accumulate: the accumulator or format, as in :func:`roundings`.
        n: the number of terms, 1 or more.
        factor: as in :func:`probable_gamma`; the probability is ``confidence(factor, terms=n)``.
        products: False for `simfloat.sum` of numbers of the format.

    Returns:
        The bound.

    Raises:
        ValueError: as in :func:`roundings` and :func:`probable_gamma`.

    Source: Connolly, Higham and Mary 2021, theorem 4.8.

    Examples:
        >>> u = sf.FP16.unit_roundoff
        >>> bool(sf.theory.probable_error_bound(sf.FP16, 1000) == sf.theory.probable_gamma(1000, u))
        True
    """
    _check_positive("factor", factor)
    counts = roundings(accumulate, n, products=products)
    if len(counts) == 1:
        ((u, count),) = counts.items()
        return float(probable_gamma(count, u, factor))
    squares = math.fsum(count * u * u for u, count in counts.items())
    return math.expm1((factor * math.sqrt(squares) + squares) / (1 - max(counts, default=0.0)))


def _count_roundings(order: Accumulator, n: int, products: bool) -> list[tuple[float, int]]:
    """Return pairs (u, number of roundings) along the longest path of a term."""
    if isinstance(order, SequentialSum):
        u = roundoff(order.format, order.rounding)
        if order.products is None or not products:
            return [(u, n if products else n - 1)]
        first = order.products.precision > order.format.precision  # the first product is rounded again
        return [(u, n - 1 + first), (roundoff(order.products, order.rounding), 1)]
    if isinstance(order, InTreeOrder):
        u, own = roundoff(order.format, order.rounding), [order.format]
        if isinstance(order, NumPySum) and order.products is not None:
            own.append(order.products)
        products_roundings = [(roundoff(format, order.rounding), 1) for format in own] if products else []
        return [(u, _depth(order.program(n).tolist(), n)), *products_roundings]
    if isinstance(order, SumOfSums):
        lengths = order.lengths(n)
        runs, size = lengths.count_runs(n), max(size for count, size in lengths.counts_and_sizes(n) if count)
        inner, outer = (_count_roundings(order.inner, size, products), _count_roundings(order.outer, runs, False))
        assert order.inner.result is not None and order.outer.result is not None
        if order.inner.result.precision > order.outer.result.precision:
            outer.append((roundoff(order.outer.result, order.outer.roundings[0]), 1))  # a result, before it is added
        return [*inner, *outer]
    raise ValueError(
        f"The error of {order} is no product of factors 1 + delta: take sequential, pairwise, numpy_sum, tree, or "
        "blocked and lanes of these."
    )


def _depth(program: list[int], n: int) -> int:
    """Return the largest number of additions that a term takes part in; adding to the zero after the last is exact."""
    depths: list[int] = []
    for code in program:
        if code >= 0:
            depths.append(-1 if code == n else 0)
        else:
            left, right = depths.pop(), depths.pop()
            depths.append(max(left, right) + (min(left, right) >= 0))
    return max(depths[0], 0)


@in_usual_environment
def sum_condition(x: ArrayLike) -> float:
    """Return the condition number of a sum, sum |x_i| / |sum x_i|.

    The relative error of a computed sum is at most this number times a bound such as gamma_(n-1). Both sums are exact,
    and each is rounded once to float64.

    Parameters:
        x: a vector of finite numbers.

    Returns:
        The condition number, at least 1; infinity if the sum is 0 and not all numbers are, and NaN if all are.

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
    return float(matvec_condition(_check_vector(a, "a")[np.newaxis], _check_vector(b, "b"))[0])


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
    if matrix.ndim != 2 or matrix.shape[1] != len(vector):
        raise ValueError(f"A must be a matrix with {len(vector)} columns, as x has elements, got shape {matrix.shape}.")
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
    permutation, lower, upper = factors
    lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    rest = matrix[permutation]
    if (lower.shape[0], upper.shape[1]) != rest.shape or lower.shape[1] != upper.shape[0]:
        raise ValueError(f"The factors have shapes {lower.shape} and {upper.shape}; A has {matrix.shape}.")
    first = largest = np.abs(rest).max()
    for k in range(len(upper)):
        largest = max(largest, np.abs(upper[k, k:]).max())
        rest = rest[1:] - lower[k + 1 :, k : k + 1] * upper[k]
        largest = max(largest, np.abs(rest[:, k + 1 :]).max(initial=0.0))
    return float(largest / first)


@in_usual_environment
def elimination_bound(n: int, unit_roundoff: float, growth: float) -> float:
    """Return n^2 gamma_3n growth: the backward error of a linear system that is solved by elimination.

    The computed solution solves (A + E) x = b exactly, and the maximum norm of E is at most this number times that of
    A. In practice errors are far smaller.

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
    _check_positive("growth", growth)
    return float(n * n * gamma(3 * n, unit_roundoff) * growth)


#: A function (samples, n, rng) that returns the terms of dot products: two arrays (samples, n).
Data = Callable[[int, int, np.random.Generator], tuple[ArrayLike, ArrayLike]]


def uniform(samples: int, n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return operands of dot products, uniform between 0 and 1.

    Parameters:
        samples: the number of dot products.
        n: the number of terms of each.
        rng: NumPy's random generator.

    Returns:
        Two arrays (samples, n).

    Examples:
        >>> [x.shape for x in sf.theory.uniform(2, 3, np.random.default_rng(0))]
        [(2, 3), (2, 3)]
    """
    a, b = rng.uniform(0, 1, (2, samples, n))
    return a, b


@in_usual_environment
def measure_errors(
    accumulate: Accumulator | FormatLike,
    lengths: Sequence[int],
    *,
    inputs: FormatLike | None = None,
    samples: int = 20,
    data: Data = uniform,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Measure the errors of dot products, relative to the sum of |a_i b_i|.

    The operands are first rounded to `inputs`. The sum of the magnitudes and the exact result are exact sums, rounded
    once to float64.

    Parameters:
        accumulate: any accumulator except the exact one, or a format.
        lengths: numbers of terms, each 1 or more.
        inputs: the format of the operands; by default that of the sums.
        samples: the number of dot products for each length.
        data: a function ``data(samples, n, rng)`` that returns both operands, (samples, n); by default
            :func:`uniform`.
        seed: the seed of the data and of stochastic rounding.

    Returns:
        A float64 array (samples, lengths).

    Raises:
        ValueError: if a length or `samples` is not a positive integer; if the accumulator has no format.

    Examples:
        >>> errors = sf.theory.measure_errors(sf.FP16, [10, 1000])
        >>> errors.shape, bool((errors <= sf.theory.gamma([10, 1000], sf.FP16.unit_roundoff)).all())
        ((20, 2), True)
    """
    order = as_accumulator(accumulate)
    if order.result is None:
        raise ValueError(f"accumulate must have a format, to which it rounds; {order} has none.")
    check_count("samples", samples)
    rng, stream = np.random.default_rng(seed), BitStream(seed)
    format = order.result if inputs is None else as_format(inputs)
    errors = np.empty((samples, len(lengths)))
    for column, n in enumerate(lengths):
        check_count("A length", n)
        operands = (round_to(x, format) for x in data(samples, int(n), rng))
        for row, (a, b) in enumerate(zip(*operands, strict=True)):
            computed = dot(a, b, inputs=format, accumulate=order, stream=stream if order.stages else None)
            error = matmul(a, b, accumulate=exact, output=FP64, initial=-np.float64(computed))
            size = dot(np.abs(a), np.abs(b), accumulate=exact, output=FP64)
            errors[row, column] = abs(float(error)) / (float(size) or 1.0)
    return errors


def _check_lengths(lengths: ArrayLike, unit_roundoff: float) -> tuple[NDArray[np.float64], float]:
    """Return both arguments of a bound; raise ValueError if one is invalid."""
    n = as_rectangular_array(lengths, "lengths", np.float64)
    if not (n >= 0).all():
        raise ValueError(f"Lengths must be zero or more, got {lengths!r}.")
    if not isinstance(unit_roundoff, float | np.floating) or not 0 < unit_roundoff < 1:
        raise ValueError(
            f"unit_roundoff must be a number between 0 and 1, such as simfloat.FP16.unit_roundoff, got "
            f"{unit_roundoff!r}."
        )
    return n, float(unit_roundoff)


def _check_number(name: str, value: Any, what: str, most: float) -> float:
    """Return a number above 0 and at most `most`; raise ValueError for others."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most:
        raise ValueError(f"{name} must be {what}, got {value!r}.")
    return float(value)


def _check_positive(name: str, value: Any) -> float:
    return _check_number(name, value, "a positive number", sys.float_info.max)


def _check_share(name: str, value: Any) -> float:
    return _check_number(name, value, "a number above 0 and at most 1", 1.0)


def _check_vector(x: ArrayLike, name: str) -> NDArray[np.float64]:
    vector = as_rectangular_array(x, name, np.float64)
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector, got shape {vector.shape}.")
    return vector


__all__ = [
    "azuma_bound", "chebyshev_bound", "confidence", "confidence_factor", "dot_condition", "elimination_bound",
    "error_bound", "gamma", "growth_factor", "matvec_condition", "measure_errors", "probable_error_bound",
    "probable_gamma", "roundings", "roundoff", "stochastic_variance", "sum_condition", "uniform",
]  # fmt: skip
