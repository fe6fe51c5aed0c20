"""Flags of exact sums, of aligned sums, of matrix units and of sums with scales, compared with fractions."""

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import floor_log2, round_value
from simfloat.formats.exceptions import flags_of, is_tiny
from tests.bits import assert_bits
from tests.checks import assert_refused

SMALL = sf.Format(2, 1)
VALUES = sf.decode(np.arange(15, dtype=np.uint8), SMALL)  # all numbers, both infinities and one NaN


class Product(NamedTuple):
    """A product of two numbers, with the sum of their exponents; `invalid` for 0 * inf."""

    value: float
    power: int
    invalid: bool


def exponent(x, least):
    return max(floor_log2(abs(Fraction(x))), least)


def product_of(x, y):
    value = x * y
    if math.isnan(value):
        return Product(math.nan, 0, not (math.isnan(x) or math.isnan(y)))
    power = exponent(x, SMALL.emin) + exponent(y, SMALL.emin) if value and math.isfinite(value) else 0
    return Product(value + 0.0, power, False)


@cache
def aligned_step(unit, products, start):
    """Return the result of a step of an aligned sum, and its flags."""
    terms = [*(product.value for product in products), start]
    if not all(map(math.isfinite, terms)):
        total = sum(terms)
        created = math.isnan(total) and not any(map(math.isnan, terms))
        return math.nan if math.isnan(total) else total, 16 * (created or any(product.invalid for product in products))
    powers = [product.power for product in products if product.value]
    powers += [exponent(start, unit.output.emin)] if start else []
    last = Fraction(2) ** (max(powers, default=0) - unit.fraction_bits)
    cut = math.floor if unit.align == sf.toward_negative else math.trunc
    aligned = [cut(Fraction(term) / last) * last for term in terms]
    total, is_cut = sum(aligned), aligned != terms
    flags = flags_of(total, (), unit.output, unit.mode) | is_cut
    flags |= 2 * (is_cut and is_tiny(abs(total), total < 0, unit.output, unit.mode))
    return float(sf.round(float(total), unit.output, unit.mode)) + 0.0, flags


def aligned_sum(unit, products):
    result, flags = 0.0, 0
    for first in range(0, len(products), unit.terms):
        result, raised = aligned_step(unit, products[first : first + unit.terms], result)
        flags |= raised
    return flags


def rows_for(output):
    """Return all pairs of indices of operands, which are finite if the format of the sums has no NaN."""
    places = range(len(VALUES)) if output.has_nan else np.flatnonzero(np.isfinite(VALUES)).tolist()
    return np.array(list(itertools.product(places, repeat=2)))


def test_flags_of_aligned_sums_are_those_of_alignment_and_rounding():
    for unit in (
        sf.fused(2, 2, sf.Format(3, 2)), sf.fused(1, 1, sf.Format(2, 2, bias=0), rounding=sf.toward_positive),
        sf.fused(2, 1, sf.E2M1, rounding=sf.toward_zero), sf.fused(2, 1, sf.Format(2, 3), align=sf.toward_negative),
    ):  # fmt: skip
        places = rows_for(unit.output)
        rows = VALUES[places]
        results, flags = sf.matmul(rows, rows.T, inputs=SMALL, accumulate=unit, flags=True)
        assert_bits(results, sf.matmul(rows, rows.T, inputs=SMALL, accumulate=unit))
        products = [[product_of(x, y) for y in VALUES.tolist()] for x in VALUES.tolist()]
        kinds = list(dict.fromkeys(itertools.chain(*products)))
        kind = np.array([[kinds.index(product) for product in line] for line in products])
        want = np.array([[aligned_sum(unit, (p, q)) for q in kinds] for p in kinds], np.uint8)
        first, second = (kind[places[:, k, np.newaxis], places[:, k]] for k in (0, 1))
        assert np.array_equal(flags, want[first, second])
        assert len(np.unique(flags)) >= 3


def test_flags_of_exact_sums_are_those_of_their_one_rounding():
    outputs = sf.Format(3, 1), sf.E2M1, sf.FP64, sf.Format(2, 2, bias=-1)
    for output, rounding in itertools.product(outputs, (sf.nearest_even, sf.toward_negative, sf.to_odd.saturating())):
        rows = VALUES[rows_for(output)]
        options = dict(accumulate=sf.exact, output=output, rounding=rounding)
        results, flags = sf.matmul(rows, rows.T, **options, flags=True)
        assert_bits(results, sf.matmul(rows, rows.T, **options))
        left, right = rows[:, np.newaxis], rows[np.newaxis]
        with np.errstate(invalid="ignore"):
            products = left * right
            sums = products.sum(-1)
        nan_operands = np.isnan(left) | np.isnan(right)
        want = np.zeros(sums.shape, np.uint8)
        for total in np.unique(sums[~np.isnan(sums)]).tolist():
            want[sums == total] = flags_of(Fraction(total) if math.isfinite(total) else total, (), output, rounding)
        want[np.isnan(sums) & ~nan_operands.any(-1)] = 16
        want[(np.isnan(products) & ~nan_operands).any(-1)] = 16
        assert np.array_equal(flags, want)


def test_flags_of_exact_sums_in_fp64_are_those_of_fractions(rng):
    a, b = rng.standard_normal((2, 20, 3)) * 2.0 ** rng.integers(-500, 480, (2, 20, 3))
    a[:4], b[:4] = [2.0**1000, 1, 0], [[2.0**30, 0, 0], [2.0**23, 2.0**1000, 0], [2.0**-2074, 0, 0], [1, 2.0**-900, 0]]
    a[4:7], b[4:7] = rng.standard_normal((3, 3)), [[1, 2.0**-52, 0], [1, 0, 0], [2.0**-1000] * 3]
    for x, y, start in zip(a, b, rng.choice([0.0, 2.0**-40], 20), strict=True):
        total = sum((Fraction(p) * Fraction(q) for p, q in zip(x, y, strict=True)), Fraction(start))
        for rounding in (sf.nearest_even, sf.toward_zero):
            options = dict(accumulate=sf.exact, output=sf.FP64, rounding=rounding, initial=start)
            result, flags = sf.dot(x, y, **options, flags=True)
            assert result == sf.dot(x, y, **options) and flags == flags_of(total, (), sf.FP64, rounding)


def test_tensor_cores_return_the_same_results_with_flags(rng):
    for unit in (
        *(sf.tensor_core(one, sf.FP16) for one in ("volta", "ampere", "hopper")),
        *(sf.tensor_core("hopper", sf.E4M3, instruction=name) for name in ("wgmma", "mma")),
        sf.tensor_core("blackwell", (sf.E4M3, sf.E5M2), output=sf.FP16, instruction="mma"),
        *(sf.tensor_core("ampere", sf.TF32), sf.tensor_core("hopper", sf.FP64)),
        sf.blocked(32, sf.tensor_core("hopper", sf.E4M3), sf.FP32),
    ):
        inputs = (unit.inner if isinstance(unit, type(sf.blocked(1, sf.FP16, sf.FP16))) else unit).inputs
        a, b = (sf.round(rng.standard_normal((5, 70)) * 4, format) for format in inputs)
        c = sf.round(rng.standard_normal((5, 5)), unit.result)
        results, flags = sf.matmul(a, b.T, accumulate=unit, initial=c, flags=True)
        assert_bits(results, sf.matmul(a, b.T, accumulate=unit, initial=c))
        assert (flags == 1).any() and not (flags & ~np.uint8(1)).any()
        ones = np.ones(70, np.float32)
        assert sf.dot(ones, ones, accumulate=unit, flags=True)[1] == 0


def test_a_tensor_core_raises_inexact_for_bits_that_the_alignment_cuts():
    hopper, half = sf.tensor_core("hopper", sf.FP16), sf.tensor_core("hopper", sf.FP16, output=sf.FP16)
    for unit, x, y, result, raised in (
        (hopper, [2.0**14, 2.0**-9], [1, 1], 16384.0 + 2.0**-9, 0), (hopper, [2.0**14, 2.0**-10], [1, 1], 16384.0, 1),
        (hopper, [2.0**14, -(2.0**14), 2.0**-24], [1, 1, 1], 0.0, 1), (hopper, [np.inf, 1], [0, 1], np.nan, 16),
        (half, [65504.0, 65504.0], [1, 1], np.inf, 5), (half, [2.0**-14], [2.0**-12], 0.0, 3),
        (half, [2.0**-14, 2.0**-14], [2.0**-11, 2.0**-11], 2.0**-24, 0),
    ):  # fmt: skip
        total, flags = sf.dot(x, y, accumulate=unit, flags=True)
        assert_bits(total, result)
        assert flags == raised, x


def test_flags_of_units_with_block_scales_are_those_of_scaled_terms(rng):
    for element, block, scale in ((sf.E5M2, 32, sf.E8M0), (sf.E2M1, 32, sf.E8M0), (sf.E2M1, 16, sf.E4M3)):
        unit = sf.tensor_core("blackwell", element, scales=(block, scale))
        grouped, depth = element == sf.E2M1, 80 if element == sf.E2M1 else 64
        x, y = sf.round(rng.standard_normal((2, 4, depth)) * 2.0 ** rng.integers(-1, 2, (2, 4, depth)), element)
        wide = 2.0 ** rng.integers(-9, 9, (2, 4, -(-depth // block)))
        s, t = wide if scale == sf.E8M0 else sf.round(wide / 16 * rng.choice([1.0, -1.375, 1.75], wide.shape), scale)
        options = dict(scales=(s, t.T), accumulate=unit)
        results, flags = sf.matmul(x, y.T, **options, flags=True)
        assert_bits(results, sf.matmul(x, y.T, **options))
        if scale == sf.E8M0:
            negative = options | dict(scales=(-s, t.T))
            assert_refused((lambda by=negative: sf.matmul(x, y.T, **by), "a finite number|an E8M0 number"))  # noqa: B023
        want = np.zeros((4, 4), np.uint8)
        for i, j in np.ndindex(4, 4):
            terms = []
            for first in range(0, depth, 16 if grouped else 1):  # the group of 16 products, or the product, scaled
                at, factors = slice(first, first + (16 if grouped else 1)), (s[i, first // block], t[j, first // block])
                power = sum(exponent(factor, scale.emin) for factor in factors)
                if not grouped:
                    power += exponent(x[i, first], element.emin) + exponent(y[j, first], element.emin)
                value = float(x[i, at] @ y[j, at]) * float(abs(factors[0]) * abs(factors[1]))
                terms.append(Product(value, power, False))
            want[i, j] = aligned_sum(sf.fused(4 if grouped else 32, unit.row.fraction_bits, sf.FP32), tuple(terms))
        assert np.array_equal(flags, want)


@pytest.mark.parametrize("accumulate", [sf.kahan(sf.BF16), sf.tensor_core("hopper"), sf.exact], ids=str)
def test_flags_of_sums_with_scales_are_those_of_scaled_operands_or_blocks(accumulate, rng):
    x, y = rng.standard_normal((2, 4, 32))
    options = dict(accumulate=accumulate, output=sf.FP16)
    quantized = [sf.block_quantize(z, sf.E4M3, block=16, scale=sf.E8M0) for z in (x, y)]
    if accumulate != sf.tensor_core("hopper"):
        values = [q.values() for q in quantized]
        for i in range(4):
            rows = [z[i] for z in values]
            want = sf.dot(*rows, **options, flags=True)
            left, right = ((q.elements[i], q.scales[i]) for q in quantized)
            pair = sf.matmul(left[0][None], right[0][:, None], scales=(left[1][None], right[1][:, None]), **options,
                             flags=True)  # fmt: skip
            assert (pair[0].item(), pair[1].item()) == (want[0].item(), want[1].item())
    # FP32 scales divide the sums of blocks, whose quotients are rounded and added.
    cast = sf.cast(sf.E4M3, scale=sf.block(16, sf.FP32))
    results, flags = sf.matmul(x, y.T, inputs=cast, **options, flags=True)
    assert_bits(results, sf.matmul(x, y.T, inputs=cast, **options))
    e, scales = zip(*(cast.apply_in_blocks(z, -1, None, None, "")[:2] for z in (x, y)), strict=True)
    for i, j in itertools.product(range(4), repeat=2):
        raised, total = 0, Fraction(0)
        for block in range(2):
            at = slice(16 * block, 16 * block + 16)
            divisor = float(scales[0].values[i, block]) * float(scales[1].values[j, block])
            if accumulate == sf.exact:
                total += Fraction(float(e[0][i, at].astype(float) @ e[1][j, at])) / Fraction(divisor)
                continue
            part, of_part = sf.dot(e[0][i, at], e[1][j, at], inputs=sf.E4M3, accumulate=accumulate, flags=True)
            part, of_quotient = sf.divide(part, divisor, accumulate.for_inputs(sf.E4M3, sf.E4M3).result, flags=True)
            total, of_sum = sf.add(float(total), part, accumulate.for_inputs(sf.E4M3, sf.E4M3).result, flags=True)
            raised |= int(of_part | of_quotient | of_sum)
        total = total if accumulate == sf.exact else Fraction(float(total))
        want = raised | flags_of(total, (), sf.FP16, sf.nearest_even)
        assert flags[i, j] == want and results[i, j] == round_value(total, sf.FP16, sf.nearest_even)


def test_flags_include_the_division_by_the_scales_of_whole_tensors(rng):
    x, y = rng.standard_normal((2, 3, 32))
    q, w = (sf.block_quantize(z, sf.E2M1, block=16, scale=sf.E4M3, axis=axis) for z, axis in ((x, 1), (y.T, 0)))
    divisor = q.tensor_scale * w.tensor_scale
    for accumulate in (sf.FP32, sf.tensor_core("blackwell", sf.E2M1, scales=(16, sf.E4M3))):
        sums, of_sums = sf.matmul(
            q.elements, w.elements, scales=(q.scales, w.scales), accumulate=accumulate, flags=True
        )
        results, flags = sf.matmul(q, w, accumulate=accumulate, output=sf.BF16, flags=True)
        wanted, raised = sf.divide(sums, divisor, sf.BF16, flags=True)
        assert_bits(results, wanted) and np.array_equal(flags, of_sums | raised)
    results, flags = sf.matmul(q, w, accumulate=sf.exact, output=sf.FP64, flags=True)
    exact = [[Fraction(float(p @ r)) / Fraction(divisor) for r in (w.elements * np.repeat(w.scales, 16, 0)).T]
             for p in q.elements * np.repeat(q.scales, 16, 1)]  # fmt: skip
    assert np.array_equal(flags, [[flags_of(total, (), sf.FP64, sf.nearest_even) for total in row] for row in exact])


class Steps:
    """Operations of a matrix core on fractions, and the flags that they raise."""

    def __init__(self):
        self.flags = 0

    def round(self, x):
        self.flags |= flags_of(x, (), sf.FP32, sf.nearest_even)
        result = round_value(x, sf.FP32, sf.nearest_even)
        return Fraction(result) if math.isfinite(result) else result

    def flush(self, x):
        result = self.round(x)
        if 0 < abs(result) < Fraction(2) ** -126:
            self.flags |= 3
            return Fraction(0)
        return result

    def on_grid(self, x, last, to_whole=math.floor):
        result = to_whole(x / Fraction(2) ** last) * Fraction(2) ** last
        self.flags |= result != x
        return result


def cdna1(u, unit, x, y, total):
    return u.round(sum((a * b for a, b in zip(x, y, strict=True)), total))


def cdna2(u, unit, x, y, total):
    least = Fraction(unit.inputs[0].smallest_normal)
    x, y = ([0 if abs(number) < least else number for number in row] for row in (x, y))
    products = [u.flush(a * b) for a, b in zip(x, y, strict=True)]
    pairs = [u.flush(p + q) for p, q in zip(products[::2], products[1::2], strict=True)]
    return u.flush(total + (pairs[0] if len(pairs) == 1 else u.flush(pairs[0] + pairs[1])))


def cdna3(u, unit, x, y, total):
    a, b = unit.inputs
    parts, dots = 2 if unit.chunk == 16 else 1, []
    for part in range(parts):
        products = [(p * q, exponent(p, a.emin) + exponent(q, b.emin)) for p, q in
                    zip(x[part::parts], y[part::parts], strict=True) if p * q]  # fmt: skip
        top = max([power for _, power in products], default=-900)
        dots.append((sum((u.on_grid(product, top - 24, math.trunc) for product, _ in products), Fraction(0)), top))
    dot_top = max(top for _, top in dots)
    dot = sum((u.on_grid(value, dot_top - 24) for value, _ in dots), Fraction(0))
    sum_top = exponent(total, -126) if total else -126
    top = max(dot_top, sum_top)
    part = u.on_grid(total, top - 24)
    if parts == 2 and sum_top < top - 25:
        u.flags, part = u.flags | (total != 0), 0
    total = u.on_grid(dot, top - 32) + part
    total = u.on_grid(total, (exponent(total, -126) if total else -126) - 31)
    if u.flags & 1 and is_tiny(abs(total), total < 0, sf.FP32, sf.nearest_even):
        u.flags |= 2
    return u.round(total)


@pytest.mark.parametrize(
    "unit, step",
    [
        *((sf.matrix_core("cdna1", format), cdna1) for format in (sf.FP16, sf.BF16)),
        *((sf.matrix_core("cdna2", format), cdna2) for format in (sf.FP16, sf.BF16)),
        (sf.matrix_core("cdna2", sf.BF16, variant="1k"), cdna2),
        *((sf.matrix_core("cdna3", format), cdna3) for format in (sf.FP16, sf.BF16, (sf.E4M3FNUZ, sf.E5M2FNUZ))),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_flags_of_matrix_cores_are_those_of_their_steps(unit, step, rng):
    depth, size = 2 * unit.chunk, 24
    a, b = (rng.integers(-8, 9, (size, depth)) * 2.0 ** rng.integers(-spread, spread, (size, 1)) for spread in (8, 8))
    a *= 2.0 ** rng.integers(-6, 7, a.shape)
    if unit.inputs[0] == sf.BF16:  # results around the ends of FP32's range
        a[::4], b[::3] = a[::4] * 2.0**-60, b[::3] * 2.0**-66
        a[1::4] *= 2.0**-125
    a, b = (sf.round(x, format, sf.nearest_even.saturating()) for x, format in zip((a, b), unit.inputs, strict=True))
    start = np.where(rng.integers(0, 2, size), sf.round(a[:, 0] * b[:, 0] * 2.0**-20, sf.FP32), 0.0)
    all_flags = set()
    for x, y, c in zip(a, b, start, strict=True):
        result, flags = sf.dot(x, y, accumulate=unit, initial=c, flags=True)
        u, total = Steps(), Fraction(float(c))
        if unit.architecture == "cdna2" and abs(total) < Fraction(2) ** -126:
            total = Fraction(0)
        for first in range(0, depth, unit.chunk):
            chunk = ([Fraction(float(number)) for number in row[first : first + unit.chunk]] for row in (x, y))
            total = step(u, unit, *chunk, total)
        assert (result.item(), flags.item()) == (float(total), u.flags)
        assert result == sf.dot(x, y, accumulate=unit, initial=c)
        all_flags.add(u.flags)
    assert {0, 1} <= all_flags and (3 in all_flags or unit.inputs[0] != sf.BF16)


def test_matrix_cores_raise_overflow_and_invalid():
    large, tiny = 2.0**127, np.array([[-(2.0**-80)], [2.0**-80]])
    for architecture in ("cdna1", "cdna2", "cdna3"):
        unit = sf.matrix_core(architecture, sf.BF16)
        for x, y, result, raised in (
            ([large, large], [1, 1], np.inf, 5), ([large], [large], np.inf, 5), ([np.inf, 1.0], [1, 1], np.inf, 0),
            ([np.inf, np.inf], [1, -1], np.nan, 16), ([np.inf, 1], [0, 1], np.nan, 16),
            ([np.nan, np.inf], [0, 1], np.nan, 0),
        ):  # fmt: skip
            total, flags = sf.dot(x, y, accumulate=unit, flags=True)
            assert_bits(total, result)
            assert flags == raised, x
        # Negative sums that become zero, and zeros of both signs, have the same bits with flags.
        for x, start in itertools.product((tiny, tiny * 0.0), (0.0, -0.0, 2.0**-149)):
            options = dict(inputs=sf.BF16, accumulate=unit, initial=start)
            results, _ = sf.matmul(x, tiny[1:], **options, flags=True)
            assert_bits(results, sf.matmul(x, tiny[1:], **options))
    cdna2 = sf.matrix_core("cdna2", sf.BF16)
    assert sf.dot([2.0**-127], [1.0], accumulate=cdna2, flags=True) == (0.0, 0)  # a flushed operand raises nothing
    assert sf.dot([2.0**-120], [2.0**-20], accumulate=cdna2, flags=True) == (0.0, 3)
    chain = sf.matrix_core("cdna3", sf.FP32)
    assert sf.dot([1.0, 2.0**-30], [1.0, 1.0], accumulate=chain, flags=True) == (1.0, 1)
    # Of the 5 x 2 results the transpose is computed. Subnormal operands have the exponent of their own format.
    unit = sf.matrix_core("cdna3", (sf.E4M3FNUZ, sf.E5M2FNUZ))
    a, b, start = np.full((5, 1), 240.0), np.array([[2.0**-17, 1.0]]), np.full((5, 2), 1.5 * 2.0**-27)
    results, _ = sf.matmul(a, b, accumulate=unit, initial=start, flags=True)
    assert_bits(results, sf.matmul(a, b, accumulate=unit, initial=start))
