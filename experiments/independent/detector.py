"""Findings on loss scales: a Single Shot Detector in PyTorch, with digits on scikit-image's textures."""

from __future__ import annotations

from functools import cache
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from experiments.independent import casts
from experiments.independent.casts import Rounding
from experiments.independent.narrow import Array, Remade, lies_between, matches, ratio_above, seeds

#: The sizes of the default boxes, the channels and strides of the convolutions, and the factor of small gradients.
SIZES, CHANNELS, STRIDES, SHRINK = (8, 16), (8, 8, 16, 16, 32, 32), (1, 2, 1, 2, 1, 2), 2.0**-18

#: Steps of a run: the experiment makes 200.
STEPS = 80

#: Least magnitude that does not become zero in FP16.
LEAST = 2.0**-25


@cache
def scenes(seed: int, count: int) -> tuple[Any, Any]:
    """Return images (N, 1, 32, 32) of one to three digits on textures, and for each default box class and offsets."""
    import skimage
    import torch
    from PIL import Image
    from sklearn.datasets import load_digits

    rng = np.random.default_rng([seed, 5])
    pictures, labels = load_digits(return_X_y=True)
    folder = Path(skimage.__file__).parent / "data"
    textures = [np.asarray(Image.open(folder / f"{name}.png")) / 255 for name in ("brick", "grass", "gravel")]
    centres = [(8 * column + 4, 8 * row + 4) for row in range(4) for column in range(4)]
    boxes = np.array([(x, y, size, size) for x, y in centres for size in SIZES], float)
    images, targets = np.zeros((count, 1, 32, 32), np.float32), np.zeros((count, len(boxes), 5), np.float32)
    for image, target in zip(images[:, 0], targets, strict=True):
        top, left = rng.integers(0, 480, 2)
        image[:] = textures[rng.integers(3)][top : top + 32, left : left + 32] / 2
        objects = []
        for _ in range(rng.integers(1, 4)):
            number, factor = rng.integers(len(labels)), int(rng.integers(1, 3))
            digit = pictures[number].reshape(8, 8).repeat(factor, 0).repeat(factor, 1) / 16
            x, y = rng.integers(0, 33 - 8 * factor, 2)
            part = image[y : y + 8 * factor, x : x + 8 * factor]
            part[:] = np.maximum(part / 2, digit)
            objects.append((x + 4 * factor, y + 4 * factor, 8 * factor, 8 * factor, labels[number]))
        match(target, boxes, np.array(objects, float))
    return torch.from_numpy(images), torch.from_numpy(targets)


def match(target: Any, boxes: Array, objects: Array) -> None:
    """Write class and offsets of the object that each box overlaps by half, or that is nearest to it."""
    low = np.maximum(boxes[:, None, :2] - boxes[:, None, 2:] / 2, objects[:, :2] - objects[:, 2:4] / 2)
    high = np.minimum(boxes[:, None, :2] + boxes[:, None, 2:] / 2, objects[:, :2] + objects[:, 2:4] / 2)
    shared = np.clip(high - low, 0, None).prod(2)
    union = boxes[:, None, 2:].prod(2) + objects[:, 2:4].prod(1) - shared
    overlap = shared / union
    best, chosen = overlap.argmax(1), overlap.max(1) >= 0.5
    for number, box in enumerate(overlap.argmax(0)):
        best[box], chosen[box] = number, True
    wanted = objects[best[chosen]]
    target[chosen, 0] = 1 + wanted[:, 4]
    target[chosen, 1:3] = (wanted[:, :2] - boxes[chosen, :2]) / boxes[chosen, 2:] / 0.1
    target[chosen, 3:] = np.log(wanted[:, 2:4] / boxes[chosen, 2:]) / 0.2


def loss(output: Any, target: Any) -> Any:
    """Return cross-entropy of classes and smooth L1 of offsets, per matched box, with three hard negatives for each."""
    import torch
    from torch.nn.functional import cross_entropy, smooth_l1_loss

    labels = target[..., 0].long()
    matched = labels > 0
    each = cross_entropy(output[..., :11].transpose(1, 2), labels, reduction="none")
    rank = torch.where(matched, -torch.inf, each.detach()).argsort(1, descending=True).argsort(1)
    counted = matched | (rank < 3 * matched.sum(1, keepdim=True))
    offsets = smooth_l1_loss(output[..., 11:][matched], target[..., 1:][matched], reduction="sum")
    return (each[counted].sum() + offsets) / matched.sum()


class Gradients:
    """A rounding of gradients that counts zeros, and how many of them, and of small ones, FP16 loses."""

    def __init__(self, to: Rounding) -> None:
        self._to, self.counts, self.counting = to, np.zeros(5), True

    def __call__(self, x: Any) -> Any:
        """Return the rounded gradient."""
        size = x.abs()
        if self.counting:
            lost = [((size > 0) & (size * scale < LEAST)).sum() for scale in (1.0, SHRINK, SHRINK * 2.0**15)]
            self.counts += [x.numel(), int((x == 0).sum()), *map(int, lost)]
        return self._to(x)


def train(seed: int, narrow: bool, shrink: float = 1.0, scale: float = 1.0) -> tuple[float, Array, int]:
    """Return held-out loss, counts of gradients and skipped steps of 80 steps of Adam, with float32 weights."""
    import torch

    torch.set_num_threads(1)  # these products are too small for threads
    torch.manual_seed(seed)
    (x, y), (held_x, held_y) = scenes(seed, 512), scenes(seed + 10**6, 64)
    to = casts.fp16 if narrow else casts.exact
    gradients, formats = Gradients(to), casts.Formats(to, to, to, to)
    widths = zip((1, *CHANNELS), CHANNELS, strict=False)
    weights = [torch.randn(after, before, 3, 3) * (2 / (9 * before)) ** 0.5 for before, after in widths]
    weights += [(2 * torch.rand(2 * size, 32, 3, 3) - 1) / 288**0.5 for size in (11, 4)]
    weights = [each.requires_grad_() for each in weights]
    shifts = [torch.zeros(each.shape[0], requires_grad=True) for each in weights]

    def layer(x: Any, place: int, formats: casts.Formats, back: Rounding, stride: int = 1) -> Any:
        x = casts.product(x, weights[place], formats, stride=stride, padding=1) + shifts[place][:, None, None]
        return casts.rounded(x, formats.results, back)

    def outputs(x: Any, formats: casts.Formats, back: Rounding) -> Any:
        for place, stride in enumerate(STRIDES):
            x = casts.rounded(layer(x, place, formats, back, stride).relu(), formats.results, back)
        heads = [layer(x, place, formats, back).permute(0, 2, 3, 1).reshape(len(x), 32, -1) for place in (6, 7)]
        return torch.cat(heads, 2)

    optimizer = torch.optim.Adam([*weights, *shifts], lr=5e-3, eps=1e-8 * shrink)
    skipped, losses = 0, []
    for step, rows in enumerate(np.random.default_rng([seed, 1]).integers(0, len(x), (STEPS, 8)), 1):
        optimizer.zero_grad()
        gradients.counting = step % 8 == 0
        (shrink * scale * loss(outputs(x[rows], formats, gradients), y[rows])).backward()
        found = [each.grad for each in (*weights, *shifts)]
        if all(bool(each.isfinite().all()) for each in found):
            for each in found:
                each.copy_(to(each) / scale)
            optimizer.step()
        else:
            skipped += 1
        if step > 0.8 * STEPS and step % 8 == 0:
            with torch.no_grad():
                losses.append(float(loss(outputs(held_x, casts.Formats(), casts.exact), held_y)))
    return float(np.mean(losses)), gradients.counts, skipped


def detection() -> tuple[Remade, ...]:
    """Train the detector with its own gradients, and with small ones under several scales; count its gradients."""
    numbers = seeds(3)
    plain, half = ([train(seed, narrow) for seed in numbers] for narrow in (False, True))
    small = {scale: [train(seed, True, SHRINK, scale) for seed in numbers] for scale in (1.0, 8.0, 2.0**15)}
    counted = np.array([counts for _, counts, _ in plain])
    zeros, lost = 100 * counted[:, 1] / counted[:, 0], 100 * counted[:, 2] / counted[:, 0]
    wide, narrow = (np.array([each[0] for each in runs]) for runs in (plain, half))
    losses = {scale: np.array([each[0] for each in runs]) for scale, runs in small.items()}
    missing, still = 100 * counted[:, 3] / counted[:, 0], 100 * counted[:, 4] / counted[:, 3]
    skipped = sum(each[2] for each in small[2.0**15])
    saved = lies_between(still, -np.inf, 0.1) if skipped == 0 else "not reproduced"
    texts = {scale: f"{np.mean(values / wide):.3f} times FP32's loss" for scale, values in losses.items()}
    return (
        row("two thirds of the activation gradients", f"{zeros.mean():.1f} %", lies_between(zeros, 65.8, 67.8)),
        row("a third of the activation gradients", f"{lost.mean():.3f} %", lies_between(lost, 30, 32)),
        row(
            "detector: without a scale",
            f"{np.mean(narrow / wide):.3f} times FP32's loss",
            ratio_above(narrow, wide, 1.05),
        ),
        row("small-gradients: without a scale", texts[1.0], ratio_above(losses[1.0], wide, 1.05)),
        row("small-gradients: a scale of 8 suffices", texts[8.0], matches(losses[8.0], wide)),
        row("small-gradients: a scale of 32768 suffices", texts[2.0**15], matches(losses[2.0**15], wide)),
        row(
            "small-gradients: a scale of 32K recovers",
            f"{missing.mean():.1f} % of all values are lost, {still.mean():.3f} % of them under 32K; {skipped} skips",
            saved,
        ),
        other_shares(),
    )


def row(claim: str, measured: str, verdict: str) -> Remade:
    """Return a finding of the experiment detection."""
    return Remade("detection", claim, measured, verdict)


def other_shares() -> Remade:
    """Compute shares of a normal distribution with mean -29 and deviation 4 that the guide prints."""

    def below(exponent: float) -> float:
        return (1 + erf((exponent + 29) / 4 / sqrt(2))) / 2

    printed = {(-34, -32): 2, (-24, -23): 2, (-32, -30): 4}
    shares = {bins: 33.2 * (below(bins[1]) - below(bins[0])) for bins in printed}
    wrong = sum(abs(shares[bins] - printed[bins]) > 0.5 for bins in printed)
    measured = ", ".join(f"{share:.1f} %" for share in shares.values())
    return row("the fitted distribution has the shares", measured, "not reproduced" if wrong else "reproduced")
