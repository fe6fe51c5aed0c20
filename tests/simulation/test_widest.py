"""The widest of several formats contains the numbers of all of them."""

import itertools

import numpy as np
import pytest

import simfloat as sf
from simfloat.simulation.inside import ArrayFormats
from simfloat.simulation.place import widest_format
from tests.bits import assert_bits
from tests.cuda import standin

SMALL = [f for f in sf.CATALOG.values() if f.bits <= 8 and f is not sf.E8M0]


@pytest.mark.parametrize("formats, want", [
    ((sf.FP16, sf.BF16), sf.FP32), ((sf.BF16, sf.FP16, sf.FP16), sf.FP32), ((sf.FP16, sf.FP16), sf.FP16),
    ((sf.FP16, sf.FP32), sf.FP32), ((sf.FP64, sf.BF16), sf.FP64), ((sf.BF16, sf.TF32), sf.TF32),
    ((sf.E4M3, sf.FP16), sf.FP16), ((sf.Format(8, 20), sf.FP32), sf.FP32), ((sf.Format(9, 9), sf.FP32), sf.FP64),
])  # fmt: skip
def test_it_is_one_of_them_or_the_smallest_that_holds_them(formats, want):
    assert widest_format(formats) == want


def test_it_holds_every_number_of_every_pair():
    for a, b in itertools.product(SMALL, SMALL):
        wide = widest_format([a, b])
        for narrow in (a, b):
            assert (sf.round(narrow.values(), wide) == narrow.values()).all()
        assert wide in (a, b) or wide.bits in (8, 16)


def test_no_formats_have_no_widest_format():
    with pytest.raises(ValueError, match="widest format of no operands"):
        widest_format([])


@pytest.mark.parametrize("made", [np.asarray, standin.ndarray], ids=["cpu", "gpu"])
def test_views_have_the_format_of_their_memory_on_every_machine(made):
    formats, x, other = ArrayFormats(), made(np.ones((2, 3))), made(np.ones((2, 3)))
    formats.note(x, sf.BF16)
    for view in (x.reshape(6), x[0], x.T, x[:, 1:][1]):
        assert formats.format_of(view) is sf.BF16
    assert formats.format_of(other.reshape(6)) is None
    formats.note(other[1:], sf.FP16)
    assert formats.format_of(other) is sf.FP16


AMP = sf.Policy(compute=sf.FP16, weights=sf.FP32).override(operation="pointwise", activations="widest")


def formatted(format, values=(1.0, 2.0)):
    with sf.simulate(sf.Policy(compute=format)):
        return sf.Tensor(list(values)) * 1.0


def test_the_widest_format_among_the_operands_is_that_of_the_result():
    half, brain, single = formatted(sf.FP16), formatted(sf.BF16), formatted(sf.FP32)
    data32, data64 = sf.Tensor(np.float32([1, 2])), sf.Tensor([1.0, 2.0])
    with sf.simulate(AMP):
        assert (half + brain).format == sf.FP32
        assert (half * half).format == sf.FP16
        assert (half * single).format == sf.FP32
        assert (half + data32).format == sf.FP32 and (half + data64).format == sf.FP64
        assert (half * 0.1).format == sf.FP16 and (0.1 - brain).format == sf.BF16
        assert (half + np.float64(3)).format == sf.FP16 and (half + sf.Tensor(2.0)).format == sf.FP16
        assert (sf.Tensor(1.0) + 2.0).format == sf.FP64
        assert half.exp().format == sf.FP16


def test_a_weights_gradient_takes_the_format_of_the_weight():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32).override("*.weight", weight_gradients="bf16", gradients="fp16")
    policy = policy.override("0.weight", activations="widest", gradients=None, weight_gradients=None)
    model, x = sf.nn.Sequential(sf.nn.Linear(2, 2, rng=0)), np.array([[1.1, 2.3]])
    with sf.simulate(policy):
        model(x).backward([[0.3, 0.7]])
    weight = model[0].weight
    assert_bits(weight.grad, sf.matmul([[0.3], [0.7]], x, inputs=sf.BF16, accumulate=sf.FP32))


def test_gradients_of_such_operations_take_the_format_of_their_operand():
    policy = sf.policies["fp32"].override(operation="multiply", activations="widest")
    values = np.array([1.1, 2.3])
    half, brain = (sf.Tensor(formatted(format, values), requires_grad=True) for format in (sf.FP16, sf.BF16))
    g = np.float32([0.3, 0.7])
    with sf.simulate(policy):
        (half * brain).backward(g)
    assert_bits(half.grad, sf.multiply(g, brain.data, sf.FP16))
    assert_bits(brain.grad, sf.multiply(g, half.data, sf.BF16))


@pytest.mark.parametrize("stored, product, want", [
    (sf.BF16, sf.FP32, sf.BF16), (sf.BF16, sf.FP16, sf.BF16), (sf.FP32, sf.FP16, sf.FP16), (sf.E5M2, sf.BF16, sf.E5M2),
])  # fmt: skip
def test_the_gradient_of_a_bias_has_the_products_format_or_its_own_unless_that_is_wider(stored, product, want):
    policy = sf.Policy(compute=sf.FP32, weights=stored, activations="widest")
    layer, g = sf.nn.Linear(2, 2, rng=0), np.float32([[0.1, 0.7], [0.01, 2.3]])
    with sf.simulate(policy.override(operation="linear", activations=product)):
        (layer(np.ones((2, 2), np.float32)) * sf.Tensor(g)).sum().backward()
    assert_bits(layer.bias.grad, sf.sum(sf.round(g, product), axis=0, accumulate=sf.FP32, output=want))
