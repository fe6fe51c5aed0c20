"""Refinement beside a loop written by hand: the same history, and `converged`, its reason and its advice are true."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.linalg import orders

#: Corrections in a row, none smaller than those before, after which the loop ends.
PATIENCE = 5


def with_condition(n, kappa, rng):
    """A matrix of norm 1 with geometrically spaced singular values."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return left * kappa ** -(np.arange(n) / max(n - 1, 1)) @ right


def largest(x):
    return float(np.abs(np.asarray(x, np.float64)).max(initial=0.0))


def exact_residual(a, b, x):
    """The largest element of b - A x, by fractions."""
    ax = [sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(row, x, strict=True)) for row in a]
    return max((abs(Fraction(float(c)) - one) for c, one in zip(b, ax, strict=True)), default=Fraction(0))


class ByHand:
    """Refinement with lu, solve_triangular and matmul."""

    def __init__(self, a, b, factor, work, residual, tolerance=None, most=50, gmres=None):
        self.gmres = gmres  # the formats of its steps and of its products
        self.a, self.b = sf.round(a, work), sf.round(b, work)
        self.factor, self.work, self.residual, self.tolerance, self.most = factor, work, residual, tolerance, most
        self.p, self.lower, self.upper = sf.linalg.lu(self.a, format=factor)
        self.norm = float(np.abs(self.a).sum(1, np.float64).max(initial=0.0))

    def correction(self, r):
        if self.gmres:
            return self.correction_by_gmres(r)
        exponent = math.frexp(largest(r))[1]
        scaled = sf.round(np.ldexp(r.astype(np.float64), 1 - exponent), self.factor)
        y = sf.linalg.solve_triangular(self.lower, scaled[self.p], lower=True, unit_diagonal=True)
        d = sf.linalg.solve_triangular(self.upper, y)
        return sf.round(np.ldexp(np.asarray(d), exponent - 1), self.work)

    def correction_by_gmres(self, r):
        (format, wide), exponent = self.gmres, math.frexp(largest(r))[1]

        def by_factors(x):
            y = sf.linalg.solve_triangular(self.lower, x[self.p], lower=True, unit_diagonal=True, format=wide)
            return sf.round(np.asarray(sf.linalg.solve_triangular(self.upper, y, format=wide)), format).tolist()

        def apply(v):
            return by_factors(sf.matmul(sf.round(self.a, wide), sf.round(v, wide), accumulate=wide))

        start, steps = (
            by_factors(sf.round(np.ldexp(r.astype(np.float64), 1 - exponent), wide)),
            orders.Steps(format, sf.nearest_even),
        )
        limit = math.sqrt(self.work.unit_roundoff) * steps.sqrt(steps.dot(start, start))
        d, _ = orders.gmres_cycle(apply, start, steps, limit, len(r))
        return sf.round(np.ldexp(d, exponent - 1), self.work)

    def limit(self, x):
        """The tolerance, relative to the norm of b."""
        if self.tolerance is not None:
            return Fraction(self.tolerance)
        scale = self.norm * largest(x) + largest(self.b)
        return Fraction(math.sqrt(len(self.b)) * float(self.work.unit_roundoff) * scale / (largest(self.b) or 1.0))

    def share(self, x):
        """The exact residual, relative to the norm of b."""
        return exact_residual(self.a, self.b, x) / (Fraction(largest(self.b)) or 1)

    def refined(self):
        """Every x that is kept, and the corrections that led to them."""
        x, xs, sizes, worse = np.zeros_like(self.b), [], [], 0
        for _ in range(self.most):
            initial = self.b
            r = sf.matmul(-self.a, x, accumulate=self.residual, output=self.work, initial=initial)
            if xs and not r.any():
                break
            d = self.correction(r)
            size = largest(d) / (largest(x) or largest(d) or 1.0)
            x = sf.add(x, d, self.work)
            worse = worse + 1 if sizes and size >= min(sizes) else 0
            xs, sizes = [*xs, x], [*sizes, size]
            if self.tolerance is not None and self.share(x) <= self.limit(x):
                break
            if self.tolerance is None and len(sizes) > 1 and size <= self.work.unit_roundoff:
                break
            if worse == PATIENCE:
                return xs[:-PATIENCE], sizes[:-PATIENCE]
        return xs, sizes


def options_in(reason):
    """The options that a reason says to converge."""
    found = re.search(r"With (.*) it converges\.", reason)
    if found is None:
        return None
    pairs = dict(re.findall(r"(factor|work|residual|max_iterations)=(\w+)", found[1]))
    return {key: getattr(sf, x) if not x.isdigit() else int(x) for key, x in pairs.items()}


FORMATS = [(sf.FP16, sf.FP32), (sf.BF16, sf.FP32), (sf.FP16, sf.FP64), (sf.FP32, sf.FP64), (sf.FP32, sf.FP32)]


@pytest.mark.parametrize("factor, work", FORMATS, ids=str)
def test_refinement_is_the_loop_by_hand_and_says_what_is_true(factor, work):
    rng = np.random.default_rng(7)
    outcomes = set()
    for case in range(12):
        n, kappa = int(rng.integers(2, 13)), 10 ** rng.uniform(0, 8)
        a, x = with_condition(n, kappa, rng), rng.standard_normal(n)
        residual = [work, sf.FP64, sf.exact][case % 3]
        tolerance = [None, 1e-6, 1e-3, 1e-12][case % 4]
        options = {"factor": factor, "work": work, "residual": residual, "tolerance": tolerance}
        found, by_hand = sf.linalg.solve(a, a @ x, **options), ByHand(a, a @ x, *options.values())
        xs, sizes = by_hand.refined()
        assert_bits(found.x, xs[-1])
        assert found.corrections == sizes
        assert found.converged == (by_hand.share(xs[-1]) <= by_hand.limit(xs[-1]))
        assert found.residuals == pytest.approx([float(by_hand.share(one)) for one in xs], rel=1e-12)
        advice = options_in(found.reason)
        if advice is not None:
            again = options | advice
            assert sf.linalg.solve(a, a @ x, **again).converged
            assert not found.converged
        outcomes.add((found.converged, advice is None))
    assert (True, True) in outcomes


@pytest.mark.parametrize("formats", [(None, None), (sf.FP64, sf.FP32), (sf.BF16, sf.FP32)], ids=str)
def test_refinement_by_gmres_is_the_loop_by_hand(formats):
    rng, (steps, products) = np.random.default_rng(5), formats
    a, x = with_condition(6, 1e3, rng), rng.standard_normal(6)
    found = sf.linalg.solve(a, a @ x, sf.BF16, sf.FP32, sf.FP64, refine="gmres", steps=steps, products=products)
    by_hand = ByHand(a, a @ x, sf.BF16, sf.FP32, sf.FP64, gmres=(steps or sf.FP32, products or sf.FP64))
    xs, sizes = by_hand.refined()
    assert_bits(found.x, xs[-1])
    assert found.corrections == sizes and found.converged


@pytest.mark.parametrize("kappa", [1e5, 1e7])
def test_gmres_refines_where_the_factors_are_too_rough(kappa, rng):
    """Carson and Higham, SISC 39(6), 2017: with products in twice the digits, up to 1 / (u of `work`)."""
    a, x = with_condition(50, kappa, rng), rng.standard_normal(50)
    options = {"factor": sf.FP16, "work": sf.FP32, "residual": sf.FP64}
    assert not sf.linalg.solve(a, a @ x, **options).converged
    found = sf.linalg.solve(a, a @ x, refine="gmres", **options)
    assert found.converged and found.forward_errors[-1] <= 4 * sf.FP32.unit_roundoff


@pytest.mark.parametrize("refine", ["lu", "gmres"])
def test_every_right_hand_side_is_refined_separately(refine, rng):
    a, b = with_condition(8, 2e3, rng), rng.standard_normal((8, 4))
    b[:, 1], options = 0, {"factor": sf.FP16, "work": sf.FP32, "refine": refine, "tolerance": 1e-7}
    found = sf.linalg.solve(a, b, residual=sf.FP64, **options)
    assert found.x.shape == (8, 4) and found.converged.shape == (4,)
    for j, column in enumerate(b.T):
        one = sf.linalg.solve(a, column, residual=sf.FP64, **options)
        assert_bits(found.x[:, j], one.x)
        assert [field[j] for field in found[1:]] == list(one[1:])
    none = sf.linalg.solve(a, np.zeros((8, 0)), residual=sf.FP64, **options)
    assert none.x.shape == (8, 0) and none.converged.shape == (0,)


@pytest.mark.parametrize("kappa, most", [(5e3, 6), (2e4, 5)])
def test_refinement_goes_on_while_corrections_shrink_at_all(kappa, most):
    """With FP16, FP32 and FP64, at conditions where they shrink by less than half a step, and not in every step."""
    converged = 0
    for seed in range(3, 9):
        rng = np.random.default_rng(seed)
        a, x = with_condition(50, kappa, rng), rng.standard_normal(50)
        found = sf.linalg.solve(a, a @ x, factor=sf.FP16, work=sf.FP32, residual=sf.FP64, max_iterations=100)
        assert found.converged or re.search("With (factor=FP32|max_iterations=1000) it converges", found.reason)
        converged += found.converged and found.forward_errors[-1] < 1e-6
    assert converged >= most


def test_a_tolerance_bounds_the_residual_relative_to_b(rng):
    a, x = with_condition(20, 50, rng), rng.standard_normal(20)
    b = a @ x
    loose = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32, tolerance=1e-2)
    tight = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32, residual=sf.FP64, tolerance=1e-6)
    for found, tolerance in ((loose, 1e-2), (tight, 1e-6)):
        assert found.converged and found.residuals[-1] <= tolerance
        assert all(share > tolerance for share in found.residuals[:-1])
        assert "The tolerance is met" in found.reason and f"within the tolerance of {tolerance:.1e}" in found.reason
    missed = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32, residual=sf.FP64, tolerance=1e-12)
    assert not missed.converged and "With work=FP64, residual=exact it converges." in missed.reason
    assert sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP64, residual=sf.exact, tolerance=1e-12).converged
    never = sf.linalg.solve(a, b, factor=sf.FP32, work=sf.FP64, residual=sf.exact, tolerance=0)
    assert not never.converged and "It converges with none of factor=FP64." in never.reason
    few = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32, residual=sf.FP64, max_iterations=2, tolerance=1e-6)
    assert not few.converged and "With max_iterations=20 it converges." in few.reason


def test_a_nearly_singular_matrix_is_no_error(rng):
    for kappa in (1e6, 1e8):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            a, x = with_condition(8, kappa, rng), rng.standard_normal(8)
            found = sf.linalg.solve(a, a @ x, factor=sf.BF16, work=sf.BF16, residual=sf.FP32)
            assert found.x.format == sf.BF16 and len(found.residuals) == len(found.corrections) > 0
            # A correction may leave the range of FP16 before there is an x.
            found = sf.linalg.solve(a, a @ x, factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
            assert found.converged or "converges" in found.reason
    near = np.array([[1.0, 1.0], [1.0, 1.0 + 2.0**-10]]) * 2.0**-6
    found = sf.linalg.solve(near, [1.0, -1.0], factor=sf.FP16, work=sf.FP32)
    assert not found.converged and found.x.tolist() == [0.0, 0.0] and found.residuals == [1.0]
    assert "left the range of FP16" in found.reason and "With factor=FP32 it converges." in found.reason


def test_what_is_tried_for_advice_leaves_streams_and_observers_alone(rng):
    a, b = with_condition(8, 1e6, rng), rng.standard_normal(8)
    stream, recorder = sf.BitStream(3), sf.Recorder()
    options = {"factor": sf.FP16, "work": sf.FP32, "rounding": sf.stochastic(), "residual": sf.FP64}
    found = sf.linalg.solve(a, b, stream=stream, **options)
    assert not found.converged and "converges" in found.reason
    observed = sf.BitStream(3)
    again = sf.linalg.solve(sf.array(a, sf.FP32, observer=recorder), b, stream=observed, **options)
    assert again.corrections == found.corrections and stream.state == observed.state
    assert "converges" not in again.reason and recorder.counts()["total"]


def test_options_of_refinement_are_checked():
    eye = np.eye(2)
    for tolerance in (-1, math.nan, "small", True):
        with pytest.raises(ValueError, match="tolerance must be a number of at least 0"):
            sf.linalg.solve(eye, [1, 2], factor=sf.FP16, work=sf.FP32, tolerance=tolerance)
    with pytest.raises(ValueError, match="tolerance= are options of refinement"):
        sf.linalg.solve(eye, [1, 2], format=sf.FP16, tolerance=0.1)
    empty = sf.linalg.solve(np.zeros((0, 0)), np.zeros(0), factor=sf.FP16, work=sf.FP32)
    assert empty.converged and empty.x.shape == (0,)


def test_gmres_does_not_trust_its_estimate_after_a_breakdown():
    """The first step solves this system, and the second one divides by the rounding errors of w."""
    found = sf.linalg.gmres([[2.0, 1.0], [0.0, 3.0]], [1.0, 1.0], format=sf.FP32, tolerance=4e-8)
    assert found.converged and found.true_residuals[-1] < 2 * sf.FP32.unit_roundoff
    assert any(size > 1 for size in found.true_residuals), "the estimate was wrong"
