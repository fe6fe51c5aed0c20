"""Problems and runs: judged through the model, equal for every policy, dependent only on their jobs."""

import json
from dataclasses import replace

import numpy as np
import pytest

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.measurement import final
from experiments.options import FIRST_SEED, Options
from experiments.problem import Problem
from experiments.training import check_policy, run_training, train, training_jobs, training_rows
from experiments.update_cancellation.policies import FP32, THEOREMS, VARIANTS
from experiments.update_cancellation.problems import PROBLEMS, digits, synthetic
from experiments.variants import Variant, given, make_scaler, static
from simfloat.studies import spread


def test_a_model_is_judged_in_double_precision_and_left_alone():
    problem = digits(seed=1, tiny=True)
    model = problem.model()
    with sf.simulate("bf16-standard"):
        model(problem.x[:1])
    before = {path: (value.dtype, value.tobytes()) for path, value in model.state_dict().items()}
    measured = problem.evaluate(model)
    assert {path: (value.dtype, value.tobytes()) for path, value in model.state_dict().items()} == before

    x, y = problem.test
    state = {path: value.astype(np.float64) for path, value in model.state_dict().items()}
    hidden = np.maximum(x.astype(np.float64) @ state["hidden.0.weight"].T + state["hidden.0.bias"], 0)
    scores = hidden @ state["head.weight"].T + state["head.bias"]
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]
    assert measured["loss"] == pytest.approx(losses.mean(), rel=1e-12)
    assert measured["accuracy"] == np.mean(scores.argmax(axis=1) == y)


def test_looking_at_a_run_changes_no_bit_of_it():
    problem = replace(synthetic(seed=0, tiny=True), steps=20)
    seldom = train(problem, sf.policies["bf16-stochastic"], seed=3, records=2)
    often = train(problem, sf.policies["bf16-stochastic"], seed=3, records=20)
    assert seldom["loss"] == [often["loss"][i] for i in (9, 19)]
    assert seldom["iteration"] == [10, 20] and often["iteration"] == list(range(1, 21))
    assert seldom["unchanged"][0] == pytest.approx(np.mean(often["unchanged"][:10]))
    assert seldom["start"] == often["start"] == problem.evaluate(problem.model())


def test_the_training_loop_is_a_users_own():
    problem = replace(synthetic(seed=0, tiny=True), steps=8)
    model, recorder = problem.model(), sf.Recorder()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.005)
    with sf.simulate("bf16-standard", seed=5, observer=recorder):
        for x, y in problem.batches(5):
            optimizer.zero_grad()
            sf.nn.mse_loss(model(x), y).backward()
            optimizer.step()
    result = train(problem, sf.policies["bf16-standard"], seed=5, records=1)
    counts = recorder.counts(path="weight", phase="update")
    assert result["loss"] == [problem.evaluate(model)["loss"]]
    assert result["unchanged"] == [counts["unchanged"] / counts["total"]]


def test_a_scaled_run_is_a_users_own_and_tells_of_every_step():
    problem = replace(digits(seed=0, tiny=True), steps=6)
    model, scaler = problem.model(), sf.optim.DynamicLossScale(2.0**24, growth_interval=2)
    optimizer, scales = problem.optimizer(model.parameters()), []
    with sf.simulate("fp16-master", seed=5):
        for x, y in problem.batches(5):
            optimizer.zero_grad()
            scaler.scale(problem.loss(model(x), y)).backward()
            scales.append(scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
    description = {"kind": "dynamic", "init_scale": 2.0**24, "growth_interval": 2}
    result = train(problem, sf.policies["fp16-master"], 5, 2, make_scaler(description))
    trace = result["trace"]
    assert result["loss"][-1] == problem.evaluate(model)["loss"] and trace["scale"] == scales
    halved = [after < before for before, after in zip(scales, scales[1:], strict=False)]
    assert trace["skipped"][:-1] == halved and sum(halved) >= 2
    assert result["scale"] == [scales[2], scales[5]]
    assert result["skipped"] == [np.mean(trace["skipped"][:3]), np.mean(trace["skipped"][3:])]
    assert {len(values) for values in trace.values()} == {6}
    assert np.isfinite(trace["largest"]).tolist() == [not skipped for skipped in trace["skipped"]]
    assert "trace" not in training_rows(result)[0] and training_rows(result)[0]["scale"] == scales[2]


def test_a_scale_travels_with_its_variant_and_stays_out_of_other_jobs():
    scaled = Variant("scaled", sf.policies["fp16-master"], "scaled", static(128.0))
    with_scale, without = training_jobs(["digits"], [scaled, FP32], Options(tiny=True, seeds=1))
    assert with_scale["scaler"] == {"kind": "static", "scale": 128.0} and "scaler" not in without
    assert run_training(PROBLEMS, {**with_scale, "steps": 1})["trace"]["scale"] == [128.0]
    with pytest.raises(ValueError, match="Unknown kind of loss scale 'constant'. Kinds: static, dynamic"):
        make_scaler({"kind": "constant", "scale": 2.0})


def test_a_given_recorder_counts_the_run_and_changes_no_bit_of_it():
    problem, recorder = replace(digits(seed=0, tiny=True), steps=4), sf.Recorder()
    policy = sf.policies["fp16-standard"]
    assert train(problem, policy, 3, 2, recorder=recorder) == train(problem, policy, 3, 2)
    assert sum(recorder.histogram("*weight", "backward").values()) == 4 * (64 * 32 + 32 * 10)


def test_every_policy_sees_the_same_batches_and_initial_weights():
    for make in PROBLEMS.values():
        first, second = make(7, True), make(7, True)
        batches = zip(first.batches(7), second.batches(7), strict=True)
        assert all((a[0] == b[0]).all() and (a[1] == b[1]).all() for a, b in batches)
        pairs = zip(first.model().state_dict().values(), second.model().state_dict().values(), strict=True)
        assert all((a == b).all() for a, b in pairs)


def test_jobs_and_results_are_plain_values_that_json_keeps():
    experiment = EXPERIMENTS["update-cancellation"]
    jobs = experiment.jobs(Options(tiny=True, seeds=1))
    kept = json.loads(json.dumps(jobs))
    assert kept == jobs
    for job in (kept[0], kept[-1]):
        result = experiment.run(job)
        assert json.loads(json.dumps(result)) == result == experiment.run(job)
        assert all(isinstance(row, dict) and row["seed"] == FIRST_SEED for row in experiment.metrics(result))


def test_jobs_differ_by_problem_policy_seed_and_size():
    jobs = EXPERIMENTS["update-cancellation"].jobs
    texts = [json.dumps(job, sort_keys=True) for tiny in (False, True) for job in jobs(Options(tiny, 2))]
    assert len(set(texts)) == len(texts) == 100


def test_the_rows_of_a_run_carry_its_curves():
    job = training_jobs(["diabetes"], [FP32], Options(tiny=True, seeds=1))[0]
    result = run_training(PROBLEMS, job)
    rows = training_rows(result)
    assert [row["loss"] for row in rows] == result["loss"] and len(rows) == 5
    assert {"problem", "variant", "label", "seed", "iteration", "loss", "unchanged"} <= set(rows[0])
    assert "policy" not in result and "start" not in rows[0]


def test_policies_of_the_experiment_are_known_by_key_and_survive_the_journey():
    for variant in [*VARIANTS, *THEOREMS]:
        assert sf.Policy.from_dict(json.loads(json.dumps(variant.policy.to_dict()))) == variant.policy
    assert len({variant.key for variant in VARIANTS}) == len({variant.label for variant in VARIANTS}) == 7


@pytest.mark.parametrize(
    "name, label", [("fp32", "fp32 (given)"), ("narrow", "narrow"), (None, "given"), ("given", "given")]
)
def test_a_given_policy_is_never_taken_for_the_reference(name, label):
    variants = given(sf.Policy(compute=sf.FP16, name=name), [FP32])
    assert [(variant.key, variant.label) for variant in variants] == [("fp32", "fp32"), ("given", label)]


def test_a_policy_that_fits_only_some_problems_names_one_that_it_does_not_fit():
    policy = sf.policies["bf16-standard"].override("head", compute=sf.FP32)
    check_policy({"digits": digits}, policy)
    with pytest.raises(ValueError, match="does not fit the problem synthetic: .*head"):
        check_policy({"digits": digits, "synthetic": synthetic}, policy)


def test_what_is_final_is_the_last_fifth_of_every_seed_in_order():
    runs = [{"problem": "p", "variant": "v", "seed": seed, "loss": [9.0] * 8 + [seed, seed + 2.0]} for seed in (1, 0)]
    assert final(runs, "p", "v").tolist() == [1.0, 2.0]
    assert spread(np.array([1.0, 3.0])) == "2.00 ± 1.41" and spread(np.array([1.5])) == "1.50"


def test_a_problem_is_judged_on_its_training_data_where_no_other_is_given():
    x, y = np.ones((4, 2)), np.full((4, 1), 3.0)
    problem = Problem(x, y, lambda: sf.nn.Linear(2, 1), sf.nn.mse_loss, lambda p: sf.optim.SGD(p, lr=0.1), 2, 3)
    model = problem.model()
    model.load_state_dict({"weight": np.ones((1, 2)), "bias": np.zeros(1)})
    assert problem.evaluate(model) == {"loss": 1.0}
