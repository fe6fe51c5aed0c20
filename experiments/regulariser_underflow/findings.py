"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import final, over_seeds, select
from experiments.regulariser_underflow.products import LAMBDAS, LAYERS, text_of
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import HARDLY, MANY, MATCH, Outcome, all_of, compare, difference_test, ratio_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    decays, drawn = select(results, kind="decay"), select(results, kind="products")
    if given := select(decays, variant="given"):
        return [_given(decays, lam, given[0]["label"]) for lam in map(text_of, LAMBDAS)]
    return [
        _products_underflow(drawn),
        _loss_leaves_weights(decays),
        _loss_decays(decays),
        _fp16_weights_lose(decays),
        _master_keeps(decays),
        _quality(decays),
    ]


def decay_kept(results: list[Result], lam: str, variant: str) -> NDArray[np.float64]:
    """Return the decay of the weights that only the regulariser changes, as a share of the decay in FP32.

    Decay is the logarithm of the norm, which the regulariser lowers by the same amount in every step.
    """
    return np.log(last(results, lam, variant)) / np.log(last(results, lam, "fp32"))


def as_in_fp32(kept: NDArray[np.float64]) -> Outcome:
    """Test if the weights decay as in FP32, by shares of the decay there."""
    return ratio_test(kept, np.ones_like(kept), above=1 / MATCH, below=MATCH)


def last(results: list[Result], lam: str, variant: str, key: str = "dead") -> NDArray[np.float64]:
    """Return the last record of every seed."""
    runs = sorted(select(results, problem=lam, variant=variant), key=lambda run: run["seed"])
    return np.array([run[key][-1] for run in runs])


@claim(
    "2 lambda w underflows in FP16 for initial weights",
    f"lambda = {text_of(LAMBDAS[0])}: more than 1 % are zero in each layer",
)
def _products_underflow(results: list[Result]) -> Measured:
    zeros = {layer: over_seeds(results, "zero", layer=layer, lam=LAMBDAS[0]) for layer in LAYERS}
    errors = [over_seeds(results, "error", layer="normal, 0.02", lam=lam) for lam in LAMBDAS]
    test = all_of([difference_test(share, HARDLY, above=0) for share in zeros.values()])
    return (
        "; ".join(f"{layer}: {spread(100 * share, 1)} %" for layer, share in zeros.items())
        + f"; relative error of the last for each lambda: {', '.join(f'{100 * e.mean():.2g}' for e in errors)} %"
    ), test


@claim(
    "the regulariser underflows in the loss, and not on the FP32 copy",
    "lambda = {lam}: over 1 % of the weights that only it changes do not change; below 1 % on the copy",
)
def _loss_leaves_weights(results: list[Result]) -> Measured:
    lam = text_of(LAMBDAS[0])
    plain, scaled, master = (last(results, lam, place, "unmoved") for place in ("loss", "scaled-loss", "master"))
    test = all_of([difference_test(plain, HARDLY, above=0), difference_test(master, HARDLY, below=0)])
    return (
        f"loss {spread(100 * plain, 1)} %, scaled loss {spread(100 * scaled, 1)} %, copy {spread(100 * master, 1)} %",
        test,
        {"lam": lam},
    )


@claim(
    "in the loss the regulariser is too weak, even with an FP32 copy",
    f"decay of the norm / FP32's < 1 / {MATCH} for each lambda",
)
def _loss_decays(results: list[Result]) -> Measured:
    kept = {lam: decay_kept(results, lam, "loss") for lam in map(text_of, LAMBDAS)}
    return _shares(kept), all_of([ratio_test(share, np.ones_like(share), below=1 / MATCH) for share in kept.values()])


@claim(
    "on weights that are stored in FP16 the regulariser is cancelled",
    f"decay of the norm / FP32's < {MANY} for lambda up to {text_of(LAMBDAS[1])}",
)
def _fp16_weights_lose(results: list[Result]) -> Measured:
    kept = {lam: decay_kept(results, lam, "fp16-weights") for lam in map(text_of, LAMBDAS)}
    return _shares(kept), all_of([difference_test(kept[text_of(lam)], 0, below=MANY) for lam in LAMBDAS[:2]])


@claim(
    "on the FP32 copy the regulariser stays in full precision",
    f"decay of the norm / FP32's within a factor of {MATCH} for each lambda",
)
def _master_keeps(results: list[Result]) -> Measured:
    kept = {lam: decay_kept(results, lam, "master") for lam in map(text_of, LAMBDAS)}
    return _shares(kept), all_of([as_in_fp32(share) for share in kept.values()])


@claim(
    "the place of the regulariser makes no difference to the held-out loss of this problem",
    f"lambda = {{lam}}: loss / FP32's loss within a factor of {MATCH} for each place",
)
def _quality(results: list[Result]) -> Measured:
    lam = text_of(LAMBDAS[2])
    places = ("loss", "fp16-weights", "master")
    fp32 = final(results, lam, "fp32")
    losses = {place: final(results, lam, place) for place in places}
    test = all_of([compare(loss, fp32) for loss in losses.values()])
    return ", ".join(f"{place} {spread(loss / fp32, 3)}" for place, loss in losses.items()), test, {"lam": lam}


@claim("{label}: weights decay as in FP32, lambda = {lam}", f"decay / FP32's within a factor of {MATCH}")
def _given(results: list[Result], lam: str, label: str) -> Measured:
    kept = decay_kept(results, lam, "given")
    return spread(kept, 3), as_in_fp32(kept)


def _shares(kept: dict[str, NDArray[np.float64]]) -> str:
    return ", ".join(f"lambda {lam}: {spread(share, 3)}" for lam, share in kept.items())
