"""The jobs: the products of initial weights, and trainings with the regulariser in several ways."""

from __future__ import annotations

from typing import NamedTuple

import simfloat as sf
from experiments.mixed_precision import FP16_WEIGHTS, MIXED
from experiments.options import Options
from experiments.regulariser_underflow.decay import Decay, run_decay
from experiments.regulariser_underflow.products import LAMBDAS, products, text_of
from experiments.variants import Scaler, static
from simfloat.studies import Job, Result


class Place(NamedTuple):
    """The policy of the regulariser, its position in the loss or in the update, and its scale."""

    policy: sf.Policy
    label: str
    is_in_loss: bool = False
    scaler: Scaler | None = None


#: A regulariser of the update uses the weights as they are stored: in FP32 if there is a master copy.
PLACES = {
    "fp32": Place(sf.policies["fp32"], "FP32"),
    "master": Place(MIXED, "update of the FP32 copy"),
    "loss": Place(MIXED, "loss in FP16, FP32 copy", is_in_loss=True),
    "scaled-loss": Place(MIXED, "loss in FP16, scale 1024", is_in_loss=True, scaler=static(1024.0)),
    "fp16-weights": Place(FP16_WEIGHTS, "update of FP16 weights"),
}


def jobs(options: Options) -> list[Job]:
    """Return every method with every lambda for every seed, and the products; or a given policy and FP32."""
    places = PLACES if options.policy is None else {"fp32": PLACES["fp32"], "given": given(options.policy)}
    decays = [
        {
            "kind": "decay",
            "problem": text_of(lam),
            "lam": lam,
            "variant": key,
            "label": place.label,
            "policy": place.policy.to_dict(),
            "is_in_loss": place.is_in_loss,
            "scaler": None if place.scaler is None else dict(place.scaler),
            "seed": seed,
            "tiny": options.tiny,
        }
        for lam in LAMBDAS
        for key, place in places.items()
        for seed in options.seed_numbers
    ]
    return decays if options.policy is not None else [*decays, *product_jobs(options)]


def product_jobs(options: Options) -> list[Job]:
    """Return the products of initial weights for every seed."""
    return [{"kind": "products", "seed": seed} for seed in options.seed_numbers]


def given(policy: sf.Policy) -> Place:
    """Return the policy of the user, with weight decay in the update."""
    return Place(policy, f"{policy.name or 'given'} (given)")


def run(job: Job) -> Result:
    """Run a job."""
    if job["kind"] == "products":
        return {**job, **products(job["seed"])}
    policy, decay = sf.Policy.from_dict(job["policy"]), Decay(job["lam"], job["is_in_loss"])
    known = {key: value for key, value in job.items() if key != "policy"}
    return {**known, **run_decay(job["seed"], job["tiny"], policy, decay, job["scaler"])}


def check(policy: sf.Policy) -> None:
    """Train a few steps under the policy. Raises ValueError if that is impossible."""
    run_decay(0, True, policy, Decay(LAMBDAS[0], is_in_loss=False), None)
