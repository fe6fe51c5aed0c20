"""One run of a problem under a policy, and the jobs that consist of such runs."""

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

#: The number of evaluations of a tiny run.
TINY_RECORDS = 5

#: The fields with which a job may replace those of its problem.
SIZES = ("steps", "batch")

#: The values that are recorded for every step if the loss is scaled.
TRACED = ("scale", "skipped", "largest")

#: Problems by name: functions of a seed, and of whether the problem is tiny.
Problems = Mapping[str, Callable[[int, bool], Problem]]


def training_jobs(problems: Iterable[str], variants: Iterable[Variant], options: Options) -> list[Job]:
    """Return a run of every problem under every policy for every seed."""
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
    """Run one of these jobs, and return its fields, except for those of the policy, with the curves of the run."""
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
    """Return the measures of the problem and the share of weights that steps left unchanged, `records` times in a run.

    "unchanged" counts, since the last record, the weights that a nonzero update left unchanged. "start" has the
    measures before the first step. With a loss scale, "scale" is that of the last step and "skipped" the share of
    steps that were skipped since the last record. "trace" then has lists with a value for every step: both of these,
    and the largest magnitude of the unscaled gradients.

    Pass a recorder to read it afterwards; it must count the updates of weights.
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
    """Return a function that makes a step of the model with a batch of the problem."""
    optimizer = problem.optimizer(model.parameters())
    return TrainingStep(model, problem.loss, optimizer, scaler=scaler, clip=None, accumulation=1, metrics={})


def _largest(model: sf.nn.Module) -> float:
    """Return the largest magnitude in the gradients of all parameters; NaN if one of them is NaN."""
    return float(np.max([np.abs(p.grad).max() for p in model.parameters() if p.grad is not None]))


def _scaling(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Return the values of a record about the scale in these steps."""
    return {"scale": steps[-1]["scale"], "skipped": sum(row["skipped"] for row in steps) / len(steps)}


def training_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl of such a run: one for each record."""
    same = {key: value for key, value in result.items() if not isinstance(value, (list, dict))}
    curves = {key: value for key, value in result.items() if isinstance(value, list)}
    return [{**same, **dict(zip(curves, row, strict=True))} for row in zip(*curves.values(), strict=True)]


def check_policy(problems: Problems, policy: sf.Policy) -> None:
    """Make one step of every problem; raise ValueError with the problem that cannot be trained under the policy."""
    for name, problem in problems.items():
        made = replace(problem(0, True), steps=1)  # missing data are not an error of the policy
        try:
            train(made, policy, seed=0, records=1)
        except ValueError as error:
            raise ValueError(f"The policy does not fit the problem {name}: {error}") from None
