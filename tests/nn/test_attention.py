"""Attention, alone and in a layer of an encoder: torch's values, and one number at a time in narrow formats."""

import math

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import close, compare
from tests.nn.narrow import Narrow

RNG = np.random.default_rng(21)
Q, K, V = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 5, 4)), RNG.standard_normal((2, 5, 6))
BLOCKED = np.array([[0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 1, 1, 1]], bool)
X = RNG.standard_normal((3, 2, 8))
S = RNG.standard_normal((5, 2, 8))


@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": ~BLOCKED}, {"attn_mask": RNG.standard_normal((2, 3, 5))},
    {"attn_mask": np.where(BLOCKED, -np.inf, 0.25)}, {"attn_mask": np.zeros((3, 5), bool)},
], ids=lambda options: "-".join(options))  # fmt: skip
def test_scaled_dot_product_attention_equals_torchs(options):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    theirs = [torch.tensor(x, requires_grad=True) for x in (Q, K, V)]
    given = {name: torch.tensor(v) if isinstance(v, np.ndarray) else v for name, v in options.items()}
    want = torch.nn.functional.scaled_dot_product_attention(*theirs, **given)
    want.square().sum().backward()
    with sf.simulate("fp64"):
        ours = [sf.Tensor(x, requires_grad=True) for x in (Q, K, V)]
        got = sf.nn.scaled_dot_product_attention(*ours, **options)
        got.square().sum().backward()
    close(got.data, want.detach().numpy())
    for mine, other in zip(ours, theirs, strict=True):
        close(mine.grad, other.grad.numpy())


MASKS = {
    "none": {},
    "key_padding_mask": {"key_padding_mask": np.array([[0, 0, 0, 1, 1], [0, 1, 0, 0, 0]], bool)},
    "attn_mask": {"attn_mask": BLOCKED},
    "numbers": {"attn_mask": RNG.standard_normal((3, 5))},
    "mask of every head": {"attn_mask": RNG.random((4, 3, 5)) < 0.3},
    "both": {"attn_mask": BLOCKED, "key_padding_mask": np.array([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)},
    "weights of heads": {"average_attn_weights": False},
    "no weights": {"need_weights": False, "attn_mask": BLOCKED},
}


def both(options):
    """An options dictionary for ours, and a function that runs a layer with the same options for torch's."""

    def run(layer, inputs):
        torch = pytest.importorskip("torch")
        is_theirs = isinstance(layer, torch.nn.Module)
        given = {n: torch.tensor(v) if is_theirs and isinstance(v, np.ndarray) else v for n, v in options.items()}
        return layer(*inputs, **given)

    return run


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("options", [{}, {"kdim": 3, "vdim": 5}, {"bias": False}], ids=str)
def test_multi_head_attention_equals_torchs(name, options):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    ours, theirs = sf.nn.MultiHeadAttention(8, 2, **options), torch.nn.MultiheadAttention(8, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    if theirs.in_proj_bias is not None:
        torch.nn.init.normal_(theirs.in_proj_bias)
    keys = RNG.standard_normal((5, 2, options.get("kdim", 8)))
    values = RNG.standard_normal((5, 2, options.get("vdim", 8)))
    compare(ours, theirs, X, keys, values, run=both(MASKS[name]))


@pytest.mark.parametrize("same", ["all", "key and value", "query and key", "none"])
@pytest.mark.parametrize("layout", ["L, N", "N, L", "L"])
def test_inputs_may_be_one_and_the_same_in_any_layout(same, layout):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    options = {"batch_first": layout == "N, L"}
    ours, theirs = sf.nn.MultiheadAttention(8, 4, **options), torch.nn.MultiheadAttention(8, 4, **options)
    x, s = (X[:, 0], S[:, 0]) if layout == "L" else (X, S) if layout == "L, N" else (X.swapaxes(0, 1), S.swapaxes(0, 1))
    inputs = {"all": (x,), "key and value": (x, s), "query and key": (x, x[::-1].copy()), "none": (x, s, s + 1)}[same]

    def run(layer, given):
        if same == "query and key":
            return layer(given[0], given[0], given[1])
        return layer(*(given * 3)[:3]) if same == "all" else layer(given[0], given[1], given[-1])

    compare(ours, theirs, *inputs, run=run)


def scalar_attention(q, k, v, causal, n):
    """One head of one example, a number at a time; n rounds."""
    root, rows = math.sqrt(1 / math.sqrt(len(q[0]))), []
    q, k = ([[n.multiply(x, root) for x in vector] for vector in vectors] for vectors in (q, k))
    for i, query in enumerate(q):
        scores = [n.dot(query, key) for key in k]
        scores = [s if j <= i or not causal else -math.inf for j, s in enumerate(scores)]
        powers = [n.exp(n.subtract(s, max(scores))) for s in scores]
        total = n.sum(powers)
        weights = [n.divide(p, total) for p in powers]
        rows.append([n.dot(weights, column) for column in zip(*v, strict=True)])
    return rows


@pytest.mark.parametrize("causal", [False, True])
def test_heads_equal_a_scalar_computation_bit_for_bit(causal):
    n, size = Narrow(sf.BF16), 2
    layer, x = (
        sf.nn.MultiHeadAttention(4, 2, batch_first=True, rng=3),
        sf.round(RNG.standard_normal((1, 3, 4)), sf.BF16),
    )
    with sf.simulate("bf16-standard"):
        out, _ = layer(x, x, x, is_causal=causal, need_weights=False)
    state = {name: sf.round(value, sf.BF16).tolist() for name, value in layer.state_dict().items()}

    def affine(rows, weight, bias):
        return [[n.add(n.dot(r, w), b) for w, b in zip(weight, bias, strict=True)] for r in rows]

    projected = affine(x[0].tolist(), state["in_proj_weight"], state["in_proj_bias"])
    joined = [[] for _ in range(3)]
    for head in range(2):
        q, k, v = ([row[o + head * size :][:size] for row in projected] for o in (0, 4, 8))
        for row, part in zip(joined, scalar_attention(q, k, v, causal, n), strict=True):
            row += part
    assert_bits(out.data[0], affine(joined, state["out_proj.weight"], state["out_proj.bias"]))


def test_a_query_that_sees_nothing_gets_zeros_and_passes_no_gradient():
    layer, x = sf.nn.MultiHeadAttention(8, 2, bias=False), sf.Tensor(X, requires_grad=True)
    with sf.simulate("bf16-standard"):
        mask = np.array([[True] * 3, [False, True, False], [False] * 3])
        out, weights = layer(x, x, x, attn_mask=mask)
        out[0].sum().backward()
    assert not out.data[0].any() and not weights.data[:, 0].any() and not x.grad.any()
    assert np.isfinite(out.data).all()


def test_queries_without_any_keys_get_zeros():
    with sf.simulate("bf16-standard"):
        q, none = sf.Tensor(Q, requires_grad=True), np.zeros((2, 0, 4))
        out = sf.nn.scaled_dot_product_attention(q, none, none)
        out.sum().backward()
    assert out.shape == Q.shape and not out.data.any() and not q.grad.any()


def test_a_format_without_infinity_has_masks_too():
    policy = sf.Policy(compute=sf.E4M3)
    with sf.simulate(policy):
        out = sf.nn.scaled_dot_product_attention(Q, K, V, attn_mask=np.where(BLOCKED, -np.inf, 0.0))
        same = sf.nn.scaled_dot_product_attention(Q, K, V, attn_mask=~BLOCKED)
    assert np.isfinite(out.data).all() and out.format == sf.E4M3
    assert_bits(out.data, same.data)


def test_weights_are_dropped_while_training():
    layer = sf.nn.MultiHeadAttention(8, 2, dropout=0.5, rng=0)
    with sf.simulate("fp32", seed=2) as simulation:
        _, weights = layer(X, X, X, average_attn_weights=False)
        layer.eval()
        _, kept = layer(X, X, X, average_attn_weights=False)
    dropped = weights.data == 0
    assert 0 < dropped.sum() < dropped.size and (kept.data != 0).all()
    assert_bits(weights.data[~dropped], 2 * kept.data[~dropped])
    assert [entry["operation"] for entry in simulation.state["streams"]] == ["dropout"]


def test_the_softmax_of_attention_may_be_fused():
    policy = sf.policies["bf16-standard"]
    with sf.simulate(policy):
        plain = sf.nn.scaled_dot_product_attention(Q, K, V).data
    with sf.simulate(policy.override(operation="softmax", fused=True)):
        fused = sf.nn.scaled_dot_product_attention(Q, K, V).data
    assert (plain != fused).any()


@pytest.mark.parametrize("call, message", [
    (lambda: sf.nn.MultiHeadAttention(8, 3), "embed_dim must be a multiple of num_heads, got 8 and 3"),
    (lambda: sf.nn.MultiHeadAttention(8, 0), "num_heads must be a positive integer, got 0"),
    (lambda: sf.nn.MultiHeadAttention(8, 2, add_zero_attn=True), "add_zero_attn must be False"),
    (lambda: sf.nn.MultiHeadAttention(8, 2)(X, S, X), r"key \(S, N, 8\) and value .* \(5, 2, 8\) and \(3, 2, 8\)"),
    (lambda: sf.nn.MultiHeadAttention(8, 2)(X, S[:, :1], S[:, :1]), "all with N or all without; got"),
    (lambda: sf.nn.MultiHeadAttention(8, 2, batch_first=True)(X, X[0], X[0]), r"query \(N, L, 8\)"),
    (lambda: sf.nn.MultiHeadAttention(4, 2)(X, X, X), r"query \(L, N, 4\).*; got \(3, 2, 8\)"),
    (
        lambda: sf.nn.MultiHeadAttention(8, 2)(X, S, S, attn_mask=BLOCKED.T),
        r"attn_mask must contain booleans or floats and have the shape \(3, 5\) or \(4, 3, 5\), got shape \(5, 3\)",
    ),
    (
        lambda: sf.nn.MultiHeadAttention(8, 2)(X, S, S, key_padding_mask=np.zeros((2, 5), int)),
        r"key_padding_mask must contain .* shape \(2, 5\), got shape \(2, 5\) and dtype int64",
    ),
    (lambda: sf.nn.scaled_dot_product_attention(Q, V, V), r"got shapes \(2, 3, 4\), \(2, 5, 6\) and \(2, 5, 6\)"),
    (lambda: sf.nn.scaled_dot_product_attention(Q[0, 0], K, V), "Attention needs query"),
    (lambda: sf.nn.scaled_dot_product_attention(Q, K, V, ~BLOCKED, is_causal=True), "or is_causal=True, got both"),
    (lambda: sf.nn.scaled_dot_product_attention(Q, K, V, BLOCKED.T), r"broadcast to \(2, 3, 5\) .* got shape \(5, 3\)"),
    (lambda: sf.nn.scaled_dot_product_attention(Q, K, V, np.zeros((7, 2, 3, 5), bool)), "broadcast to"),
    (lambda: sf.nn.scaled_dot_product_attention(Q, K, V, dropout_p=3), "dropout_p is a probability"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message), sf.simulate("fp32"):
        call()


def test_it_prints_as_the_call_that_makes_it():
    assert repr(sf.nn.MultiHeadAttention(8, 2, bias=False, batch_first=True)) == (
        "MultiHeadAttention(\n  8, 2, bias=False, batch_first=True\n"
        "  (out_proj): Linear(8, 8, bias=False)  # 64 parameters\n)  # 256 parameters"
    )


TOKENS = np.random.default_rng(6).standard_normal((4, 3, 6))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_equals_torchs(norm_first, activation, bias):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    options = dict(dim_feedforward=5, dropout=0.0, activation=activation, norm_first=norm_first, bias=bias)
    ours, theirs = sf.nn.TransformerEncoderLayer(6, 2, **options), torch.nn.TransformerEncoderLayer(6, 2, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare(ours, theirs, TOKENS)
    mask = np.triu(np.ones((4, 4), bool), 1)
    compare(ours, theirs, TOKENS, run=lambda layer, x: layer(x[0], src_mask=torch.tensor(mask)))


def test_a_causal_layer_has_the_mask_of_its_own():
    layer = sf.nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, batch_first=True)
    padding = np.zeros((4, 3), bool)
    padding[1, 2] = True
    with sf.simulate("bf16-standard"):
        causal = layer(TOKENS, is_causal=True, src_key_padding_mask=padding)
        masked = layer(TOKENS, src_mask=np.triu(np.ones((3, 3), bool), 1), src_key_padding_mask=padding)
    assert (causal.data == masked.data).all()


def test_four_places_of_a_layer_drop_numbers():
    layer = sf.nn.TransformerEncoderLayer(6, 2, 5, rng=0)
    with sf.simulate("fp32") as simulation:
        layer(TOKENS)
    assert {entry["path"] for entry in simulation.state["streams"]} == {"dropout", "dropout1", "dropout2", "self_attn"}
