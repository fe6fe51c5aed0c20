"""One run of a problem under a policy, and the jobs that are such runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import simfloat as sf
from experiments.options import Options
from experiments.problem import Problem
from experiments.variants import Variant, make_scaler
from simfloat.optim import LossScale
from simfloat.studies import Job, Result
from simfloat.train.step import TrainingStep

#: How often a tiny run is looked at.
TINY_RECORDS = 5

#: What a job may have in place of its problem's.
SIZES = ("steps", "batch")

#: What is kept of every step where the loss is scaled.
TRACED = ("scale", "skipped", "largest")

#: Problems by name: each is made from a seed, and whether it is to be tiny.
Problems = Mapping[str, Callable[[int, bool], Problem]]


def training_jobs(problems: Iterable[str], variants: Iterable[Variant], options: Options) -> list[Job]:
    """A run of every problem under every policy from every seed."""
    variants = list(variants)
    return [
        {
            "kind": "training",
            "problem": problem,
            "variant": variant.key,
            "label": variant.label,
            "policy": variant.policy.to_dict(),
            "seed": seed,
            "tiny": options.tiny,
            **({"scaler": dict(variant.scaler)} if variant.scaler else {}),
        }
        for problem in problems
        for variant in variants
        for seed in options.seed_numbers
    ]


def run_training(problems: Problems, job: Job, recorder: sf.Recorder | None = None) -> Result:
    """Carry out one of these jobs: its fields, but for the policy's, and the curves of the run."""
    sizes = {size: job[size] for size in SIZES if size in job}
    problem = replace(problems[job["problem"]](job["seed"], job["tiny"]), **sizes)
    policy, scaler = sf.Policy.from_dict(job["policy"]), make_scaler(job["scaler"]) if "scaler" in job else None
    known = {key: value for key, value in job.items() if key != "policy"}
    records = TINY_RECORDS if job["tiny"] else problem.records
    return {**known, **train(problem, policy, job["seed"], records, scaler, recorder)}


def train(
    problem: Problem,
    policy: sf.Policy,
    seed: int,
    records: int,
    scaler: LossScale | None = None,
    recorder: sf.Recorder | None = None,
) -> Result:
    """What the problem measures and the share of weights that steps left unchanged, `records` times during the run.

    "unchanged" counts, since the record before, the weights that an update other than zero left as they were. "start"
    holds the measures before the first step. With a loss scale, "scale" is that of the last step, "skipped" the share
    of steps that were skipped since the record before, and "trace" has a list of each with a value for every step,
    beside that of the largest magnitude of the unscaled gradients.

    A recorder may be given to be read afterwards; it must count the updates of weights.
    """
    model = problem.model()
    step = training_step(problem, model, scaler)
    recorder = recorder or sf.Recorder(path="*weight", phase="update")
    every = max(1, problem.steps // records)
    rows, history = [], []
    start, seen = problem.evaluate(model), {"unchanged": 0, "total": 0}
    with sf.simulate(policy, seed=seed, observer=recorder):
        for iteration, batch in enumerate(problem.batches(seed), 1):
            history.append(step.make_step([batch]) | ({"largest": _largest(model)} if scaler else {}))
            if iteration % every == 0:
                before, seen = seen, recorder.counts("*weight", "update")
                share = (seen["unchanged"] - before["unchanged"]) / max(1, seen["total"] - before["total"])
                rows.append({"iteration": iteration, **problem.evaluate(model), "unchanged": share})
                rows[-1] |= _scaling(history[-every:]) if scaler else {}
    trace = {"trace": {key: [row[key] for row in history] for key in TRACED}} if scaler else {}
    return {"start": start, **trace, **{key: [row[key] for row in rows] for key in rows[0]}}


def training_step(problem: Problem, model: sf.nn.Module, scaler: LossScale | None = None) -> TrainingStep:
    """What takes a batch of the problem and makes a step of the model with it."""
    optimizer = problem.optimizer(model.parameters())
    return TrainingStep(model, problem.loss, optimizer, scaler=scaler, clip=None, accumulation=1, metrics={})


def _largest(model: sf.nn.Module) -> float:
    """The largest magnitude in the gradients of all parameters; NaN if one of them is."""
    return float(np.max([np.abs(p.grad).max() for p in model.parameters() if p.grad is not None]))


def _scaling(steps: list[dict[str, Any]]) -> dict[str, float]:
    """What a record tells of the scale in these steps."""
    return {"scale": steps[-1]["scale"], "skipped": sum(row["skipped"] for row in steps) / len(steps)}


def training_rows(result: Result) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl of such a run: one for each record."""
    same = {key: value for key, value in result.items() if not isinstance(value, (list, dict))}
    curves = {key: value for key, value in result.items() if isinstance(value, list)}
    return [{**same, **dict(zip(curves, row, strict=True))} for row in zip(*curves.values(), strict=True)]


def check_policy(problems: Problems, policy: sf.Policy) -> None:
    """Make one step of every problem: ValueError naming the problem that cannot be trained under the policy."""
    for name, problem in problems.items():
        made = replace(problem(0, True), steps=1)  # data that are missing are no fault of the policy
        try:
            train(made, policy, seed=0, records=1)
        except ValueError as error:
            raise ValueError(f"The policy does not fit the problem {name}: {error}") from None
