"""The common axes of experiments that train: policies, formats, accumulators, seeds and sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import simfloat as sf
from experiments.grid import Axis, Grid
from experiments.measurement import final_value
from experiments.options import FIRST_SEED, named_policy
from experiments.problem import Problem
from experiments.training import SIZES, Problems, check_policy
from experiments.variants import static
from simfloat.policy.roles import ROLES
from simfloat.policy.text import text_of, value_of
from simfloat.studies import Job, Result

#: The largest seed and the largest size.
MOST = 2**32 - 1

#: The seed of a sweep without seeds: one of the reported ones.
SEEDS = (str(FIRST_SEED),)


def training_grid(problems: Problems) -> Grid:
    """Return a sweep over runs of these problems; its rows have the mean of the last fifth of each curve."""
    return Grid(training_axes(tuple(problems)), training_job, final_measures, partial(check_jobs, problems))


def training_axes(problems: tuple[str, ...]) -> tuple[Axis, ...]:
    """Return the axes: problem, policy, seed, every role of a policy, the loss scale, and the sizes of a run."""
    return (
        Axis("problem", f"one of {', '.join(problems)} (default all)", partial(_one_of, problems), problems),
        Axis("policy", "the name of a preset, or a FILE.toml (default fp32)", named_policy, ("fp32",)),
        *(Axis(role, f"replaces that of the policy: {row.meaning}", _reader(role)) for role, row in ROLES.items()),
        Axis("loss_scale", "a constant by which the loss is scaled (default none)", _scale),
        Axis("steps", "the number of training steps", partial(count, least=1)),
        Axis("batch", "the number of samples per step", partial(count, least=1)),
        Axis("seed", f"of data, initial weights and all randomness (default {SEEDS[0]})", count, SEEDS),
    )


def training_job(values: Mapping[str, Any], tiny: bool) -> Job:
    """Return the run of a point. Raises ValueError if the policy cannot have the replaced formats or accumulators."""
    roles = {role: values[role] for role in ROLES if role in values}
    policy = {**values["policy"].to_dict(), **roles}
    label = ", ".join([values["policy"].name, *(f"{role}={text}" for role, text in roles.items())])
    try:
        sf.Policy.from_dict(policy)
    except ValueError as error:
        raise ValueError(f"The point {label} is not a valid policy: {error}") from None
    sizes = {size: values[size] for size in SIZES if size in values}
    scaler = {"scaler": static(values["loss_scale"])} if "loss_scale" in values else {}
    same = {"kind": "training", "problem": values["problem"], "label": label, "policy": policy}
    return {**same, "seed": values["seed"], "tiny": tiny, **sizes, **scaler}


def final_measures(result: Result) -> dict[str, float]:
    """Return the mean of the last fifth of each curve of a run."""
    return {key: final_value(curve) for key, curve in result.items() if isinstance(curve, list) and key != "iteration"}


def check_jobs(problems: Problems, jobs: Sequence[Job]) -> None:
    """Make one step of every problem under each of its policies."""
    cases = {json.dumps([job["problem"], job["policy"]]): job for job in jobs}
    for job in cases.values():
        _check(job, problems[job["problem"]])


def _check(job: Job, problem: Callable[[int, bool], Problem]) -> None:
    try:
        check_policy({job["problem"]: problem}, sf.Policy.from_dict(job["policy"]))
    except ValueError as error:
        raise ValueError(f"{job['label']}: {error}") from None


def count(text: str, least: int = 0) -> int:
    """Return a nonnegative integer from its digits."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) else -1
    if not least <= value <= MOST:
        raise ValueError(f"expected an integer from {least} to {MOST}.")
    return value


def _scale(text: str) -> float:
    try:
        return sf.optim.StaticLossScale(float(text)).get_scale()
    except ValueError:
        raise ValueError("expected a positive number that float32 has, such as 1024.") from None


def _one_of(names: tuple[str, ...], text: str) -> str:
    if text not in names:
        raise ValueError(f"expected one of {', '.join(names)}.")
    return text


def _reader(role: str) -> Callable[[str], str | bool]:
    """Return a reader of a role's value: it returns the shortest text, so that two spellings of a value are equal."""

    def read(text: str) -> str | bool:
        try:
            value = value_of(role, {"true": True, "false": False}.get(text.lower(), text))
        except ValueError as error:
            raise ValueError(str(error).removeprefix(f"{role}: ")) from None
        return value if isinstance(value, bool) else text_of(role, value)

    return read
