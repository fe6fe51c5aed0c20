"""Findings on block formats: a residual network and a GPT in PyTorch, with products and gains rounded in blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from experiments.independent.narrow import Remade, lies_between, ratio_above, seeds

#: A function that rounds a tensor in blocks along its last axis.
Quantizer = Callable[[Any], Any]

#: Significant bits after the first, least exponent, and largest number.
E4M3, E2M1 = (3, -6, 448.0), (1, 0, 6.0)


#: The letters in a context, the contexts in a batch, and the tokens; some tokens do not occur, so blocks are full.
CONTEXT, BATCH, ALPHABET = 32, 8, 128


def quantizer(format: tuple[int, int, float], size: int, scales: str, is_random: bool = False) -> Quantizer:
    """Return a rounding in blocks, to nearest or stochastic; scales are powers of two ("floor", "up") or "E4M3"."""
    import torch

    _, _, largest = format
    top = np.floor(np.log2(largest))

    def rounded(x: Any) -> Any:
        blocks = x.unflatten(-1, (-1, size)).double()
        amax = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        if scales == "floor":
            scale = torch.exp2(amax.log2().floor() - top)
        elif scales == "up":
            scale = torch.exp2((amax / largest).log2().ceil())
        else:
            whole = 448 * largest / amax.max()
            scale = (nearest(amax / largest * whole, E4M3) / whole).clamp(min=1e-30)
        noise = torch.rand_like(blocks) if is_random else None
        return (nearest(blocks / scale, format, noise) * scale).flatten(-2).float()

    return rounded


def nearest(x: Any, format: tuple[int, int, float], noise: Any = None) -> Any:
    """Round to nearest even, or stochastically with noise from 0 to 1; a value beyond the largest number saturates."""
    import torch

    bits, least, largest = format
    quantum = torch.exp2(x.abs().clamp(min=1e-30).log2().floor().clamp(min=least) - bits)
    whole = (x / quantum).round() if noise is None else (x / quantum + noise).floor()
    return (whole * quantum).clamp(-largest, largest)


def product(x: Any, weight: Any, forward: Quantizer | None, backward: Quantizer | None) -> Any:
    """Return x @ weight.T; operands of all three products are rounded along the axis of their sums."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any, weight: Any) -> Any:
            context.save_for_backward(x, weight)
            return operand(x, forward) @ operand(weight, forward).T

        @staticmethod
        def backward(context: Any, g: Any) -> Any:
            x, weight = context.saved_tensors
            to_x = operand(g, backward) @ operand(weight.T, forward).T
            return to_x, operand(g.T, backward) @ operand(x.T, forward).T

    def operand(x: Any, quantize: Quantizer | None) -> Any:
        return x if quantize is None else quantize(x)

    return Product.apply(x, weight)


class Network:
    """Two residual blocks of width 64 with layer norms and gains, and a teacher without norms."""

    def __init__(self, seed: int) -> None:
        import torch

        torch.set_num_threads(1)  # these products are too small for threads
        torch.manual_seed(seed)
        self._shapes = [(128, 64), (64, 128)] * 2
        self._teacher = [torch.randn(shape) / shape[1] ** 0.5 for shape in self._shapes]
        start = [(2 * torch.rand(shape) - 1) / shape[1] ** 0.5 for shape in self._shapes]
        self.weights = [each.requires_grad_() for each in start]
        self.gains = [torch.ones(64, requires_grad=True) for _ in range(2)]

    def loss(self, x: Any, forward: Quantizer | None, backward: Quantizer | None, gains: Quantizer | None) -> Any:
        """Return the mean square of the difference to the teacher."""
        from torch.nn.functional import gelu, layer_norm

        wanted, found = x, x
        for number, gain in enumerate(self.gains):
            first, second = self._teacher[2 * number : 2 * number + 2]
            wanted = wanted + (wanted @ first.T).relu() @ second.T
            used = gain if gains is None else gain + (gains(gain) - gain).detach()
            inside, out = self.weights[2 * number : 2 * number + 2]
            hidden = gelu(product(layer_norm(found, (64,)) * used, inside, forward, backward))
            found = found + product(hidden, out, forward, backward)
        return (found - wanted).square().mean()

    def train(self, steps: int, decay: float, *operands: Quantizer | None) -> None:
        """Make steps of AdamW with these quantizers of forward and backward operands and of gains."""
        import torch

        optimizer = torch.optim.AdamW([*self.weights, *self.gains], lr=3e-3, weight_decay=decay)
        for _ in range(steps):
            optimizer.zero_grad()
            self.loss(torch.randn(64, 64), *operands).backward()
            optimizer.step()

    def gradient(self, x: Any, *operands: Quantizer | None) -> Any:
        """Return the gradient of all parameters as one vector."""
        import torch

        return torch.cat(
            [g.flatten() for g in torch.autograd.grad(self.loss(x, *operands), [*self.weights, *self.gains])]
        )


def gains() -> tuple[Remade, Remade, Remade]:
    """Train in float32 with weight decay; count saturated gains, and compare gradients with gains in blocks or not."""
    import torch

    down, up = (quantizer(E4M3, 32, rule) for rule in ("floor", "up"))
    shares: list[float] = []
    turns: dict[str, list[float]] = {}
    for seed in seeds(5):
        network = Network(seed)
        network.train(200, 0.2, None, None, None)
        x = torch.randn(256, 64)
        exact = network.gradient(x, None, None, None)
        for name, operands in (("down", (down, down, down)), ("down alone", (down, down, None)), ("up", (up, up, up)),
                               ("up alone", (up, up, None))):  # fmt: skip
            cosine = torch.nn.functional.cosine_similarity(network.gradient(x, *operands), exact, dim=0)
            turns.setdefault(name, []).append(1 - float(cosine))
        values = torch.stack(network.gains).detach().unflatten(-1, (-1, 32))
        scale = torch.exp2(values.abs().amax(-1, keepdim=True).log2().floor() - 8)
        shares.append(float((values / scale > 464).float().mean()))
    ratios = [np.divide(turns[name], turns[f"{name} alone"]) for name in ("down", "up")]
    return (
        Remade(
            "norm-gains",
            "with weight decay, scales rounded down",
            f"{100 * np.mean(shares):.0f} % of gains",
            lies_between(shares, 0.1, np.inf),
        ),
        Remade(
            "norm-gains",
            "scales rounded down: gains in MXFP8 turn",
            f"{np.mean(ratios[0]):.1f} times 1 - cosine",
            ratio_above(ratios[0], np.ones(5), 2),
        ),
        Remade(
            "norm-gains",
            "scales rounded up: gains in MXFP8 leave",
            f"{np.mean(ratios[1]):.1f} times 1 - cosine",
            lies_between(np.log(ratios[1]), -np.inf, np.log(2)),
        ),
    )


@cache
def topics() -> Any:
    """Return Python's documentation as numbers."""
    from pydoc_data.topics import topics

    import torch

    _, numbers = np.unique(list("\n".join(topics.values())), return_inverse=True)
    return torch.tensor(numbers)


def letters(seed: int, forward: Quantizer | None, backward: Quantizer | None) -> float:
    """Return the held-out loss of a GPT of one block after 200 steps of Adam; layers and head have rounded products."""
    import torch
    from torch.nn.functional import cross_entropy, gelu, layer_norm, scaled_dot_product_attention

    torch.set_num_threads(1)  # these products are too small for threads
    torch.manual_seed(seed)
    text = topics().roll(seed * 10_007)
    shapes = ((ALPHABET, 32), (CONTEXT, 32), (96, 32), (32, 32), (128, 32), (32, 128))
    weights = [(0.02 * torch.randn(shape)).requires_grad_() for shape in shapes]
    token, place, qkv, out, up, down = weights

    def loss(starts: Any, *operands: Quantizer | None) -> Any:
        rows = text[starts[:, None] + torch.arange(CONTEXT + 1)]
        hidden = (token[rows[:, :-1]] + place).flatten(0, 1)
        parts = product(layer_norm(hidden, (32,)), qkv, *operands).unflatten(0, rows[:, :-1].shape).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2).flatten(0, 1)
        hidden = hidden + product(mixed, out, *operands)
        inner = gelu(product(layer_norm(hidden, (32,)), up, *operands))
        hidden = layer_norm(hidden + product(inner, down, *operands), (32,))
        return cross_entropy(product(hidden, token, *operands), rows[:, 1:].flatten())

    optimizer = torch.optim.Adam(weights, lr=3e-3)
    end = 9 * len(text) // 10
    for _ in range(200):
        optimizer.zero_grad()
        loss(torch.randint(0, end - CONTEXT, (BATCH,)), forward, backward).backward()
        optimizer.step()
    with torch.no_grad():
        return float(loss(torch.arange(end, len(text) - CONTEXT - 1, 512), None, None))


def language() -> Remade:
    """Train on letters in float32, and in MXFP4 with nearest and with stochastic gradients."""
    near, random = (quantizer(E2M1, 32, "up", is_random) for is_random in (False, True))
    ends = {
        name: np.array([letters(seed, *operands) for seed in seeds(5)])
        for name, operands in (("FP32", (None, None)), ("bare", (near, near)), ("stochastic", (near, random)))
    }
    gap, rest = (100 * np.log(ends[name] / ends["FP32"]) for name in ("bare", "stochastic"))
    return Remade(
        "block-scaling",
        "GPT: stochastic gradients close most",
        f"gap {gap.mean():.1f} %, with them {rest.mean():.1f} %",
        lies_between(rest - gap / 2, -np.inf, 0),
    )


def fp4() -> tuple[Remade, Remade]:
    """Train with all operands in FP4, with gradients alone, with the others alone, and in float32."""
    import torch

    kinds: dict[str, tuple[Quantizer | None, Quantizer | None]] = {"FP32": (None, None)}
    for name, size, scales in (("MX", 32, "up"), ("NV", 16, "E4M3")):
        narrow = quantizer(E2M1, size, scales)
        kinds |= {name: (narrow, narrow), f"{name} gradients": (None, narrow), f"{name} others": (narrow, None)}
    ends: dict[str, list[float]] = {}
    for seed in seeds(5):
        for name, (forward, backward) in kinds.items():
            network = Network(seed)
            network.train(120, 0.01, forward, backward, None)
            torch.manual_seed(seed + 10_000)
            with torch.no_grad():
                loss = float(network.loss(torch.randn(2048, 64), None, None, None))
            ends.setdefault(name, []).append(loss)
    gaps = {name: 100 * np.log(np.divide(values, ends["FP32"])) for name, values in ends.items()}
    return (
        Remade(
            "fp4-factorial",
            "bare: MXFP4 trains worse",
            f"gap {np.mean(gaps['MX']):.2f} against {np.mean(gaps['NV']):.2f} %",
            lies_between(gaps["MX"] - gaps["NV"], 0, np.inf),
        ),
        Remade(
            "fp4-factorial",
            "MXFP4, bare: gradients in FP4 cost more",
            f"gap {np.mean(gaps['MX gradients']):.2f} against {np.mean(gaps['MX others']):.2f} %",
            lies_between(gaps["MX gradients"] - gaps["MX others"], 0, np.inf),
        ),
    )
