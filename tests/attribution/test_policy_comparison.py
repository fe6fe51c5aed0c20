"""Loss and gradient of one model under many policies equal those of separate runs; errors are relative."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.analysis.attribution.policy_comparison import PolicyComparison, PolicyError

RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3))
MODEL = sf.nn.Linear(4, 3, rng=5)


def by_hand(policy):
    model = sf.nn.Linear(4, 3, rng=5)
    with sf.simulate(policy, seed=0):
        loss = sf.nn.mse_loss(model(X), Y)
        loss.backward()
    return loss.item(), np.concatenate([p.grad.ravel() for p in model.parameters()])


def test_rows_equal_separate_runs_in_any_order():
    before = MODEL.weight.data.copy()
    found = sf.compare(MODEL, sf.nn.mse_loss, (X, Y), ["bf16-standard", "fp8-hybrid"])
    again = sf.compare(MODEL, sf.nn.mse_loss, (X, Y), ["fp8-hybrid", "bf16-standard"])
    loss, gradient = by_hand("fp64")
    for name in ("bf16-standard", "fp8-hybrid"):
        own, slope = by_hand(name)
        assert found[name] == again[name] and found[name].loss == own
        assert found[name].loss_error == abs(own - loss) / loss
        error = np.linalg.norm(slope - gradient) / np.linalg.norm(gradient)
        assert found[name].gradient_error == pytest.approx(error, rel=1e-12)
    assert (MODEL.weight.data == before).all() and found.loss == loss and found.reference == "fp64"


def test_gradients_that_a_model_has_already_change_no_error():
    model = sf.nn.Linear(4, 3, rng=5)
    with sf.simulate("fp32"):
        sf.nn.mse_loss(model(X), 3 * Y).backward()
    before = model.weight.grad.copy()
    found = sf.compare(model, sf.nn.mse_loss, (X, Y), ["bf16-standard"])
    assert found["bf16-standard"] == sf.compare(MODEL, sf.nn.mse_loss, (X, Y), ["bf16-standard"])["bf16-standard"]
    assert found["bf16-standard"].gradient_error == sf.attribute(model, sf.nn.mse_loss, (X, Y), "bf16-standard").total
    assert (model.weight.grad == before).all()


def test_errors_are_those_that_attribute_gives_for_the_whole_policy():
    found = sf.compare(MODEL, sf.nn.mse_loss, (X, Y), {"mine": "bf16-standard"})
    assert found["mine"].gradient_error == sf.attribute(MODEL, sf.nn.mse_loss, (X, Y), "bf16-standard").total


def test_a_policy_that_a_model_cannot_have_has_the_reason_in_its_row():
    def loss(y, labels):
        if y.format == sf.E2M1:
            raise ValueError("not in E2M1")
        return sf.nn.mse_loss(y, labels)

    found = sf.compare(MODEL, loss, (X, Y), {"narrow": sf.Policy(compute=sf.E2M1), "wide": "fp32"})
    assert found["narrow"].refused == "not in E2M1" and math.isnan(found["narrow"].loss)
    assert "narrow (refused: not in E2M1)" in str(found) and found["wide"].loss_error < 1e-6


def test_gradients_that_are_not_finite_have_infinite_errors():
    found = sf.compare(MODEL, sf.nn.mse_loss, (X * 1e6, Y), ["fp16-standard"])
    assert found["fp16-standard"].gradient_error == math.inf == found["fp16-standard"].loss_error


@pytest.mark.parametrize("policies, message", [
    ("fp32", r"compare takes a list of policies, got 'fp32'; put it in brackets"),
    ([], "compare takes a list of policies, got none"),
    (["fp32", "fp32"], "Two policies are called 'fp32'; pass a dictionary"),
    (["fp31"], "Unknown policy 'fp31'"),
    ([5], "compare takes a simfloat.Policy or its name, got 5"),
])  # fmt: skip
def test_an_invalid_list_of_policies_is_refused(policies, message):
    with pytest.raises(ValueError, match=message):
        sf.compare(MODEL, sf.nn.mse_loss, (X, Y), policies)


def test_invalid_models_and_missing_policies_are_named():
    with pytest.raises(ValueError, match="compare takes a simfloat.nn.Module or a torch.nn.Module, got a int"):
        sf.compare(5, sf.nn.mse_loss, (X, Y), ["fp32"])
    with pytest.raises(ValueError, match="'fp8' was not compared. The compared policies are: a"):
        PolicyComparison((PolicyError("a", 1.0, 0.0, 0.0),), "fp64", 1.0)["fp8"]
