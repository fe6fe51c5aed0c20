"""The sums of AMD's matrix cores (Xie et al., MMA-Sim, arXiv 2511.10909; facts as of its version 2.1.1).

`a` is (m, k), `b` is (k, n); `out` (m, n) contains the start values, then the sums. k is a multiple of the terms of a
matrix unit, padded with zeros. A plain sum is computed as well; it is NaN or infinite exactly if the sum of the unit
is.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels.compile.intrinsics import binade, floor, round_sum_to_odd
from simfloat.kernels.compile.jit import copy_into, kernel, scalar
from simfloat.kernels.elementwise.exact import odd_sum, two_sum
from simfloat.kernels.units.aligned import NOTHING, cut, power_at_or_below, unless_special

COLUMNS = 128

#: Smaller magnitudes are subnormal in float32.
NORMAL = np.float32(2.0**-126)


@kernel
def exact_chunks(a, b, out, terms):
    """Round the exact sum of the sum so far and 2 or 4 products to nearest float32 (CDNA1). All arrays are float64."""
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], terms):
            # If an instruction sums only two products, `third` and `fourth` repeat them, and are not used.
            third, fourth = first + terms - 2, first + terms - 1
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                w, x, y, z = a[i, first], a[i, first + 1], a[i, third], a[i, fourth]
                p, q, r, s = b[first, left:right], b[first + 1, left:right], b[third, left:right], b[fourth, left:right]
                for j in range(sums.size):
                    one, two, three, four = w * p[j], x * q[j], y * r[j], z * s[j]
                    if terms == 2:
                        three, four = 0.0, 0.0
                    sums[j] = exact_chunk(one, two, three, four, sums[j])


@scalar
def exact_chunk(one, two, three, four, so_far):
    """Return the sum of four products of FP16 numbers and the sum so far, rounded once to nearest float32."""
    plain = so_far + ((one + two) + (three + four))
    # The products are multiples of 2^-48 below 2^32, so the errors of the sums add up exactly.
    high, low = two_sum(one, two)
    high, rest = two_sum(high, three)
    low += rest
    high, rest = two_sum(high, four)
    return unless_special(_nearest_sum(high, low + rest, so_far), plain)


@scalar
def _nearest_sum(high, low, so_far):
    """Return high + low + so_far rounded once to nearest float32, by round-to-odd (Boldo and Melquiond 2008, 5)."""
    high, low = two_sum(high, low)
    t, t_error = two_sum(so_far, low)
    v, v_error = two_sum(high, t)
    s, e = two_sum(v, odd_sum(t_error, v_error))
    return np.float64(np.float32(round_sum_to_odd(s, e) + 0.0))


@scalar
def _flush(x):
    """Replace a subnormal float32 result by a zero of the same sign."""
    return x if abs(x) >= NORMAL or x != x else np.float32(x * np.float32(0.0))


@scalar
def flushed_pair(w, p, x, q):
    """Return w * p + x * q in float32, each result flushed."""
    return _flush(_flush(w * p) + _flush(x * q))


@kernel
def flushed_pairs(a, b, out, terms, least):
    """Compute products and pairwise sums in float32, with subnormal results flushed (CDNA2). All arrays are float32.

    Operands below `least`, which are subnormal in their format, and zeros become +0.
    """
    zero = np.float32(0.0)
    pairs = terms // 2
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], terms):
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                w = a[i, first] if not abs(a[i, first]) < least else zero
                x = a[i, first + 1] if not abs(a[i, first + 1]) < least else zero
                y = a[i, first + terms - 2] if not abs(a[i, first + terms - 2]) < least else zero
                z = a[i, first + terms - 1] if not abs(a[i, first + terms - 1]) < least else zero
                p, q = b[first, left:right], b[first + 1, left:right]
                r, s = b[first + terms - 2, left:right], b[first + terms - 1, left:right]
                for j in range(sums.size):
                    pair = flushed_pair(w, _normal(p[j], least), x, _normal(q[j], least))
                    if pairs == 2:
                        pair = _flush(pair + flushed_pair(y, _normal(r[j], least), z, _normal(s[j], least)))
                    sums[j] = _flush(sums[j] + pair)


@scalar
def _normal(x, least):
    return np.float32(0.0) if abs(x) < least else x


@kernel
def floored_sums(a, b, a_powers, b_powers, out, terms, parts, finite):
    """Compute `parts` interleaved sums of products truncated toward zero, then floors and nearest float32 (CDNA3).

    With two parts (8-bit operands), a sum so far that is too small in comparison is dropped. All arrays are float64.
    """
    dot, dot_top, plain = np.empty((2, COLUMNS)), np.empty((2, COLUMNS)), np.empty(COLUMNS)
    for left in range(0, out.shape[1], COLUMNS):
        right = min(left + COLUMNS, out.shape[1])
        for first in range(0, a.shape[1], terms):
            for i in range(out.shape[0]):
                sums = out[i, left:right]
                dot_top[:], dot[:] = NOTHING, 0.0
                for part in range(parts):
                    _cut_sum(a, b, a_powers, b_powers, i, left, right, first + part, terms, parts, dot_top, dot, part)
                copy_into(plain, sums)
                if not finite:
                    for k in range(first, first + terms):
                        x, row = a[i, k], b[k, left:right]
                        for j in range(sums.size):
                            product = x * row[j]
                            plain[j] += product if abs(product) < 2.0**128 else product * np.inf
                for j in range(sums.size):
                    total = floored_total(dot[0, j], dot[1, j], dot_top[0, j], dot_top[1, j], sums[j], parts)
                    sums[j] = unless_special(total, plain[j])


@scalar
def _cut_sum(a, b, a_powers, b_powers, i, left, right, first, terms, step, tops, sums, part):
    """Truncate the products first, first + step, ... to multiples of 2^-24 of their largest power, and add them."""
    top, total = tops[part], sums[part]
    for k in range(first, first - part + terms, step):
        x, row = a_powers[i, k], b_powers[k, left:right]
        for j in range(row.size):
            top[j] = max(top[j], x * row[j])
    for k in range(first, first - part + terms, step):
        x, row = a[i, k], b[k, left:right]
        for j in range(row.size):
            total[j] += cut(x * row[j], 2.0**24 / top[j])
    for j in range(right - left):
        total[j] *= top[j] * 2.0**-24


@scalar
def floored_total(one, two, one_top, two_top, so_far, parts):
    """Return the sum of two partial sums and the sum so far, added through floors and rounded to nearest float32."""
    dot_top = max(one_top, two_top)
    dot = _floor(one, dot_top * 2.0**-24) + _floor(two, dot_top * 2.0**-24)
    sum_top = max(power_at_or_below(so_far, 2.0**-126), 2.0**-126)
    top = max(dot_top, sum_top)
    sum_part = _floor(so_far, top * 2.0**-24)
    sum_part = 0.0 if (parts == 2) & (sum_top < top * 2.0**-25) else sum_part
    # MMA-Sim describes the matrix unit with this order of floors and with the widths 24, 25, 31 and 32. They are
    # floors, not truncations: negative sums move away from zero.
    total = _floor(dot, top * 2.0**-32) + sum_part
    total = _floor(total, max(binade(abs(total)), 2.0**-126) * 2.0**-31)
    return np.float64(np.float32(total + 0.0))


@scalar
def _floor(x, spacing):
    """Return the largest multiple of a power of two that is not above x."""
    return floor(x * _inverse(spacing)) * spacing


@scalar
def _inverse(power):
    """Return 1 over a power of two that has a normal inverse, faster than by a division."""
    return np.uint64(np.uint64(0x7FE0000000000000) - np.float64(power).view(np.uint64)).view(np.float64)
