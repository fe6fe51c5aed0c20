"""A module that is moved within a model has its new path from the next call or step."""

from contextlib import ExitStack

import pytest
import torch

import simfloat as sf

X = torch.full((2, 3), 0.3)


class Blocks(torch.nn.Module):
    """Layers of one width, which run in their order, and a head."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
        self.head = torch.nn.Linear(3, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def reverse(model):
    model.blocks = torch.nn.ModuleList(reversed(model.blocks))


def exchange(model):
    model.blocks[0], model.blocks[1] = model.blocks[1], model.blocks[0]


def insert(model):
    """Change the list by a method that calls no hook."""
    last = model.blocks[1]
    del model.blocks[1]
    model.blocks.insert(0, last)


def nest(model):
    head = model.head
    del model.head
    model.head = torch.nn.Sequential(head)


MOVES = [(reverse, "blocks.0", 2), (exchange, "blocks.0", 2), (insert, "blocks.0", 2), (nest, "head.0", 1)]


def trained(model, optimizer):
    optimizer.zero_grad()
    model(X).sum().backward()
    optimizer.step()


@pytest.mark.parametrize(("move", "path", "times"), MOVES)
def test_a_module_that_moves_within_a_block_has_its_new_path_from_then_on(move, path, times):
    """It and its parameters are counted and updated there, and overrides by their paths hold for them."""
    torch.manual_seed(0)
    model, recorder = Blocks(), sf.Recorder()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, "fp32", observer=recorder) as run:
        trained(model, optimizer)
        move(model)
        run.policy = run.policy.override(f"{path}.weight", weights=sf.E5M2)
        trained(model, optimizer)
    names = dict(model.named_parameters())
    narrow = {name for name, x in names.items() if torch.equal(x, x.to(torch.float8_e5m2).float())}
    assert narrow == {f"{path}.weight"}
    for phase in ("backward", "update"):
        assert recorder.counts(f"{path}.weight", phase)["total"] == names[f"{path}.weight"].numel() * times
    assert recorder.counts(f"{path}.weight.exp_avg")["total"] == names[f"{path}.weight"].numel() * times
    assert recorder.counts(path, "forward")["total"] > 0


def trained_with_a_move(move, when, blocks):
    """The trained weights and the calls of streams, if the model moves in one block or between two."""
    torch.manual_seed(0)
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = sf.torch.simulate(model, "bf16-stochastic", seed=3)
    with ExitStack() as block:
        block.enter_context(run)
        trained(model, optimizer)
        if when == "before a step":
            optimizer.zero_grad()
            model(X).sum().backward()
        if blocks == 2:
            block.close()
        move(model)
        if blocks == 2:
            block.enter_context(run)
        if when == "before a step":
            optimizer.step()
        trained(model, optimizer)
    return list(model.named_parameters()), run.state


@pytest.mark.parametrize("when", ["between steps", "before a step"])
@pytest.mark.parametrize("move", [move for move, _, _ in MOVES])
def test_a_move_in_a_block_has_the_bits_and_the_draws_of_one_between_two_blocks(move, when):
    inside, state = trained_with_a_move(move, when, 1)
    between, other = trained_with_a_move(move, when, 2)
    assert state == other
    for (path, x), (same, y) in zip(inside, between, strict=True):
        assert path == same and torch.equal(x.view(torch.int32), y.view(torch.int32))
    assert {path for path, _ in inside} <= {stream["path"] for stream in state["streams"]}


def test_a_submodule_that_runs_by_itself_keeps_its_path_in_the_model():
    model, recorder = Blocks(), sf.Recorder()
    with sf.torch.simulate(model, "fp32", observer=recorder):
        model.head(X).sum().backward()
        around = torch.nn.Sequential(model.head)
        model.extra = torch.nn.Identity()
        around(X).sum().backward()
        model(X).sum().backward()
    assert recorder.counts("head", "forward", operation="linear")["total"] == 12
    with pytest.raises(ValueError, match="matches nothing"):
        recorder.counts("0*")


def test_a_module_that_left_the_model_keeps_its_path_until_another_one_has_it():
    model, recorder = Blocks(), sf.Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sf.torch.simulate(model, "fp32", observer=recorder):
        head, model.head = model.head, torch.nn.Identity()
        head(model(X)).sum().backward()
        optimizer.step()
        assert recorder.counts("head.weight", "update")["total"] == 6
        model.head = model.blocks[1]
        del model.blocks[1]
        model(X).sum().backward()
        with pytest.raises(ValueError, match="does not have"):
            optimizer.step()
    assert recorder.counts("head.weight", "backward")["total"] == 6 + 9
