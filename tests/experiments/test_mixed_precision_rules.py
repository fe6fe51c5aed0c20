"""Rules of mixed precision: the orders of scaling to the bit."""

import numpy as np

import simfloat as sf
from experiments.mixed_precision_rules.jobs import SCALE, clipped, orders, unscaled
from experiments.mixed_precision_rules.problems import PROBLEMS


def test_a_scale_that_is_a_power_of_two_changes_no_bit_of_clipping_and_divides_a_decay_that_comes_too_early():
    found = orders(np.random.default_rng(3))
    assert found["other_bits"] == 0 and abs(found["shrunk"] / SCALE - 1) < 1e-5
    assert abs(found["decay"] * SCALE - 1) < 0.05


def test_clipping_leaves_a_short_gradient_as_it_is():
    x = np.asarray(sf.round(np.arange(4.0), sf.FP16), float)
    assert (clipped(x, 100.0) == x).all() and (unscaled(SCALE * x) == x).all()


def test_a_language_model_reads_characters_and_holds_out_the_last_windows():
    problem = PROBLEMS["language"](3, True)
    with sf.simulate("fp32"), sf.no_grad():
        logits = problem.model()(problem.x[:2])
    assert logits.shape == (*problem.x[:2].shape, problem.model().head.bias.shape[0])
    assert len(problem.test[0]) <= 100 and problem.x.shape[1] == problem.test[0].shape[1]
