"""Compare a whole step of a GPT block, forward, backward and update, with a computation of rounded matrices.

The computation uses no tensors, layers or records: it adds one product after the other in FP32, rounds every result to
BF16, and adds gradients in the order of the operations.
"""

import math

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

LR, EPS = 0.05, 1e-5


def rounded(name):
    return lambda *operands: getattr(sf, name)(*operands, sf.BF16)


add, sub, mul, div, exp, erf, gelu, rsqrt = map(
    rounded, ("add", "subtract", "multiply", "divide", "exp", "erf", "gelu", "rsqrt")
)


def dot(a, b):
    """Matrices, products added one after the other in FP32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = sf.fma(a[:, k : k + 1], b[k : k + 1], total, sf.FP32)
    return sf.round(total, sf.BF16)


def rows(x):
    """The sum of the rows."""
    return dot(np.ones((1, len(x)), np.float32), x)[0]


def columns(x):
    """The sum of the columns, as one."""
    return dot(x, np.ones((x.shape[1], 1), np.float32))


def mean(x):
    """The mean of every row, as one column."""
    return div(columns(x), float(x.shape[1]))


class Norm:
    """A layer norm, and its gradients as PyTorch's kernels compute them."""

    def __init__(self, x, weight, bias):
        self.weight = weight
        d = sub(x, mean(x))
        self.r = rsqrt(add(mean(mul(d, d)), EPS))
        self.h = mul(d, self.r)
        self.result = add(mul(self.h, weight), bias)

    def backward(self, g, before):
        """Gradients of x, added to what is there before, of the weight and of the bias."""
        to_h = mul(g, self.weight)
        across = sub(sub(to_h, mean(to_h)), mul(self.h, mean(mul(to_h, self.h))))
        return add(before, mul(across, self.r)), rows(mul(g, self.h)), rows(g)


class Head:
    """Causal attention of one head, and its gradients.

    As in PyTorch's `_scaled_dot_product_attention_math`, queries and keys are each multiplied by the root of the scale.
    """

    def __init__(self, q, k, v):
        self.root = math.sqrt(1 / math.sqrt(q.shape[1]))
        self.q, self.k, self.v = mul(q, self.root), mul(k, self.root), v
        self.sees = np.tril(np.ones((len(q), len(k)), bool))
        scores = np.where(self.sees, dot(self.q, self.k.T), np.float32(-np.inf))
        e = exp(sub(scores, scores.max(1, keepdims=True)))
        self.p = div(e, columns(e))
        self.result = dot(self.p, v)

    def backward(self, g):
        to_p, to_v = dot(g, self.v.T), dot(self.p.T, g)
        product = mul(self.p, to_p)
        to_scores = sub(product, mul(self.p, columns(product)))
        to_products = np.where(self.sees, to_scores, np.float32(0))
        to_q, to_k = dot(to_products, self.k), dot(self.q.T, to_products).T
        return mul(to_q, self.root), mul(to_k, self.root), to_v


def gelu_slope(x):
    probability = mul(0.5, add(1.0, erf(mul(x, math.sqrt(0.5)))))
    density = mul(1 / math.sqrt(2 * math.pi), exp(mul(mul(x, x), -0.5)))
    return add(probability, mul(x, density))


def step(x, g, w, heads):
    """The block's result, the gradient of x, and those of all parameters by name."""
    first = Norm(x, w["norm1.weight"], w["norm1.bias"])
    projected = add(dot(first.result, w["self_attn.in_proj_weight"].T), w["self_attn.in_proj_bias"])
    parts = [np.split(part, heads, 1) for part in np.split(projected, 3, 1)]
    attention = [Head(*qkv) for qkv in zip(*parts, strict=True)]
    joined = np.concatenate([head.result for head in attention], 1)
    middle = add(x, add(dot(joined, w["self_attn.out_proj.weight"].T), w["self_attn.out_proj.bias"]))
    second = Norm(middle, w["norm2.weight"], w["norm2.bias"])
    inner = add(dot(second.result, w["linear1.weight"].T), w["linear1.bias"])
    active = gelu(inner)
    result = add(middle, add(dot(active, w["linear2.weight"].T), w["linear2.bias"]))

    grads = {"linear2.bias": rows(g), "linear2.weight": dot(g.T, active)}
    to_inner = mul(dot(g, w["linear2.weight"]), gelu_slope(inner))
    grads |= {"linear1.bias": rows(to_inner), "linear1.weight": dot(to_inner.T, second.result)}
    back, grads["norm2.weight"], grads["norm2.bias"] = second.backward(dot(to_inner, w["linear1.weight"]), g)
    grads |= {"self_attn.out_proj.bias": rows(back), "self_attn.out_proj.weight": dot(back.T, joined)}
    to_joined = np.split(dot(back, w["self_attn.out_proj.weight"]), heads, 1)
    to_parts = [head.backward(to_head) for head, to_head in zip(attention, to_joined, strict=True)]
    to_projected = np.concatenate([part for parts in zip(*to_parts, strict=True) for part in parts], 1)
    grads["self_attn.in_proj_bias"] = rows(to_projected)
    grads["self_attn.in_proj_weight"] = dot(to_projected.T, first.result)
    back, grads["norm1.weight"], grads["norm1.bias"] = first.backward(
        dot(to_projected, w["self_attn.in_proj_weight"]), back
    )
    return result, back, grads


@pytest.mark.parametrize("seed", range(2))
def test_steps_of_a_gpt_block_equal_a_computation_of_rounded_matrices_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    block = sf.nn.TransformerEncoderLayer(
        6, 2, 5, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, rng=seed
    )
    for name, parameter in block.named_parameters():
        if parameter.ndim == 1:
            parameter.data = rng.standard_normal(parameter.shape) * 0.5 + ("norm" in name)
    optimizer = sf.optim.SGD(block.parameters(), lr=LR)
    with sf.simulate("bf16-standard"):
        for _ in range(2):
            x, g = sf.round(rng.standard_normal((2, 4, 6)).astype(np.float32), sf.BF16)
            t = sf.Tensor(x[np.newaxis], requires_grad=True)
            optimizer.zero_grad()
            out = block(t, is_causal=True)
            out.backward(g[np.newaxis])
            state = {name: sf.round(np.float32(value), sf.BF16) for name, value in block.state_dict().items()}
            want, to_x, grads = step(x, g, state, 2)
            assert_bits(out.data[0], want)
            assert_bits(t.grad[0], to_x)
            for name, parameter in block.named_parameters():
                assert_bits(parameter.grad, grads[name])
            optimizer.step()
            for name, parameter in block.named_parameters():
                assert_bits(parameter.data, add(state[name], mul(-LR, grads[name])))
