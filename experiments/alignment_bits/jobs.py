"""The jobs: sums of every length, and the GPT in every width, by Hopper's units and in FP32."""

from __future__ import annotations

from dataclasses import replace

import simfloat as sf
from experiments.alignment_bits.problems import PROBLEMS
from experiments.alignment_bits.sums import DATA, measure_sums
from experiments.options import Options
from experiments.training import run_training, training_jobs
from experiments.variants import Variant, given
from simfloat.studies import Job, Result

HOPPER = Variant("hopper", sf.policies["fp8-hopper"], "Hopper's sums")

#: The same operands, summed in FP32.
FP32 = Variant("fp32", replace(sf.policies["fp8-hopper"], accumulate=sf.FP32, name="fp8, FP32 sums"), "FP32 sums")


def jobs(options: Options) -> list[Job]:
    """Return sums of either kind and a training in each width for every seed; or a given policy and FP32 sums."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    sums: list[Job] = [
        {"kind": "sums", "data": data, "seed": seed, "tiny": options.tiny}
        for data in DATA
        for seed in options.seed_numbers
    ]
    return [*sums, *training_jobs(PROBLEMS, [FP32, HOPPER], options)]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "sums":
        return {**job, "rows": measure_sums(job["data"], job["seed"], job["tiny"])}
    return run_training(PROBLEMS, job)
