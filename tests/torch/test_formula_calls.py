"""Functions, norms, losses and steps of attention run as one call if nothing is watched, with the same bits."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import simfloat as sf
from simfloat.torch import quick_formulas
from tests.torch.compared import Function, SingleOperations, assert_alike, three_ways

POLICIES = {
    "formats apart": sf.Policy(compute=sf.BF16, activations=sf.Format(3, 2), activation_gradients=sf.Format(4, 3)),
    "upwards": sf.Policy(compute=sf.Format(5, 3), rounding=sf.toward_positive),
    "fused": sf.Policy(compute=sf.BF16, activations=sf.BF16, activation_gradients=sf.BF16, fused=True),
}

CLASSES = torch.tensor([0, 5, 2, -100, 3, 3, 1, 4])


def penalty(x, loss=lambda x: torch.relu(x).exp()):
    """A loss with the square of the gradient, for which the backward pass is recorded."""
    y = loss(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return y + g * g


def entropy(x, classes=CLASSES, **options):
    """The cross-entropy of rows."""
    return functional.cross_entropy(x, classes, **options)


LABELS = (torch.arange(48.0).reshape(8, 6) % 5 / 4).round()


def logits(x, **options):
    """The binary cross-entropy of logits."""
    return functional.binary_cross_entropy_with_logits(x, LABELS, **options)


def again(function, x, use_reentrant=False):
    return checkpoint(function, x, use_reentrant=use_reentrant)


RELUS = {
    "numbers that a format lacks": lambda x: torch.relu(x),
    "a module": lambda x: nn.ReLU()(x * 1.0) * x,
    "what is read twice": lambda x: (y := torch.relu(x)) + torch.relu(y) * y,
    "a gradient without memory of its own": lambda x: torch.relu(x).sum(),
    "a gradient in other memory": lambda x: torch.relu(x).t() * torch.ones(6, 8),
    "columns that lie one behind the other": lambda x: torch.relu(x.t()).t(),
    "a part that runs again": lambda x: again(lambda x: torch.relu(x.exp() * x), x),
    "a backward pass inside of one": lambda x: again(torch.relu, x, True),
    "gradients of gradients": penalty,
    "an operand by its name": lambda x: torch.relu(input=x),
    "in place": lambda x: torch.relu_(x * 2),
}
LOSSES = {
    "a mean": entropy,
    "a sum": lambda x: entropy(x, reduction="sum"),
    "a loss of each row": lambda x: entropy(x, reduction="none") * torch.arange(8),
    "another class that counts for nothing": lambda x: entropy(x, CLASSES % 6, ignore_index=3),
    "a module of rows that are made": lambda x: nn.CrossEntropyLoss()(x * 2 + x, CLASSES.abs() % 6),
    "rows that are read twice": lambda x: entropy(x) + x.square().sum() + entropy(x, reduction="sum"),
    "gradients of gradients of a loss": lambda x: penalty(x, lambda x: entropy(x * x)),
    "losses in a backward pass inside of one": lambda x: again(entropy, x, True),
    "losses that are computed again": lambda x: again(lambda x: entropy(x.exp()), x),
    "rows that lie one behind the other in columns": lambda x: entropy(x.t(), CLASSES[1:3].repeat(3)),
    "weights of classes": lambda x: entropy(x, weight=torch.linspace(0.5, 2, 6)),
    "smoothed classes": lambda x: entropy(x, label_smoothing=0.1),
    "classes of pixels": lambda x: entropy(x[None], CLASSES[None, :6] % 8),
    "probabilities of classes": lambda x: entropy(x, torch.full((8, 6), 1 / 6)),
    "one row": lambda x: entropy(x[1], CLASSES[1]),
    "logits of two classes": lambda x: logits(x) + logits(x * 2, reduction="sum") * logits(x, reduction="none"),
    "gradients of gradients of logits": lambda x: penalty(x, lambda x: logits(x * x) + logits(x, reduction="none")),
    "logits with weights": lambda x: entropy(x) + logits(x, weight=LABELS + 0.5) * logits(x, pos_weight=LABELS[0] * 3),
}
CASES = RELUS | LOSSES
LEFT_TO_OPERATIONS = (
    "columns that lie one behind the other", "a part that runs again", "losses that are computed again",
    "rows that lie one behind the other in columns",
)  # fmt: skip
#: Losses that have a row which is no composite, so that a policy may not round it once.
WITH_POWERS = ("rows that are read twice",)


class Calls(nn.Module):
    """A function with a layer norm and a linear layer, which it may use twice."""

    def __init__(self, function):
        super().__init__()
        self.function, self.norm, self.linear = function, nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        return self.function(self, x)


def heads(x):
    """Two heads of width 3, of two sequences."""
    return x.view(2, 4, 2, 3).transpose(1, 2)


def attention(q, k, v, **options):
    return functional.scaled_dot_product_attention(q, k, v, **options).flatten(1)


def attended(x, y, **options):
    return attention(heads(x), heads(x * 0.5), heads(y), **options)


def in_parts(x):
    """Write to a part of a tensor, which is a view."""
    y = x * 2
    torch.relu_(y[:4])
    return y


LOWER = torch.ones(4, 4, dtype=torch.bool).tril()
LOWER_ROWS = torch.ones(8, 6).tril() / 3
STORED = torch.nn.functional.silu  # as a module stores it before the block
MODELS = {
    "activations": lambda m, x: (
        STORED(x) + functional.elu(x, 0.5) * functional.leaky_relu(x.exp() - 1, 0.2) + functional.softplus(x, 2)
    ),
    "hard activations": lambda m, x: functional.hardswish(m.linear(x)) * nn.Hardsigmoid()(x.detach()) - nn.GELU()(x),
    "softmax": lambda m, x: torch.softmax(m.linear(x), 1) + x.log_softmax(0) + functional.softmin(x, -1),
    "losses by other curves": lambda m, x: (
        functional.smooth_l1_loss(m.linear(x), LOWER_ROWS, beta=0.5) + nn.HuberLoss(delta=0.7)(x, LOWER_ROWS)
    ),
    "norms of batches": lambda m, x: (
        functional.batch_norm(m.linear(x), torch.zeros(6), torch.ones(6), m.norm.weight, m.norm.bias, True)
        + functional.batch_norm(x.view(2, 4, 6), LOWER[0] / 3, LOWER[0] + 1.0, eps=0.1).view(8, 6)
        + functional.instance_norm(x.view(2, 4, 6)).view(8, 6)
    ),
    "norms of groups": lambda m, x: (
        functional.group_norm(m.linear(x), 2, m.norm.weight, m.norm.bias)
        + functional.group_norm(x.view(2, 4, 6), 2, m.norm.weight[:4] * 2, eps=0.1).view(8, 6)
        * functional.group_norm(x.view(4, 3, 2, 2), 1).view(8, 6)
    ),
    "powers": lambda m, x: m.linear(x) ** 2 + x.square() * x.pow(2).mean(-1, keepdim=True),
    "functions": lambda m, x: torch.tanh(x) * torch.sigmoid(x) + functional.gelu(m.linear(x)) - nn.Tanh()(x),
    "a norm that is used twice": lambda m, x: m.norm(m.linear(m.norm(x))) + x,
    "norms of other shapes": lambda m, x: (
        functional.layer_norm(x, (8, 6)) + functional.layer_norm(x, (6,), m.norm.weight)
    ),
    "a norm with a computed weight": lambda m, x: functional.layer_norm(m.norm(x), (6,), m.norm.weight * 2),
    "squares": lambda m, x: functional.mse_loss(m.linear(x), CLASSES[:, None].expand(8, 6).float().contiguous()),
    "squares of two": lambda m, x: functional.mse_loss(m.norm(x), x, reduction="sum"),
    "attention to what came before": lambda m, x: attended(x, m.linear(x), is_causal=True),
    "attention by truth values": lambda m, x: attended(m.norm(x), m.linear(x), attn_mask=LOWER),
    "attention by numbers": lambda m, x: attended(x, m.linear(x), attn_mask=LOWER.float() / 3, scale=0.3),
    "attention of groups of heads": lambda m, x: (
        attention(heads(m.linear(x)), heads(x)[:, :1], heads(x)[:, 1:], enable_gqa=True, is_causal=True)
        + attention(heads(x), heads(x), heads(x), enable_gqa=True)
    ),
    "hardtanh": lambda m, x: functional.hardtanh(m.linear(x)) + nn.ReLU6()(x * 4) * nn.Hardtanh(-0.3, 0.7)(x),
    "in place, read twice": lambda m, x: (y := nn.ReLU(inplace=True)(m.linear(x))) * y + y,
    "in place, on what an operation before reads": lambda m, x: torch.relu_(m.linear(x).neg() * x.exp()),
    "in place, on a view": lambda m, x: torch.relu_((x * 1).view(6, 8)).view(8, 6),
    "in place, on a part": lambda m, x: in_parts(x),
    "in place, without gradients": lambda m, x: x * torch.relu_(x.detach().clone()),
    "attention of one tensor": lambda m, x: attention(*[heads(x)] * 3) + x.reshape(2, 24),
}


@pytest.fixture
def calls(monkeypatch):
    """The results of rows as one call."""
    made, apply = [], quick_formulas.apply_formula
    monkeypatch.setattr(quick_formulas, "apply_formula", lambda *given: made.append(apply(*given)) or made[-1])
    return made


def operand(case):
    """Return the operand; for functions of the first table it contains zeros, NaN and numbers that underflow."""
    if case in MODELS:
        return torch.linspace(-2, 3, 48).reshape(8, 6).sin().requires_grad_()
    x = torch.linspace(-4, 4, 48).reshape(8, 6)
    x[0, :4] = torch.tensor([1e-9, -0.0, 0.0, torch.nan])
    return x.requires_grad_()


def trained(case, policy, observer, order):
    """The result, and gradients that two backward passes add; or gradients of second order."""
    torch.manual_seed(0)
    model, x = Calls(MODELS[case] if case in MODELS else lambda _, x: CASES[case](x)), operand(case)
    with sf.torch.simulate(model, policy, observer=observer):
        for _ in range(3 - order):
            y = model(x)
            loss = y.square().sum() if case in MODELS else y.sum()
            if order == 2:
                gradients = torch.autograd.grad(loss, [x, *model.parameters()], create_graph=True, allow_unused=True)
                loss = sum(g.square().sum() for g in gradients if g is not None)
            loss.backward()
    return [y.detach(), *(p.grad for p in (x, *model.parameters()))]


@pytest.mark.parametrize("number, case", list(enumerate(CASES | MODELS)))
def test_bits_and_counts_are_those_of_single_operations(number, case, calls):
    others, orders = ("upwards", "fused"), (1, 1)
    if case in MODELS:
        others, orders = ("upwards", "upwards"), ((1, 2), (2, 1))[number % 2]
    for policy, order in zip(("formats apart", others[number % 2]), orders, strict=True):
        counts = [len(calls)]

        def run(observer, policy=policy, order=order, counts=counts):
            results = trained(case, POLICIES[policy], observer, order)
            counts.append(len(calls))
            return results

        assert_alike(*three_ways(run))
        is_left = case in LEFT_TO_OPERATIONS or (policy == "fused" and case in LOSSES and case not in WITH_POWERS)
        first, second, third = np.diff(counts)
        assert bool(first) != is_left and third == 0 and (case in MODELS or second == first)


def test_third_derivatives_add_their_shares_in_the_order_of_single_operations():
    def third(function):
        torch.manual_seed(0)
        x = torch.randn(8, 6).requires_grad_()
        model = Function(function)
        with sf.torch.simulate(model, POLICIES["upwards"]):
            loss = model(x).square().sum()
            for _ in range(2):
                (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
                loss = gradient.square().sum()
            loss.backward()
        return gradient.detach(), x.grad

    for function in (lambda x: functional.group_norm(x, 2), functional.silu):
        with SingleOperations():
            single = third(function)
        assert_alike(third(function), single)


@pytest.mark.parametrize("case, operations", [
    ("numbers that a format lacks", {("aten.relu.default", "rule")}),
    ("in place", {("aten.relu_.default", "rule")}),
    ("a mean", {("aten._log_softmax.default", "decomposition"), ("aten.nll_loss_forward.default", "decomposition")}),
])  # fmt: skip
def test_the_table_has_the_operations_either_way(case, operations):
    for mode in (nullcontext, SingleOperations):
        with mode(), sf.torch.simulate(nn.Identity(), POLICIES["formats apart"]) as run:
            y = CASES[case](torch.ones(8, 6, requires_grad=True))
        assert (type(y.grad_fn).__name__ == "FormulaNodeBackward") == (mode is nullcontext)
        assert {(str(func), how) for func, how, _ in run.met} >= operations


@pytest.mark.parametrize("mode", [nullcontext, SingleOperations])
def test_a_backward_pass_with_a_modified_array_and_a_leaf_in_place_are_refused(mode):
    x, classes = torch.ones(8, 6, requires_grad=True), CLASSES % 6
    with mode(), sf.torch.simulate(nn.Identity(), "bf16-standard"):
        y, z, loss, read = torch.relu(x), torch.relu_(x * 1), entropy(x, classes), torch.sigmoid(x)
        torch.relu_(read)
        for each in (y, z, classes):
            each += 1
        for each in (y, z, loss, read):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                each.sum().backward()
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            torch.relu_(x)
    assert x.eq(1).all()


def test_classes_that_do_not_fit_are_refused_in_the_same_words():
    for classes in (CLASSES - 1, CLASSES[:3], CLASSES.float()):
        said = []
        for mode in (nullcontext, SingleOperations):
            with mode(), sf.torch.simulate(nn.Identity(), "bf16-standard"), pytest.raises(ValueError) as error:
                entropy(torch.ones(8, 6), classes)
            said.append(str(error.value))
        assert said[0] == said[1]


@pytest.mark.parametrize("function", [
    torch.relu, torch.tanh, functional.silu, functional.gelu, functional.elu, lambda x: torch.softmax(x, 1),
    torch.square, lambda x: functional.group_norm(x * x, 1),
    lambda x: functional.binary_cross_entropy_with_logits(x, torch.ones(3, 4), reduction="none"),
])  # fmt: skip
def test_a_backward_pass_after_the_block_is_pytorchs_own_and_in_another_block_is_refused(function):
    numbers, g = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(0.1, 0.9, 12).reshape(3, 4)
    gradients = []
    for policy in (None, "fp32", "fp32"):
        x = numbers.clone().requires_grad_()
        with nullcontext() if policy is None else sf.torch.simulate(nn.Linear(2, 2), policy):
            y = function(x)
        if len(gradients) < 2:
            y.backward(g)
            gradients.append(x.grad)
    with sf.torch.simulate(nn.Linear(2, 2), "fp32"), pytest.raises(ValueError, match="ran outside the block"):
        y.backward(g)
    assert function is not torch.relu or torch.equal(*gradients)
    assert torch.allclose(*gradients, rtol=1e-5)
