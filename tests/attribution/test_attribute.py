"""Attribution: the error that each part of a policy causes in the gradient, compared with a computation by hand."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.optim.clipping import sum_of_squares
from tests.bits import assert_bits

RNG = np.random.default_rng(4)
X, Y, LABELS = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3)), RNG.integers(0, 3, 6)
EXACT = {
    "compute": sf.FP64, "compute_gradients": sf.FP64, "compute_weights": sf.FP64, "weights": sf.FP64,
    "activations": sf.FP64, "activation_gradients": sf.FP64, "weight_gradients": sf.FP64, "accumulate": sf.FP64,
    "accumulate_gradients": sf.FP64, "reduce": sf.FP64,
}  # fmt: skip


def norm(gradients):
    return np.sqrt(sum(float(np.sum(np.square(g, dtype=np.float64))) for g in gradients))


def linear_gradients(change):
    """The gradients of the weight and the bias of a linear layer under a mean squared error, in float64 but for the
    one value that `change` rounds to BF16."""

    def step(name, value):
        return sf.round(value, sf.BF16) if name == change else value

    layer = sf.nn.Linear(4, 3, rng=5)
    w, b = step("weight", layer.weight.data), step("bias", layer.bias.data)
    y = step("bias add", step("product", step("x", X) @ step("w", w).T) + b)
    difference = step("difference", y - Y)
    gradient = step("gradient", 2 * difference / Y.size)
    weight_gradient = step("weight gradient", step("g", gradient).T @ step("x", X))
    return weight_gradient, step("bias gradient", gradient.sum(0))


@pytest.mark.parametrize("operation, role, change", [
    ("linear", "activations", "product"), ("linear", "compute", "x"), ("linear", "compute_weights", "w"),
    ("linear", "compute_gradients", "g"), ("linear", "weight_gradients", "weight gradient"),
    ("add", "activations", "bias add"), ("add", "weight_gradients", "bias gradient"),
])  # fmt: skip
def test_the_cost_of_a_role_is_its_error_alone(operation, role, change):
    found = sf.attribute(sf.nn.Linear(4, 3, rng=5), sf.nn.mse_loss, (X, Y), "bf16-standard")
    exact, rounded = linear_gradients(None), linear_gradients(change)
    want = norm(a - b for a, b in zip(rounded, exact, strict=True)) / norm(exact)
    (got,) = [cost for cost in found.costs if (cost.operation, cost.role) == (operation, role)]
    assert got.layer == "(model)" and got.error == pytest.approx(want, rel=1e-9) and want > 1e-5


def test_the_cost_of_the_whole_policy_is_its_difference_from_the_reference():
    model = sf.nn.MLP([4, 5, 3], rng=6)
    found = sf.attribute(model, sf.nn.cross_entropy, (X, LABELS), "fp16-standard")
    gradients = []
    for policy in ("fp16-standard", "fp64"):
        other = sf.nn.MLP([4, 5, 3], rng=6)
        with sf.simulate(policy):
            sf.nn.cross_entropy(other(X), LABELS).backward()
        gradients.append([parameter.grad for parameter in other.parameters()])
    want = norm(a - b for a, b in zip(*gradients, strict=True)) / norm(gradients[1])
    assert found.total == pytest.approx(want, rel=1e-12)
    assert sf.attribute(model, sf.nn.cross_entropy, (X, LABELS), "fp64").costs == ()


def test_the_model_does_not_change():
    model = sf.nn.MLP([4, 5, 3], rng=6)
    before = model.state_dict()
    sf.attribute(model, sf.nn.mse_loss, (X, Y), "bf16-standard", by=["operation"])
    for path, parameter in model.named_parameters():
        assert_bits(parameter.numbers, before[path])
        assert parameter.grad is None and parameter.format is None


class Scaled(sf.nn.Module):
    """A module that multiplies, around another one that does."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner
        self.factor = sf.nn.Parameter([1.1, 0.7, 1.3, 0.9])

    def forward(self, x):
        return (x if self.inner is None else self.inner(x)) * self.factor


def test_a_layer_inside_of_a_layer_is_another_one():
    model = Scaled(Scaled(Scaled()))
    found = sf.attribute(model, sf.nn.mse_loss, (X, X), "bf16-standard", by=["layer", "role"])
    costs = {(cost.layer, cost.role): cost.error for cost in found.costs}
    base = sf.Policy(**EXACT)
    for layer, path, inside in (
        ("(model)", "", "inner"),
        ("inner", "inner", "inner.inner"),
        ("inner.inner",) * 2 + (None,),
    ):
        policy = base.override(path, operation="multiply", activations=sf.BF16)
        policy = policy if inside is None else policy.override(inside, operation="multiply", activations=sf.FP64)
        if layer == "(model)":  # the loss runs there too
            policy = policy.override("", operation="subtract", activations=sf.BF16)
            policy = policy.override("", operation="mean", activations=sf.BF16)
        gradients = []
        for each in (policy, base):
            with sf.simulate(each):
                model.zero_grad()
                sf.nn.mse_loss(model(X), X).backward()
            gradients.append([parameter.grad for parameter in model.parameters()])
        want = norm(a - b for a, b in zip(*gradients, strict=True)) / norm(gradients[1])
        assert costs[layer, "activations"] == pytest.approx(want, rel=1e-9)


def test_parts_are_grouped_by_the_fields_that_are_asked_for():
    model, batch = sf.nn.MLP([4, 5, 3], rng=6), (X, LABELS)
    whole = sf.attribute(model, sf.nn.cross_entropy, batch, "bf16-standard")
    assert whole.by == ("operation", "layer", "role") and len(whole.costs) > 30
    assert [cost.error for cost in whole.costs] == sorted((cost.error for cost in whole.costs), reverse=True)
    by_layer = sf.attribute(model, sf.nn.cross_entropy, batch, "bf16-standard", by=["layer"])
    assert {(cost.operation, cost.role) for cost in by_layer.costs} == {("", "")}
    assert [cost.layer for cost in by_layer.measured] == ["hidden.0", "head", "(model)"], "in the program's order"
    assert by_layer.total == whole.total


def test_its_grid_adds_up_independent_errors():
    found = sf.attribute(sf.nn.MLP([4, 5, 3], rng=6), sf.nn.mse_loss, (X, Y), "bf16-standard")
    grid = found.grid()
    assert grid.rows == ("hidden.0", "head", "(model)") and grid.columns[:3] == ("linear", "add", "relu")
    squares = sum(cost.error**2 for cost in found.costs if (cost.layer, cost.operation) == ("head", "linear"))
    assert grid.errors[1, 0] == pytest.approx(np.sqrt(squares), rel=1e-12)
    assert grid.errors[2, 0] == 0, "no linear runs outside of layers"
    with pytest.raises(ValueError, match=r"takes two of the fields operation, layer, role; got 'phase'"):
        found.grid("phase")


def test_it_prints_as_a_table_of_the_largest_costs():
    found = sf.attribute(sf.nn.MLP([4, 5, 3], rng=6), sf.nn.cross_entropy, (X, LABELS), "bf16-standard")
    lines = repr(found).splitlines()
    assert lines[0].split() == ["operation", "layer", "role", "error"] and lines[1].startswith("(whole policy)")
    assert len(lines) == 23 and lines[-1] == f"... and {len(found.costs) - 20} smaller ones"
    assert lines[2].split() == [*found.costs[0][:3], f"{found.costs[0].error:.2e}"]
    assert len(found.table().splitlines()) == len(found.costs) + 2 and len(found.table(3).splitlines()) == 5
    assert found._repr_html_().count("<tr>") == 22


def test_results_of_widest_operations_count_in_the_formats_that_they_have():
    found = sf.attribute(sf.nn.MLP([4, 5, 3], rng=6), sf.nn.mse_loss, (X, Y), "amp-bf16")
    costs = {(cost.operation, cost.layer, cost.role): cost.error for cost in found.costs}
    assert costs["relu", "hidden.0", "activations"] > 1e-4, "BF16, as what the layer made"
    assert costs["subtract", "(model)", "activations"] < 1e-6, "a loss runs in FP32"
    assert costs["(parameter)", "head", "weights"] < 1e-6


def test_operands_and_sums_of_a_matrix_unit_are_measured_together():
    for name in ("fp8-hopper", "nvfp4"):
        found = sf.attribute(sf.nn.MLP([4, 5, 3], rng=6), sf.nn.mse_loss, (X, Y), name)
        roles = {cost.role for cost in found.costs if cost.operation == "linear"}
        assert roles == {"operands and sums", "activations", "activation_gradients", "weight_gradients"}


def test_operands_and_sums_of_a_unit_of_ones_own_are_measured_together():
    own = sf.fused(8, 20, sf.Format(8, 13), align=sf.to_odd)
    for unit in (own, sf.blocked(16, own, sf.FP32)):
        policy = sf.Policy(compute=sf.E4M3, activations=sf.BF16, weights=sf.FP32, accumulate=unit)
        found = sf.attribute(sf.nn.MLP([4, 5, 3], rng=6), sf.nn.mse_loss, (X, Y), policy)
        roles = {cost.role for cost in found.costs if cost.operation == "linear"}
        assert roles == {"operands and sums", "activations", "activation_gradients", "weight_gradients"}


def test_a_fused_composite_is_one_operation():
    model = sf.nn.Sequential(sf.nn.Linear(4, 3, rng=1))
    policy = sf.policies["bf16-standard"].override(operation="log_softmax", fused=True)
    found = sf.attribute(model, sf.nn.cross_entropy, (X, LABELS), policy, by=["operation", "role"])
    costs = {(cost.operation, cost.role): cost.error for cost in found.costs}
    assert not {"exp", "log"} & {operation for operation, _ in costs}
    exact = sf.Policy(**EXACT).override(operation="log_softmax", fused=True, activations=sf.BF16)
    gradients = []
    for each in (exact, "fp64"):
        model.zero_grad()
        with sf.simulate(each):
            sf.nn.cross_entropy(model(X), LABELS).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    want = norm(a - b for a, b in zip(*gradients, strict=True)) / norm(gradients[1])
    assert costs["log_softmax", "activations"] == pytest.approx(want, rel=1e-9)


def test_a_fused_composite_costs_what_its_result_does_and_not_what_came_in():
    class Mixed(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.row = sf.nn.Parameter([[0.3, 0.1, -0.7, 0.2]])

        def forward(self, x):
            return sf.concatenate([x, self.row]).softmax()  # partly data, which is of no format

    policy = sf.policies["bf16-standard"].override(operation="softmax", fused=True, activations=sf.FP32)
    found = sf.attribute(Mixed(), sf.nn.mse_loss, (X, np.zeros((7, 4))), policy, by=["operation", "role"])
    costs = {(cost.operation, cost.role): cost.error for cost in found.costs}
    assert 0 < costs["softmax", "activations"] < 1e-6 < 1e-4 < costs["subtract", "activations"]


def test_a_gradient_that_overflows_costs_without_bound():
    found = sf.attribute(sf.nn.Linear(4, 3, rng=1), sf.nn.mse_loss, (X * 1e6, Y), "fp16-standard")
    assert found.total == np.inf and found.costs[0].error == np.inf and "inf" in repr(found)


def test_stochastic_rounding_of_results_needs_a_reference_that_can_have_it():
    policy = sf.Policy(compute=sf.BF16, rounding=sf.stochastic())
    model, batch = sf.nn.Linear(4, 3, rng=1), (X, Y)
    with pytest.raises(ValueError, match="by stochastic.*pass reference='fp32'"):
        sf.attribute(model, sf.nn.mse_loss, batch, policy)
    found = sf.attribute(model, sf.nn.mse_loss, batch, policy, "fp32")
    assert found.total > 1e-4 and sf.attribute(model, sf.nn.mse_loss, batch, policy, "fp32").costs == found.costs


def test_an_argument_that_cannot_be_attributed_is_refused():
    model, loss, batch = sf.nn.Linear(4, 3, rng=1), sf.nn.mse_loss, (X, Y)
    plain = sf.nn.Linear(4, 3, bias=False, rng=1)
    for make, message in (
        (lambda: sf.attribute(model, loss, batch, "bf17"), "Unknown policy 'bf17'"),
        (lambda: sf.attribute(model, loss, batch, sf.FP16), "attribute takes a simfloat.Policy or its name"),
        (lambda: sf.attribute(model, loss, batch, "fp32", "amp-fp16"), "a policy without overrides"),
        (lambda: sf.attribute(model, loss, batch, "fp32", by="operation"), "by is a list of operation, layer, role"),
        (lambda: sf.attribute(model, loss, batch, "fp32", by=["phase"]), r"got \['phase'\]"),
        (lambda: sf.attribute(model, loss, batch, "fp32", by=[]), r"by is a list"),
        (lambda: sf.attribute(model, loss, batch, "fp32", by=3), "by is a list of operation, layer, role; got 3"),
        (lambda: sf.attribute(len, loss, batch, "fp32"), "Module or a torch.nn.Module, got a builtin_function"),
        (lambda: sf.attribute(model, None, batch, "fp32"), "loss_fn is called as .*got a NoneType"),
        (lambda: sf.attribute(model, loss, X, "fp32"), r"batch is a pair \(x, y\), got a ndarray"),
        (lambda: sf.attribute(model, lambda a, b: a, batch, "fp32"), "must be a Tensor of one number"),
        (lambda: sf.attribute(model, lambda a, b: 1.0, batch, "fp32"), "must be a Tensor of one number"),
        (lambda: sf.attribute(plain, loss, (0 * X, Y), "fp32"), "zero or not finite"),
        (lambda: sf.attribute(model, lambda a, b: loss(a + model.bias, b), batch, "fp32"), "loss_fn uses bias"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            make()


def test_squares_are_added_in_the_one_stated_order():
    model, x = sf.nn.Linear(20, 10, rng=0), RNG.standard_normal((4, 20))

    def gradient(policy):
        twin = sf.nn.Linear(20, 10, rng=0)
        with sf.simulate(policy):
            sf.nn.mse_loss(twin(x), x[:, :10]).backward()
        return np.concatenate([p.grad.ravel() for p in twin.parameters()]).astype(np.float64)

    rounded, exact = gradient("bf16-standard"), gradient("fp64")
    want = math.sqrt(sum_of_squares(rounded - exact)) / math.sqrt(sum_of_squares(exact))
    assert sf.attribute(model, sf.nn.mse_loss, (x, x[:, :10]), "bf16-standard", by=["role"]).total == want
