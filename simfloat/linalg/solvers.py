"""Solve linear systems, by elimination in one format or by iterative refinement in several."""

from __future__ import annotations

from typing import Any, Literal, overload

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arrays import Array
from simfloat.common import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike
from simfloat.linalg.factorizations import eliminate
from simfloat.linalg.matrices import (
    ArithmeticOptions,
    arithmetic_of,
    check_tolerance,
    in_range,
    matrix_of,
    names_options_of_scipy,
    result_array,
    right_hand_side,
    solution_overflow_error,
    solve_with_factors,
)
from simfloat.linalg.refinement import Method, Refinement, RefinementCall
from simfloat.sums.accumulator import Accumulator


@overload
def solve(
    A: Any,
    b: Any,
    *,
    format: FormatLike | None = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> Array: ...


@overload
def solve(
    A: Any,
    b: Any,
    factor: FormatLike,
    work: FormatLike | None = ...,
    residual: FormatLike | Accumulator | None = ...,
    *,
    refine: Literal["lu", "gmres"] = ...,
    steps: FormatLike | None = ...,
    products: FormatLike | None = ...,
    tolerance: float | None = ...,
    max_iterations: int = ...,
    rounding: RoundingLike | None = ...,
    accumulate: Accumulator | FormatLike | None = ...,
    stream: Stream | None = ...,
) -> Refinement: ...


@names_options_of_scipy
@in_usual_environment
def solve(
    A: Any,
    b: Any,
    factor: FormatLike | None = None,
    work: FormatLike | None = None,
    residual: FormatLike | Accumulator | None = None,
    *,
    refine: Literal["lu", "gmres"] = "lu",
    steps: FormatLike | None = None,
    products: FormatLike | None = None,
    tolerance: float | None = None,
    max_iterations: int = 50,
    format: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    stream: Stream | None = None,
) -> Array | Refinement:
    """Solve A x = b, by elimination in one format or by iterative refinement in three.

    Without `factor`, b is rounded to the format of A. The order of operations is that of :func:`simfloat.linalg.lu`
    with pivoting, followed by :func:`simfloat.linalg.solve_triangular` twice.

    With `factor`, this is iterative refinement. A and b are rounded to `work`; A is then rounded to `factor` and
    factored in that format. From x = 0, every step

    * computes r = b - A x, one partial sum for each element in the order `residual`, rounded to `work`;
    * scales r by a power of two so that its largest element is in [1, 2), rounds it to `factor`, solves with the
      factors in that format, and scales the correction back, rounded to `work`;
    * adds the correction to x in `work`.

    With ``refine="gmres"`` (GMRES-IR), the second step is: scale r in the same way, and solve U^-1 L^-1 A d =
    U^-1 L^-1 r by one cycle of :func:`simfloat.linalg.gmres` from d = 0, in the format `steps`. The products A v and
    both triangular systems are computed in the format `products`, to nearest even and with sequential sums, and their
    result is rounded to `steps`. The cycle ends when its estimated residual is at most sqrt(u) of the first, with u of
    `work`, or after n steps. With `factor`, `work` and `residual` these are five precisions.

    Refinement ends in one of these cases:

    * r is zero;
    * with `tolerance`: the exact residual is at most `tolerance` times the norm of b;
    * without `tolerance`: a correction, from the second one, is at most the unit roundoff of `work` relative to x;
    * five successive corrections, each relative to its x, are not smaller than the smallest one before (these five
      are undone);
    * a value leaves the range of a format (that correction is undone);
    * after `max_iterations` corrections.

    Corrections shrink while the condition number times the unit roundoff of `factor` is below 1; with GMRES, also for
    much larger condition numbers. If residuals have
    twice the digits of `work`, x itself (not only its residual) reaches the accuracy of `work`.

    If refinement has not converged and no observer is attached, other options are tried in this order: ten times as
    many iterations, if they ran out; b scaled by a power of two, if x or b is small; A and b scaled, if A is subnormal
    in `factor`; a more precise `factor`; a more precise `work`. `reason` names the first that converges.

    Parameters:
        A: a real matrix (n, n).
        b: a vector (n,) or a matrix (n, columns). Each column is refined separately, with the same factors.
        factor: the format of the factors; it selects refinement.
        work: the format of x; by default the format of A.
        residual: the accumulator of residuals, or a format at least as wide as `work`; by default `work`.
        refine: "lu" computes corrections with the factors, "gmres" by GMRES with the factors as its preconditioner.
        steps: for "gmres", the format of the steps of GMRES; by default `work`.
        products: for "gmres", the format of its products with A and its triangular systems; by default the format of
            `residual`.
        tolerance: bound of the exact residual relative to the norm of b, for the end and for `converged`; by default,
            `converged` allows sqrt(n) times the unit roundoff of `work`, relative to norm(A) norm(x) + norm(b).
        max_iterations: the largest number of corrections.
        format: the format to compute in without `factor`; by default the format of A.
        rounding: the rounding mode; by default the mode of A, or nearest even.
        accumulate: the accumulator of the sums, or a format; by default the accumulator of A, or the sequential sum in
            `format` and `rounding`. A format means the sequential sum in it to nearest even, whatever `rounding` is.
        stream: the random bits of stochastic rounding; by default the stream of A. In refinement, these three options
            apply to the factors, their triangular systems, and values rounded to `factor`.

    Returns:
        The solution, an `Array` with the shape of b; with `factor` a `Refinement`.

    Raises:
        ValueError: if A has a pivot of exactly zero. A small pivot is not an error, as in LAPACK: if A is singular
            except for rounding errors, x is large and refinement does not converge. Use `lstsq` to check the rank.
        ValueError: if A, b, the factors or the first x leave the range of a format; the message advises a scale.
        ValueError: if `work`, `residual` or `tolerance` is given without `factor`, or `residual` is narrower than
            `work`.
        TypeError: for an option of SciPy's solvers; the message names the option of this function.

    Source: Carson and Higham, SIAM J. Sci. Comput. 39(6), 2017, and 40(2), 2018; for five precisions Amestoy, Buttari,
    Higham, L'Excellent, Mary and Vieuble, SIAM J. Matrix Anal. Appl. 45, 2024.

    Examples:
        >>> A, b = np.random.default_rng(0).standard_normal((2, 50, 50))
        >>> result = sf.linalg.solve(A, b[0], factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
        >>> result.converged, result.forward_errors[-1] < sf.FP32.eps
        (True, True)
    """
    options = ArithmeticOptions(format, rounding, accumulate, stream)
    if refine not in ("lu", "gmres"):
        raise ValueError(f'refine must be "lu" or "gmres", got {refine!r}.')
    if refine == "lu" and (steps is not None or products is not None):
        raise ValueError('steps= and products= are options of refine="gmres".')
    if factor is None:
        if work is not None or residual is not None or tolerance is not None or refine != "lu":
            raise ValueError(
                "work=, residual= and tolerance= are options of refinement, which needs factor=, the format of the "
                "factors."
            )
        u = arithmetic_of(A, options)
        a = matrix_of(A, u, square=True)
        b = right_hand_side(b, u, len(a))
        x = solve_with_factors(u, *eliminate(u, a), b)
        if not in_range(u, x):
            raise solution_overflow_error(u.format)
        return result_array(x, u)
    if format is not None:
        raise ValueError("Refinement does not accept format=: use factor=, work= and residual=.")
    if work is None and not isinstance(A, Array):
        raise ValueError("Refinement of a matrix without a format needs work=, the format of the solution.")
    check_count("max_iterations", max_iterations)
    if tolerance is not None:
        check_tolerance(tolerance)
    options = ArithmeticOptions(factor, rounding, accumulate, stream)
    work = A.format if work is None else work
    method = Method(refine, steps, products)
    return RefinementCall(A, b, options, work, residual, tolerance, max_iterations, method).refine()
