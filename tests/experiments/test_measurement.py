"""Measurements of sums: rows of a job, one value for each seed, operands with their exact product."""

from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import simfloat as sf
from experiments.command_line import main
from experiments.measurement import measured_rows, over_seeds, table_over_seeds
from experiments.operands import DATA, draw_operands
from simfloat.studies import one_by_one

RESULTS = [
    {"kind": "sum", "seed": seed, "rows": [{"length": n, "error": 10.0 * seed + n} for n in (4, 2)]} for seed in (2, 1)
]


def test_a_measurement_is_a_row_with_the_fields_of_its_job():
    assert measured_rows(RESULTS[0]) == [
        {"kind": "sum", "seed": 2, "length": 4, "error": 24.0},
        {"kind": "sum", "seed": 2, "length": 2, "error": 22.0},
    ]


def test_values_come_in_the_order_of_seeds_and_places():
    assert over_seeds(RESULTS, "error", length=4).tolist() == [14.0, 24.0]
    places, values = table_over_seeds(RESULTS, "error", "length")
    assert places.tolist() == [2, 4] and values.tolist() == [[12.0, 14.0], [22.0, 24.0]]


@pytest.mark.parametrize("data", DATA)
def test_operands_are_numbers_of_the_format_and_their_product_is_exact(data):
    operands = draw_operands(data, seed=3, length=20, size=2, format=sf.FP16)
    assert (sf.round(operands.a, sf.FP16) == operands.a).all() and operands.b.shape == (20, 2)
    exact = sum(Fraction(a) * Fraction(b) for a, b in zip(operands.a[1], operands.b[:, 0], strict=True))
    assert operands.exact[1, 0] == float(exact)
    np.testing.assert_allclose(operands.error(operands.exact + operands.magnitude / 4), 0.25)
    assert (np.abs(operands.exact) <= operands.magnitude).all()


def test_a_policy_for_an_experiment_on_sums_alone_is_refused(tmp_path):
    arguments = ["run", "tensor-core-generations", "--policy", "fp32", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments, obj=one_by_one)
    assert (
        result.exit_code == 2 and "This experiment accepts no policy: it compares sums and roundings." in result.output
    )
    assert not (tmp_path / "out").exists()
