"""More than twenty planted faults are found in both front ends; ten healthy models have none under five policies."""

from functools import partial

import numpy as np
import pytest

import simfloat as sf

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((16, 4)).astype(np.float32), RNG.standard_normal((16, 1)).astype(np.float32)
LABELS, IMAGES = RNG.integers(0, 3, 16), RNG.standard_normal((4, 1, 6, 6)).astype(np.float32)
TOKENS, LEAST = RNG.standard_normal((2, 5, 8)).astype(np.float32), float(np.finfo(np.float32).min)
LONG = (1 + 0.1 * np.abs(RNG.standard_normal((4, 4096)))).astype(np.float32)


class Ours:
    """This package's names."""

    nn, optim = sf.nn, sf.optim
    mse, cross_entropy = staticmethod(sf.nn.mse_loss), staticmethod(sf.nn.cross_entropy)

    def layer(self, kind, *sizes, **options):
        return getattr(sf.nn, kind)(*sizes, rng=len(sizes), **options)

    def array(self, x):
        return x

    def mask(self, x):
        return x

    def constant(self, x):
        return sf.Tensor(x)

    def tensor(self, x):
        return sf.Tensor(x)

    def where(self, condition, a, b):
        return sf.where(condition, a, b)

    def set(self, parameter, factor=0.0, value=0.0):
        parameter.data = parameter.data * np.float32(factor) + np.float32(value)

    def softmax(self, x):
        return x.softmax(-1)

    def scaler(self, scale):
        return sf.optim.DynamicLossScale(scale)

    swapped = staticmethod(lambda x: x.swapaxes(-1, -2))


class Theirs(Ours):
    """PyTorch's."""

    nn, optim = torch.nn, torch.optim
    mse = staticmethod(torch.nn.functional.mse_loss)
    cross_entropy = staticmethod(torch.nn.functional.cross_entropy)

    def layer(self, kind, *sizes, **options):
        torch.manual_seed(len(sizes))
        return getattr(torch.nn, kind)(*sizes, **options)

    def array(self, x):
        return torch.from_numpy(np.array(x))

    def mask(self, x):
        return torch.from_numpy(x)

    def constant(self, x):
        return torch.from_numpy(x)

    def tensor(self, x):
        return x

    def where(self, condition, a, b):
        return torch.where(torch.from_numpy(condition), a, b)

    def set(self, parameter, factor=0.0, value=0.0):
        parameter.data = parameter.data * factor + value

    def scaler(self, scale):
        return torch.amp.GradScaler("cpu", init_scale=scale)

    swapped = staticmethod(lambda x: x.transpose(-1, -2))


FRONTS = {"simfloat": Ours(), "torch": Theirs()}


def mlp(f, outputs=1, factor=1.0):
    head = f.layer("Linear", 8, outputs)
    f.set(head.weight, factor)
    return f.nn.Sequential(f.layer("Linear", 4, 8), f.nn.ReLU(), head)


def model_of(f, forward, **layers):
    """A model with these layers and a forward function of itself and x."""

    class Model(f.nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, x):
            return forward(self, x)

    return Model()


def attention(f, mask=0.0, factor=1.0, norm=True):
    """A block of attention with an additive mask (5, 5)."""
    added = f.mask(np.broadcast_to(np.float32(mask), (5, 5)).copy())

    def forward(model, x):
        q, k, v = model.q(x), model.k(x), model.v(x)
        x = x + f.softmax(q @ f.swapped(k) / 8**0.5 + added) @ v
        return model.head(model.norm(x) if norm else x).mean(1)

    layers = {name: f.layer("Linear", 8, 8) for name in ("q", "k", "v")}
    for name in ("q", "k"):
        f.set(layers[name].weight, factor)
    return model_of(f, forward, **layers, norm=f.nn.LayerNorm(8), head=f.layer("Linear", 8, 1))


def causal(value, rows=()):
    """A mask that hides what follows, and all of these rows."""
    mask = np.triu(np.full((5, 5), value, np.float32), 1)
    mask[list(rows)] = value
    return mask


def squared(f, factor=1.0):
    return lambda output, y: f.mse(output, y) * factor


def log_of_softmax(f):
    return lambda output, y: -f.softmax(output).log().mean()


def shares(f):
    """The sum of each row's shares of its own total."""

    def forward(model, x):
        small = f.tensor(x) * 1e-9
        return model.head(small / small.sum(-1, keepdims=True))

    return model_of(f, forward, head=f.layer("Linear", 4, 1))


def constant_rows(f):
    norm = f.nn.LayerNorm(4, eps=1e-12)
    return f.nn.Sequential(norm, f.layer("Linear", 4, 1))


def long_sum(f):
    layer = f.layer("Linear", 4096, 1)
    f.set(layer.weight, 0.0, 0.5)
    return layer


def exponential(f):
    return model_of(f, lambda m, x: (m.inner(x) * 0 + 20).exp() * 1e-9 + m.head(x), inner=f.layer("Linear", 4, 1),
                    head=f.layer("Linear", 4, 1))  # fmt: skip


def buckets(f, factor):
    """T5's position buckets, whose logarithm of 0 nobody uses, in front of a layer that may overflow."""
    distance = np.arange(5, dtype=np.float32)
    far = (distance >= 2)[None, :, None]

    def forward(model, x):
        d = f.constant(distance[None, :, None].copy())
        return model.wo(model.inner(x) + f.where(far, 2 + (d / 2).log() * 0.1, d)).mean(1)

    wo = f.layer("Linear", 8, 1)
    f.set(wo.weight, factor)
    return model_of(f, forward, inner=f.layer("Linear", 8, 8), wo=wo)


def many_products(f):
    """A loss whose last product alone underflows, of several hundred at its place."""

    def loss(output, y):
        total = f.mse(output, y)
        return (total + ((output * 0.5) * output).mean()) * 1e-9

    return loss


def heavy(f, value):
    model = mlp(f)
    f.set(model[2].weight, 0.0, value)
    return model


def images(f):
    return f.nn.Sequential(f.layer("Conv2d", 1, 2, 3), f.nn.BatchNorm2d(2), f.nn.ReLU(), f.nn.Flatten(),
                           f.layer("Linear", 32, 1))  # fmt: skip


def recurrent(f):
    return model_of(f, lambda m, x: m.head(m.cell(x)[0][-1]), cell=f.layer("LSTM", 8, 8), head=f.layer("Linear", 8, 1))


def sgd(f, model, **options):
    return f.optim.SGD(model.parameters(), **{"lr": 0.1} | options)


def adamw(f, model, **options):
    return f.optim.AdamW(model.parameters(), **{"lr": 1e-3} | options)


FP16_SUMS = sf.Policy(compute=sf.FP16, activations=sf.FP32, weights=sf.FP32, accumulate=sf.FP16)
FP16_MOMENTS = sf.Policy(compute=sf.FP32, optimizer_state=sf.FP16)
BF16_MOMENTS = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.BF16)
SATURATING = sf.Policy(compute=sf.scaled(sf.E4M3, sf.delayed(margin=-8)), activations=sf.BF16, weights=sf.FP32)
CLAMPED = sf.Policy(compute=sf.cast(sf.E4M3, sf.nearest_even.saturating()), activations=sf.BF16, weights=sf.FP32)
NAN_X = np.where(np.arange(64).reshape(16, 4) == 13, np.nan, X).astype(np.float32)

#: Name: model, loss, batch, policy, optimizer, and the kinds one of which is found, its phase, a part of its cause, and
#: the role that mends it.
FAULTS = {
    "overflow in attention logits": (
        partial(attention, factor=500.0), squared, (100 * TOKENS, Y[:2]), "fp16-master", None,
        ({"infinity", "NaN"}, "forward", "overflow", "activations")),
    "overflow in the head": (
        partial(mlp, outputs=3, factor=1e5), lambda f: f.cross_entropy, (X, LABELS), "fp16-master", None,
        ({"infinity"}, "forward", "overflow", "activations")),
    "overflow of an exponential": (
        exponential, squared, (X, Y), "fp16-master", None, ({"infinity"}, "forward", "overflow", "activations")),
    "overflow of a variance": (
        images, squared, (3000 * IMAGES, Y[:4]), "fp16-master", None,
        ({"infinity"}, "forward", "overflow", "activations")),
    "overflow inside a sum": (
        long_sum, lambda f: lambda o, y: f.mse(o / 4096, y), (200 * LONG, Y[:4]), FP16_SUMS, None,
        ({"infinity"}, "forward", "overflow inside a sum", "accumulate")),
    "eps of Adam underflows": (
        mlp, squared, (X, Y), "fp16-standard", adamw, ({"infinity", "NaN"}, "update", "underflowed", "weights")),
    "eps of a layer norm underflows": (
        constant_rows, squared, (np.ones_like(X), Y), "fp16-master", None,
        ({"infinity", "NaN"}, "forward", "underflowed", "activations")),
    "no loss scale": (
        mlp, partial(squared, factor=1e-7), (X, Y), "fp16-master", partial(sgd, lr=1e5),
        ({"underflow"}, "backward", "underflow", "activation_gradients")),
    "one product of hundreds makes all gradients zero": (
        mlp, many_products, (X, Y), "fp16-master", None,
        ({"underflow"}, "backward", "underflow", "activation_gradients")),
    "a row that a mask of -1e9 hides": (
        partial(attention, mask=causal(-1e9, [2])), squared, (TOKENS, Y[:2]), "fp16-master", None,
        ({"infinity", "NaN"}, "forward", "", "activations")),
    "a row that a mask of finfo.min hides": (
        partial(attention, mask=causal(LEAST, [2])), squared, (TOKENS, Y[:2]), "fp16-master", None,
        ({"infinity", "NaN"}, "forward", "", "activations")),
    "log(0) of a probability": (
        partial(mlp, outputs=3, factor=40.0), log_of_softmax, (X, LABELS), "fp16-master", None,
        ({"infinity"}, "forward", "log(0)", "activations")),
    "0 / 0 of tiny totals": (
        shares, squared, (np.abs(X), Y), "fp16-master", None, ({"NaN"}, "forward", "0 / 0", "activations")),
    "weight decay lost beside lost updates": (
        mlp, squared, (X, Y), "bf16-standard", partial(adamw, lr=1e-2, weight_decay=1e-3),
        ({"weight decay lost"}, "update", "weight decay lost", "weights")),
    "weight decay lost under Kahan's additions": (
        mlp, squared, (X, Y), "bf16-kahan",
        lambda f, m: f.optim.NAdam(m.parameters(), lr=1e-2, weight_decay=1e-3, decoupled_weight_decay=True),
        ({"weight decay lost"}, "update", "weight decay lost", "weights")),
    "weight decay lost under stochastic additions": (
        mlp, squared, (X, Y), "bf16-stochastic",
        lambda f, m: f.optim.NAdam(m.parameters(), lr=1e-2, weight_decay=1e-3, decoupled_weight_decay=True),
        ({"weight decay lost"}, "update", "weight decay lost", "weights")),
    "lost updates": (
        mlp, squared, (X, Y), "bf16-standard", partial(sgd, lr=1e-4),
        ({"lost updates"}, "update", "lost updates", "weights")),
    "swamped sums": (
        long_sum, lambda f: lambda o, y: f.mse(o / 4096, y), (LONG, Y[:4]), FP16_SUMS, None,
        ({"swamped sums"}, "forward", "swamped sums", "accumulate")),
    "weights beyond 65504": (
        partial(heavy, value=1e5), partial(squared, factor=1e-9), (1e-4 * X, Y), "fp16-standard", None,
        ({"infinity"}, "update", "65504", "weights")),
    "weights that grow beyond 65504": (
        partial(heavy, value=6e4), squared, (1e-4 * X, Y), "fp16-standard", partial(sgd, lr=1e5),
        ({"infinity"}, "update", "overflow", "weights")),
    "operands beyond 65504": (
        partial(heavy, value=1e5), partial(squared, factor=1e-9), (1e-4 * X, Y), "amp-fp16", None,
        ({"infinity"}, "forward", "overflow", "compute_weights")),
    "second moments that underflow": (
        mlp, partial(squared, factor=1e-4), (X, Y), FP16_MOMENTS, partial(adamw, weight_decay=0.0),
        ({"underflow"}, "update", "underflow", "optimizer_state")),
    "second moments that never decay": (
        mlp, squared, (X, Y), BF16_MOMENTS, partial(adamw, weight_decay=0.0),
        ({"stalled moments"}, "update", "stalled moments", "optimizer_state")),
    "NaN in data": (mlp, squared, (NAN_X, Y), "fp16-master", sgd, ({"NaN in data"}, "", "data", "")),
    "a scale that saturates": (
        mlp, squared, (X, Y), SATURATING, None, ({"saturation"}, "forward", "saturation", "compute")),
    "operands that stop at 448": (
        mlp, squared, (1e5 * X, Y), CLAMPED, None, ({"saturation"}, "forward", "saturation", "compute")),
    "an overflow behind an infinity that the reference has too": (
        partial(buckets, factor=2e5), partial(squared, factor=1e-12), (TOKENS, Y[:2]), "fp16-master", None,
        ({"infinity"}, "forward", "overflow", "activations")),
    "an overflow before the reference diverges": (
        partial(mlp, outputs=1, factor=1e5), squared, (X, Y), "fp16-master", partial(sgd, lr=1e20),
        ({"infinity"}, "forward", "overflow", "activations")),
}  # fmt: skip


def diagnosed(f, model, loss, batch, policy, optimizer, steps=2, scaler=None):
    model = model(f)
    made = None if optimizer is None else optimizer(f, model)
    x, y = map(f.array, batch)
    return sf.diagnose(model, loss(f), [(x, y)], policy, optimizer=made, steps=steps, scaler=scaler)


#: Faults that test_diagnose.py plants in this package's models.
PLANTED_ELSEWHERE = {
    "eps of Adam underflows", "no loss scale", "lost updates", "overflow in the head", "overflow of a variance",
    "swamped sums", "a scale that saturates", "second moments that never decay",
}  # fmt: skip


@pytest.mark.parametrize(
    "name, front", [(n, f) for n in FAULTS for f in FRONTS if f == "torch" or n not in PLANTED_ELSEWHERE]
)
def test_a_planted_fault_is_found(name, front):
    *given, (kinds, phase, cause, role) = FAULTS[name]
    steps = 6 if "grow" in name or "diverges" in name else 3 if "saturates" in name else 2
    found = diagnosed(FRONTS[front], *given, steps=steps)
    matching = [
        fault for fault in found
        if fault.kind in kinds and fault.phase == phase and cause in fault.cause and fault.role == role
    ]  # fmt: skip
    assert matching, f"{found!r}"
    assert all(fault.verified or not fault.remedies for fault in matching), f"{found!r}"


def with_norm(f):
    return f.nn.Sequential(f.layer("Linear", 4, 8), f.nn.LayerNorm(8), f.nn.ReLU(), f.layer("Linear", 8, 1))


#: Name: model, loss, batch, optimizer.
HEALTHY = {
    "MLP": (mlp, squared, (X, Y), partial(sgd, lr=0.05, momentum=0.9)),
    "MLP with AdamW": (partial(mlp, outputs=3), lambda f: f.cross_entropy, (X, LABELS), partial(adamw, lr=1e-2)),
    "MLP with a layer norm": (with_norm, squared, (X, Y), partial(adamw, lr=1e-2)),
    "CNN": (images, squared, (IMAGES, Y[:4]), partial(adamw, lr=1e-2)),
    "RNN": (recurrent, squared, (TOKENS, Y[:5]), partial(adamw, lr=1e-2)),
    "transformer": (attention, squared, (TOKENS, Y[:2]), partial(adamw, lr=1e-2)),
    "transformer with a mask of -inf": (
        partial(attention, mask=causal(-np.inf)), squared, (TOKENS, Y[:2]), partial(adamw, lr=1e-2)),
    "transformer with a mask of -1e9": (
        partial(attention, mask=causal(-1e9)), squared, (TOKENS, Y[:2]), partial(adamw, lr=1e-2)),
    "transformer with a mask of finfo.min": (
        partial(attention, mask=causal(LEAST)), squared, (TOKENS, Y[:2]), partial(adamw, lr=1e-2)),
    "position buckets": (partial(buckets, factor=1.0), squared, (TOKENS, Y[:2]), partial(adamw, lr=1e-2)),
}  # fmt: skip


#: A mask of -1e9 or finfo.min overflows to -inf where activations are in FP16.
POLICIES = ["fp32", "bf16-fp32-weights", "amp-bf16", "amp-fp16"]

#: Every model under two of these policies, in one front end and the other by turns.
RUNS = [
    (name, POLICIES[j], [*FRONTS][(i // 2 + j // 2) % 2]) for i, name in enumerate(HEALTHY) for j in (i % 2, i % 2 + 2)
]


@pytest.mark.parametrize("name, policy, front", [*RUNS, *((name, "fp16-master", "simfloat") for name in HEALTHY)])
def test_a_healthy_model_raises_no_alarm(name, policy, front):
    f, (model, loss, batch, optimizer) = FRONTS[front], HEALTHY[name]
    scaler = f.scaler(2.0**14) if "fp16" in policy else None
    if policy == "bf16-fp32-weights":  # whose second moments are in BF16, where they never decay
        optimizer = partial(sgd, lr=0.02, momentum=0.9)
    found = diagnosed(f, model, loss, batch, policy, optimizer, steps=2, scaler=scaler)
    assert [fault.kind for fault in found] == [], f"{found!r}"


@pytest.mark.parametrize("front", FRONTS)
def test_steps_that_a_loss_scale_skips_are_reported_as_skipped_and_never_as_underflow(front):
    f = FRONTS[front]
    found = diagnosed(f, mlp, squared, (X, Y), "amp-fp16", sgd, steps=8, scaler=f.scaler(2.0**18))
    assert 0 < found.skipped < 8 and list(found) == [] and "inf%" not in repr(found)
    assert f"The loss scale skipped {found.skipped} of 8 steps." in repr(found)


def test_a_diagnosis_is_iterable_and_each_fault_has_its_cause():
    *given, _ = FAULTS["eps of Adam underflows"]
    found = diagnosed(FRONTS["simfloat"], *given)
    (first, *_) = found
    assert first == found.first and tuple(found) == found.faults
    assert (first.phase, first.operation, first.step, first.operands) == ("update", "divide", 0, "a division by 0")
    assert "underflowed" in first.cause and first.override == "policy.override('*', weights=sf.FP32)"
    assert set(found.losses) == {"policy", "mended", "reference"}


def test_remedies_are_called_verified_only_if_the_gradient_then_agrees(monkeypatch):
    *given, _ = FAULTS["an overflow behind an infinity that the reference has too"]
    monkeypatch.setattr("simfloat.analysis.diagnosis.gradients.GradientErrors.agrees", lambda *_: False)
    found = diagnosed(FRONTS["simfloat"], *given)
    assert found.faults and not any(fault.verified for fault in found)
    assert found.policy == sf.policies["fp16-master"]
