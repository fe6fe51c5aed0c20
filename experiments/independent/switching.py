"""Findings on a layer that switches between FP8 and FP16 under a dynamic loss scale; all seeds are trained at once."""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.independent import casts
from experiments.independent.casts import Rounding, fp16
from experiments.independent.narrow import Array, Remade, lies_between, matches, seeds

#: Steps of a run, steps in FP16 after a switch, samples that are held out, and the number of seeds.
STEPS, HOLD, HELD_OUT, SEEDS = 400, 25, 450, 20


class Runs(NamedTuple):
    """For each seed the loss at the end and the last scale, and for each step if it was skipped, and in FP8."""

    loss: Array
    scale: Array
    skipped: NDArray[np.bool_]
    narrow: NDArray[np.bool_]


class Networks:
    """A network 64-32-32-10 for each seed, with float32 weights and results in FP16; the middle layer may be in FP8."""

    def __init__(self, brightness: float) -> None:
        import torch
        from sklearn.datasets import load_digits

        torch.set_num_threads(1)  # these products are too small for threads
        x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
        generators = [np.random.default_rng([seed, 8]) for seed in seeds(SEEDS)]
        order = torch.tensor(np.array([rng.permutation(len(x)) for rng in generators]))
        self._x, self._y = fp16(brightness * x[order].float() / 16), y[order]
        self._rows = np.array([rng.integers(HELD_OUT, len(x), (STEPS, 32)) for rng in generators])
        sizes = ((64, 32), (32, 32), (32, 10))
        shapes = [shape for size in sizes for shape in (size, (1, size[1]))]
        self.weights = [
            torch.tensor(np.array([rng.uniform(-1, 1, shape) for rng in generators])).float()
            / sizes[place // 2][0] ** 0.5
            for place, shape in enumerate(shapes)
        ]

    def gradients(self, step: int, scale: Any, narrow: Any, backward: Rounding) -> tuple[list[Any], Any]:
        """Return the scaled gradients, and for each seed if a rounding of the middle layer was infinite."""
        import torch

        rows = torch.tensor(self._rows[:, step])[:, :, None]
        x, labels = torch.take_along_dim(self._x, rows, 1), torch.take_along_dim(self._y[:, :, None], rows, 1)
        inputs, operands, overflows = [], [], torch.zeros(SEEDS, dtype=torch.bool)

        def operand(x: Any, place: int, rounding: Rounding) -> Any:
            if place != 1:
                return fp16(x)
            found = torch.where(narrow[:, None, None], rounding(x), fp16(x))
            overflows.logical_or_(~found.isfinite().flatten(1).all(1))
            return found

        for place in range(3):
            inputs.append(x)
            weight, bias = (fp16(each) for each in self.weights[2 * place : 2 * place + 2])
            operands.append((operand(x, place, casts.e4m3), operand(weight, place, casts.e4m3)))
            x = fp16(fp16(operands[-1][0] @ operands[-1][1]) + bias)
            x = x.relu() if place < 2 else x
        shares = fp16(torch.softmax(x, -1)) - torch.zeros_like(x).scatter(-1, labels, 1.0)
        gradient = fp16(scale[:, None, None] / 32 * shares)
        found: list[Any] = []
        for place in (2, 1, 0):
            used = operand(gradient, place, backward)
            found[:0] = fp16(operands[place][0].mT @ used), fp16(gradient.sum(1, keepdim=True))
            gradient = fp16(used @ operands[place][1].mT) * (inputs[place] > 0)
        return found, overflows

    def held_out(self) -> Any:
        """Return the loss of each seed on its held-out samples, in float32."""
        import torch

        x = self._x[:, :HELD_OUT]
        for place in range(3):
            x = x @ self.weights[2 * place] + self.weights[2 * place + 1]
            x = x.relu() if place < 2 else x
        return torch.nn.functional.cross_entropy(x.mT, self._y[:, :HELD_OUT], reduction="none").mean(1)


def train(rule: str, backward: Rounding = casts.e5m2, camera: bool = False) -> Runs:
    """Train all seeds; the rule is "fp16", "fp8", "variance", "once" or "overflow"."""
    import torch

    networks = Networks(1023.0 if camera else 1.0)
    moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in networks.weights]
    scale = torch.full((SEEDS,), 2.0**16)
    clean, made, until = (torch.zeros(SEEDS, dtype=torch.int64) for _ in range(3))
    narrow = torch.full((SEEDS,), rule not in ("fp16", "once"))
    skips, places, losses = [], [], []
    for step in range(STEPS):
        if rule == "once" and step == 3 * STEPS // 4:
            narrow = ~narrow
        gradients, overflows = networks.gradients(step, scale, narrow, backward)
        gradients = [each / scale[:, None, None] for each in gradients]
        finite = torch.stack([each.isfinite().flatten(1).all(1) for each in gradients]).all(0)
        skips.append(~finite)
        places.append(narrow)
        made = made + finite
        for place, each in enumerate(gradients):
            used = torch.where(finite[:, None, None], each, 0.0)
            if camera:
                used = adam(used, moments[place], made, finite)
            networks.weights[place] = networks.weights[place] - (1e-3 if camera else 0.1) * used
        clean = torch.where(finite, clean + 1, 0)
        scale = torch.where(finite, torch.where(clean == 25, 2 * scale, scale), (scale / 2).clamp(min=2.0**-126))
        clean = torch.where(clean == 25, 0, clean)
        if rule in ("variance", "overflow"):
            variance = gradients[2].flatten(1).var(1, correction=0)
            above = ~(variance <= 1e-4) if rule == "variance" else narrow & overflows
            until = torch.where(narrow & above, step + HOLD, until)
            narrow = ~above & (step >= until)
        if step >= 0.8 * STEPS and step % 10 == 9:
            losses.append(networks.held_out())
    return Runs(
        *(each.numpy() for each in (torch.stack(losses).mean(0), scale, torch.stack(skips), torch.stack(places)))
    )


def adam(gradient: Any, moments: tuple[Any, Any], made: Any, finite: Any) -> Any:
    """Return the direction of Adam, and renew the moments of the seeds whose gradients are finite."""
    counted, steps = finite[:, None, None], made[:, None, None].clamp(min=1)
    first, second = moments
    first += 0.1 * (gradient - first) * counted
    second += 0.001 * (gradient**2 - second) * counted
    return counted * first / (1 - 0.9**steps) / ((second / (1 - 0.999**steps)).sqrt() + 1e-8)


def longest(skipped: NDArray[np.bool_]) -> int:
    """Return the largest number of steps that were skipped in a row."""
    return max((sum(1 for _ in group) for value, group in groupby(skipped) if value), default=0)


def switching() -> tuple[Remade, ...]:
    """Train with the layer in FP16, in FP8, and by rules."""
    fixed, eight = train("fp16"), train("fp8")
    variance, once = train("variance"), train("once", casts.e4m3)
    variance_e4m3 = train("variance", casts.e4m3)
    bright, bright_eight, kept = (train(rule, camera=True) for rule in ("fp16", "fp8", "overflow"))
    rows, others = ([longest(each) for each in runs.skipped.T] for runs in (once, fixed))
    exceptions = sum(row > max(3, other) for row, other in zip(rows, others, strict=True))
    narrow = [100 * runs.narrow.mean(0) for runs in (variance_e4m3, variance)]
    skipped = bright_eight.skipped.mean(0)
    return (
        Remade(
            "layer-switching",
            "digits: the layer trains in FP8, E4M3 forward",
            f"{np.mean(eight.loss / fixed.loss):.3f} times FP16's loss",
            matches(eight.loss, fixed.loss),
        ),
        Remade(
            "layer-switching",
            "digits, switched once, late, E4M3: no more than 3",
            f"at most {max(rows)}, in FP16 {max(others)}; {exceptions} exceptions in {SEEDS} runs",
            "not reproduced" if exceptions else "inconclusive",
        ),
        Remade(
            "layer-switching",
            "digits: gradients in E4M3 overflow",
            f"{narrow[0].mean():.1f} against {narrow[1].mean():.1f} % of steps in FP8",
            lies_between(narrow[0] - narrow[1], -np.inf, 0),
        ),
        Remade(
            "layer-switching",
            "camera: if activations overflow E4M3",
            f"{100 * skipped.mean():.1f} % of steps skipped; the scale ends at {bright_eight.scale.mean():.2g}",
            lies_between(skipped, 0.5, np.inf),
        ),
        Remade(
            "layer-switching",
            "camera: a layer that overflows is kept",
            f"{np.mean(kept.loss / bright.loss):.3f} times FP16's loss; {100 * kept.narrow.mean():.1f} % in FP8",
            matches(kept.loss, bright.loss),
        ),
    )
