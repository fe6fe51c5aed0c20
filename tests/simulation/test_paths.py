"""Paths: the names of modules and parameters by the running root or the first owner, and the paths that occurred."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

X = np.ones((2, 3))


def stepped(model, policy, recorder=None):
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    with sf.simulate(policy, observer=recorder):
        model(X).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("pattern", ["*", "head", "head.weight", "head.bias", "*.weight", "hidden.0.*", ""])
def test_a_pattern_that_matches_a_layer_or_a_parameter_is_not_refused(pattern):
    stepped(sf.nn.MLP([3, 4, 2]), sf.policies["fp32"].override(pattern, compute=sf.BF16))


def test_everything_is_matched_by_a_star_outside_of_models_too():
    with sf.simulate(sf.policies["fp32"].override("*", activations=sf.BF16)):
        y = sf.Tensor([1.0]) * 0.1
    assert y.format == sf.BF16


def test_an_optimizers_step_in_a_block_of_its_own_knows_its_parameters():
    model = sf.nn.MLP([3, 4, 2], rng=0)
    policy = sf.policies["fp32"].override("head", compute=sf.BF16).override(operation="relu", activations=sf.BF16)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    with sf.simulate(policy):
        loss = model(X).sum()
    with sf.simulate(policy):
        loss.backward()
    with sf.simulate(policy):
        optimizer.step()
    assert model.head.weight.format == sf.BF16 and model.hidden[0].weight.format == sf.FP32
    with sf.simulate(sf.policies["fp32"].override("tail", compute=sf.BF16)):
        pass
    with pytest.raises(ValueError, match="Override 'tail' matches no layer and no parameter. Paths: hidden.0.weight"):
        with sf.simulate(sf.policies["fp32"].override("tail", compute=sf.BF16)):
            optimizer.step()


def test_a_module_is_called_as_the_running_root_calls_it_else_as_its_first_owner():
    model, recorder = sf.nn.MLP([3, 4, 2]), sf.Recorder()
    wrapped = sf.nn.Sequential(model.hidden, model.head)
    with sf.simulate("fp32", observer=recorder):
        wrapped(X).sum().backward()
    assert recorder.counts("0.0", "forward")["total"] > 0 and recorder.counts("1.bias", "backward")["total"] == 2
    other = sf.Recorder()
    with sf.simulate("fp32", observer=other):
        model(X).sum().backward()
    assert other.counts("head.bias", "backward")["total"] == 2
    alone = sf.Recorder()
    with sf.simulate("fp32", observer=alone):
        model.head(model.hidden(X)).sum().backward()
    assert alone.counts("head.bias", "backward")["total"] == 2 and alone.counts("hidden.0", "forward")["total"] > 0


class Tied(sf.nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = sf.nn.Linear(3, 3, rng=0), sf.nn.Linear(3, 3, rng=1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def test_a_tied_parameter_has_one_path_and_is_an_operand_of_each_of_its_layers():
    recorder = sf.Recorder()
    policy = sf.policies["fp32"].override("second", compute=sf.BF16)
    model = Tied()
    stepped(model, policy, recorder)
    assert (
        recorder.counts("first.weight", "backward")["total"] == 9 == recorder.counts("first.weight", "update")["total"]
    )
    assert model.first.weight.format == sf.FP32
    with sf.simulate(policy):
        x = sf.Tensor(model.first(X).data)
        got = model.second(x)
    want = sf.matmul(x.data, model.first.weight.data.T, inputs=sf.BF16, accumulate=sf.FP32, output=sf.BF16)
    assert_bits(got.data, sf.add(want, model.second.bias.data, sf.BF16))


@pytest.mark.parametrize("role", [{"weights": sf.BF16}, {"update": "kahan"}, {"optimizer_state": sf.BF16}], ids=str)
def test_the_storage_of_a_tied_parameter_follows_its_first_path(role):
    """What concerns it as an operand of its second layer is said by the other."""
    for path, roles in (("first.weight", role), ("second.weight", {"compute": sf.BF16}), ("second.*", role)):
        stepped(Tied(), sf.policies["fp32"].override(path, **roles), None)
    policy = sf.policies["fp32"].override("second.weight", **role, compute=sf.BF16)
    with pytest.raises(ValueError, match=rf"sets {next(iter(role))}, .* stored once, as 'first.weight'"):
        stepped(Tied(), policy, None)


def test_draws_of_a_tied_parameter_are_given_by_its_first_path():
    draws = {"second.weight": sf.GivenBits(np.zeros(9, np.int64))}
    with pytest.raises(ValueError, match=r"names 'second.weight', .* stored once, as 'first.weight'"):
        with sf.simulate("bf16-stochastic", draws=draws):
            Tied()(X).sum().backward()


def test_a_simulation_inside_a_layer_continues_at_its_path():
    recorder = sf.Recorder()

    class Careful(sf.nn.Linear):
        def forward(self, x):
            with sf.simulate("fp64", observer=recorder):
                return super().forward(x).exp()

    model = sf.nn.Sequential(Careful(3, 2))
    with sf.simulate("bf16-standard"):
        model(X)
    assert recorder.counts("0")["total"] > 0


class Blocks(sf.nn.Module):
    """Layers of one width, which run in their order, and a head."""

    def __init__(self):
        super().__init__()
        self.blocks = sf.nn.ModuleList([sf.nn.Linear(3, 3, rng=0), sf.nn.Linear(3, 3, rng=1)])
        self.head = sf.nn.Linear(3, 2, rng=2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def reverse(model):
    model.blocks = sf.nn.ModuleList(reversed(model.blocks))


def exchange(model):
    """Rename the layers by attributes of the list."""
    first, second = model.blocks
    setattr(model.blocks, "0", second)
    setattr(model.blocks, "1", first)


def nest(model):
    head = model.head
    del model.head
    model.head = sf.nn.Sequential(head)


def trained(model, sim, optimizer):
    with sim:
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("move", "path", "times"), [(reverse, "blocks.0", 2), (exchange, "blocks.0", 2), (nest, "head.0", 1)]
)
def test_a_module_that_moves_within_a_simulation_has_its_new_path_from_then_on(move, path, times):
    """It and its parameters are counted and updated there, and overrides by their paths hold for them."""
    model, recorder = Blocks(), sf.Recorder()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    sim = sf.simulate("fp32", observer=recorder)
    trained(model, sim, optimizer)
    kept = model.blocks  # an owner that is no part of the model names nothing
    move(model)
    sim.policy = sim.policy.override(f"{path}.weight", weights=sf.BF16)
    trained(model, sim, optimizer)
    names = dict(model.named_parameters())
    assert {name for name, parameter in names.items() if parameter.format == sf.BF16} == {f"{path}.weight"}
    for phase in ("backward", "update"):
        assert recorder.counts(f"{path}.weight", phase)["total"] == names[f"{path}.weight"].size * times
    assert recorder.counts(path, "forward")["total"] > 0 and len(kept) == 2


@pytest.mark.parametrize("move", [reverse, nest], ids=["reverse", "nest"])
@pytest.mark.parametrize("when", ["between steps", "before the step"])
def test_a_parameter_that_moves_draws_from_the_stream_of_its_new_path(move, when):
    model = Blocks()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    sim = sf.simulate("bf16-stochastic")
    trained(model, sim, optimizer)
    if when == "between steps":
        move(model)
    with sim:
        optimizer.zero_grad()
        model(X).sum().backward()
        if when == "before the step":
            move(model)
        calls = {key: count for key, count in sim.streams.calls_so_far.items() if key[1] == "update"}
        optimizer.step()
    now = {
        key[0] for key, count in sim.streams.calls_so_far.items() if key[1] == "update" and count > calls.get(key, 0)
    }
    assert now == {path for path, _ in model.named_parameters()}


def test_a_part_that_is_replaced_and_used_elsewhere_has_the_path_that_it_has_there():
    model, recorder = Blocks(), sf.Recorder()
    with sf.simulate("fp32", observer=recorder):
        model(X).sum().backward()
        old, model.head = model.head, sf.nn.Linear(3, 2, rng=5)
        other = sf.nn.Sequential(sf.nn.ReLU(), old)
        other(X).sum().backward()
        model(X).sum().backward()
    assert recorder.counts("1.weight", "backward")["total"] == 6
    assert recorder.counts("head.weight", "backward")["total"] == 12


def test_a_part_that_moves_while_the_model_runs_has_its_new_path_there():
    class Moving(Blocks):
        def forward(self, x):
            x = self.blocks[0](x)
            self.tail = self.head
            del self.head
            return self.tail(x)

    recorder = sf.Recorder()
    with sf.simulate("fp32", observer=recorder):
        Moving()(X).sum().backward()
    for path in ("tail", "tail.weight", "tail.bias"):
        assert recorder.counts(path)["total"] > 0
    with pytest.raises(ValueError, match="matches nothing"):
        recorder.counts("head*")


@pytest.mark.parametrize("met", ["model", "head"])
def test_what_does_not_move_keeps_its_path_whatever_else_changes_or_is_built_around_it(met):
    model, recorder = Blocks(), sf.Recorder()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    sim = sf.simulate("fp32", observer=recorder)
    with sim:
        (model if met == "model" else model.head)(X).sum().backward()
        model.extra = sf.nn.Linear(3, 3, rng=4)
        model.head(X).sum().backward()
        around = sf.nn.Sequential(model.head)
        around(X).sum().backward()
        sf.nn.Sequential(model)(X).sum().backward()
        del model.extra
        optimizer.step()
    assert recorder.counts("head.weight", "backward")["total"] == 24
    assert recorder.counts("head.weight", "update")["total"] == 6
    for path in ("weight", "0.weight", "0.head.weight"):
        with pytest.raises(ValueError, match="matches nothing"):
            recorder.counts(path)


def test_a_parameter_that_only_an_optimizer_met_keeps_its_path_until_it_moves():
    model, recorder = Blocks(), sf.Recorder()
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = np.ones_like(parameter.data)
    with sf.simulate("fp32", observer=recorder):
        optimizer.step()
        around = sf.nn.Sequential(model)
        optimizer.step()
        assert recorder.counts("head.weight", "update")["total"] == 12
        model.tail = model.head
        del model.head, around
        optimizer.step()
    assert recorder.counts("head.weight", "update")["total"] == 12
    assert recorder.counts("tail.weight", "update")["total"] == 6
