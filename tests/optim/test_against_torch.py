"""Optimizers under the policy fp64 against PyTorch's in float64."""

import inspect

import numpy as np
import pytest

import simfloat as sf

torch = pytest.importorskip("torch", reason="needs torch as an oracle")

STEPS = 8
SHAPES = ((), (3,), (4, 3), (3, 4), (2, 3, 2), (1, 1), (1, 5))

CASES = [
    ("SGD", {}),
    ("SGD", dict(momentum=0.9, weight_decay=0.1, nesterov=True)),
    ("SGD", dict(momentum=0.8, dampening=0.3, weight_decay=0.1, maximize=True)),
    ("Adam", {}),
    ("Adam", dict(betas=(0.5, 0.25), eps=1e-3, weight_decay=0.1)),
    ("Adam", dict(amsgrad=True, maximize=True, weight_decay=0.2)),
    ("Adam", dict(betas=(0.0, 0.0))),
    ("AdamW", {}),
    ("AdamW", dict(betas=(0.8, 0.95), weight_decay=0.3, amsgrad=True)),
    ("AdamW", dict(weight_decay=0.0, maximize=True)),
    ("Adagrad", {}),
    ("Adagrad", dict(lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-2, maximize=True)),
    ("RMSprop", {}),
    ("RMSprop", dict(alpha=0.3, eps=1e-2, weight_decay=0.1, momentum=0.9, centered=True)),
    ("RMSprop", dict(alpha=0.8, centered=True, maximize=True)),
    ("RMSprop", dict(alpha=0.0, momentum=0.5, weight_decay=0.2)),
    ("NAdam", {}),
    ("NAdam", dict(betas=(0.5, 0.25), eps=1e-3, weight_decay=0.1, momentum_decay=0.5)),
    ("NAdam", dict(betas=(0.8, 0.95), weight_decay=0.3, decoupled_weight_decay=True, maximize=True)),
    ("RAdam", {}),
    ("RAdam", dict(betas=(0.5, 0.9), eps=1e-3, weight_decay=0.1)),
    ("RAdam", dict(betas=(0.8, 0.7), weight_decay=0.3, decoupled_weight_decay=True, maximize=True)),
    ("Adamax", {}),
    ("Adamax", dict(betas=(0.4, 0.9), eps=1e-3, weight_decay=0.1, maximize=True)),
    ("Adadelta", {}),
    ("Adadelta", dict(rho=0.5, eps=1e-2, weight_decay=0.1, maximize=True)),
    ("Adafactor", {}),
    ("Adafactor", dict(beta2_decay=-0.5, eps=(1e-4, 1e-2), d=2.0, weight_decay=0.1, maximize=True)),
    ("Muon", {}),
    ("Muon", dict(nesterov=False, weight_decay=0.0, adjust_lr_fn="match_rms_adamw", eps=0.5)),
    ("Muon", dict(momentum=0.5, ns_coefficients=(2.0, -1.5, 0.5), ns_steps=3, adjust_lr_fn="original")),
]


def newton_schulz(g, coefficients, steps, eps):
    """PyTorch's iteration without its cast to bfloat16."""
    a, b, c = coefficients
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.shape[0] > g.shape[1] else x


@pytest.mark.parametrize("name, options", CASES)
def test_steps_are_torchs(name, options, monkeypatch):
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", newton_schulz)
    rng = np.random.default_rng(5)
    shapes = [shape for shape in SHAPES if name != "Muon" or len(shape) == 2]
    mine = [sf.Parameter(rng.standard_normal(shape)) for shape in shapes]
    theirs = [torch.tensor(p.data, requires_grad=True) for p in mine]
    options = {"lr": 0.05, **options} if options else {}
    ours, oracle = getattr(sf.optim, name)(mine, **options), getattr(torch.optim, name)(theirs, **options)
    with sf.simulate("fp64"):
        for _ in range(STEPS):
            for p, t in zip(mine, theirs, strict=True):
                p.grad = rng.standard_normal(p.shape) * 10.0 ** rng.integers(-3, 2)
                t.grad = torch.tensor(p.grad)
            ours.step()
            oracle.step()
    for p, t in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=1e-12, atol=1e-15)


# What is about how PyTorch runs, and not about what it computes.
RUNNING = {"foreach", "differentiable", "fused", "capturable"}


@pytest.mark.parametrize("name", dict(CASES))
def test_options_are_torchs_with_its_defaults_and_keyword_only_after_lr(name):
    left_out = RUNNING.union(getattr(sf.optim, name).marks)

    def defaults(kind):
        return {k: p.default for k, p in inspect.signature(kind).parameters.items() if k not in left_out}

    assert defaults(getattr(sf.optim, name)) == defaults(getattr(torch.optim, name))
    kinds = [p.kind for p in inspect.signature(getattr(sf.optim, name)).parameters.values()]
    assert set(kinds[:2]) == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    assert set(kinds[2:]) == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name, options", CASES)
def test_a_training_of_torchs_goes_on_here(name, options, monkeypatch):
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", newton_schulz)
    rng = np.random.default_rng(6)
    t = torch.tensor(rng.standard_normal((3, 2)), requires_grad=True)
    oracle = getattr(torch.optim, name)([t], lr=0.05, **options)
    gradients = rng.standard_normal((6, 3, 2))
    for gradient in gradients[:3]:
        t.grad = torch.tensor(gradient)
        oracle.step()
    p = sf.Parameter(t.detach())
    optimizer = getattr(sf.optim, name)([p])
    optimizer.load_state_dict(oracle.state_dict())
    with sf.simulate("fp64"):
        for gradient in gradients[3:]:
            t.grad, p.grad = torch.tensor(gradient), gradient
            oracle.step()
            optimizer.step()
    np.testing.assert_allclose(p.data, t.detach().numpy(), rtol=1e-12)


def test_a_state_of_torchs_adamw_is_none_of_adams():
    state = torch.optim.AdamW([torch.ones(2, requires_grad=True)]).state_dict()
    with pytest.raises(
        ValueError, match=r"The state is not Adam's: missing \[\], unknown \['decoupled_weight_decay'\]"
    ):
        sf.optim.Adam([sf.Parameter([1.0, 2.0])]).load_state_dict(state)
