"""The block of a run: errors, settings, its table, continuation, switches, pauses, and evaluations aside."""

import copy
import pickle
import warnings

import pytest
import torch

import simfloat as sf
from simfloat.simulation.streams import SAMPLES
from tests.torch.compared import Perceptron, bits_of, is_bf16, perceptron, step, twins

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
    together = r"path '0' and operation '\*relu\*' match no row together: path .* matches rows with operation aten"
    for table in (run.table, lambda *names, **named: sf.torch.explain(model, X, "bf16-standard", *names, **named)):
        with pytest.raises(ValueError, match=together):
            table("0", operation="*relu*")


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
    head, *rows = table.rows
    few = sf.torch.explain(model, X, policy, "0", operation="*mm*").rows
    assert few == (head, *(row for row in rows if row[0] == "0" and "mm" in row[1])) and len(few) > 2
    with pytest.raises(ValueError, match="operation 'mm' matches nothing that was seen.*Seen: aten"):
        sf.torch.explain(model, X, policy, operation="mm")
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


WIDE, NARROW = "fp32", "bf16-standard"
BOTH_WAYS = [(NARROW, WIDE), (WIDE, NARROW)]


def model_of():
    return twins(Perceptron)[0]


def pair(policy):
    """A model, its optimizer, its run and its data in both packages."""
    theirs, ours = twins(Perceptron)
    optimizers = [
        package.SGD(list(model.parameters()), lr=0.1, momentum=0.9)
        for package, model in ((torch.optim, theirs), (sf.optim, ours))
    ]
    runs = sf.torch.simulate(theirs, policy, 3), sf.simulate(policy, 3)
    return list(zip((theirs, ours), optimizers, runs, (X, sf.Tensor(X.numpy())), strict=True))


def assert_equal(both):
    """Require the same parameters and moments in both packages."""
    (theirs, optimizer, *_), (ours, own_optimizer, *_) = both
    assert [p.tolist() for p in theirs.parameters()] == [p.data.tolist() for p in ours.parameters()]
    moments = [
        [state["momentum_buffer"].tolist() for state in each.state_dict()["state"].values()]
        for each in (optimizer, own_optimizer)
    ]
    assert moments[0] == moments[1]


def test_steps_under_changing_policies_have_the_bits_of_our_own():
    both = pair(NARROW)
    for policy in (NARROW, WIDE, "bf16-stochastic", NARROW):
        for model, optimizer, run, x in both:
            with run:
                run.policy = policy
                step(model, optimizer, x)
    assert_equal(both)
    assert both[0][2].switches == both[1][2].switches and both[0][2].policy == sf.policies[NARROW]


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("first, second", BOTH_WAYS)
def test_an_update_follows_a_switch_although_nothing_has_run_since(first, second, steps):
    """It reads the stored parameters, and a parameter without gradient keeps its moments."""
    both = pair(first)
    for model, optimizer, run, x in both:
        with run:
            for _ in range(steps):
                step(model, optimizer, x)
            z = model(x)
            (z * z).mean().backward()
            run.policy = second
            if steps:
                next(iter(model.parameters())).grad = None
            optimizer.step()
    assert_equal(both)


def test_a_rule_switches_and_its_state_is_the_runs():
    model, recorder = model_of(), sf.Recorder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    run = sf.torch.simulate(model, NARROW, observer=recorder)
    rule = sf.Switching(NARROW, WIDE, "unchanged", above=0.001, phase="update")
    with run:
        for number in range(2):
            step(model, optimizer, X)
            run.follow(rule, number)
    assert run.policy == sf.policies[WIDE] and [switch.step for switch in run.switches] == [0]
    other = sf.torch.simulate(model_of(), NARROW)
    other.load_state(run.state)
    assert other.policy == run.policy and other.state == run.state


def test_a_policy_is_switched_between_steps_and_to_one_that_parameters_hold():
    model = model_of()
    with sf.torch.simulate(model, WIDE) as run:
        for policy, message in (("fp64", "float64|double"), ("fp23", "Did you mean")):
            with pytest.raises(ValueError, match=message):
                run.policy = policy
        assert run.policy == sf.policies[WIDE] and not run.switches

        def switch(*_):
            run.policy = NARROW

        handle = model.first.register_forward_pre_hook(switch)
        with pytest.raises(ValueError, match="not while the module 'first' runs"):
            model(X)
        handle.remove()
        result = model(X)
        result.register_hook(switch)
        with pytest.raises(ValueError, match="not while a backward pass"):
            result.sum().backward()


@pytest.mark.parametrize("first, second", BOTH_WAYS)
def test_a_backward_pass_follows_the_policy_of_its_forward_pass(first, second):
    gradients = []
    for policy in (first, second):
        model = model_of()
        with sf.torch.simulate(model, first) as run:
            loss = model(X).square().sum()
            if policy == second:
                run.policy = second
            loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *gradients))


def trained(policy, evaluate):
    """A training with dropout, and evaluations before and after its backward pass."""
    model = perceptron(torch.nn.Dropout())
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), sf.Recorder()
    with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
        for _ in range(2):
            loss = model(X).square().mean()
            evaluate(run, model)
            optimizer.zero_grad()
            loss.backward()
            evaluate(run, model)
            optimizer.step()
    return run.state, str(recorder.table()), [p.tolist() for p in bits_of(model)]


def once(run, model):
    with run.aside(), torch.no_grad():
        model(3 * X)


def nested(run, model):
    with run.aside(), run.aside():
        model(X)


def interrupted(run, model):
    with pytest.raises(ValueError, match="addmm"), run.aside():
        model(X)
        model(X[:, :2])


def paused(run, model):
    model.eval()
    with run.paused(), run.paused():
        assert torch.backends.mkldnn.enabled
        assert torch.equal(model(X), copy.deepcopy(model)(X))
    model.train()
    assert not torch.backends.mkldnn.enabled


@pytest.mark.parametrize("policy", [
    sf.policies["fp8-delayed"], sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic"),
], ids=["fp8-delayed", "stochastic"])  # fmt: skip
def test_an_evaluation_aside_or_in_a_pause_changes_no_bit_of_the_training_however_it_ends(policy):
    plain = trained(policy, lambda run, model: None)
    for evaluate in (once, nested, interrupted, paused):
        assert trained(policy, evaluate) == plain


def test_operations_in_aside_are_simulated_and_it_is_refused_while_a_module_runs():
    class Inner(torch.nn.Linear):
        def forward(self, x):
            with run.aside():
                return super().forward(x)

    layer, model = torch.nn.Linear(3, 1), Inner(3, 1)
    with sf.torch.simulate(layer, NARROW) as run, run.aside():
        assert is_bf16(layer(X))
    run = sf.torch.simulate(model, WIDE)
    with run, pytest.raises(ValueError, match="An evaluation runs aside between steps, not while the module"):
        model(X)


def test_tensors_that_cross_a_pause_are_refused_or_rounded_again():
    model = model_of()
    run = sf.torch.simulate(model, NARROW)
    with run.paused():  # outside of the block it is PyTorch's anyway
        plain = model(X)
    with run:
        inside = model(X)
        with run.paused():
            with pytest.raises(ValueError, match="paused"):
                inside.sum().backward()
            made = model(X)
            model.first.weight.data.fill_(0.1)
        assert torch.equal(made, plain)
        assert not torch.equal(model(X), inside)
        with pytest.raises(ValueError, match="outside the block"):
            made.sum().backward()
    assert torch.equal(model.first.weight, torch.full((4, 3), 0.1)), "the program wrote it, and no step has yet"
