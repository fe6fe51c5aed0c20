"""The block of a run: its errors, the settings that it restores, its table, and continuation."""

import copy
import pickle
import warnings

import pytest
import torch

import simfloat as sf
from simfloat.simulation.streams import SAMPLES
from tests.torch.compared import bits_of, is_bf16, perceptron, step

X = torch.linspace(-1, 1, 15).reshape(5, 3)
STOCHASTIC = "bf16-stochastic"


def settings():
    return (
        torch.backends.mkldnn.enabled,
        torch._C._get_flash_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.autograd._engine_run_backward,
        *(getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "dropout")),
    )


def test_settings_of_torch_come_back_after_the_block_and_after_an_error():
    before = settings()
    with sf.torch.simulate(perceptron(), "bf16-standard"):
        assert not torch.backends.mkldnn.enabled
    assert settings() == before
    with pytest.raises(KeyError), sf.torch.simulate(perceptron(), "bf16-standard"):
        raise KeyError
    assert settings() == before
    with pytest.raises(ValueError, match="double"), sf.torch.simulate(perceptron(), "fp64"):
        pass
    assert settings() == before


def test_a_block_that_is_entered_again_continues_with_its_random_streams_and_so_does_a_loaded_state():
    def trained(blocks, restored=False):
        model = perceptron()
        optimizer, run = torch.optim.SGD(model.parameters(), lr=0.01), sf.torch.simulate(model, STOCHASTIC, 7)
        for count in blocks:
            with run:
                for _ in range(count):
                    step(model, optimizer, X)
            if restored:
                state, run = run.state, sf.torch.simulate(model, STOCHASTIC, 7)
                run.load_state(state)
        return bits_of(model)

    whole = trained([4])
    assert all(map(torch.equal, whole, trained([1, 3])))
    assert all(map(torch.equal, whole, trained([2, 2], restored=True)))


def stepped(model, seed=1):
    with sf.torch.simulate(model, STOCHASTIC, seed=seed):
        step(model, torch.optim.SGD(model.parameters(), lr=0.1), X)


def test_a_new_block_of_one_seed_for_every_step_is_reported_once_and_other_seeds_or_written_parameters_are_not():
    model = perceptron()
    begin = {name: x.clone() for name, x in model.state_dict().items()}
    for seed in (0, 1):
        stepped(model, seed)
    for _ in range(3):
        model.load_state_dict(begin)
        stepped(model)
    with pytest.warns(UserWarning, match="draws the same random bits") as told:
        stepped(model)
        stepped(model)
    assert len(told) == 1


def test_many_forward_passes_of_one_seed_on_the_same_numbers_are_reported():
    model, policy = perceptron(), sf.Policy(compute=sf.BF16, rounding=sf.stochastic(8))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(1, SAMPLES + 3):
            with sf.torch.simulate(model, policy):
                model(X)
            assert len(told) == (number >= SAMPLES)


def test_the_table_of_a_run_may_show_only_some_layers_and_operations():
    model = perceptron(torch.nn.ReLU())
    with sf.torch.simulate(model, "bf16-standard") as run:
        for _ in range(3):
            model[2](model(X).softmax(1)[:, :1].expand(-1, 4))
    head, *rows = run.table().rows
    names, shown = ("0", "1", "2", "(outside)"), []
    for name in names:
        first, *some = run.table(name).rows
        assert first == head and {row[2] for row in some} == {name}
        shown += some
    assert sum(int(row[3]) for row in shown) == sum(int(row[3]) for row in rows)
    assert run.table(operation="*relu*").rows == (head, *(row for row in rows if "relu" in row[0]))
    with pytest.raises(ValueError, match=r"path '3' matches nothing that was seen. Seen: 0, 1, 2, \(outside\)"):
        run.table("3")
    with pytest.raises(ValueError, match="operation 'relu' matches nothing that was seen.*Seen: aten"):
        run.table(operation="relu")


def test_copies_and_pickles_that_are_made_in_a_block_are_models_of_their_own_after_it():
    model = perceptron(torch.nn.ReLU())
    with sf.torch.simulate(model, "bf16-standard"):
        copied, pickled = copy.deepcopy(model), pickle.dumps(model)
        assert torch.equal(copied(X), model(X))
    assert b"simfloat" not in pickled
    assert torch.equal(pickle.loads(pickled)(X), model(X))
    assert torch.equal(copied(X), torch.nn.Sequential(*copied)(X))
    with sf.torch.simulate(copied, "bf16-standard"):
        assert is_bf16(copied(X))


def test_an_override_of_an_operation_is_not_judged_where_an_optimizer_steps_alone():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    policy = sf.policies["bf16-standard"].override(operation="softmax", activations=sf.FP32)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with sf.torch.simulate(model, policy):
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    with pytest.raises(ValueError, match="'softmax' matches no operation that ran"), sf.torch.simulate(model, policy):
        model(X)


def test_a_backward_pass_outside_of_the_block_of_its_forward_pass_is_refused():
    model = perceptron()
    run = sf.torch.simulate(model, "bf16-standard")
    with run:
        loss, other = model(X).sum(), model(X).sum()
    with pytest.raises(ValueError, match="outside the block .* and the optimizer's step inside"):
        loss.backward()
    with run:
        other.backward()
    model(X).sum().backward()


def test_explain_takes_several_arguments_by_position_or_name_and_any_results():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x, scale):
            return {"logits": [self.layer(x) * scale]}

    two = torch.tensor(2.0)
    tables = [sf.torch.explain(Named(), sample, "fp32") for sample in ((X, two), {"scale": two, "x": X})]
    assert tables[0] == tables[1]
    assert ("layer", "aten.mm.default") in {row[:2] for row in tables[0].rows}


def test_explain_shows_what_overrides_by_operation_change():
    policy = sf.policies["bf16-standard"].override(operation="linear", compute="fp16", activations="fp32")
    policy = policy.override(operation="softmax", activations="fp32")
    policy = policy.override(operation="hardswish", activations="fp16").override("0", compute_weights="e2m1")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(1), torch.nn.Hardswish())
    table = sf.torch.explain(model, X, policy)
    shown = {(row[0], row[1], row[-1]): dict(zip(table.rows[0], row, strict=True)) for row in table.rows}
    for place, roles in {
        ("0", "addmm", "linear"): {
            "compute": "FP16", "activations": "FP32", "weights": "BF16", "compute_weights": "E2M1",
        },
        ("0", "addmm", "add"): {"activations": "BF16"},
        ("0", "mm", "linear"): {"compute": "FP16"},
        ("1", "_softmax", "softmax exp"): {"compute_weights": "BF16", "activations": "FP32"},
        ("2", "hardswish", "hardswish clip"): {"activations": "FP16"},
    }.items():  # fmt: skip
        path, name, operation = place
        row = shown[path, f"aten.{name}.default", operation]
        assert {role: row[role] for role in roles} == roles, place
