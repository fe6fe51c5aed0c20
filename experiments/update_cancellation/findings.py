"""The claims, and what the results say about them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.experiment import Finding, Result
from experiments.update_cancellation.problems import diabetes
from experiments.update_cancellation.theorem1 import EPSILON

#: The part of a run, from its end, that "final" is the mean of.
FINAL = 0.2


def findings(results: list[Result]) -> list[Finding]:
    """One finding for each claim that the results speak to."""
    training = [result for result in results if result["kind"] == "training"]
    names = {result["policy"] for result in training}
    if "update-only" not in names:
        (given,) = names - {"fp32"} or {"fp32"}
        return [_against_fp32(training, problem, given) for problem in ("synthetic", "diabetes", "digits")]
    return [
        *_synthetic(training),
        *_diabetes(training),
        *_digits(training),
        _theorem_1([result for result in results if result["kind"] == "theorem-1"]),
        _theorem_2([r for r in results if r["kind"] == "distance" and r["policy"] == "theorem-2"]),
    ]


def final(results: list[Result], problem: str, policy: str, key: str = "loss") -> NDArray[np.float64]:
    """The final value of a curve for every seed."""
    runs = sorted((r for r in results if (r["problem"], r["policy"]) == (problem, policy)), key=lambda r: r["seed"])
    return np.array([np.mean(run[key][-max(1, int(FINAL * len(run[key]))) :]) for run in runs])


def _synthetic(results: list[Result]) -> list[Finding]:
    losses = {name: final(results, "synthetic", name) for name in {r["policy"] for r in results}}
    fp32 = losses["fp32"]
    update, both = losses["update-only"] / fp32, losses["forward-backward-only"] / fp32
    standard = losses["bf16-standard"] / fp32
    stochastic, kahan = losses["bf16-stochastic"] / fp32, losses["bf16-kahan"] / fp32
    cancelled = final(results, "synthetic", "update-only", "cancelled")
    early = np.array([np.mean(r["cancelled"][:2]) for r in results if _is(r, "synthetic", "update-only")])
    ordered = (kahan < stochastic) & (stochastic < np.minimum(update, standard))
    return [
        Finding(
            "synthetic: rounding the update to nearest saturates the loss far above fp32",
            "loss / fp32 loss >= 8",
            f"{_spread(update)} (all roundings: {_spread(standard)})",
            bool((update >= 8).all()),
        ),
        Finding(
            "synthetic: rounding forward and backward only comes close to fp32",
            "loss / fp32 loss <= 1.1",
            _spread(both, 3),
            bool((both <= 1.1).all()),
        ),
        Finding(
            "synthetic: stochastic rounding and Kahan summation remedy the update",
            "loss: Kahan < stochastic < nearest, every seed",
            f"Kahan {_spread(kahan)}, stochastic {_spread(stochastic)} times fp32",
            bool(ordered.all()),
        ),
        Finding(
            "synthetic: updates are cancelled in the late stage of training",
            "share cancelled: most at the end, fewer at the start",
            f"{_spread(100 * early, 0)} % at the start, {_spread(100 * cancelled, 0)} % at the end",
            bool((cancelled > 0.5).all() and (cancelled > early).all()),
        ),
    ]


def _diabetes(results: list[Result]) -> list[Finding]:
    fp32 = final(results, "diabetes", "fp32")
    least = least_diabetes_loss()
    ratios = {name: final(results, "diabetes", name) / fp32 for name in {r["policy"] for r in results}}
    excess = (final(results, "diabetes", "update-only") - least) / (fp32 - least)
    remedies = ("bf16-stochastic", "bf16-kahan", "bf16-fp32-weights", "forward-backward-only")
    return [
        Finding(
            "diabetes: rounding the update to nearest saturates the loss above fp32",
            "excess over the least-squares optimum: more than fp32's, every seed",
            f"{_spread(excess, 1)} times fp32's excess; loss {_spread(ratios['update-only'])} times fp32's",
            bool((excess > 1).all()),
        ),
        Finding(
            "diabetes: the remedies and 32-bit weights come close to fp32",
            "loss / fp32 loss <= 1.1 for each",
            ", ".join(f"{_short(name)} {_spread(ratios[name], 3)}" for name in remedies),
            bool(all((ratios[name] <= 1.1).all() for name in remedies)),
        ),
    ]


def least_diabetes_loss() -> float:
    """Half the mean squared error of the least-squares solution."""
    data = diabetes(seed=0, tiny=True)
    weight = np.linalg.lstsq(data.x.astype(np.float64), data.y, rcond=None)[0]
    return float(np.mean((data.x @ weight - data.y) ** 2) / 2)


def _digits(results: list[Result]) -> list[Finding]:
    scores = {name: 100 * final(results, "digits", name, "accuracy") for name in {r["policy"] for r in results}}
    loss = {name: final(results, "digits", name) for name in scores}
    remedies = ("bf16-stochastic", "bf16-kahan", "bf16-fp32-weights")
    return [
        Finding(
            "digits: standard 16-bit training reaches a higher held-out loss than fp32",
            "loss above fp32's, every seed",
            f"{_spread(loss['bf16-standard'], 3)} against {_spread(loss['fp32'], 3)}; accuracy "
            f"{_spread(scores['bf16-standard'])} against {_spread(scores['fp32'])} %",
            bool((loss["bf16-standard"] > loss["fp32"]).all()),
        ),
        Finding(
            "digits: the remedies and 32-bit weights match fp32 accuracy",
            "mean within 0.5 points of fp32",
            ", ".join(f"{_short(name)} {_spread(scores[name])} %" for name in remedies),
            bool(all(abs(scores[name].mean() - scores["fp32"].mean()) <= 0.5 for name in remedies)),
        ),
    ]


def _theorem_1(results: list[Result]) -> Finding:
    tried, moved = sum(r["tried"] for r in results), sum(r["moved"] for r in results)
    counter = all(r["counterexample"] for r in results)
    return Finding(
        "theorem 1: inside the safe radius every update is cancelled",
        "no weight moves; the printed radius is too large by up to 2",
        f"{moved} of {10 * tried} weights moved; the counterexample {'moves' if counter else 'does not move'}",
        moved == 0 and counter,
    )


def _theorem_2(results: list[Result]) -> Finding:
    squares = np.mean([np.square(r["distance"]) for r in results], axis=0)
    bound = np.mean([theorem_2_bound(r) for r in results], axis=0)
    worst = float(np.max(squares[1:] / bound[1:]))
    return Finding(
        "theorem 2: with exact updates |w - w*|^2 falls below exp(-alpha mu t (1 - 4 epsilon L / mu))",
        "mean over seeds below the bound at every t",
        f"at most {worst:.2g} of the bound; |w - w*|^2 ends at {squares[-1]:.1e}",
        worst <= 1.0,
    )


def theorem_2_bound(result: Result, factor: float = 4.0) -> NDArray[np.float64]:
    """The bound on the squared distance at the recorded iterations."""
    mu, t = result["mu"], np.array(result["iteration"])
    rate = result["lr"] * mu * (1 - factor * EPSILON * result["L"] / mu)
    return np.exp(-rate * t) * result["distance"][0] ** 2


def _against_fp32(results: list[Result], problem: str, policy: str) -> Finding:
    ratio = final(results, problem, policy) / final(results, problem, "fp32")
    return Finding(
        f"{problem}: {policy} comes close to fp32",
        "loss / fp32 loss <= 1.1",
        _spread(ratio, 3),
        bool((ratio <= 1.1).all()),
    )


def _is(result: Result, problem: str, policy: str) -> bool:
    return (result["problem"], result["policy"]) == (problem, policy)


def _short(name: str) -> str:
    return name.removeprefix("bf16-")


def _spread(values: NDArray[np.float64], digits: int = 2) -> str:
    return f"{values.mean():.{digits}f} ± {values.std():.{digits}f}"
