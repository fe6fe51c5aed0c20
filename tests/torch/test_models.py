"""Models: gradients under fp64 equal those of plain PyTorch, and every tensor has its format."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf


class Images(nn.Module):
    """A residual block with batch normalization and pooling, and grouped and dilated convolutions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2)
        self.pool, self.head = nn.MaxPool2d(3, 2, 1), nn.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        return self.head(self.pool(x + self.second(x)).flatten(1))


class Decoder(nn.Module):
    """A U-Net's half: transposed convolutions, group normalization, upsampling."""

    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(2, 4, 3, 2, 1), nn.GroupNorm(2, 4)
        self.up = nn.ConvTranspose2d(4, 3, 3, 2, 1, output_padding=1)

    def forward(self, x):
        x = F.interpolate(self.up(F.silu(self.norm(self.down(x)))), scale_factor=2.0)
        return F.leaky_relu(x, 0.1).mean((2, 3))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.head = kind(3, 4, 2, batch_first=True, bidirectional=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


class Generator(nn.Module):
    """A GPT with tied weights."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.norm = nn.Embedding(11, 8), nn.Embedding(5, 8), nn.LayerNorm(8)
        self.attention, self.out, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        rows, steps, width = x.shape
        q, k, v = (t.view(rows, steps, 2, 4).transpose(1, 2) for t in self.attention(self.norm(x)).split(8, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return self.head(x + F.gelu(self.out(y), approximate="tanh"))[:, -1, :3]


class Rotated(nn.Module):
    """A Llama's block: root mean square normalization, rotated halves, a gated linear unit."""

    def __init__(self):
        super().__init__()
        self.norm, self.gate, self.up = nn.RMSNorm(8), nn.Linear(8, 6, bias=False), nn.Linear(8, 6, bias=False)
        self.down = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        half = torch.cat((-x[..., 4:], x[..., :4]), -1)
        x = self.norm(x * x.detach().cos() + half * x.detach().sin())
        return self.down(F.silu(self.gate(x)) * self.up(x)).mean(1)


class Bags(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(7, 4, mode=mode, padding_idx=2), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.table(x))


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def integers(below, *shape):
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(2))


MODELS = {
    "images": (Images, numbers(4, 2, 4, 4)),
    "decoder": (Decoder, numbers(4, 2, 6, 6)),
    "rnn": (lambda: Recurrent(nn.RNN), numbers(4, 3, 3)),
    "lstm": (lambda: Recurrent(nn.LSTM), numbers(4, 3, 3)),
    "gru": (lambda: Recurrent(nn.GRU), numbers(4, 3, 3)),
    "encoder": (Encoder, numbers(4, 3, 8)),
    "gpt": (Generator, integers(11, 4, 5)),
    "llama": (Rotated, numbers(4, 3, 8)),
    "bag_sum": (lambda: Bags("sum"), integers(7, 4, 3)),
    "bag_mean": (lambda: Bags("mean"), integers(7, 4, 3)),
    "bag_max": (lambda: Bags("max"), integers(7, 4, 3)),
    "sequence": (lambda: nn.Sequential(nn.Conv1d(3, 3, 2), nn.Flatten(), nn.Tanh()), numbers(4, 3, 2)),
}
CLASSES = torch.tensor([0, 2, 1, 1])
TARGETS = numbers(4, 3)
LOSSES = {
    "cross_entropy": lambda z: F.cross_entropy(z, CLASSES, weight=torch.tensor([1.0, 2.0, 3.0], dtype=z.dtype)),
    "ignored": lambda z: F.cross_entropy(z, CLASSES, ignore_index=1),
    "mse": lambda z: F.mse_loss(z, TARGETS.to(z.dtype)),
    "smooth_l1": lambda z: F.smooth_l1_loss(z, TARGETS.to(z.dtype), beta=0.7),
    "huber": lambda z: F.huber_loss(z, TARGETS.to(z.dtype)),
    "l1": lambda z: F.l1_loss(z, TARGETS.to(z.dtype)),
    "logits": lambda z: F.binary_cross_entropy_with_logits(z, TARGETS.sigmoid().to(z.dtype)),
    "divergence": lambda z: F.kl_div(z.log_softmax(1), TARGETS.softmax(1).to(z.dtype), reduction="batchmean"),
    "statistics": lambda z: z.logsumexp(1).mean() + z.var() + z.std(0).norm() + z.clamp(-0.5, 0.5).abs().sum(),
}


def gradients(make, x, loss, policy, dtype=torch.float64):
    torch.manual_seed(0)
    model = make().to(dtype)
    x = x.to(dtype) if x.is_floating_point() else x
    if policy is None:
        value = loss(model(x))
        value.backward()
    else:
        with sf.torch.simulate(model, policy):
            value = loss(model(x))
            value.backward()
    return [value.detach(), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]


def differences(a, b):
    largest = max(float(x.double().norm()) for x in a)
    return max(float((x.double() - y.double()).norm()) / largest for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_under_fp64_are_those_of_plain_torch(name):
    make, x = MODELS[name]
    plain, simulated = (gradients(make, x, LOSSES["cross_entropy"], policy) for policy in (None, "fp64"))
    assert differences(plain, simulated) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_gradients_under_bf16_are_bf16_numbers_near_those_of_plain_torch(name):
    make, x = MODELS[name]
    plain, simulated = (gradients(make, x, LOSSES["mse"], policy, torch.float32) for policy in (None, "bf16-standard"))
    assert all(torch.equal(t, t.bfloat16().to(t.dtype)) for t in simulated)
    assert differences(plain, simulated) < 0.2


@pytest.mark.parametrize("name", LOSSES)
def test_losses_under_fp64_are_those_of_plain_torch(name):
    make = lambda: nn.Linear(5, 3)  # noqa: E731
    plain, simulated = (gradients(make, numbers(4, 5), LOSSES[name], policy) for policy in (None, "fp64"))
    assert differences(plain, simulated) < 1e-12


def test_an_evaluated_model_uses_running_statistics():
    torch.manual_seed(0)
    model, x = Images().double().eval(), numbers(4, 2, 4, 4)
    expected = model(x)
    with sf.torch.simulate(model, "fp64"), torch.no_grad():
        assert differences([expected], [model(x)]) < 1e-12
