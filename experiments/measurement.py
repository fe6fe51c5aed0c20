"""What experiments on sums and roundings by themselves have in common, where many numbers come from a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Result
from experiments.statistics import select
from experiments.training import training_rows
from simfloat.policy import Policy


def refuse_policy(policy: Policy) -> None:
    """ValueError: no model is trained that a policy could be for."""
    raise ValueError("A policy is of no use here: sums and roundings are compared by themselves. Leave out --policy.")


def measured_rows(result: Result) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl of a job that lists its measurements as "rows": one each, with the job's fields."""
    job = {key: value for key, value in result.items() if key != "rows"}
    return [{**job, **row} for row in result["rows"]]


def metric_rows(result: Result) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl of a job that trains, that lists its measurements as "rows", or that is one itself."""
    if result["kind"] == "training":
        return training_rows(result)
    return measured_rows(result) if "rows" in result else [result]


def over_seeds(results: Sequence[Result], key: str, **where: object) -> NDArray[np.float64]:
    """The measurement `key` of the row with these fields, one for each seed in the order of the seeds."""
    jobs = [job for job in results if all(job.get(name, value) == value for name, value in where.items())]
    rows = sorted((row for job in jobs for row in measured_rows(job)), key=lambda row: row["seed"])
    return np.array([row[key] for row in select(rows, **where)], np.float64)


def table_over_seeds(
    results: Sequence[Result], key: str, along: str, **where: object
) -> tuple[NDArray, NDArray[np.float64]]:
    """The values of `along` (points,), ascending, and the measurement at each of them (seeds, points)."""
    rows = select([row for result in results for row in measured_rows(result)], **where)
    places = sorted({row[along] for row in rows})
    values = [over_seeds(results, key, **where, **{along: place}) for place in places]
    return np.array(places), np.array(values).T
