"""Functions whose order of additions is found: our own accumulators, NumPy's sums, PyTorch's; and what is refused."""

import math
import re
from itertools import islice

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis import reveal
from simfloat.analysis.reveal.candidates import candidates
from simfloat.analysis.reveal.check import equal, random_operands
from simfloat.analysis.reveal.order import evidence_of, find_order
from simfloat.analysis.reveal.probe import BlackBox, Builder, ProductRange, span_of
from simfloat.analysis.reveal.readings import LikeNumPy
from tests.bits import DETERMINISTIC
from tests.reference import in_halves


def black_box(accumulator, inputs=sf.FP32, output=None):
    return lambda a, b: sf.dot(a, b, inputs=inputs, accumulate=accumulator, output=output)


def assert_gives_bits(found, f, k, seed=12345):
    """What was found gives the function's bits on operands that it was not compared on, half of each kind."""
    box = BlackBox(f, k, found.inputs)
    options = {"inputs": found.inputs, "accumulate": found.accumulator}
    options |= {"output": found.output, "rounding": found.rounding}
    for kind, *operands in random_operands(box, ProductRange(-20, 14), np.random.default_rng(seed)):
        a, b = (x[::2] for x in operands)
        ours = sf.matmul(a, b.T, **options).diagonal()
        assert equal(ours, np.array([box(x, y) for x, y in zip(a, b, strict=True)])).all(), (kind, found)


FOUND_AGAIN = [
    (sf.sequential(sf.FP32), sf.FP32, None),
    (sf.sequential(sf.FP32, products=sf.FP32), sf.FP32, None),
    (sf.sequential(sf.FP16), sf.FP32, None),
    (sf.sequential(sf.E4M3, products=sf.E4M3), sf.E4M3, None),
    (sf.sequential(sf.BF16, products=sf.FP32), sf.FP32, None),
    (sf.sequential(sf.Format(6, 9)), sf.FP32, None),
    (sf.sequential(sf.FP64), sf.FP32, sf.FP32),
    (sf.sequential(sf.FP32), sf.BF16, sf.BF16),
    (sf.sequential(sf.FP16, sf.toward_zero), sf.FP32, None),
    (sf.sequential(sf.FP16, sf.toward_positive), sf.FP32, None),
    (sf.sequential(sf.FP16, sf.toward_negative), sf.FP32, None),
    (sf.sequential(sf.FP16, sf.to_odd), sf.FP32, None),
    (sf.sequential(sf.FP16, sf.nearest_away), sf.FP32, None),
    (sf.sequential(sf.FP16, sf.nearest_even.saturating()), sf.FP32, None),
    (sf.pairwise(sf.FP32), sf.FP32, None),
    # Cut toward zero, -M becomes smaller by whatever is added to it.
    (sf.pairwise(sf.FP32, rounding=sf.toward_zero), sf.FP32, None),
    (sf.lanes(3, sf.sequential(sf.FP16, sf.toward_zero), sf.FP32), sf.FP32, None),
    (sf.blocked(5, sf.FP16, sf.FP32), sf.FP32, None),
    (sf.blocked(7, sf.pairwise(sf.FP16), sf.kahan(sf.FP32)), sf.FP16, None),
    (sf.blocked(5, sf.sequential(sf.FP16, sf.nearest_even.saturating()), sf.FP32), sf.FP16, None),
    (sf.kahan(sf.FP16), sf.FP16, None),
    (sf.fused(6, 20), sf.FP16, None),
    (sf.fused(6, 20, align=sf.nearest_even), sf.FP16, None),
    (sf.fused(6, 20, align=sf.toward_negative), sf.FP16, None),
    (sf.fused(4, 10, sf.BF16), sf.FP16, None),
    (sf.fused(8, 12, sf.FP16, rounding=sf.toward_negative), sf.E4M3, None),
    # What leaves a sticky bit is never lost, which shows no order: chunks of every size are tried.
    (sf.fused(4, 20, rounding=sf.nearest_even, align=sf.to_odd), sf.BF16, None),
    (sf.exact, sf.FP32, sf.FP32),
    (sf.library_sum("mkl-avx2"), sf.FP32, None),
    # Beside an M that is odd in the sums' bits, not in the lanes', everything leaves a trace.
    (sf.lanes(3, sf.sequential(sf.BF16, sf.to_odd), sf.FP32), sf.FP32, None),
]


@pytest.mark.parametrize(("accumulator", "inputs", "output"), FOUND_AGAIN, ids=str)
def test_our_own_accumulators_are_found_again(accumulator, inputs, output):
    found = sf.reveal(black_box(accumulator, inputs, output), 29, inputs=inputs)
    assert (found.accumulator, found.output) == (accumulator, output), found


#: Units that no other generation's equal.
VOLTA, HOPPER = sf.tensor_core("volta", sf.FP16), sf.tensor_core("hopper", sf.E4M3, instruction="mma")

UNITS = [
    (VOLTA, sf.FP16),
    (sf.tensor_core("ada", sf.FP16, sf.FP16), sf.FP16),
    (sf.tensor_core("hopper", sf.TF32), sf.FP32),
    (HOPPER, sf.E4M3),
    (sf.tensor_core("blackwell", (sf.E5M2, sf.E4M3)), (sf.E5M2, sf.E4M3)),
    (sf.matrix_core("cdna2", sf.BF16), sf.BF16),
    (sf.matrix_core("cdna3", sf.FP16), sf.FP16),
]


@pytest.mark.parametrize(("unit", "inputs"), UNITS, ids=str)
def test_an_accumulator_with_the_bits_of_a_matrix_unit_is_found(unit, inputs):
    found = sf.reveal(black_box(unit, inputs), 37, inputs=inputs)
    assert found.accumulator == unit if unit in (VOLTA, HOPPER) else found.accumulator is not None, found
    assert_gives_bits(found, black_box(unit, inputs), 37)


@pytest.mark.parametrize("accumulator", [
    sf.sequential(sf.FP32), sf.sequential(sf.FP64), sf.sequential(sf.FP16, sf.nearest_even.saturating()),
    sf.kahan(sf.FP32), sf.library_sum("mkl-avx2"),
], ids=str)  # fmt: skip
def test_of_three_products_an_accumulator_with_the_bits_is_found(accumulator):
    f = black_box(accumulator)
    found = sf.reveal(f, 3)
    assert found.accumulator is not None, found
    assert_gives_bits(found, f, 3)


def test_promoted_sums_of_a_unit_are_found():
    accumulator = sf.blocked(16, sf.tensor_core("ampere", sf.FP16, sf.FP16), sf.FP32)
    found = sf.reveal(black_box(accumulator, sf.FP16), 53, inputs=sf.FP16)
    assert_gives_bits(found, black_box(accumulator, sf.FP16), 53)
    assert (found.accumulator.size, found.accumulator.outer) == (16, sf.sequential(sf.FP32))


def test_sums_that_are_exact_in_any_order_are_said_to_be():
    found = sf.reveal(black_box(sf.tensor_core("blackwell", sf.E2M1), sf.E2M1), 37, inputs=sf.E2M1)
    assert found.accumulator == sf.exact
    assert_gives_bits(found, black_box(sf.tensor_core("blackwell", sf.E2M1), sf.E2M1), 37)


LIBRARIES = {
    "numpy.dot": (np.dot, sf.FP32),
    "numpy.sum": (lambda a, b: (a * b).sum(), sf.FP32),
    "numpy.sum in float64": (lambda a, b: (a.astype(np.float64) * b).sum(), sf.FP32),
    "numpy.matmul": (lambda a, b: (np.stack([a, a]) @ np.stack([b, b], 1))[1, 1], sf.FP32),
    "numpy.sum of float16": (lambda a, b: (a.astype(np.float16) * b.astype(np.float16)).sum(), sf.FP16),
}


#: numpy.sum adds seven numbers in order, eight in pairs, and more in an order of its own.
FOUND_IN_NUMPY = {
    ("numpy.sum", 7): sf.sequential(sf.FP32, products=sf.FP32),
    ("numpy.sum", 8): sf.pairwise(sf.FP32),
    ("numpy.sum", 45): sf.numpy_sum(sf.FP32),
    ("numpy.sum in float64", 45): sf.numpy_sum(sf.FP64),
    ("numpy.sum of float16", 45): sf.numpy_sum(sf.FP32, products=sf.FP16),
}


def test_a_last_part_in_more_bits_is_seen():
    order = sf.library_sum("openblas-avx512")
    assert sf.reveal(black_box(order), 37).accumulator == order


@pytest.mark.parametrize(
    "name, k", [*((name, 45) for name in LIBRARIES), ("numpy.dot", 2), ("numpy.sum", 7), ("numpy.sum", 8)]
)
def test_what_is_found_of_numpy_has_its_bits_or_says_why_not(name, k):
    f, inputs = LIBRARIES[name]
    found = _assert_consistent(f, k, inputs)
    assert found.accumulator == FOUND_IN_NUMPY.get((name, k), found.accumulator)


@pytest.mark.parametrize("k", [33, 40])
def test_torchs_dot_of_bf16_is_found_where_products_are_left_over(k):
    torch = pytest.importorskip("torch")
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        return  # wider registers have another order
    found = sf.reveal(
        lambda a, b: torch.from_numpy(a).bfloat16().dot(torch.from_numpy(b).bfloat16()), k, inputs=sf.BF16
    )
    assert (found.accumulator, found.output) == (sf.library_sum("torch-bfloat16"), sf.BF16)


@pytest.mark.parametrize(
    ("name", "k"),
    [("sum", 7), ("sum", 45), ("float32 matmul", 45), ("bfloat16 matmul", 16)],
)
def test_what_is_found_of_torch_has_its_bits_or_says_why_not(name, k):
    torch = pytest.importorskip("torch")
    array = torch.from_numpy
    f, inputs = {
        "sum": (lambda a, b: (array(a) * array(b)).sum(), sf.FP32),
        "float32 matmul": (lambda a, b: (array(a)[None] @ array(b)[:, None])[0, 0], sf.FP32),
        "bfloat16 matmul": (lambda a, b: (array(a).bfloat16()[None] @ array(b).bfloat16()[:, None])[0, 0], sf.BF16),
    }[name]
    _assert_consistent(f, k, inputs)


def _assert_consistent(f, k, inputs):
    found = sf.reveal(f, k, inputs=inputs)
    if found.accumulator is None:
        assert "other bits" in found.reason or "No accumulator" in found.reason
    else:
        assert_gives_bits(found, f, k)
    return found


def lanes_of_fused_multiply_adds(a, b):
    """Two lanes that each start with the last product, which no accumulator does."""
    one, other = (sf.dot(a[k::2][::-1], b[k::2][::-1], accumulate=sf.FP32) for k in (0, 1))
    return one + other


def test_an_order_that_no_accumulator_has_is_shown():
    found = sf.reveal(lanes_of_fused_multiply_adds, 10)
    assert found.accumulator is None
    with pytest.raises(ValueError, match="gives the bits of the function, but none was found: .* other bits"):
        found.dot([1.0], [1.0])
    assert str(found.tree) == "6 + 8 + 4 + 2 + 0 + (7 + 9 + 5 + 3 + 1)"
    assert str(found).startswith("no accumulator\n  order: 6 + 8 + 4") and "No probe" not in found.reason


@pytest.mark.parametrize(
    "accumulator",
    [
        sf.lanes(2, sf.sequential(sf.FP32, products=sf.FP32), sf.FP32),
        sf.lanes(8, sf.FP32, sf.pairwise(sf.FP32)),
        sf.numpy_sum(sf.FP16),
        sf.tree("1 + 3 + 2 + (0 + 5 + 7) + (4 + 6) + (8 + 9 + ... + 23) + (24 + 26 + (25 + 27 + 28))", sf.BF16),
    ],
    ids=str,
)  # fmt: skip
def test_lanes_numpys_order_and_any_tree_are_found(accumulator):
    f = black_box(accumulator, sf.FP32)
    found = sf.reveal(f, 29)
    assert found.accumulator is not None and found.tree is not None, found
    assert_gives_bits(found, f, 29)
    assert sf.tree(found.tree, sf.FP32).nesting == found.tree.text


def test_lanes_in_numpys_order_are_tried_if_their_sums_are_added_in_another_format():
    accumulator = sf.lanes(8, sf.FP16, sf.pairwise(sf.FP32))
    for k in (16, 32):
        box = BlackBox(black_box(accumulator, sf.FP16), k, (sf.FP16, sf.FP16))
        span = span_of(box)
        tree = find_order(box, span)
        builder = Builder(k)
        assert tree == builder.tree(LikeNumPy().add(builder, range(k)))
        tried = islice(candidates(evidence_of(box, span, tree), tree), reveal.FEW_CANDIDATES)
        assert accumulator in {candidate.accumulator for candidate in tried}


def test_parts_that_are_wider_than_their_sum_are_among_the_first_candidates():
    for accumulator, k in (
        (sf.lanes(8, sf.FP32, sf.pairwise(sf.FP16)), 24),
        (sf.blocked(8, sf.pairwise(sf.FP32), sf.pairwise(sf.FP16)), 32),
    ):
        box = BlackBox(black_box(accumulator), k, (sf.FP32, sf.FP32))
        span = span_of(box)
        tree = find_order(box, span)
        tried = islice(candidates(evidence_of(box, span, tree), tree), 2000)
        assert accumulator in {candidate.accumulator for candidate in tried}, accumulator


def test_aligned_sums_in_blocks_and_lanes_are_found_with_the_mode_and_format_of_their_totals():
    """The last addition of a part shows how its total is rounded."""
    nearest = sf.fused(4, 26, sf.FP32, rounding=sf.nearest_even)
    for accumulator, inputs in (
        (sf.blocked(4, nearest, sf.FP32), sf.E4M3),
        (sf.lanes(2, nearest, sf.FP32), sf.BF16),
        (sf.blocked(4, sf.fused(4, 24, sf.BF16), sf.FP32), sf.E4M3),
    ):
        assert sf.reveal(black_box(accumulator, inputs), 18, inputs=inputs).accumulator == accumulator


def test_each_level_of_aligned_sums_has_its_own_bits_and_mode():
    for accumulator, k in (
        (sf.blocked(4, sf.fused(4, 18), sf.fused(4, 24)), 37),
        (sf.blocked(4, sf.fused(4, 24, align=sf.nearest_even), sf.fused(4, 18, align=sf.toward_negative)), 33),
        (sf.lanes(4, sf.fused(3, 20), sf.fused(4, 14)), 37),
    ):
        found = sf.reveal(black_box(accumulator, sf.FP16), k, inputs=sf.FP16)
        assert found.accumulator == accumulator and len(found.excluded) < 200


def test_lanes_that_are_added_in_halves_are_found_before_lanes_of_lanes():
    accumulator = sf.lanes(16, sf.FP32, sf.tree(in_halves(16), sf.FP32))
    assert sf.reveal(black_box(accumulator), 48).accumulator == accumulator


def test_the_order_of_a_sum_from_the_right_takes_few_calls():
    box = BlackBox(lambda a, b: sf.dot(a[::-1], b[::-1], accumulate=sf.FP32), 100, (sf.FP32, sf.FP32))
    tree = find_order(box, span_of(box))
    assert str(tree) == "99 + 98 + ... + 0" or str(tree) == "98 + 99 + 97 + 96 + ... + 0"
    assert box.sum_count < 2000


def test_the_permutation_of_the_operands_of_a_sum_from_left_to_right_is_named():
    """A tree rounds products first, so no accumulator adds exact products in this order."""
    for places, text in (([5, 4, 3, 2, 1, 0], "::-1"), ([3, 0, 5, 1, 4, 2], "[3, 0, 5, 1, 4, 2]")):
        found = sf.reveal(lambda a, b, p=places: sf.dot(a[p], b[p], accumulate=sf.E5M2), 6, inputs=sf.E5M2, calls=8000)
        assert found.accumulator is None
        assert f"simfloat.dot of a[{text}] and b[{text}] gives the bits of all " in found.reason, found
        assert "that f computed, with sequential(E5M2)." in found.reason


def test_sums_with_the_range_of_fp64_are_found():
    """Twice the largest power of two is no float64 number."""
    found = sf.reveal(lambda a, b: float(np.sum(a * b)), 12, inputs=sf.FP64)
    assert found.accumulator == sf.numpy_sum(sf.FP64), found
    assert sf.reveal(lambda a, b: sum((a * b).tolist()), 3, inputs=sf.Format(11, 40)).accumulator == sf.sequential(
        sf.FP64, products=sf.FP64
    )


def test_an_order_of_two_kinds_of_sums_is_said_to_be_that_of_no_accumulator():
    def mixed(a, b):
        chain, unit = sf.dot(a[:4], b[:4], accumulate=sf.FP32), sf.dot(a[4:], b[4:], accumulate=sf.fused(4, 16))
        return sf.round(chain + unit, sf.FP32)

    found = sf.reveal(mixed, 7, inputs=sf.FP16)
    assert str(found.tree) == "0 + 1 + 2 + 3 + [4 5 6]" and found.accumulator is None and found.nearest == []
    told = (
        r"No accumulator adds in this order\. \d+ accumulators of other orders were tried, and each gives other bits\."
    )
    assert re.fullmatch(told, found.reason) and str(found).endswith(f"\n  {found.reason}")


def test_what_was_found_prints():
    found = sf.reveal(black_box(sf.sequential(sf.FP32), sf.BF16, sf.BF16), 21, inputs=sf.BF16)
    first, order, reason, *excluded = str(found).split("\n")
    assert (first, order) == ("sequential(FP32), rounded to BF16", "  order: 0 + 1 + ... + 20")
    told = r"  With output BF16 the accumulator gives the bits of all \d{3,5} sums that f computed\."
    assert re.fullmatch(told, reason)
    assert excluded[0].startswith("  excluded: sequential(FP32) gives ")
    assert len(excluded) == min(3, len(found.excluded))
    assert repr(found) == f"<Revealed {found}>"
    x, ones = np.array([256.0, 1.0]), np.ones(2)
    assert (found.dot(x, ones), sf.dot(x, ones, accumulate=found.accumulator)) == (256, 257)


def rounded(accumulator, output, rounding=sf.nearest_even):
    return lambda a, b: sf.dot(a, b, accumulate=accumulator, output=output, rounding=rounding)


FLUSHED_FP16 = sf.Format(5, 10, subnormals=False)
FLUSHED_BEFORE = sf.Format(5, 10, subnormals=False, tininess="before_rounding")

ROUNDED = [
    (sf.sequential(sf.FP32), sf.FP16, sf.toward_zero),
    (sf.sequential(sf.FP32), sf.BF16, sf.to_odd),
    (sf.sequential(sf.FP32), sf.E4M3, sf.nearest_even.saturating()),
    (sf.sequential(sf.FP32), sf.E5M2, sf.toward_zero.saturating()),
    (sf.sequential(sf.FP16), FLUSHED_FP16, None),
    (sf.sequential(FLUSHED_FP16), None, None),
    (sf.sequential(sf.FP32), FLUSHED_BEFORE, None),
    (sf.sequential(FLUSHED_BEFORE), None, None),
    (sf.kahan(sf.FP16), FLUSHED_FP16, None),
    (sf.pairwise(sf.FP32), sf.BF16, sf.toward_positive),
    (sf.blocked(3, sf.FP16, sf.FP32), sf.FP16, sf.toward_zero),
    (sf.exact, sf.FP16, sf.toward_zero),
]


@pytest.mark.parametrize(("accumulator", "output", "rounding"), ROUNDED, ids=str)
def test_how_results_are_rounded_is_found(accumulator, output, rounding):
    found = sf.reveal(rounded(accumulator, output, rounding), 5)
    assert (found.accumulator, found.output, found.rounding) == (accumulator, output, rounding), found
    if rounding is not None:
        assert f", rounded to {output} {rounding}\n" in str(found)
        assert f"With output {output} and rounding {rounding} the accumulator gives the bits" in found.reason
    x, ones = [1.0 + 2.0**-9, 2.0**-20], [1.0, 1.0]
    assert found.dot(x, ones) == rounded(accumulator, output, rounding)(x, ones)


def test_calls_are_counted_and_end():
    calls = []

    def f(a, b):
        calls.append(0)
        return sf.dot(a, b, accumulate=sf.FP16)

    assert sf.reveal(f, 4).accumulator == sf.sequential(sf.FP16)
    needed = len(calls)
    for most in (1, 20, 300, needed - 1):
        calls.clear()
        found = sf.reveal(f, 4, calls=most)
        assert found.accumulator is None and len(calls) == most
        assert f"f was called {most} times" in found.reason and "raise calls" in str(found)
    with pytest.raises(ValueError, match="calls, the maximum number of calls of f, must be a positive integer, got 0"):
        sf.reveal(f, 4, calls=0)


def test_a_loop_over_float32_arrays_is_told_that_numpy_computes_in_fp32():
    def loop(a, b):
        total = 0.0
        for x, y in zip(a, b, strict=True):
            total += x * y
        return total

    found = sf.reveal(loop, 2)
    assert found.accumulator == sf.sequential(sf.FP32, products=sf.FP32)
    assert "f received float32 arrays" in found.reason and "a.tolist()" in found.reason


def raises(a, b):
    raise TypeError("no such thing")


REFUSED = [
    (raises, "must take two float32 vectors of length 5; it raised TypeError: no such thing"),
    (lambda a, b: a * b, r"must return one number, as result\[0, 0\] .* got shape \(5,\)"),
    (divmod, r"got shape \(2, 5\)\. A result for each product is no sum: pass lambda a, b: \(a \* b\)\.sum\(\)"),
    (lambda a, b: math.fsum(a * b), "fsum. Some products overflow in float32: multiply Python floats, as in lambda"),
    (lambda a, b: "one", "must hold real numbers"),
    (lambda a, b: np.float32("nan"), "for the single product 1.0 \\* 1.0 at place 0 it returned nan"),
    (lambda a, b: a.sum(), "for the single product 1.0 \\* -2.0 at place 0 it returned 1.0"),
    (lambda a, b: np.random.default_rng().normal(), "must return the sum of the products"),
    (lambda a, b: np.dot(a, b) if np.count_nonzero(a) < 5 else np.float32("nan"), "NaN for finite operands"),
    (
        lambda a, b: a @ b + np.count_nonzero(a) // 5 * np.random.default_rng().random(),
        r"must be deterministic; .* simfloat\.reveal_rounding",
    ),
]


@pytest.mark.parametrize(("f", "message"), REFUSED)
def test_functions_that_are_no_sums_of_products_are_refused(f, message):
    with pytest.raises(ValueError, match=message):
        sf.reveal(f, 5)


@pytest.mark.parametrize("k", [1, 0, 2049, 2.0, True])
def test_other_lengths_are_refused(k):
    with pytest.raises(ValueError, match="must be an integer from 2 to 2048"):
        sf.reveal(np.dot, k)


def test_the_reason_asks_for_the_format_to_which_a_function_rounds_its_operands():
    def f(a, b):
        return sf.dot(a, b, inputs=sf.BF16, accumulate=sf.FP16)

    assert "If f rounds its operands, pass their format, such as inputs=" in sf.reveal(f, 4, inputs=sf.FP32).reason
    found = sf.reveal(f, 4, inputs=sf.BF16)
    assert found.accumulator == sf.sequential(sf.FP16) and "inputs=" not in found.reason


@pytest.mark.parametrize("inputs", [sf.E8M0, (sf.FP32, sf.Format(5, 2, signed=False)), sf.fixed(8)])
def test_operands_without_a_sign_are_refused(inputs):
    with pytest.raises(ValueError, match="formats with a sign"):
        sf.reveal(np.dot, 5, inputs=inputs)


def test_reveal_tries_operands_of_float16_for_a_function_that_returns_it(monkeypatch):
    monkeypatch.setattr(reveal, "FEW_CANDIDATES", 20)

    def f(a, b):
        return np.sum((a * b).astype(np.float16))

    found = sf.reveal(f, 4)
    assert found.inputs == (sf.FP16, sf.FP16) and found.output == sf.FP16
    assert_gives_bits(found, f, 4)
    assert "f returns float16. The search was repeated" in found.reason and "pass their format" not in found.reason


def test_reveal_finds_the_formats_to_which_a_function_rounds_its_operands():
    mixed = sf.reveal(lambda a, b: sf.dot(a, b, inputs=(sf.E4M3, sf.E5M2), accumulate=sf.FP16), 3)
    assert (mixed.accumulator, mixed.inputs) == (sf.sequential(sf.FP16), (sf.E4M3, sf.E5M2))
    assert "f rounds its operands to (E4M3, E5M2). The search was repeated" in mixed.reason
    wide = sf.reveal(lambda a, b: sf.dot(a, b, inputs=(sf.TF32, sf.FP16), accumulate=sf.FP32), 3)
    assert (wide.accumulator, wide.inputs) == (sf.sequential(sf.FP32), (sf.TF32, sf.FP16))
    with pytest.raises(ValueError, match=r"such as numpy.sum, pass lambda a, b: f\(a \* b\)"):
        sf.reveal(np.sum, 4)


def test_operands_with_a_bit_beyond_a_format_are_not_said_to_be_rounded_to_it():
    def reversed_sum(a, b):
        total = np.float16(0)
        for x, y in zip(a[::-1], b[::-1], strict=True):
            total = np.float16(float(total) + x * y)  # rounded to float32 first
        return total

    assert "rounds its operands to BF16" not in sf.reveal(reversed_sum, 5).reason


@pytest.mark.parametrize(("accumulator", "inputs", "output", "rounding"), [
    # Sums of E4M3 products reach 16 * 448^2, and single products 448^2.
    (sf.sequential(sf.fixed(39, 18, symmetric=False)), sf.E4M3, None, None),
    (sf.sequential(sf.fixed(40, 18)), sf.E4M3, None, None),
    (sf.sequential(sf.fixed(32, 12)), sf.E4M3, None, None),
    *((sf.sequential(sf.fixed(16, 4), mode), sf.E4M3, None, None) for mode in DETERMINISTIC),
    (sf.pairwise(sf.fixed(12, 2), sf.toward_negative), sf.E5M2, None, None),
    (sf.sequential(sf.fixed(32, 16), sf.to_odd, products=sf.fixed(32, 16)), sf.FP16, None, None),
    (sf.exact, sf.E4M3, sf.fixed(10, 2, symmetric=False), sf.nearest_away),
    (sf.sequential(sf.fixed(20, 3)), sf.FP32, None, None),
], ids=str)  # fmt: skip
def test_fixed_point_accumulators_that_saturate_are_found(accumulator, inputs, output, rounding):
    options = dict(inputs=inputs, accumulate=accumulator, output=output, rounding=rounding)
    ours = sf.reveal(lambda a, b: sf.dot(a, b, **options), 16, inputs=inputs)
    assert (ours.accumulator, ours.output, ours.rounding) == (accumulator, output, rounding), ours


def test_a_fixed_point_accumulator_whose_range_no_sum_leaves_is_found_with_the_narrowest_format():
    wide = sf.sequential(sf.fixed(40, 10), sf.toward_zero)
    ours = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=wide), 16, inputs=sf.E4M3)
    # 16 * 448^2 is below 2^22: 22 bits before the point, 10 after it, and a sign.
    assert ours.accumulator == sf.sequential(sf.fixed(33, 10), sf.toward_zero)


def test_another_accumulator_that_saturates_is_not_taken_for_an_exact_one():
    accumulator = sf.blocked(4, sf.sequential(sf.fixed(16, 4)), sf.fixed(20, 4))
    assert sf.reveal(lambda a, b: sf.dot(a, b, accumulate=accumulator), 16, inputs=sf.E4M3).accumulator is None
