"""Losses and models of both front ends share one set of formulas, and have the same bits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.compared import assert_functions_alike

RNG = np.random.default_rng(12)
X, Y = (2 * RNG.standard_normal((6, 4)).astype(np.float32) for _ in range(2))
TRUTH = RNG.uniform(size=(6, 4)).astype(np.float32)
WEIGHT, CLASSES = RNG.uniform(0.5, 2, 4).astype(np.float32), RNG.integers(0, 4, 6)
SOME = np.where(np.arange(6) % 3, CLASSES, -100)
STEPS = RNG.standard_normal((6, 3, 5)).astype(np.float32)
TARGETS, INPUTS, LENGTHS = (
    np.array([[1, 2], [3, 3], [4, 0]]),
    np.array([6, 2, 3]),
    np.array([2, 2, 1]),
)  # 3 3 needs three steps

BF16 = sf.policies["bf16-standard"]
POLICIES = {
    **{name: sf.policies[name] for name in ("fp32", "bf16-standard", "fp16-standard", "amp-bf16", "amp-fp16")},
    "roles": sf.Policy(
        compute=sf.E4M3, activations=sf.FP16, activation_gradients=sf.E5M2, weight_gradients=sf.BF16, weights=sf.FP32
    ),
    "fused": sf.Policy(compute=sf.BF16, fused=True),
    "widest": sf.Policy(compute=sf.BF16, activations="widest"),
    "operations of their own": BF16.override(operation=("exp", "log"), activations=sf.FP16).override(
        operation=("sum", "mean"), activations=sf.FP32
    ),
    "toward zero": sf.Policy(compute=sf.BF16, rounding=sf.toward_zero),
}


def on(lib, array):
    """An array as an operand of a package's."""
    return torch.from_numpy(array) if lib is F else array


LOSSES = {
    "mse": lambda lib, x, y: lib.mse_loss(x, y),
    "mse, sum": lambda lib, x, y: lib.mse_loss(x, y, reduction="sum"),
    "mse, none": lambda lib, x, y: lib.mse_loss(x, y, reduction="none"),
    "smooth l1": lambda lib, x, y: lib.smooth_l1_loss(x, y, beta=0.7),
    "smooth l1, none": lambda lib, x, y: lib.smooth_l1_loss(x, y, beta=1.3, reduction="none"),
    "huber": lambda lib, x, y: lib.huber_loss(x, y, delta=0.7),
    "huber, sum": lambda lib, x, y: lib.huber_loss(x, y, delta=1.3, reduction="sum"),
    "absolute": lambda lib, x, y: lib.l1_loss(x, y),
    "absolute, none": lambda lib, x, y: lib.l1_loss(x, y, reduction="none"),
    "bce of probabilities": lambda lib, x, y: lib.binary_cross_entropy(x.sigmoid(), on(lib, TRUTH)),
    "bce of probabilities, weighted": lambda lib, x, y: lib.binary_cross_entropy(
        x.sigmoid(), on(lib, TRUTH), on(lib, WEIGHT), reduction="sum"
    ),
    "divergence": lambda lib, x, y: lib.kl_div(x, on(lib, TRUTH), reduction="batchmean"),
    "divergence of logarithms": lambda lib, x, y: lib.kl_div(x, on(lib, TRUTH), reduction="sum", log_target=True),
    "l1": lambda lib, x, y: lib.smooth_l1_loss(x, y, beta=0.0),
    "bce": lambda lib, x, y: lib.binary_cross_entropy_with_logits(x, on(lib, TRUTH)),
    "bce, sum": lambda lib, x, y: lib.binary_cross_entropy_with_logits(x, y, reduction="sum"),
    "bce weighted": lambda lib, x, y: lib.binary_cross_entropy_with_logits(
        x, on(lib, TRUTH), weight=on(lib, WEIGHT), pos_weight=on(lib, WEIGHT)
    ),
    "cross-entropy": lambda lib, x, y: lib.cross_entropy(x, on(lib, CLASSES)),
    "cross-entropy of some": lambda lib, x, y: lib.cross_entropy(x, on(lib, SOME), weight=on(lib, WEIGHT)),
    "cross-entropy, none": lambda lib, x, y: lib.cross_entropy(x, on(lib, SOME), reduction="none"),
    "cross-entropy smoothed": lambda lib, x, y: lib.cross_entropy(x, on(lib, CLASSES), label_smoothing=0.1),
    "cross-entropy smoothed and weighted": lambda lib, x, y: lib.cross_entropy(
        x, on(lib, SOME), weight=on(lib, WEIGHT), label_smoothing=0.3
    ),
    "nll": lambda lib, x, y: lib.nll_loss(x, on(lib, SOME), reduction="sum"),
}


#: Those whose backward pass is one operation of PyTorch's too, so that a policy which fuses it rounds the same numbers.
FUSED = (
    "mse", "mse, sum", "mse, none", "smooth l1", "smooth l1, none", "nll", "huber", "huber, sum", "absolute",
    "absolute, none", "bce of probabilities", "bce of probabilities, weighted", "divergence",
)  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_has_the_same_bits_under_both_front_ends(name):
    policies = dict(POLICIES)
    if name not in FUSED:
        del policies["fused"]
    if "smoothed" in name:  # several operations in PyTorch, some of which lose the format of constants
        del policies["widest"]
    elif name != "l1":
        policies["apex-o2"] = sf.policies["apex-o2"]  # behind a model in FP16
    assert_functions_alike(policies, LOSSES[name], LOSSES[name], X, Y)


def test_an_override_of_all_that_cross_entropy_is_names_its_two_operations():
    policies = {
        role: sf.policies["fp32"].override(operation=["cross_entropy", "log_softmax"], **{role: sf.BF16})
        for role in ("activations", "gradients")
    }
    assert_functions_alike(policies, LOSSES["cross-entropy"], LOSSES["cross-entropy"], X, Y)


@pytest.mark.parametrize(("reduction", "zero_infinity"), [("mean", True), ("none", True), ("none", False)])
def test_ctc_has_the_same_bits_under_both_front_ends(reduction, zero_infinity):
    def loss(lib, x):
        given = (on(lib, each) for each in (TARGETS, INPUTS, LENGTHS))
        return lib.ctc_loss(x.log_softmax(-1), *given, reduction=reduction, zero_infinity=zero_infinity)

    assert_functions_alike({name: POLICIES[name] for name in POLICIES if name != "fused"}, loss, loss, STEPS)


ACTIVATIONS = {
    "gelu": (lambda x: F.gelu(x), lambda x: x.gelu()),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), sf.nn.GELU("tanh")),
    "softmax": (lambda x: x.softmax(-1), lambda x: x.softmax()),
    "log_softmax": (lambda x: x.log_softmax(0), lambda x: x.log_softmax(0)),
    "tanh": (torch.tanh, lambda x: x.tanh()),
    "sigmoid": (torch.sigmoid, lambda x: x.sigmoid()),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.3), sf.nn.LeakyReLU(0.3)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_has_the_same_bits_under_both_front_ends(name):
    theirs, ours = ACTIVATIONS[name]
    assert_functions_alike(POLICIES, lambda _, x: theirs(x), lambda _, x: ours(x), X)


class Theirs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.head = torch.nn.Linear(4, 7), torch.nn.Linear(7, 4)

    def forward(self, x):
        return self.head(F.gelu(self.first(x)))


class Ours(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = sf.nn.Linear(4, 7), sf.nn.Linear(7, 4)
        self.load_state_dict({key: value.numpy().copy() for key, value in Theirs().state_dict().items()})

    def forward(self, x):
        return self.head(self.first(x).gelu())


@pytest.mark.parametrize("policy", ["bf16-standard", "bf16-stochastic", "fp16-master", "fp8-hybrid", "mxfp8"])
def test_a_perceptron_with_gelu_and_cross_entropy_is_trained_to_the_same_bits(policy):
    theirs, ours = Theirs(), Ours()
    optimizers = torch.optim.SGD(theirs.parameters(), lr=0.3), sf.optim.SGD(list(ours.parameters()), lr=0.3)
    with sf.torch.simulate(theirs, policy, 5):
        for _ in range(3):
            optimizers[0].zero_grad()
            F.cross_entropy(theirs(torch.from_numpy(X)), torch.from_numpy(CLASSES)).backward()
            optimizers[0].step()
    with sf.simulate(policy, 5):
        for _ in range(3):
            optimizers[1].zero_grad()
            sf.nn.cross_entropy(ours(X), CLASSES).backward()
            optimizers[1].step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_bits(p.grad, q.grad.numpy())
        assert_bits(p.data, q.detach().numpy())
