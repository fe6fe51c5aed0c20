"""Modules as trees: their parts, names and owners."""

import copy
import gc
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation.simulation import current
from tests.bits import assert_bits


def paths(module):
    return [path for path, _ in module.named_parameters()]


class Tied(sf.nn.Module):
    """Two layers that share a weight, and a third that occurs twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (sf.nn.Linear(2, 2, rng=n) for n in range(3))
        self.second.weight = self.first.weight
        self.again = self.third

    def forward(self, x):
        return self.again(self.third(self.second(self.first(x))))


def test_the_first_owner_names_a_part():
    model = sf.nn.MLP([2, 2, 2])
    wrapper = sf.nn.Sequential(model.hidden, model.head)
    assert model.hidden[0].weight.path == "hidden.0.weight" and model.head.path == "head"
    assert paths(wrapper) == ["0.0.weight", "0.0.bias", "1.weight", "1.bias"]
    del model
    gc.collect()
    assert wrapper[0][0].weight.path == "0.0.weight", "an owner that is gone does not count"


def test_parameters_and_modules_are_replaced_by_their_kind_or_by_none():
    model = sf.nn.MLP([2, 2, 2])
    for value in (np.ones((2, 2)), sf.Tensor(np.ones((2, 2))), 1.0):
        with pytest.raises(ValueError, match="'weight' is a parameter of Linear; .* New values go to weight.data"):
            model.head.weight = value
    with pytest.raises(ValueError, match="'head' is a module of MLP; assign a Module or None, not a float"):
        model.head = 1.0
    model.head = None
    assert paths(model) == ["hidden.0.weight", "hidden.0.bias"]


def test_a_module_without_its_constructor_says_what_to_do():
    class Forgetful(sf.nn.Module):
        def __init__(self):
            self.layer = sf.nn.Linear(2, 2)

    with pytest.raises(ValueError, match=r"Forgetful .* call super\(\).__init__\(\) first"):
        Forgetful()


@pytest.mark.parametrize("name", ["", "a.b", "parameters", "forward", "path"])
def test_names_that_would_mislead_are_refused(name):
    with pytest.raises(ValueError, match=f"cannot be called '{name}'"):
        setattr(sf.nn.Module(), name, sf.nn.Linear(2, 2))


def test_a_pickle_of_a_part_carries_the_part_only():
    model = sf.nn.MLP([64, 64, 2])
    assert len(pickle.dumps(model.head)) < 64 * 64 * 8 / 4
    assert len(pickle.dumps(model.head.weight)) < 64 * 64 * 8 / 4
    alone = copy.deepcopy(model.head)
    assert alone.path == "" and paths(alone) == ["weight", "bias"]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_keep_names_sharing_and_an_optimizers_parameters(again):
    model = Tied()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    twin, twins_optimizer = again((model, optimizer))
    assert twin.second.weight is twin.first.weight and twin.again is twin.third
    assert twin.first.weight is not model.first.weight
    for m, o in ((model, optimizer), (twin, twins_optimizer)):
        with sf.simulate("bf16-kahan"):
            for _ in range(3):
                o.zero_grad()
                m(np.ones((1, 2))).sum().backward()
                o.step()
    assert [p.path for p in twins_optimizer.params] == paths(model)
    for path, array in twin.state_dict().items():
        assert_bits(array, model.state_dict()[path])


def test_a_state_is_loaded_whole_or_not_at_all():
    model = sf.nn.MLP([2, 2, 2])
    before, good = model.state_dict(), {k: v + 1 for k, v in model.state_dict().items()}
    for bad, message in (
        (np.ones(3), r"head.bias has shape \(2,\), the state \(3,\)"),
        ("ab", "head.bias must"),
        ([[1.0], [1.0, 2.0]], "head.bias must be a rectangular array"),
        (np.ones(2, complex), "head.bias must hold real numbers"),
        (None, "head.bias must"),
    ):
        with pytest.raises(ValueError, match=message):
            model.load_state_dict(good | {"head.bias": bad})
        for path, array in model.state_dict().items():
            assert_bits(array, before[path])
    with pytest.raises(ValueError, match="takes a result of state_dict: arrays by path, got a list"):
        model.load_state_dict([1.0])


def test_a_tied_parameter_may_be_loaded_under_any_of_its_names():
    model = Tied()
    state = {path: array + 1 for path, array in model.state_dict().items()}
    once = {path: state[path] for path in paths(model)}  # as states were before they named it under each
    others = {path: array for path, array in state.items() if path not in ("first.weight", "third.bias")}
    for given in (state, once, others):
        model.load_state_dict({path: array * 0 for path, array in state.items()})
        assert not any(model.load_state_dict(given))
        assert_bits(model.second.weight.data, state["first.weight"])
        assert_bits(model.third.bias.data, state["again.bias"])
    with pytest.raises(ValueError, match="first.weight and second.weight are one parameter; .* different values"):
        model.load_state_dict(state | {"second.weight": state["first.weight"] + 1})
    for path in ("first.weight", "second.weight"):
        del state[path]
    with pytest.raises(ValueError, match=r"missing \['first.weight', 'second.weight'\], unknown \[\]"):
        model.load_state_dict(state)


def test_a_state_that_fits_in_part_is_taken_in_part_if_asked_for_and_what_is_left_is_named_as_in_torch():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    model = sf.nn.Sequential(sf.nn.Linear(2, 3), sf.nn.BatchNorm1d(3))
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).double()
    state = {path: array + 1 for path, array in model.state_dict().items() if path not in ("0.bias", "1.running_var")}
    state |= {"head.weight": np.ones(3), "1.scale": np.ones(3)}
    untouched = model[0].bias.data.copy()
    keys = model.load_state_dict(state, strict=False)
    wanted = theirs.load_state_dict({path: torch.tensor(array) for path, array in state.items()}, strict=False)
    assert keys.missing_keys == wanted.missing_keys == ["0.bias", "1.running_var"]
    assert keys.unexpected_keys == wanted.unexpected_keys == ["head.weight", "1.scale"]
    assert_bits(model[0].weight.data, state["0.weight"])
    assert_bits(model[0].bias.data, untouched)
    assert repr(keys) == ("Keys(missing_keys=['0.bias', '1.running_var'], unexpected_keys=['head.weight', '1.scale'])")
    assert repr(model.load_state_dict(model.state_dict())) == "<All keys matched successfully>"
    with pytest.raises(ValueError, match=r"missing \['0.bias', .*With strict=False, only the keys that both have"):
        model.load_state_dict(state)
    with pytest.raises(ValueError, match=r"0.weight has shape \(3, 2\), the state \(3,\)"):
        model.load_state_dict({"0.weight": np.ones(3)}, strict=False)
    with pytest.raises(ValueError, match="strict must be True or False, got 'no'"):
        model.load_state_dict(state, "no")


class Where(sf.nn.Module):
    """Says under which path it runs."""

    def forward(self, heard):
        heard.append(current().place("add").path)
        time.sleep(1e-4)  # lets others run
        return heard


def test_models_that_share_a_simulation_in_threads_keep_their_names():
    simulation = sf.simulate("bf16-standard")

    def run(depth):
        model = Where()
        for _ in range(depth):
            model = sf.nn.Sequential(model)
        heard = []
        for _ in range(20):
            with simulation:
                model(heard)
        return set(heard)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == [{""}, {"0"}, {"0.0"}, {"0.0.0"}]
