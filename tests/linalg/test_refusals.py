"""A matrix that cannot be factored, or a system that cannot be solved, gives a message with advice."""

import math
import re

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.checks import assert_refused

SINGULAR = [[1.0, 2.0], [2.0, 4.0]]
EYE = np.eye(2)
THIRDS = np.array([[1, 1, 2 / 3], [1 / 3, 2 / 7, 13 / 63], [1 / 7, 1 / 9, 16 / 189]])  # the last is a third of both
SMALL = np.array([[1.0, 0.5], [2.0, 1.5]]) * 2.0**-14  # squares of such numbers are zero in FP16
GROWING = np.eye(45) - np.tril(np.ones((45, 45)), -1)  # a column doubles in every step of the elimination
GROWING[:, -1] = 1
LARGE = [[300.0, 1.0], [1.0, -300.0]]


def test_problems_without_a_solution_are_refused():
    assert_refused(
        (lambda: sf.linalg.lu(SINGULAR, format=sf.BF16), "no pivot in column 1: it is singular, or became so in BF16"),
        (lambda: sf.linalg.solve(SINGULAR, [1, 2], format=sf.BF16), "no pivot in column 1"),
        (lambda: sf.linalg.lu([[0, 1], [1, 0]], format=sf.BF16, pivot=False), "column 0: pass pivot=True"),
        (lambda: sf.linalg.lu([[1e-4, 6e4], [-1.0, 1]], format=sf.FP16, pivot=False), r"range of FP16.*by 2\*\*-14"),
        (lambda: sf.linalg.lu([[0.01, 1], [1000, 1]], format=sf.FP16, pivot=False), "0: pass pivot=True, or use a f"),
        (lambda: sf.linalg.lu(GROWING[-20:, -20:], format=sf.FP16), r"Column 19 .*65504.0: scale .*, as by 2\*\*-4"),
        (lambda: sf.linalg.lu(GROWING, format=sf.FP16), "Column 44 .*65504.0: use a format of larger range"),
        (lambda: sf.linalg.lu([[1e6]], format=sf.FP16),
         r"A has values beyond the largest number of FP16, 65504.0.*2\*\*-4"),
        (lambda: sf.linalg.lu([[1e300]], format=sf.Format(5, 4, bias=1000)), r"as by 2\*\*-1966"),
        (lambda: sf.linalg.solve(EYE, ["1/3", 10**400], format=sf.FP32), "b has values beyond .*: scale the system"),
        (lambda: sf.linalg.solve(EYE, ["1/3", "inf"], format=sf.FP32), "b contains infinities or NaN"),
        (lambda: sf.linalg.lu([[np.nan]], format=sf.FP16), "A contains infinities or NaN"),
        (lambda: sf.linalg.lu([[np.inf]], format=sf.FP16), "A contains infinities or NaN"),
        (lambda: sf.linalg.lu([1.0], format=sf.FP16), r"A must be a matrix, got shape \(1,\)"),
        (lambda: sf.linalg.lu(EYE), "needs format=, or pass simfloat.array"),
        (lambda: sf.linalg.lu(EYE, format=sf.E8M0), "needs a signed format"),
        (lambda: sf.linalg.lu([[1j]], format=sf.BF16),
         r"A is complex: only real matrices are factored; .* solve a comp"),
        (lambda: sf.linalg.cholesky(sf.array([[1j]], sf.BF16)), r"A is complex: only real matrices are factored"),
        (lambda: sf.linalg.svd([[1j]], format=sf.BF16), r"A is complex: only real matrices are decomposed; each value"),
        (lambda: sf.linalg.eigh([[1j]], format=sf.BF16), r"A is complex: only real matrices are decomposed; each val"),
        (lambda: sf.linalg.solve([[1j]], [1], format=sf.BF16), r"A is complex: a complex system.*lstsq.*-A.imag\]"),
        (lambda: sf.linalg.inv([[1j]], format=sf.BF16), r"A is complex: a complex system.*-A.imag\]"),
        (lambda: sf.linalg.qr([[3e4j], [3e4]], format=sf.FP16), r"The factorization left the range of FP16.*2\*\*-15"),
        (lambda: sf.linalg.lstsq([[1j, 1j]] * 2, [1, 2], format=sf.BF16), "Column 1 depends on the columns before it"),
        (lambda: sf.linalg.inv(SINGULAR, format=sf.BF16), "no pivot in column 1"),
        (lambda: sf.linalg.det(1e4 * EYE, format=sf.FP16),
         r"The determinant left the range of FP16.*by 2\*\*-6, which scales it by 2\*\*-12"),
        (lambda: sf.linalg.cond([[1, 1], [1, 1.001]], format=sf.E5M2), "no pivot in column 1"),
        (lambda: sf.linalg.qr(EYE, pivot=1, format=sf.BF16), "pivot must be True or False"),
        (lambda: sf.linalg.newton_inverse(EYE, format=sf.BF16, max_iterations=0), "max_iterations must be an integer"),
        (lambda: sf.linalg.newton_sqrt(EYE, format=sf.BF16, tolerance=-1), "tolerance must be a number of at least 0"),
        (lambda: sf.linalg.lu(EYE, format=sf.FP32, pivot=1), "pivot must be True or False"),
        (lambda: sf.linalg.lu(EYE / 3, format=sf.FP32, accumulate=sf.FP16),
         "not a number of FP16.*use an accumulator with a wider"),
        (lambda: sf.linalg.lu(EYE, format=sf.BF16, rounding=sf.stochastic()), "needs random bits"),
        (lambda: sf.linalg.cholesky([[1, 2], [2, 1]], format=sf.BF16), "column 1 is -3.0, not positive"),
        (lambda: sf.linalg.cholesky(np.ones((2, 3)), format=sf.BF16), r"square matrix, got shape \(2, 3\)"),
        (lambda: sf.linalg.qr(LARGE, format=sf.FP16), r"The factorization left the range of FP16.*2\*\*-2"),
        (lambda: sf.linalg.qr(SMALL, format=sf.FP16), r"squares of a column is zero in FP16.*1.2e-04.*as by 2\*\*20"),
        (lambda: sf.linalg.lstsq(SMALL, [1, 2], format=sf.FP16), "squares of a column is zero in FP16"),
        (lambda: sf.linalg.svd(SMALL, format=sf.FP16), r"squares of a column is zero in FP16.*as by 2\*\*20"),
        (lambda: sf.linalg.svd([[2.0**-14]], format=sf.FP16), "squares of a column is zero in FP16"),
        (lambda: sf.linalg.eigh(np.ones((2, 3)), format=sf.BF16), r"square matrix, got shape \(2, 3\)"),
        (lambda: sf.linalg.eigh(6e4 * np.ones((2, 2)), format=sf.FP16), r"The eigenvalues left the range of FP16"),
        (lambda: sf.linalg.eigh([[-1e4, 4e4], [4e4, 1e4]], format=sf.FP16), "The eigenvalues left the range of FP16"),
        (lambda: sf.linalg.eigh([[-4e4, 1e3], [1e3, 4e4]], format=sf.FP16), "The eigenvalues left the range of FP16"),
        (lambda: sf.linalg.svd(LARGE, format=sf.FP16), r"The decomposition left the range of FP16.*2\*\*-2"),
        (lambda: sf.linalg.svd(EYE, format=sf.FP16, full_matrices=1), "full_matrices must be True or False"),
        (lambda: sf.linalg.lstsq(np.ones((2, 3)), [1, 2], format=sf.BF16), "as many rows as columns"),
        (lambda: sf.linalg.lstsq(np.eye(3, 2)[:, :1] * [1, 0], [1, 2, 3], format=sf.BF16),
         "Column 1 depends on the columns before it in BF16: "),
        (lambda: sf.linalg.lstsq(THIRDS, [1, 2, 3], format=sf.FP16), "Column 2 depends.*at most rcond = 1.5e-03 of it"),
        (lambda: sf.linalg.lstsq(EYE, [1, 2], format=sf.FP16, rcond=True), "number from 0 to below 1, got True"),
        (lambda: sf.linalg.lstsq(EYE, [1, 2], format=sf.FP16, rcond=1.0), "number from 0 to below 1, got 1.0"),
        (lambda: sf.linalg.solve_triangular([[0.0]], [1.0], format=sf.BF16),
         "T is singular: its diagonal is zero at 0"),
        (lambda: sf.linalg.solve_triangular([[1e-4]], [6e4], format=sf.FP16), "The solution left.*scale b down"),
        (lambda: sf.linalg.solve([[1e-4]], [6e4], format=sf.FP16), "The solution left the range of FP16.*scale b down"),
        (lambda: sf.linalg.lstsq([[1e-4]], [6e4], format=sf.FP16), "The solution left the range of FP16.*scale b down"),
        (lambda: sf.linalg.solve(1e-7 * EYE, [1, 1], factor=sf.FP16, work=sf.FP32),
         r"small.*scale it up, as by 2\*\*3"),
        (lambda: sf.linalg.solve(EYE, [1, 2, 3], format=sf.BF16), r"a vector of 2 elements.*got shape \(3,\)"),
        (lambda: sf.linalg.solve(EYE, [1, 2], format=sf.BF16, work=sf.FP32),
         "are options of refinement, which needs factor="),
        (lambda: sf.linalg.solve(EYE, [1, 2], factor=sf.FP16), "needs work="),
        (lambda: sf.linalg.solve(EYE, [1, 2], factor=sf.FP16, format=sf.FP32), "does not accept format="),
        (lambda: sf.linalg.solve(EYE, [1, 2], sf.FP16, sf.FP32, refine="qr"),
         'refine must be "lu" or "gmres", got \'qr\''),
        (lambda: sf.linalg.solve(EYE, [1, 2], sf.FP16, sf.FP32, steps=sf.FP32), 'options of refine="gmres"'),
        (lambda: sf.linalg.solve(EYE, [1, 2], format=sf.FP16, refine="gmres"), "refinement, which needs factor="),
        (lambda: sf.linalg.solve(EYE, [1, 2], factor=sf.FP16, work=sf.FP32, residual=sf.BF16),
         "as wide as the working format FP32, got sequential"),
        (lambda: sf.linalg.solve(1e6 * EYE, [1, 2], factor=sf.FP16, work=sf.FP32),
         "A has values beyond the largest number of FP16"),
        (lambda: sf.linalg.cg(EYE, EYE, format=sf.FP32), "one vector"),
        (lambda: sf.linalg.cg(EYE, [1, 1], format=sf.FP32, preconditioner=[1.0]),
         r"preconditioner must have the shape \(2,\) or \(2, 2\), got \(1,\)"),
        (lambda: sf.linalg.gmres(EYE, [1, 1], format=sf.FP32, preconditioner=lambda r: 1.0),
         r"preconditioner\(r\) must return 2 numbers, got shape \(\)"),
        (lambda: sf.linalg.gmres(EYE, [1, 1], format=sf.FP32, restart=0), "restart must be an integer of at least 1"),
        (lambda: sf.linalg.cg(EYE, [1, 1], format=sf.FP32, tolerance="small"), "tolerance must be a number"),
        (lambda: sf.linalg.cg(EYE, [1, 1], format=sf.FP32, max_iterations=0), "max_iterations must be an integer"),
    )  # fmt: skip


@pytest.mark.parametrize("unread", [np.nan, np.inf, 1e9])
def test_the_half_that_is_not_read_may_hold_anything(unread, rng):
    half = rng.standard_normal((4, 4))
    a, other = half @ half.T + np.eye(4), np.triu(np.full((4, 4), unread), 1)
    given = np.where(other, other, a)
    for form in (lambda x: x, lambda x: sf.array(x, sf.FP32)):
        assert_bits(sf.linalg.cholesky(form(given), format=sf.FP16), sf.linalg.cholesky(form(a), format=sf.FP16))
        assert_bits(sf.linalg.eigh(form(given), format=sf.FP16).values, sf.linalg.eigh(form(a), format=sf.FP16).values)
        for t, lower in ((given, True), (given.T, False)):
            due = sf.linalg.solve_triangular(form(a), a[0], lower=lower, format=sf.FP16)
            assert_bits(sf.linalg.solve_triangular(form(t), a[0], lower=lower, format=sf.FP16), due)
    with pytest.raises(ValueError, match="A contains infinities or NaN"):
        sf.linalg.cholesky([[np.nan, 0], [0, 1]], format=sf.FP16)


def test_a_complex_system_is_solved_as_the_real_one_that_its_refusal_names(rng):
    a, b = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for shape in ((5, 3), 5))
    real, right = np.block([[a.real, -a.imag], [a.imag, a.real]]), np.concatenate([b.real, b.imag])
    x = np.linalg.lstsq(a, b, rcond=None)[0]
    got = sf.linalg.lstsq(real, right, format=sf.FP64).x.numbers
    assert np.allclose(got[:3] + 1j * got[3:], x, rtol=1e-12)
    got = sf.linalg.solve(
        np.block([[a[:3].real, -a[:3].imag], [a[:3].imag, a[:3].real]]), right[[0, 1, 2, 5, 6, 7]], format=sf.FP64
    )
    assert np.allclose(got.numbers[:3] + 1j * got.numbers[3:], np.linalg.solve(a[:3], b[:3]), rtol=1e-12)
    values = np.linalg.svd(a)[1]
    assert np.allclose(sf.linalg.svd(real, format=sf.FP64).s.numbers, np.repeat(values, 2), rtol=1e-12)


def test_matrices_on_a_gpu_are_refused(monkeypatch):
    monkeypatch.setattr("simfloat.linalg.matrices.is_on_gpu", lambda numbers: True)
    with pytest.raises(ValueError, match=r"A is on a GPU, and linear algebra runs on the CPU.*A.get\(\)"):
        sf.linalg.lu(EYE, format=sf.BF16)


def test_conjugate_gradients_say_why_they_stopped():
    indefinite = sf.linalg.cg([[1, 0], [0, -1]], [1, 1], format=sf.BF16)
    assert not indefinite.converged and "p . A p is 0.0, not positive" in indefinite.reason
    short = sf.linalg.cg([[4, 1], [1, 3]], [1, 2], format=sf.FP32, max_iterations=1)
    assert not short.converged and "After 1 steps" in short.reason
    large = sf.linalg.cg([[4, 1], [1, 3]], [300, 300], format=sf.FP16)
    assert not large.converged and "left the range of FP16: scale" in large.reason
    assert sf.linalg.cg(EYE, [0, 0], format=sf.FP16).converged


STOPPING = [(sf.FP16, sf.nearest_even.saturating()), (sf.FP16, sf.toward_zero), (sf.fixed(16, 8), sf.nearest_even)]


@pytest.mark.parametrize("format, rounding", STOPPING, ids=str)
def test_saturated_values_are_refused_like_overflows(format, rounding):
    """In modes without infinities; elements of the matrix may be the largest number."""
    top, how = format.max, {"format": format, "rounding": rounding}
    large, small = [[top, 1.0], [1.0, -top]], [[2.0**-6, 0.0], [0.0, 2.0**-6]]
    for call in (
        lambda: sf.linalg.qr(large, **how), lambda: sf.linalg.lstsq(large, [1, 2], **how),
        lambda: sf.linalg.lstsq([[1.0, 0.5], [0.5, 1.0]], [top, top], **how), lambda: sf.linalg.svd(large, **how),
        lambda: sf.linalg.eigh([[7 * top / 8, 7 * top / 16], [7 * top / 16, 0.0]], **how),
        lambda: sf.linalg.lu([[1.0, top], [-1.0, 3.0]], **how), lambda: sf.linalg.solve(small, [top, 1], **how),
        lambda: sf.linalg.solve_triangular(small, [top, 1], **how),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="left the range of"):
            call()
    found = sf.linalg.cg([[4, 1], [1, 3]], [top / 2, top / 2], **how)
    assert not found.converged and "left the range of" in found.reason
    assert sf.linalg.lu([[top, 1.0], [1.0, 1.0]], **how).upper[0, 0] == top
    assert sf.linalg.qr([[1.0, top]], **how).r.tolist() == [[1.0, top]]


def test_sums_that_stop_in_a_narrower_accumulator_are_refused_too():
    sums = sf.sequential(sf.E4M3, sf.nearest_even.saturating())
    with pytest.raises(ValueError, match="The factorization left the range of FP16"):
        sf.linalg.qr([[30.0], [1.0]], format=sf.FP16, accumulate=sums)


def test_an_array_brings_its_options_and_those_that_are_given_replace_them():
    a = sf.array([[4, 1], [1, 3]], sf.FP16, rounding="toward_zero", accumulate=sf.FP32)
    lower, upper = sf.linalg.lu(a)[1:]
    assert upper.format == sf.FP16 and upper.rounding == sf.toward_zero and lower.accumulate == sf.sequential(sf.FP32)
    assert sf.linalg.lu(a, format=sf.BF16, rounding="nearest_even").upper.format == sf.BF16
    assert (lower @ upper).shape == (2, 2)
    found = sf.linalg.solve(a, [1, 2], factor=sf.BF16)
    assert found.x.format == sf.FP16 and found.x.rounding == sf.nearest_even


def test_an_observer_counts_every_operation_of_a_factorization(rng):
    n, recorder = 60, sf.Recorder()
    a = rng.standard_normal((n, n))
    observed = sf.linalg.lu(sf.array(a, sf.BF16, observer=recorder))
    plain = sf.linalg.lu(a, format=sf.BF16)
    assert_bits(observed.upper, plain.upper)
    assert observed.upper.observer is recorder
    assert recorder.counts(operation="fma")["total"] == sum(k * k for k in range(n))
    assert recorder.counts(operation="divide")["total"] == n * (n - 1) // 2
    of_block = sf.Recorder()
    with sf.simulate("fp32", observer=of_block):
        sf.linalg.lu(a, format=sf.BF16)
    assert of_block.counts(operation="fma") == recorder.counts(operation="fma")


def test_a_right_hand_side_is_rounded_to_the_format_of_the_matrix():
    a, b = sf.array([[4, 1], [1, 3]], sf.BF16), sf.array([1 + 2.0**-10, 2], sf.FP32)
    for function in (sf.linalg.solve, sf.linalg.solve_triangular, lambda *given: sf.linalg.cg(*given).x):
        assert_bits(function(a, b).numbers, function(a, b.astype(sf.BF16)).numbers)
    kept = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32).x
    assert (
        kept.format == sf.FP32
        and not (kept == sf.linalg.solve(a, b.astype(sf.BF16), factor=sf.FP16, work=sf.FP32).x).all()
    )


def test_operands_are_left_unchanged(rng):
    a = sf.array(rng.standard_normal((5, 5)), sf.FP16)
    b, before = sf.array(rng.standard_normal(5), sf.FP16), a.tolist()
    for function in (sf.linalg.lu, sf.linalg.qr):
        function(a)
    sf.linalg.solve(a, b)
    sf.linalg.lstsq(a, b)
    sf.linalg.cg(a, b)
    assert a.tolist() == before


def test_systems_of_no_unknowns_have_empty_solutions():
    nothing = np.zeros((0, 0))
    assert sf.linalg.lu(nothing, format=sf.BF16).upper.shape == (0, 0)
    assert sf.linalg.cholesky(nothing, format=sf.BF16).shape == (0, 0)
    assert sf.linalg.solve(nothing, np.zeros(0), format=sf.BF16).shape == (0,)


def test_roundings_whose_squares_are_zero_count_as_zeros_next_to_what_left_them():
    # A column of 1 and one of 2^-13, a quarter of FP16's unit roundoff: nothing is lost beside rounding.
    a = np.array([[1.0, 1.0], [0.0, 2.0**-13], [0.0, 2.0**-13]])
    assert sf.linalg.qr(a, format=sf.FP16).r[1, 1] == 2.0**-13
    assert sf.linalg.svd(np.diag([1.0, 2.0**-13]), format=sf.FP16).s[1] == 0


def test_systems_of_no_equations_have_solutions_of_no_numbers():
    empty, none = np.zeros((0, 0)), np.zeros(0)
    assert sf.linalg.lstsq(empty, none, format=sf.FP16).x.shape == (0,)
    assert sf.linalg.cg(empty, none, format=sf.FP16).x.shape == (0,)


def test_refinement_that_meets_the_solution_says_that_nothing_is_left():
    found = sf.linalg.solve([[2.0]], [1.0], factor=sf.FP16, work=sf.FP32)
    assert found.converged and found.reason.startswith("The residual is zero")


@pytest.mark.parametrize("a, b", [(3.9, 2.0**-24), (5.1, -1.8e-6), (1.9, -1.8e-7)])
def test_refinement_does_not_take_vanished_residuals_and_corrections_for_convergence(a, b):
    for factor in (sf.FP16, sf.Format(4, 10)):
        found = sf.linalg.solve([[a]], [b], factor=factor, work=sf.FP16, residual=sf.FP32)
        assert not found.converged and "below the smallest normal number of FP16" in found.reason
        assert found.forward_errors[-1] > 16 * sf.FP16.unit_roundoff
    assert sf.linalg.solve([[2.0]], [2.0**-23], factor=sf.FP16, work=sf.FP16).converged, "2^-24 is the solution"


def test_conjugate_gradients_do_not_take_a_vanished_square_for_convergence():
    b = np.array([1.0, 0.75, -1.0]) * 2.0**-12
    found = sf.linalg.cg([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], b, format=sf.FP16)
    assert not found.converged and "r . r is zero in FP16, and r is not: scale b" in found.reason
    assert found.true_residuals[-1] > 0.1


def test_options_of_scipy_name_the_options_that_have_their_meaning():
    b = [1.0, 2.0]
    for solver, options, words in (
        (sf.linalg.cg, {"rtol": 1e-3}, "cg has no option rtol=: write tolerance=."),
        (sf.linalg.gmres, {"maxiter": 5}, "gmres has no option maxiter=: write max_iterations=."),
        (sf.linalg.cg, {"M": EYE}, "cg has no option M=: write preconditioner=."),
        (sf.linalg.solve, {"atol": 0.0}, "solve has no option atol=: write tolerance=, which is relative to"),
        (sf.linalg.solve, {"M": EYE}, "unexpected keyword argument 'M'"),  # refinement has no such option
    ):
        with pytest.raises(TypeError, match=words):
            solver(EYE, b, format=sf.BF16, **options)
    for newton in (sf.linalg.newton_inverse, sf.linalg.newton_sqrt):
        for option, words in (("rtol", "tolerance"), ("atol", "tolerance"), ("maxiter", "max_iterations")):
            with pytest.raises(TypeError, match=rf"^{newton.__name__} has no option {option}=: write {words}=\.$"):
                newton(EYE, format=sf.BF16, **{option: 1})
    with pytest.raises(TypeError, match=r"qr has no option pivoting=: write pivot=\."):
        sf.linalg.qr(EYE, pivoting=True, format=sf.BF16)


def test_other_options_of_numpy_and_scipy_say_what_to_do_instead():
    for function, operands, options, words in (
        (sf.linalg.cg, [[1.0, 2.0]], {"x0": [0.0, 0.0]}, "cg has no option x0=: .* b - A x0"),
        (sf.linalg.gmres, [[1.0, 2.0]], {"callback": print}, r"no option callback=: .* \.residuals"),
        (sf.linalg.cholesky, [], {"lower": True}, r"no option lower=: .* l\.T\."),
        (sf.linalg.eigh, [], {"UPLO": "U"}, r"no option UPLO=: .* pass A\.T\."),
        (sf.linalg.svd, [], {"compute_uv": False}, r"no option compute_uv=: .* \.s of the result"),
        (sf.linalg.qr, [], {"mode": "r"}, r"no option mode=: .* \.r of the result"),
        (sf.linalg.norm, [], {"axis": 0}, r"no option axis=: numpy\.linalg\.norm"),
        (sf.linalg.lu, [], {"fmt": sf.BF16}, "lu has no option fmt=: write format="),
        (sf.linalg.solve_triangular, [[1.0, 2.0]], {"trans": 1}, r"no option trans=: pass T\.T"),
    ):
        with pytest.raises(TypeError, match=words):
            function(EYE, *operands, format=sf.BF16, **options)
    A = sf.array([[4.0, 1.0], [2.0, 3.0]], sf.FP32)
    permutation, lower, upper = factors = sf.linalg.lu(A)
    b = np.array([1.0, 2.0])
    y = sf.linalg.solve_triangular(lower, b[permutation], lower=True)
    assert_bits(sf.linalg.solve_triangular(upper, y).numbers, sf.linalg.solve(A, b).numbers)
    assert sf.linalg.cond(A, 1).item() == sf.linalg.cond(A).item()
    assert_refused(
        (lambda: sf.linalg.solve(factors, b), r"got LU\(permutation, lower, upper\): y = solve_triangular\(lower, b\["),
        (lambda: sf.linalg.cond(A, np.inf), r"1-norm, p=1; got p=inf. In the inf-norm it is cond\(A.T\)"),
        (lambda: sf.linalg.lu("A", format=sf.FP32), "^A must hold real numbers, and 'A' is not a number"),
        (lambda: sf.linalg.solve(A, "b"), "^b must hold real numbers, and 'b' is not a number"),
    )


def test_a_triangular_matrix_is_no_preconditioner_of_conjugate_gradients():
    A, b = sf.array([[4.0, 1.0], [1.0, 3.0]], sf.BF16), [1.0, 2.0]
    L = sf.linalg.cholesky(A)
    for factor, words in ((L, r"solve_triangular\(L.T, .*\(L, r, lower=True"), (L.T, r"\(U, .*\(U.T, r, lower=True")):
        with pytest.raises(ValueError, match=words):
            sf.linalg.cg(A, b, preconditioner=factor)

    def solve(r):
        return sf.linalg.solve_triangular(L.T, sf.linalg.solve_triangular(L, r, lower=True))

    assert sf.linalg.cg(A, b, preconditioner=solve).converged
    assert sf.linalg.cg(A, b, preconditioner=[[0.25, 0.0], [0.0, 0.5]]).converged  # a diagonal matrix is symmetric
    assert sf.linalg.gmres(A, b, preconditioner=np.linalg.inv(np.tril(A.numbers))).x.shape == (2,)


def test_hints_name_what_helps():
    small, random = np.eye(3) * 2 + 1, np.random.default_rng(0).standard_normal((6, 6))
    options = dict(format=sf.FP16)
    assert_refused(
        (
            lambda: sf.linalg.cholesky(small * 2.0**-30, **options),
            "after rounding to FP16; scale it up, or use a wider",
        ),
        (lambda: sf.linalg.lu(small * 2.0**-28, **options), "became so in FP16; scale it up, or take a wider format"),
        (lambda: sf.linalg.lu(np.ones((2, 2)) * 2.0**-20, **options), r"in FP16; scale it up, as by 2\*\*27, or take"),
        (
            lambda: sf.linalg.inv(np.eye(3) * 2.0**-17, **options),
            "The inverse left .*: scale A up by a power of two, or",
        ),
        (lambda: sf.linalg.cond(np.diag([1, 2.0**-17]), **options), "does not change a condition number; use a format"),
        (lambda: sf.linalg.cond(np.diag([2.0**-15, 2.0**-18]), **options), "scale A up by a power of two, or use"),
    )
    for result, words in (
        (sf.linalg.gmres(np.eye(3), [100.0, 200, 300], **options), "r . r left the range of FP16: scale b by a power"),
        (
            sf.linalg.gmres((np.eye(8) * 8 + 1) * 1e-6, np.ones(8), **options),
            "The norm of A v is zero in FP16, and A v",
        ),
        (sf.linalg.gmres(np.ones((3, 3)), [1.0, 0, 0], **options), "A is singular, or became so in FP16"),
        (sf.linalg.cg(np.eye(3) * 1e-3, [0.01, 0.02, 0.03], **options), "p . A p is zero in FP16, and is not: scale A"),
        (sf.linalg.cg([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], **options), "p . A p is 0.0, not positive: A is not pos"),
    ):
        assert words in result.reason and not result.converged
    A, b = random * 2.0**-18, random @ np.ones(6) * 2.0**-18
    refinement = sf.linalg.solve(A, b, factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
    assert refinement.reason.endswith("With A and b scaled by 2**16 it converges.")
    assert "smallest normal number of FP32" not in refinement.reason


@pytest.mark.parametrize("n", [2, 5])
def test_the_scale_for_eigenvalues_suffices_and_is_not_far_too_small(n, rng):
    """Eigenvalues grow like the matrix, and are at most n times its largest element."""
    for a in (np.full((n, n), 6e4), rng.uniform(4e4, 6e4, (n, n))):
        A = np.tril(a) + np.tril(a, -1).T
        with pytest.raises(ValueError, match=r"The eigenvalues left .*scale the system, as by 2\*\*") as error:
            sf.linalg.eigh(A, format=sf.FP16)
        power = int(re.search(r"2\*\*(-\d+)", str(error.value))[1])
        assert power >= -math.ceil(math.log2(n))
        assert 4e4 * n <= float(sf.linalg.eigh(A * 2.0**power, format=sf.FP16).values[-1]) * 2.0**-power <= 6.01e4 * n
