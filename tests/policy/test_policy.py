"""Policies: defaults, overrides, the table, and text."""

import pickle

import pytest

import simfloat as sf
from simfloat.policy.text import parse

E4M3 = sf.Policy(compute="e4m3", compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.BF16)


def test_roles_default_to_each_other():
    recipe = sf.Policy(compute=sf.BF16).recipe()
    assert {getattr(recipe, role) for role in ("compute_gradients", "weights", "activations", "gradients")} == {sf.BF16}
    assert {recipe.activation_gradients, recipe.weight_gradients, recipe.optimizer_state} == {sf.BF16}
    assert recipe.accumulate == sf.sequential(sf.FP32) and recipe.rounding == sf.nearest_even
    assert recipe.update == "nearest"
    recipe = E4M3.recipe()
    assert (recipe.compute_gradients, recipe.weights, recipe.optimizer_state) == (sf.E5M2, sf.FP32, sf.FP32)
    assert (recipe.activations, recipe.gradients, recipe.weight_gradients) == (sf.BF16, sf.BF16, sf.BF16)
    recipe = sf.Policy(compute=sf.BF16, gradients=sf.FP32, weight_gradients=sf.FP16).recipe()
    assert (recipe.activation_gradients, recipe.weight_gradients) == (sf.FP32, sf.FP16)


def test_overrides_by_path_hold_for_what_is_inside():
    policy = sf.policies["fp32"].override("hidden.*", compute=sf.BF16).override("hidden.1", compute=sf.FP16)
    assert policy.recipe("hidden.0").compute == sf.BF16
    assert policy.recipe("hidden.0.weight").weights == sf.BF16, "defaults follow the override"
    assert policy.recipe("hidden.1").compute == sf.FP16, "later overrides win"
    assert policy.recipe("head").compute == sf.FP32 and policy.recipe("hidden").compute == sf.FP32
    assert sf.policies["fp32"].override("hidden", compute=sf.BF16).recipe("hidden.0").compute == sf.BF16


def test_overrides_by_operation_class_and_composite():
    policy = sf.policies["bf16-standard"].override(operation="softmax", activations=sf.FP32)
    policy = policy.override(operation="reduction", activations=sf.FP16)
    assert policy.recipe("", "exp").activations == sf.BF16
    assert policy.recipe("", "softmax", "exp").activations == sf.FP32
    assert policy.recipe("", "sum").activations == sf.FP16
    both = sf.policies["fp32"].override("head", operation="contraction", compute=sf.E5M2)
    assert both.recipe("head", "linear").compute == sf.E5M2
    assert both.recipe("head", "add").compute == sf.FP32 and both.recipe("hidden", "linear").compute == sf.FP32


def test_explain_says_what_runs_where():
    model = sf.nn.MLP([4, 3, 3, 2])
    policy = sf.policies["fp32"].override("hidden.1", compute=sf.BF16, update="kahan")
    lines = policy.override(operation="softmax", activations=sf.FP16).explain(model).splitlines()
    cells = [line.split() for line in lines]
    assert cells[0][:4] == ["layer", "kind", "weights", "compute"]
    assert [row[:3] for row in cells[1:]] == [
        ["hidden.0", "ReLULinear", "FP32"],
        ["hidden.1", "ReLULinear", "BF16"],
        ["head", "Linear", "FP32"],
        ["everywhere", "softmax", "FP32"],
    ]
    assert cells[2][-1] == "kahan" and "FP16" in cells[4]


@pytest.mark.parametrize("name", sf.policies)
def test_presets_round_trip_and_cite_their_source(name):
    policy = sf.policies[name]
    assert policy.name == name and policy.source
    assert sf.Policy.from_dict(policy.to_dict()) == policy
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    assert eval(repr(policy), vars(sf)) == policy
    assert hash(policy) == hash(sf.Policy.from_dict(policy.to_dict()))
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_presets_are_what_their_sources_say():
    recipe = sf.policies["bf16-fp32-weights"].recipe()
    assert (recipe.compute, recipe.weights, recipe.optimizer_state) == (sf.BF16, sf.FP32, sf.BF16)
    recipe = sf.policies["fp16-master"].recipe()
    assert (recipe.compute, recipe.weights, recipe.activations) == (sf.FP16, sf.FP32, sf.FP16)
    assert sf.policies["fp64"].recipe().accumulate == sf.sequential(sf.FP64)
    assert [sf.policies[f"bf16-{u}"].update for u in ("standard", "stochastic", "kahan")] == [
        "nearest", "stochastic", "kahan",
    ]  # fmt: skip


def test_a_policy_with_everything_is_text():
    policy = sf.Policy(
        compute=sf.Format(5, 9, bias=20),
        compute_gradients=sf.p3109(8, 3),
        weights=sf.Format(5, 10, name="half"),
        accumulate=sf.sequential(sf.FP16, rounding=sf.stochastic(8, "A"), products=sf.E4M3),
        rounding=sf.toward_zero.saturating(),
        update="stochastic",
        name="odd one",
        source='a "quoted" source',
    ).override("a.*", operation="softmax", accumulate=sf.exact, rounding=sf.stochastic())
    assert sf.Policy.from_dict(policy.to_dict()) == policy
    again = sf.Policy.from_toml(policy.to_toml())
    assert again == policy and again.name == policy.name and again.source == policy.source
    assert eval(repr(policy), vars(sf)) == policy


def test_a_policy_file_is_pleasant_to_write():
    policy = sf.Policy.from_toml(
        """
        compute = "bf16"
        weights = "e8m20"
        accumulate = "sequential(fp16, products=bf16)"
        update = "kahan"

        [[overrides]]
        path = "head"
        accumulate = "exact"
        """
    )
    assert policy.compute == sf.BF16 and policy.weights == sf.Format(8, 20)
    assert policy.accumulate == sf.sequential(sf.FP16, products=sf.BF16)
    assert policy.recipe("head").accumulate == sf.exact


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: sf.Policy(compute=None), "needs compute="),
        (lambda: sf.Policy(compute="bf17"), "Unknown format 'bf17'"),
        (lambda: sf.Policy(compute=sf.BF16, update="kahn"), "update must be one of nearest, stochastic, kahan"),
        (lambda: sf.Policy(compute=sf.BF16, rounding="nearest"), "rounding must be a simfloat.Rounding"),
        (lambda: sf.Policy(compute=sf.BF16, accumulate=16), "accumulate must be a simfloat accumulator or a format"),
        (lambda: E4M3.override("head"), "got no role"),
        (lambda: E4M3.override("head", computes=sf.BF16), "unknown role 'computes'. Roles: compute"),
        (lambda: E4M3.override(compute=sf.BF16), "for a path, an operation, or both"),
        (lambda: E4M3.override(operation="sofmax", compute=sf.BF16), "Did you mean 'softmax'"),
        (
            lambda: E4M3.override("haed", compute=sf.BF16).explain(sf.nn.MLP([2, 2, 2])),
            r"Override 'haed' matches no layer. Layers: hidden, hidden.0, head. Did you mean 'head'\?",
        ),
        (lambda: sf.Policy.from_dict({}), "needs the key 'compute'"),
        (lambda: sf.Policy.from_dict({"compute": "bf16", "wieghts": "bf16"}), "has no key 'wieghts'. Keys: name"),
        (lambda: sf.Policy.from_dict({"compute": 16}), "compute must be a text such as 'BF16', got 16"),
        (lambda: sf.Policy.from_dict({"compute": "bf17"}), "compute: Unknown format 'bf17'"),
        (lambda: sf.Policy.from_dict({"compute": "bf16", "overrides": [{"layer": "a"}]}), "An override has no key"),
        (lambda: sf.Policy.from_dict(3), "described by a dictionary"),
        (lambda: sf.Policy.from_toml("compute = bf16"), "Not a TOML file"),
        (lambda: parse("open('x')"), r"Cannot read \"open\('x'\)\"; known are"),
        (lambda: parse("sequential(1 +"), "Cannot read 'sequential"),
        (lambda: parse("sequential(FP16, product=BF16)"), "unexpected keyword"),
    ],
)
def test_bad_policies_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
