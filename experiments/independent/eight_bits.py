"""Findings on FP8: formats forward and backward, the cheapest policy, and a layer that switches between formats."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.independent import casts
from experiments.independent.casts import Convolutions, Formats, Perceptron, Rounding
from experiments.independent.narrow import Remade, lies_between, matches, ratio_above, seeds

SCALED_E4M3, SCALED_E5M2 = casts.scaled(casts.E4M3), casts.scaled(casts.E5M2)

#: Operands of products; other results are in BF16, and weights in float32.
FP16 = Formats(casts.fp16, casts.fp16, casts.fp16, casts.bf16)
HYBRID = Formats(SCALED_E4M3, SCALED_E4M3, SCALED_E5M2, casts.bf16)
NARROW_WEIGHTS = HYBRID._replace(weights=SCALED_E5M2)
BARE = Formats(casts.e4m3, casts.e4m3, casts.e4m3, casts.bf16)
BARE_HYBRID = BARE._replace(gradients=casts.e5m2)


def hybrid_training() -> tuple[Remade, Remade, Remade]:
    """Train convolutions with FP8 operands: scaled per tensor, without a scale, and with a scaled loss."""
    arms: dict[str, tuple[Formats, float]] = {
        "fp16": (FP16, 1.0),
        "hybrid": (HYBRID, 1.0),
        "bare": (BARE, 1.0),
        "loss": (BARE, 2.0**12),
    }
    losses, shares, averaged = {}, {}, {}
    for name, (formats, scale) in arms.items():
        runs = [casts.train(Convolutions(seed), seed, 0.05, 120, formats, scale=scale) for seed in seeds(5)]
        losses[name], shares[name], averaged[name] = (np.array(values) for values in zip(*runs, strict=True))
    as_fp16 = matches(losses["hybrid"], losses["fp16"], 1.015)
    same_share = casts.share_matches(shares["fp16"] - shares["hybrid"])
    gaps = {name: 100 * np.log(losses[name] / losses["fp16"]) for name in ("hybrid", "bare", "loss")}
    judged_by_averages = 100 * np.log(averaged["bare"] / averaged["fp16"])
    return (
        Remade(
            "fp8-hybrid",
            "convolutional: scaled per tensor, FP8 matches",
            f"{np.mean(gaps['hybrid']):.2f} % of the loss, {np.mean(shares['fp16'] - shares['hybrid']):.2f} points",
            as_fp16 if same_share == "equal" else same_share,
        ),
        Remade(
            "fp8-hybrid",
            "convolutional: without any scale E4M3",
            f"gap {np.mean(gaps['bare']):.1f} %; judged with running averages in batch norm "
            f"{np.mean(judged_by_averages):.1f} ± {np.std(judged_by_averages, ddof=1):.1f} %",
            ratio_above(losses["bare"], losses["fp16"], 1),
        ),
        Remade(
            "fp8-hybrid",
            "convolutional: a scaled loss closes",
            f"gap {np.mean(gaps['bare']):.1f} %, with the scale {np.mean(gaps['loss']):.2f} %",
            lies_between(gaps["loss"] - gaps["bare"] / 2, -np.inf, 0),
        ),
    )


class Counting:
    """A rounding of gradients that counts those that are not zero, and those of them that become zero."""

    def __init__(self, rounding: Rounding) -> None:
        self._rounding, self.lost, self.total = rounding, 0, 0

    def __call__(self, x: Any) -> Any:
        """Return the rounded gradient."""
        found = self._rounding(x)
        self.lost += int(((found == 0) & (x != 0)).sum())
        self.total += int((x != 0).sum())
        return found


def hybrid_gradients() -> tuple[Remade, Remade, Remade]:
    """Measure the gradients of half-trained networks: those lost without a scale, and errors by weights in E5M2."""
    lost: dict[tuple[str, str], list[float]] = {}
    errors: dict[str, list[float]] = {"narrow": [], "hybrid": []}
    for kind, rate, steps in ((Perceptron, 0.1, 150), (Convolutions, 0.05, 60)):
        for seed in seeds(5):
            network = kind(seed)
            casts.train(network, seed, rate, steps, Formats())
            x, y, _, _ = casts.split_digits(seed, network.shape)
            rows = np.random.default_rng([seed, 2]).integers(0, len(x), 64)
            for name, formats in (("E4M3", BARE), ("E5M2", BARE_HYBRID)):
                counting = Counting(formats.gradients)
                gradient(network, x[rows], y[rows], formats._replace(gradients=counting))
                lost.setdefault((kind.__name__, name), []).append(100 * counting.lost / counting.total)
            if kind is Convolutions:
                reference = gradient(network, x[rows], y[rows], Formats())
                for name, formats in (("narrow", NARROW_WEIGHTS), ("hybrid", HYBRID)):
                    found = gradient(network, x[rows], y[rows], formats)
                    errors[name].append(100 * float((found - reference).norm() / reference.norm()))
    remade = [
        Remade(
            "fp8-hybrid",
            f"{claim}: unscaled, E5M2 keeps gradients",
            f"{np.mean(lost[kind, 'E5M2']):.1f} against {np.mean(lost[kind, 'E4M3']):.1f} % lost",
            lies_between(np.subtract(lost[kind, "E5M2"], lost[kind, "E4M3"]), -np.inf, 0),
        )
        for claim, kind in (("digits", "Perceptron"), ("convolutional", "Convolutions"))
    ]
    return (
        *remade,
        Remade(
            "fp8-hybrid",
            "convolutional: weights belong in E4M3",
            f"error {np.mean(errors['narrow']):.1f} against {np.mean(errors['hybrid']):.1f} %",
            ratio_above(errors["narrow"], errors["hybrid"], 1),
        ),
    )  # type: ignore[return-value]


def gradient(network: Any, x: Any, y: Any, formats: Formats) -> Any:
    """Return the gradient of all parameters as one vector."""
    import torch
    from torch.nn.functional import cross_entropy

    logits = casts.rounded(network.logits(x, formats), casts.exact, formats.results)
    parts = torch.autograd.grad(cross_entropy(logits, y), network.parameters)
    return torch.cat([formats.results(each).flatten() for each in parts])


def significant_bits() -> Remade:
    """Measure the largest relative error of PyTorch's casts to its two FP8 types."""
    import torch

    bits: dict[str, list[float]] = {}
    for seed in seeds(5):
        x = torch.from_numpy(np.exp2(np.random.default_rng(seed).uniform(-5, 8, 100_000)))
        for name, dtype in (("E4M3", torch.float8_e4m3fn), ("E5M2", torch.float8_e5m2)):
            error = float(((x.float().to(dtype).double() - x) / x).abs().max())
            bits.setdefault(name, []).append(float(-np.log2(error / (1 - error))))
    verdicts = {lies_between(bits[name], count - 0.1, count + 0.1) for name, count in (("E4M3", 4), ("E5M2", 3))}
    return Remade(
        "fp8-hybrid",
        "FP8 has 4 (E4M3) and 3 (E5M2)",
        ", ".join(f"{name} {np.mean(values):.3f} bits" for name, values in bits.items()),
        "reproduced" if verdicts == {"reproduced"} else "not reproduced",
    )


def cheapest() -> tuple[Remade, Remade, Remade, Remade]:
    """Train the two answers of the search on digits, without searching, and count their bits."""
    narrow = {results: Formats(casts.e4m3, casts.e4m3, casts.e4m3, results) for results in (casts.fp16, casts.bf16)}
    wide_range = {
        results: Formats(SCALED_E4M3, SCALED_E4M3, SCALED_E4M3, results) for results in (casts.fp16, casts.bf16)
    }
    answers = {
        "digits": (Perceptron, 0.1, 100, (*(narrow[casts.fp16],) * 2, wide_range[casts.fp16])),
        "convolutional": (Convolutions, 0.05, 60, (wide_range[casts.bf16],) * 3),
    }
    # Bits of operands of three layers, of results and of stored weights.
    bits = {"answer": 3 * 8 + 16 + 16, "amp-bf16": 3 * 16 + 32 + 32, "fp8-hybrid": 3 * 8 + 16 + 32}
    fewer = "reproduced" if bits["answer"] < min(bits["amp-bf16"], bits["fp8-hybrid"]) else "not reproduced"
    counted = ", ".join(f"{name} {100 * count / 160:.0f} %" for name, count in bits.items())
    remade = []
    for name, (kind, rate, steps, layers) in answers.items():
        losses = [
            [casts.train(kind(seed), seed, rate, steps, *arm, stored=stored).loss for seed in seeds(10)]
            for arm, stored in (((Formats(),), casts.exact), (layers, casts.fp16))
        ]
        ratios = np.divide(losses[1], losses[0])
        text = f"{np.mean(ratios):.4f} times the loss"
        verdict = lies_between(np.log(ratios), -np.inf, np.log(1.01))
        remade.append(Remade("cheapest-policy", f"{name}: the answer of the search trains", text, verdict))
        remade.append(Remade("cheapest-policy", f"{name}: the answer has fewer bits", counted, fewer))
    return tuple(remade)  # type: ignore[return-value]
