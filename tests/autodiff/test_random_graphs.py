"""Random graphs over all operations: values and gradients in FP64 equal torch's in double precision.

Every value is an array that broadcasts to SHAPE, and contributes to the loss, so that gradients are added at values
with several uses. Operands are first moved to a region in which the operation is smooth and well conditioned.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simfloat as sf
from simfloat import nn
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.autodiff.pointwise import DIFFERENTIABLE
from simfloat.nn.losses import xlogy

torch = pytest.importorskip("torch", reason="needs torch as an oracle")
F = torch.nn.functional

SHAPE = (4, 6)
SHAPES = [SHAPE, (4, 1), (6,), (1, 6), ()]
RAMP = np.sqrt(np.arange(2.0, 26.0)).reshape(SHAPE)  # without ties, whatever is added to it
MASK, ROWS, LABELS = RAMP % 0.1 > 0.05, np.array([[3, 0], [0, 2]]), np.array([5, 0, 3, 3])
CHANCES = RAMP % 1
CTC = [[1, 1]], [4], [2]
BAG = nn.EmbeddingBag(4, 6, mode="sum")
BAG.weight.data = RAMP

OURS = SimpleNamespace(
    constant=lambda x: x,
    call=lambda name, x, *others: getattr(x, name)(*others),
    zeta=lambda x: sf.Tensor(3.0).zeta(x),
    linear=sf.Tensor.linear,
    conv2d=lambda x, w: x.conv2d(w, padding=1),
    conv_transpose2d=lambda x, w: x.conv_transpose2d(w, padding=1),
    max_pool2d=sf.Tensor.max_pool2d,
    avg_pool2d=sf.Tensor.avg_pool2d,
    embedding=sf.Tensor.embedding,
    pad=lambda x: x.pad((0, 0, 1, 0), 0.5),
    concatenate=sf.concatenate,
    stack=sf.stack,
    where=sf.where,
    leaky_relu=lambda x: x.leaky_relu(0.3),
    largest=lambda x: x.max(1, True),
    smallest=lambda x: x.min(0),
    variance=lambda x: x.var(1, True),
    layer_norm=lambda x: nn.LayerNorm(6, elementwise_affine=False)(x),
    batch_norm=lambda x: nn.BatchNorm2d(4, affine=False, track_running_stats=False)(x),
    embedding_bag=lambda x: BAG(ROWS, per_sample_weights=x),
    gelu_tanh=nn.GELU(approximate="tanh"),
    hardtanh=lambda x: x.hardtanh(1.5, 4.0),
    silu=nn.SiLU(),
    softplus=nn.Softplus(2.0),
    elu=nn.ELU(0.7),
    mish=nn.Mish(),
    log_sigmoid=nn.LogSigmoid(),
    hardsigmoid=nn.Hardsigmoid(),
    hardswish=nn.Hardswish(),
    softshrink=nn.Softshrink(),
    hardshrink=nn.Hardshrink(),
    prelu=nn.PReLU(),
    glu=nn.GLU(),
    attention=nn.scaled_dot_product_attention,
    group_norm=nn.GroupNorm(2, 4, affine=False),
    huber_loss=nn.huber_loss,
    binary_cross_entropy=nn.binary_cross_entropy,
    xlogy=xlogy,
    mse_loss=nn.mse_loss,
    smooth_l1_loss=nn.smooth_l1_loss,
    cross_entropy=nn.cross_entropy,
    binary_cross_entropy_with_logits=nn.binary_cross_entropy_with_logits,
    ctc_loss=nn.ctc_loss,
)
THEIRS = SimpleNamespace(
    constant=torch.tensor,
    zeta=lambda x: torch.special.zeta(3.0, x),
    call=lambda name, *x: pytorchs(name)(*x),
    linear=F.linear,
    conv2d=lambda x, w: F.conv2d(x, w, padding=1),
    conv_transpose2d=lambda x, w: F.conv_transpose2d(x, w, padding=1),
    max_pool2d=F.max_pool2d,
    avg_pool2d=F.avg_pool2d,
    embedding=lambda x, rows: F.embedding(rows, x),
    pad=lambda x: F.pad(x, (0, 0, 1, 0), value=0.5),
    concatenate=torch.concatenate,
    stack=torch.stack,
    where=torch.where,
    leaky_relu=lambda x: F.leaky_relu(x, 0.3),
    largest=lambda x: x.amax(1, True),
    smallest=lambda x: x.amin(0),
    variance=lambda x: x.var(1, correction=0, keepdim=True),
    layer_norm=lambda x: F.layer_norm(x, (6,)),
    batch_norm=lambda x: F.batch_norm(x, None, None, training=True),
    embedding_bag=lambda x: F.embedding_bag(torch.tensor(ROWS), torch.tensor(RAMP), mode="sum", per_sample_weights=x),
    gelu_tanh=lambda x: F.gelu(x, approximate="tanh"),
    hardtanh=lambda x: F.hardtanh(x, 1.5, 4.0),
    silu=F.silu,
    softplus=lambda x: F.softplus(x, 2.0),
    elu=lambda x: F.elu(x, 0.7),
    mish=F.mish,
    log_sigmoid=F.logsigmoid,
    hardsigmoid=lambda x: F.relu6(x + 3) / 6,  # whose own derivative is multiplied by 1/6 in float32
    hardswish=F.hardswish,
    softshrink=F.softshrink,
    hardshrink=F.hardshrink,
    prelu=lambda x: F.prelu(x, torch.tensor([0.25], dtype=torch.float64)),
    glu=F.glu,
    attention=F.scaled_dot_product_attention,
    group_norm=lambda x: F.group_norm(x, 2),
    huber_loss=F.huber_loss,
    binary_cross_entropy=F.binary_cross_entropy,
    xlogy=torch.xlogy,
    mse_loss=F.mse_loss,
    smooth_l1_loss=F.smooth_l1_loss,
    cross_entropy=F.cross_entropy,
    binary_cross_entropy_with_logits=F.binary_cross_entropy_with_logits,
    ctc_loss=lambda x, *rest: F.ctc_loss(x, *map(torch.tensor, rest)),
)
NAMES = {
    "fma": lambda a, b, c: a * b + c,
    "power": torch.pow,
    "gelu": F.gelu,
    "remainder": lambda a, b: a - b * torch.round(a / b).detach(),  # torch.remainder is the modulo
}


def pytorchs(name):
    """PyTorch's function of a name, None if it has none."""
    return NAMES.get(name) or getattr(torch, name, None) or getattr(torch.special, name, None)


def full(x):
    """The value, repeated to fill SHAPE."""
    return x.broadcast_to(SHAPE)


def small(t, x):
    """Between -1 and 1."""
    return x.tanh()


def positive(t, x):
    """From 1/2 to 3/2."""
    return x.tanh() * x.tanh() + 0.5


def distinct(t, x):
    """Without ties."""
    return x + t.constant(RAMP)


def image(x):
    return full(x).reshape(1, 1, *SHAPE)


#: Where operations are smooth and well conditioned, if not everywhere.
DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"), (positive,)),
    **dict.fromkeys(("asin", "acos", "atanh"), (lambda t, x: small(t, x) * 0.5,)),
    **dict.fromkeys(("erfinv", "log_ndtr"), (lambda t, x: small(t, x) * 0.5,)),
    "ndtri": (lambda t, x: small(t, x) * 0.25 + 0.5,),
    "digamma": (lambda t, x: positive(t, x) * 40.0,),  # below PyTorch's second derivative has nine digits
    **dict.fromkeys(("lgamma", "i0", "i0e", "i1", "i1e"), (positive,)),
    "acosh": (lambda t, x: positive(t, x) + 1.0,),
    "atan2": (small, positive),
    "divide": (small, positive),
    "power": (positive, small),
    **dict.fromkeys(("maximum", "minimum"), (distinct, small)),
}


def pointwise(name, arity):
    """The operation of that name on operands from its domain."""
    domains = DOMAINS.get(name, (small,) * arity)
    return lambda t, *x: t.call(name, *(domain(t, value) for domain, value in zip(domains, x, strict=True)))


#: Operations by name, as functions of a library and of values: as many as there are parameters.
OTHERS = {
    "leaky_relu": lambda t, a: t.leaky_relu(a),
    "zeta": lambda t, a: t.zeta(positive(t, a)),
    "clip": lambda t, a: distinct(t, a).clip(1.5, 4.0),
    "matmul": lambda t, a, b, c: full(a) @ full(b).T @ full(small(t, c)),
    "linear": lambda t, a, b: t.linear(full(a), full(b)).sum(1)[:, None],
    "conv2d": lambda t, a, b: t.conv2d(image(a), image(b)[:, :, :3, :3]).reshape(SHAPE),
    "conv_transpose2d": lambda t, a, b: t.conv_transpose2d(image(a), image(b)[:, :, :3, :3]).reshape(SHAPE),
    "sum": lambda t, a: full(a).sum(0),
    "mean": lambda t, a: full(a).mean(1)[:, None],
    "max": lambda t, a: t.largest(distinct(t, a)),
    "min": lambda t, a: t.smallest(distinct(t, a)),
    "max_pool2d": lambda t, a: t.max_pool2d(image(distinct(t, a)), (4, 1)).reshape(6),
    "avg_pool2d": lambda t, a: t.avg_pool2d(image(a), (1, 6)).reshape(4, 1),
    "reshape": lambda t, a: (full(a).reshape(3, -1) * t.constant(RAMP.reshape(3, -1))).reshape(SHAPE),
    "transpose": lambda t, a: (full(a).T * t.constant(RAMP.T)).T,
    "broadcast_to": lambda t, a: full(a) * t.constant(RAMP),
    "index": lambda t, a: (full(a)[1::2, None, 2] * full(a)[0, [5, 0, 1, 1, 2, 5]]).sum(0),
    "pad": lambda t, a: t.pad(full(a)[1:]),
    "split": lambda t, a: full(a).split((1, 5), 1)[0] * full(a).split((2, 4), 1)[1].sum(1)[:, None],
    "concatenate": lambda t, a, b: t.concatenate([full(a)[:1], full(b)[2:], full(a)[3:]]),
    "stack": lambda t, a, b: t.stack([full(a), full(b)], 1)[:, 1] * full(a),
    "where": lambda t, a, b: t.where(t.constant(MASK), a, b),
    "embedding": lambda t, a: t.embedding(full(a), t.constant(ROWS)).reshape(SHAPE),
    "embedding_bag": lambda t, a: t.embedding_bag(full(a)[:2, :2]).sum(0),
    "var": lambda t, a: t.variance(distinct(t, a)),
    "softmax": lambda t, a: full(a).softmax(1),
    "log_softmax": lambda t, a: full(a).log_softmax(0),
    "logsumexp": lambda t, a: full(a).logsumexp(0),
    "layer_norm": lambda t, a: t.layer_norm(distinct(t, a)),
    "batch_norm": lambda t, a: t.batch_norm(distinct(t, a).reshape(1, 4, 2, 3)).reshape(SHAPE),
    "gelu_tanh": lambda t, a: t.gelu_tanh(a),
    "hardtanh": lambda t, a: t.hardtanh(distinct(t, a)),
    "silu": lambda t, a: t.silu(a),
    "softplus": lambda t, a: t.softplus(small(t, a)),
    "elu": lambda t, a: t.elu(a),
    "mish": lambda t, a: t.mish(small(t, a)),
    "log_sigmoid": lambda t, a: t.log_sigmoid(small(t, a)),
    "hardsigmoid": lambda t, a: t.hardsigmoid(a),
    "hardswish": lambda t, a: t.hardswish(a),
    "softshrink": lambda t, a: t.softshrink(a),
    "hardshrink": lambda t, a: t.hardshrink(a),
    "prelu": lambda t, a: t.prelu(a),
    "scaled_dot_product_attention": lambda t, a, b: t.attention(full(a), full(b), full(small(t, a))),
    "glu": lambda t, a: t.glu(full(a)).sum(1)[:, None],
    "group_norm": lambda t, a: t.group_norm(distinct(t, a).reshape(1, 4, 2, 3)).reshape(SHAPE),
    "huber_loss": lambda t, a, b: t.huber_loss(full(a), full(small(t, b)) + 0.1),
    "binary_cross_entropy": lambda t, a: t.binary_cross_entropy(full(positive(t, a)) / 2, t.constant(CHANCES)),
    "xlogy": lambda t, a, b: t.xlogy(a, positive(t, b)),
    "mse_loss": lambda t, a, b: t.mse_loss(full(a), full(b)),
    "smooth_l1_loss": lambda t, a, b: t.smooth_l1_loss(full(a), full(small(t, b)) + 0.1),
    "cross_entropy": lambda t, a: t.cross_entropy(full(a), t.constant(LABELS)),
    "binary_cross_entropy_with_logits": lambda t, a: t.binary_cross_entropy_with_logits(full(a), t.constant(CHANCES)),
    "ctc_loss": lambda t, a: t.ctc_loss(full(a).log_softmax(1).reshape(4, 1, 6), *CTC),
}
LACKING = {name for name in DIFFERENTIABLE if not pytorchs(name) and name not in OTHERS}
TABLE = {
    **{name: pointwise(name, len(row.slopes)) for name, row in DIFFERENTIABLE.items() if name not in LACKING},
    **OTHERS,
}
ARITY = {
    **{name: len(row.slopes) for name, row in DIFFERENTIABLE.items()},
    **{n: f.__code__.co_argcount - 1 for n, f in OTHERS.items()},
}


def loss_of(t, leaves, steps):
    """The sum of all values of a graph, each times numbers of its own."""
    values = list(leaves)
    for name, places in steps:
        values.append(TABLE[name](t, *(values[place] for place in places)))
    parts = [(full(value) * t.constant(np.cos(RAMP + i))).sum() for i, value in enumerate(values)]
    return sum(parts[1:], start=parts[0])


def assert_torchs(arrays, steps):
    """The loss of a graph and its gradients are torch's."""
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    want = loss_of(THEIRS, theirs, steps)
    want.backward()
    ours = [sf.Tensor(x, requires_grad=True) for x in arrays]
    with sf.simulate("fp64"):
        got = loss_of(OURS, ours, steps)
        got.backward()
    for mine, torchs in [(got.data, want.detach()), *((a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))]:
        # Terms of about 1 may cancel, in the loss and in a gradient: their roundings remain.
        scale = max(1.0, float(abs(torchs).max()))
        np.testing.assert_allclose(mine, torchs.numpy(), rtol=1e-12, atol=1e-12 * scale)


def test_every_operation_of_the_catalog_takes_part():
    assert set(TABLE) == {*OPERATIONS, *DIFFERENTIABLE} - {"update"} - LACKING


@pytest.mark.parametrize("name", TABLE)
def test_every_operation_alone_is_torchs(name):
    rng = np.random.default_rng(0)
    for shapes in (SHAPES[:3], SHAPES[2:]):
        assert_torchs([rng.standard_normal(shape) for shape in shapes], [(name, range(ARITY[name]))])


@st.composite
def graphs(draw):
    """Operations, each on values that were there before it, the latest more often than the others."""
    steps = []
    for count in range(3, 3 + draw(st.integers(2, 7))):
        name = draw(st.sampled_from(sorted(TABLE)))
        place = st.one_of(st.just(count - 1), st.integers(0, count - 1))
        steps.append((name, tuple(draw(place) for _ in range(ARITY[name]))))
    return steps


@settings(deadline=None, max_examples=60)
@given(steps=graphs(), shapes=st.lists(st.sampled_from(SHAPES), min_size=3, max_size=3), seed=st.integers(0, 2**32))
def test_random_graphs_are_torchs(steps, shapes, seed):
    rng = np.random.default_rng(seed)
    assert_torchs([rng.standard_normal(shape) for shape in shapes], steps)
