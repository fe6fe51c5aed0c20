"""The jobs: mixed precision training under both rules, and the effect of one overflow on the statistics."""

from __future__ import annotations

import numpy as np

from experiments.lognormal_scaling.problems import PROBLEMS
from experiments.mixed_precision import FP32, with_scaler
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.optim import LogNormalLossScale
from simfloat.studies import Job, Result

#: Backoff grows after this number of steps without an overflow: a twentieth of the default, because runs are short.
WINDOW = 100

#: Steps of a run in which only overflows are counted.
LONG = 8000

#: Above every scale that fits.
LARGEST = 2.0**24

VARIANTS: tuple[Variant, ...] = (
    FP32,
    with_scaler(
        "backoff",
        {"kind": "dynamic", "init_scale": LARGEST, "max_scale": LARGEST, "min_scale": 1.0, "growth_interval": WINDOW},
        "Backoff",
    ),
    with_scaler("log-normal", {"kind": "log-normal", "max_scale": LARGEST}, "LogNormal, up to 2^24"),
    with_scaler("default", {"kind": "log-normal"}, "LogNormal, as it comes"),
)

#: The value that counts for an overflow: the logarithm, which is right, and the value in the code.
COUNTED = {"logarithm": 16.0, "number": 2.0**16}

#: Steps before the one overflow, and the largest number of steps until the scale leaves 1.
BEFORE, MOST_STEPS = 1000, 20_000


def jobs(options: Options) -> list[Job]:
    """Return trainings under every rule for every seed, and single overflows; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    overflows = [{"kind": "overflow", "seed": seed} for seed in options.seed_numbers]
    return [*training_jobs(PROBLEMS, VARIANTS, options), *overflows, *long_runs(options)]


def long_runs(options: Options) -> list[Job]:
    """Return long trainings under LogNormal, in which only overflows are counted."""
    variant = next(each for each in VARIANTS if each.key == "log-normal")
    jobs = training_jobs(PROBLEMS, [variant], options)
    return [{**job, "kind": "long", "steps": 20 if options.tiny else LONG} for job in jobs]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "overflow":
        return {**job, **{name: steps_at_one(job["seed"], counted) for name, counted in COUNTED.items()}}
    if job["kind"] == "long":
        skipped = run_training(PROBLEMS, job)["trace"]["skipped"]
        known = {key: job[key] for key in ("kind", "problem", "variant", "label", "seed", "tiny", "steps")}
        return {**known, "skipped": int(sum(skipped))}
    return run_training(PROBLEMS, job)


def steps_at_one(seed: int, counted: float) -> int:
    """Return the number of steps for which one overflow keeps the scale at 1, if the largest gradient is about 2^5."""
    rng = np.random.default_rng(seed)
    scaler = LogNormalLossScale(overflow=counted)
    for _ in range(BEFORE):
        scaler.adapt(True, 2.0 ** rng.normal(5, 1))
    scaler.adapt(False, np.inf)
    for step in range(MOST_STEPS):
        if scaler.get_scale() > 1:
            return step
        scaler.adapt(True, 2.0 ** rng.normal(5, 1))
    return MOST_STEPS
