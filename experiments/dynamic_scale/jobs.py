"""The jobs: training under loss scales that grow after 2000, 6 and 3 steps, and the statements."""

from __future__ import annotations

from typing import Any

from experiments.dynamic_scale.problems import PROBLEMS
from experiments.dynamic_scale.statements import measure_statements
from experiments.mixed_precision import FP32, with_scaler
from experiments.options import Options
from experiments.training import run_training, training_jobs, training_rows
from experiments.variants import Scaler, given
from simfloat.studies import Job, Result


def dynamic(interval: int, exponent: int = 16) -> Scaler:
    """Return a scale that starts at 2^exponent and doubles after `interval` steps without an overflow."""
    return {"kind": "dynamic", "init_scale": 2.0**exponent, "growth_interval": interval}


VARIANTS = [
    FP32,
    with_scaler("interval-2000", dynamic(2000), "growth after 2000 steps"),
    with_scaler("start-24", dynamic(2000, 24), "growth after 2000, from 2^24"),
    with_scaler("interval-6", dynamic(6), "growth after 6 steps"),
    with_scaler("interval-3", dynamic(3), "growth after 3 steps"),
]

#: For the model that needs a scale: it starts without one.
FROM_ONE = [
    FP32,
    *(with_scaler(f"from-1-{n}", dynamic(n, 0), f"from 1, growth after {n} steps") for n in (2000, 6, 3)),
]


def jobs(options: Options) -> list[Job]:
    """Return trainings under every scale for every seed, and the statements; or a given policy and fp32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    statements: list[Job] = [
        {"kind": "statements", "seed": seed, "tiny": options.tiny} for seed in options.seed_numbers
    ]
    trainings = [*training_jobs(["digits"], VARIANTS, options), *training_jobs(["regression"], FROM_ONE, options)]
    return [*trainings, *statements]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "statements":
        return {**job, **measure_statements(job["seed"], job["tiny"])}
    return run_training(PROBLEMS, job)


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each record of a run, one with the counts of the statements."""
    if result["kind"] == "statements":
        return [{**{key: result[key] for key in ("kind", "seed", "tiny", "steps")}, **result["counts"]}]
    return training_rows(result)
