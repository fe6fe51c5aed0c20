"""Policies: roles and their defaults, overrides, presets, and errors."""

import inspect
import pickle

import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.policy.roles import ROLES

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


def test_overrides_by_path_apply_to_everything_inside():
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


def test_a_role_follows_another_one():
    assert sf.Policy(compute=sf.BF16, accumulate=sf.exact).recipe().accumulate_gradients == sf.exact
    recipe = sf.Policy(compute=sf.BF16, accumulate=sf.FP16, accumulate_gradients=sf.FP32).recipe()
    assert (recipe.accumulate, recipe.accumulate_gradients) == (sf.sequential(sf.FP16), sf.sequential(sf.FP32))
    assert recipe.reduce == sf.sequential(sf.FP16)


def test_operands_are_rounded_by_a_cast_which_a_format_stands_for():
    assert sf.Policy(compute=sf.cast(sf.BF16)) == sf.Policy(compute="bf16")
    assert sf.Policy(compute=sf.cast(sf.BF16)).compute == sf.BF16
    saturating = sf.cast(sf.E4M3, sf.nearest_even.saturating())
    policy = sf.Policy(compute=saturating, compute_gradients=sf.cast("e5m2", sf.stochastic(8)))
    recipe = policy.recipe()
    assert (recipe.compute, recipe.compute_gradients) == (saturating, sf.cast(sf.E5M2, sf.stochastic(8)))
    assert recipe.weights == recipe.activations == recipe.gradients == sf.E4M3, "formats follow the format of a cast"
    assert sf.Policy.from_toml("compute = 'cast(e4m3, nearest_even.saturating())'").compute == saturating
    with pytest.raises(ValueError, match="weights: A format is a simfloat.Format"):
        sf.Policy(compute=sf.BF16, weights=saturating)


def test_results_may_keep_the_widest_format_of_their_operands():
    policy = sf.policies["fp32"].override(operation="relu", activations="widest")
    recipe = policy.recipe("", "relu")
    assert recipe.activations == recipe.gradients == recipe.weight_gradients == "widest"
    assert sf.Policy.from_dict(policy.to_dict()) == policy
    assert "widest" in policy.explain(sf.nn.MLP([2, 2]))
    for role in ("compute", "weights", "gradients"):
        with pytest.raises(ValueError, match=f"{role}: Unknown format 'widest'"):
            sf.Policy(**{"compute": sf.BF16, role: "widest"})


def test_a_matrix_unit_makes_no_other_sums():
    unit = sf.tensor_core("hopper", sf.BF16)
    for accumulate in (unit, sf.matrix_core("cdna3", sf.FP16), sf.blocked(64, unit, sf.FP32)):
        recipe = sf.Policy(compute=sf.BF16, accumulate=accumulate).recipe()
        assert recipe.accumulate == recipe.accumulate_gradients == accumulate
        assert recipe.reduce == sf.sequential(sf.FP32)
    assert sf.Policy(compute=sf.BF16, accumulate=unit, reduce=unit).recipe().reduce == unit


def test_none_in_an_override_goes_back_to_the_role_that_is_followed():
    policy = sf.Policy(compute=sf.BF16, activations=sf.FP32, weights=sf.FP32)
    recipe = policy.override("head", activations=None, weights=None, compute=sf.FP16).recipe("head")
    assert recipe.activations == recipe.gradients == recipe.weights == sf.FP16
    for role in ("compute", "accumulate", "rounding", "update"):
        with pytest.raises(ValueError, match=f"{role}.*None"):
            policy.override("head", **{role: None})


def test_the_signature_says_what_a_policy_takes():
    parameters = inspect.signature(sf.Policy).parameters
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters["compute"].default is inspect.Parameter.empty
    assert (parameters["compute"].annotation, parameters["weights"].annotation) == (
        "Format | Cast | str",
        "Format | str | None",
    )
    defaults = {"accumulate": sf.FP32, "rounding": sf.nearest_even, "update": "nearest", "fused": False}
    assert {
        key: p.default for key, p in parameters.items() if p.default not in (None, inspect.Parameter.empty, ())
    } == defaults
    assert all(f"    {role}: " in sf.Policy.__doc__ for role in ROLES)
    assert [*parameters] == [*ROLES, "name", "source", "overrides"]


def test_paths_name_modules_and_parameters():
    policy = sf.policies["fp32"].override("head.bias", weights=sf.BF16).override("*.weight", weights=sf.FP16)
    assert policy.recipe("head").weights == policy.recipe("hidden.bias").weights == sf.FP32
    assert policy.recipe("head.bias").weights == sf.BF16
    assert policy.recipe("hidden.0.weight").weights == policy.recipe("weights.weight").weights == sf.FP16


def test_the_root_is_matched_by_a_star_and_contains_everything():
    for pattern in ("*", ""):
        policy = sf.policies["fp32"].override(pattern, compute=sf.BF16)
        assert policy.recipe("").compute == policy.recipe("hidden.0").compute == sf.BF16
        policy.check_matched([""])
    assert sf.policies["fp32"].override("?*", compute=sf.BF16).recipe("").compute == sf.FP32


def test_an_override_without_a_match_is_reported_with_the_nearest_name():
    policy = sf.policies["fp32"].override("hed*", compute=sf.BF16)
    with pytest.raises(
        ValueError, match=r"Override 'hed\*' matches no layer and no parameter. Paths: head. Did you mean 'head'"
    ):
        policy.check_matched(["", "head"])
    policy.check_matched(["", "hedge.weight"])
    policy.check_matched([], ["linear"])
    policy = sf.policies["fp32"].override("head", operation="log_softmax", activations=sf.BF16)
    with pytest.raises(
        ValueError,
        match="'log_softmax' matches no operation that ran. Operations: linear, softmax. Did you mean 'softmax'",
    ):
        policy.check_matched(["head"], ["linear", "softmax"])
    policy.check_matched(["head"], ["linear", "log_softmax", "exp"])
    policy.check_matched(["head"], ["update"])
    policy.check_matched(["head"])
    sf.policies["fp32"].override(operation="pointwise", activations=sf.BF16).check_matched([""], ["exp"])
    with pytest.raises(ValueError, match=r"Paths: p0, .*, p11 and 3 more\."):
        policy.check_matched([f"p{i}" for i in range(15)])


@pytest.mark.parametrize("operation, roles, message", [
    (
        "linear",
        {"weights": sf.FP32},
        r"weights has no effect on the operation 'linear'.*override\('\*.weight', weights",
    ),
    ("add", {"update": "kahan"}, "Parameters are selected by path"),
    ("softmax", {"optimizer_state": sf.FP32}, "optimizer_state has no effect"),
    ("relu", {"compute_gradients": sf.FP32}, "which uses activations, "),
    ("reduction", {"accumulate_gradients": sf.FP32}, "accumulate_gradients has no effect"),
    ("mse_loss", {"compute_gradients": sf.FP32}, "compute_gradients has no effect"),
    ("update", {"activations": sf.FP32}, "which uses compute, accumulate, reduce, rounding"),
    ("add", {"compute": sf.FP32, "activations": None, "weights": sf.FP16}, "weights has no effect"),
])  # fmt: skip
def test_roles_that_an_operation_has_no_use_for_are_refused(operation, roles, message):
    with pytest.raises(ValueError, match=message):
        sf.policies["bf16-standard"].override(operation=operation, **roles)


def test_every_operation_of_the_catalog_can_be_named():
    for operation in OPERATIONS:
        policy = sf.policies["fp32"].override(operation=operation, rounding=sf.toward_zero)
        assert policy.recipe("", operation).rounding == sf.toward_zero
    policy = sf.policies["fp32"].override(operation="pointwise", rounding=sf.toward_zero)
    assert policy.recipe("", "update").rounding == sf.nearest_even, "an optimizer's additions are named by themselves"
    assert policy.override(operation="update", rounding=sf.to_odd).recipe("", "update").rounding == sf.to_odd


def test_a_role_that_others_follow_has_an_effect_where_they_have_one():
    assert (
        sf.policies["bf16-standard"].override(operation="add", compute=sf.FP32).recipe("", "add").activations == sf.FP32
    )
    with pytest.raises(ValueError, match="compute has no effect on the operation 'add'"):
        sf.Policy(compute=sf.BF16, activations=sf.FP32).override(operation="add", compute=sf.FP16)


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


@pytest.mark.parametrize("make, message", [
    (lambda: sf.Policy(compute=None), "needs compute="),
    (lambda: sf.Policy(compute="bf17"), "Unknown format 'bf17'"),
    (lambda: sf.Policy(compute=sf.BF16, update="kahn"), "update must be one of nearest, stochastic, kahan"),
    (
        lambda: sf.Policy(compute=sf.BF16, update=sf.toward_zero),
        r"or simfloat.stochastic\(bits=4\); got toward_zero",
    ),
    (lambda: sf.Policy(compute=sf.BF16, rounding="nearest"), "rounding must be a simfloat.Rounding"),
    (lambda: sf.Policy(compute=sf.BF16, accumulate=16), "accumulate must be a simfloat accumulator or a format"),
    (
        lambda: sf.Policy(compute=sf.BF16, reduce=16),
        "reduce: accumulate must be a simfloat accumulator or a format",
    ),
    (lambda: sf.Policy(compute=sf.BF16, name=5), "The name of a policy must be text, got 5 of type int"),
    (
        lambda: sf.Policy(compute=sf.BF16, source="\ud800"),
        "The source of a policy must be text without lone surrog",
    ),
    (lambda: sf.Policy(compute=sf.BF16, overrides=5), "Overrides are created by Policy.override, got 5"),
    (lambda: E4M3.override(5, compute=sf.BF16), "The path of an override must be text, got 5"),
    (lambda: E4M3.override("\udc80", compute=sf.BF16), "without lone surrogates"),
    (lambda: E4M3.override("head", compute=None), "compute=.* it has no default, got None"),
    (lambda: E4M3.override(operation=5, compute=sf.BF16), "Unknown operation 5"),
    (lambda: E4M3.override("head"), "got no role"),
    (lambda: E4M3.override("head", wieghts=sf.BF16), "unknown role 'wieghts'. Roles: compute.*Did you mean 'weights'"),
    (lambda: E4M3.override(compute=sf.BF16), "needs a path, an operation, or both"),
    (lambda: E4M3.override(operation="sofmax", compute=sf.BF16), "Did you mean 'softmax'"),
    (
        lambda: E4M3.override("haed", compute=sf.BF16).explain(sf.nn.MLP([2, 2, 2])),
        r"Override 'haed' matches no layer and no parameter. Paths: hidden, hidden.0, .* Did you mean 'head'\?",
    ),
    (lambda: sf.Policy.from_dict({}), "needs the key 'compute'"),
    (lambda: sf.Policy.from_dict({"compute": "bf16", "wieghts": "bf16"}), "no key 'wieghts'.*Did you mean 'weights'"),
    (lambda: sf.Policy.from_dict({"compute": 16}), "compute must be a text such as 'BF16', got 16"),
    (lambda: sf.Policy.from_dict({"compute": "bf17"}), "compute: Unknown format 'bf17'"),
    (lambda: sf.Policy.from_dict({"compute": "bf16", "overrides": [{"layer": "a"}]}), "An override has no key"),
    (lambda: sf.Policy.from_dict(3), "must be a dictionary"),
    (lambda: sf.Policy.from_dict({"compute": "bf16", "overrides": 5}), "overrides must be a list of dictionaries"),
    (lambda: sf.Policy.from_dict({"compute": "bf16", "overrides": [5]}), "An override must be a dictionary"),
    (lambda: sf.Policy.from_dict({"compute": "default"}), "compute: Unknown format 'default'"),
    (lambda: sf.Policy.from_toml("compute = bf16"), 'Not a TOML file: .* write compute = "bf16"'),
    (lambda: sf.Policy.from_toml("/a/mine.toml"), "Not a TOML file: .* It takes the text itself"),
    (lambda: sf.Policy.from_toml("a = " + "[" * 5000), "nested too deeply"),
    (lambda: sf.Policy.from_toml(b"compute = 'bf16'"), "A TOML text is expected"),
])  # fmt: skip
def test_bad_policies_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_two_policies_side_by_side_show_what_differs():
    mine = sf.policies["fp16-master"].override("head", compute=sf.FP32)
    theirs = sf.policies["bf16-kahan"].override(operation="exp", activations=sf.FP32).override("head", compute=sf.FP32)
    header, *rows = mine.diff(theirs).rows
    assert header == ("role", "fp16-master", "bf16-kahan")
    assert rows[0] == ("compute", "FP16", "BF16") and ("update", "nearest", "kahan") in rows
    assert ("weights", "FP32", "BF16") in rows and "accumulate" not in {row[0] for row in rows}
    assert rows[-1] == ("override", "", "override(operation='exp', activations=FP32)"), "what both have is not shown"
    assert mine.diff(sf.Policy.from_toml(mine.to_toml())).rows == (("role", "fp16-master", "fp16-master"),)
    wide = sf.policies["amp-fp16"].diff(sf.Policy(compute=sf.FP16))
    assert max(map(len, wide.splitlines())) < 120 and wide.rows[0] == ("role", "amp-fp16", "other")
    assert mine.diff("bf16-kahan") == mine.diff(sf.policies["bf16-kahan"])
    with pytest.raises(ValueError, match="Unknown policy 'fp23'.* Did you mean 'fp32'"):
        mine.diff("fp23")
    with pytest.raises(ValueError, match="diff takes a simfloat.Policy or its name, got 32"):
        mine.diff(32)


def test_every_preset_is_a_policy_of_its_name_and_an_unknown_one_names_the_nearest():
    assert [policy.name for policy in sf.policies.values()] == [*sf.policies]
    with pytest.raises(ValueError, match="Unknown policy 'mine.toml'.*simfloat.Policy.from_toml takes the text"):
        sf.simulate("mine.toml")
    with pytest.raises(KeyError, match="Unknown policy 'fp16-mater'.*Did you mean 'fp16-master'"):
        sf.policies["fp16-mater"]
    assert "fp16-mater" not in sf.policies and sf.policies.get("fp16-mater") is None


def test_presets_print_as_the_table_of_their_sources():
    lines = str(sf.policies).splitlines()
    assert lines[0].split() == ["name", "source"] and len(lines) == 1 + len(sf.policies)
    assert all(
        line.startswith(name) and line.endswith(sf.policies[name].source)
        for name, line in zip(sf.policies, lines[1:], strict=True)
    )
