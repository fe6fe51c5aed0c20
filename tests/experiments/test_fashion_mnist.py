"""Fashion-MNIST: the images that a seed may use."""

import numpy as np

from experiments.fashion_mnist import problems
from experiments.options import FIRST_SEED


def made_up_images():
    """Images whose numbers can be read off them."""
    x = np.zeros((70_000, 1, 1, 3), np.uint8)
    x[:, 0, 0, :3] = np.arange(70_000)[:, np.newaxis] // [1, 256, 65536] % 256
    return x, np.arange(70_000) % 10


def numbers(x):
    return set(np.rint(255 * x[:, 0, 0, :3].astype(float)).astype(int) @ [1, 256, 65536])


def test_no_image_is_seen_by_seeds_that_choose_and_seeds_that_decide(monkeypatch):
    monkeypatch.setattr(problems, "images", made_up_images)
    seen = {}
    for seed in (0, FIRST_SEED):
        problem = problems.clothes(seed, tiny=False)
        trained, held_out = numbers(problem.x), numbers(problem.test[0])
        assert not trained & held_out and len(held_out) == problems.HELD_OUT
        seen[seed] = trained | held_out
    assert not seen[0] & seen[FIRST_SEED] and len(seen[FIRST_SEED]) == problems.HELD_OUT + problems.TRAINED_ON


def test_a_tiny_run_needs_no_images(monkeypatch):
    monkeypatch.setattr(problems, "images", None)
    assert problems.clothes(0, tiny=True).x.shape[1:] == (1, 8, 8)
