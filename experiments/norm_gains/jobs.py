"""The jobs: a student of a teacher is trained under each rule for scales, and its gains and gradients are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.norm_gains.model import SIZE, WIDTH, Student, taught
from experiments.options import Options
from simfloat.studies import Job, Result

#: Rules for scales of MX blocks.
RULES = ("floor", "even", "ceil", "rceil")

#: The rules of operands and of gains by the name of the arm; None is FP32.
ARMS: dict[str, tuple[str | None, str | None]] = {
    "fp32": (None, None),
    **{rule: (rule, rule) for rule in ("floor", "even", "rceil")},
    "floor, gains in FP32": ("floor", None),
}

#: Steps of AdamW, in a tiny run too; its rate and decay; and the examples of a batch.
STEPS, TINY_STEPS, RATE, DECAY, BATCH = 200, 2, 3e-3, 0.2, 64

#: The number of held-out examples, and in a tiny run.
HELD_OUT, TINY_HELD_OUT = 256, 16

#: The number of times that the gains are measured in a run.
RECORDS = 10


def jobs(options: Options) -> list[Job]:
    """Return every arm for every seed."""
    return [{"arm": arm, "seed": seed, "tiny": options.tiny} for arm in ARMS for seed in options.seed_numbers]


def policy(rule: str | None) -> sf.Policy:
    """Return FP32 throughout, with operands of products in MXFP8 if there is a rule for their scales."""
    if rule is None:
        return sf.Policy(compute=sf.FP32)
    operands = sf.scaled(sf.E4M3, sf.block(SIZE, sf.E8M0, rule=rule))
    return sf.Policy(compute=operands, weights=sf.FP32, activations=sf.FP32)


def run(job: Job) -> Result:
    """Train the student of a seed under an arm; return its losses, and shares of saturated gains by step."""
    seed, steps = job["seed"], TINY_STEPS if job["tiny"] else STEPS
    operands, gains = ARMS[job["arm"]]
    student, teacher = Student(seed, gains), taught(seed)
    x = held_out_inputs(seed, job["tiny"])
    optimizer = sf.optim.AdamW(student.parameters(), lr=RATE, weight_decay=DECAY)
    every, losses, held_out, saturated, means = max(1, steps // RECORDS), [], [], [], []
    for step, batch in enumerate(batches(seed, steps), 1):
        optimizer.zero_grad()
        with sf.simulate(policy(operands), seed=seed):
            loss = loss_of(student, teacher, batch)
            loss.backward()
            optimizer.step()
        losses.append(float(loss.item()))
        if step % every == 0:
            values = student.gains()
            saturated.append({rule: share_saturated(values, rule) for rule in RULES})
            means.append(float(values.mean()))
            with sf.simulate(policy(operands), seed=seed), sf.no_grad():
                held_out.append(float(loss_of(student, teacher, x).item()))
    shares = {f"saturated_{rule}": [each[rule] for each in saturated] for rule in RULES}
    return {
        **job, "loss": held_out, "rise": largest_rise(losses), "gain": means, **shares,
        **(biases(student, teacher, x) if job["arm"] == "fp32" else {}),
    }  # fmt: skip


def metrics(result: Result) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl: one for each record of a run."""
    curves = {key: value for key, value in result.items() if isinstance(value, list)}
    same = {key: value for key, value in result.items() if key not in curves}
    return [{**same, **dict(zip(curves, row, strict=True))} for row in zip(*curves.values(), strict=True)]


def batches(seed: int, steps: int) -> Iterator[NDArray[np.float64]]:
    """Yield the inputs of each step."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(steps):
        yield rng.standard_normal((BATCH, WIDTH))


def held_out_inputs(seed: int, tiny: bool) -> NDArray[np.float64]:
    """Return the inputs on which the student of a seed is judged."""
    return np.random.default_rng([seed, 3]).standard_normal((TINY_HELD_OUT if tiny else HELD_OUT, WIDTH))


def loss_of(student: Student, teacher: Any, x: NDArray) -> sf.Tensor:
    """Return the mean square of the difference between student and teacher."""
    return sf.nn.mse_loss(student(x), teacher(x))


def share_saturated(x: NDArray, rule: str) -> float:
    """Return the share of elements that exceed the largest number of E4M3 by more than rounding explains."""
    scales = np.repeat(np.float64(sf.block_quantize(x, sf.E4M3, rule=rule).scales), SIZE, axis=-1)
    return float(np.mean(np.abs(x / scales) > sf.E4M3.max + sf.ulp(sf.E4M3.max, sf.E4M3) / 2))


def largest_rise(losses: list[float]) -> float:
    """Return the largest ratio of a loss to the smallest one before it."""
    return float(np.max(np.array(losses[1:]) / np.minimum.accumulate(losses)[:-1]))


def biases(student: Student, teacher: Any, x: NDArray) -> dict[str, float]:
    """Return, for the gradient under each rule, its component along the exact one, minus 1, and the cosine of both.

    "active" is the share of saturated operands, which are the normalized activations of the first block.
    """
    exact = gradient(student, teacher, x, None, sf.Policy(compute=sf.FP64, accumulate=sf.FP64))
    found = {}
    for rule in RULES:
        for name, gains in (("", rule), ("_without_gains", None)):
            other = gradient(student, teacher, x, gains, policy(rule))
            found[f"bias_{rule}{name}"] = float(other @ exact / (exact @ exact)) - 1
            found[f"cosine_{rule}{name}"] = float(other @ exact / np.sqrt((exact @ exact) * (other @ other)))
    normalized = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    active = normalized * student.gains()[0]
    return {**found, **{f"active_{rule}": share_saturated(active, rule) for rule in RULES}}


def gradient(student: Student, teacher: Any, x: NDArray, gains: str | None, under: sf.Policy) -> NDArray[np.float64]:
    """Return the gradient of all parameters of a copy whose gains are rounded by a rule, as one vector."""
    copy = Student(0, gains)
    copy.load_state_dict(student.state_dict())
    with sf.simulate(under):
        loss_of(copy, teacher, x).backward()
    return np.concatenate([np.float64(parameter.grad).ravel() for parameter in copy.parameters()])
