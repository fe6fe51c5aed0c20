"""One run: a problem trained under a policy from one seed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.experiment import Job, Options, Result
from experiments.update_cancellation.policies import POLICIES, THEOREM_2, UPDATE_ONLY
from experiments.update_cancellation.problems import PROBLEMS, loss_and_accuracy, model_for, synthetic
from experiments.update_cancellation.theorem1 import check_theorem_1

#: How often a run is looked at.
RECORDS = 40


def interval(steps: int, tiny: bool) -> int:
    """The number of steps from one look to the next."""
    return max(1, steps // (5 if tiny else RECORDS))


def jobs(options: Options) -> list[Job]:
    """Every problem under every policy from every seed, and the two theorems."""
    policies = POLICIES if options.policy is None else {"fp32": POLICIES["fp32"], "given": options.policy}
    common: list[Job] = [{"tiny": options.tiny, "seed": seed} for seed in range(options.seeds)]
    training = [
        {"kind": "training", "problem": problem, "policy": policy.to_dict(), **job}
        for problem in ("digits", "synthetic", "diabetes")
        for policy in policies.values()
        for job in common
    ]
    if options.policy is not None:
        return training
    distance = [
        {"kind": "distance", "policy": policy.to_dict(), **job}
        for policy in (POLICIES["fp32"], UPDATE_ONLY, THEOREM_2)
        for job in common
    ]
    return training + distance + [{"kind": "theorem-1", **job} for job in common]


def run(job: Job) -> Result:
    """Carry out a job."""
    if job["kind"] == "theorem-1":
        return {**job, **check_theorem_1(job["seed"], 20 if job["tiny"] else 200)}
    policy = sf.Policy.from_dict(job["policy"])
    if job["kind"] == "distance":
        return {**job, "policy": policy.name, **train_to_optimum(policy, job["seed"], job["tiny"])}
    return {**job, "policy": policy.name, **train(job["problem"], policy, job["seed"], job["tiny"])}


def train(problem: str, policy: sf.Policy, seed: int, tiny: bool) -> Result:
    """Loss, accuracy and the share of cancelled weight updates over the iterations."""
    data, model = PROBLEMS[problem](seed, tiny), model_for(problem, seed)
    optimizer = sf.optim.SGD(model.parameters(), lr=data.lr)
    recorder = sf.Recorder(path="*weight", phase="update")
    every = interval(data.steps, tiny)
    curve: Result = {"iteration": [], "loss": [], "accuracy": [], "cancelled": []}
    before = {"unchanged": 0, "total": 0}
    with sf.simulate(policy, seed=seed, observer=recorder):
        for step, (x, y) in enumerate(data.batches(seed), 1):
            optimizer.zero_grad()
            backward(problem, model, x, y)
            optimizer.step()
            if step % every == 0:
                loss, accuracy = loss_and_accuracy(problem, data, model)
                counts = recorder.counts()
                updates = counts["total"] - before["total"]
                curve["iteration"].append(step)
                curve["loss"].append(loss)
                curve["accuracy"].append(accuracy)
                curve["cancelled"].append((counts["unchanged"] - before["unchanged"]) / updates)
                before = counts
    return curve


def backward(problem: str, model: sf.nn.Module, x: NDArray, y: NDArray) -> None:
    """Gradients of the loss of one batch: cross-entropy, or half the squared error, whose gradient is the error."""
    if problem == "digits":
        sf.nn.cross_entropy(model(x), y).backward()
    else:
        error = model(x) - y
        error.backward(error.data)


def train_to_optimum(policy: sf.Policy, seed: int, tiny: bool) -> Result:
    """The distance to w* on the noise-free problem, with the constants of the theorems."""
    data, model = synthetic(seed, tiny, noise=0.0), model_for("synthetic", seed)
    assert data.optimum is not None
    optimizer = sf.optim.SGD(model.parameters(), lr=data.lr)
    every = interval(data.steps, tiny)
    iterations, distances = [0], [float(np.linalg.norm(data.optimum))]
    with sf.simulate(policy, seed=seed):
        for step, (x, y) in enumerate(data.batches(seed), 1):
            optimizer.zero_grad()
            backward("synthetic", model, x, y)
            optimizer.step()
            if step % every == 0:
                iterations.append(step)
                distances.append(float(np.linalg.norm(model.state_dict()["weight"].T - data.optimum)))
    x = data.x.astype(np.float64)
    return {
        "iteration": iterations,
        "distance": distances,
        "lr": data.lr,
        "L": float((x**2).sum(axis=1).max()),
        "mu": float(np.linalg.eigvalsh(x.T @ x / len(x))[0]),
        "least_weight": float(np.abs(data.optimum).min()),
    }
