"""Products of stacks of matrices: the leading axes of operands."""

from importlib import import_module
from itertools import product

import numpy as np

import simfloat as sf
from simfloat.sums import tiles
from tests.bits import assert_bits
from tests.checks import with_threads

RANDOM = sf.stochastic(8)

DETERMINISTIC = [
    *(sf.FP32, sf.FP16, sf.BF16, sf.sequential(sf.FP16, products=sf.E5M2), sf.sequential(sf.BF16, sf.toward_zero)),
    *(sf.sequential(sf.E4M3, products=sf.E2M1), sf.pairwise(sf.FP16), sf.kahan(sf.BF16), sf.fused(4, 23)),
    *(sf.blocked(4, sf.FP16, sf.FP32), sf.blocked(3, sf.pairwise(sf.BF16), sf.kahan(sf.FP32))),
    *(sf.blocked(4, sf.blocked(2, sf.FP16, sf.FP16), sf.FP32), sf.blocked(4, sf.fused(4, 20), sf.FP16)),
    *(sf.tensor_core("hopper", sf.FP16), sf.matrix_core("cdna3", sf.FP16)),
]

DRAWING = [
    *(sf.sequential(sf.FP16, RANDOM), sf.sequential(sf.BF16, sf.stochastic(), products=sf.BF16)),
    *(sf.pairwise(sf.FP16, RANDOM), sf.kahan(sf.BF16, RANDOM)),
    *(sf.blocked(4, sf.sequential(sf.FP16, RANDOM), sf.FP32), sf.blocked(4, sf.FP16, sf.sequential(sf.FP16, RANDOM))),
]

#: Shapes of operands whose leading axes broadcast, and of one matrix for all; wide and narrow, long and empty.
SHAPES = [
    ((3, 5, 9), (3, 9, 70)), ((2, 1, 5, 8), (3, 8, 4)), ((6, 8), (5, 8, 7)), ((70, 8), (4, 8, 3)),
    ((4, 70, 6), (4, 6, 3)), ((4, 3, 0), (4, 0, 2)), ((0, 3, 4), (0, 4, 2)), ((4, 0, 3), (4, 3, 2)),
    ((0, 3), (4, 3, 0)),
]  # fmt: skip


def numbers(shape, seed=0):
    values = np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
    return sf.round(values, sf.E2M3)


def test_the_product_of_stacks_is_the_stack_of_products():
    for accumulate, shapes in product(DETERMINISTIC, SHAPES):
        a, b = (numbers(shape, seed) for seed, shape in enumerate(shapes))
        stack = sf.matmul(a, b, accumulate=accumulate)
        assert stack.shape == np.matmul(a, b).shape
        leading = stack.shape[:-2]
        a, b = np.broadcast_to(a, (*leading, *a.shape[-2:])), np.broadcast_to(b, (*leading, *b.shape[-2:]))
        for place in np.ndindex(*leading):
            assert_bits(stack[place], sf.matmul(a[place], b[place], accumulate=accumulate))


def test_a_draw_belongs_to_its_element_of_the_whole_result():
    """The rows of a stack times one matrix are numbered as those of one tall matrix."""
    for accumulate, (count, m, k, n) in product(DRAWING, ((3, 5, 9, 20), (2, 70, 6, 3))):
        a, b = numbers((count, m, k)), numbers((k, n), 1)
        stack = sf.matmul(a, np.stack([b] * count), accumulate=accumulate, stream=sf.BitStream(4))
        tall = sf.matmul(a.reshape(-1, k), b, accumulate=accumulate, stream=sf.BitStream(4))
        assert_bits(stack.reshape(-1, n), tall)


def test_no_result_of_a_stack_depends_on_the_number_of_threads():
    a, b = numbers((300, 20, 24)), numbers((300, 24, 33), 1)
    for accumulate in (
        *(sf.FP32, sf.blocked(4, sf.FP16, sf.FP32), sf.sequential(sf.FP16, RANDOM), sf.tensor_core("hopper", sf.FP16)),
        sf.fused(7, 20, sf.BF16, rounding=sf.stochastic()),
    ):
        assert_bits(*(sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(0)) for _ in with_threads(1, 3)))


def test_a_long_blocked_sum_is_summed_a_few_rows_at_a_time(monkeypatch):
    a, b = numbers((3, 9, 22)), numbers((3, 22, 5), 1)
    accumulate = sf.blocked(4, sf.FP16, sf.FP32)
    whole = sf.matmul(a, b, accumulate=accumulate)
    monkeypatch.setattr(import_module("simfloat.sums.blocked"), "RESULTS_AT_ONCE", 70)
    assert_bits(sf.matmul(a, b, accumulate=accumulate), whole)
    assert_bits(sf.matmul(a[0], b[0], accumulate=accumulate), whole[0])


def test_threads_take_many_tiny_matrices_at_a_time(monkeypatch):
    """To hand out a tiny matrix costs more than to compute it, also by an engine that takes one matrix at a time."""
    pieces, run_all = [], tiles.run_all
    monkeypatch.setattr(tiles, "run_all", lambda work, taken: (pieces.append(len(taken)), run_all(work, taken))[1])
    a, b = numbers((256, 8, 8)), numbers((256, 8, 8), 1)
    sf.matmul(a, b, accumulate=sf.tensor_core("hopper", sf.FP16))
    assert sum(pieces) <= 8
