"""Softmax, log_softmax and logsumexp along axes: exponentials of differences to the largest number.

That number is found among the operands, so it needs no rounding.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simfloat.formulas.rounded import Rounded, keepdims_shape, total, where
from simfloat.formulas.slopes import ZERO

Axes = tuple[int, ...]


def softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """exp(d) / sum(exp(d)) with d = x - max(x)."""
    powers = u.apply("exp", u.subtract(x, _largest(u, x, axes)))
    return u.divide(powers, total(u, powers, axes))


def softmax_slope(u: Rounded, g: NDArray, y: NDArray, axes: Axes) -> NDArray:
    """y * g - y * sum(y * g)."""
    product = u.multiply(y, g)
    return u.subtract(product, u.multiply(y, total(u, product, axes)))


def safe_softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """softmax, and zeros where all of x is -inf."""
    return where(u, ~(x == -np.inf).all(axes, keepdims=True), softmax(u, x, axes), ZERO)


def log_softmax(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """d - log(sum(exp(d))) with d = x - max(x)."""
    below = u.subtract(x, _largest(u, x, axes))
    return u.subtract(below, u.apply("log", total(u, u.apply("exp", below), axes)))


def log_softmax_slope(u: Rounded, g: NDArray, y: NDArray, axes: Axes) -> NDArray:
    """g - exp(y) * sum(g)."""
    return u.subtract(g, u.multiply(u.apply("exp", y), total(u, g, axes)))


def logsumexp(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """log(sum(exp(d))) + m with d = x - m, and m = max(x), or 0 where that is infinite; the axes are dropped."""
    largest = _largest(u, x, axes)
    largest = where(u, np.isinf(largest), ZERO.astype(x.dtype), largest)
    powers = u.sum(u.apply("exp", u.subtract(x, largest)), axes)
    return u.add(u.apply("log", powers), largest.reshape(powers.shape))


def logcumsumexp(u: Rounded, x: NDArray, axis: int) -> NDArray:
    """The logsumexp of all elements up to each along an axis, every one by itself.

    Those of one largest number m share exp(x - m), and their sums go on from each other.
    """
    rows = np.moveaxis(x, axis, 0)
    count, columns = len(rows), rows.reshape(len(rows), -1)
    if columns.shape[1] > count:
        sums = np.stack([logsumexp(u, columns[: i + 1], (0,)) for i in range(count)])
    else:
        sums = np.stack([_running_logsumexp(u, np.ascontiguousarray(column)) for column in columns.T], 1)
    return u.with_format_of(np.moveaxis(sums.reshape(rows.shape), 0, axis), sums)


def _running_logsumexp(u: Rounded, x: NDArray) -> NDArray:
    """Return the logsumexp of the elements of a vector up to each."""
    largest = np.maximum.accumulate(x)
    bounds = [0, *(np.flatnonzero((largest[1:] != largest[:-1]) & ~np.isnan(largest[:-1])) + 1), len(x)]
    runs = []
    for start, end in pairwise(bounds):
        least = u.with_format_of(largest[start : start + 1], x)
        least = where(u, np.isinf(least), ZERO.astype(x.dtype), least)
        powers = u.running_sums(u.apply("exp", u.subtract(x[:end], least))[:, np.newaxis])[start:, 0]
        runs.append(u.add(u.apply("log", powers), np.broadcast_to(least, powers.shape)))
    return u.with_format_of(np.concatenate(runs), *runs)


def logsumexp_slope(u: Rounded, g: NDArray, y: NDArray, x: NDArray) -> NDArray:
    """g * exp(x - y), and 0 where all x are -inf; `g` and `y` have the axes that were summed, with one element."""
    return u.multiply(g, u.apply("exp", u.subtract(x, np.where(y == -np.inf, y.dtype.type(0), y))))


def _largest(u: Rounded, x: NDArray, axes: Axes) -> NDArray:
    """The largest numbers along axes; 0 where there are none. As a constant: its gradient would cancel."""
    largest = x.max(axes, keepdims=True) if x.size else np.zeros(keepdims_shape(x.shape, axes), x.dtype, like=x)
    return u.with_format_of(largest, x)
