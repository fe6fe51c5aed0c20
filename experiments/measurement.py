"""Values from results, seed by seed: the ends of curves, and rows that jobs list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.training import training_rows
from simfloat.policy import Policy
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import MATCH, compare

#: "final" is the mean of this part of a run, at its end.
FINAL = 0.2


def select(results: Sequence[Result], **fields: object) -> list[Result]:
    """Return the results whose fields have these values."""
    return [result for result in results if all(result.get(key) == value for key, value in fields.items())]


def final(results: Sequence[Result], problem: str, variant: str, key: str = "loss") -> NDArray[np.float64]:
    """Return the mean of the last fifth of a curve, for every seed in order."""
    runs = sorted(select(results, problem=problem, variant=variant), key=lambda run: run["seed"])
    return np.array([final_value(run[key]) for run in runs], np.float64)


def final_value(curve: Sequence[float]) -> float:
    """Return the mean of the last fifth of a curve."""
    return float(np.mean(curve[-max(1, int(FINAL * len(curve))) :]))


def refuse_policy(policy: Policy) -> None:
    """Raise ValueError: no model is trained, so a policy has no use."""
    raise ValueError("This experiment accepts no policy: it compares sums and roundings. Leave out --policy.")


def measured_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl of a job that lists its measurements as "rows", each with the job's fields."""
    job = {key: value for key, value in result.items() if key != "rows"}
    return [{**job, **row} for row in result["rows"]]


def metric_rows(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl of a job that lists "rows", that trains, or that is a row itself."""
    if "rows" in result:
        return measured_rows(result)
    return training_rows(result) if "iteration" in result else [result]


def over_seeds(results: Sequence[Result], key: str, **where: object) -> NDArray[np.float64]:
    """Return the measurement `key` of the row with these fields, one for each seed in the order of the seeds."""
    jobs = [job for job in results if all(job.get(name, value) == value for name, value in where.items())]
    rows = sorted((row for job in jobs for row in measured_rows(job)), key=lambda row: row["seed"])
    return np.array([row[key] for row in select(rows, **where)], np.float64)


def largest(results: Sequence[Result], key: str) -> Any:
    """Return the largest value of a field in all rows."""
    return max(row[key] for result in results for row in measured_rows(result))


def table_over_seeds(
    results: Sequence[Result], key: str, along: str, **where: object
) -> tuple[NDArray, NDArray[np.float64]]:
    """Return the values of `along` (points,), ascending, and the measurement at each of them (seeds, points)."""
    rows = select([row for result in results for row in measured_rows(result)], **where)
    places = sorted({row[along] for row in rows})
    values = [over_seeds(results, key, **where, **{along: place}) for place in places]
    return np.array(places), np.array(values).T


def against_fp32(results: Sequence[Result], problems: Iterable[str]) -> list[Finding]:
    """Return one finding for each problem, from runs under "given" and "fp32"; none without a policy of the user."""
    given = {problem: select(results, problem=problem, variant="given") for problem in problems}
    return [comes_close(results, problem, runs[0]["label"]) for problem, runs in given.items() if runs]


@claim("{problem}: {label} comes close to fp32", f"loss / fp32's loss within a factor of {MATCH}")
def comes_close(results: Sequence[Result], problem: str, label: str) -> Measured:
    """Test if the policy of the user trains as well as fp32."""
    loss, fp32 = final(results, problem, "given"), final(results, problem, "fp32")
    return spread(loss / fp32, 3), compare(loss, fp32)
