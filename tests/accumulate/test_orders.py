"""Compare sums in every order, including trees, NumPy's order and lanes, with their definitions and with NumPy."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums import one_format, trees
from simfloat.sums.one_format import LEAST_CUT, MANY, RUN
from simfloat.sums.trees import as_postfix, program_of, text_of
from simfloat.tools.selftest.checks import hard_operands
from tests.accumulate.definition import MODES, check
from tests.bits import assert_bits
from tests.checks import assert_refused

RANDOM = sf.stochastic()


#: The orders of sums in one format: functions of the format and the mode, which return an accumulator; and modes.
ORDERS = {
    "fused": (sf.sequential, MODES[sf.sequential]),
    "unfused": (lambda format, mode: sf.sequential(format, mode, products=format), MODES[sf.kahan]),
    "unfused in two formats": (lambda format, mode: sf.sequential(format, mode, products=sf.BF16), MODES[sf.pairwise]),
    "pairwise": (sf.pairwise, MODES[sf.pairwise]),
    "kahan": (sf.kahan, MODES[sf.kahan]),
}
each_order = pytest.mark.parametrize("order, modes", ORDERS.values(), ids=ORDERS)


@each_order
def test_nearest_even_sums_follow_the_definition(order, modes, rng):
    formats = sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.TF32, sf.FP32, sf.E4M3FNUZ, sf.Format(8, 15), sf.Format(11, 30)
    for place, format in enumerate(formats):
        for inputs in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E2M1, sf.TF32, sf.FP32)[place % 2 :: 2]:
            check(order(format, sf.nearest_even), *hard_operands(rng, inputs, 2, 28, 2))


@each_order
def test_sums_in_every_mode_follow_the_definition(order, modes, rng):
    formats = sf.FP16, sf.BF16, sf.FP32, sf.E4M3, sf.p3109(8, 3), sf.p3109(8, 1)
    drawn = (*formats[:4], sf.Format(8, 20)) if order is sf.sequential else formats[:1]
    for rounding in modes[1:]:
        for format in drawn if rounding.is_stochastic else formats:
            check(order(format, rounding), *hard_operands(rng, sf.FP16, 2, 23, 2))


@each_order
def test_operands_of_full_double_precision(order, modes, rng):
    a, b = rng.standard_normal((2, 13)), rng.standard_normal((13, 3))
    a[0, :5] *= 2.0**-1060
    b[3] *= 2.0**900
    for format in (sf.FP16, sf.FP32, sf.FP64, sf.Format(11, 40)):
        for rounding in modes[: 1 if format == sf.FP64 else 2]:
            check(order(format, rounding), a, b)
        if order is sf.sequential and format != sf.FP64:
            check(order(format, sf.stochastic(6)), a, b)


@each_order
def test_specials_and_zeros_flow_through_sums(order, modes):
    inf, nan = np.inf, np.nan
    a = np.array([[inf, 1.0, -inf], [inf, 0.0, 1.0], [nan, 1.0, 1.0], [65504.0, 65504.0, -inf], [-0.0, -0.0, -0.0]])
    b = np.ones((3, 2))
    b[0, 1] = 0.0
    for format, rounding in product((sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.E4M3FNUZ), modes[:-2]):
        check(order(format, rounding), a, b)
        for depth in (0, 1):
            check(order(format, rounding), -np.zeros((1, depth)), np.ones((depth, 2)))


#: Steps that are rounded to FP64 itself, for which round-to-odd has no spare bits.
CLAMPED = sf.nearest_even.saturating()
WIDE = [
    *(sf.sequential(sf.FP64, products=sf.FP16), sf.sequential(sf.FP16, products=sf.FP64)),
    *(order(sf.FP64, rounding=CLAMPED) for order in (sf.sequential, sf.pairwise, sf.kahan)),
    sf.sequential(sf.FP64, products=sf.FP64),
]


def test_steps_in_fp64_are_rounded_once(rng):
    a, b = rng.standard_normal((3, 13)), rng.standard_normal((13, 4))
    a[1] *= 2.0**-1060
    a[2] *= 2.0 ** rng.integers(-500, 500, 13)
    b[:, 1] *= 2.0**1000
    for accumulate in WIDE:
        check(accumulate, a, b)
    most = np.finfo(float).max
    assert sf.sum([most, most], accumulate=WIDE[2]) == sf.sum([np.inf, 1.0], accumulate=WIDE[3]) == most


def test_operands_may_lie_outside_float32_where_their_products_do_not():
    orders = [
        *map(sf.sequential, (sf.FP16, sf.BF16, sf.FP32)), *map(sf.pairwise, (sf.BF16, sf.FP32)), sf.kahan(sf.FP16),
        *(sf.sequential(sf.BF16, rounding=mode) for mode in (sf.toward_negative, sf.to_odd)),
        sf.sequential(sf.BF16, products=sf.BF16), sf.blocked(2, sf.BF16, sf.FP32),
        sf.blocked(1, sf.blocked(1, sf.FP16, sf.FP16), sf.FP32),
    ]  # fmt: skip
    for a, b in ((2.0**200, 2.0**-200), (2.0**-160, 2.0**100), (448 * 2.0**120, 2.0**-120), (2.0**-1000, 2.0**999)):
        for accumulate, (x, y) in product(orders, (([a, a], [b, -0.75 * b]), ([b, 1.0], [a, 1.0]))):
            check(accumulate, np.array([x]), np.array([y]).T)
    x, w = np.full((1, 1, 2, 2), 2.0**200), np.full((1, 1, 2, 2), 2.0**-200)
    assert sf.conv2d(x, w, accumulate=sf.FP16) == 4
    scales = np.full((1, 1), 2.0**120), np.full((1, 1), 2.0**-120)
    assert sf.matmul(np.full((1, 32), 448.0), np.ones((32, 1)), scales=scales, accumulate=sf.FP16) == 14336


def test_pairwise_and_compensated_sums_have_any_number_of_terms(rng):
    for terms in (0, 1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 33, 64):
        a, b = sf.round(rng.standard_normal((2, terms)), sf.BF16), sf.round(rng.standard_normal((terms, 3)), sf.BF16)
        for order, rounding in product((sf.pairwise, sf.kahan), (sf.nearest_even, RANDOM)):
            check(order(sf.BF16, rounding), a, b)


def random_nesting(rng, terms):
    parts = list(rng.permutation(terms).tolist())
    while len(parts) > 1:
        i, j = sorted(rng.choice(len(parts), 2, replace=False))
        parts[i] = (parts[i], parts.pop(j)) if rng.random() < 0.5 else (parts.pop(j), parts[i])
    return parts[0]


def test_trees_follow_the_definition(rng):
    formats = (sf.FP16, sf.FP32, sf.p3109(8, 3))
    for rounding, format, inputs in product(MODES[sf.pairwise], formats, formats[:2]):
        a, b = hard_operands(rng, inputs, 2, 21, 3)
        check(sf.tree(random_nesting(rng, 21), format, rounding), a, b)
        check(sf.numpy_sum(format, rounding), a, b)
    for terms in (0, 1, 7, 8, 9, 127, 128, 129, 300):
        a, b = sf.round(rng.standard_normal((2, terms)), "bf16"), sf.round(rng.standard_normal((terms, 3)), "bf16")
        for rounding in (sf.nearest_even, RANDOM):
            check(sf.numpy_sum("bf16", rounding), a, b)


#: Terms for which the order of np.sum is the same in all versions of NumPy that simfloat supports.
MOST = 100_000 if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else 8192


def test_numpys_order_gives_the_bits_of_np_sum_in_every_layout(rng):
    x = rng.standard_normal(10000).astype(np.float32) * np.float32(2.0) ** rng.integers(-9, 9, 10000)
    for n in [*range(300), *rng.integers(300, min(10000, MOST), 60), min(10000, MOST)]:
        for y, format in ((x[:n].astype(np.float32), sf.FP32), (x[:n].astype(np.float64) / 3, sf.FP64)):
            assert_bits(sf.sum(y, accumulate=sf.numpy_sum(format)), np.sum(y))
    assert_bits(sf.sum(np.array([-0.0, -0.0]), accumulate=sf.numpy_sum(sf.FP64)), np.array(0.0))
    for n in sorted({min(n, MOST) for n in (2047, 2048, 5001, 65537, 100_000)}):
        x = (rng.standard_normal((3, n)) * 2.0 ** rng.integers(-9, 9, (3, n))).astype(np.float32)
        want, wide = np.array([np.sum(row) for row in x]), x.astype(np.float64) / 3
        for layout, axis in ((x, 1), (np.asfortranarray(x), 1), (x.T, 0)):
            assert_bits(sf.sum(layout, axis, accumulate=sf.numpy_sum(sf.FP32)), want)
        assert_bits(sf.sum(x[:, ::-1], 1, accumulate=sf.numpy_sum(sf.FP32)), [np.sum(row[::-1].copy()) for row in x])
        assert_bits(sf.sum(wide, 1, accumulate=sf.numpy_sum(sf.FP64)), [np.sum(row) for row in wide])


#: Additions of float32 and of float64: a loop takes seconds to compile, and has its steps from other loops.
LONG = [(sf.FP16, sf.nearest_even), (sf.FP32, sf.nearest_even), (sf.FP16, sf.toward_zero), (sf.Format(8, 30), CLAMPED)]


def test_long_sums_in_numpys_order_have_the_bits_of_their_program(rng, monkeypatch):
    for n in [*range(1, 300), 1000, 4097, 9999]:
        assert list(trees._build_program(n)) == program_of(trees._postfix_of_numpy(n))
    for (format, rounding), n in product(LONG, (2048, 2503)):
        order, (a, b) = sf.numpy_sum(format, rounding), sf.round(rng.standard_normal((2, n)) * 4, sf.E5M2)
        for x, y in ((a, b), (a.astype(np.float32), b.astype(np.float32)), (a * 2.0**-8, np.ones(n))):
            got = sf.dot(x, y, accumulate=order)
            with monkeypatch.context() as patch:
                patch.setattr(one_format, "LEAST_CUT", 1 << 40)
                assert_bits(got, sf.dot(x, y, accumulate=order))


def test_products_of_numpys_order_may_be_rounded_first(rng):
    order = sf.numpy_sum(sf.FP32, products=sf.FP16)
    for n in (1, 7, 8, 33, 130, 3001):
        a, b = rng.standard_normal((2, n)).astype(np.float16)
        assert_bits(sf.dot(a, b, accumulate=order, output=sf.FP16), np.float64(np.sum(a * b)))
    assert order != sf.numpy_sum(sf.FP32)
    with pytest.raises(ValueError, match="products= of numpy_sum takes a deterministic rounding, got stochastic"):
        sf.numpy_sum(sf.FP32, sf.stochastic(), products=sf.FP16)


def test_products_that_are_rounded_first_follow_the_definition(rng):
    pairs = ((sf.FP32, sf.FP16), (sf.FP16, sf.FP32), (sf.p3109(8, 3), sf.FP16))
    modes = [*product((sf.nearest_even,), (sf.FP16, sf.BF16, sf.E4M3, sf.FP32)), (sf.toward_zero, sf.FP16)]
    for (rounding, products), (format, inputs) in product(modes, pairs):
        order = sf.numpy_sum(format, rounding, products=products)
        for depth in (0, 9, 140):
            a, b = (rng.standard_normal(shape) for shape in ((1, depth), (depth, 2)))
            check(order, *(np.asarray(sf.round(x, inputs), np.float64) for x in (a, b)))
        if products != sf.E4M3:
            check(order, *hard_operands(rng, inputs, 2, 21, 3))
        x = rng.standard_normal((2, 5000)).astype(np.float16)
        want = sf.dot(sf.multiply(*x, products, rounding), np.ones(5000), accumulate=sf.numpy_sum(format, rounding))
        assert_bits(sf.dot(*x, accumulate=order), want)


def test_lanes_follow_the_definition(rng):
    inners = sf.sequential(sf.FP16), sf.kahan(sf.BF16), sf.fused(4, 20)
    outers = sf.sequential(sf.FP32), sf.pairwise(sf.FP16), sf.sequential(sf.BF16, RANDOM)
    sizes = (1, 5), (3, 0), (3, 8), (3, 21), (8, 1), (8, 5), (8, 21)
    for inner, outer, (count, terms) in product(inners, outers, sizes):
        a, b = (sf.round(rng.standard_normal(shape), sf.E4M3) for shape in ((2, terms), (terms, 3)))
        check(sf.lanes(count, inner, outer), a, b, inputs=sf.E4M3)


def test_lanes_draw_in_places_of_their_own_and_sum_stacks_and_initial_values(rng):
    accumulate = sf.lanes(4, sf.sequential(sf.FP16, RANDOM), sf.FP16)
    for order in (accumulate, sf.blocked(7, accumulate, sf.FP32), sf.lanes(2, accumulate, sf.FP32)):
        check(order, *hard_operands(rng, sf.FP16, 3, 18, 5))
    a, b = rng.standard_normal((4, 3, 10)), rng.standard_normal((4, 10, 2))
    by = dict(inputs=sf.BF16, accumulate=sf.lanes(4, sf.BF16, sf.FP32))
    assert_bits(sf.matmul(a, b, **by), np.stack([sf.matmul(x, y, **by) for x, y in zip(a, b, strict=True)]))
    x, y, c = sf.round(a[0], sf.BF16), sf.round(b[0], sf.BF16), sf.round(rng.standard_normal((3, 2)), sf.FP32)
    check(by["accumulate"], x, y, initial=c)


def test_every_order_has_a_text_that_is_read_back_and_a_program_with_a_low_stack(rng):
    for terms in (1, 2, 5, 40, 300):
        nesting = random_nesting(rng, terms)
        postfix = as_postfix(nesting)
        assert as_postfix(text_of(postfix)) == postfix
        depth = np.cumsum(np.where(np.array(program_of(postfix)) >= 0, 1, -1))
        assert depth[-1] == 1 and depth.max() <= np.log2(terms) + 2
        accumulate = sf.tree(nesting, sf.FP16, sf.toward_zero)
        assert eval(repr(accumulate), vars(sf)) == accumulate
        assert sf.tree(accumulate.nesting, "fp16", "toward_zero") == accumulate
        policy = sf.Policy(compute=sf.FP16, accumulate=sf.lanes(4, accumulate, sf.numpy_sum("bf16")))
        assert sf.Policy.from_toml(policy.to_toml()) == policy


def test_texts_are_short_and_nested_tuples_add_from_left_to_right():
    assert str(sf.tree(tuple(range(64)), sf.FP16)) == "tree('0 + 1 + ... + 63', FP16)"
    assert sf.tree((0, 1, (2, 3)), sf.FP16) == sf.tree("(0 + 1) + (2 + 3)", sf.FP16) == sf.tree([0, 1, [2, 3]], sf.FP16)
    deep = 0
    for k in range(1, 5000):
        deep = (k, deep)
    assert float(sf.sum(np.ones(5000), accumulate=sf.tree(deep, sf.FP32))) == 5000


#: Sums whose parts are no sums of their first terms.
STOPPED = [
    *(sf.numpy_sum(sf.FP32, products=sf.FP16), sf.pairwise(sf.FP16), sf.exact, sf.lanes(2, sf.FP16, sf.FP16)),
    sf.blocked(2, sf.FP16, sf.pairwise(sf.FP16)),
]


def test_orders_that_mean_nothing_are_refused():
    assert_refused(
        (lambda: sf.tree("0 + 2", sf.FP16), "'0 \\+ 2' has no term 1"),
        (lambda: sf.tree((0, 1, 1), sf.FP16), "has term 1 twice"),
        (lambda: sf.tree("1 + 2", sf.FP16), "no term 0"),
        (lambda: sf.tree("", sf.FP16), "an end where more is expected"),
        (lambda: sf.tree("(0 + 1", sf.FP16), "an end where more is expected"),
        (lambda: sf.tree("0 1", sf.FP16), "'1' at a position where it has no meaning"),
        (lambda: sf.tree("[0 1 2 3]", sf.FP16), "sf.fused"),
        (lambda: sf.tree("0 + ... + 4", sf.FP16), "three dots that are not between"),
        (lambda: sf.tree("0 + 2 + ... + 5", sf.FP16), "no run from 0 and 2 to 5"),
        (lambda: sf.tree((), sf.FP16), "nested tuples"),
        (lambda: sf.tree((0, -1), sf.FP16), "nested tuples"),
        (lambda: sf.tree(3.0, sf.FP16), "nested tuples"),
        (lambda: sf.dot([1, 2], [3, 4], accumulate=sf.tree((0, 1, 2), sf.FP16)), "adds 3 products, got 2"),
        (lambda: sf.dot(*np.ones((2, 5)), accumulate=sf.blocked(3, sf.tree((0, 1, 2), sf.FP16), sf.FP16)), "got 2"),
        (lambda: sf.lanes(0, sf.FP16, sf.FP16), "count must be a positive integer"),
        (lambda: sf.lanes(4, sf.exact, sf.FP16), "that have a format"),
        (lambda: sf.lanes(4, sf.tensor_core("blackwell", sf.E4M3, scales=(32, sf.E8M0)), sf.FP32), "blocked"),
        *(
            (lambda by=by: sf.partial_sums([1], [3], accumulate=by, output=sf.FP32), "has no partial sum")
            for by in STOPPED
        ),
        (lambda: sf.dot([1, 2], [3, 4], accumulate=STOPPED[0], initial=1.0), "has no partial sum"),
    )


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
def test_operands_are_rounded_if_the_other_operand_is_ones(order, rng):
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
