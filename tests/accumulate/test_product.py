"""Products: shapes, dtypes, casts of operands, rounding of results, layouts and threads."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import threads
from tests.bits import assert_bits, equal_bits
from tests.checks import assert_refused, with_threads

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((0, 4), (4, 5)), ((3, 0), (0, 5)),
    ((2, 3, 0), (0, 5)), ((0, 3, 4), (4, 5)), ((70, 4), (4, 3)), ((3, 4), (4, 70)), ((1, 1), (1, 1)),
]  # fmt: skip


def test_shapes_are_numpys(rng):
    for (left, right), rounding in itertools.product(SHAPES, (sf.nearest_even, sf.stochastic())):
        a, b = rng.integers(-4, 5, left).astype(np.float32), rng.integers(-4, 5, right).astype(np.float32)
        got = sf.matmul(a, b, accumulate=sf.sequential(sf.FP16, rounding=rounding), stream=sf.BitStream(0))
        want = np.matmul(a, b)
        assert got.shape == want.shape and got.dtype == np.float32 and (got == want).all()


def test_rows_of_a_batch_and_threads_give_the_same_bits(rng, monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    a, b = sf.round(rng.standard_normal((6, 50, 40)), sf.BF16), sf.round(rng.standard_normal((40, 90)), sf.BF16)
    layouts = (a, b), (a, np.broadcast_to(b, (6, 40, 90))), (np.asfortranarray(a), b[:, ::-1][:, ::-1])
    for accumulate in (sf.FP16, sf.sequential(sf.BF16, rounding=sf.stochastic())):
        want = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(7))
        for _, (x, y) in itertools.product(with_threads(1, 2, 5), layouts):
            assert_bits(sf.matmul(x, y, accumulate=accumulate, stream=sf.BitStream(7)), want)


def test_a_result_does_not_change_while_others_are_computed(rng):
    """Memory for sums is used again."""

    def product(pair):
        return sf.matmul(*pair, accumulate=sf.FP16, output=sf.FP32)

    for *rows, k, n in ((4, 2, 4), (130, 2, 140), (200, 2, 100), (3, 100, 2, 60)):
        pairs = [(rng.integers(-4, 5, (*rows, k)), rng.integers(-4, 5, (k, n))) for _ in range(4)]
        with ThreadPoolExecutor(2) as pool:
            results = [product(pair) for pair in pairs] + list(pool.map(product, pairs * 2))
        for (a, b), result in zip(pairs * 3, results, strict=True):
            assert (result == np.matmul(a, b)).all()
            assert result.flags.writeable and result.flags.c_contiguous


def test_a_narrow_product_numbers_its_elements_like_a_wide_one(rng, monkeypatch):
    monkeypatch.setattr(threads, "LEAST_WORK", 1)
    # Few columns are computed transposed; the bits of an element must not notice.
    a, b = sf.round(rng.standard_normal((200, 30)), sf.FP16), sf.round(rng.standard_normal((30, 3)), sf.FP16)
    accumulate = sf.sequential(sf.FP16, rounding=sf.stochastic())
    narrow = sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(2))
    alone = sf.dot(a[0], b[:, 0], accumulate=accumulate, stream=sf.BitStream(2))
    assert narrow[0, 0] == alone, "element 0 draws the same bits in any shape"
    for _ in with_threads(3):
        assert_bits(sf.matmul(a, b, accumulate=accumulate, stream=sf.BitStream(2)), narrow)


def test_operands_are_rounded_to_inputs_and_results_to_output(rng):
    a, b = rng.standard_normal((5, 30)) * 300, rng.standard_normal((30, 4)) * 300
    options, clamped = dict(accumulate=sf.FP32, output=sf.BF16, rounding=sf.toward_zero), sf.nearest_even.saturating()
    for inputs, mode in (((sf.E4M3, sf.E5M2), sf.nearest_even), ((sf.cast(sf.E4M3, clamped), sf.E5M2), clamped)):
        sums = sf.matmul(sf.round(a, sf.E4M3, mode), sf.round(b, sf.E5M2), accumulate=sf.FP32)
        got = sf.matmul(a, b, inputs=inputs, **options)
        assert_bits(got, sf.round(sums, sf.BF16, sf.toward_zero))
        assert got.dtype == np.float64
    half = sf.matmul(a, b, inputs=sf.FP16, accumulate=sf.FP32)
    for inputs in ("fp16", sf.cast(sf.FP16)):
        assert_bits(sf.matmul(a, b, inputs=inputs, accumulate="fp32"), half)
    assert sf.matmul(np.float32(a), np.float32(b), inputs="fp16", accumulate="fp32", output=sf.FP64).dtype == np.float64
    assert sf.matmul([[1e6]], [[1.0]], inputs=sf.FP16, accumulate=sf.FP32) == np.inf, "operands do not saturate"


def test_a_stochastic_call_takes_one_number():
    stream = sf.BitStream(0)
    x = np.linspace(0, 1, 50)
    sf.dot(x, x, inputs=sf.FP16, accumulate=sf.FP16, stream=stream)
    assert stream.calls == 0
    sf.dot(x, x, inputs=sf.FP16, accumulate=sf.FP32, output=sf.BF16, rounding=sf.stochastic(), stream=stream)
    assert stream.calls == 1
    random = sf.sequential(sf.FP16, rounding=sf.stochastic())
    sf.dot(x, x, inputs=sf.FP16, accumulate=random, output=sf.BF16, rounding=sf.stochastic(), stream=stream)
    assert stream.calls == 2


def test_dot_and_sum_are_products(rng):
    x, y = sf.round(rng.standard_normal((2, 300)), sf.FP16)
    assert sf.dot(x, y, accumulate=sf.FP16) == sf.matmul(x, y, accumulate=sf.FP16)
    cube = sf.round(rng.standard_normal((4, 5, 6)), sf.FP16)
    assert_bits(sf.sum(cube, accumulate=sf.FP16), sf.dot(cube.ravel(), np.ones(120), accumulate=sf.FP16))
    assert_bits(sf.sum(np.asfortranarray(cube), accumulate=sf.FP16), sf.sum(cube, accumulate=sf.FP16))
    for axis in range(-3, 3):
        got = sf.sum(cube, axis, accumulate=sf.BF16)
        want = np.apply_along_axis(lambda v: sf.dot(v, np.ones(v.size), accumulate=sf.BF16), axis, cube)
        assert_bits(got, want)


def test_a_format_to_accumulate_in_may_be_named_by_a_dtype(rng):
    a, b = (sf.round(x, sf.FP16) for x in rng.standard_normal((2, 5, 5)))
    for name in ("FP16", "half", np.float16, np.dtype(np.float16)):
        assert equal_bits(sf.matmul(a, b, accumulate=name), sf.matmul(a, b, accumulate=sf.FP16)).all()


def test_bad_input_is_refused():
    x, drawing = np.ones((2, 3)), sf.sequential(sf.FP16, rounding=sf.stochastic())
    assert_refused(
        (lambda: sf.matmul(x, x, accumulate=sf.FP32), r"got shapes \(2, 3\) and \(2, 3\)"),
        (lambda: sf.matmul(1.0, x, accumulate=sf.FP32), r"got shapes \(\) and \(2, 3\)"),
        (lambda: sf.matmul(np.ones((3, 2, 3)), np.ones((2, 3, 3)), accumulate=sf.FP32), "leading axes of shapes"),
        (lambda: sf.dot(x, x, accumulate=sf.FP32), "takes two vectors of equal length, .*; matmul takes matrices"),
        (lambda: sf.sum(x, accumulate="kahan(BF16)"), "Unknown format 'kahan.* Other accumulators are values, such as"),
        (lambda: sf.dot(x[0], x[0, :2], accumulate=sf.FP32), r"shapes \(3,\) and \(2,\)"),
        (lambda: sf.sum(x, 2, accumulate=sf.FP32), "axis must be None or an integer from -2 to 1, got 2"),
        (lambda: sf.sum(x[0], True, accumulate=sf.FP16), "axis must be None or an integer from -1 to 0, got True"),
        (lambda: sf.sum(3.0, 0, accumulate=sf.FP16), "axis must be None: a single number has no axes, got 0"),
        (lambda: sf.sum(x, accumulate=3), "accumulate must be a simfloat accumulator or a format, got 3 of type int"),
        (lambda: sf.sum(x, accumulate="fp17"), "Unknown format 'fp17'"),
        (lambda: sf.sum(x, accumulate=sf.FP32, output=sf.FP16, rounding=sf.stochastic()), "pass stream="),
        (lambda: sf.sum(x, accumulate=drawing), "pass stream="),
        (lambda: sf.matmul(x, x.T, inputs=(sf.FP16,) * 3, accumulate=sf.FP32), "for a and b; got 3"),
    )


def test_all_nan_are_the_positive_quiet_one():
    # The NaN of inf - inf is negative on some machines.
    inf = np.inf
    for accumulate, x in itertools.product(
        (sf.FP16, sf.FP32, sf.FP64, sf.pairwise(sf.FP16), sf.kahan(sf.FP32), sf.tensor_core("hopper", sf.FP16),
         sf.matrix_core("cdna2", sf.FP16), sf.matrix_core("cdna3", sf.FP16), sf.exact),
        (np.float32([inf, -inf]), np.array([inf, -inf]), np.array([-np.nan, 1.0])),
    ):  # fmt: skip
        result = sf.dot(x, np.ones_like(x), accumulate=accumulate, output=sf.FP64)
        assert np.isnan(result) and not np.signbit(result)
        tall = sf.matmul(np.tile(x, (5, 1)), np.ones((2, 20), x.dtype), accumulate=accumulate, output=sf.FP64)
        assert np.isnan(tall).all() and not np.signbit(tall).any()


def test_a_transposed_right_operand_has_the_bits_of_its_copy(rng):
    # The shapes are those of a linear layer, for which the transposed product is computed.
    a, b = np.float32(rng.standard_normal((40, 96))), np.float32(rng.standard_normal((300, 96)))
    b.reshape(-1)[:6] = np.inf, -np.inf, -0.0, np.nan, -np.nan, 1e-40
    saturating = sf.cast(sf.E5M2, sf.nearest_even.saturating())
    casts = (sf.FP32, None), (sf.BF16, sf.BF16), (sf.E5M2, saturating), (sf.FP32, sf.FP16)
    orders, modes = (sf.FP32, sf.FP16, sf.pairwise(sf.FP32)), (sf.nearest_even, sf.stochastic())
    for (format, inputs), accumulate, rounding in itertools.product(casts, orders, modes):
        w = np.float32(sf.round(b, format))
        options = {"inputs": inputs, "accumulate": accumulate, "output": sf.E4M3, "rounding": rounding}
        want = sf.matmul(a, w.T.copy(), stream=sf.BitStream(1), **options)
        assert_bits(sf.matmul(a, w.T, stream=sf.BitStream(1), **options), want)


def test_stochastic_casts_of_both_operands_draw_bits_of_their_own(rng):
    x = np.full((40, 50), 1.0 + 2.0**-11)
    cast = sf.cast(sf.FP16, sf.stochastic())
    stream = sf.BitStream(1)
    got = sf.matmul(x, np.eye(50), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=stream)
    assert stream.calls == 1
    other = sf.matmul(np.eye(40), x, inputs=(sf.FP16, cast), accumulate=sf.FP32, stream=sf.BitStream(1))
    assert set(np.unique(got)) == set(np.unique(other)) == {1.0, 1.0 + 2.0**-10}
    assert (got != other).mean() > 0.4
    again = sf.matmul(x, np.eye(50), inputs=(cast, sf.FP16), accumulate=sf.FP32, stream=sf.BitStream(1))
    assert_bits(got, again)
    with pytest.raises(ValueError, match="pass stream="):
        sf.matmul(x, np.eye(50), inputs=cast, accumulate=sf.FP32)


def test_the_losses_of_operands_are_observed():
    """Casts that change nothing are counted, too; the ones that a sum multiplies by are nobody's operand."""
    a, b, x = np.array([[1000.0, 1.0]]), np.array([[1e-4], [1.0]]), np.ones((3, 4), np.float32)
    for call, counts in (
        (lambda observer: sf.matmul(a, b, inputs=sf.E2M3, accumulate=sf.FP32, observer=observer), (5, 1, 1)),
        (lambda observer: sf.matmul(a, b, accumulate=sf.FP32, observer=observer), (1, 0, 0)),
        (lambda observer: sf.matmul(x, x.T, inputs=sf.FP32, accumulate=sf.FP32, observer=observer), (24 + 9, 0, 0)),
        (lambda observer: sf.sum(x, accumulate=sf.FP32, inputs=sf.FP16, observer=observer), (12 + 1, 0, 0)),
    ):
        call(recorder := sf.Recorder())
        assert tuple(recorder.counts()[name] for name in ("total", "overflow", "underflow")) == counts


def test_a_value_that_a_cast_clamps_is_summed_as_the_largest_number():
    clamped = sf.nearest_even.saturating()
    for x in (np.float32([np.inf]), np.array([np.inf])):
        assert sf.dot(x, np.ones_like(x), inputs=sf.cast(sf.FP32, clamped), accumulate=sf.FP32) == sf.FP32.max
    # 4 = 2^2 becomes 2^-969 (2 - 2^-10), far below what was asked for, or infinite: a carrier must hold either.
    format = sf.Format(5, 10, bias=1000, special="p3109_finite")
    orders = sf.sequential(sf.FP16, sf.to_odd), sf.pairwise(sf.FP16, rounding=sf.to_odd), sf.exact
    modes = sf.toward_zero, sf.to_odd, sf.toward_negative, sf.toward_positive, clamped
    for mode, accumulate in product(modes, orders):
        x = sf.round([4.0, -4.0, 4.0], format, mode)
        want = sf.dot(x, [1.0, 0.5, 3.0], accumulate=accumulate, output=sf.FP32)
        assert want == (2.0**-24 if accumulate != sf.exact else 0.0)
        got = sf.dot([4.0, -4.0, 4.0], [1.0, 0.5, 3.0], inputs=(sf.cast(format, mode), sf.FP16),
                     accumulate=accumulate, output=sf.FP32)  # fmt: skip
        assert_bits(got, want)


def test_negative_operands_are_nan_in_a_format_without_a_sign():
    unsigned = sf.Format(5, 2, signed=False)
    for accumulate in (sf.FP32, sf.exact, sf.tensor_core("hopper", sf.E5M2), sf.matrix_core("cdna3", sf.FP16)):
        got = sf.dot([-1.0, 2.0], [1.0, 1.0], inputs=(unsigned, sf.FP16), accumulate=accumulate, output=sf.BF16)
        assert np.isnan(got), accumulate
