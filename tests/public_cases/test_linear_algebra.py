"""What others have reported about solvers and norms in narrow formats."""

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
