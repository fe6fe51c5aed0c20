"""Bounds of theory are valid: for computed sums, by fractions; for random errors, by their whole distribution."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from tests.checks import assert_refused
from tests.plots.test_errors import drawn_bound

RANDOM = sf.stochastic()


def exact_sums(a, b):
    """The sum of products and the sum of their magnitudes."""
    products = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
    return sum(products), sum(map(abs, products))


ORDERS = [
    sf.sequential(sf.FP16), sf.sequential(sf.BF16, sf.toward_zero), sf.sequential(sf.BF16, products=sf.FP32),
    sf.sequential(sf.FP16, RANDOM), sf.sequential(sf.FP32, products=sf.BF16), sf.pairwise(sf.BF16),
    sf.numpy_sum(sf.FP16), sf.numpy_sum(sf.FP32, products=sf.FP16), sf.blocked(16, sf.BF16, sf.FP32),
    sf.blocked(16, sf.FP32, sf.BF16), sf.lanes(8, sf.FP16, sf.pairwise(sf.FP16)), sf.tree("0 + (1 + 2)", sf.BF16),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_no_sum_errs_by_more_than_its_bound(order, rng):
    stream = sf.BitStream(1)
    for n in (3,) if order.maker == "tree" else (1, 2, 7, 100):
        u = float(order.result.unit_roundoff)
        adverse = np.full(n, u), np.ones(n)  # every addition to the first number loses one of the others
        adverse[0][0] = 1.0
        for a, b in (adverse, rng.standard_normal((2, n)), rng.uniform(1, 2, (2, n))):
            a, b = sf.round(a, sf.BF16), sf.round(b, sf.BF16)
            total, size = exact_sums(a, b)
            computed = sf.dot(a, b, accumulate=order, stream=stream if order.stages else None)
            bound = sf.theory.error_bound(order, n)
            assert abs(Fraction(float(computed)) - total) <= Fraction(min(bound, 1e300)) * size


def test_the_bound_of_a_sum_is_nearly_reached():
    n, u = 100, sf.FP32.unit_roundoff
    x = [1.0] + [u] * (n - 1)
    total, size = exact_sums(x, np.ones(n))
    error = abs(Fraction(float(sf.sum(x, accumulate=sf.FP32))) - total) / size
    assert 0.9999 * sf.theory.error_bound(sf.FP32, n, products=False) < error


@pytest.mark.parametrize(
    "order, n, products, counts",
    [
        (sf.FP16, 100, True, {2.0**-11: 100}),
        (sf.FP16, 100, False, {2.0**-11: 99}),
        (sf.sequential(sf.BF16, RANDOM), 5, True, {2.0**-7: 5}),
        (sf.pairwise(sf.BF16), 1000, True, {2.0**-8: 11}),
        (sf.pairwise(sf.BF16), 1024, False, {2.0**-8: 10}),
        (sf.numpy_sum(sf.FP32), 128, False, {2.0**-24: 18}),  # 15 in a lane, 3 of lanes
        (sf.numpy_sum(sf.FP32), 7, False, {2.0**-24: 6}),
        (sf.blocked(10, sf.FP16, sf.FP16), 100, False, {2.0**-11: 18}),
        (sf.blocked(10, sf.BF16, sf.FP32), 100, True, {2.0**-8: 10, 2.0**-24: 9}),
        (sf.blocked(10, sf.FP32, sf.BF16), 100, False, {2.0**-24: 9, 2.0**-8: 10}),
        (sf.lanes(4, sf.FP32, sf.FP32), 10, False, {2.0**-24: 5}),
        (sf.tree("(0 + 1) + (2 + 3)", sf.FP16), 4, False, {2.0**-11: 2}),
        (sf.sequential(sf.FP32, products=sf.FP16), 8, True, {2.0**-24: 7, 2.0**-11: 1}),
    ],
    ids=str,
)
def test_roundings_of_a_term_are_counted(order, n, products, counts):
    assert sf.theory.count_roundings(order, n, products=products) == counts


def test_gamma_is_finite_below_one_over_u():
    for format, limit in ((sf.FP16, 2048), (sf.BF16, 256), (sf.E4M3, 16)):
        bounds = sf.theory.gamma([limit - 1, limit], format.unit_roundoff)
        assert bounds.tolist() == [limit - 1, math.inf]


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("u", [2.0**-3, 2.0**-8, 2.0**-11])
def test_random_errors_exceed_the_probable_bound_as_rarely_as_stated(u, independent):
    """Errors of u or -u with equal probability: every product of n factors, with its binomial probability."""
    for n in (1, 5, 40):
        shares = [Fraction(math.comb(n, k), 2**n) for k in range(n + 1)]
        thetas = [abs(Fraction(1 + u) ** k * Fraction(1 - u) ** (n - k) - 1) for k in range(n + 1)]
        for factor in (0.5, 1.2, 2.0, 3.0):
            bound = Fraction(float(sf.theory.probable_gamma(n, u, factor, independent)))
            beyond = sum(share for share, theta in zip(shares, thetas, strict=True) if theta > bound)
            least = sf.theory.confidence(factor * (1 - u) if independent else factor)
            assert 1 - beyond >= Fraction(least)
        variance = sum(share * theta**2 for share, theta in zip(shares, thetas, strict=True))
        assert float(variance) == pytest.approx(float(sf.theory.stochastic_variance(n, u)), rel=1e-12), "it is reached"


def outcomes(x, format, rounding=None):
    """Every result of a sum under stochastic rounding, by default without bias, with its probability."""
    now = {Fraction(0): Fraction(1)}
    for number in x:
        after = {}
        for partial, share in now.items():
            exact = partial + Fraction(float(number))
            for result, p in (unbiased if rounding is None else partial_roundings)(exact, format, rounding):
                after[result] = after.get(result, 0) + share * p
        now = after
    return now


def unbiased(exact, format, _):
    low, high = (Fraction(round_value(exact, format, mode)) for mode in (sf.toward_negative, sf.toward_positive))
    up = (exact - low) / (high - low) if high > low else Fraction(0)
    return (low, 1 - up), (high, up)


def partial_roundings(exact, format, rounding):
    """The results for all random bits, each with its probability."""
    count = 2**rounding.bits
    return [(Fraction(round_value(exact, format, rounding, random=r)), Fraction(1, count)) for r in range(count)]


@pytest.mark.parametrize("format", [sf.Format(5, 2), sf.Format(5, 4)], ids=str)
def test_sums_under_stochastic_rounding_are_within_their_variance_and_their_bounds(format, rng):
    u, n = sf.theory.roundoff(format, RANDOM), 12
    for x in (rng.standard_normal(n), rng.uniform(0.5, 1, n), np.full(n, 1.25)):
        x = sf.round(x, format)
        total, size = exact_sums(x, np.ones(n))
        results = outcomes(x, format)
        assert sum(results.values()) == 1
        assert sum(share * result for result, share in results.items()) == total, "the mean is exact"
        variance = sum(share * (result - total) ** 2 for result, share in results.items())
        assert 0 < variance <= size**2 * Fraction(float(sf.theory.stochastic_variance(n - 1, u)))
        for failure in (0.5, 0.05, 1e-3, 1e-6):
            factor = sf.theory.confidence_factor(1 - failure, terms=n)
            for bound in (
                sf.theory.chebyshev_bound(n - 1, u, failure),
                sf.theory.azuma_bound(n - 1, u, failure),
                sf.theory.probable_gamma(n - 1, u, factor),
            ):
                limit = size * Fraction(float(bound))
                beyond = sum(share for result, share in results.items() if abs(result - total) > limit)
                assert beyond <= failure


@pytest.mark.parametrize("variant", "ABC")
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_few_random_bits_have_a_bias_which_the_bounds_contain(bits, variant, rng):
    format, rounding, n = sf.Format(5, 3), sf.stochastic(bits, variant), 8
    u, bias = sf.theory.roundoff(format, rounding), Fraction(sf.theory.bias(format, rounding))
    largest = Fraction(0)
    for exact in (Fraction(k, 2**12) for k in range(2**12, 2**13)):
        mean = sum(share * result for result, share in partial_roundings(exact, format, rounding))
        largest = max(largest, abs(mean - exact) / exact)
    assert bias * Fraction(9, 10) < largest <= bias, "the bound is nearly reached"
    stagnating = np.r_[1.0, np.full(n - 1, u / 2 ** (bits + 2))]  # every addend is lost
    for x in (rng.standard_normal(n), rng.uniform(0.5, 1, n), stagnating):
        x = sf.round(x, format)
        total, size = exact_sums(x, np.ones(n))
        results = outcomes(x, format, rounding)
        for failure in (0.5, 0.05, 1e-3):
            factor = sf.theory.confidence_factor(1 - failure, terms=n)
            for bound in (
                sf.theory.chebyshev_bound(n - 1, u, failure, bias=float(bias)),
                sf.theory.azuma_bound(n - 1, u, failure, bias=float(bias)),
                sf.theory.probable_gamma(n - 1, u, factor, bias=float(bias)),
                sf.theory.probable_error_bound(sf.sequential(format, rounding), n, factor=factor, products=False),
            ):
                limit = size * Fraction(float(bound))
                assert sum(share for result, share in results.items() if abs(result - total) > limit) <= failure


def test_a_bound_contains_the_addends_that_a_long_sum_with_few_random_bits_loses():
    x, factor = np.full(100_000, 2.0**-28), sf.theory.confidence_factor(0.999, 10**5)
    x[0] = 1
    for variant in "ABC":
        order = sf.sequential(sf.FP32, sf.stochastic(4, variant))
        error = abs(float(sf.sum(x, accumulate=order, stream=sf.BitStream(0))) - x.sum()) / x.sum()
        without = float(sf.theory.probable_gamma(10**5, sf.theory.roundoff(sf.FP32, order.rounding), factor))
        assert without < error < sf.theory.probable_error_bound(order, 10**5, factor=factor)


def test_azumas_bound_is_smaller_than_chebyshevs_for_rare_failures():
    u = sf.theory.roundoff(sf.FP16, RANDOM)
    shares = [0.5, 1e-2, 1e-4, 1e-8]
    ratios = [sf.theory.azuma_bound(1000, u, share) / sf.theory.chebyshev_bound(1000, u, share) for share in shares]
    assert ratios[0] > 1 > ratios[-1] and all(after < before for before, after in pairwise(ratios))


def test_a_bias_is_of_a_stochastic_mode_and_below_the_largest_error():
    assert_refused(
        (lambda: sf.theory.bias(sf.FP16, sf.nearest_even), "Only stochastic rounding has a bias; nearest_even makes"),
        (
            lambda: sf.theory.probable_gamma(9, 0.25, bias=0.25),
            "bias must be a number from 0 to below u = 0.25, .*0.25",
        ),
        (lambda: sf.theory.azuma_bound(9, 0.25, bias=-1.0), "bias must be a number from 0"),
        (lambda: sf.theory.chebyshev_bound(9, 0.25, bias=True), "bias must be a number from 0"),
    )


def test_the_factor_of_a_probability_gives_this_probability():
    for probability in (0.0, 0.5, 0.99):
        for terms in (1, 1000):
            factor = sf.theory.confidence_factor(probability, terms)
            assert sf.theory.confidence(factor, terms) == pytest.approx(probability, abs=1e-12)
    assert sf.theory.confidence(0.1) == 0.0


def test_condition_numbers_are_quotients_of_exact_sums(rng):
    A, x = rng.standard_normal((5, 40)) * 10.0 ** rng.integers(-8, 8, (5, 40)), rng.standard_normal(40)
    for row, condition in zip(A, sf.theory.matvec_condition(A, x), strict=True):
        total, size = exact_sums(row, x)
        assert condition == pytest.approx(float(size / abs(total)), rel=1e-15)
        assert sf.theory.dot_condition(row, x) == condition
    assert sf.theory.sum_condition([2.0**60, 1.0, -(2.0**60)]) == 2.0**61
    assert sf.theory.sum_condition([1.0, -1.0]) == math.inf and math.isnan(sf.theory.sum_condition([0.0]))


def wilkinson_matrix(n):
    """Wilkinson's matrix, in which partial pivoting lets the last column double in every step."""
    A = np.tril(-np.ones((n, n)), -1) + np.eye(n)
    A[:, -1] = 1
    return A


def test_the_growth_factor_has_every_step_of_the_elimination(rng):
    for n in (1, 2, 8):
        assert sf.theory.growth_factor(
            wilkinson_matrix(n), sf.linalg.lu(wilkinson_matrix(n), format=sf.FP16)
        ) == 2.0 ** (n - 1)
    A = sf.round(rng.standard_normal((6, 6)), sf.FP16)
    factors = sf.linalg.lu(A, format=sf.FP64)
    rest = [[Fraction(float(v)) for v in A[row]] for row in factors.permutation]
    largest = first = max(abs(v) for row in rest for v in row)
    for k in range(5):
        for i in range(k + 1, 6):
            quotient = rest[i][k] / rest[k][k]
            rest[i] = [v - quotient * p for v, p in zip(rest[i], rest[k], strict=True)]
        largest = max(largest, *(abs(v) for row in rest[k + 1 :] for v in row[k + 1 :]))
    assert sf.theory.growth_factor(A, factors) == pytest.approx(float(largest / first), rel=1e-12)
    hidden = [[1.0, 1.0, 1.0], [1.0, 1.0, 9.0], [1.0, 2.0, 1.0]]
    hidden_factors = (
        np.arange(3),
        np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
        np.array([[1, 1, 1], [0, 1, 0], [0, 0, 8]]),
    )
    assert sf.theory.growth_factor(hidden, hidden_factors) == 1.0


@pytest.mark.parametrize("matrix", ["random", "worst"])
def test_the_backward_error_of_a_solved_system_is_within_its_bound(matrix, rng):
    n, format = 12, sf.FP16
    A = wilkinson_matrix(n) if matrix == "worst" else sf.round(rng.standard_normal((n, n)), format)
    b = sf.round(rng.standard_normal(n), format)
    x = np.asarray(sf.linalg.solve(A, b, format=format))
    growth = sf.theory.growth_factor(A, sf.linalg.lu(A, format=format))
    residual = np.abs(b - A @ x).max() / (np.abs(A).sum(1).max() * np.abs(x).max())
    assert residual <= sf.theory.elimination_bound(n, format.unit_roundoff, growth)


@pytest.mark.parametrize("order", [sf.FP16, sf.kahan(sf.BF16), sf.sequential(sf.BF16, RANDOM)], ids=str)
def test_measured_errors_are_those_of_the_sums(order):
    errors = sf.theory.measure_errors(order, [1, 20], samples=3, seed=4)
    format = sf.BF16 if order is not sf.FP16 else sf.FP16
    rng, stream = np.random.default_rng(4), sf.BitStream(4)
    for column, n in enumerate((1, 20)):
        a, b = (sf.round(x, format) for x in sf.theory.uniform_operands(3, n, rng))
        for row in range(3):
            total, size = exact_sums(a[row], b[row])
            computed = sf.dot(a[row], b[row], accumulate=order, stream=stream)
            assert errors[row, column] == pytest.approx(float(abs(Fraction(float(computed)) - total) / size), rel=1e-12)


def test_a_bound_is_drawn_with_measured_errors():
    axes, errors = drawn_bound(sf.pairwise(sf.BF16), lengths=(10, 100, 3000), samples=4)
    measured, bound, probable = axes.lines
    assert errors.shape == (4, 3) and measured.get_ydata().tolist() == pytest.approx(errors.mean(0).tolist())
    assert bound.get_ydata().tolist() == [sf.theory.error_bound(sf.pairwise(sf.BF16), n) for n in (10, 100, 3000)]
    assert (probable.get_ydata() < bound.get_ydata()).all() and (errors.max(0) < bound.get_ydata()).all()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["pairwise(BF16)", "bound", "probable bound"]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sf.theory.gamma([-1], 0.5), "Lengths must be zero or more"),
        (lambda: sf.theory.gamma(1, sf.FP16), "unit_roundoff must be a number between 0 and 1, such as"),
        (lambda: sf.theory.probable_gamma(1, 0.5, factor=0), "factor must be a positive number, got 0"),
        (lambda: sf.theory.confidence(4.0, terms=0), "terms must be an integer of at least 1"),
        (lambda: sf.theory.confidence_factor(1.0), "probability must be a number from 0 to below 1, got 1.0"),
        (lambda: sf.theory.azuma_bound(1, 0.5, failure=0), "failure must be a number above 0 and at most 1, got 0"),
        (lambda: sf.theory.chebyshev_bound(1, 0.5, failure=2.0), "failure must be a number above 0 and at most 1"),
        (
            lambda: sf.theory.count_roundings(sf.kahan(sf.FP16), 5),
            r"error of kahan\(FP16\) is not a product of factors",
        ),
        (lambda: sf.theory.count_roundings(sf.exact, 5), "error of exact is not a product of factors"),
        (lambda: sf.theory.roundoff(sf.fixed(16, 8)), r"the error of one rounding is at most 2\^-9. Use"),
        (lambda: sf.theory.error_bound(sf.fixed(16, 8), 9), r"Errors in fixed\(16, 8\) have no relative bound"),
        (lambda: sf.theory.count_roundings(sf.FP16, 0), "n must be an integer of at least 1"),
        (lambda: sf.theory.sum_condition([[1.0]]), r"x must be a vector, got shape \(1, 1\)"),
        (
            lambda: sf.theory.matvec_condition(np.ones((2, 3)), [1, 2]),
            r"A must be a matrix with 2 columns, one for each element of x",
        ),
        (lambda: sf.theory.dot_condition([np.inf], [1.0]), "those of finite numbers, got infinity"),
        (lambda: sf.theory.growth_factor(np.eye(2), 3), "factors must be a triple"),
        (lambda: sf.theory.growth_factor(np.zeros((2, 2)), ()), "A must be a matrix that is not zero"),
        (lambda: sf.theory.growth_factor(np.eye(2), ([0, 1], np.eye(3), np.eye(3))), "The factors have shapes"),
        (lambda: sf.theory.elimination_bound(2, 0.1, growth=-1), "growth must be a positive number, got -1"),
        (lambda: sf.theory.growth_factor(np.eye(2), (1, 2)), "as simfloat.linalg.lu returns it, got a tuple"),
        (lambda: sf.theory.dot_condition([1.0], [1.0, 2.0]), "vectors of equal length, got lengths 1 and 2"),
        (lambda: sf.theory.probable_gamma(1, 0.5, independent="no"), "independent must be True or False, got 'no'"),
        (lambda: sf.theory.measure_errors(sf.FP16, 10), r"lengths must be a sequence .* such as \[10, 1000\]; got 10"),
        (
            lambda: sf.theory.measure_errors(sf.FP16, [4], data="normal"),
            r"data must be a function data\(samples, n, rng",
        ),
        (lambda: sf.theory.measure_errors(sf.exact, [1]), "accumulate must have a format"),
        (lambda: sf.theory.measure_errors(sf.FP16, [0]), "A length must be an integer of at least 1"),
    ],
)
def test_arguments_of_theory_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_condition_numbers_of_large_numbers_stay_in_range():
    assert sf.theory.sum_condition([1e308, 1e308]) == sf.theory.dot_condition([1e200, 1.0], [1e200, 1.0]) == 1.0
    assert sf.theory.dot_condition([1e200, 1e-200], [1e-200, 1e200]) == 1.0
    assert sf.theory.dot_condition([1e200, 1e-200, 1e200], [1e200, 1e-200, -1e200]) == np.inf
    rows = sf.theory.matvec_condition([[1e308, 1e308], [1.0, -3.0]], [1.0, 1.0])
    assert rows.tolist() == [1.0, 2.0]
    assert np.isnan(sf.theory.sum_condition([0.0, 0.0]))
