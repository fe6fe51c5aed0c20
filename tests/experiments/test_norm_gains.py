"""Gains in MXFP8, and arms in FP4: saturation by each rule, gradients of rounded gains, and claims on made-up runs."""

import numpy as np

import simfloat as sf
from experiments.catalog import EXPERIMENTS
from experiments.fp4_factorial import findings as fp4
from experiments.fp4_factorial import jobs as fp4_jobs
from experiments.measurement import final_value
from experiments.norm_gains.findings import findings
from experiments.norm_gains.jobs import ARMS, RULES, largest_rise, policy, run, share_saturated
from experiments.norm_gains.model import Student, in_blocks
from experiments.readme import folder_of
from simfloat.studies import read_stored
from simfloat.studies.verdicts import BETTER, INCONCLUSIVE, NOT_REPRODUCED, REPRODUCED, WORSE


def test_gains_just_below_a_power_of_two_saturate_only_if_scales_are_rounded_down():
    shares = {rule: [share_saturated(np.full(32, gain), rule) for gain in (0.95, 0.98, 1.0)] for rule in RULES}
    assert shares == {"floor": [1, 1, 0], "even": [1, 0, 0], "ceil": [0] * 3, "rceil": [0] * 3}


def test_rounded_gains_pass_their_gradient_through():
    gains = sf.Parameter(np.full(32, 0.97))
    with sf.simulate("fp32"):
        rounded = in_blocks(gains, rule="floor")
        (rounded * np.arange(32.0)).sum().backward()
    assert (rounded.data == 0.875).all() and (gains.grad == np.arange(32)).all()


def test_operands_in_mxfp8_and_gains_are_rounded_where_the_arm_says():
    x = np.random.default_rng(0).standard_normal((2, 64))
    outputs = {}
    for arm, (operands, gains) in ARMS.items():
        with sf.simulate(policy(operands)), sf.no_grad():
            outputs[arm] = Student(0, gains)(x).data
    assert (outputs["floor"] == outputs["floor, gains in FP32"]).all(), "gains of 1 are exact"
    assert len({output.tobytes() for output in outputs.values()}) >= 3
    assert largest_rise([4.0, 2.0, 3.0, 1.0]) == 1.5


def test_a_run_in_fp32_measures_the_gradient_of_every_rule():
    result = run({"arm": "fp32", "seed": 3, "tiny": True})
    assert len(result["loss"]) == 2
    assert all(0 < result[f"cosine_{rule}"] <= 1 for rule in RULES)


def made_up(floor, remedy):
    """Runs of six seeds with these losses of the floor rule and of its remedies, relative to FP32."""
    sizes = {"fp32": 1.0, "floor": floor, "even": remedy, "rceil": remedy, "floor, gains in FP32": remedy}
    gradients = {f"{key}_{rule}{end}": 0.9 if (rule, end) == ("floor", "") else 0.99
                 for key in ("cosine", "bias") for rule in RULES for end in ("", "_without_gains")}  # fmt: skip
    return [
        {"arm": arm, "seed": seed, "loss": [size * (1 + 1e-3 * ((7 * seed + len(arm)) % 3))], "rise": 1.2 + seed / 99}
        | {"gain": [0.94], **{f"saturated_{rule}": [0.8 + seed / 99 if rule == "floor" else 0.0] for rule in RULES}}
        | ({**{key: value - seed / 999 for key, value in gradients.items()}, "active_floor": 5e-3 + seed / 1e4}
           if arm == "fp32" else {})
        for arm, size in sizes.items()
        for seed in range(6)
    ]  # fmt: skip


def test_a_gap_that_remedies_close_is_told_from_one_that_stays_and_from_none():
    closed, stays, none = (
        [found.verdict for found in findings(made_up(*sizes))] for sizes in ((1.02, 1.0), (1.02, 1.02), (1.0, 1.0))
    )
    assert closed[:3] == [REPRODUCED] * 3 and closed[6:10] == [REPRODUCED] * 4
    assert stays[7:10] == [NOT_REPRODUCED] * 3 and none[7:10] == [INCONCLUSIVE] * 3
    assert closed[10] == NOT_REPRODUCED


def test_arms_in_fp4_differ_in_one_factor_and_main_effects_are_found():
    policies = {name: arm.policy for name, arm in fp4_jobs.ARMS.items() if arm is not None}
    assert len(policies) == 12 and len({policy.to_toml() for policy in policies.values()}) == 12
    results = [
        {"arm": name, "seed": seed}
        | {"loss": [1 + (0.02 if arm and arm.format == "MXFP4" and not arm.is_stochastic else 0) + (seed % 4) / 1e4]}
        for name, arm in fp4_jobs.ARMS.items()
        for seed in range(6)
    ]
    # In these made-up results, the formats are equal at the best rate.
    tuned = [
        {**run, "rate": 0.01, "loss": [1 + run["seed"] / 1e4]}
        for run in results
        if run["arm"] in ("FP32", "MXFP4", "NVFP4")
    ]
    first, at_best_rate, *others = [finding.verdict for finding in fp4.findings(results + tuned)]
    assert (first, at_best_rate) == (REPRODUCED, NOT_REPRODUCED)
    assert others[0] == NOT_REPRODUCED and others[2] == others[4] == REPRODUCED
    assert others[5] == REPRODUCED and others[6] == NOT_REPRODUCED and not {BETTER, WORSE} & set(others)


def test_the_tuned_rate_of_arms_in_fp4_is_the_best_of_the_stored_runs():
    stored = read_stored(folder_of(EXPERIMENTS["fp4-factorial"]) / "results.parquet")
    losses = {arm: {} for arm in fp4_jobs.TUNED_ARMS}
    for each in stored:
        if "chooser" in each:
            losses[each["arm"]][each["rate"]] = final_value(each["loss"])
    best = {arm: min(by_rate, key=by_rate.get) for arm, by_rate in losses.items()}
    tuned = fp4_jobs.TUNED_RATE
    assert best["FP32"] == best["MXFP4"] == tuned and not {min(losses["FP32"]), max(losses["FP32"])} & {tuned}
    assert 1 < losses["NVFP4"][tuned] / losses["NVFP4"][best["NVFP4"]] < 1.002
