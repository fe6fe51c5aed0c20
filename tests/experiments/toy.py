"""An experiment that takes no time, for tests of the code that runs experiments."""

import os
import signal
import time
from pathlib import Path

import simfloat as sf
from experiments.experiment import Experiment, Picture
from experiments.grid import Axis, Grid
from simfloat.studies import Finding


def jobs(options):
    return [{"kind": "toy", "seed": seed, "tiny": options.tiny} for seed in options.seed_numbers]


def run(job):
    return {**job, "value": 2.0 * job["seed"]}


def metrics(result):
    return [result]


def findings(results):
    return [Finding("values double", "value / seed = 2", f"{len(results)} values", "no statistics", "reproduced")]


def draw(results, path: Path):
    path.write_bytes(b"\x89PNG")


def check(policy):
    if policy.compute == sf.E2M1:
        raise ValueError("the toy is not trained in E2M1.")


def sweep_job(values, tiny):
    return {"kind": "toy", "tiny": tiny, **values}


def sweep_check(jobs):
    if any(job["seed"] == 13 for job in jobs):
        raise ValueError("13 is no seed for a toy.")


GRID = Grid(
    axes=(Axis("size", "a whole number", int, ("1",)), Axis("seed", "a whole number", int), Axis("kin", "a text", str)),
    job=sweep_job,
    measures=lambda result: {"value": result["value"]},
    check=sweep_check,
)


def toy(run=run, metrics=metrics):
    return Experiment(
        name="toy",
        question="Do values double?",
        jobs=jobs,
        run=run,
        findings=findings,
        metrics=metrics,
        figures=(Picture("toy.png", draw, {}),),
        check=check,
        seeds=3,
        grid=GRID,
    )


def double(job):
    """The job of the executors' tests, with several ways to end."""
    if job.get("refuse"):
        raise ValueError("3 was expected, 4 came.")
    if job.get("fault"):
        raise KeyError("missing")
    if job.get("print"):
        print("in the middle of the answers")
    if job.get("die"):
        os._exit(7)
    if job.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "once" in job and not os.path.exists(job["once"]):
        Path(job["once"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(job.get("sleep", 0))
    return {"value": 2 * job["seed"], "process": os.getpid()}
