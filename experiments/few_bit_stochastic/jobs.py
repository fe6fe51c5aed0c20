"""The jobs: every draw of every fraction, long sums, and trainings."""

from __future__ import annotations

from typing import Any

from experiments.few_bit_stochastic.bias import measure_bias
from experiments.few_bit_stochastic.sums import measure_sums
from experiments.few_bit_stochastic.updates import BITS, TINY_BITS, measure_training
from experiments.options import Options
from simfloat.studies import Job, Result

#: Variants for training: the one that is simplest in hardware, and the one without bias.
TRAINED = ("A", "C")


def jobs(options: Options) -> list[Job]:
    """Return the bias once, and sums and trainings for every seed."""
    seeds, tiny = options.seed_numbers, options.tiny
    return [
        {"kind": "bias", "seed": seeds[0], "tiny": tiny},
        *({"kind": "sums", "seed": seed, "tiny": tiny} for seed in seeds),
        *({"kind": "training", "mode": "nearest", "bits": 0, "seed": seed, "tiny": tiny} for seed in seeds),
        *(
            {"kind": "training", "mode": variant, "bits": bits, "seed": seed, "tiny": tiny}
            for variant in TRAINED
            for bits in (TINY_BITS if tiny else BITS)
            for seed in seeds
        ),
    ]


def run(job: Job) -> Result:
    """Run a job."""
    return {**job, "rows": ROWS[job["kind"]](job)}


def _training(job: Job) -> list[dict[str, Any]]:
    return [measure_training(job)]


ROWS = {"bias": lambda job: measure_bias(job["tiny"]), "sums": measure_sums, "training": _training}
