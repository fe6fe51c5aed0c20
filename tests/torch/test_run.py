"""The block of a run: its errors, the settings that it restores, and continuation."""

import copy
import pickle

import pytest
import torch

import simfloat as sf


def model_of(dtype=torch.float32):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4, dtype=dtype), torch.nn.ReLU(), torch.nn.Linear(4, 2, dtype=dtype))


def settings():
    return (
        torch.backends.mkldnn.enabled,
        torch._C._get_flash_sdp_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.autograd._engine_run_backward,
        *(getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "dropout")),
    )


def step(model, optimizer, x):
    optimizer.zero_grad()
    z = model(x)
    (z * z).mean().backward()
    optimizer.step()


def test_settings_of_torch_come_back_after_the_block_and_after_an_error():
    before = settings()
    with sf.torch.simulate(model_of(), "bf16-standard"):
        assert not torch.backends.mkldnn.enabled
    assert settings() == before
    with pytest.raises(KeyError), sf.torch.simulate(model_of(), "bf16-standard"):
        raise KeyError
    assert settings() == before
    with pytest.raises(ValueError, match="double"), sf.torch.simulate(model_of(), "fp64"):
        pass
    assert settings() == before


def test_a_block_that_is_entered_again_continues_with_its_random_streams_and_so_does_a_loaded_state():
    x = torch.ones(5, 3)

    def trained(blocks, restored=False):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run = sf.torch.simulate(model, "bf16-stochastic", 7)
        for count in blocks:
            with run:
                for _ in range(count):
                    step(model, optimizer, x)
            if restored:
                state, run = run.state, sf.torch.simulate(model, "bf16-stochastic", 7)
                run.load_state(state)
        return [p.detach().clone() for p in model.parameters()]

    whole = trained([4])
    assert all(map(torch.equal, whole, trained([1, 3])))
    assert all(map(torch.equal, whole, trained([2, 2], restored=True)))


def test_a_rule_is_written_in_operations_that_are_then_simulated(own_rules):
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.erfcx(x)

    @sf.torch.rule("aten::special_erfcx")
    def twice(x):
        return x * 1.2345

    with sf.torch.simulate(Odd(), "bf16-standard") as run:
        result = Odd()(torch.ones(3))
    assert torch.equal(result, torch.full((3,), 1.234375))
    assert "aten.special_erfcx.default" in run.table()


def test_the_table_of_a_run_may_show_only_some_layers_and_operations():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    with sf.torch.simulate(model, "bf16-standard") as run:
        for _ in range(3):
            model[2](model(torch.ones(5, 3)).softmax(1)[:, :1].expand(-1, 4))
    head, *rows = run.table().rows
    for name in ("0", "1", "2", "(outside)"):
        shown = run.table(name)
        assert shown.rows[0] == head and {row[2] for row in shown.rows[1:]} == {name}
    assert sum(int(row[3]) for name in ("0", "1", "2", "(outside)") for row in run.table(name).rows[1:]) == sum(
        int(row[3]) for row in rows
    )
    assert run.table(operation="*relu*").rows == (head, *(row for row in rows if "relu" in row[0]))
    with pytest.raises(ValueError, match=r"path '3' matches nothing that was seen. Seen: \(outside\), 0, 1, 2"):
        run.table("3")
    with pytest.raises(ValueError, match="operation 'relu' matches nothing that was seen.*Seen: aten"):
        run.table(operation="relu")


def test_copies_and_pickles_that_are_made_in_a_block_are_models_of_their_own_after_it():
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.rand(3, 4)
    with sf.torch.simulate(model, "bf16-standard"):
        copied, pickled = copy.deepcopy(model), pickle.dumps(model)
        assert torch.equal(copied(x), model(x))
    again = pickle.loads(pickled)
    assert b"simfloat" not in pickled and torch.equal(again(x), model(x))
    assert torch.equal(copied(x), torch.relu(torch.nn.functional.linear(x, copied[0].weight, copied[0].bias)))
    with sf.torch.simulate(copied, "bf16-standard"):
        assert torch.equal(copied(x), copied(x).bfloat16().float())


def test_an_override_of_an_operation_is_not_judged_where_an_optimizer_steps_alone():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    policy = sf.policies["bf16-standard"].override(operation="softmax", activations=sf.FP32)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with sf.torch.simulate(model, policy):
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    with pytest.raises(ValueError, match="'softmax' matches no operation that ran"), sf.torch.simulate(model, policy):
        model(torch.ones(1, 3))


def test_a_backward_pass_outside_of_the_block_of_its_forward_pass_is_refused():
    model = model_of()
    run = sf.torch.simulate(model, "bf16-standard")
    with run:
        loss, other = model(torch.ones(2, 3)).sum(), model(torch.ones(2, 3)).sum()
    with pytest.raises(ValueError, match="outside the block .* and the optimizer's step inside"):
        loss.backward()
    with run:
        other.backward()
    model(torch.ones(2, 3)).sum().backward()


def test_explain_takes_several_arguments_by_position_or_name_and_any_results():
    class Named(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x, scale):
            return {"logits": [self.layer(x) * scale]}

    x, two = torch.ones(1, 3), torch.tensor(2.0)
    tables = [sf.torch.explain(Named(), sample, "fp32") for sample in ((x, two), {"scale": two, "x": x})]
    assert tables[0] == tables[1]
    assert ("layer", "aten.mm.default") in {row[:2] for row in tables[0].rows}


def test_explain_shows_what_overrides_by_operation_change():
    policy = sf.policies["bf16-standard"].override(operation="linear", compute="fp16", activations="fp32")
    policy = policy.override(operation="softmax", activations="fp32")
    policy = policy.override(operation="hardswish", activations="fp16").override("0", compute_weights="e2m1")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(1), torch.nn.Hardswish())
    table = sf.torch.explain(model, torch.ones(2, 3), policy)
    shown = {(row[0], row[1], row[-1]): dict(zip(table.rows[0], row, strict=True)) for row in table.rows}
    linear, bias = (shown["0", "aten.addmm.default", name] for name in ("linear", "add"))
    assert (linear["compute"], linear["activations"], linear["weights"]) == ("FP16", "FP32", "BF16")
    assert (
        linear["compute_weights"] == "E2M1"
        and shown["1", "aten._softmax.default", "softmax exp"]["compute_weights"] == "BF16"
    )
    assert bias["activations"] == "BF16"
    assert shown["0", "aten.mm.default", "linear"]["compute"] == "FP16"
    assert shown["1", "aten._softmax.default", "softmax exp"]["activations"] == "FP32"
    assert shown["2", "aten.hardswish.default", "hardswish clip"]["activations"] == "FP16"
