"""The jobs: every problem under every fixed policy and every rule, with a dynamic loss scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import simfloat as sf
from experiments.layer_switching.policies import GROWTH_INTERVAL, VARIANTS, Switched
from experiments.layer_switching.problems import PROBLEMS
from experiments.options import Options
from experiments.training import TINY_RECORDS, run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

FP32 = Variant("fp32", sf.policies["fp32"], "fp32")


def jobs(options: Options) -> list[Job]:
    """Return a run for each problem, rule and seed; or a given policy and fp32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    return [
        {
            "kind": "switching",
            "problem": problem,
            "variant": variant.key,
            "label": variant.label,
            "seed": seed,
            "tiny": options.tiny,
        }
        for problem, variants in VARIANTS.items()
        for variant in variants
        for seed in options.seed_numbers
    ]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "training":
        return run_training(PROBLEMS, job)
    variant = next(each for each in VARIANTS[job["problem"]] if each.key == job["variant"])
    return {**job, **train_switched(variant, job)}


def train_switched(variant: Switched, job: Job) -> Result:
    """Return the curves of a run; "trace" has for every step the loss scale, and whether it was skipped and in FP8."""
    problem, seed = PROBLEMS[job["problem"]](job["seed"], job["tiny"]), job["seed"]
    model = problem.model()
    start = problem.evaluate(model)
    with sf.simulate(variant.first, seed=seed, observer=sf.Recorder()) as simulation:
        history = sf.train.fit(
            model,
            problem.loss,
            problem.batches(seed),
            problem.optimizer(model.parameters()),
            scaler=sf.optim.DynamicLossScale(growth_interval=GROWTH_INTERVAL),
            switching=variant.switching(model, problem.steps),
            evaluate=problem.evaluate,
            evaluate_every=max(1, problem.steps // (TINY_RECORDS if job["tiny"] else problem.records)),
            progress=False,
        )
    curves = dict(history.evaluations)
    trace = {"scale": history["scale"], "skipped": history["skipped"]}
    trace["narrow"] = in_narrow(variant, simulation.switches, history.steps)
    return {"start": start, "iteration": curves.pop("step"), **curves, "trace": trace}


def in_narrow(variant: Switched, switches: Sequence[Any], steps: int) -> list[bool]:
    """Return if each step used the narrow policy of the variant; switches record the step after which they came."""
    found = [variant.first == variant.narrow] * steps
    for switch in switches:
        after = steps if switch.step is None else switch.step
        found[after:] = [switch.policy == variant.narrow] * (steps - after)
    return found
