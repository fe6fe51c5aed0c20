"""Fused composites: inner arithmetic in the format of `reduce`, one rounding of the result and of each gradient."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.nn.losses import xlogy
from tests.bits import assert_bits

RNG = np.random.default_rng(4)
X, G = sf.round(RNG.standard_normal((3, 6)) * 3, sf.BF16), sf.round(RNG.standard_normal((3, 6)), sf.BF16)
STANDARD = sf.policies["bf16-standard"]


def scalar_softmax(row, gradient, format):
    """The softmax of a row, in BF16, and its gradient y * g - y * sum(y * g), one rounded number at a time."""

    def dot(numbers):
        total = 0.0
        for number in numbers:
            total = float(sf.add(total, number, format))
        return total

    below = [float(sf.subtract(x, max(row), format)) for x in row]
    powers = [float(sf.exp(d, format)) for d in below]
    total = dot(powers)
    y = sf.round([float(sf.divide(p, total, format)) for p in powers], sf.BF16)
    products = [float(sf.multiply(v, g, format)) for v, g in zip(y, gradient, strict=True)]
    total = dot(products)
    return y, [float(sf.subtract(p, sf.multiply(v, total, format), format)) for p, v in zip(products, y, strict=True)]


@pytest.mark.parametrize("inner", [sf.FP32, sf.FP16, sf.Format(8, 11)], ids=str)
def test_a_fused_softmax_is_rounded_once_and_so_is_its_gradient(inner):
    policy = sf.Policy(compute=sf.BF16, gradients=sf.E5M2, reduce=inner).override(operation="softmax", fused=True)
    x = sf.Tensor(X, requires_grad=True)
    with sf.simulate(policy):
        y = x.softmax()
        y.backward(G)
    assert y.format == sf.BF16
    for row, gradient, result, back in zip(X, G, y.data, x.grad, strict=True):
        want, want_back = scalar_softmax(row, gradient, inner)
        assert_bits(result, want)
        assert_bits(back, sf.round(want_back, sf.E5M2))


def test_unfused_is_the_default_and_rounds_every_step():
    x = sf.Tensor(X, requires_grad=True)
    with sf.simulate(STANDARD):
        y = x.softmax()
        y.backward(G)
    below = sf.subtract(X, X.max(1, keepdims=True), sf.BF16)
    powers = sf.exp(below, sf.BF16)
    total = sf.sum(powers, 1, accumulate=sf.FP32, output=sf.BF16)[:, None]
    assert_bits(y.data, sf.divide(powers, total, sf.BF16))
    assert not STANDARD.recipe("", "softmax", "exp").fused


@sf.operation(kind="composite")
def fused_test_swish(x, slope):
    """x * sigmoid(slope * x)."""
    return x * (slope * x).sigmoid()


def bag(x):
    layer = sf.nn.EmbeddingBag(3, 6, mode="sum")
    layer.weight.data = np.ones((3, 6))
    return layer([[0, 1, 1], [2, 0, 1]], per_sample_weights=x[:2, :3])


COMPOSITES = {
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "logsumexp": lambda x: x.logsumexp(-1),
    "var": lambda x: x.var(-1),
    "layer_norm": lambda x: sf.nn.LayerNorm(6)(x),
    "batch_norm": lambda x: sf.nn.BatchNorm1d(6)(x),
    "gelu_tanh": lambda x: sf.nn.GELU("tanh")(x),
    "silu": lambda x: sf.nn.SiLU()(x),
    "softplus": lambda x: sf.nn.Softplus(0.7, 2.0)(x),
    "elu": lambda x: sf.nn.SELU()(x),
    "mish": lambda x: sf.nn.Mish()(x),
    "log_sigmoid": lambda x: sf.nn.LogSigmoid()(x),
    "hardsigmoid": lambda x: sf.nn.Hardsigmoid()(x),
    "hardswish": lambda x: sf.nn.Hardswish()(x),
    "softshrink": lambda x: sf.nn.Softshrink(0.3)(x),
    "hardshrink": lambda x: sf.nn.Hardshrink(0.3)(x),
    "prelu": lambda x: sf.nn.PReLU()(x),
    "glu": lambda x: sf.nn.GLU()(x),
    "group_norm": lambda x: sf.nn.GroupNorm(2, 6)(x),
    "embedding_bag": bag,
    "mse_loss": lambda x: sf.nn.mse_loss(x, G),
    "smooth_l1_loss": lambda x: sf.nn.smooth_l1_loss(x, G),
    "xlogy": lambda x: xlogy(x, np.abs(G)),
    "huber_loss": lambda x: sf.nn.huber_loss(x, G, delta=0.7),
    "binary_cross_entropy": lambda x: sf.nn.binary_cross_entropy(x.clip(0.125, 0.75), np.abs(G) / 4),
    "binary_cross_entropy_with_logits": lambda x: sf.nn.binary_cross_entropy_with_logits(x, np.abs(G)),
    "cross_entropy": lambda x: sf.nn.cross_entropy(x, [0, 5, 2]),
    "ctc_loss": lambda x: sf.nn.ctc_loss(x, [1], 3, 1),
    "fused_test_swish": lambda x: fused_test_swish(x, slope=sf.Tensor(G)),
    "fused_test_holding": lambda x: fused_test_holding(x),
}


def test_every_composite_can_be_fused():
    composites = {row.name for row in OPERATIONS.values() if row.kind == "composite"}
    # Attention has contractions, whose operands are rounded: tests/torch/test_fused_attention.py has its bits.
    assert composites <= {*COMPOSITES, "scaled_dot_product_attention"}


#: Their gradients follow from the result, which is rounded before: PyTorch's formulas, which a fused kernel has too.
FROM_RESULTS = ("softmax", "log_softmax", "logsumexp", "cross_entropy")


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_policy_that_fuses_everything_gives_the_bits_of_fp32_rounded_at_the_borders(name):
    call, wide = COMPOSITES[name], sf.Tensor(X, requires_grad=True)
    with sf.simulate(sf.Policy(compute=sf.FP32)):
        wide_result = call(wide)
        wide_result.sum().backward()
    for policy in (sf.Policy(compute=sf.BF16, fused=True), STANDARD.override(operation=name, fused=True)):
        narrow = sf.Tensor(X, requires_grad=True)
        with sf.simulate(policy):
            result = call(narrow)
            assert result.format == sf.BF16
            result.sum().backward()
        assert_bits(result.data, sf.round(wide_result.data, sf.BF16))
        if name in FROM_RESULTS:
            assert_bits(narrow.grad, sf.round(narrow.grad, sf.BF16))
        else:
            assert_bits(narrow.grad, sf.round(wide.grad, sf.BF16))


HELD = sf.Parameter(sf.round([0.5, -0.3, 0.7, 0.2, -0.9, 0.4], sf.BF16))
SCALE = sf.Tensor(sf.round([0.3], sf.BF16), requires_grad=True)


@sf.operation(kind="composite")
def fused_test_holding(x):
    """exp(x * HELD) * SCALE, of a parameter and a tensor that are not among its operands."""
    return (x * HELD).exp() * SCALE


def test_gradients_of_what_a_fused_composite_holds_are_rounded_once_where_they_leave():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, activation_gradients=sf.FP16, weight_gradients=sf.E5M2)
    x, HELD.grad, SCALE.grad = sf.Tensor(X, requires_grad=True), None, None
    with sf.simulate(policy.override(operation="fused_test_holding", fused=True)):
        result = fused_test_holding(x)
        result.backward(G)
    got = HELD.grad, SCALE.grad, x.grad
    HELD.grad = SCALE.grad = x.grad = None
    with sf.simulate(sf.Policy(compute=sf.BF16, weights=sf.FP32, activations=sf.FP32)):
        wide = fused_test_holding(x)
        wide.backward(G)
    assert_bits(result.data, sf.round(wide.data, sf.BF16))
    for gradient, inside, role in zip(got, (HELD.grad, SCALE.grad, x.grad), (sf.E5M2, sf.FP16, sf.FP16), strict=True):
        assert_bits(gradient, sf.round(inside, role))


def test_a_composite_inside_a_fused_one_is_rounded_with_it_and_alone_by_itself():
    outer = STANDARD.override(operation="cross_entropy", fused=True)
    inner = STANDARD.override(operation="log_softmax", fused=True)
    assert outer.recipe("", "cross_entropy", "log_softmax", "exp").activations == sf.FP32
    assert outer.recipe("", "cross_entropy", "log_softmax").activations == sf.FP32
    assert outer.recipe("", "cross_entropy").activations == sf.BF16
    assert outer.recipe("", "log_softmax", "exp").activations == sf.BF16, "not inside"
    assert inner.recipe("", "cross_entropy", "log_softmax", "exp").activations == sf.FP32
    assert inner.recipe("", "cross_entropy", "log_softmax").activations == sf.BF16
    assert inner.recipe("", "cross_entropy", "mean").activations == sf.BF16
    x = sf.Tensor(X, requires_grad=True)
    with sf.simulate(inner):
        loss = sf.nn.cross_entropy(x, [0, 5, 2])
        loss.backward()
        log = sf.Tensor(X).log_softmax().data
    assert_bits(
        loss.data, sf.divide(sf.sum(-log[[0, 1, 2], [0, 5, 2]], accumulate=sf.FP32, output=sf.BF16), 3.0, sf.BF16)
    )
    assert x.grad.shape == X.shape


def test_a_fused_composite_of_the_widest_operands_comes_in_their_format():
    policy = sf.Policy(compute=sf.BF16, activations="widest", fused=True)
    with sf.simulate("fp16-standard"):
        narrow = sf.Tensor(X) * 1.0
    with sf.simulate(policy):
        assert narrow.softmax().format == sf.FP16
        assert sf.Tensor(np.float32(X)).softmax().format == sf.FP32


def test_the_format_of_reduce_is_that_of_its_results():
    unit = sf.Policy(compute=sf.BF16, accumulate=sf.tensor_core("hopper", sf.BF16), fused=True)
    assert unit.recipe("", "softmax", "exp").activations == sf.FP32
    blocks = sf.Policy(compute=sf.BF16, reduce=sf.blocked(4, sf.FP16, sf.TF32), fused=True)
    assert blocks.recipe("", "softmax", "exp").gradients == sf.TF32
    with pytest.raises(ValueError, match="A fused softmax computes in the format of reduce, but exact sums have none"):
        with sf.simulate(sf.Policy(compute=sf.BF16, reduce=sf.exact, fused=True)):
            sf.Tensor(X).softmax()


def test_fused_is_written_and_shown():
    policy = STANDARD.override(operation="softmax", fused=True)
    assert repr(policy).endswith(".override(operation='softmax', fused=True)")
    assert "fused = true" in policy.to_toml() and sf.Policy.from_toml(policy.to_toml()) == policy
    everywhere = sf.Policy(compute=sf.BF16, fused=True)
    assert repr(everywhere) == f"Policy(compute={sf.BF16!r}, fused=True)" and everywhere.to_dict()["fused"] is True
    assert sf.Policy.from_toml("compute = 'bf16'\nfused = true") == everywhere
    header, *rows = policy.explain(sf.nn.MLP([2, 2])).splitlines()
    column = header.split().index("fused") - len(header.split())
    assert rows[-1].split()[:2] == ["everywhere", "softmax"]
    assert rows[-1].split()[column] == "True" and rows[0].split()[column] == "False"


@pytest.mark.parametrize("make, message", [
    (lambda: STANDARD.override(operation="add", fused=True), "fused has no effect on the operation 'add'"),
    (lambda: STANDARD.override(operation="pointwise", fused=True), "fused has no effect"),
    (lambda: sf.Policy(compute=sf.BF16, fused="yes"), "fused: True or False is expected, got 'yes'"),
    (lambda: sf.Policy(compute=sf.BF16, fused=1), "fused: True or False is expected, got 1"),
    (lambda: sf.Policy.from_toml("compute = 'bf16'\nfused = 'True'"), "fused: True or False is expected"),
    (lambda: sf.Policy.from_toml("compute = true"), "compute must be a text such as 'BF16', got True"),
    (lambda: STANDARD.override("head", fused=None), "fused: True or False is expected, got None"),
])  # fmt: skip
def test_an_invalid_choice_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_empty_axis_has_no_softmax():
    with (
        pytest.raises(ValueError, match=r"at least one element along axis -1, got shape \(2, 0\)"),
        sf.simulate("fp32"),
    ):
        sf.Tensor(np.zeros((2, 0))).softmax()
