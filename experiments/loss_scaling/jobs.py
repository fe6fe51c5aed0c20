"""The jobs: the problems with several scales, the gradients in FP32, and steps that overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import simfloat as sf
from experiments.gradients import gradient_histograms
from experiments.loss_scaling.problems import PROBLEMS
from experiments.mixed_precision import FP32, MIXED, UNSCALED, scaled
from experiments.options import Options
from experiments.problem import Problem
from experiments.training import run_training, training_jobs
from experiments.variants import given
from simfloat.studies import Job, Result

#: The exponents of the scales: enough for SSD, bigLSTM's, and the largest of the paper.
SCALES = (3, 7, 15)

#: This scale overflows at once.
TOO_LARGE = 2.0**24

#: The number of steps that overflow, and of the following ones with a scale that fits.
STEPS = 5


def jobs(options: Options) -> list[Job]:
    """Return the problems with their scales for every seed, and the steps that overflow; or a given policy and FP32."""
    if options.policy is not None:
        return training_jobs(PROBLEMS, given(options.policy, [FP32]), options)
    overflows = [{"kind": "overflow", "seed": seed} for seed in options.seed_numbers]
    return [
        *training_jobs(["regression"], [FP32, UNSCALED, *map(scaled, SCALES)], options),
        *training_jobs(["classification", "small-batch"], [FP32, UNSCALED], options),
        *overflows,
    ]


def run(job: Job) -> Result:
    """Run a job; runs in FP32 also return histograms of their gradients."""
    if job["kind"] == "overflow":
        problem = replace(PROBLEMS["regression"](job["seed"], True), steps=2 * STEPS)
        return {**job, "damaged": damaged(problem, job["seed"]), "moved": moved(problem, job["seed"])}
    if job.get("variant") != "fp32":
        return run_training(PROBLEMS, job)
    recorder = sf.Recorder()
    result = run_training(PROBLEMS, job, recorder)
    names = {name for name, _ in PROBLEMS[job["problem"]](job["seed"], True).model().named_parameters()}
    return {**result, "gradients": gradient_histograms(recorder, names)}


def damaged(problem: Problem, seed: int) -> float:
    """Return the share of parameters that are not finite after unchecked steps with overflow, and after good ones."""
    model = problem.model()
    optimizer = problem.optimizer(model.parameters())
    with sf.simulate(MIXED, seed=seed):
        for step, (x, y) in enumerate(problem.batches(seed)):
            scaler = sf.optim.StaticLossScale(TOO_LARGE if step < STEPS else 8.0)
            optimizer.zero_grad()
            scaler.scale(problem.loss(model(x), y)).backward()
            scaler.unscale_(optimizer)
            optimizer.step()
    values = np.concatenate([value.ravel() for value in model.state_dict().values()])
    return float(np.mean(~np.isfinite(values)))


def moved(problem: Problem, seed: int) -> int:
    """Return the number of parameters that such steps change if they are skipped."""
    model, scaler = problem.model(), sf.optim.StaticLossScale(TOO_LARGE)
    optimizer, before = problem.optimizer(model.parameters()), model.state_dict()
    with sf.simulate(MIXED, seed=seed):
        for x, y in problem.batches(seed):
            optimizer.zero_grad()
            scaler.scale(problem.loss(model(x), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    return sum(int((value != before[name]).sum()) for name, value in model.state_dict().items())
