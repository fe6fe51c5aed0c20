"""Buffers: arrays that are part of the state of a module, but are not trained."""

import copy
import pickle

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


class Counting(sf.nn.Module):
    """A layer that keeps a mean, a count, and what it can do without."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", np.zeros(3, np.float32))
        self.register_buffer("count", np.array(0))
        self.weight = sf.nn.Parameter(np.ones(3))
        self.register_buffer("scratch", np.ones(2), persistent=False)
        self.register_buffer("absent", None)
        self.inside = sf.nn.Linear(2, 2, rng=0)


def test_names_and_order_are_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.tensor(0))
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("scratch", torch.ones(2), persistent=False)
            self.register_buffer("absent", None)
            self.inside = torch.nn.Linear(2, 2)

    mine, theirs = (
        sf.nn.Sequential(Counting(), Counting()), torch.nn.Sequential(Theirs(), Theirs())
    )  # fmt: skip
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [name for name, _ in mine.named_buffers()] == [name for name, _ in theirs.named_buffers()]
    assert [b.shape for b in mine.buffers()] == [tuple(b.shape) for b in theirs.buffers()]
    mine.load_state_dict(theirs.state_dict())
    assert mine[0].count.dtype == np.int64 and mine[0].mean.dtype == np.float32


def test_a_state_restores_buffers_and_hands_out_copies():
    model, other = Counting(), Counting()
    model.mean, model.count = [0.5, 1.5, 2.5], model.count + 3
    state = model.state_dict()
    other.load_state_dict(state)
    state["mean"][:] = 9
    assert_bits(other.mean, [0.5, 1.5, 2.5])
    assert_bits(model.mean, [0.5, 1.5, 2.5])
    assert other.count.dtype == np.int64 and other.count == 3


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), copy.copy])
def test_copies_and_pickles_keep_buffers_of_their_own(copied):
    model = Counting()
    model.mean = np.arange(3.0)
    twin = copied(model)
    twin.mean = np.zeros(3)
    twin.register_buffer("more", np.ones(1))
    assert_bits(model.mean, np.arange(3.0))
    assert list(model.state_dict()) + ["more"] == sorted(twin.state_dict(), key=[*model.state_dict(), "more"].index)
    assert "scratch" not in twin.state_dict()


def test_buffers_of_a_module_that_occurs_twice_are_listed_once_and_loaded_from_either_name():
    model = sf.nn.Sequential(Counting())
    model.again = model[0]
    assert [name for name, _ in model.named_buffers()] == ["0.mean", "0.count", "0.scratch"]
    state = model.state_dict()
    for half in ("0.", "again."):
        model.load_state_dict({name: value for name, value in state.items() if name.startswith(half)})
    with pytest.raises(ValueError, match="0.mean and again.mean are one buffer; the state has different values"):
        model.load_state_dict({**state, "again.mean": np.ones(3)})


def test_a_deleted_buffer_is_gone_and_its_name_is_free():
    model = Counting()
    del model.mean
    assert "mean" not in model.state_dict()
    model.mean = "a word"
    assert model.mean == "a word"


def test_truth_values_and_integers_keep_their_type():
    module = sf.nn.Module()
    module.register_buffer("mask", np.tri(3, dtype=bool))
    module.register_buffer("places", [1, 2])
    module.register_buffer("seen", np.int32(4))
    assert module.mask.dtype == bool and module.seen.dtype == np.int32
    assert module.places.dtype == np.float64, "a list is read as numbers"
    module.load_state_dict(module.state_dict())
    assert module.mask.dtype == bool and module.mask[1, 0]


@pytest.mark.parametrize("call, message", [
    (lambda m: m.register_buffer("a.b", np.ones(1)), "text without dots, and not the name of a Module attribute"),
    (lambda m: m.register_buffer("train", np.ones(1)), "not the name of a Module attribute; got 'train'"),
    (lambda m: m.register_buffer(3, np.ones(1)), "text without dots"),
    (lambda m: m.register_buffer("weight", np.ones(1)), "Counting has an attribute 'weight' already"),
    (lambda m: m.register_buffer("words", "ab"), "words must hold real numbers"),
    (lambda m: setattr(m, "mean", sf.Tensor([1.0])), "'mean' is a buffer of Counting; assign an array or None"),
    (lambda m: setattr(m, "mean", sf.nn.Linear(2, 2)), "'mean' is a buffer of Counting"),
    (lambda m: m.load_state_dict({**m.state_dict(), "mean": np.ones(2)}), r"mean has shape \(3,\), the state"),
    (lambda m: m.load_state_dict({**m.state_dict(), "count": 0.5}), "count has dtype int64; the state has values that"),
    (
        lambda m: m.load_state_dict({k: v for k, v in m.state_dict().items() if k != "count"}),
        r"missing \['count'\], unknown \[\]",
    ),
])  # fmt: skip
def test_bad_use_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(Counting())


def test_a_state_that_does_not_fit_changes_nothing():
    model = Counting()
    with pytest.raises(ValueError):
        model.load_state_dict({**model.state_dict(), "mean": np.ones(3), "count": 0.5})
    assert_bits(model.mean, np.zeros(3))
