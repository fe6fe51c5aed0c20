"""The block of a run: its errors, the settings that it restores, and continuation."""

import copy
import pickle

import numpy as np
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


def test_an_operation_without_a_rule_is_refused_by_name_and_path_with_the_remedy():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j1(x)

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Odd())
    with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match=r"bessel_j1.*'1'.*simfloat\.torch\.rule"):
        model(torch.ones(1, 2))


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
    with pytest.raises(ValueError, match="mylib::op"):
        sf.torch.rule("erfcx")


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


def test_blocks_of_two_models_do_not_nest_and_a_block_of_one_does():
    first, second = (sf.torch.simulate(model_of(), "fp32") for _ in range(2))
    with first, first, pytest.raises(ValueError, match="ModuleList"), second:
        pass


def test_an_optimizer_in_a_graph_and_a_strangers_parameters_are_refused():
    model, x = model_of(), torch.ones(1, 3)
    recorded = torch.optim.SGD(model.parameters(), lr=0.1, differentiable=True)
    other = torch.optim.SGD(model_of().parameters(), lr=0.1)
    with sf.torch.simulate(model, "fp32"):
        with pytest.raises(ValueError, match="differentiable"):
            step(model, recorded, x)
        with pytest.raises(ValueError, match="ModuleList"):
            other.step()


def test_an_override_that_matches_nothing_is_refused_at_the_end():
    policy = sf.policies["fp32"].override("2.wieght", compute=sf.BF16)
    with pytest.raises(ValueError, match="wieght"), sf.torch.simulate(model_of(), policy):
        pass


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


def test_explain_lists_layers_formats_and_what_would_be_refused_and_leaves_the_model_alone():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j1(x)

    model = torch.nn.Sequential(torch.nn.Linear(3, 2), Odd())
    before = model[0].weight.detach().clone()
    table = sf.torch.explain(model, torch.ones(1, 3), sf.policies["fp32"].override("0", compute="bf16"))
    rows = {(row[0], row[1]): row[2:] for row in table.rows}
    assert rows["0", "aten.addmm.default"][:2] == ("rule", "BF16")
    assert rows["1", "aten.special_bessel_j1.default"][0] == "refused"
    assert torch.equal(model[0].weight, before)


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


@pytest.mark.parametrize("sample, kinds", [
    (None, "NoneType"), (np.ones((2, 3)), "ndarray"), ((), ""), ({"image": torch.ones(2, 3)}, "Tensor"),
], ids=["nothing", "an array", "no argument", "another name"])  # fmt: skip
def test_explain_says_what_to_pass_where_the_model_cannot_be_called_with_the_sample(sample, kinds):
    message = rf"Sequential cannot be called with these arguments \({kinds}\): .* Pass its arguments as tensors"
    with pytest.raises(ValueError, match=message):
        sf.torch.explain(torch.nn.Sequential(torch.nn.Linear(3, 2)), sample, "fp32")


def test_explain_shows_what_overrides_by_operation_change():
    policy = sf.policies["bf16-standard"].override(operation="linear", compute="fp16", activations="fp32")
    policy = policy.override(operation="softmax", activations="fp32").override(
        operation="hardswish", activations="fp16"
    )
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Softmax(1), torch.nn.Hardswish())
    table = sf.torch.explain(model, torch.ones(2, 3), policy)
    shown = {(row[0], row[1], row[-1]): dict(zip(table.rows[0], row, strict=True)) for row in table.rows}
    linear, bias = (shown["0", "aten.addmm.default", name] for name in ("linear", "add"))
    assert (linear["compute"], linear["activations"], linear["weights"]) == ("FP16", "FP32", "BF16")
    assert bias["activations"] == "BF16"
    assert shown["0", "aten.mm.default", "linear"]["compute"] == "FP16"
    assert shown["1", "aten._softmax.default", "softmax exp"]["activations"] == "FP32"
    assert shown["2", "aten.hardswish.default", "hardswish clip"]["activations"] == "FP16"


def test_a_model_is_a_module_and_a_policy_has_a_name_that_is_known():
    with pytest.raises(ValueError, match="torch.nn.Module"):
        sf.torch.simulate(3, "fp32")
    with pytest.raises(ValueError, match="got MLP; a model of simfloat.nn runs under simfloat.simulate"):
        sf.torch.simulate(sf.nn.MLP([1, 1]), "fp32")
    with pytest.raises(ValueError, match="Did you mean"):
        sf.torch.simulate(model_of(), "fp23")


def test_objects_of_the_other_front_end_are_named_with_their_package():
    optimizer = sf.optim.SGD(sf.nn.Linear(2, 1).parameters())
    with pytest.raises(ValueError, match="An optimizer takes model.parameters.., got a torch.Parameter among them"):
        sf.optim.SGD(model_of().parameters())
    model = model_of()
    with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match="optimizer of torch.optim, got a simfloat"):
        sf.train.fit(model, sf.nn.mse_loss, [], optimizer)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_script_module_is_refused():
    with pytest.raises(ValueError, match="A ScriptModule hides its operations"):
        sf.torch.simulate(torch.jit.trace(torch.nn.Linear(2, 1), torch.ones(1, 2)), "fp32")


def test_a_rule_is_a_function():
    with pytest.raises(ValueError, match="The rule of mylib::op is a function of its arguments, got 3"):
        sf.torch.rule("mylib::op")(3)


def test_functions_of_pytorch_refuse_tensors_of_ours_and_operators_are_left_to_them():
    ours, theirs = sf.Tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for call in (lambda: torch.nn.functional.mse_loss(ours, theirs), lambda: torch.exp(ours)):
        with pytest.raises(ValueError, match=r"takes tensors of PyTorch, got a simfloat.Tensor: .*x.data"):
            call()
    with sf.simulate("bf16-standard"):
        assert (theirs + ours).data.tolist() == [4.0, 6.0] and (theirs * ours).format == sf.BF16
        assert (ours - theirs).data.tolist() == [-2.0, -2.0]


@pytest.mark.parametrize("first", ["bf16-standard", sf.policies["fp32"]], ids=["name", "policy"])
def test_a_policy_before_the_model_is_reported(first):
    with pytest.raises(ValueError, match=r"a Linear of PyTorch: write simfloat.torch.simulate\(model, policy\)"):
        sf.simulate(torch.nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes the model first, then the policy; got "):
        sf.torch.simulate(first, torch.nn.Linear(1, 1))
