"""Sums of AMD's matrix cores, a thread for every element of the result: see `kernels/matrix_core_loops.py`."""

from __future__ import annotations

import numpy as np

from simfloat.cuda.thread_loops import row_and_column, threads_over
from simfloat.kernels.jit import scalar
from simfloat.kernels.matrix_core_loops import _flush, _normal, exact_chunk, floored_total, flushed_pair
from simfloat.kernels.unit_steps import NOTHING, cut, unless_special


@threads_over("out")
def exact_chunks(t, a, b, out, terms):
    """CDNA1: the sum so far and 2 or 4 products, exact, rounded to nearest float32."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for k in range(0, a.shape[1], terms):
        three, four = 0.0, 0.0
        if terms == 4:
            three, four = a[i, k + 2] * b[k + 2, j], a[i, k + 3] * b[k + 3, j]
        so_far = exact_chunk(a[i, k] * b[k, j], a[i, k + 1] * b[k + 1, j], three, four, so_far)
    out[i, j] = so_far


@scalar
def _pair(a, b, i, j, k, least):
    """Two products from k on, of operands whose subnormal numbers are flushed."""
    w, x = _normal(a[i, k], least), _normal(a[i, k + 1], least)
    return flushed_pair(w, _normal(b[k, j], least), x, _normal(b[k + 1, j], least))


@threads_over("out")
def flushed_pairs(t, a, b, out, terms, least):
    """CDNA2: products and pairwise sums in float32, subnormal results flushed."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for k in range(0, a.shape[1], terms):
        pair = _pair(a, b, i, j, k, least)
        if terms == 4:
            pair = _flush(pair + _pair(a, b, i, j, k + 2, least))
        so_far = _flush(so_far + pair)
    out[i, j] = so_far


@scalar
def _cut_sum(a, b, a_powers, b_powers, i, j, first, last, step):
    """The products first, first + step, ... cut to multiples of 2^-24 of their largest power: (sum, power)."""
    top, total = NOTHING, 0.0
    for k in range(first, last, step):
        top = max(top, a_powers[i, k] * b_powers[k, j])
    for k in range(first, last, step):
        total += cut(a[i, k] * b[k, j], 2.0**24 / top)
    return total * (top * 2.0**-24), top


@threads_over("out")
def floored_sums(t, a, b, a_powers, b_powers, out, terms, parts, finite):
    """CDNA3: interleaved sums of products cut toward zero, then floors on the way to nearest float32."""
    i, j = row_and_column(t, out.shape)
    so_far = out[i, j]
    for first in range(0, a.shape[1], terms):
        last, plain = first + terms, so_far
        one, one_top = _cut_sum(a, b, a_powers, b_powers, i, j, first, last, parts)
        two, two_top = 0.0, NOTHING
        if parts == 2:
            two, two_top = _cut_sum(a, b, a_powers, b_powers, i, j, first + 1, last, parts)
        if finite == 0:
            for k in range(first, last):
                product = a[i, k] * b[k, j]
                plain += product if abs(product) < 2.0**128 else product * np.inf
        so_far = unless_special(floored_total(one, two, one_top, two_top, so_far, parts), plain)
    out[i, j] = so_far
