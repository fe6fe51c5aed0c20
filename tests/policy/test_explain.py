"""The table of the formats of every layer."""

import re

import pytest

import simfloat as sf

MODEL = sf.nn.MLP([4, 3, 3, 2])


def rows(policy, model=MODEL):
    """The table's rows, each a dictionary by column."""
    header, *lines = policy.explain(model).splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    cells = [[line[i:j].strip() for i, j in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
    return [dict(zip(header.split(), row, strict=True)) for row in cells]


def places(table):
    return [(row["layer"], row["kind"]) for row in table]


def test_every_layer_has_a_row_and_what_runs_in_none_of_them_too():
    table = rows(sf.policies["fp32"].override("hidden.1", compute=sf.BF16, update="kahan"))
    assert places(table) == [
        ("hidden.0", "ReLULinear"), ("hidden.1", "ReLULinear"), ("head", "Linear"), ("elsewhere", "-"),
    ]  # fmt: skip
    assert [row["compute"] for row in table] == ["FP32", "BF16", "FP32", "FP32"]
    assert [row["update"] for row in table] == ["nearest", "kahan", "nearest", "-"], "parameters are in layers"
    assert {row["reduce"] for row in table} == {"sequential(FP32)"}
    assert places(rows(sf.policies["fp32"], sf.nn.Linear(2, 2))) == [("(model)", "Linear")]


def test_an_operation_that_differs_everywhere_alike_has_one_row():
    table = rows(sf.policies["fp32"].override(operation="softmax", activations=sf.FP16))
    assert places(table)[-1] == ("everywhere", "softmax") and len(table) == 5
    assert table[-1]["activations"] == table[-1]["gradients"] == "FP16"
    assert table[-1]["compute"] == table[-1]["weights"] == "-", "no softmax has contractions or parameters"


def test_an_operation_has_the_recipe_that_applies_in_each_layer():
    policy = sf.policies["fp32"].override(operation="sum", reduce=sf.FP16).override("head", rounding=sf.toward_zero)
    table = [row for row in rows(policy) if row["kind"] == "sum"]
    assert [row["layer"] for row in table] == ["hidden.0", "hidden.1", "head", "elsewhere"]
    assert [row["rounding"] for row in table] == ["nearest_even", "nearest_even", "toward_zero", "nearest_even"]
    policy = policy.override("hidden.*", reduce=sf.FP32)
    assert ("hidden.0", "sum") not in places(rows(policy)), "a later override by path wins"


def test_a_pattern_for_a_path_stands_for_the_layers_that_it_matches():
    policy = sf.policies["fp32"].override("hidden.1", rounding=sf.toward_zero)
    table = rows(policy.override("hid*", operation="relu", activations=sf.BF16))
    assert [(row["layer"], row["rounding"]) for row in table if row["kind"] == "relu"] == [
        ("hidden.0", "nearest_even"), ("hidden.1", "toward_zero"),
    ]  # fmt: skip
    assert [row for row in table if "*" in row["layer"]] == []


def test_an_override_that_changes_nothing_has_no_row():
    table = rows(sf.policies["bf16-standard"].override(operation="softmax", activations=sf.BF16))
    assert "softmax" not in dict(map(reversed, places(table)))


def test_a_parameter_that_differs_from_its_layer_has_a_row():
    table = rows(sf.policies["bf16-standard"].override("*.bias", weights=sf.FP32).override("head", weights=sf.FP32))
    assert [(row["layer"], row["weights"], row["activations"]) for row in table if row["kind"] == "parameter"] == [
        ("hidden.0.bias", "FP32", "-"), ("hidden.1.bias", "FP32", "-"),
    ]  # fmt: skip


def test_a_path_that_matches_nothing_is_refused():
    with pytest.raises(ValueError, match=r"matches no layer and no parameter.*Did you mean 'head.bias'\?"):
        sf.policies["fp32"].override("head.bais", weights=sf.BF16).explain(MODEL)
    assert rows(sf.policies["fp32"].override(operation="matmul", compute=sf.BF16)), "operations are seen when they run"


def test_operations_of_lists_share_a_row_for_the_whole_model():
    model = sf.nn.MLP([2] * 12)
    text = sf.policies["amp-fp16"].explain(model)
    table = rows(sf.policies["amp-fp16"], model)
    assert [row["layer"] for row in table if row["layer"] not in dict(model.named_modules())][:2] == [
        "elsewhere", "everywhere",
    ]  # fmt: skip
    assert sum(row["layer"] == "everywhere" for row in table) <= 5 and len(text.rows) <= 12 + 6
    shown = " ".join(row["kind"] for row in table[12:]).split()
    # Those that follow their operands, as the layers do, have no row.
    listed = [name for override in sf.policies["amp-fp16"].overrides[:2] for name in override.operations]
    assert sorted(shown) == sorted(listed), "each name once, on as many lines as they need"
    assert max(len(row["kind"]) for row in table) <= 40
    assert "exp log log2 power<br>" in text._repr_html_()


def test_operations_of_lists_have_a_row_below_a_layer_that_differs():
    policy = sf.policies["fp32"].allow("linear", "relu", format="fp16").deny("exp").override("head", reduce=sf.FP16)
    policy = policy.override("hidden.1", activations=sf.BF16, accumulate=sf.BF16)
    table = rows(policy)
    assert ("hidden.1", "relu") not in places(table), "as the layer"
    assert [row["layer"] for row in table if row["kind"] == "linear"] == ["hidden.1", "head", "elsewhere"]
    assert [row["activations"] for row in table if row["kind"] == "linear"] == ["BF16", "FP16", "FP16"]


@pytest.mark.parametrize("model", [5, None, "mlp", sf.nn.MLP, lambda x: x])
def test_an_invalid_model_is_refused(model):
    with pytest.raises(ValueError, match="explain takes a model, a simfloat.nn.Module, got"):
        sf.policies["fp32"].explain(model)


def test_a_model_of_pytorch_is_sent_to_its_own_explain():
    torch = pytest.importorskip("torch", reason="needs PyTorch for a model of its own")
    with pytest.raises(ValueError, match=r"write simfloat.torch.explain\(model, sample, policy\). Got a Linear"):
        sf.policies["fp32"].explain(torch.nn.Linear(2, 2))
