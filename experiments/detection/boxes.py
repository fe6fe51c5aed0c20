"""Default boxes, their targets in a scene, and the loss: the Single Shot Detector (Liu et al., ECCV 2016)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from experiments.detection.scenes import DIGIT, SIZE, Scenes
from simfloat import nn

#: Cells along a side of the feature map, and the sizes of the boxes around the centre of each cell.
CELLS, SIZES = 4, (DIGIT, 2 * DIGIT)

#: The digits and, as class 0, no object.
CLASSES = 11

#: A default box shows an object with at least this intersection over union.
OVERLAP = 0.5

#: Boxes without an object that count in the loss, for each box with one.
NEGATIVES = 3

#: Divisors of the offsets of centres and of sizes (the detector's "variances").
VARIANCES = np.array([0.1, 0.1, 0.2, 0.2])


def default_boxes() -> NDArray[np.float64]:
    """Return centres and sizes (cells * cells * sizes, 4), in rows of cells from top to bottom."""
    middles = (np.arange(CELLS) + 0.5) * SIZE / CELLS
    return np.array([(x, y, size, size) for y in middles for x in middles for size in SIZES], np.float64)


def targets(scenes: Scenes) -> NDArray[np.float32]:
    """Return for each scene and default box its class and four offsets (N, boxes, 5); class 0 if there is no object."""
    defaults = default_boxes()
    found = np.zeros((len(scenes.images), len(defaults), 5), np.float32)
    for rows, (boxes, digits) in zip(found, scenes.objects, strict=True):
        shared = overlaps(defaults, boxes)
        best = shared.argmax(axis=1)
        matched = shared.max(axis=1) >= OVERLAP
        # Every object has at least the box that overlaps it most.
        nearest = shared.argmax(axis=0)
        best[nearest], matched[nearest] = np.arange(len(boxes)), True
        rows[matched, 0] = 1 + digits[best[matched]]
        rows[matched, 1:] = offsets(defaults[matched], boxes[best[matched]])
    return found


def overlaps(defaults: NDArray, boxes: NDArray) -> NDArray[np.float64]:
    """Return the intersection over union of each default box (centre and size) with each box (corners)."""
    low, high = defaults[:, :2] - defaults[:, 2:] / 2, defaults[:, :2] + defaults[:, 2:] / 2
    sides = np.minimum(high[:, None], boxes[None, :, 2:]) - np.maximum(low[:, None], boxes[None, :, :2])
    shared = np.clip(sides, 0, None).prod(axis=2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return shared / (defaults[:, 2:].prod(axis=1)[:, None] + areas - shared)


def offsets(defaults: NDArray, boxes: NDArray) -> NDArray[np.float64]:
    """Return the target offsets of a default box for an object with these corners."""
    middle, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    moved, grown = (middle - defaults[:, :2]) / defaults[:, 2:], np.log(size / defaults[:, 2:])
    return np.hstack([moved, grown]) / VARIANCES


def detection_loss(output: sf.Tensor, target: NDArray) -> sf.Tensor:
    """Return cross-entropy of classes and smooth L1 of offsets, summed over boxes, per box with an object.

    `output` is (N, boxes, classes + 4), `target` is (N, boxes, 5). For each box with an object, the three hardest boxes
    without an object count.
    """
    logits, found = output[:, :, :CLASSES], output[:, :, CLASSES:]
    labels = target[:, :, 0].astype(np.int64)
    matched = labels > 0
    number = max(1, int(matched.sum()))
    counted = np.where(matched | hardest(logits.data, matched), labels, -100)
    classes = nn.cross_entropy(logits, counted, reduction="sum")
    rows = np.nonzero(matched)
    boxes = nn.smooth_l1_loss(found[rows], target[rows][:, 1:], reduction="sum")
    return (classes + boxes) / number


def hardest(logits: NDArray, matched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the boxes without an object that have the largest loss: three per scene for each box with one."""
    shifted = logits.astype(np.float64) - logits.max(axis=2, keepdims=True)
    loss = np.log(np.exp(shifted).sum(axis=2)) - shifted[:, :, 0]
    rank = np.argsort(np.argsort(-np.where(matched, -np.inf, loss), axis=1, kind="stable"), axis=1)
    return ~matched & (rank < NEGATIVES * matched.sum(axis=1, keepdims=True))
