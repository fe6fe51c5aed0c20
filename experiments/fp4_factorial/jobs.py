"""The jobs: the student of norm-gains under every combination of format, rounding, rotation and operands in FP4."""

from __future__ import annotations

from typing import NamedTuple

import simfloat as sf
from experiments.norm_gains.jobs import RATE, batches, held_out_inputs, loss_of
from experiments.norm_gains.model import Student, taught
from experiments.options import Options
from simfloat.studies import Job, Result

#: Steps of AdamW, in a tiny run too; and the number of evaluations.
STEPS, TINY_STEPS, RECORDS = 120, 1, 10

#: FP32 and the bare formats are trained with RATE times 2^(k/2) for these k, on this seed, which decides nothing.
TRIED, CHOOSER = range(1, 5), 0

#: The best of these rates for FP32 and MXFP4. NVFP4 is 0.2 % better half an octave below, as stored runs show.
TUNED_RATE = RATE * 2**1.5

#: The scales of each format: MXFP4 has powers of two, rounded up, NVFP4 E4M3 numbers.
SCALES = {"MXFP4": sf.block(32, sf.E8M0), "NVFP4": sf.block(16, sf.E4M3)}


class Arm(NamedTuple):
    """The format, whether gradients are rounded stochastically and rotated, and which operands are in FP4."""

    format: str
    is_stochastic: bool = False
    is_rotated: bool = False
    operands: str = "all"

    @property
    def policy(self) -> sf.Policy:
        """FP32 with these operands of products in FP4."""
        scale = SCALES[self.format]
        nearest = sf.scaled(sf.E2M1, scale)
        gradients = sf.cast(sf.E2M1, sf.stochastic(), scale=scale) if self.is_stochastic else nearest
        return sf.Policy(
            compute=sf.FP32 if self.operands == "gradients" else nearest,
            compute_gradients=sf.FP32 if self.operands == "forward" else gradients,
            weights=sf.FP32,
            activations=sf.FP32,
            rotation=sf.hadamard(16) if self.is_rotated else None,
        )


#: The recipes: stochastic or not, rotated or not.
RECIPES = tuple((stochastic, rotated) for stochastic in (False, True) for rotated in (False, True))

#: The name of each arm; None is FP32.
ARMS: dict[str, Arm | None] = {
    "FP32": None,
    **{
        f"{format}{', stochastic' * stochastic}{', rotated' * rotated}": Arm(format, stochastic, rotated)
        for format in SCALES
        for stochastic, rotated in RECIPES
    },
    **{
        f"{format}, {operands} alone": Arm(format, operands=operands)
        for format in SCALES
        for operands in ("gradients", "forward")
    },
}


def name_of(format: str, stochastic: bool = False, rotated: bool = False) -> str:
    """Return the name of the arm with all operands in FP4."""
    return next(name for name, arm in ARMS.items() if arm == Arm(format, stochastic, rotated))


#: The arms that are compared again at the tuned rate.
TUNED_ARMS = ("FP32", *map(name_of, SCALES))


def jobs(options: Options) -> list[Job]:
    """Return every arm at the first rate, some at the tuned one, and the runs that chose it, except in a tiny run."""
    seeds, tiny = options.seed_numbers, options.tiny
    return [
        *({"arm": arm, "seed": seed, "tiny": tiny} for arm in ARMS for seed in seeds),
        *({"arm": arm, "seed": seed, "tiny": tiny, "rate": TUNED_RATE} for arm in TUNED_ARMS for seed in seeds),
        *([] if tiny else choosing_jobs()),
    ]


def choosing_jobs() -> list[Job]:
    """Return a run of FP32 and of both bare formats at every rate, on the seed that chooses."""
    rates = [RATE * 2 ** (exponent / 2) for exponent in TRIED]
    return [{"arm": arm, "chooser": CHOOSER, "tiny": False, "rate": rate} for arm in TUNED_ARMS for rate in rates]


def run(job: Job) -> Result:
    """Train the student of a seed under an arm; return held-out losses, computed in FP32."""
    seed = job["seed"] if "seed" in job else job["chooser"]
    steps, arm = TINY_STEPS if job["tiny"] else STEPS, ARMS[job["arm"]]
    student, teacher = Student(seed), taught(seed)
    x = held_out_inputs(seed, job["tiny"])
    optimizer = sf.optim.AdamW(student.parameters(), lr=job.get("rate", RATE), weight_decay=0.01)
    every, held_out = max(1, steps // RECORDS), []
    with sf.simulate("fp32" if arm is None else arm.policy, seed=seed):
        for step, batch in enumerate(batches(seed, steps), 1):
            optimizer.zero_grad()
            loss_of(student, teacher, batch).backward()
            optimizer.step()
            if step % every == 0:
                with sf.simulate("fp32"), sf.no_grad():
                    held_out.append(float(loss_of(student, teacher, x).item()))
    return {**job, "iteration": [every * number for number in range(1, len(held_out) + 1)], "loss": held_out}
