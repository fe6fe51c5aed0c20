"""The detector in small: scenes, default boxes, the loss of both heads, and the histogram of gradients."""

import numpy as np
import pytest

import simfloat as sf
from experiments.detection.boxes import (
    CLASSES,
    NEGATIVES,
    default_boxes,
    detection_loss,
    hardest,
    offsets,
    overlaps,
    targets,
)
from experiments.detection.findings import lost_share
from experiments.detection.jobs import kept_by_scale
from experiments.detection.problems import Detector, detector
from experiments.detection.scenes import SIZE, Scenes, draw_scenes
from experiments.training import train


def corners(boxes):
    return np.hstack([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2])


def test_scenes_have_one_to_three_digits_inside_and_are_the_same_for_a_seed():
    scenes, again = draw_scenes(20, seed=3), draw_scenes(20, seed=3)
    assert (scenes.images == again.images).all() and scenes.images.min() >= 0 and scenes.images.max() <= 1
    for boxes, digits in scenes.objects:
        assert 1 <= len(boxes) == len(digits) <= 3 and set(digits) <= set(range(10))
        assert (boxes >= 0).all() and (boxes <= SIZE).all() and set((boxes[:, 2:] - boxes[:, :2]).ravel()) <= {8, 16}


def test_overlaps_are_intersection_over_union():
    found = overlaps(np.array([[4.0, 4, 8, 8]]), np.array([[0.0, 0, 8, 8], [4, 0, 12, 8], [8, 8, 16, 16]]))
    assert found.tolist() == [[1.0, 32 / 96, 0.0]]


def test_a_default_box_on_its_object_is_asked_for_no_offset_and_every_object_has_a_box():
    defaults = default_boxes()
    assert (offsets(defaults, corners(defaults)) == 0).all()
    far = np.array([[0.0, 0.0, 8.0, 8.0], [29.0, 29.0, 32.0, 32.0]])  # the second overlaps no default box by half
    found = targets(Scenes(np.zeros((1, 1, SIZE, SIZE), np.float32), [(far, np.array([0, 9]))]))[0]
    assert sorted(set(found[:, 0])) == [0, 1, 10] and found[0].tolist() == [1, 0, 0, 0, 0]
    moved = offsets(np.array([[4.0, 4, 8, 8]]), np.array([[1.0, 0, 9, 16]]))
    np.testing.assert_allclose(moved, [[1.25, 5.0, 0.0, np.log(2) / 0.2]], rtol=1e-12)


def test_the_hardest_negatives_are_three_for_each_match():
    rng = np.random.default_rng(0)
    logits, matched = rng.normal(size=(2, 32, CLASSES)), np.zeros((2, 32), bool)
    matched[0, :2] = True
    chosen = hardest(logits, matched)
    assert chosen.sum(axis=1).tolist() == [2 * NEGATIVES, 0] and not (chosen & matched).any()
    loss = np.log(np.exp(logits).sum(axis=2)) - logits[:, :, 0]
    assert loss[0][chosen[0]].min() >= loss[0][~chosen[0] & ~matched[0]].max()


def test_the_loss_is_the_sum_over_boxes_that_count_by_the_number_of_matches():
    rng = np.random.default_rng(1)
    wanted, output = targets(draw_scenes(3, seed=5)), rng.normal(size=(3, 32, CLASSES + 4))
    with sf.simulate("fp64"):
        found = detection_loss(sf.Tensor(output), wanted).item()
    logits, labels, matched = output[:, :, :CLASSES], wanted[:, :, 0].astype(np.int64), wanted[:, :, 0] > 0
    picked = np.take_along_axis(logits, labels[:, :, np.newaxis], axis=2)[:, :, 0]
    classes = (np.log(np.exp(logits).sum(axis=2)) - picked)[matched | hardest(logits, matched)].sum()
    distance = np.abs(output[:, :, CLASSES:] - wanted[:, :, 1:])[matched]
    boxes = np.where(distance < 1, distance**2 / 2, distance - 0.5).sum()
    np.testing.assert_allclose(found, (classes + boxes) / matched.sum(), rtol=1e-12)


def test_the_detector_speaks_of_every_default_box():
    with sf.simulate("fp32"):
        assert Detector(0)(np.zeros((2, 1, SIZE, SIZE), np.float32)).shape == (2, len(default_boxes()), CLASSES + 4)


def test_a_shrunk_loss_is_the_same_training():
    whole, small = (
        train(detector(0, True, shrink), sf.policies["fp32"], seed=0, records=1) for shrink in (1.0, 2.0**-18)
    )
    np.testing.assert_allclose(np.array(small["loss"]) * 2.0**18, whole["loss"], rtol=1e-4)


def test_gradients_that_fp16_loses_are_counted_by_exponents():
    histogram = {"zero": 5, "-26": 3, "-25": 1, "-24": 1}
    assert [lost_share(histogram, exponent) for exponent in (0, 1)] == [30.0, 0.0]


def test_the_guides_shares_are_those_of_a_normal_distribution():
    kept = kept_by_scale(seed=0, samples=200_000)
    assert kept["1"] == pytest.approx(0.053, abs=0.002) and kept["32768"] == pytest.approx(0.331, abs=0.004)
