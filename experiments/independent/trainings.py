"""Findings on trainings: least squares in NumPy, and digits in PyTorch's own float16 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.independent.narrow import (
    Array,
    Remade,
    lies_between,
    matches,
    ratio_above,
    seeds,
    stochastically,
    to_nearest,
)

#: Significant bits of BF16.
BF16 = 8

#: A function of weights, update and correction that returns new weights and correction.
Update = Callable[[Array, Array, Array, np.random.Generator], tuple[Array, Array]]


def nearest(weight: Array, update: Array, kept: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the sum rounded to nearest."""
    return to_nearest(weight + update, BF16), kept


def stochastic(weight: Array, update: Array, kept: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the sum rounded stochastically."""
    return stochastically(weight + update, BF16, rng), kept


def kahan(weight: Array, update: Array, kept: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return Kahan's sum, with its correction also in BF16."""
    corrected = to_nearest(to_nearest(update, BF16) - kept, BF16)
    total = to_nearest(weight + corrected, BF16)
    return total, to_nearest(to_nearest(total - weight, BF16) - corrected, BF16)


def exact(weight: Array, update: Array, kept: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the sum in float64."""
    return weight + update, kept


def fixed(weight: Array, update: Array, kept: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the sum rounded to a multiple of 2^-8."""
    return np.rint((weight + update) * 256) / 256, kept


def descend(
    seed: int, update: Update, alpha: float = 0.01, width: float = 100, noise: float = 0.5
) -> tuple[float, float]:
    """Return the final loss and distance to the optimum of least squares by single samples, after enough steps."""
    rng = np.random.default_rng(seed)
    x, optimum = rng.standard_normal((2000, 10)), rng.uniform(0, width, 10)
    y = x @ optimum + noise * rng.standard_normal(2000)
    weight, kept, draws = np.zeros(10), np.zeros(10), np.random.default_rng([seed, 9])
    losses, distances = [], []
    rows = rng.integers(0, 2000, int((8 if noise else 20) / alpha))
    for step, row in enumerate(rows):
        gradient = (x[row] @ weight - y[row]) * x[row]
        weight, kept = update(weight, -alpha * gradient, kept, draws)
        if step >= 0.8 * len(rows) and step % 20 == 0:
            losses.append(np.mean((x @ weight - y) ** 2))
            distances.append(np.linalg.norm(weight - optimum))
    return float(np.mean(losses)), float(np.mean(distances))


def least_squares() -> tuple[Remade, Remade]:
    """Test that nearest updates saturate the loss, and that stochastic ones and, even better, Kahan's repair it."""
    losses = {each: [descend(seed, each)[0] for seed in seeds(10)] for each in (exact, kahan, stochastic, nearest)}
    ratios = {each.__name__: np.divide(losses[each], losses[exact]) for each in (kahan, stochastic, nearest)}
    measured = ", ".join(f"{name} {np.mean(values):.1f}" for name, values in ratios.items())
    order = {ratio_above(losses[stochastic], losses[kahan], 1), ratio_above(losses[nearest], losses[stochastic], 1)}
    return (
        Remade(
            "update-cancellation",
            "synthetic: rounding the update",
            f"{measured} times the exact updates' loss",
            ratio_above(losses[nearest], losses[exact], 10),
        ),
        Remade(
            "update-cancellation",
            "synthetic: stochastic rounding and Kahan",
            measured,
            "reproduced" if order == {"reproduced"} else "not reproduced",
        ),
    )


def limits() -> tuple[Remade, Remade]:
    """Test that smaller steps end farther from the optimum, and that the size of weights matters in floating point."""
    ends = {alpha: [descend(seed, nearest, alpha, noise=0)[1] for seed in seeds(5)] for alpha in (0.01, 0.005)}
    sizes = {
        (update.__name__, width): np.mean([descend(seed, update, width=width, noise=0)[1] for seed in seeds(5)])
        for update in (nearest, fixed)
        for width in (1.0, 100.0)
    }
    floating = [descend(seed, nearest, width=1.0, noise=0)[1] for seed in seeds(5)]
    measured = ", ".join(f"{name} to {width:g}: {value:.3f}" for (name, width), value in sizes.items())
    return (
        Remade(
            "update-limits",
            "nearest updates stop farther",
            ", ".join(f"{alpha:g}: {np.mean(values):.2f}" for alpha, values in ends.items()),
            ratio_above(ends[0.005], ends[0.01], 1),
        ),
        Remade("update-limits", "the degradation depends", measured, ratio_above(ends[0.01], floating, 10)),
    )


def digits(seed: int) -> tuple[Any, Any, Any, Any]:
    """Return scikit-learn's digits as tensors, a quarter held out: images, labels, held-out images and labels."""
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)  # these products are too small for threads
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])
    return x[450:], y[450:], x[:450], y[:450]


def train(seed: int, dtype: Any, master: bool, rate: float, momentum: float, steps: int) -> tuple[float, float]:
    """Return held-out loss and accuracy (in percent) of an MLP 64-32-10 of this dtype, updated in it or in float32."""
    import torch

    x, y, held_x, held_y = digits(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).to(dtype)
    narrow = list(model.parameters())
    wide = [parameter.detach().float().clone() for parameter in narrow] if master else narrow
    speed = [torch.zeros_like(weight) for weight in wide]
    rows = np.random.default_rng([seed, 1]).integers(0, len(x), (steps, 32))
    for batch in rows:
        loss = torch.nn.functional.cross_entropy(model(x[batch].to(dtype)).float(), y[batch])
        gradients = torch.autograd.grad(loss, narrow)
        with torch.no_grad():
            for parameter, weight, velocity, gradient in zip(narrow, wide, speed, gradients, strict=True):
                velocity.mul_(momentum).add_(gradient.to(velocity.dtype))
                weight.sub_(rate * velocity)
                parameter.copy_(weight)
    with torch.no_grad():
        outputs = model.float()(held_x)
        right = (outputs.argmax(dim=1) == held_y).float().mean()
        return float(torch.nn.functional.cross_entropy(outputs, held_y)), 100 * float(right)


def sixteen_bits() -> tuple[Remade, Remade, Remade]:
    """Test FP16 weights without a master copy and with one, and BF16 weights: PyTorch's own dtypes on a CPU."""
    import torch

    small: dict[str, Any] = {"rate": 2.0**-12, "momentum": 0.9, "steps": 3000}
    large: dict[str, Any] = {"rate": 0.02, "momentum": 0.0, "steps": 500}
    kinds = {
        "fp32": (torch.float32, False, small),
        "fp16": (torch.float16, False, small),
        "master": (torch.float16, True, small),
        "fp32 at 0.02": (torch.float32, False, large),
        "bf16 at 0.02": (torch.bfloat16, False, large),
    }
    losses: dict[str, Array] = {}
    accuracy: dict[str, Array] = {}
    for name, (dtype, master, options) in kinds.items():
        runs = [train(seed, dtype, master, **options) for seed in seeds(5)]
        losses[name], accuracy[name] = (np.array(values) for values in zip(*runs, strict=True))
    shortfall = accuracy["fp32"] - accuracy["fp16"]
    ratio = {
        (one, other): np.mean(np.divide(losses[one], losses[other]))
        for one, other in (("fp16", "fp32"), ("master", "fp32"), ("bf16 at 0.02", "fp32 at 0.02"))
    }
    measured = [f"{value:.3f} times FP32's loss" for value in ratio.values()]
    return (
        Remade(
            "master-weights",
            "updating FP16 weights",
            f"{shortfall.mean():.1f} points below FP32; {measured[0]}",
            lies_between(shortfall, 0, np.inf),
        ),
        Remade("master-weights", "with an FP32 master copy", measured[1], matches(losses["master"], losses["fp32"])),
        Remade(
            "update-cancellation",
            "digits: standard 16-bit",
            measured[2],
            ratio_above(losses["bf16 at 0.02"], losses["fp32 at 0.02"], 1),
        ),
    )


def tuned_rates() -> tuple[Remade, Remade]:
    """Test if BF16 weights end worse at a rate of 0.02, and at the best rate, 0.7: PyTorch's own dtypes on a CPU."""
    import torch

    remade = []
    for claim, rate in (("at the earlier rate BF16", 0.02), ("BF16 with nearest updates at its best constant", 0.7)):
        narrow, wide = (
            [train(seed, dtype, False, rate, momentum=0.0, steps=500)[0] for seed in seeds(5)]
            for dtype in (torch.bfloat16, torch.float32)
        )
        measured = f"{np.mean(np.divide(narrow, wide)):.3f} times FP32's loss at {rate:g}"
        remade.append(Remade("tuned-rates", f"MLP: {claim}", measured, ratio_above(narrow, wide, 1)))
    return remade[0], remade[1]


def convolutional(seed: int, dtype: Any) -> float:
    """Return the held-out accuracy, in percent, of a convolutional network on digits, trained in one dtype by SGD."""
    import torch
    from torch import nn

    x, y, held_x, held_y = (part.reshape(-1, 1, 8, 8) if part.ndim == 2 else part for part in digits(seed))
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 10)),
    ).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    for batch in np.random.default_rng([seed, 1]).integers(0, len(x), (600, 32)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch].to(dtype)).float(), y[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        return 100 * float((model.float()(held_x).argmax(dim=1) == held_y).float().mean())


def images() -> Remade:
    """Test if a convolutional network in PyTorch's bfloat16 is less accurate than in float32."""
    import torch

    wide, narrow = ([convolutional(seed, dtype) for seed in seeds(5)] for dtype in (torch.float32, torch.bfloat16))
    return Remade(
        "bfloat16-models",
        "images: standard 16-bit",
        f"{np.mean(narrow):.1f} against {np.mean(wide):.1f} %",
        lies_between(np.subtract(wide, narrow), 0, np.inf),
    )
