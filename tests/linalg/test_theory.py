"""Backward errors are below Wilkinson's bounds, and refinement converges as Carson and Higham state.

Errors are measured in float64, which adds rounding errors of at most a thousandth of the bounds.
"""

import numpy as np
import pytest

import simfloat as sf

FORMATS = [(sf.BF16, 60), (sf.FP16, 150), (sf.FP32, 200)]


def gamma(n, format):
    """n u / (1 - n u)."""
    return n * format.unit_roundoff / (1 - n * format.unit_roundoff)


@pytest.mark.parametrize("format, n", FORMATS, ids=str)
def test_a_computed_solution_solves_a_near_system(format, n, rng):
    """Higham, Accuracy and Stability, theorems 8.5, 9.3, 9.4 and 10.3, element by element."""
    a, b = sf.round(rng.standard_normal((n, n)), format), sf.round(rng.standard_normal(n), format)
    p, lower, upper = sf.linalg.lu(a, format=format)
    lower, upper = np.asarray(lower), np.asarray(upper)
    assert (np.abs(lower @ upper - a[p]) <= gamma(n, format) * (np.abs(lower) @ np.abs(upper))).all()
    y = np.asarray(sf.linalg.solve_triangular(lower, b, lower=True, format=format))
    assert (np.abs(lower @ y - b) <= gamma(n, format) * (np.abs(lower) @ np.abs(y))).all()
    if 3 * n * format.unit_roundoff < 1:
        x = np.asarray(sf.linalg.solve(a, b, format=format))
        assert (np.abs(a @ x - b)[p] <= gamma(3 * n, format) * (np.abs(lower) @ np.abs(upper) @ np.abs(x))).all()
    s = sf.round(a @ a.T + n * np.eye(n), format)
    c = np.asarray(sf.linalg.cholesky(s, format=format))
    assert (np.abs(c @ c.T - s) <= gamma(n + 1, format) * (np.abs(c) @ np.abs(c.T))).all()


def test_wider_sums_make_the_bound_independent_of_the_order(rng):
    """Sums in FP32 leave two roundings to BF16 for every element: Blanchard et al., SISC 42(3), 2020."""
    n = 200
    a = sf.round(rng.standard_normal((n, n)), sf.BF16)
    p, lower, upper = map(np.asarray, sf.linalg.lu(a, format=sf.BF16, accumulate=sf.FP32))
    bound = 2 * sf.BF16.unit_roundoff + gamma(n, sf.FP32)
    assert (np.abs(lower @ upper - a[p]) <= bound * (1 + bound) * (np.abs(lower) @ np.abs(upper))).all()


def test_householders_factors_are_orthogonal_and_near(rng):
    """Higham, theorem 19.4: the errors of columns are below m n u, up to a small constant."""
    m, n = 60, 40
    a = sf.round(rng.standard_normal((m, n)), sf.FP32)
    q, r = map(np.asarray, sf.linalg.qr(a, format=sf.FP32))
    bound = n * gamma(10 * m, sf.FP32)
    assert np.linalg.norm(q.T @ q - np.eye(n)) <= bound
    assert np.linalg.norm(q @ r - a) <= bound * np.linalg.norm(a)


@pytest.mark.parametrize("n", [10, 20])
def test_squares_of_columns_that_are_subnormal_cost_orthogonality_unless_the_matrix_is_scaled(n, rng):
    a = with_condition(n, 1e4, rng)
    losses = []
    for scale in (1 / 4, 64):
        q = np.asarray(sf.linalg.qr(scale * a, format=sf.FP16).q).astype(np.float64)
        losses.append(np.abs(q.T @ q - np.eye(n)).max())
    assert losses[0] > 50 * sf.FP16.unit_roundoff and losses[1] < 10 * sf.FP16.unit_roundoff


def with_condition(n, kappa, rng):
    """A matrix of norm 1 with geometrically spaced singular values."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left * kappa ** -(np.arange(n) / (n - 1)) @ right


@pytest.mark.parametrize(
    "factor, work, residual, kappa",
    [(sf.FP16, sf.FP32, sf.FP64, 1e2),
     (sf.BF16, sf.FP32, sf.FP64, 1e1),
     (sf.FP16, sf.FP64, sf.exact, 1e2),
     (sf.FP32, sf.FP64, sf.exact, 1e5)],
)  # fmt: skip
def test_refinement_converges_to_working_accuracy_where_condition_times_roundoff_is_below_one(
    factor, work, residual, kappa, rng
):
    """Carson and Higham, SISC 40(2), 2018, table 7.1: with residuals of twice the digits x itself is accurate."""
    n = 50
    a, x = with_condition(n, kappa, rng), rng.standard_normal(n)
    found = sf.linalg.solve(a, a @ x, factor=factor, work=work, residual=residual)
    assert found.converged and found.forward_errors[-1] <= 4 * work.unit_roundoff
    assert found.backward_errors[-1] <= np.sqrt(n) * work.unit_roundoff
    before, after = found.corrections[1:3]
    assert after < before < kappa * n * factor.unit_roundoff, "corrections shrink by the product of both"


def test_residuals_in_the_working_format_make_the_backward_error_small_alone(rng):
    a, x = with_condition(50, 1e2, rng), rng.standard_normal(50)
    accurate = sf.linalg.solve(a, a @ x, factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
    fixed = sf.linalg.solve(a, a @ x, factor=sf.FP16, work=sf.FP32)
    assert fixed.converged and fixed.backward_errors[-1] <= np.sqrt(50) * sf.FP32.unit_roundoff
    assert fixed.forward_errors[-1] > 4 * accurate.forward_errors[-1]


def test_a_refinement_that_converged_advises_nothing(rng):
    for residual in (sf.FP32, sf.FP64, sf.exact):
        for a in (with_condition(50, 1e3, rng) for _ in range(4)):
            found = sf.linalg.solve(a, a.sum(1), factor=sf.FP16, work=sf.FP32, residual=residual)
            assert found.converged and found.reason.endswith(f"within the tolerance of {found.reason[-8:-1]}.")


@pytest.mark.parametrize("factor, kappa", [(sf.FP16, 1e6), (sf.BF16, 1e5)])
def test_refinement_says_that_the_factors_are_too_rough(factor, kappa, rng):
    a, x = with_condition(50, kappa, rng), rng.standard_normal(50)
    found = sf.linalg.solve(a, a @ x, factor=factor, work=sf.FP32, residual=sf.FP64)
    assert not found.converged and "With factor=FP32 it converges." in found.reason
    assert sf.linalg.solve(a, a @ x, factor=sf.FP32, work=sf.FP32, residual=sf.FP64).converged
    wider = sf.linalg.solve(a, a @ x, factor=sf.FP32, work=sf.FP64, residual=sf.exact)
    assert wider.converged and wider.forward_errors[-1] < 1e-15


def test_conjugate_gradients_converge_and_tell_the_true_residual(rng):
    half = rng.standard_normal((40, 40))
    a, b = half @ half.T + 10 * np.eye(40), rng.standard_normal(40)
    found = sf.linalg.cg(a, b, format=sf.FP32)
    assert found.converged and found.residuals[-1] <= sf.FP32.eps
    rounded = sf.round(b, sf.FP32) - sf.round(a, sf.FP32) @ np.asarray(found.x)
    assert found.true_residuals[-1] == pytest.approx(np.linalg.norm(rounded) / np.linalg.norm(sf.round(b, sf.FP32)))
    assert found.true_residuals[-1] < 1e-5


def test_a_format_for_the_sums_means_to_nearest_in_a_directed_mode_too():
    """The last solution is 1 + 2^-13 + 2^-28 exactly; FP32 has no such number."""
    T, b, below = [[1.0, 0, 0], [0, 1.0, 0], [-(2.0**-13), -(2.0**-24), 1.0]], [1.0, 2.0**-4, 1.0], 1 + 2.0**-13
    for solve, how in ((sf.linalg.solve_triangular, {"lower": True}), (sf.linalg.solve, {})):
        how |= {"format": sf.FP32, "rounding": sf.toward_positive}
        for accumulate, last in (
            (None, below + 2.0**-23), (sf.FP32, below), (sf.sequential(sf.FP32, sf.toward_positive), below + 2.0**-23),
        ):  # fmt: skip
            assert float(solve(T, b, accumulate=accumulate, **how)[2]) == last
