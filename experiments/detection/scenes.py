"""Scenes with known boxes and classes: real digits on real textures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import datasets

#: Pixels along a side of a scene; digits have 8 of them, or twice as many.
SIZE, DIGIT = 32, 8

#: The brightness of textures relative to digits.
DIMMED = 0.5


class Scenes(NamedTuple):
    """Images (N, 1, 32, 32), and the objects of each: boxes (objects, 4) as left, top, right, bottom, and digits."""

    images: NDArray[np.float32]
    objects: list[tuple[NDArray[np.float64], NDArray[np.int64]]]


def draw_scenes(number: int, seed: int) -> Scenes:
    """Draw scenes with one to three digits each, on pieces of brick, grass and gravel."""
    rng = np.random.default_rng([seed, 3])
    textures, (digits, labels) = list(datasets.textures().values()), datasets.digits()
    images = np.empty((number, 1, SIZE, SIZE), np.float32)
    objects = []
    for image in images[:, 0]:
        texture = textures[rng.integers(len(textures))]
        top, left = rng.integers(0, len(texture) - SIZE, 2)
        image[:] = DIMMED * texture[top : top + SIZE, left : left + SIZE]
        boxes, classes = [], []
        for _ in range(rng.integers(1, 4)):
            chosen, factor = rng.integers(len(digits)), int(rng.integers(1, 3))
            digit = np.kron(digits[chosen].reshape(DIGIT, DIGIT), np.ones((factor, factor)))
            x, y = rng.integers(0, SIZE - len(digit) + 1, 2)
            part = image[y : y + len(digit), x : x + len(digit)]
            part[:] = np.maximum(part / 2, digit)
            boxes.append((x, y, x + len(digit), y + len(digit)))
            classes.append(labels[chosen])
        objects.append((np.array(boxes, np.float64), np.array(classes, np.int64)))
    return Scenes(images, objects)
