"""Raw results in a table are read back as they were written, to the last bit."""

import math

import numpy as np

from simfloat.studies import read_stored, write_stored


def kept(results, folder):
    path = folder / "results.parquet"
    write_stored(results, path)
    return read_stored(path)


def test_results_come_back_as_they_were(tmp_path):
    results = [
        {
            "kind": "training", "seed": 2**40, "tiny": False, "loss": [1 / 3, 5e-324],
            "trace": {"skipped": [True, False]},
        },
        {"kind": "training", "seed": 1001, "gradients": {"all": {"-3": 4, "zero": 1}}, "trace": {"skipped": [False]}},
        {"kind": "sums", "rows": [{"unit": "a", "error": 0.1}, {"pair": None}], "bits": 3.0, "empty": []},
    ]  # fmt: skip
    assert kept(results, tmp_path) == results


def test_numbers_that_json_lacks_come_back(tmp_path):
    (found,) = kept([{"x": -0.0, "curve": [math.inf, math.nan], "inside": {"a": {"b": math.nan}}}], tmp_path)
    assert math.copysign(1, found["x"]) == -1 and math.isnan(found["inside"]["a"]["b"])
    np.testing.assert_array_equal(found["curve"], [math.inf, math.nan])


def test_values_of_several_types_come_back_though_a_column_has_one(tmp_path):
    results = [{"found": found} for found in (True, 1, 0.1, "none", 2**70)]
    assert kept(results, tmp_path) == results and [type(each["found"]) for each in kept(results, tmp_path)][0] is bool
