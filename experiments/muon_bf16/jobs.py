"""The jobs: the iteration in every precision compared with float64, and trainings with its updates."""

from __future__ import annotations

from typing import Any

import numpy as np

import simfloat as sf
from experiments.muon_bf16.iterations import COEFFICIENTS, PRECISIONS, STEPS, distance, draw, in_float64, iterate
from experiments.muon_bf16.problems import digits
from experiments.options import Options
from experiments.training import TINY_RECORDS, train
from simfloat.studies import Job, Result

#: Rows and columns of the matrices; those of a tiny run.
SIZES, TINY_SIZES = (16, 32, 64, 128), (8, 16)


def jobs(options: Options) -> list[Job]:
    """Return for each seed a job of iterations, and a training in each precision."""
    kinds = [
        {"kind": "iterations"},
        *({"kind": "training", "problem": "digits", "variant": name, "label": name} for name in PRECISIONS),
    ]
    return [{**kind, "seed": seed, "tiny": options.tiny} for kind in kinds for seed in options.seed_numbers]


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "iterations":
        return {**job, "rows": iteration_rows(job)}
    problem = digits(job["seed"], job["tiny"], job["variant"])
    records = TINY_RECORDS if job["tiny"] else problem.records
    return {**job, **train(problem, sf.policies["fp32"], job["seed"], records)}


def iteration_rows(job: Job) -> list[dict[str, Any]]:
    """Return the distances from orthogonal and from float64, by size, coefficients, steps and precision."""
    rows = []
    for size in TINY_SIZES if job["tiny"] else SIZES:
        g, orthogonal = draw(job["seed"], size)
        for name, coefficients in COEFFICIENTS.items():
            for steps in STEPS:
                expected = in_float64(g, steps, coefficients)
                for precision, where in PRECISIONS.items():
                    with np.errstate(all="ignore"):
                        x = iterate(g, steps, coefficients, where)
                    rows.append(
                        {
                            "size": size,
                            "coefficients": name,
                            "steps": steps,
                            "precision": precision,
                            "error": distance(x, orthogonal),
                            "change": distance(x, expected),
                        }
                    )
    return rows
