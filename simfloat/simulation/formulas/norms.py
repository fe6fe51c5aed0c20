"""Normalization of layers, batches and groups, with gradients.

A normalization is ``(x - mean) * factor * weight + bias``. The mean and the factor, the inverse root of the variance,
are computed over the axes `together`. The axes are ordered so that weight and bias, which may be None, are broadcast
without reshaping. There are gradients with respect to the values, the weight and the bias.
"""

from __future__ import annotations

import math

from numpy.typing import NDArray

from simfloat.simulation.formulas import Rounded, average, number

Axes = tuple[int, ...]


def norm(
    u: Rounded, x: NDArray, weight: NDArray | None, bias: NDArray | None, together: Axes, eps: float
) -> tuple[NDArray, NDArray, NDArray]:
    """d * rsqrt(mean(d * d) + eps) * weight + bias with d = x - mean(x); also returns the mean and the factor."""
    mean = average(u, x, together)
    d = u.subtract(x, mean)
    factor = inverse_root(u, average(u, u.multiply(d, d), together), eps)
    return scaled(u, u.multiply(d, factor), weight, bias), mean, factor


def scaled(u: Rounded, y: NDArray, weight: NDArray | None, bias: NDArray | None) -> NDArray:
    """y * weight + bias; each may be None."""
    y = y if weight is None else u.multiply(y, weight)
    return y if bias is None else u.add(y, bias)


def norm_to_x(
    u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray, weight: NDArray | None, together: Axes
) -> NDArray:
    """(p - mean(p) - y * mean(p * y)) * factor with p = g * weight and y = (x - mean) * factor, recomputed."""
    passed = g if weight is None else u.multiply(g, weight)
    y = normal(u, x, mean, factor)
    centred = u.subtract(passed, average(u, passed, together))
    return u.multiply(u.subtract(centred, u.multiply(y, average(u, u.multiply(passed, y), together))), factor)


def normal(u: Rounded, x: NDArray, mean: NDArray, factor: NDArray) -> NDArray:
    """(x - mean) * factor."""
    return u.multiply(u.subtract(x, mean), factor)


def norm_to_weight(u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray, axes: Axes) -> NDArray:
    """Sum g * ((x - mean) * factor) over the axes along which an element of the weight is used."""
    terms = u.multiply(g, normal(u, x, mean, factor))
    return u.sum(terms, axes) if axes else terms


def norm_to_bias(u: Rounded, g: NDArray, axes: Axes) -> NDArray:
    """Sum g over the axes along which an element of the bias is used."""
    return u.sum(g, axes) if axes else u.round(g, "sum")


def batch_norm(
    u: Rounded, x: NDArray, weight: NDArray | None, bias: NDArray | None, eps: float
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """d * rsqrt(s / n + eps) * weight + bias of x (N, C, ...) with d = x - mean, where s sums n products d * d.

    Also returns, for each channel, the mean, the factor, and s / (n - 1), the variance for running statistics.
    """
    rows = channels_last(x)
    axes, count = outer_axes(rows.ndim), math.prod(rows.shape[:-1])
    mean = u.mean(rows, axes)
    d = u.subtract(rows, mean)
    total = u.sum(u.multiply(d, d), axes)
    unbiased = u.divide(total, number(count - 1))
    factor = inverse_root(u, u.divide(total, number(count)), eps)
    return channels_second(scaled(u, u.multiply(d, factor), weight, bias)), mean, factor, unbiased


def batch_norm_to_x(
    u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray, weight: NDArray | None
) -> NDArray:
    """Return the gradient of x (N, C, ...) by the formula of `norm_to_x`."""
    rows = channels_last(x)
    return channels_second(norm_to_x(u, channels_last(g), rows, mean, factor, weight, outer_axes(rows.ndim)))


def batch_norm_to_weight(u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray) -> NDArray:
    """Return the gradient of the weight of channels."""
    return norm_to_weight(u, channels_last(g), channels_last(x), mean, factor, outer_axes(x.ndim))


def batch_norm_to_bias(u: Rounded, g: NDArray) -> NDArray:
    """Return the gradient of the bias of channels."""
    return norm_to_bias(u, channels_last(g), outer_axes(g.ndim))


def group_norm(
    u: Rounded, x: NDArray, weight: NDArray | None, bias: NDArray | None, groups: int, eps: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Apply `norm` to x (N, C, ...) by groups of channels, then weight and bias; means and factors are (N, groups,
    1).
    """
    y, mean, factor = norm(u, by_group(u, x, groups), None, None, (2,), eps)
    rows = (None if vector is None else of_channels(vector, x.ndim) for vector in (weight, bias))
    return scaled(u, y.reshape(x.shape), *rows), mean, factor


def group_norm_to_x(
    u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray, weight: NDArray | None, groups: int
) -> NDArray:
    """Return the gradient of x by the formula of `norm_to_x`."""
    passed = g if weight is None else u.multiply(g, of_channels(weight, x.ndim))
    reached = norm_to_x(u, by_group(u, passed, groups), by_group(u, x, groups), mean, factor, None, (2,))
    return reached.reshape(x.shape)


def group_norm_to_weight(u: Rounded, g: NDArray, x: NDArray, mean: NDArray, factor: NDArray, groups: int) -> NDArray:
    """Return the gradient of the weight of channels."""
    y = normal(u, by_group(u, x, groups), mean, factor).reshape(x.shape)
    return batch_norm_to_bias(u, u.multiply(g, y))


def by_group(u: Rounded, x: NDArray, groups: int) -> NDArray:
    """Return x (N, C, ...) as (N, groups, elements of a group)."""
    return u.with_format_of(x.reshape(len(x), groups, -1 if x.size else 0), x)


def of_channels(vector: NDArray, ndim: int) -> NDArray:
    """Reshape one element per channel for broadcasting to (N, C, ...)."""
    return vector.reshape(-1, *[1] * (ndim - 2))


def inverse_root(u: Rounded, variance: NDArray, eps: float) -> NDArray:
    """rsqrt(variance + eps), the factor of a normalization."""
    return u.apply("rsqrt", u.add(variance, number(eps)))


def running_norm(
    u: Rounded, x: NDArray, weight: NDArray | None, bias: NDArray | None, mean: NDArray, variance: NDArray, eps: float
) -> NDArray:
    """(x - mean) * rsqrt(variance + eps) * weight + bias of x (N, C, ...) with running statistics."""
    y = normal(u, channels_last(x), mean, inverse_root(u, variance, eps))
    return channels_second(scaled(u, y, weight, bias))


def running_norm_to_x(u: Rounded, g: NDArray, weight: NDArray | None, variance: NDArray, eps: float) -> NDArray:
    """g * weight * rsqrt(variance + eps)."""
    rows = channels_last(g)
    passed = rows if weight is None else u.multiply(rows, weight)
    return channels_second(u.multiply(passed, inverse_root(u, variance, eps)))


def moving_average(u: Rounded, old: NDArray, new: NDArray, factor: float) -> NDArray:
    """old * (1 - factor) + new * factor."""
    return u.add(u.multiply(old, number(1.0 - factor)), u.multiply(new, number(factor)))


def inner_axes(ndim: int, count: int) -> Axes:
    """Return the last `count` axes, over which a layer normalizes."""
    return tuple(range(ndim - count, ndim))


def outer_axes(ndim: int, count: int = 1) -> Axes:
    """Return all axes except the last `count`: the axes along which an element of weight and bias is used."""
    return tuple(range(ndim - count))


def channels_last(x: NDArray) -> NDArray:
    """Return (N, C, ...) as (N, ..., C): channels then broadcast over leading axes, whose sums are fastest."""
    return x.transpose(0, *range(2, x.ndim), 1)


def channels_second(rows: NDArray) -> NDArray:
    """Return (N, ..., C) as (N, C, ...)."""
    return rows.transpose(0, rows.ndim - 1, *range(1, rows.ndim - 1))
