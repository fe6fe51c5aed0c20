"""QR by Householder reflections, for real and complex matrices, and least squares by QR."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array, complex_parts
from simfloat.arrays.arithmetic import ArrayArithmetic
from simfloat.arrays.complex_parts import from_parts, is_complex
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.matrices import (
    TAKES_COMPLEX,
    ArithmeticOptions,
    InnerProducts,
    arithmetic_of,
    check_range,
    check_squares,
    in_range,
    magnitudes,
    matrix_of,
    names_options_of_scipy,
    result_array,
    right_hand_side,
    rounding_share,
    solution_overflow_error,
    substitute,
)
from simfloat.sums.accumulator import Accumulator


class QR(NamedTuple):
    """The factors of A = q r: q has orthonormal columns, r is an upper trapezoid."""

    q: Array
    r: Array


class PivotedQR(NamedTuple):
    """The factors of A[:, permutation] = q r. The magnitudes on the diagonal of r do not grow."""

    q: Array
    r: Array
    permutation: NDArray[np.intp]


class LeastSquares(NamedTuple):
    """The least-squares solution x, and the residual b - A x in the same format."""

    x: Array
    residual: Array


@overload
def qr(
    A: Any,
    *,
    pivot: Literal[False] = ...,
    format: FormatLike | None = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> QR: ...


@overload
def qr(
    A: Any,
    *,
    pivot: Literal[True],
    format: FormatLike | None = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> PivotedQR: ...


@names_options_of_scipy
@in_usual_environment
def qr(
    A: Any,
    *,
    pivot: bool = False,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> QR | PivotedQR:
    """Factor A into q r with Householder reflections I - tau v v^H.

    Columns are processed one after the other, and every operation is rounded to the format. For each column:

    * s = sqrt(x . x), where x is the column at and below the diagonal; the sum goes through `accumulate`. If s is 0,
      there is no reflection: the elements below the diagonal become 0. They must be small
      enough to be rounding errors of the column of A, by the default `rcond` of :func:`simfloat.linalg.lstsq`.
    * alpha = -s if x_0 >= 0, otherwise s; v_0 = x_0 - alpha; v_i = x_i / v_0; tau = v_0 / -alpha; then v_0 becomes 1.
    * For the columns a_j to the right of it: all w_j = v . a_j through `accumulate`, then all t_j = tau w_j,
      then all a_ij = a_ij - v_i t_j with one rounding, in C order.

    With `pivot`, every step begins with the sums x_j . x_j of all columns j >= k, each at and below the diagonal,
    in ascending order. The first of the columns with the largest sum is exchanged with column k; its sum is x . x.

    **Complex matrices** have the same steps. x . x is the sum of the squares of the parts, real and imaginary in turn.
    alpha is real, with a sign from the real part of x_0; the imaginary part of x_0 remains in v_0. v_i, tau and t_j are
    quotients and products as in a complex `simfloat.array`; w_j = v^H a_j is two sums, as in its matrix product. t_j =
    conj(tau) w_j in r, and tau w_j in q. a_ij - v_i t_j takes two fma for each part, first with the real part of v_i;
    real parts of all elements come before imaginary parts. The last row also has a reflection, so the diagonal of r is
    real.

    The last row of a real matrix has no reflection. q is the product of the reflections with the first k columns of the
    identity. The last reflection is applied first, each to the rows and columns from its diagonal element to the end.
    Stochastic modes use their random bits in this order.

    If x . x is subnormal, s has few digits, and q loses orthogonality without an error. For FP16, scale A by a power of
    two to a 2-norm of 64.

    Parameters:
        A: a real or complex matrix (m, n).
        pivot: True exchanges columns. SciPy calls it `pivoting`.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (q, r), a `QR`. With k = min(m, n), q is (m, k) with orthonormal columns, and r is (k, n) and
        upper trapezoidal. With `pivot` the named tuple (q, r, permutation), and A[:, permutation] is near q r.

    Raises:
        ValueError: if a value leaves the range of the format (x . x is the first to become infinite or 0), or reaches
            the largest number of a format or mode that saturates.
        ValueError: if A is not a matrix.
        TypeError: for the option `pivoting` of SciPy; the message names `pivot`.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., sections 5.2 and 5.4.2; Higham, Accuracy and Stability of
    Numerical Algorithms, 2nd ed., chapter 19; for complex matrices LAPACK's zgeqr2 and zlarfg.

    Examples:
        >>> q, r = sf.linalg.qr([[3.0, 1.0], [4.0, 2.0]], format=sf.BF16)
        >>> r[0, 0], q[:, 0]
        (array(-5.0, BF16), array([-0.6015625, -0.80078125], BF16))
    """
    check_flags(pivot=pivot)
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, if_complex=TAKES_COMPLEX)
    permutation = np.arange(a.shape[1])
    r, reflections = triangularize(u, a, permutation if pivot else None)
    k = min(a.shape)
    q = multiply_reflections(u, reflections, len(a), k, a.dtype)
    check_range(u, "The factorization", a, q, r[r != a[:, permutation]], power=2)
    factors = QR(result_array(q, u), result_array(r[:k], u))
    return PivotedQR(*factors, permutation) if pivot else factors


@names_options_of_scipy
@in_usual_environment
def lstsq(
    A: Any,
    b: Any,
    *,
    rcond: float | None = None,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> LeastSquares:
    """Solve the least-squares problem min ||b - A x|| by QR.

    The reflections of :func:`simfloat.linalg.qr` are computed, then applied to b from first to last. x solves the
    triangular system in the order of :func:`simfloat.linalg.solve_triangular`. Each element of the residual b - A x
    is one partial sum that starts from b_i.

    If A is complex, a real b has imaginary parts of zero. An unknown and a residual are then two sums, one for each
    part: each subtracts, for every k, the product with the real part of a_ik, then the
    product with its imaginary part. If A is real and b is complex, the real parts of b are solved, then the
    imaginary parts.

    A column k counts as dependent on the columns before it if |r_kk| is at most `rcond` times the norm of column k of
    A. The ratio is the sine of the angle between the column and their span, whatever the scales of the columns (the
    rule of LINPACK). Norms are measured in float64.

    Parameters:
        A: a real or complex matrix (m, n) with m >= n.
        b: a vector (m,) or a matrix (m, columns).
        rcond: the limit for dependent columns, from 0 to below 1; by default max(m, n) times the unit roundoff of the
            format, but at most the square root of the unit roundoff. 0 rejects only exact zeros.
        format: the format to compute in; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum.
        stream: the random bits of stochastic rounding; by default the stream of A.

    Returns:
        The named tuple (x, residual), a `LeastSquares`; x is (n,) or (n, columns), and the residual has the shape of b.

    Raises:
        ValueError: if A has more columns than rows.
        ValueError: if A is rank-deficient; the message names the first dependent column.
        ValueError: if a value leaves the range of the format, as in :func:`simfloat.linalg.qr`.

    Examples:
        >>> A, b = [[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [1.0, 3.0, 5.0]
        >>> sf.linalg.lstsq(A, b, format=sf.FP16).x
        array([0.99853515625, 2.001953125], FP16)
    """
    u = arithmetic_of(A, ArithmeticOptions(format, rounding, accumulate, stream))
    a = matrix_of(A, u, if_complex=TAKES_COMPLEX)
    rows, columns = a.shape
    least = _least_sine(rcond, u.format, rows)
    if rows < columns:
        raise ValueError(f"Least squares need as many rows as columns or more, got shape {a.shape}.")
    b = right_hand_side(b, u, rows, TAKES_COMPLEX)
    right = b if b.ndim > 1 else b[:, np.newaxis]
    if is_complex(b) and not is_complex(a):
        x, residual = (from_parts(*np.hsplit(part, 2)) for part in _least_squares(u, a, _parts(right, 1), least))
    else:
        x, residual = _least_squares(u, a, right.astype(a.dtype), least)
    return LeastSquares(result_array(x.reshape(columns, *b.shape[1:]), u), result_array(residual.reshape(b.shape), u))


def _parts(x: NDArray, axis: int) -> NDArray:
    """Return the real parts, then the imaginary parts."""
    return np.concatenate([x.real, x.imag], axis)


def _least_squares(u: ArrayArithmetic, a: NDArray, b: NDArray, least: float) -> tuple[NDArray, NDArray]:
    """Return the solutions and residuals of right-hand sides as columns, complex if the matrix is."""
    r, reflections = triangularize(u, a)
    c, columns = b.copy(), a.shape[1]
    for column, (v, tau) in enumerate(reflections):
        reflect(u, v, tau.conj(), c[column:])
    check_range(u, "The factorization", a, r[r != a], c[c != b], power=2)
    norms, left = np.linalg.norm(magnitudes(a), axis=0), magnitudes(r.diagonal())
    dependent = np.flatnonzero((left == 0) | (left <= least * norms))
    if dependent.size:
        k = int(dependent[0])
        raise ValueError(
            f"Column {k} depends on the columns before it in {u.format}: of its norm {norms[k]:.1e} only {left[k]:.1e} "
            f"is independent of them, at most rcond = {least:.1e} of it. Leave it out, use a wider format or rcond=0."
        )
    x = (_substitute_complex if is_complex(a) else _substitute)(u, r[:columns], c[:columns])
    if not in_range(u, x):
        raise solution_overflow_error(u.format)
    return x, _subtract_products(u, b, a, x)


def _substitute(u: ArrayArithmetic, r: NDArray, c: NDArray) -> NDArray:
    return substitute(u, r, c, lower=False)


def _substitute_complex(u: ArrayArithmetic, r: NDArray, c: NDArray) -> NDArray:
    """Solve a complex upper triangular system with a real diagonal, one unknown after the other."""
    x = c.copy()
    for i in reversed(range(len(r))):
        # Later unknowns are subtracted in the order in which they were computed: the last one first.
        s = _subtract_products(u, c[i : i + 1], r[i : i + 1, :i:-1], x[:i:-1])
        x[i : i + 1] = complex_parts.compute(u, "divide", s, r[i, i, ...].real)
    return x


def _subtract_products(u: ArrayArithmetic, s: NDArray, left: NDArray, right: NDArray) -> NDArray:
    """Return s - left right; each part of a complex element is one sum, with two products for each index."""
    sums = InnerProducts.of(u, s.real)
    if not is_complex(s):
        return sums.final(s, left, right)
    c, d = right.real, right.imag
    # The sums subtract: a c - b d and a d + b c.
    real = sums.final(s.real, _in_turn(left.real, -left.imag, 1), _in_turn(c, d, 0))
    return from_parts(real, sums.final(s.imag, _in_turn(left.real, left.imag, 1), _in_turn(d, c, 0)))


def _in_turn(x: NDArray, y: NDArray, axis: int) -> NDArray:
    """Return the elements of two arrays in turn along an axis."""
    return complex_parts.interleave(x, y, axis - x.ndim)


def _least_sine(rcond: Any, format: Format, rows: int) -> float:
    """Return the relative norm up to which a column counts as dependent; `rows` is at least the number of columns."""
    if rcond is None:
        return rounding_share(format, rows)
    if isinstance(rcond, bool) or not isinstance(rcond, int | float | np.number) or not 0 <= rcond < 1:
        raise ValueError(f"rcond must be a number from 0 to below 1, got {rcond!r}.")
    return float(rcond)


#: A reflection I - tau v v^H.
Reflection = tuple[NDArray, NDArray]


def multiply_reflections(
    u: ArrayArithmetic, reflections: list[Reflection], rows: int, columns: int, dtype: Any = None
) -> NDArray:
    """Multiply reflections, the last one applied first, with the first columns of the identity."""
    q = np.eye(rows, columns, dtype=dtype or u.dtype)
    for column, (v, tau) in reversed(list(enumerate(reflections))):
        reflect(u, v, tau, q[column:, column:])
    return q


def complete_columns(u: ArrayArithmetic, q: NDArray, norms: NDArray, columns: int) -> NDArray:
    """Return orthonormal columns: the first columns of q, which have a norm, then new ones."""
    count = int(np.count_nonzero(norms))
    if count == columns:
        return q
    # Only columns with a norm have a reflection.
    reflections = triangularize(u, q[:, :count].copy())[1]
    others = multiply_reflections(u, reflections, len(q), columns)
    return np.concatenate([q[:, :count], others[:, count:]], 1)


def triangularize(
    u: ArrayArithmetic, a: NDArray, permutation: NDArray[np.intp] | None = None
) -> tuple[NDArray, list[Reflection]]:
    """Return the upper trapezoid and the reflections (v, tau); exchange columns if there is a permutation to record."""
    r, reflections = a.copy(), list[Reflection]()
    for k in range(min(a.shape)):
        square = None if permutation is None else _exchange_columns(u, r, k, permutation, a)
        if k == len(a) - 1 and not is_complex(a):
            break
        x = r[k:, k].copy()
        alpha, v, tau = reflection(u, x, a, square)
        if not tau[0]:
            check_squares(x[1:], a, a[:, k if permutation is None else permutation[k]], u.format)
        reflections.append((v, tau))
        r[k, k], r[k + 1 :, k] = alpha[0], 0
        reflect(u, v, tau.conj(), r[k:, k + 1 :])
    return r, reflections


def _exchange_columns(
    u: ArrayArithmetic, r: NDArray, k: int, permutation: NDArray[np.intp], a: NDArray
) -> NDArray[np.floating]:
    """Exchange column k with the first of the largest columns j >= k, and return its sum of squares."""
    rows = r[k:, k:].T
    # Sums of squares are computed again in every step. LAPACK subtracts the squares of finished rows instead, and must
    # then detect when cancellation has made a sum meaningless.
    parts = complex_parts.interleave(rows.real, rows.imag, -1) if is_complex(r) else np.ascontiguousarray(rows)
    squares = u.matmul(parts[:, np.newaxis], parts[:, :, np.newaxis]).reshape(-1)
    check_range(u, "The factorization", a, squares, power=2)
    best = int(np.argmax(squares))
    if best:
        for array in (r.T, permutation):
            array[[k, k + best]] = array[[k + best, k]]
    return squares[best : best + 1]


def reflection(
    u: ArrayArithmetic, x: NDArray, a: NDArray, square: NDArray | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """Return the new first element of x and the reflection (v, tau) that zeroes the other elements; x is part of a
    column of a, and `square` its sum of squares if that is known.
    """
    if square is None:
        parts = complex_parts.interleave(x.real, x.imag, -1) if is_complex(x) else x
        square = u.matmul(parts, parts).reshape(1)
        check_range(u, "The factorization", a, square, power=2)
    s = u.compute("sqrt", square)
    first, v = x[:1], x.copy()
    v[0] = 1
    if s[0] == 0:
        return first, v, np.zeros_like(first)
    # With the opposite sign of x_0 the subtraction cannot cancel (Higham 2002, section 19.1).
    alpha = -s if first.real[0] >= 0 else s
    if not is_complex(x):
        pivot = u.compute("subtract", first, alpha)
        v[1:] = u.compute("divide", x[1:], pivot)
        return alpha, v, u.compute("divide", pivot, -alpha)
    pivot = from_parts(u.compute("subtract", first.real, alpha), first.imag)
    v[1:] = complex_parts.compute(u, "divide", x[1:], pivot)
    return alpha, v, complex_parts.compute(u, "divide", pivot, -alpha)


def reflect(u: ArrayArithmetic, v: NDArray, tau: NDArray, a: NDArray) -> None:
    """Replace a by (I - tau v v^H) a."""
    if a.shape[1] and tau[0]:
        if is_complex(a):
            w = complex_parts.matmul(u, v.conj(), a)
            t = complex_parts.compute(u, "multiply", tau, w)
            less = _subtract_outer(u, a, v[:, np.newaxis], t[np.newaxis])
        else:
            w = u.matmul(v, a)
            t = u.compute("multiply", tau, w)
            less = u.compute("fma", -v[:, np.newaxis], t[np.newaxis], a)
        check_range(u, "The factorization", a, w, t, less[less != a], power=2)
        a[...] = less


def _subtract_outer(u: ArrayArithmetic, a: NDArray, v: NDArray, t: NDArray) -> NDArray:
    """Return a - v t, with two fma for each part."""
    real = u.compute("fma", v.imag, t.imag, u.compute("fma", -v.real, t.real, a.real))
    return from_parts(real, u.compute("fma", -v.imag, t.real, u.compute("fma", -v.real, t.imag, a.imag)))
