"""Long pairwise sums of few results are computed in runs, with the bits of the tree."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums.one_format import LEAST_CUT, MANY, RUN
from tests.bits import assert_bits


def tree(x, y, format, rounding):
    """The sum of the products of two vectors by the definition, on arrays: neighbours, level by level."""
    nodes = sf.multiply(x, y, format, rounding)
    while nodes.size > 1:
        pairs = sf.add(nodes[: nodes.size // 2 * 2 : 2], nodes[1::2], format, rounding)
        nodes = np.append(pairs, nodes[nodes.size - nodes.size % 2 :])
    return nodes[0]


LENGTHS = [
    *(LEAST_CUT - 1, LEAST_CUT, LEAST_CUT + 1, 9 * RUN - 1, 12 * RUN + 77, 40_000, MANY + 13),
    LEAST_CUT * RUN + RUN + 3,
]
CASES = [(sf.BF16, sf.nearest_even), (sf.FP16, sf.toward_zero), (sf.FP32, sf.nearest_even), (sf.E4M3, sf.to_odd)]


def test_sums_of_any_length_are_those_of_the_tree(rng):
    for terms, (format, rounding) in product(LENGTHS, CASES):
        x = sf.round(rng.standard_normal(terms).astype(np.float32), format)
        y = sf.round(rng.standard_normal(terms).astype(np.float32), sf.BF16)
        accumulate = sf.pairwise(format, rounding=rounding)
        assert_bits(sf.sum(x, accumulate=accumulate), tree(x, np.ones(terms), format, rounding))
        assert_bits(sf.dot(x, y, accumulate=accumulate), tree(x, y, format, rounding))
    for special in (np.inf, np.nan, -0.0):
        x = sf.round(rng.standard_normal(5000).astype(np.float32), sf.BF16)
        x[[3, 4000]] = special
        y = np.full(5000, -0.0) if special == 0.0 else x
        assert_bits(sf.sum(y, accumulate=sf.pairwise(sf.BF16)), tree(y, np.ones(5000), sf.BF16, sf.nearest_even))


@pytest.mark.parametrize("order", [sf.pairwise, sf.numpy_sum], ids=lambda order: order.__name__)
def test_factors_of_one_on_either_side_leave_no_number_unrounded(order, rng):
    x, accumulate = rng.standard_normal(LEAST_CUT + 9).astype(np.float32), order(sf.BF16)
    want = sf.sum(sf.round(x, sf.BF16), accumulate=accumulate)
    for ones in (np.ones_like(x), np.broadcast_to(np.float32(1.0), x.shape)):
        assert_bits(sf.dot(x, ones, accumulate=accumulate), want)
        assert_bits(sf.dot(ones, x, accumulate=accumulate), want)
        both = np.stack([x, ones, x])
        assert_bits(sf.matmul(both, ones[:, np.newaxis], accumulate=accumulate)[::2, 0], [want, want])
        assert_bits(sf.matmul(ones[np.newaxis], both.T, accumulate=accumulate)[0, ::2], [want, want])
        assert_bits(sf.matmul(np.stack([ones] * 3), x[:, np.newaxis], accumulate=accumulate)[:, 0], [want] * 3)
        assert_bits(
            sf.matmul(np.broadcast_to(ones, (3, ones.size)), x[:, np.newaxis], accumulate=accumulate)[0], [want]
        )


def test_a_few_results_are_cut_as_one_is(rng):
    a, b = (sf.round(rng.standard_normal(shape).astype(np.float32), sf.BF16) for shape in ((3, 4100), (4100, 2)))
    want = [[tree(row, column, sf.BF16, sf.nearest_even) for column in b.T] for row in a]
    assert_bits(sf.matmul(a, b, accumulate=sf.pairwise(sf.BF16)), want)
