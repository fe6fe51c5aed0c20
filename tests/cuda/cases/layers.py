"""Every layer and loss, forward and backward."""

import inspect
from itertools import cycle

import numpy as np

import simfloat as sf
from simfloat.arithmetic.machines import is_on_gpu

POLICIES = ("bf16-stochastic", "fp16-standard", "mxfp8", "nvfp4", "fp8-delayed", "fp8-deepseek", "amp-bf16")

IMAGES, ROWS, LINES, WORDS = (2, 3, 6, 5), (3, 4), (2, 3, 4), np.array([[0, 3, 1], [2, 2, 4]])
VOLUMES, SMALL_IMAGES, SMALL_VOLUMES = (1, 3, 4, 5, 3), (1, 3, 3, 2), (1, 3, 2, 3, 1)


class Attending(sf.nn.Module):
    """Attention of a line to itself, without what it looked at."""

    def __init__(self, kind, **options):
        super().__init__()
        self.attention = kind(4, 2, rng=1, **options)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Last(sf.nn.Module):
    """All results of a recurrent layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


#: (layer, the shape of its input or the input itself)
LAYERS = {
    "AdaptiveAvgPool1d": (lambda: sf.nn.AdaptiveAvgPool1d(3), LINES),
    "AdaptiveAvgPool2d": (lambda: sf.nn.AdaptiveAvgPool2d((2, 3)), IMAGES),
    "AdaptiveAvgPool3d": (lambda: sf.nn.AdaptiveAvgPool3d((2, 3, 3)), VOLUMES),
    "AdaptiveMaxPool1d": (lambda: sf.nn.AdaptiveMaxPool1d(3), LINES),
    "AdaptiveMaxPool2d": (lambda: sf.nn.AdaptiveMaxPool2d((4, 3)), IMAGES),
    "AdaptiveMaxPool3d": (lambda: sf.nn.AdaptiveMaxPool3d((3, 3, 2)), VOLUMES),
    "AvgPool1d": (lambda: sf.nn.AvgPool1d(2, padding=1), LINES),
    "AvgPool2d": (lambda: sf.nn.AvgPool2d(2, padding=1), IMAGES),
    "AvgPool3d": (lambda: sf.nn.AvgPool3d(3, stride=2, padding=1), VOLUMES),
    "BatchNorm1d": (lambda: sf.nn.BatchNorm1d(4), ROWS), "BatchNorm2d": (lambda: sf.nn.BatchNorm2d(3), IMAGES),
    "CELU": (lambda: sf.nn.CELU(0.5), ROWS),
    "Conv1d": (lambda: sf.nn.Conv1d(3, 6, 2, stride=2, padding=1, groups=3, rng=1), LINES),
    "Conv2d": (lambda: sf.nn.Conv2d(3, 6, 2, stride=(2, 1), padding=1, groups=3, rng=1), IMAGES),
    "Conv3d": (lambda: sf.nn.Conv3d(3, 6, 2, stride=(1, 2, 1), padding=1, groups=3, rng=1), VOLUMES),
    "ConvTranspose1d": (lambda: sf.nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=1, rng=1), LINES),
    "ConvTranspose2d": (lambda: sf.nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1, rng=1), SMALL_IMAGES),
    "ConvTranspose3d": (lambda: sf.nn.ConvTranspose3d(3, 2, 3, stride=2, output_padding=1, rng=1), SMALL_VOLUMES),
    "Dropout": (lambda: sf.nn.Dropout(0.4), ROWS), "Dropout1d": (lambda: sf.nn.Dropout1d(0.4), LINES),
    "Dropout2d": (lambda: sf.nn.Dropout2d(0.4), IMAGES), "ELU": (lambda: sf.nn.ELU(0.7), ROWS),
    "Embedding": (lambda: sf.nn.Embedding(5, 3, padding_idx=2, rng=1), WORDS),
    "EmbeddingBag": (lambda: sf.nn.EmbeddingBag(5, 3, mode="mean", rng=1), WORDS),
    "Flatten": (lambda: sf.nn.Flatten(), IMAGES), "GELU": (lambda: sf.nn.GELU("tanh"), ROWS),
    "GLU": (lambda: sf.nn.GLU(), ROWS),
    "GRU": (lambda: Last(sf.nn.GRU(4, 3, bidirectional=True, batch_first=True, rng=1)), LINES),
    "GroupNorm": (lambda: sf.nn.GroupNorm(3, 3), IMAGES), "Hardshrink": (lambda: sf.nn.Hardshrink(), ROWS),
    "Hardsigmoid": (lambda: sf.nn.Hardsigmoid(), ROWS), "Hardswish": (lambda: sf.nn.Hardswish(), ROWS),
    "Hardtanh": (lambda: sf.nn.Hardtanh(), ROWS), "Identity": (lambda: sf.nn.Identity(), ROWS),
    "InstanceNorm1d": (lambda: sf.nn.InstanceNorm1d(3), LINES),
    "InstanceNorm2d": (lambda: sf.nn.InstanceNorm2d(3, affine=True), IMAGES),
    "LSTM": (lambda: Last(sf.nn.LSTM(4, 3, num_layers=2, rng=1)), LINES),
    "LayerNorm": (lambda: sf.nn.LayerNorm(4), ROWS), "LeakyReLU": (lambda: sf.nn.LeakyReLU(0.3), ROWS),
    "Linear": (lambda: sf.nn.Linear(4, 5, rng=1), LINES), "LogSigmoid": (lambda: sf.nn.LogSigmoid(), ROWS),
    "LogSoftmax": (lambda: sf.nn.LogSoftmax(), ROWS), "MLP": (lambda: sf.nn.MLP([4, 6, 2], rng=1), ROWS),
    "MaxPool1d": (lambda: sf.nn.MaxPool1d(3, stride=1, padding=1), LINES),
    "MaxPool2d": (lambda: sf.nn.MaxPool2d(3, stride=2, padding=1), IMAGES),
    "MaxPool3d": (lambda: sf.nn.MaxPool3d(3, stride=2, padding=1), VOLUMES), "Mish": (lambda: sf.nn.Mish(), ROWS),
    "ModuleList": (lambda: sf.nn.Sequential(*sf.nn.ModuleList([sf.nn.Linear(4, 2, rng=1), sf.nn.ReLU()])), ROWS),
    "MultiHeadAttention": (lambda: Attending(sf.nn.MultiHeadAttention), LINES),
    "MultiheadAttention": (lambda: Attending(sf.nn.MultiheadAttention, batch_first=True), LINES),
    "PReLU": (lambda: sf.nn.PReLU(4), ROWS), "RMSNorm": (lambda: sf.nn.RMSNorm(4), LINES),
    "RNN": (lambda: Last(sf.nn.RNN(4, 3, nonlinearity="relu", rng=1)), LINES), "ReLU": (lambda: sf.nn.ReLU(), ROWS),
    "ReLU6": (lambda: sf.nn.ReLU6(), ROWS), "ReLULinear": (lambda: sf.nn.ReLULinear(4, 2, rng=1), ROWS),
    "SELU": (lambda: sf.nn.SELU(), ROWS),
    "Sequential": (lambda: sf.nn.Sequential(sf.nn.Linear(4, 4, rng=1), sf.nn.Tanh(), sf.nn.Linear(4, 1, rng=2)), ROWS),
    "SiLU": (lambda: sf.nn.SiLU(), ROWS), "Sigmoid": (lambda: sf.nn.Sigmoid(), ROWS),
    "Softmax": (lambda: sf.nn.Softmax(dim=-1), ROWS), "Softplus": (lambda: sf.nn.Softplus(2.0, 1.0), ROWS),
    "Softshrink": (lambda: sf.nn.Softshrink(), ROWS), "Tanh": (lambda: sf.nn.Tanh(), ROWS),
    "TransformerEncoderLayer": (lambda: sf.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, rng=1), LINES),
    "Unflatten": (lambda: sf.nn.Unflatten(1, (2, 2)), ROWS),
}  # fmt: skip

#: (loss of a tensor, the shape of that)
LOSSES = {
    "binary_cross_entropy_with_logits": (
        lambda x, move: sf.nn.binary_cross_entropy_with_logits(x, move(np.array([[1, 0, 1.0, 0.5]] * 3))),
        ROWS,
    ),
    "binary_cross_entropy": (
        lambda x, move: sf.nn.binary_cross_entropy(x.sigmoid(), move(np.array([[1, 0, 1.0, 0.5]] * 3))),
        ROWS,
    ),
    "huber_loss": (lambda x, move: sf.nn.huber_loss(x, move(np.zeros(ROWS)), delta=0.5), ROWS),
    "l1_loss": (lambda x, move: sf.nn.l1_loss(x, move(np.zeros(ROWS))), ROWS),
    "cross_entropy": (lambda x, move: sf.nn.cross_entropy(x, move(np.array([3, 0, 2])), label_smoothing=0.1), ROWS),
    "ctc_loss": (lambda x, move: sf.nn.ctc_loss(x.log_softmax(-1), [[1, 2], [3, 3]], [5, 4], [2, 1]), (5, 2, 4)),
    "nll_loss": (lambda x, move: sf.nn.nll_loss(x.log_softmax(-1), move(np.array([3, 0, 2]))), ROWS),
    "mse_loss": (lambda x, move: sf.nn.mse_loss(x, move(np.ones(ROWS))), ROWS),
    "smooth_l1_loss": (lambda x, move: sf.nn.smooth_l1_loss(x, move(np.zeros(ROWS)), beta=0.5), ROWS),
}


def public(module, kind):
    """The names of the classes of a kind that a module exports."""
    return {name for name in module.__all__ if inspect.isclass(cls := getattr(module, name)) and issubclass(cls, kind)}


def input_of(shape):
    """Random numbers in this shape, or the input itself."""
    if isinstance(shape, np.ndarray):
        return shape
    return np.random.default_rng(15).standard_normal(shape).astype(np.float32)


def device_of(array):
    """The name of the device of an array."""
    return "cuda" if is_on_gpu(array) else "cpu"


def layers(move):
    """Every layer, forward and backward, each under another policy."""
    for (make, shape), policy in zip(LAYERS.values(), cycle(POLICIES), strict=False):
        x = move(input_of(shape))
        model = make().to(device_of(x))
        x = sf.Tensor(x, requires_grad=True) if x.dtype.kind == "f" else x
        with sf.simulate(policy, seed=2):
            y = model(x)
            (y * y).mean().backward()
        yield y.data
        yield from [x.grad] if isinstance(x, sf.Tensor) else []
        yield from (one.grad for _, one in model.named_parameters())
        yield from model.state_dict().values()


def attention(move):
    """Attention as kernels compute it: causal, with dropout, four heads to two, and with scales of heads."""
    kernels = sf.flash_attention(2, exponential="exp2", block_queries=2), sf.attention_kernels["flash-attention-3-fp8"]
    for policy, kernel in zip(("amp-bf16", "fp8-hybrid"), kernels, strict=True):
        x = sf.Tensor(move(input_of((2, 4, 5, 4))), requires_grad=True)
        chosen = sf.policies[policy].override(operation="scaled_dot_product_attention", fused=kernel)
        with sf.simulate(chosen, seed=2):
            options = {"is_causal": True, "dropout_p": 0.3, "enable_gqa": True}
            y = sf.nn.scaled_dot_product_attention(x, x[:, :2], x[:, 2:], **options)
            (y * y).mean().backward()
        yield from (y.data, x.grad)


def losses(move):
    """Every loss, forward and backward; and one as a module, whose weights go where it goes."""
    for (loss, shape), policy in zip(LOSSES.values(), cycle(POLICIES), strict=False):
        x = sf.Tensor(move(input_of(shape)), requires_grad=True)
        with sf.simulate("bf16-standard" if loss is LOSSES["ctc_loss"][0] else policy, seed=2):
            value = loss(x, move)
            value.backward()
        yield from (value.data, x.grad)
    x = sf.Tensor(move(input_of(ROWS)), requires_grad=True)
    with sf.simulate("bf16-standard"):
        divergence = sf.nn.kl_div(x.log_softmax(-1), move(np.array([[0.5, 0.25, 0.25, 0.0]] * 3)))
        divergence.backward()
    yield from (divergence.data, x.grad)
    x = move(input_of(ROWS))
    weighted = sf.nn.CrossEntropyLoss(weight=[1.0, 0.5, 2.0, 0.0]).to(device_of(x))
    with sf.simulate("fp32"):
        yield weighted(sf.Tensor(x), move(np.array([3, 0, 2]))).data


def conditions(move):
    """Choices and places that lie on the CPU, of tensors on the GPU."""
    with sf.simulate("bf16-standard"):
        x = sf.Tensor(move(input_of(ROWS)), requires_grad=True)
        chosen = sf.where(np.arange(4) % 2 == 0, x, -1.0) + sf.where(x > 0, x, 0.5)
        picked = chosen[[2, 0, 2]] + chosen[np.array([1, 1, -1])] + x[:, np.array([3, 0, 0, 1])]
        (picked.sum() + x[np.arange(3)[:, np.newaxis] > 0 * np.arange(4)].sum()).backward()
    yield from (picked.data, x.grad)


def slopes(move):
    """Derivatives with numbers and bounds on the CPU."""
    for function in (
        *(lambda x: x.clip(-0.5, 0.5), lambda x: 2.0**x, lambda x: x**0.0, lambda x: x**3.0, lambda x: 2.0 / x),
        *(lambda x: x.square(), lambda x: x.abs().sqrt(), lambda x: x.abs().rsqrt(), lambda x: x.maximum(0.25)),
        *(lambda x: x.fmod(0.75), lambda x: x.remainder(0.75), lambda x: x.copysign(-1.0), lambda x: x.floor() * x),
    ):
        x = sf.Tensor(move(input_of(ROWS)), requires_grad=True)
        with sf.simulate("bf16-standard"):
            y = function(x)
            y.sum().backward()
        yield from (y.data, x.grad)
