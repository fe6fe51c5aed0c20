"""An evaluation of a PyTorch model in `aside` changes no bit of a training, however it ends."""

import pytest

import simfloat as sf

torch = pytest.importorskip("torch")
F, nn = torch.nn.functional, torch.nn

torch.manual_seed(0)
X, LABELS = torch.randn(8, 4), torch.arange(8) % 3


def trained(policy, evaluate):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))
    optimizer, recorder = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), sf.Recorder()
    with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
        for _ in range(2):
            loss = F.cross_entropy(model(X), LABELS)
            evaluate(run, model)
            optimizer.zero_grad()
            loss.backward()
            evaluate(run, model)
            optimizer.step()
    return run.state, str(recorder.table()), [p.tolist() for p in model.parameters()]


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


@pytest.mark.parametrize("policy", [
    sf.policies["fp8-delayed"], sf.Policy(compute=sf.BF16, rounding=sf.stochastic(), update="stochastic"),
], ids=["fp8-delayed", "stochastic"])  # fmt: skip
def test_an_evaluation_changes_no_bit_of_the_training(policy):
    plain = trained(policy, lambda run, model: None)
    for evaluate in (once, nested, interrupted):
        assert trained(policy, evaluate) == plain


def test_operations_in_aside_are_simulated_and_it_is_refused_while_a_module_runs():
    class Inner(nn.Linear):
        def forward(self, x):
            with run.aside():
                return super().forward(x)

    layer, model = nn.Linear(4, 1), Inner(4, 1)
    with sf.torch.simulate(layer, "bf16-standard") as run, run.aside():
        y = layer(X).detach()
    assert torch.equal(y, y.bfloat16().float())
    run = sf.torch.simulate(model, "fp32")
    with run, pytest.raises(ValueError, match="An evaluation runs aside between steps, not while the module"):
        model(X)
