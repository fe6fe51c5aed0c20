"""Bounds on the errors of sums in the order of an accumulator, and measured errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.analysis.theory.bounds import bias, check_positive, gamma, probable_gamma, roundoff
from simfloat.arithmetic import round as round_to
from simfloat.arithmetic.bit_stream import BitStream
from simfloat.common import check_count
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format, Rounding, as_format
from simfloat.formats.catalog import FormatLike
from simfloat.sums import Accumulator, dot, exact, matmul
from simfloat.sums.blocked import SumOfSums
from simfloat.sums.one_format import InTreeOrder
from simfloat.sums.sequential import SequentialSum, as_accumulator
from simfloat.sums.trees import NumPySum


def count_roundings(accumulate: Accumulator | FormatLike, n: int, *, products: bool = True) -> dict[float, int]:
    """Return the largest number of roundings that one term goes through, for each unit roundoff u.

    Parameters:
        accumulate: `sequential`, `pairwise`, `numpy_sum` or `tree`, a format, or `blocked` and `lanes` of these.
        n: the number of terms, 1 or more.
        products: False if the terms are numbers of the format, as in `simfloat.sum`: the first addition of a sum from
            left to right is then exact, and so is the rounding of each product.

    Returns:
        A dictionary from u (see :func:`roundoff`) to the number of roundings.

    Raises:
        ValueError: for other accumulators, because their errors are not products of factors 1 + delta.
        ValueError: for fixed-point formats, whose errors have no relative bound.

    Source: Higham 2002, sections 3.1 and 4.2.

    Examples:
        >>> u, orders = sf.FP16.unit_roundoff, (sf.FP16, sf.pairwise(sf.FP16), sf.numpy_sum(sf.FP16))
        >>> [sf.theory.count_roundings(order, 1000)[u] for order in orders]
        [1000, 11, 22]
    """
    check_count("n", n)
    order, counts = as_accumulator(accumulate), dict[float, int]()
    for (u, _), count in _count_by_path(order, int(n), products):
        counts[u] = counts.get(u, 0) + count
    return counts


@in_usual_environment
def error_bound(accumulate: Accumulator | FormatLike, n: int, *, products: bool = True) -> float:
    """Return the bound on the error of a sum of n terms, relative to the sum of the magnitudes of the terms.

    It is gamma_k for k roundings in one format (:func:`count_roundings`). For several formats the bounds are
    multiplied: (1 + gamma_j(u)) (1 + gamma_k(v)) - 1. The bound holds if every partial sum and every rounded product is
    in the normal range of its format, or exact.

    Parameters:
        accumulate: the accumulator or format, as in :func:`count_roundings`.
        n: the number of terms, 1 or more.
        products: False for `simfloat.sum` of numbers of the format.

    Returns:
        The bound; infinity if a k u is 1 or more.

    Raises:
        ValueError: as in :func:`count_roundings`.

    Source: Higham 2002, lemmas 3.1 and 3.3; Blanchard, Higham, Lopez, Mary and Pranesh, SIAM J. Sci. Comput. 42 (2020).

    Examples:
        >>> bound = sf.theory.error_bound
        >>> round(bound(sf.blocked(16, sf.BF16, sf.FP32), 4096), 4), bound(sf.BF16, 4096)
        (0.0667, inf)
    """
    bounds = [float(gamma(count, u)) for u, count in count_roundings(accumulate, n, products=products).items()]
    return math.prod(1 + bound for bound in bounds) - 1 if bounds else 0.0


@in_usual_environment
def probable_error_bound(
    accumulate: Accumulator | FormatLike, n: int, *, factor: float = 1.0, products: bool = True
) -> float:
    """Return a probable bound on the error of a sum of n terms, relative to the sum of the magnitudes of the terms.

    It is :func:`probable_gamma` of the roundings, with the :func:`bias` of stochastic rounding. For several formats,
    factor sqrt(n) u becomes the factor times the square root of the sum of n u^2 over all formats (Azuma's inequality
    for steps of several sizes). It has the same condition as :func:`error_bound`.

    Parameters:
        accumulate: the accumulator or format, as in :func:`count_roundings`.
        n: the number of terms, 1 or more.
        factor: as in :func:`probable_gamma`; the probability is ``confidence(factor, terms=n)``.
        products: False for `simfloat.sum` of numbers of the format.

    Returns:
        The bound.

    Raises:
        ValueError: as in :func:`count_roundings` and :func:`probable_gamma`.

    Source: Connolly, Higham and Mary 2021, theorem 4.8.

    Examples:
        >>> u = sf.FP16.unit_roundoff
        >>> bool(sf.theory.probable_error_bound(sf.FP16, 1000) == sf.theory.probable_gamma(1000, u))
        True
    """
    check_positive("factor", factor)
    check_count("n", n)
    counts = dict[tuple[float, float], int]()
    for error, count in _count_by_path(as_accumulator(accumulate), int(n), products):
        counts[error] = counts.get(error, 0) + count
    if len(counts) == 1:
        (((u, mean), count),) = counts.items()
        return float(probable_gamma(count, u, factor, bias=mean))
    centred = [(u / (1 - mean), count) for (u, mean), count in counts.items()]  # the parts with mean zero
    squares = math.fsum(count * u * u for u, count in centred)
    shift = math.fsum(count * math.log1p(mean) for (_, mean), count in counts.items())
    return math.expm1((factor * math.sqrt(squares) + squares) / (1 - max((u for u, _ in centred), default=0.0)) + shift)


def _largest_errors(format: Format, rounding: Rounding) -> tuple[float, float]:
    """Return the largest relative error of one rounding, and that of its mean, or 0 if it is not stochastic."""
    return roundoff(format, rounding), bias(format, rounding) if rounding.is_stochastic else 0.0


def _count_by_path(order: Accumulator, n: int, products: bool) -> list[tuple[tuple[float, float], int]]:
    """Return pairs (largest errors, number of roundings) along the longest path of a term."""
    if isinstance(order, SequentialSum):
        errors = _largest_errors(order.format, order.rounding)
        if order.products is None or not products:
            return [(errors, n if products else n - 1)]
        first = order.products.precision > order.format.precision  # the first product is rounded again
        return [(errors, n - 1 + first), (_largest_errors(order.products, order.rounding), 1)]
    if isinstance(order, InTreeOrder):
        errors, own = _largest_errors(order.format, order.rounding), [order.format]
        if isinstance(order, NumPySum) and order.products is not None:
            own.append(order.products)
        products_roundings = [(_largest_errors(format, order.rounding), 1) for format in own] if products else []
        return [(errors, _depth(order.program(n).tolist(), n)), *products_roundings]
    if isinstance(order, SumOfSums):
        lengths = order.lengths(n)
        runs, size = lengths.count_runs(n), max(size for count, size in lengths.counts_and_sizes(n) if count)
        inner, outer = (_count_by_path(order.inner, size, products), _count_by_path(order.outer, runs, False))
        assert order.inner.result is not None and order.outer.result is not None
        if order.inner.result.precision > order.outer.result.precision:
            outer.append(
                (_largest_errors(order.outer.result, order.outer.roundings[0]), 1)
            )  # a result, before it is added
        return [*inner, *outer]
    raise ValueError(
        f"The error of {order} is not a product of factors 1 + delta: use sequential, pairwise, numpy_sum, tree, or "
        "blocked and lanes of these."
    )


def _depth(program: list[int], n: int) -> int:
    """Return the largest number of additions in which a term takes part, except those of a padding zero."""
    depths: list[int] = []
    for code in program:
        if code >= 0:
            depths.append(-1 if code == n else 0)
        else:
            left, right = depths.pop(), depths.pop()
            depths.append(max(left, right) + (min(left, right) >= 0))
    return max(depths[0], 0)


#: A function (samples, n, rng) that returns the terms of dot products: two arrays (samples, n).
Data = Callable[[int, int, np.random.Generator], tuple[ArrayLike, ArrayLike]]


def uniform_operands(samples: int, n: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return operands of dot products, uniform between 0 and 1.

    Parameters:
        samples: the number of dot products.
        n: the number of terms of each.
        rng: NumPy's random generator.

    Returns:
        Two arrays (samples, n).

    Examples:
        >>> [x.shape for x in sf.theory.uniform_operands(2, 3, np.random.default_rng(0))]
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
    data: Data = uniform_operands,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Measure the errors of dot products, relative to the sum of |a_i b_i|.

    The operands are first rounded to `inputs`. The sum of the magnitudes and the exact result are exact sums, rounded
    once to float64.

    Parameters:
        accumulate: any accumulator except the exact one, or a format.
        lengths: numbers of terms, each 1 or more.
        inputs: the format of the operands; by default the format of the sums.
        samples: the number of dot products for each length.
        data: a function ``data(samples, n, rng)`` that returns both operands, (samples, n); by default
            :func:`uniform_operands`.
        seed: the seed of the data and of stochastic rounding.

    Returns:
        A float64 array (samples, lengths).

    Raises:
        ValueError: if a length or `samples` is not a positive integer; if the accumulator has no format; if `data` is
            not a function.

    Examples:
        >>> errors = sf.theory.measure_errors(sf.FP16, [10, 1000])
        >>> errors.shape, bool((errors <= sf.theory.gamma([10, 1000], sf.FP16.unit_roundoff)).all())
        ((20, 2), True)
    """
    order = as_accumulator(accumulate)
    if order.result is None:
        raise ValueError(f"accumulate must have a format, to which it rounds; {order} has none.")
    check_count("samples", samples)
    if not np.iterable(lengths) or isinstance(lengths, str):
        raise ValueError(f"lengths must be a sequence of numbers of terms, such as [10, 1000]; got {lengths!r}.")
    lengths = list(lengths)
    if not callable(data):
        raise ValueError(
            f"data must be a function data(samples, n, rng) that returns two arrays (samples, n), such as "
            f"simfloat.theory.uniform_operands; got {data!r}."
        )
    rng, stream = np.random.default_rng(seed), BitStream(seed)
    format = order.result if inputs is None else as_format(inputs)
    errors = np.empty((samples, len(lengths)))
    for column, n in enumerate(lengths):
        check_count("A length", n)
        operands = (round_to(x, format) for x in data(samples, int(n), rng))
        for row, (a, b) in enumerate(zip(*operands, strict=True)):
            computed = dot(a, b, inputs=format, accumulate=order, stream=stream if order.stages else None)
            # The exact sum starts from minus the result, so the error itself is rounded once: it may be below the
            # spacing of float64 at the result.
            error = matmul(a, b, accumulate=exact, output=FP64, initial=-np.float64(computed))
            size = dot(np.abs(a), np.abs(b), accumulate=exact, output=FP64)
            errors[row, column] = abs(float(error)) / (float(size) or 1.0)
    return errors
