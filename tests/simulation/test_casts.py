"""Operands of contractions are rounded by the role of their kind, and observers receive the events."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

RNG = np.random.default_rng(3)
X, G = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5))


def stepped(policy, x=X, g=G, observer=None, seed=0):
    """A layer's output, the gradient of its input, and the layer, after one forward and one backward."""
    model = sf.nn.Sequential(sf.nn.Linear(6, 5, bias=False, rng=1))
    x = sf.Tensor(x, requires_grad=True)
    with sf.simulate(policy, seed=seed, observer=observer):
        y = model(x)
        y.backward(g)
    return y.data, x.grad, model[0].weight


def test_casts_that_change_nothing_are_counted_too():
    recorder = sf.Recorder()
    with sf.simulate("bf16-standard", observer=recorder):
        x = sf.Tensor(X) * 1.0
        x @ x.T
    assert recorder.counts(operation="cast_input")["total"] == 2 * X.size


def test_a_parameters_path_may_be_overridden_in_what_concerns_it():
    policy = sf.Policy(compute=sf.FP16, accumulate=sf.FP32)
    policy = policy.override(
        "*.weight", compute=sf.E4M3, weight_gradients=sf.BF16, accumulate_gradients=sf.sequential(sf.BF16)
    )
    y, x_grad, weight = stepped(policy.override("*.weight", weights=sf.FP32))
    w = sf.round(weight.data, sf.FP32)
    assert_bits(y, sf.matmul(X, w.T, inputs=(sf.FP16, sf.E4M3), accumulate=sf.FP32, output=sf.FP16))
    assert_bits(x_grad, sf.matmul(G, w, inputs=(sf.FP16, sf.E4M3), accumulate=sf.FP32, output=sf.FP16))
    assert_bits(weight.grad, sf.matmul(G.T, X, inputs=sf.FP16, accumulate=sf.sequential(sf.BF16)))


def test_gradients_have_casts_and_accumulators_of_their_own():
    policy = sf.Policy(
        compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.FP32,
        accumulate=sf.pairwise(sf.FP16), accumulate_gradients=sf.sequential(sf.FP16),
    )  # fmt: skip
    y, x_grad, weight = stepped(policy)
    w = weight.data
    assert_bits(y, sf.matmul(X, w.T, inputs=sf.E4M3, accumulate=sf.pairwise(sf.FP16), output=sf.FP32))
    assert_bits(x_grad, sf.matmul(G, w, inputs=(sf.E5M2, sf.E4M3), accumulate=sf.FP16, output=sf.FP32))
    assert_bits(weight.grad, sf.matmul(G.T, X, inputs=(sf.E5M2, sf.E4M3), accumulate=sf.FP16, output=sf.FP32))


def test_sums_that_are_no_contraction_run_through_reduce():
    policy = sf.Policy(compute=sf.BF16, accumulate=sf.FP32, reduce=sf.sequential(sf.BF16))
    x, b = sf.Tensor(RNG.standard_normal((300, 3)), requires_grad=True), sf.Tensor(np.ones(3), requires_grad=True)
    with sf.simulate(policy):
        total = x.sum(0)
        (x + b).backward(x.data)
        mean = x.mean(0)
    want = sf.sum(x.data, 0, accumulate=sf.BF16)
    assert_bits(total.data, want)
    assert_bits(b.grad, want)
    assert_bits(mean.data, sf.divide(want, 300.0, sf.BF16))


def test_one_unit_serves_forward_and_gradients_of_other_formats():
    policy = sf.Policy(
        compute=sf.E4M3, compute_gradients=sf.E5M2, weights=sf.FP32, activations=sf.BF16,
        accumulate=sf.tensor_core("hopper"),
    )  # fmt: skip
    y, x_grad, weight = stepped(policy)
    w = weight.data
    unit = {"output": sf.BF16, "accumulate": sf.tensor_core("hopper")}
    assert_bits(y, sf.matmul(X, w.T, inputs=sf.E4M3, **unit))
    assert_bits(x_grad, sf.matmul(G, w, inputs=(sf.E5M2, sf.E4M3), **unit))
    with sf.simulate(policy):
        assert_bits(sf.Tensor(X).sum().data, sf.sum(X, accumulate=sf.FP32, output=sf.BF16)), "reduce is FP32"


def test_casts_saturate_where_they_say_so():
    saturating = sf.cast(sf.E4M3, sf.nearest_even.saturating())
    policy = sf.Policy(compute=saturating, weights=sf.FP32, activations=sf.FP32)
    x = X * 1000
    y, _, weight = stepped(policy, x)
    assert np.isfinite(y).all()
    assert_bits(y, sf.matmul(x, weight.data.T, inputs=saturating, accumulate=sf.FP32))
    assert np.isnan(stepped(sf.Policy(compute=sf.E4M3, weights=sf.FP32, activations=sf.FP32), x)[0]).any()


def test_stochastic_casts_draw_from_the_stream_of_their_place():
    random = sf.cast(sf.E4M3, sf.stochastic())
    policy = sf.Policy(compute=sf.FP16, compute_gradients=random, weights=sf.FP32, activations=sf.FP32)
    recorder = sf.Recorder()
    first, again, other = stepped(policy), stepped(policy, observer=recorder), stepped(policy, seed=1)
    assert_bits(first[1], again[1])
    assert_bits(first[2].grad, again[2].grad)
    assert (first[1] != other[1]).any() and (first[2].grad != other[2].grad).any()
    assert_bits(first[0], other[0]), "forward draws nothing"
    weights = sf.Policy(compute=sf.FP16, activations=sf.FP32).override("*.weight", compute=random, weights=sf.FP32)
    first, again, other = stepped(weights), stepped(weights), stepped(weights, seed=1)
    assert_bits(first[0], again[0])
    assert (first[0] != other[0]).any() and (first[1] != other[1]).any()
    assert_bits(first[2].grad, other[2].grad), "a weight's gradient has no weight among its operands"


@pytest.mark.parametrize("operation, call", [("linear", 0), ("matmul", 1), ("sum", 2)])
def test_what_an_accumulator_refuses_is_refused_with_layer_and_operation(operation, call):
    class Layer(sf.nn.Module):
        def forward(self, x):
            return (lambda: x.linear(sf.Tensor(X)), lambda: x @ X.T, lambda: x.sum())[call]()

    unit = sf.tensor_core("hopper", sf.E4M3)
    policy = sf.Policy(compute=sf.FP16, accumulate=unit, reduce=unit)
    with pytest.raises(ValueError, match=f"{operation} in layer '0': "), sf.simulate(policy):
        sf.nn.Sequential(Layer())(sf.Tensor(X))


def test_parameters_may_be_rounded_otherwise_than_what_they_are_multiplied_with():
    policy = sf.Policy(compute=sf.BF16, compute_weights=sf.E2M3, weights=sf.FP32, activations=sf.FP32)
    y, x_grad, weight = stepped(policy)
    narrow = sf.round(weight.data, sf.E2M3)
    assert_bits(y, sf.matmul(X, narrow.T, inputs=(sf.BF16, sf.E2M3), accumulate=sf.FP32))
    assert_bits(x_grad, sf.matmul(G, narrow, inputs=(sf.BF16, sf.E2M3), accumulate=sf.FP32))
    assert_bits(weight.grad, sf.matmul(G.T, X, inputs=sf.BF16, accumulate=sf.FP32))
    for same in (policy.override("*.weight", compute=sf.FP16), policy):
        assert_bits(stepped(same)[0], y), "compute is not what the parameter's cast follows where that is given"
    by_path = stepped(
        sf.Policy(compute=sf.BF16, weights=sf.FP32, activations=sf.FP32).override("*.weight", compute="e2m3")
    )
    assert_bits(by_path[0], y)


FINE, SQUARE = sf.block(4, sf.FP32), sf.block((4, 4), sf.FP32)
DEEP = sf.Policy(
    compute=sf.scaled(sf.E4M3, FINE), compute_weights=sf.scaled(sf.E4M3, SQUARE),
    compute_gradients=sf.scaled(sf.E5M2, FINE), weights=sf.FP32, activations=sf.BF16, accumulate=sf.FP32,
)  # fmt: skip
MICRO = sf.Policy(
    compute=sf.scaled(sf.E4M3, sf.block(32, sf.E8M0)), weights=sf.FP32, activations=sf.BF16,
    accumulate=sf.tensor_core("blackwell", scales=(32, sf.E8M0)),
)  # fmt: skip
POLICIES = pytest.mark.parametrize("policy", [DEEP, MICRO], ids=["squares", "microscaling"])


@POLICIES
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolutions_three_products_scale_along_their_own_k(policy, groups, rng):
    x, g = rng.standard_normal((2, 4, 5, 4)) * 30, rng.standard_normal((2, 6, 3, 2)) * 1e-4
    layer = sf.nn.Conv2d(4, 6, 3, stride=2, padding=(1, 1), groups=groups, bias=False, rng=1)
    tensor = sf.Tensor(x, requires_grad=True)
    with sf.simulate(policy):
        y = layer(tensor)
        y.backward(g)
    recipe, w = policy.recipe(), layer.weight.data
    forward, weights, gradients = recipe.compute, recipe.compute_weights, recipe.compute_gradients
    options = dict(accumulate=policy.accumulate, output=sf.BF16)
    assert_bits(y.data, sf.conv2d(x, w, stride=2, padding=1, groups=groups, inputs=(forward, weights), **options))
    # The gradient of an image: of gradients spread by the stride, with zeros around, and of mirrored kernels.
    spread = np.zeros((2, 6, 7, 6))
    spread[:, :, 1:6:2, 1:4:2] = g
    turned = w.reshape(groups, 6 // groups, 4 // groups, 3, 3).swapaxes(1, 2).reshape(4, 6 // groups, 3, 3)
    want = sf.conv2d(spread, turned[:, :, ::-1, ::-1], groups=groups, inputs=(gradients, weights), **options)
    assert_bits(tensor.grad, want)
    # The gradient of a kernel: over images and pixels of the result.
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    patches = windows[:, :, ::2, ::2].transpose(0, 2, 3, 1, 4, 5)
    for group in range(groups):
        outputs, channels = (slice(group * n // groups, (group + 1) * n // groups) for n in (6, 4))
        left = g[:, outputs].transpose(1, 0, 2, 3).reshape(6 // groups, 12)
        right = patches[:, :, :, channels].reshape(12, -1)
        want = sf.matmul(left, right, inputs=(gradients, forward), **options)
        assert_bits(layer.weight.grad[outputs], want.reshape(6 // groups, 4 // groups, 3, 3))
