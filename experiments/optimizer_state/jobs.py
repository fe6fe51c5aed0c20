"""The jobs: the second moment with every format, and trainings."""

from __future__ import annotations

from experiments.optimizer_state.policies import VARIANTS
from experiments.optimizer_state.problems import PROBLEMS
from experiments.optimizer_state.stall import DEFAULT, NEXT_TO_ONE, follow_moment
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

#: The formats for a memory of 1000 steps, and for a shorter one.
LONG, SHORT = tuple(variant.key for variant in VARIANTS), ("fp32", "bf16")


def jobs(options: Options) -> list[Job]:
    """Return the moment and all trainings for every seed; or trainings under a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, VARIANTS[:1]), options)
    return [
        *(_moment(variant, DEFAULT, seed, options.tiny) for variant in chosen(LONG) for seed in options.seed_numbers),
        *(
            _moment(variant, NEXT_TO_ONE, seed, options.tiny)
            for variant in chosen(SHORT)
            for seed in options.seed_numbers
        ),
        *training_jobs(["long-memory"], chosen(LONG), options),
        *training_jobs(["short-memory"], chosen(SHORT), options),
    ]


def chosen(keys: tuple[str, ...]) -> list[Variant]:
    """Return the variants with these keys."""
    return [variant for variant in VARIANTS if variant.key in keys]


def _moment(variant: Variant, beta2: float, seed: int, tiny: bool) -> Job:
    known = {"variant": variant.key, "label": variant.label, "policy": variant.policy.to_dict()}
    return {"kind": "moment", "problem": f"beta2 {beta2}", **known, "beta2": beta2, "seed": seed, "tiny": tiny}


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "training":
        return run_training(PROBLEMS, job)
    return {**{key: value for key, value in job.items() if key != "policy"}, "rows": follow_moment(job)}
