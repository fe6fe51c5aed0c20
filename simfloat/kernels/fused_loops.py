"""Sums of several products at once, aligned to the largest exponent and cut off: what tensor cores do.

Chunks of `terms` products and the sum so far, each exact, are cut toward zero to multiples of 2^(top - fraction_bits),
where 2^top is the largest of their exponents, and added without error; the total is rounded and goes on to the next
chunk. (Fasi, Higham, Mikaitis and Pranesh, PeerJ CS 7:e330, 2021; Xie et al., MMA-Sim, arXiv 2511.10909.)

All is float64: products are exact, powers of two stand for exponents, and a cut is a multiplication and a truncation.
`a` is (m, k), `b` is (k, n), `out` (m, n) holds what the sums start from, and in the end the sums. The innermost loops
run over columns, so LLVM vectorises them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from simfloat.kernels.grid import unpack
from simfloat.kernels.jit import kernel, reader, scalar
from simfloat.kernels.machine import binade, truncate
from simfloat.kernels.plain import nearest

#: A chunk's rows of `b` and of its powers stay in the first-level cache.
COLUMNS = 128

#: The power that stands for no exponent at all: it lies below that of every product.
NOTHING = 2.0**-900

#: Products of E2M1 numbers that a unit for them adds without error before it aligns them.
GROUP = 16


class Unit(NamedTuple):
    """The numbers of a fused sum."""

    terms: float
    unit: float  # 2^fraction_bits
    least: float  # smallest power that a sum's exponent reads as: 2^emin of its format
    zero: float  # the power of a zero; NOTHING if it has none


#: The unit in an array.
unit_of = reader(Unit)


@kernel
def powers_of(x, least, out):
    """The power of two at or below every magnitude, at least `least`; 0 for zeros."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = power_of(x[i, j], least)


@scalar
def power_of(x, least):
    """The power of two at or below |x|, at least `least`; 0 for zero."""
    return max(binade(abs(x)), least) if x != 0.0 else 0.0


@scalar
def first_power(so_far, unit):
    """The power of the sum so far, from which on a chunk looks for its largest."""
    return power_of(so_far, unit.least) if so_far != 0.0 else unit.zero


@scalar
def cut(x, scale):
    """A term in units of 1 / scale, without what lies below one: scale is 2^fraction_bits over the largest power."""
    return truncate(x * scale)


@scalar
def unless_special(rounded, plain):
    """The chunk's result: the plain sum is NaN or infinite just where the unit's is."""
    return rounded if abs(plain) < np.inf else plain


@scalar
def truncated(x, grid):
    """Round toward zero to a format with float32's exponents; what is too large becomes infinite; zeros are +0."""
    magnitude = abs(x)
    drop = np.uint64(52.0 - grid.mantissa_bits)
    normal = np.uint64(np.uint64(np.float64(magnitude).view(np.uint64) >> drop) << drop).view(np.float64)
    spacing = grid.min_normal * grid.epsilon
    rounded = normal if magnitude >= grid.min_normal else truncate(magnitude * (1.0 / spacing)) * spacing
    rounded = rounded if magnitude < 2.0 * grid.top else np.inf
    return math.copysign(rounded, x) + 0.0


@scalar
def nearest_without_sign(x, grid):
    """Round to nearest even; zeros are +0."""
    return nearest(x, grid) + 0.0


def fused(convert):
    """The loop for units that round their totals by `convert`."""

    @kernel
    def loop(a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite):
        unit, grid = unit_of(unit_numbers), unpack(grid_numbers)
        terms = np.int64(unit.terms)
        top, scale, total, plain = np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS)
        for left in range(0, out.shape[1], COLUMNS):
            right = min(left + COLUMNS, out.shape[1])
            for first in range(0, a.shape[1], terms):
                last = min(first + terms, a.shape[1])
                paired = last - (last - first) % 4
                for i in range(out.shape[0]):
                    sums = out[i, left:right]
                    for j in range(sums.size):
                        top[j] = first_power(sums[j], unit)
                    if unit.zero > unit.least:
                        _admit_zeros(a, b, i, left, right, first, first + terms, top, unit.zero)
                    for k in range(first, paired, 4):
                        w, x, y, z = a_powers[i, k], a_powers[i, k + 1], a_powers[i, k + 2], a_powers[i, k + 3]
                        p, q = b_powers[k, left:right], b_powers[k + 1, left:right]
                        r, s = b_powers[k + 2, left:right], b_powers[k + 3, left:right]
                        for j in range(sums.size):
                            top[j] = max(top[j], max(max(w * p[j], x * q[j]), max(y * r[j], z * s[j])))
                    for k in range(paired, last):
                        w, p = a_powers[i, k], b_powers[k, left:right]
                        for j in range(sums.size):
                            top[j] = max(top[j], w * p[j])
                    for j in range(sums.size):
                        scale[j] = unit.unit / top[j]
                        total[j] = cut(sums[j], scale[j])
                    for k in range(first, paired, 4):
                        w, x, y, z = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
                        p, q, r, s = b[k, left:right], b[k + 1, left:right], b[k + 2, left:right], b[k + 3, left:right]
                        for j in range(sums.size):
                            one, two = cut(w * p[j], scale[j]), cut(x * q[j], scale[j])
                            three, four = cut(y * r[j], scale[j]), cut(z * s[j], scale[j])
                            total[j] += (one + two) + (three + four)
                    for k in range(paired, last):
                        w, p = a[i, k], b[k, left:right]
                        for j in range(sums.size):
                            total[j] += cut(w * p[j], scale[j])
                    plain[: sums.size] = sums
                    if not finite:
                        for k in range(first, last):
                            w, p = a[i, k], b[k, left:right]
                            for j in range(sums.size):
                                plain[j] += w * p[j]
                    for j in range(sums.size):
                        sums[j] = unless_special(convert(total[j] / scale[j], grid), plain[j])

    return loop


@scalar
def _admit_zeros(a, b, i, left, right, first, last, top, zero):
    """Let zero products, and those beyond the operands' end, take part with the power `zero`.

    Only where that is larger than the least of a sum: else a sum that is not zero hides it.
    """
    for k in range(first, last):
        for j in range(right - left):
            if k >= a.shape[1] or a[i, k] * b[k, left + j] == 0.0:
                top[j] = max(top[j], zero)


@kernel
def fused_groups(a, b, a_scales, b_scales, a_powers, b_powers, out, unit_numbers, grid_numbers, block):
    """Groups of 16 products of E2M1 numbers, summed without error and then scaled, take the place of single products.

    A group's exponent is that of its scales; a group of zeros has none. Row g of the scales belongs to the products
    from g * block on.
    """
    unit, grid = unit_of(unit_numbers), unpack(grid_numbers)
    terms = np.int64(unit.terms)
    sets = terms // GROUP
    top, scale, total, plain = np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS), np.empty(COLUMNS)
    dots, used = np.empty((sets, COLUMNS)), np.empty((sets, COLUMNS))
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], terms):
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                for j in range(sums.size):
                    top[j] = first_power(sums[j], unit)
                for g in range(sets):
                    start = first + g * GROUP
                    dot, use = dots[g], used[g]
                    dot[:], use[:] = 0.0, 0.0
                    for k in range(start, min(start + GROUP, a.shape[1])):
                        w, p = a[i, k], b[k, left:right]
                        for j in range(sums.size):
                            dot[j] += w * p[j]
                            use[j] = max(use[j], abs(w * p[j]))
                    if start < a.shape[1]:
                        s, t = a_scales[i, start // block], b_scales[start // block, left:right]
                        x, y = a_powers[i, start // block], b_powers[start // block, left:right]
                        for j in range(sums.size):
                            dot[j] *= s * t[j]
                            top[j] = max(top[j], x * y[j] if use[j] > 0.0 else 0.0)
                for j in range(sums.size):
                    scale[j] = unit.unit / top[j]
                    total[j], plain[j] = cut(sums[j], scale[j]), sums[j]
                for g in range(sets):
                    dot = dots[g]
                    for j in range(sums.size):
                        total[j] += cut(dot[j], scale[j])
                        # Only a scale of NaN makes a group special: the sum, an infinite one too, becomes NaN.
                        plain[j] += dot[j] * 0.0
                for j in range(sums.size):
                    sums[j] = unless_special(truncated(total[j] / scale[j], grid), plain[j])


#: Loops by how the total is rounded; (a, b, a_powers, b_powers, out, unit_numbers, grid_numbers, finite).
loops = {"truncated": fused(truncated), "nearest": fused(nearest_without_sign)}
