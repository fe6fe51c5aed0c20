"""Does nearest rounding of the weight update stop training, and do its remedies help?"""

from __future__ import annotations

from typing import Any

from experiments.experiment import Experiment, Result
from experiments.update_cancellation.figures import figures
from experiments.update_cancellation.findings import findings
from experiments.update_cancellation.training import jobs, run


def metrics(result: Result) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl: one for each recorded iteration of a run, one for a check of theorem 1."""
    if result["kind"] == "theorem-1":
        return [result]
    same: dict[str, Any] = {
        key: result[key] for key in ("kind", "problem", "policy", "seed", "L", "mu") if key in result
    }
    curves = [key for key in ("iteration", "loss", "accuracy", "cancelled", "distance") if key in result]
    return [{**same, **{key: result[key][i] for key in curves}} for i in range(len(result["iteration"]))]


UPDATE_CANCELLATION = Experiment(
    name="update-cancellation",
    question="Does nearest rounding of the weight update stop training, and do its remedies help?",
    jobs=jobs,
    run=run,
    findings=findings,
    metrics=metrics,
    figures=figures,
)
