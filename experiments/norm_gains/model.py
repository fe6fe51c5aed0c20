"""A residual network whose layer norms have gains in blocks of MXFP8, and its teacher."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat import nn

#: The width of the network, that inside of a block, and the number of blocks.
WIDTH, INNER, BLOCKS = 64, 128, 2

#: The elements of an MX block.
SIZE = 32


def straight_through(u: Any, g: NDArray, y: NDArray, x: NDArray, rule: str) -> NDArray:
    """Return the gradient of the rounded gains as that of the gains."""
    return u.round(g)


@sf.operation(straight_through)
def in_blocks(u: Any, x: NDArray, *, rule: str) -> NDArray:
    """Round gains to E4M3 in blocks of 32 with a power of two as scale."""
    return u.round(sf.block_quantize(x, sf.E4M3, rule=rule).values())


class Block(nn.Module):
    """x + out(gelu(inside(norm(x) * gain))); a rule rounds the gain, None leaves it in FP32."""

    def __init__(self, rng: np.random.Generator, rule: str | None) -> None:
        super().__init__()
        self.rule = rule
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.gain = sf.Parameter(np.ones(WIDTH))
        self.inside = nn.Linear(WIDTH, INNER, bias=False, rng=rng)
        self.out = nn.Linear(INNER, WIDTH, bias=False, rng=rng)

    def forward(self, x: sf.Tensor) -> sf.Tensor:
        """Return a tensor of the same shape (examples, WIDTH)."""
        gain = self.gain if self.rule is None else in_blocks(self.gain, rule=self.rule)
        return x + self.out(self.inside(self.norm(x) * gain).gelu())


class Student(nn.Module):
    """Residual blocks, in the way of a transformer without attention."""

    def __init__(self, seed: int, rule: str | None = None) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.blocks = nn.ModuleList(Block(rng, rule) for _ in range(BLOCKS))

    def gains(self) -> NDArray[np.floating]:
        """Return the gains of all blocks (blocks, WIDTH), not rounded."""
        return np.array([parameter.data for name, parameter in self.named_parameters() if name.endswith("gain")])

    def forward(self, x: NDArray) -> sf.Tensor:
        """Return the output (examples, WIDTH) for inputs of the same shape."""
        y = sf.Tensor(x)
        for block in self.blocks:
            y = block(y)
        return y


def taught(seed: int) -> Any:
    """Return a function of inputs: a residual network of the same size without norms, in float64."""
    rng = np.random.default_rng([seed, 7])
    weights = [
        (rng.standard_normal((WIDTH, INNER)) / np.sqrt(WIDTH), rng.standard_normal((INNER, WIDTH)) / np.sqrt(INNER))
        for _ in range(BLOCKS)
    ]

    def teacher(x: NDArray) -> NDArray[np.float64]:
        for inside, out in weights:
            x = x + np.maximum(x @ inside, 0) @ out
        return x

    return teacher
