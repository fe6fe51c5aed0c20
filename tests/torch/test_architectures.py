"""Whole models: gradients under fp64 equal plain PyTorch's, and every tensor has the format of its role."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from tests.torch import test_same_bits as shared
from tests.torch.compared import compare_with_plain, made

#: Every role has a format of its own, so that a tensor with another role's would show.
POLICY = sf.Policy(
    compute=sf.BF16, compute_gradients=sf.E5M2, activations=sf.Format(8, 10), activation_gradients=sf.Format(8, 12),
    weight_gradients=sf.Format(8, 14), weights=sf.Format(8, 16), optimizer_state=sf.Format(8, 18),
)  # fmt: skip


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def tokens(*shape):
    return torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(2))


class Adversaries(nn.Module):
    """A DCGAN: a generator of transposed convolutions, and the discriminator that sees what it makes."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(5, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU(True),
            nn.ConvTranspose2d(6, 2, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(2, 6, 4, 2, 1), nn.BatchNorm2d(6), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(6, 1, 3),
            nn.Flatten(),
        )  # fmt: skip

    def forward(self, noise):
        return self.discriminator(self.generator(noise[:, :, None, None]))


class UNet(nn.Module):
    """Two steps down, two up, with skip connections."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = self.block(2, 4), self.block(4, 6), self.block(6, 8)
        self.up2, self.right2 = nn.ConvTranspose2d(8, 6, 2, 2), self.block(12, 6)
        self.up1, self.right1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), self.block(10, 4)
        self.head = nn.Conv2d(4, 3, 1)

    def block(self, before, after):
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU())

    def forward(self, x):
        high = self.down1(x)
        low = self.down2(F.max_pool2d(high, 2))
        y = self.right2(torch.cat([low, self.up2(self.middle(F.max_pool2d(low, 2)))], 1))
        return self.head(self.right1(torch.cat([high, self.up1(y)], 1))).mean((2, 3))


class Bert(nn.Module):
    """Tokens, places and segments; an encoder that looks both ways, and a pooled first token."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8, padding_idx=0), nn.Embedding(6, 8)
        self.segments, self.norm = nn.Embedding(2, 8), nn.LayerNorm(8, eps=1e-12)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pooler, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1])) + self.segments(torch.zeros_like(words))
        x = self.encoder(self.norm(x), src_key_padding_mask=words == 0)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class Block(nn.Module):
    """GPT-2's: what comes before is normalized, and added again; one projection for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.attention(self.norm1(x)).chunk(3, -1))
        scores, steps = (q @ k.transpose(-2, -1)) / 4**0.5, x.shape[1]
        scores = scores.masked_fill(~torch.ones(steps, steps, dtype=torch.bool).tril(), float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        return self.head(self.norm(self.blocks(x)))[:, -1, :3]


def of_both(kind):
    """A model that both packages have, as one of PyTorch."""
    return lambda: made(getattr(shared, kind), nn)


MODELS = {
    "dcgan": (Adversaries, numbers(4, 5)), "unet": (UNet, numbers(2, 2, 4, 4)), "bert": (Bert, tokens(4, 5)),
    "gpt2": (Gpt, tokens(4, 5)), "llama": (of_both("Llama"), numbers(4, 3, 6)),
    "resnet": (of_both("Residual"), numbers(4, 2, 4, 4)), "cnn": (of_both("Convolutional"), numbers(4, 2, 4, 4)),
}  # fmt: skip
CLASSES = torch.tensor([0, 2, 1, 1])


def loss_of(z):
    if z.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(z, torch.ones_like(z))
    return F.cross_entropy(z, CLASSES[: len(z)])


def holds(format, tensor):
    return bool((sf.round(tensor.detach().numpy(), format) == tensor.detach().numpy()).all())


@pytest.mark.parametrize("name", MODELS)
def test_gradients_under_fp64_are_those_of_plain_pytorch_and_every_tensor_is_of_its_roles_format(name):
    make, x = MODELS[name]
    compare_with_plain(make, x)
    model, x = make(), x.float() if x.is_floating_point() else x
    results, passed = {}, []

    def seen(path, y):
        if isinstance(y, torch.Tensor):
            results.setdefault(path, []).append(y)
            y.register_hook(lambda g: passed.append(g))

    for path, module in model.named_modules():
        if path and not list(module.children()):
            module.register_forward_hook(lambda module, x, y, path=path: seen(path, y))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    with sf.torch.simulate(model, POLICY):
        loss_of(model(x)).backward()
        assert results and passed
        tables = {path for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
        for path, outputs in results.items():
            format = POLICY.weights if path in tables else POLICY.activations  # rows of a table are moved
            assert all(holds(format, y) for y in outputs), path
        assert all(holds(POLICY.activation_gradients, g) for g in passed)
        assert all(holds(POLICY.weight_gradients, p.grad) for p in model.parameters())
        optimizer.step()
    assert all(holds(POLICY.weights, p) for p in model.parameters())
    moments = [optimizer.state[p][key] for p in model.parameters() for key in ("exp_avg", "exp_avg_sq")]
    assert all(holds(POLICY.optimizer_state, moment) for moment in moments)
    # No role's format is another's, or these would not be told apart.
    assert not all(holds(POLICY.activations, p.grad) for p in model.parameters())


@pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama"])
def test_models_of_hugging_face_run_unchanged(name):
    transformers = pytest.importorskip("transformers", reason="not among the packages that tests install")
    config = getattr(transformers, f"{name}Config")(
        vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_key_value_heads=1, max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    kind = "BertForMaskedLM" if name == "Bert" else f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    words, found = tokens(2, 6), []
    # In float32, as there are casts to it in these models, by which the loss and rotary places are computed.
    for policy in (None, "fp32", "bf16-standard"):
        torch.manual_seed(0)
        model = getattr(transformers, kind)(config)
        with nullcontext() if policy is None else sf.torch.simulate(model, policy):
            model(input_ids=words, labels=words).loss.backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    plain, same, narrow = found
    largest = max(float(g.abs().max()) for g in plain)
    for a, b in zip(plain, same, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * largest)
    assert len(plain) == len(narrow) and all(holds(sf.BF16, g) for g in narrow)
