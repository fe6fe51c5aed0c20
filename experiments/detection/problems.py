"""A small version of the detector: six convolutions and two heads."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.detection.boxes import CLASSES, SIZES, default_boxes, detection_loss, targets
from experiments.detection.scenes import draw_scenes
from experiments.problem import Problem
from experiments.training import Problems
from simfloat import nn

#: Channels of the convolutions, and the factor by which each divides the size of the image.
CHANNELS, STRIDES = (8, 8, 16, 16, 32, 32), (1, 2, 1, 2, 1, 2)

#: This factor gives the gradients the guide's exponents: FP16 then loses nine of ten nonzero ones.
SHRINK = 2.0**-18

Data = tuple[NDArray[np.float32], NDArray[np.float32]]


class Detector(nn.Module):
    """Convolutions with ReLU as in VGG, without normalisation; the last map has one head for classes, one for boxes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        widths = (1, *CHANNELS)
        self.backbone = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, rng=rng)
            for before, after, stride in zip(widths, CHANNELS, STRIDES, strict=False)
        )
        self.relu = nn.ReLU()
        self.classes = nn.Conv2d(CHANNELS[-1], len(SIZES) * CLASSES, 3, padding=1, rng=rng)
        self.boxes = nn.Conv2d(CHANNELS[-1], len(SIZES) * 4, 3, padding=1, rng=rng)
        for name, parameter in self.named_parameters():
            if name.startswith("backbone") and name.endswith("weight"):
                parameter.data = rng.normal(0, np.sqrt(2 / np.prod(parameter.shape[1:])), parameter.shape)

    def forward(self, x: NDArray) -> sf.Tensor:
        """Return logits and offsets of every default box (N, boxes, classes + 4) for images (N, 1, 32, 32)."""
        maps: NDArray | sf.Tensor = x
        for convolution in self.backbone:
            maps = self.relu(convolution(maps))
        heads = [head(maps).transpose(0, 2, 3, 1) for head in (self.classes, self.boxes)]
        rows = len(x), len(default_boxes())
        return sf.concatenate([heads[0].reshape(*rows, CLASSES), heads[1].reshape(*rows, 4)], axis=2)


@cache
def scenes_with_targets(number: int, seed: int) -> Data:
    """Return images, and the targets of all their default boxes."""
    scenes = draw_scenes(number, seed)
    return scenes.images, targets(scenes)


def detector(seed: int, tiny: bool, shrink: float = 1.0) -> Problem:
    """Detect digits on textures; if the loss is multiplied by a power of two, the updates do not change."""
    x, y = scenes_with_targets(16 if tiny else 512, seed)
    return Problem(
        x=x,
        y=y,
        model=partial(Detector, seed),
        loss=lambda output, target: detection_loss(output, target) * shrink,
        optimizer=partial(sf.optim.Adam, lr=5e-3, eps=1e-8 * shrink),
        batch=2 if tiny else 8,
        steps=2 if tiny else 200,
        test=scenes_with_targets(4 if tiny else 64, seed + 10**6),
        measures=recognised,
        records=10,
    )


def recognised(model: nn.Module, output: NDArray, y: NDArray) -> dict[str, float]:
    """Return the share of boxes with an object whose class is right, and the mean error of their offsets."""
    matched = y[:, :, 0] > 0
    right = output[:, :, :CLASSES].argmax(axis=2) == y[:, :, 0]
    return {
        "recognised": float(right[matched].mean()),
        "offset_error": float(np.abs(output[:, :, CLASSES:] - y[:, :, 1:])[matched].mean()),
    }


PROBLEMS: Problems = {"detector": detector, "small-gradients": partial(detector, shrink=SHRINK)}
