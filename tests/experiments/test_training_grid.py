"""The axes of training: the job of a point, and invalid points."""

import pytest

import simfloat as sf
from experiments.grid import points, read_levels
from experiments.options import FIRST_SEED
from experiments.training import run_training
from experiments.training_grid import final_measures, training_grid
from experiments.update_cancellation.problems import PROBLEMS

GRID = training_grid(PROBLEMS)


def jobs(*assignments, tiny=True):
    found = points(read_levels(GRID.axes, assignments))
    return [GRID.job({name: level.value for name, level in point.items()}, tiny) for point in found]


def policies(*assignments):
    return [sf.Policy.from_dict(job["policy"]) for job in jobs("problem=digits", *assignments)]


def test_without_values_all_problems_are_trained_in_fp32_from_the_first_reported_seed():
    assert [(job["problem"], job["policy"], job["seed"]) for job in jobs()] == [
        (problem, sf.policies["fp32"].to_dict(), FIRST_SEED) for problem in PROBLEMS
    ]


def test_policies_are_presets_or_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('compute = "e5m2"\n')
    preset, mine = policies(f"policy=bf16-kahan,{path}")
    assert preset == sf.policies["bf16-kahan"] and mine.compute == sf.E5M2 and mine.name == "mine"


def test_formats_and_accumulators_take_the_place_of_the_policys():
    kahan = sf.policies["bf16-kahan"]
    wide, narrow = policies("policy=bf16-kahan", "weights=fp32", "accumulate=fp32,blocked(4, inner=fp16, outer=fp32)")
    assert (wide.weights, wide.update, wide.compute) == (sf.FP32, kahan.update, kahan.compute)
    assert narrow.accumulate == sf.blocked(4, inner=sf.FP16, outer=sf.FP32)
    assert policies("fused=true")[0].fused is True


def test_two_spellings_of_one_format_are_one_value():
    with pytest.raises(ValueError, match="The axis weights has the value 'BF16' twice"):
        jobs("weights=bf16,BF16")


def test_a_loss_scale_is_a_constant_one():
    plain, scaled = jobs("problem=digits", "policy=fp16-master")[0], jobs("problem=digits", "loss_scale=1024")[0]
    assert "scaler" not in plain and scaled["scaler"] == {"kind": "static", "scale": 1024.0}


@pytest.mark.parametrize("size", ["steps", "batch"])
def test_sizes_are_those_of_the_run(size):
    (job,) = jobs("problem=synthetic", f"{size}=7")
    assert job[size] == 7
    result = run_training(PROBLEMS, job)
    assert result["iteration"][-1] == (7 if size == "steps" else 100)


def test_a_row_has_the_mean_of_the_last_fifth_of_each_curve():
    result = {"label": "x", "start": {"loss": 9}, "iteration": [*range(10)], "loss": [5.0] * 8 + [1.0, 2.0]}
    assert final_measures(result) == {"loss": 1.5}


@pytest.mark.parametrize("assignment, message", [
    ("problem=mnist", "The axis problem does not take 'mnist': expected one of synthetic, diabetes, digits"),
    ("policy=bf17", "Unknown policy 'bf17'. Policies: fp64"),
    ("policy=missing.toml", "There is no file .*missing.toml. Give the path of a file that"),
    ("weights=bf17", "The axis weights does not take 'bf17': Unknown format 'bf17'"),
    ("loss_scale=0", "expected a positive number that float32 has"),
    ("loss_scale=large", "expected a positive number that float32 has"),
    ("seed=-1", "expected an integer from 0"),
    ("seed=1.5", "expected an integer"),
    ("steps=0", "expected an integer from 1"),
    ("batch=99999999999", "to 4294967295"),
])  # fmt: skip
def test_invalid_values_are_refused(assignment, message):
    with pytest.raises(ValueError, match=message):
        jobs(assignment)


def test_a_point_whose_policy_does_not_fit_is_refused_before_the_work():
    found = jobs("problem=digits", "policy=bf16-standard", "accumulate=tensor_core('hopper', E4M3)")
    with pytest.raises(ValueError, match="bf16-standard, accumulate=.*: The policy does not fit the problem digits: "):
        GRID.check(found)
