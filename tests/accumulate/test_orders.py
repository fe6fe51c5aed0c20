"""Compare sums in every order, including trees, NumPy's order and lanes, with their definitions and with NumPy."""

from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums import one_format, trees
from simfloat.sums.trees import as_postfix, program_of, text_of
from simfloat.tools.selftest.checks import hard_operands
from simfloat.tools.selftest.orders import dot
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import matrix_product

RANDOM = sf.stochastic()
MODES = [*DETERMINISTIC, sf.nearest_even.saturating(), RANDOM, sf.stochastic(4, "A")]


def check(accumulate, a, b, seed=3):
    got = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(seed))
    want = matrix_product(a, b, lambda x, y, element: dot(accumulate, x, y, element=element, seed=seed))
    assert_bits(got, want)


#: The orders of sums in one format: functions of the format and the mode that return an accumulator.
ORDERS = {
    "fused": sf.sequential,
    "unfused": lambda format, rounding: sf.sequential(format, rounding, products=format),
    "unfused in two formats": lambda format, rounding: sf.sequential(format, rounding, products=sf.BF16),
    "pairwise": sf.pairwise,
    "kahan": sf.kahan,
}
each_order = pytest.mark.parametrize("order", ORDERS)


@each_order
@pytest.mark.parametrize(
    "format",
    [sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.TF32, sf.FP32, sf.E4M3FNUZ, sf.Format(8, 15), sf.Format(11, 30)],
    ids=str,
)
def test_nearest_even_sums_follow_the_definition(format, order, rng):
    for inputs in (sf.FP16, sf.BF16, sf.E4M3, sf.E5M2, sf.E2M1, sf.TF32, sf.FP32):
        check(ORDERS[order](format, sf.nearest_even), *hard_operands(rng, inputs, 2, 28, 2))


@each_order
@pytest.mark.parametrize("rounding", MODES[1:], ids=repr)
def test_sums_in_every_mode_follow_the_definition(rounding, order, rng):
    formats = sf.FP16, sf.BF16, sf.FP32, sf.E4M3, sf.p3109(8, 3), sf.p3109(8, 1)
    for format in (*formats[:4], sf.Format(8, 20)) if rounding.is_stochastic else formats:
        check(ORDERS[order](format, rounding), *hard_operands(rng, sf.FP16, 2, 23, 2))


@each_order
def test_operands_of_full_double_precision(order, rng):
    a, b = rng.standard_normal((2, 13)), rng.standard_normal((13, 3))
    a[0, :5] *= 2.0**-1060
    b[3] *= 2.0**900
    for format in (sf.FP16, sf.FP32, sf.FP64, sf.Format(11, 40)):
        for rounding in (sf.nearest_even, sf.toward_positive, sf.stochastic(6)) if format != sf.FP64 else MODES[:1]:
            check(ORDERS[order](format, rounding), a, b)


@each_order
def test_specials_and_zeros_flow_through_sums(order):
    inf, nan = np.inf, np.nan
    a = np.array([[inf, 1.0, -inf], [inf, 0.0, 1.0], [nan, 1.0, 1.0], [65504.0, 65504.0, -inf], [-0.0, -0.0, -0.0]])
    b = np.ones((3, 2))
    b[0, 1] = 0.0
    for format, rounding in product(
        (sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.E4M3FNUZ), (sf.nearest_even, sf.toward_negative, sf.toward_zero)
    ):
        check(ORDERS[order](format, rounding), a, b)


@pytest.mark.parametrize("terms", [0, 1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 33, 64])
def test_pairwise_and_compensated_sums_have_any_number_of_terms(terms, rng):
    a, b = sf.round(rng.standard_normal((2, terms)), sf.BF16), sf.round(rng.standard_normal((terms, 3)), sf.BF16)
    for order, rounding in product((sf.pairwise, sf.kahan), (sf.nearest_even, RANDOM)):
        check(order(sf.BF16, rounding), a, b)


@pytest.mark.parametrize("order", [sf.pairwise, sf.kahan], ids=["pairwise", "kahan"])
def test_long_sums_do_not_stagnate(order):
    assert sf.sum(np.ones(4096), accumulate=order(sf.FP16)) == 4096
    assert sf.sum(np.ones(4096), accumulate=sf.FP16) == 2048


def test_a_single_negative_zero_stays_one_in_a_pairwise_sum():
    assert np.signbit(sf.dot([-0.0], [1.0], accumulate=sf.pairwise(sf.FP16)))
    assert not np.signbit(sf.dot([-0.0], [1.0], accumulate=sf.kahan(sf.FP16)))


def test_repr_gives_the_accumulator_back():
    for accumulator in (
        *(sf.sequential(sf.FP16), sf.sequential("bf16", rounding=sf.stochastic(8), products=sf.E4M3)),
        *(sf.sequential(sf.Format(5, 9), rounding=sf.toward_zero), sf.pairwise(sf.FP16)),
        sf.kahan("bf16", rounding=sf.stochastic(8)),
    ):
        assert eval(repr(accumulator), vars(sf)) == accumulator
        assert hash(eval(repr(accumulator), vars(sf))) == hash(accumulator)
    assert str(sf.sequential(sf.FP16, products=sf.BF16)) == "sequential(FP16, products=BF16)"
    assert str(sf.kahan(sf.FP16, rounding=sf.toward_zero)) == "kahan(FP16, rounding=toward_zero)"


def random_nesting(rng, terms):
    parts = list(rng.permutation(terms).tolist())
    while len(parts) > 1:
        i, j = sorted(rng.choice(len(parts), 2, replace=False))
        parts[i] = (parts[i], parts.pop(j)) if rng.random() < 0.5 else (parts.pop(j), parts[i])
    return parts[0]


@pytest.mark.parametrize("rounding", MODES, ids=repr)
def test_trees_follow_the_definition(rounding, rng):
    for format, inputs in product((sf.FP16, sf.FP32, sf.p3109(8, 3)), (sf.FP16, sf.FP32)):
        a, b = hard_operands(rng, inputs, 2, 21, 3)
        check(sf.tree(random_nesting(rng, 21), format, rounding), a, b)
        check(sf.numpy_sum(format, rounding), a, b)


@pytest.mark.parametrize("terms", [0, 1, 7, 8, 9, 127, 128, 129, 300])
def test_numpys_order_follows_the_definition_for_any_number_of_terms(terms, rng):
    a, b = sf.round(rng.standard_normal((2, terms)), "bf16"), sf.round(rng.standard_normal((terms, 3)), "bf16")
    check(sf.numpy_sum("bf16"), a, b)
    check(sf.numpy_sum("bf16", RANDOM), a, b)


#: Terms for which the order of np.sum is the same in all versions of NumPy that simfloat supports.
MOST = 100_000 if np.lib.NumpyVersion(np.__version__) >= "2.3.0" else 8192


def test_numpys_order_gives_the_bits_of_np_sum_from_1_to_10000_terms(rng):
    x = rng.standard_normal(10000).astype(np.float32) * np.float32(2.0) ** rng.integers(-9, 9, 10000)
    for n in [*range(300), *rng.integers(300, min(10000, MOST), 60), min(10000, MOST)]:
        for y, format in ((x[:n].astype(np.float32), sf.FP32), (x[:n].astype(np.float64) / 3, sf.FP64)):
            assert_bits(sf.sum(y, accumulate=sf.numpy_sum(format)), np.sum(y))
    assert_bits(sf.sum(np.array([-0.0, -0.0]), accumulate=sf.numpy_sum(sf.FP64)), np.array(0.0))


def test_long_sums_in_numpys_order_have_the_bits_of_np_sum_in_every_layout(rng):
    for n in sorted({min(n, MOST) for n in (2047, 2048, 5001, 65537, 100_000)}):
        x = (rng.standard_normal((3, n)) * 2.0 ** rng.integers(-9, 9, (3, n))).astype(np.float32)
        want = np.array([np.sum(row) for row in x])
        for layout, axis in ((x, 1), (np.asfortranarray(x), 1), (x.T, 0)):
            assert_bits(sf.sum(layout, axis, accumulate=sf.numpy_sum(sf.FP32)), want)
        assert_bits(sf.sum(x[:, ::-1], 1, accumulate=sf.numpy_sum(sf.FP32)), [np.sum(row[::-1].copy()) for row in x])
        y = x.astype(np.float64) / 3
        assert_bits(sf.sum(y, 1, accumulate=sf.numpy_sum(sf.FP64)), [np.sum(row) for row in y])


#: Every mode, and every kind of addition that a long sum in one loop calls.
LONG = [
    *((format, sf.nearest_even) for format in (sf.FP16, sf.TF32, sf.FP32, sf.Format(8, 30))),
    *((sf.FP16, sf.nearest_away), (sf.FP16, sf.toward_zero), (sf.E5M2, sf.toward_positive), (sf.TF32, sf.to_odd)),
    *((sf.E5M2, sf.nearest_even.saturating()), (sf.Format(8, 30), sf.toward_negative)),
]


@pytest.mark.parametrize("format, rounding", LONG, ids=str)
def test_long_sums_in_numpys_order_have_the_bits_of_their_program(format, rounding, rng, monkeypatch):
    order = sf.numpy_sum(format, rounding)
    for n in (2048, 2503):
        a, b = sf.round(rng.standard_normal((2, n)) * 4, sf.E5M2)
        for x, y in ((a, b), (a.astype(np.float32), b.astype(np.float32)), (a * 2.0**-8, np.ones(n))):
            got = sf.dot(x, y, accumulate=order)
            with monkeypatch.context() as patch:
                patch.setattr(one_format, "LEAST_CUT", 1 << 40)
                assert_bits(got, sf.dot(x, y, accumulate=order))


def test_the_program_of_numpys_order_is_that_of_its_postfix_form():
    for n in [*range(1, 300), 1000, 4097, 9999]:
        assert list(trees._build_program(n)) == program_of(trees._postfix_of_numpy(n))


def test_products_of_numpys_order_may_be_rounded_first(rng):
    order = sf.numpy_sum(sf.FP32, products=sf.FP16)
    for n in (1, 7, 8, 33, 130, 3001):
        a, b = rng.standard_normal((2, n)).astype(np.float16)
        assert_bits(sf.dot(a, b, accumulate=order, output=sf.FP16), np.float64(np.sum(a * b)))
    a, b = rng.standard_normal((3, 40)).astype(np.float16), rng.standard_normal((40, 2)).astype(np.float16)
    want = [[np.sum(row * column) for column in b.T] for row in a]
    assert_bits(sf.matmul(a, b, accumulate=order, output=sf.FP16), np.array(want, np.float64))
    assert eval(repr(order), vars(sf)) == order and order != sf.numpy_sum(sf.FP32)
    policy = sf.Policy(compute=sf.FP16, accumulate=order)
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    with pytest.raises(ValueError, match="products= of numpy_sum takes a deterministic rounding, got stochastic"):
        sf.numpy_sum(sf.FP32, sf.stochastic(), products=sf.FP16)


@pytest.mark.parametrize(
    "products, rounding",
    [*product((sf.FP16, sf.BF16, sf.E4M3, sf.FP32), DETERMINISTIC[:1]), *product((sf.FP16,), DETERMINISTIC[1:])],
    ids=str,
)
def test_products_that_are_rounded_first_follow_the_definition(products, rounding, rng):
    for format, inputs in ((sf.FP32, sf.FP16), (sf.FP16, sf.FP32), (sf.p3109(8, 3), sf.FP16)):
        order = sf.numpy_sum(format, rounding, products=products)
        for depth in (0, 9, 140):
            a, b = (rng.standard_normal(shape) for shape in ((1, depth), (depth, 2)))
            check(order, *(np.asarray(sf.round(x, inputs), np.float64) for x in (a, b)))
        if products != sf.E4M3:
            a, b = hard_operands(rng, inputs, 2, 21, 3)
            check(order, a, b)
        x = rng.standard_normal((2, 5000)).astype(np.float16)
        rows = [sf.multiply(*x, products, rounding), np.ones(5000)]
        want = sf.dot(*rows, accumulate=sf.numpy_sum(format, rounding))
        assert_bits(sf.dot(*x, accumulate=order), want)


def test_numpys_order_has_no_running_sum_whatever_its_products():
    order = sf.numpy_sum(sf.FP32, products=sf.FP16)
    for call in (
        lambda: sf.partial_sums([1, 2], [3, 4], accumulate=order),
        lambda: sf.dot([1, 2], [3, 4], accumulate=order, initial=1.0),
    ):
        with pytest.raises(ValueError, match="has no partial sum"):
            call()


def test_a_tree_of_neighbours_is_the_pairwise_sum_draws_included(rng):
    a, b = hard_operands(rng, sf.FP16, 3, 13, 5)
    nesting = "((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) + (((8 + 9) + (10 + 11)) + 12)"
    for rounding in (sf.nearest_even, RANDOM, sf.stochastic(3, "B")):
        same = [sf.tree(nesting, sf.FP16, rounding), sf.pairwise(sf.FP16, rounding)]
        got, want = (sf.matmul(a, b, accumulate=x, stream=sf.BitStream(1)) for x in same)
        assert_bits(got, want)


@pytest.mark.parametrize("inner", [sf.sequential(sf.FP16), sf.kahan(sf.BF16), sf.fused(4, 20)], ids=str)
@pytest.mark.parametrize(
    "outer", [sf.sequential(sf.FP32), sf.pairwise(sf.FP16), sf.sequential(sf.BF16, RANDOM)], ids=str
)
def test_lanes_follow_the_definition(inner, outer, rng):
    place = dict(emins=(sf.E4M3.emin, sf.E4M3.emin), seed=5)
    for count, terms in product((1, 3, 8), (0, 1, 5, 8, 21)):
        a = sf.round(rng.standard_normal((2, terms)), sf.E4M3)
        b = sf.round(rng.standard_normal((terms, 3)), sf.E4M3)
        accumulate = sf.lanes(count, inner, outer)
        got = sf.matmul(a, b, inputs=sf.E4M3, accumulate=accumulate, stream=sf.BitStream(5))
        want = matrix_product(a, b, lambda x, y, i, it=accumulate: dot(it, x, y, element=i, **place))
        assert_bits(got, want)


def test_lanes_draw_in_places_of_their_own_and_sum_stacks_and_initial_values(rng):
    accumulate = sf.lanes(4, sf.sequential(sf.FP16, RANDOM), sf.FP16)
    check(accumulate, *hard_operands(rng, sf.FP16, 3, 18, 5))
    check(sf.blocked(7, accumulate, sf.FP32), *hard_operands(rng, sf.FP16, 3, 18, 5))
    check(sf.lanes(2, accumulate, sf.FP32), *hard_operands(rng, sf.FP16, 3, 18, 5))
    a, b = rng.standard_normal((4, 3, 10)), rng.standard_normal((4, 10, 2))
    by = dict(inputs=sf.BF16, accumulate=sf.lanes(4, sf.BF16, sf.FP32))
    assert_bits(sf.matmul(a, b, **by), np.stack([sf.matmul(x, y, **by) for x, y in zip(a, b, strict=True)]))
    c = sf.round(rng.standard_normal((3, 2)), sf.FP32)
    x, y = sf.round(a[0], sf.BF16), sf.round(b[0], sf.BF16)
    want = [[dot(by["accumulate"], x[i], y[:, j], start=c[i, j]) for j in range(2)] for i in range(3)]
    assert_bits(sf.matmul(x, y, accumulate=by["accumulate"], initial=c), np.array(want))


@pytest.mark.parametrize("terms", [1, 2, 5, 40, 300])
def test_every_order_has_a_text_that_is_read_back_and_a_program_with_a_low_stack(terms, rng):
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


@pytest.mark.parametrize(
    "call, message",
    [
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
        (lambda: sf.partial_sums([1, 2], [3, 4], accumulate=sf.lanes(2, sf.FP16, sf.FP16)), "no partial sum"),
    ],
)  # fmt: skip
def test_orders_that_mean_nothing_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
