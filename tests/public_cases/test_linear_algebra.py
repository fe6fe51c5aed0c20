"""Reported bugs of other libraries in solvers and norms in narrow formats."""

import numpy as np

import simfloat as sf


def test_refinement_that_runs_out_of_steps_has_not_converged():
    """A solver returned the last iterate as if it were exact. https://github.com/SauersML/gam/issues/3547"""
    random = np.random.default_rng(5)
    a, x = random.standard_normal((2, 30, 30))
    b = a @ x[0]
    few, many = (
        sf.linalg.solve(a, b, factor=sf.BF16, work=sf.FP32, residual=sf.FP64, max_iterations=n) for n in (1, 50)
    )
    assert not few.converged and many.converged
    assert np.abs(np.asarray(many.x) - np.linalg.solve(a, b)).max() < 1e-5


def test_the_squares_of_a_norm_overflow_although_the_norm_is_in_range():
    """The norm of [600, 800] was infinite in float16. https://github.com/numpy/numpy/issues/8775"""
    x = sf.array([300.0, 400.0, 0.0], sf.FP16)
    assert np.isinf(np.sqrt(x @ x))
    halved = x / 8.0
    assert np.sqrt(halved @ halved) * 8.0 == 500


def test_refinement_continues_while_it_helps():
    """A solver was to give up at the first residual that did not fall. https://github.com/SauersML/gam/issues/634

    The same iteration by hand, with the factors of FP16 and float64 in the rest, ends with an error of FP32.
    """
    random, n = np.random.default_rng(0), 24
    left, right = (np.linalg.qr(random.standard_normal((n, n)))[0] for _ in range(2))
    a = np.float64(np.float32(left * np.logspace(0, -np.log10(5e3), n) @ right))
    b = np.float64(np.float32(a @ random.standard_normal(n)))
    factors, x = sf.linalg.lu(a, format=sf.FP16), np.zeros(n)
    for _ in range(50):
        inner = np.linalg.solve(np.asarray(factors.lower), (b - a @ x)[factors.permutation])
        x = np.float64(np.float32(x + np.linalg.solve(np.asarray(factors.upper), inner)))
    exact = np.linalg.solve(a, b)
    assert np.abs(x - exact).max() < 1e-6 * np.abs(exact).max()
    found = sf.linalg.solve(a, b, factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
    assert found.converged and np.abs(np.asarray(found.x) - exact).max() < 1e-6 * np.abs(exact).max()
