"""Parameter groups, options as attributes, and the state of optimizers as plain data."""

import json

import numpy as np
import pytest

import simfloat as sf
from simfloat.optim.options import Option
from tests.bits import assert_bits
from tests.optim.kinds import KINDS


def parameter(values=(1.0, 2.0)):
    return sf.Parameter(np.array(values, np.float32))


def step(optimizer, gradient=1.0):
    for p in optimizer.params:
        p.grad = np.full(p.shape, gradient)
    with sf.simulate("fp64"):
        optimizer.step()


def test_groups_have_options_of_their_own():
    a, b, c = parameter(), parameter(), parameter()
    optimizer = sf.optim.SGD([{"params": [a, b]}, {"params": c, "lr": 0.25, "weight_decay": 0.5}], lr=0.5)
    step(optimizer)
    assert a.data.tolist() == b.data.tolist() == [0.5, 1.5]
    assert c.data.tolist() == [1 - 0.25 * 1.5, 2 - 0.25 * 2]
    assert [p is q for p, q in zip(optimizer.params, [a, b, c], strict=True)] == [True] * 3
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.25]
    assert set(optimizer.param_groups[0]) == {"params", *optimizer.options}


def test_groups_equal_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    def train(lib, parameter):
        p = [parameter([1.0, -2.0]), parameter([3.0]), parameter([0.5])]
        optimizer = lib.AdamW([{"params": p[:1], "lr": 0.1}, {"params": p[1:2], "betas": (0.5, 0.5)}], weight_decay=0.1)
        optimizer.add_param_group({"params": p[2], "eps": 1e-3})
        for i in range(4):
            for k, q in enumerate(p):
                q.grad = np.full(q.shape, i - k) if lib is sf.optim else torch.full_like(q, i - k)
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.5
        return p

    with sf.simulate("fp64"):
        mine = train(sf.optim, sf.Parameter)
    theirs = train(torch.optim, lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True))
    for p, t in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=1e-12)


def test_named_parameters_keep_their_names():
    model = sf.nn.MLP([2, 2, 1])
    optimizer = sf.optim.SGD(model.named_parameters(), lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == [name for name, _ in model.named_parameters()]
    assert [p.path for p in optimizer.params] == optimizer.param_groups[0]["param_names"]


def test_attributes_apply_to_all_groups():
    optimizer = sf.optim.SGD([{"params": parameter()}, {"params": parameter(), "lr": 0.25}], lr=0.5)
    assert optimizer.momentum == 0.0
    with pytest.raises(ValueError, match=r"lr differs between the parameter groups: 0.5, 0.25. Read optimizer.param_g"):
        optimizer.lr  # noqa: B018
    optimizer.lr = 0.125
    assert [group["lr"] for group in optimizer.param_groups] == [0.125, 0.125]
    optimizer.add_param_group({"params": parameter()})
    assert optimizer.lr == 0.125


def test_the_dictionary_of_a_group_stays_the_users():
    given = {"params": [parameter()], "lr": 0.5, "name": "head"}
    optimizer = sf.optim.SGD([given])
    optimizer.lr = 1.0
    assert set(given) == {"params", "lr", "name"} and given["lr"] == 0.5
    assert optimizer.param_groups[0]["name"] == "head"


TWICE = parameter()


@pytest.mark.parametrize("params, message", [
    ([{"params": parameter(), "lr": -1}], "lr must not be negative, got -1"),
    ([{"params": parameter(), "weigth_decay": 1}], "no option 'weigth_decay'. Options: lr, .* Did you mean 'weight_"),
    ([{"params": parameter(), 3: 1}], "no option 3"),
    ([{"lr": 1}], "a dictionary with 'params' and options, got"),
    ({"params": parameter()}, "a list of parameters in their order, got a dict"),
    ([{"params": parameter()}, parameter()], "parameters, or dictionaries of parameter groups; got both"),
    ([{"params": {parameter()}}], "in their order, got a set"),
    ([{"params": "weight"}], "in their order, got a str"),
    ([{"params": [3.0]}], "got a float among them"),
    ([{"params": TWICE}, {"params": TWICE}], "parameter 1 was given twice"),
    ([("a", parameter()), parameter()], "as pairs .name, parameter., all of them or none"),
    ([("a", parameter(), 1)], "as pairs .name, parameter., all of them or none"),
    ([("a", TWICE), ("b", TWICE)], "parameter 1 was given twice"),
    ([("a", 1.0)], "got a float among them"),
    ([{"params": parameter(), "momentum": None}], "momentum must be a real number, got None"),
    ([{"params": parameter(), "nesterov": True}], "Nesterov momentum needs"),
])  # fmt: skip
def test_groups_that_cannot_be_used_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        sf.optim.SGD(params)


def test_a_refused_group_changes_nothing():
    p = parameter()
    optimizer = sf.optim.SGD([p])
    for group in ({"params": p}, {"params": parameter(), "lr": np.nan}, [parameter()], None):
        with pytest.raises(ValueError):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == len(optimizer.state) == 1
    matrices = sf.optim.Muon([parameter([[1.0]])])
    with pytest.raises(
        ValueError, match=r"Muon updates matrices; parameter 1 has the shape \(2,\). Give it to another"
    ):
        matrices.add_param_group({"params": parameter()})
    assert len(matrices.param_groups) == 1


def test_options_of_a_group_are_checked_before_anything_is_updated():
    a, b = parameter(), parameter()
    optimizer = sf.optim.AdamW([{"params": a}, {"params": b}])
    optimizer.param_groups[1]["betas"] = (0.9, 1.0)
    with pytest.raises(ValueError, match=r"betas\[1\] must be from 0 below 1, got 1.0"):
        step(optimizer)
    assert a.data.tolist() == [1.0, 2.0] and optimizer.state == [{}, {}]


@pytest.mark.parametrize("change, message", [
    (lambda group: group.update(momentm=0.9), "no option 'momentm'. Options: lr, momentum, .* Did you mean 'momentum'"),
    (lambda group: group.pop("lr"), "lr must be a real number, got None"),
    (lambda group: group["params"].append(parameter()), "The groups contain 2 parameters, but the optimizer was given"),
    (lambda group: group.update(nesterov=True), "Nesterov momentum needs"),
])  # fmt: skip
def test_what_is_changed_in_a_group_is_checked_when_it_is_used(change, message):
    optimizer = sf.optim.SGD([parameter()])
    change(optimizer.param_groups[0])
    with pytest.raises(ValueError, match=message):
        step(optimizer)


@pytest.mark.parametrize("kind, options, message", [
    ("Adam", {"betas": 0.9}, "betas must be a tuple of 2 values, got 0.9"),
    ("Adam", {"betas": (0.9, 0.99, 0.999)}, "betas must be a tuple of 2 values"),
    ("Adam", {"betas": (-0.1, 0.9)}, r"betas\[0\] must be from 0 below 1, got -0.1"),
    ("AdamW", {"eps": -1e-8}, "eps must not be negative"),
    ("AdamW", {"amsgrad": 1}, "amsgrad must be True or False"),
    ("Adagrad", {"lr_decay": "a"}, "lr_decay must be a real number"),
    ("Adafactor", {"beta2_decay": 0.8}, "beta2_decay must not be positive, got 0.8"),
    ("Adafactor", {"d": 0.5}, "d must be at least 1, got 0.5"),
    ("Adafactor", {"eps": (1e-3, None)}, r"eps\[1\] must be a real number, got None"),
    ("Lion", {"betas": (0.9, 1)}, r"betas\[1\] must be from 0 below 1"),
    ("Muon", {"ns_steps": 100}, "ns_steps must be an integer from 0 to 99, got 100"),
    ("Muon", {"ns_steps": True}, "ns_steps must be an integer"),
    ("Muon", {"adjust_lr_fn": "moonshot"}, "must be None or one of 'original', 'match_rms_adamw'; got 'moonshot'"),
    ("Muon", {"ns_coefficients": (1, 2)}, "ns_coefficients must be a tuple of 3 values"),
])  # fmt: skip
def test_wrong_options_are_refused_by_name(kind, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(sf.optim, kind)([parameter([[1.0]])], **options)


def test_optimizers_with_groups_print_each():
    groups = [{"params": [parameter(), parameter()]}, {"params": parameter(), "lr": 0.25, "betas": (0.5, 0.5)}]
    assert repr(sf.optim.Adam(groups, lr=0.5)) == "Adam(lr=0.5, 2 parameters; lr=0.25, betas=(0.5, 0.5), 1 parameter)"


def test_a_state_is_laid_out_as_torchs():
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    mine, theirs = [parameter(), parameter()], [torch.ones(2, requires_grad=True) for _ in range(2)]
    mine[1].grad, theirs[1].grad = np.ones(2), torch.ones(2)
    kept = []
    for lib, p in ((sf.optim, mine), (torch.optim, theirs)):
        optimizer = lib.AdamW([{"params": p[:1], "lr": 0.5}, {"params": p[1:]}])
        with sf.simulate("fp32"):
            optimizer.step()
        kept.append(optimizer.state_dict())
    ours, oracle = kept
    assert set(ours) == set(oracle) and list(ours["state"]) == list(oracle["state"]) == [1]
    assert set(ours["state"][1]) == set(oracle["state"][1])
    for a, b in zip(ours["param_groups"], oracle["param_groups"], strict=True):
        assert a["params"] == b["params"] and all(b[name] == value for name, value in a.items())


def trained():
    p, q = parameter([1.0, 3.0]), parameter([[1.0]])
    optimizer = sf.optim.SGD([{"params": p}, {"params": q, "lr": 0.5}], lr=0.25, momentum=0.9)
    step(optimizer)
    return optimizer


def changed(state, *keys, to):
    copy = {
        "state": {i: dict(e) for i, e in state["state"].items()},
        "param_groups": [*map(dict, state["param_groups"])],
    }
    inner = copy
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return copy


@pytest.mark.parametrize("keys, to, message", [
    (("param_groups", 0, "lr"), -1.0, "lr must not be negative"),
    (("param_groups", 1, "nesterov"), "yes", "nesterov must be True or False"),
    (("param_groups", 0, "beta"), 1, r"not SGD's: missing \[\], unknown \['beta'\]"),
    (("param_groups", 0), {"params": [0], "lr": 1}, r"not SGD's: missing \['dampening', .* unknown \[\]"),
    (("param_groups", 0, "params"), [0, 1], "has 2 parameters; the group of the optimizer has 1"),
    (("param_groups", 0, "params"), None, "with a list of 'params'"),
    (("param_groups",), [], "has 0 groups, the optimizer has 2"),
    (("param_groups",), None, "takes a result of state_dict"),
    (("state",), [], "takes a result of state_dict"),
    (("state", 2), {}, "has a parameter 2, the optimizer has 2, from 0"),
    (("state", 0), None, "state of parameter 0 must hold arrays"),
    (("state", 0), {"exp_avg": np.ones(2)}, "state of parameter 0 must hold arrays under momentum_buffer or comp"),
    (("state", 0), {"momentum_buffer": np.ones(3)}, r"momentum_buffer of parameter 0 must .* \(2,\), got \(3,\)"),
    (("state", 1), {"momentum_buffer": "ab"}, "momentum_buffer of parameter 1 must"),
    (("param_groups", 1, "params"), [0], r"must number the parameters in order from 0; got \[0, 0\]"),
    (("lr",), 1.0, "a dictionary with 'state' and 'param_groups'"),
])  # fmt: skip
def test_a_state_is_taken_whole_or_not_at_all(keys, to, message):
    state = trained().state_dict()
    other = sf.optim.SGD([{"params": parameter([1.0, 3.0])}, {"params": parameter([[1.0]])}], lr=1.0)
    with pytest.raises(ValueError, match=message):
        other.load_state_dict(changed(state, *keys, to=to))
    assert (other.lr, other.momentum, other.state) == (1.0, 0.0, [{}, {}])
    other.load_state_dict(state)
    assert [group["lr"] for group in other.param_groups] == [0.25, 0.5] and other.momentum == 0.9
    other.state[0]["momentum_buffer"][:] = 0
    assert state["state"][0]["momentum_buffer"].all(), "what was loaded is a copy"


def test_a_state_survives_json():
    optimizer = sf.optim.AdamW([parameter()], betas=(0.5, 0.75))
    step(optimizer)
    state = optimizer.state_dict()
    text = json.dumps(state, default=lambda array: array.tolist())
    other = sf.optim.AdamW([parameter()])
    other.load_state_dict(json.loads(text))
    step(other)
    step(optimizer)
    for name, array in optimizer.state[0].items():
        assert_bits(other.state[0][name], array)


@pytest.mark.parametrize("name, bad, message", [
    ("row_var", (3,), r"row_var of parameter 0 must have the shape \(3, 1\), got \(3,\)"),
    ("step", (2,), r"step of parameter 0 must have the shape \(\), got \(2,\)"),
    ("variance", (3, 2), "must hold arrays under step or compensation or row_var or col_var"),
    ("compensation", (2, 3), r"compensation of parameter 0 must have the parameter's shape \(3, 2\), got \(2, 3\)"),
])  # fmt: skip
def test_arrays_of_a_state_have_the_shapes_that_the_optimizer_gives_them(name, bad, message):
    optimizer = sf.optim.Adafactor([parameter(np.ones((3, 2)))])
    state = optimizer.state_dict()
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict({**state, "state": {0: {name: np.ones(bad)}}})


@pytest.mark.parametrize("count", [-1.0, 0.5, np.nan, np.inf])
def test_a_state_in_which_steps_are_no_count_is_refused(count):
    optimizer = sf.optim.Adam([parameter()])
    with pytest.raises(ValueError, match="step of parameter 0 must be a whole number of at least 0"):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: {"step": np.array(count)}}})


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_without_a_moment_is_refused_and_nothing_is_taken(kind):
    made, other = (getattr(sf.optim, kind)([parameter(np.ones((3, 2)))], **KINDS[kind]) for _ in range(2))
    made.params[0].grad = np.ones((3, 2))
    with sf.simulate("bf16-kahan"):
        made.step()
    state = made.state_dict()
    for name in set(state["state"][0]) - {"compensation"}:
        lacking = {key: value for key, value in state["state"][0].items() if key != name}
        for entry in (lacking, {**lacking, name: None}):
            with pytest.raises(ValueError, match=f"The state of parameter 0 has no {name}; {kind} continues from"):
                other.load_state_dict({**state, "state": {0: entry}})
        for wrong in (np.ones((3, 2)) * 1j, "a", ["a"], {}, np.array(["a"]), np.array([None]), np.ones((3, 2, 1))):
            with pytest.raises(ValueError, match=f"{name} of parameter 0 must"):
                other.load_state_dict({**state, "state": {0: {**lacking, name: wrong}}})
    with pytest.raises(ValueError, match="must hold arrays under .*, got some under .*exp_average"):
        other.load_state_dict({**state, "state": {0: {**state["state"][0], "exp_average": np.ones((3, 2))}}})
    assert other.state == [{}]
    other.load_state_dict({**state, "state": {}})
    other.load_state_dict(state)
    assert set(other.state[0]) == set(state["state"][0])


def test_a_custom_kind_may_store_any_state():
    class Own(sf.optim.Optimizer):
        kept = ("first", "second")

        def update(self, step, gradient, options):
            return step.moment("second", gradient)

    made = Own([parameter()], lr=0.1)
    step(made)
    made.load_state_dict(made.state_dict())
    assert list(made.state[0]) == ["second"]


def test_gradients_are_forgotten_or_set_to_zero_as_in_torch():
    given, without = parameter([1.0, 2.0]), parameter()
    optimizer = sf.optim.SGD([given, without], lr=1.0, weight_decay=0.5)
    given.grad = np.ones(2, np.float32)
    optimizer.zero_grad(set_to_none=False)
    assert_bits(given.grad, np.zeros(2, np.float32))
    with sf.simulate("fp32"):
        optimizer.step()
    assert_bits(given.data, np.array([0.5, 1.0], np.float32))
    assert_bits(without.data, np.array([1.0, 2.0], np.float32))
    optimizer.zero_grad(set_to_none=True)
    assert given.grad is None
    with pytest.raises(ValueError, match="set_to_none must be True or False, got 0"):
        optimizer.zero_grad(0)


def test_options_become_numbers_of_pythons_and_lists_of_the_users_stay_theirs():
    betas = [np.float32(0.5), 0.75]
    optimizer = sf.optim.Adam([parameter()], np.float32(0.25), betas=betas, amsgrad=np.True_)
    betas[0] = 2
    group = optimizer.state_dict()["param_groups"][0]
    assert json.loads(json.dumps(group)) == {**group, "betas": [0.5, 0.75]}
    assert (group["lr"], group["betas"], group["amsgrad"]) == (0.25, (0.5, 0.75), True)


class Scheduled(sf.optim.Optimizer):
    """Its rates are a dictionary that may be written to, and an update halves the lr that it was given."""

    rates = Option(lambda name, value: dict(value))

    def __init__(self, params, lr, rates):
        super().__init__(params, lr, rates=rates)

    def update(self, step, gradient, options):
        u = step.multiply(-options.lr * options.rates[0], gradient)
        options.lr /= 2
        return u


def test_options_are_read_at_every_step():
    parameter = sf.Parameter([1.0])
    optimizer = Scheduled([parameter], 0.5, {0: 1.0})
    for rate, expected in ((1.0, 0.5), (8.0, -3.5), (8.0, -7.5)):
        optimizer.param_groups[0]["rates"][0] = rate
        parameter.grad = np.ones(1, np.float32)
        with sf.simulate("fp32"):
            optimizer.step()
        assert parameter.data == expected
