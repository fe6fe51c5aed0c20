"""A training step of a residual network on 32 images of 32 x 32, compared with torch in float32 on the same cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, optional, seconds

BATCH, CHANNELS, CLASSES = 32, 16, 10


def rows() -> Iterator[Row]:
    """Yield a row for each policy: forward, backward and update."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((BATCH, 3, 32, 32)).astype(np.float32), rng.integers(0, CLASSES, BATCH)
    torch: Any = optional("torch")
    theirs = None
    if torch is not None:
        theirs = seconds(
            _step(torch.nn, torch.nn.functional, torch.optim, torch.tensor(x), torch.tensor(y)), least_total=2.0
        )
        yield Row("torch float32", f"{1e3 * theirs:.1f} ms")
    for name in ("amp-bf16", "bf16-standard", "fp32", "fp16-master"):
        with sf.simulate(name):
            time = seconds(_step(sf.nn, sf.nn, sf.optim, x, y), least_total=2.0)
        ratio = f"{time / theirs:.1f} times torch" if theirs else ""
        yield Row(name, f"{1e3 * time:.1f} ms", ratio, "<= 8" if name == "amp-bf16" else "")


def _step(nn: Any, losses: Any, optim: Any, x: Any, y: Any) -> Callable[[], None]:
    model = network(nn)
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        losses.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def network(nn: Any) -> Any:
    """Return a network of two residual blocks with batch normalization; `nn` is simfloat.nn or torch.nn."""

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
            self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: Any) -> Any:
            return (self.second(self.first(x).relu()) + self.shortcut(x)).relu()

    return nn.Sequential(
        nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.MaxPool2d(2),
        Block(CHANNELS, CHANNELS, 1), Block(CHANNELS, 2 * CHANNELS, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * CHANNELS, CLASSES),
    )  # fmt: skip
