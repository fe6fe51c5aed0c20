"""Whole models of images: torch's state, values and gradients."""

import numpy as np
import pytest

import simfloat as sf
from tests.nn.against_torch import close
from tests.nn.convolutional import detector, discriminator, generator, residual_net

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

RNG = np.random.default_rng(9)
IMAGES, NOISE = RNG.standard_normal((2, 3, 8, 8)), RNG.standard_normal((3, 5, 1, 1))
CLASSES, TRUTH = np.array([0, 2]), np.array([1.0, 0.0])
# The detector has 2 boxes at each of 4 x 4 and 2 x 2 places: which class each one holds, and where.
BOXES, PLACES = RNG.integers(0, 3, (2, 40)), RNG.standard_normal((2, 40, 4))
FACTORS = np.where(BOXES > 0, 1.0, 0.25)


class Library:
    """The functions of the losses, with one name in both libraries."""

    def __init__(self, nn, losses, constant, joined):
        self.nn, self.losses, self.constant, self.joined = nn, losses, constant, joined


OURS = Library(sf.nn, sf.nn, lambda x: x, lambda tensors: sf.concatenate(tensors, 1))
THEIRS = Library(torch.nn, torch.nn.functional, torch.tensor, lambda tensors: torch.cat(tensors, 1))


def classified(library, model, x):
    return library.losses.cross_entropy(model(x), library.constant(CLASSES))


def doubted(library, model, x):
    return library.losses.binary_cross_entropy_with_logits(model(x), library.constant(TRUTH))


def generated(library, model, x):
    return (model(x) * model(x)).sum()


def detected(library, model, x):
    """Cross-entropy of all boxes and, of those that hold something, smooth L1, both weighted."""
    scores, offsets = model(x, joined=library.joined)
    labels, truth = library.constant(BOXES.reshape(-1)), library.constant(PLACES)
    each = library.losses.cross_entropy(scores.reshape(-1, 3), labels, reduction="none")
    confidence = (each * library.constant(FACTORS.reshape(-1))).sum()
    location = library.losses.smooth_l1_loss(offsets, truth, reduction="none", beta=0.5)
    held = library.constant((BOXES > 0)[..., np.newaxis].astype(float))
    return (confidence + (location * held).sum()) / float((BOXES > 0).sum())


MODELS = {
    "residual network": (residual_net, classified, IMAGES),
    "generator": (generator, generated, NOISE),
    "discriminator": (discriminator, doubted, IMAGES),
    "detector": (detector, detected, IMAGES),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_have_torchs_state_losses_and_gradients(name):
    build, loss, x = MODELS[name]
    mine, theirs = build(sf.nn), build(torch.nn).double()
    state = theirs.state_dict()
    assert {path: value.shape for path, value in mine.state_dict().items()} == {
        path: tuple(value.shape) for path, value in state.items()
    }
    assert list(mine.state_dict()) == list(state)
    mine.load_state_dict(state)
    for training in (True, False):
        mine.train(training), theirs.train(training)
        mine.zero_grad(), theirs.zero_grad()
        a, b = sf.Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        want = loss(THEIRS, theirs, b)
        want.backward()
        with sf.simulate("fp64"):
            got = loss(OURS, mine, a)
            got.backward()
        close(got.data, want.detach().numpy(), "loss")
        close(a.grad, b.grad.numpy(), "input")
        for (path, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            # The gradient of what batch normalization subtracts again is zero but for rounding.
            scale = np.abs(q.grad.numpy()).max()
            if scale > 1e-12:
                close(p.grad, q.grad.numpy(), path)
        for path, value in theirs.state_dict().items():
            close(mine.state_dict()[path], value.numpy(), path)
    theirs.load_state_dict({path: torch.tensor(value) for path, value in mine.state_dict().items()})
