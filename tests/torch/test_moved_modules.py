"""A module that is moved within a model has its new path from the next call or step."""

import pytest
import torch

import simfloat as sf

X = torch.full((2, 3), 0.3)


class Blocks(torch.nn.Module):
    """Layers of one width, which run in their order, and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
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


def trained(model, optimizer, between=lambda: None):
    optimizer.zero_grad()
    model(X).sum().backward()
    between()
    optimizer.step()


@pytest.mark.parametrize(("move", "path", "times"), MOVES)
def test_a_module_that_moves_within_a_block_has_its_new_path_from_then_on(move, path, times):
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
    size = names[f"{path}.weight"].numel() * times
    assert {recorder.counts(f"{path}.weight", phase)["total"] for phase in ("backward", "update")} == {size}
    assert recorder.counts(f"{path}.weight.exp_avg")["total"] == size and recorder.counts(path, "forward")["total"] > 0


def moved(move, is_inside, is_before_a_step):
    """Paths, parameters and the state after a training, in which a move happens in a block or between two."""
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    run = sf.torch.simulate(model, "bf16-stochastic", seed=3)

    def between():
        if not is_inside:
            run.__exit__(None, None, None)
        move(model)
        if not is_inside:
            run.__enter__()

    run.__enter__()
    trained(model, optimizer)
    if is_before_a_step:
        trained(model, optimizer, between)
    else:
        between()
    trained(model, optimizer)
    run.__exit__(None, None, None)
    return {path: p.view(torch.int32).tolist() for path, p in model.named_parameters()}, run.state


@pytest.mark.parametrize("is_before_a_step", [False, True])
def test_a_move_in_a_block_has_the_bits_and_the_draws_of_one_between_two_blocks(is_before_a_step):
    for move, *_ in MOVES:
        inside, state = moved(move, True, is_before_a_step)
        assert (inside, state) == moved(move, False, is_before_a_step)
        assert inside.keys() <= {stream["path"] for stream in state["streams"]}


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
