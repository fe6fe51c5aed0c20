"""The jobs: a search for each problem, and trainings of its answer and of the usual policies with other seeds."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import simfloat as sf
from experiments.cheapest_policy.problems import FORMATS, PARTS, TRAINED
from experiments.measurement import final_value
from experiments.options import Options
from experiments.training import train
from simfloat.studies import Job, Result
from simfloat.studies.search_parts import checked_parts, default_cost

#: The allowed loss of the answer, as a multiple of the FP32 loss.
WITHIN = 0.01

#: The policies that are compared with the answer; the first is the reference.
USUAL = ("fp32", "amp-bf16", "fp8-hybrid")

ANSWER = "answer"

#: The number of evaluations of a run: its loss is the mean of the last fifth.
RECORDS = 10


def jobs(options: Options) -> list[Job]:
    """Return a job for each problem and reported seed: the answer of the search and the usual policies."""
    problems = list(TRAINED)[: 1 if options.tiny else None]
    return [
        {"kind": "search", "problem": problem, "tiny": options.tiny, "seed": seed}
        for problem in problems
        for seed in options.seed_numbers
    ]


def run(job: Job) -> Result:
    """Return the result of the search, and a row for each policy, trained with this seed."""
    name, tiny = job["problem"], job["tiny"]
    found = searched(name, tiny)
    policies = {**{usual: sf.policies[usual] for usual in USUAL}, ANSWER: found.policy}
    cost = default_cost(checked_parts(parts_of(name, tiny)))
    rows = [
        {"policy": key, "cost": cost(policy), "loss": loss_of(name, tiny, policy, job["seed"])}
        for key, policy in policies.items()
    ]
    return {**job, **found_in(found), "rows": rows}


@cache
def searched(name: str, tiny: bool) -> sf.studies.Search:
    """Search on seeds that are not reported: once in each process."""
    formats, seeds, within = (["E4M3", "BF16"], range(2), 0.5) if tiny else (FORMATS, range(5), WITHIN)
    trained = partial(loss_of, name, tiny)
    return sf.search(trained, parts=parts_of(name, tiny), formats=formats, seeds=seeds, within=within)


def parts_of(name: str, tiny: bool) -> tuple[str, ...]:
    """Return the parts that are searched."""
    return PARTS[name][: 2 if tiny else None]


def loss_of(name: str, tiny: bool, policy: sf.Policy, seed: int) -> float:
    """Return the loss at the end of a training."""
    return final_value(train(TRAINED[name](seed, tiny), policy, seed, 2 if tiny else RECORDS)["loss"])


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each policy."""
    job = {key: result[key] for key in ("kind", "problem", "tiny", "seed")}
    return [{**job, **row} for row in result["rows"]]


def found_in(found: sf.studies.Search) -> dict[str, Any]:
    """Return the result of a search as plain values."""
    points = [{key: value for key, value in point._asdict().items() if key != "policy"} for point in found.points]
    return {
        "label": found.label,
        "within": found.within,
        "answer_cost": found.cost,
        "confirmation": found.confirmation._asdict() | {"seeds": list(found.confirmation.seeds)},
        "points": points,
        "trainings": found.trainings,
        "combinations": found.combinations,
        "answer_policy": found.policy.to_toml(),
    }
