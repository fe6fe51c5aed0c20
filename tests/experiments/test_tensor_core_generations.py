"""Tensor cores on the operands of the paper."""

import numpy as np

from experiments.operands import draw_operands
from experiments.tensor_core_generations.findings import EXAMPLE
from experiments.tensor_core_generations.jobs import errors, example
from simfloat import FP16


def test_every_generation_makes_of_the_papers_operands_what_the_paper_says():
    assert example() == EXAMPLE


def test_an_error_away_from_zero_is_outward_whatever_the_sign_of_the_sum():
    operands = draw_operands("normal", seed=0, length=8, size=4, format=FP16)
    found = errors(operands, operands.exact + np.sign(operands.exact) * operands.magnitude / 8)
    assert found["error"] == found["outward"] == 0.125
