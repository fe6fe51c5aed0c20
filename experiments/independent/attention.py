"""Findings on attention: rows and kernels of a trained GPT, and rotary positions in PyTorch's own bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.independent import casts
from experiments.independent.narrow import Array, Remade, lies_between, ratio_above, seeds, to_nearest

#: Significant bits of BF16, and letters of a context.
BF16, CONTEXT = 8, 64


def rotary() -> tuple[Remade, Remade, Remade]:
    """Rotate queries and keys by angles, tables or products in bfloat16, at positions up to 131072."""
    positions = 2 ** np.arange(8, 18)
    errors: dict[tuple[int, str], list[float]] = {}
    for seed in seeds(5):
        for position in positions:
            for name, error in rotary_errors(seed, int(position)).items():
                errors.setdefault((seed, name), []).append(error)
    ends = {name: [errors[seed, name][-1] for seed in seeds(5)] for name in ("angles", "frequencies", "after", "none")}
    slopes = [np.polyfit(np.log(positions), np.log(errors[seed, "after"]), 1)[0] for seed in seeds(5)]
    near = np.divide(ends["frequencies"], ends["none"])
    return (
        Remade(
            "rotary-positions",
            "angles need FP32",
            f"{100 * np.mean(ends['angles']):.0f} % of the scores",
            ratio_above(ends["angles"], ends["none"], 10),
        ),
        Remade(
            "rotary-positions",
            "frequencies in BF16: scores of near keys",
            f"{np.mean(near):.2f} times the error in FP32",
            lies_between(np.log(near), -np.inf, np.log(2)),
        ),
        Remade(
            "rotary-positions",
            "tables and rotation in BF16: the error grows",
            f"exponent {np.mean(slopes):.3f}",
            lies_between(slopes, 0.1, np.inf),
        ),
    )


def rotary_errors(seed: int, position: int) -> dict[str, float]:
    """Return relative errors of scores of keys that are less than 16 positions before the query."""
    import torch

    torch.manual_seed(seed)
    narrow, wide = torch.bfloat16, torch.float32
    vectors = torch.randn(2, 500, 32, 2).to(narrow)
    places = torch.stack([torch.full((500,), position), position - torch.randint(0, 16, (500,))])
    powers = 10000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)

    def scores(frequency: Any, angle: Any, after: Any) -> Any:
        angles = (places[..., None].to(frequency) * powers.to(frequency)).to(angle)
        table = angles if angle == torch.float64 else angles.to(wide)
        cos, sin = table.cos().to(after), table.sin().to(after)
        x, y = vectors.to(after).unbind(-1)
        rotated = torch.stack([x * cos - y * sin, y * cos + x * sin], -1)
        rotated = rotated if after == torch.float64 else rotated.to(narrow)
        return rotated.double().prod(0).sum((-1, -2))

    exact = scores(torch.float64, torch.float64, torch.float64)
    found = {
        "none": scores(wide, wide, wide),
        "angles": scores(wide, narrow, wide),
        "after": scores(wide, wide, narrow),
    }
    powers = powers.to(narrow).double()
    found["frequencies"] = scores(wide, wide, wide)
    return {
        name: float(((each - exact).square().mean() / exact.square().mean()).sqrt()) for name, each in found.items()
    }


def trained_rows() -> tuple[Remade, Remade]:
    """Train GPTs of one block on Python's documentation, and round P V of their rows."""
    shares, biases = [], []
    for seed in seeds(5):
        query, key, value = trained_heads(seed)
        scores = (query @ key.swapaxes(-1, -2) / 4).astype(np.float32)
        scores = np.where(np.tril(np.ones((CONTEXT, CONTEXT), bool)), scores, -np.inf)[..., 16:, :]
        weights = np.exp((scores - scores.max(-1, keepdims=True)).astype(np.float64))
        narrow = to_nearest(weights, BF16)
        product = narrow @ value
        biases.append(float(np.mean(to_nearest(product, BF16) / product - 1)) * 2**BF16)
        shares.append(float(np.mean((narrow == 1).sum(-1) > 1)))
    return (
        Remade(
            "attention-rows",
            "many rows of a trained GPT",
            f"{100 * np.mean(shares):.1f} % of rows",
            lies_between(shares, 0.1, np.inf),
        ),
        Remade(
            "attention-rows",
            "scores as they are: the bias of P V",
            f"{np.mean(biases):.4f} u",
            lies_between(np.divide(biases, 0.284), -0.1, 0.1),
        ),
    )


def trained_heads(seed: int) -> list[Array]:
    """Return query, key and value in BF16 (examples, heads, letters, 16) of a block that was trained in float32."""
    weights, held_out = train_block(seed)
    return [part.detach().bfloat16().double().numpy() for part in project(weights, held_out)[1]]


def project(weights: dict[str, Any], x: Any) -> tuple[Any, list[Any]]:
    """Return the embedded letters, and query, key and value by heads."""
    from torch.nn.functional import layer_norm

    hidden = weights["token"][x] + weights["place"]
    parts = (layer_norm(hidden, (32,)) @ weights["qkv"]).chunk(3, -1)
    return hidden, [part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parts]


def train_block(seed: int, pieces: int = 16, apart: int = 1000) -> tuple[dict[str, Any], Any]:
    """Train a GPT of one block in float32; return its weights, and held-out pieces of text some letters apart."""
    import pydoc_data.topics

    import torch
    from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

    torch.set_num_threads(1)  # these products are too small for threads
    generator = torch.Generator().manual_seed(seed)
    text = "".join(pydoc_data.topics.topics.values())
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(letter) for letter in text[:200_000]])
    shapes = {"token": (len(letters), 32), "place": (CONTEXT, 32), "qkv": (32, 96), "out": (32, 32)}
    shapes |= {"up": (32, 128), "down": (128, 32)}
    weights = {
        name: (0.05 * torch.randn(shape, generator=generator)).requires_grad_() for name, shape in shapes.items()
    }

    def logits(x: Any) -> Any:
        hidden, parts = project(weights, x)
        query, key, value = parts
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        hidden = hidden + mixed @ weights["out"]
        hidden = hidden + gelu(layer_norm(hidden, (32,)) @ weights["up"]) @ weights["down"]
        return layer_norm(hidden, (32,)) @ weights["token"].T

    optimizer = torch.optim.Adam(weights.values(), lr=3e-3)
    for _ in range(400):
        starts = torch.randint(0, 180_000, (8, 1), generator=generator) + torch.arange(CONTEXT)
        loss = cross_entropy(logits(tokens[starts]).flatten(0, 1), tokens[starts + 1].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights, tokens[180_000 + torch.arange(pieces)[:, None] * apart + torch.arange(CONTEXT)]


def kernels() -> tuple[Remade, Remade]:
    """Compute logits of one model with sums in parts of 16, 8 or 4 products, in BF16, in FP16 and in float32."""
    divergences: dict[str, list[float]] = {"bf16": [], "fp16": [], "float32": []}
    for seed in seeds(10):
        weights, held_out = train_block(seed, pieces=300, apart=CONTEXT)
        for name, to, stored in (
            ("bf16", casts.bf16, casts.bf16),
            ("fp16", casts.fp16, casts.fp16),
            ("float32", casts.exact, casts.bf16),
        ):
            rounded = {key: stored(weight.detach()) for key, weight in weights.items()}
            first, *others = (log_shares(rounded, held_out, to, terms) for terms in (16, 8, 4))
            pairs = [float((first.exp() * (first - other)).sum(-1).mean()) for other in others]
            divergences[name].append(float(np.mean(pairs)))
    ratios = {name: np.divide(divergences["bf16"], divergences[name]) for name in ("fp16", "float32")}
    claims = {"fp16": "FP16: kernels diverge far less", "float32": "LayerCast: kernels diverge far less"}
    verdicts = {name: ratio_above(divergences["bf16"], divergences[name], 10) for name in claims}
    fp16, wide = (
        Remade("kernel-orders", claim, f"BF16's divergence is {np.mean(ratios[name]):.3g} times", verdicts[name])
        for name, claim in claims.items()
    )
    return fp16, wide


def log_shares(weights: dict[str, Any], x: Any, to: casts.Rounding, terms: int) -> Any:
    """Return logarithms of probabilities in float64; products are added in parts, and every result is rounded."""
    import torch
    from torch.nn.functional import gelu, layer_norm

    def product(a: Any, b: Any) -> Any:
        total: Any = 0.0
        for start in range(0, a.shape[-1], terms):
            total = total + a[..., start : start + terms] @ b[..., start : start + terms, :]
        return to(total)

    def norm(x: Any) -> Any:
        return to(layer_norm(x, (32,)))

    hidden = to(weights["token"][x] + weights["place"])
    parts = product(norm(hidden), weights["qkv"]).chunk(3, -1)
    query, key, value = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parts)
    scores = product(query, key.transpose(-1, -2)) / 4
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    shares = to(scores.masked_fill(later, -torch.inf).softmax(-1))
    hidden = to(hidden + product(product(shares, value).transpose(1, 2).flatten(2), weights["out"]))
    hidden = to(hidden + product(to(gelu(product(norm(hidden), weights["up"]))), weights["down"]))
    return product(norm(hidden), weights["token"].T).double().log_softmax(-1)
