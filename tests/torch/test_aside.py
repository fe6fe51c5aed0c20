"""An evaluation of a PyTorch model in `aside` changes no bit of a training, however it ends."""

import pytest

import simfloat as sf

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

torch.manual_seed(0)
X, LABELS = torch.randn(8, 4), torch.arange(8) % 3
POLICIES = {
    "fp8-delayed": sf.policies["fp8-delayed"],
    "stochastic": sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic"),
}


def trained(policy, evaluate):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), sf.Recorder()
    with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
        for _ in range(3):
            loss = F.cross_entropy(model(X), LABELS)
            evaluate(run, model)
            optimizer.zero_grad()
            loss.backward()
            evaluate(run, model)
            optimizer.step()
    return run.state, str(recorder.table()), model.state_dict()


def once(run, model):
    with run.aside(), torch.no_grad():
        F.cross_entropy(model(3 * X), LABELS)


def nested(run, model):
    with run.aside(), run.aside():
        F.cross_entropy(model(X), LABELS)


def interrupted(run, model):
    with pytest.raises(ValueError, match="addmm"), run.aside():
        model(X)
        model(X[:, :2])


@pytest.mark.parametrize("evaluate", [once, nested, interrupted])
@pytest.mark.parametrize("policy", list(POLICIES))
def test_an_evaluation_changes_no_bit_of_the_training(policy, evaluate):
    plain = trained(POLICIES[policy], lambda run, model: None)
    evaluated = trained(POLICIES[policy], evaluate)
    assert evaluated[:2] == plain[:2]
    assert all(torch.equal(numbers, evaluated[2][name]) for name, numbers in plain[2].items())


def test_operations_in_aside_are_simulated():
    layer = nn.Linear(4, 1)
    with sf.torch.simulate(layer, "bf16-standard") as run, run.aside():
        y = layer(X).detach()
    assert torch.equal(y, y.bfloat16().float())


def test_while_a_module_runs_it_is_refused():
    class Inner(nn.Module):
        def forward(self, x):
            with run.aside():
                return x + 0

    model = Inner()
    run = sf.torch.simulate(model, "fp32")
    with run, pytest.raises(ValueError, match="An evaluation runs aside between steps, not while the module"):
        model(X)
