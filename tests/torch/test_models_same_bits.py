"""Convolutional, recurrent and attention models have the same bits in simfloat.nn and in PyTorch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import simfloat as sf

POLICIES = {
    **{
        name: sf.policies[name]
        for name in ("fp32", "amp-bf16", "fp16-standard", "fp8-hybrid", "fp8-delayed", "mxfp8", "bf16-kahan")
    },
    "other accumulators": replace(
        sf.policies["bf16-standard"],
        accumulate=sf.blocked(4, inner=sf.FP16, outer=sf.FP32),
        reduce=sf.pairwise(sf.FP32),
    ),
}


class Convolutional:
    """A convolution, batch normalization, and a linear layer."""

    def build(self, nn):
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(4 * 2 * 2, 4)

    def forward(self, x):
        return self.head(self.pool(self.norm(self.conv(x)).relu()).reshape(x.shape[0], 16))


class Averaged(Convolutional):
    """The same with averages of all batches, and none of the normalization's own parameters."""

    def build(self, nn):
        super().build(nn)
        self.norm = nn.BatchNorm2d(4, momentum=None, affine=False)


class Transformer:
    """Two heads of attention and two linear layers, each behind a layer normalization."""

    def build(self, nn):
        self.tokens, self.qkv, self.out = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8, bias=False)
        self.up, self.down, self.head = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 4)
        self.gelu = nn.GELU()
        self.attend = functional.scaled_dot_product_attention if nn is torch.nn else nn.scaled_dot_product_attention

    def forward(self, tokens):
        x = self.tokens(tokens)
        n, length, width = x.shape
        heads = self.qkv(self.first(x)).reshape(n, length, 3, 2, width // 2)
        q, k, v = (heads[:, :, i].swapaxes(1, 2) for i in range(3))
        x = x + self.out(self.attend(q, k, v, is_causal=True).swapaxes(1, 2).reshape(n, length, width))
        x = x + self.down(self.gelu(self.up(self.second(x))))
        return self.head(x)


class Normalized:
    """Linear layers whose results a normalization reads: under automatic mixed precision an operation in FP32."""

    def build(self, nn):
        self.enter, self.up = nn.LayerNorm(6), nn.Linear(6, 8)
        self.gelu, self.norm, self.head = nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4, bias=False)
        self.last = nn.LayerNorm(4)

    def forward(self, x):
        return self.last(self.head(self.norm(self.gelu(self.up(self.enter(x))))))


class Forked:
    """A narrow result that a normalization, a linear layer and the identity read."""

    def build(self, nn):
        self.enter, self.norm, self.up, self.head = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        x = self.enter(x)
        return self.head(self.norm(x) + self.up(x) + x)


class Recurrent:
    """A recurrent layer and a linear one on its last outputs."""

    kind, options = "LSTM", {}

    def build(self, nn):
        self.layer = getattr(nn, self.kind)(6, 5, batch_first=True, **self.options)
        self.head = nn.Linear(5 * (1 + self.options.get("bidirectional", False)), 4)

    def forward(self, x):
        outputs, _ = self.layer(x)
        return self.head(outputs[:, -1])


class Deep(Recurrent):
    options = {"num_layers": 2, "bidirectional": True}


class Projected(Recurrent):
    def build(self, nn):
        self.layer = nn.LSTM(6, 7, batch_first=True, proj_size=5)
        self.head = nn.Linear(5, 4)


class Gated(Recurrent):
    kind = "GRU"


class Plain(Recurrent):
    kind = "RNN"


class Rectified(Recurrent):
    kind, options = "RNN", {"nonlinearity": "relu"}


class Attending(Recurrent):
    """Attention among the positions of several examples, which come first."""

    def build(self, nn):
        self.layer, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.layer(x, x, x, need_weights=False)[0][:, -1])


class Encoding(Recurrent):
    """A layer of an encoder."""

    def build(self, nn):
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        return self.head(self.layer(x)[:, -1])


class Sequenced(Recurrent):
    """A small LeNet on sequences."""

    def build(self, nn):
        self.features = nn.Sequential(nn.Conv1d(3, 4, 3, padding=1), nn.Tanh(), nn.AvgPool1d(2))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(4 * 3, 4))

    def forward(self, x):
        return self.classifier(self.features(x))


class Residual(Convolutional):
    """A block of a ResNet with group normalization."""

    def build(self, nn):
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, 4), nn.GroupNorm(2, 4)])
        self.shortcut, self.act = nn.Conv2d(2, 4, 1, bias=False), nn.ReLU()
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))

    def forward(self, x):
        y = self.norms[1](self.second(self.act(self.norms[0](self.first(x)))))
        return self.head(self.act(y + self.shortcut(x)))


ANGLES = np.outer(np.arange(3), 100.0 ** -np.tile(np.arange(2) / 2, 2))


def turned(x):
    """Queries or keys, of four numbers at each of three places, turned by angles that grow with the place."""
    is_ours = isinstance(x, sf.Tensor)
    cos, sin = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
    first, second = x[..., :2], x[..., 2:]
    crossed = sf.concatenate([-second, first], -1) if is_ours else torch.cat([-second, first], -1)
    return x * cos + crossed * sin if is_ours else x * torch.from_numpy(cos) + crossed * torch.from_numpy(sin)


class Llama(Recurrent):
    """A block of a Llama: RMSNorm, rotary positions, two heads that share keys and values, and a gate."""

    def build(self, nn):
        self.enter, self.norms = nn.Linear(6, 8, bias=False), nn.ModuleList([nn.RMSNorm(8, eps=1e-3), nn.RMSNorm(8)])
        self.q, self.k, self.v, self.o = (nn.Linear(8, n, bias=False) for n in (8, 4, 4, 8))
        self.gate, self.up, self.down = nn.Linear(8, 12, bias=False), nn.Linear(8, 12, bias=False), nn.Linear(12, 8)
        self.act, self.head = nn.SiLU(), nn.Linear(8, 4, bias=False)
        self.attend = functional.scaled_dot_product_attention if nn is torch.nn else nn.scaled_dot_product_attention

    def forward(self, x):
        x = self.enter(x)
        y = self.norms[0](x)
        q = turned(self.q(y).reshape(4, 3, 2, 4).swapaxes(1, 2))
        k, v = turned(self.k(y).unsqueeze(1)), self.v(y).unsqueeze(1)
        k, v = k.broadcast_to((4, 2, 3, 4)), v.broadcast_to((4, 2, 3, 4))
        x = x + self.o(self.attend(q, k, v, is_causal=True).swapaxes(1, 2).reshape(4, 3, 8))
        y = self.norms[1](x)
        return self.head(x + self.down(self.act(self.gate(y)) * self.up(y)))[:, -1]


MODELS = [
    Convolutional, Sequenced, Residual, Llama, Averaged, Transformer, Normalized, Forked, Recurrent, Deep, Projected,
    Gated, Plain, Rectified, Attending, Encoding,
]  # fmt: skip


def made(kind, nn):
    def start(self):
        nn.Module.__init__(self)
        kind.build(self, nn)

    return type(kind.__name__, (kind, nn.Module), {"__init__": start})()


def batches(kind):
    rng = np.random.default_rng(4)
    for _ in range(3):
        if kind is Transformer:
            yield rng.integers(0, 11, (2, 4)), rng.normal(size=(2, 4, 4)).astype(np.float32)
        else:
            shape = (
                (4, 2, 4, 4)
                if issubclass(kind, Convolutional)
                else (4, 3, 6)
                if issubclass(kind, Recurrent)
                else (4, 6)
            )
            yield rng.normal(size=shape).astype(np.float32), rng.normal(size=(4, 4)).astype(np.float32)


def numbers_of(x):
    """A copy of the numbers of a tensor of either library."""
    if isinstance(x, torch.Tensor):
        return x.detach().numpy().astype(np.float64)
    return np.array(x.data if isinstance(x, sf.Tensor) else x, np.float64)


def steps(model, optimizer, block, tensor, kind):
    """Everything that training three steps gives, by name, and then a step in evaluation."""
    found = {}
    with block:
        for number, (x, y) in enumerate(batches(kind)):
            if number == 2:
                model.eval()
            optimizer.zero_grad()
            output = model(torch.from_numpy(x) if tensor is torch.from_numpy else x)
            difference = output - tensor(y)
            loss = (difference * difference).mean()
            loss.backward()
            found[f"{number} output"], found[f"{number} loss"] = output, loss
            for name, p in model.named_parameters():
                found[f"{number} gradient of {name}"] = p.grad
            optimizer.step()
            for name, value in model.state_dict().items():
                found[f"{number} {name}"] = value
            found = {key: numbers_of(value) for key, value in found.items()}
    return found


#: Models and policies under which bits differ (docs/pytorch_semantics.md). Both linear layers of PyTorch's attention
#: layer have one path, so they share the amax histories of delayed scaling. Under automatic mixed precision, if one of
#: the readers of a tensor is an operation in FP32, the gradients of the tensor are added in another format.
DIFFERENT = {(Attending, "fp8-delayed"), (Encoding, "fp8-delayed"), (Encoding, "amp-bf16"), (Llama, "amp-bf16")}

PAIRS = [(kind, policy) for kind in MODELS for policy in POLICIES if (kind, policy) not in DIFFERENT]


@pytest.mark.parametrize("kind, policy", PAIRS)
def test_layers_of_both_libraries_train_to_the_same_bits(kind, policy):
    torch.manual_seed(2)
    theirs, ours = made(kind, torch.nn), made(kind, sf.nn)
    ours.load_state_dict({key: value.numpy().copy() for key, value in theirs.state_dict().items()})
    by_torch = steps(
        theirs, torch.optim.SGD(theirs.parameters(), 0.25, momentum=0.5),
        sf.torch.simulate(theirs, POLICIES[policy], 5), torch.from_numpy, kind,
    )  # fmt: skip
    by_us = steps(
        ours, sf.optim.SGD(ours.parameters(), 0.25, momentum=0.5), sf.simulate(POLICIES[policy], 5), sf.Tensor, kind
    )
    assert list(by_torch) == list(by_us)
    assert not [name for name in by_us if by_us[name].tobytes() != by_torch[name].tobytes()]
