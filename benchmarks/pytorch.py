"""A training step of unmodified PyTorch models under `bf16-standard`, compared with plain PyTorch by processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import simfloat as sf
from benchmarks.images import network
from benchmarks.measure import Row, optional, seconds, threads


def rows() -> Iterator[Row]:
    """Yield a row for each model: forward, backward and update with one thread."""
    torch = optional("torch")
    if torch is None:
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threads(1):
            for name, (make, x, y, target) in _cases(torch).items():
                plain = _seconds(_step(torch, make(), x, y))
                model = make()
                with sf.torch.simulate(model, "bf16-standard"):
                    simulated = _seconds(_step(torch, model, x, y))
                yield Row(name, f"{1e3 * simulated:.1f} ms", f"{simulated / plain:.1f} times torch", target)
    finally:
        torch.set_num_threads(before)


def _seconds(step: Callable[[], None]) -> float:
    return seconds(step, least_total=2.0, clock=time.process_time)


def _step(torch: Any, model: Any, x: Any, y: Any) -> Callable[[], None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _cases(torch: Any) -> dict[str, tuple[Callable[[], Any], Any, Any, str]]:
    """Return models with their inputs, classes and target, by name."""
    nn, labels = torch.nn, torch.randint(0, 10, (64,))
    tokens, sequences = torch.randint(0, 65, (12, 64)), torch.randn(32, 25, 32)
    few = tokens[:2, :16]  # a step of this model takes PyTorch about 2 ms

    def perceptron() -> Any:
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))

    return {
        "MLP 784-256-128-10, batch 64": (perceptron, torch.randn(64, 784), labels, "<= 4"),
        "GPT, 4 layers of width 128, 12 x 64 tokens": (lambda: _gpt(nn, 4, 128), tokens, tokens.flatten(), "<= 3"),
        "nn.LSTM, 2 layers of 64, 32 x 25 steps": (lambda: _recurrent(nn), sequences, labels[:32], "<= 10"),
        "GPT, 3 layers of width 16, 2 x 16 tokens": (lambda: _gpt(nn, 3, 16), few, few.flatten(), "<= 20"),
        "residual network, 32 images of 32 x 32": (
            lambda: network(nn), torch.randn(32, 3, 32, 32), labels[:32], "<= 6"
        ),
        "blocks of ResNet18, 8 images of 32 x 32": (
            lambda: _resnet(nn), torch.randn(8, 3, 32, 32), labels[:8], "<= 3"
        ),
    }  # fmt: skip


def _gpt(nn: Any, layers: int, width: int) -> Any:
    class Decoder(nn.TransformerEncoder):
        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return super().forward(x, mask, is_causal=True)

    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    decoder = Decoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
    return nn.Sequential(nn.Embedding(65, width), decoder, nn.Linear(width, 65), nn.Flatten(0, 1))


def _recurrent(nn: Any) -> Any:
    class Last(nn.LSTM):
        def forward(self, x: Any) -> Any:
            return super().forward(x)[0][:, -1]

    return nn.Sequential(Last(32, 64, 2, batch_first=True), nn.Linear(64, 10))


def _resnet(nn: Any) -> Any:
    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
            self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity()
            if stride > 1:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            return (self.second(self.first(x).relu()) + self.shortcut(x)).relu()

    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    stem = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    return nn.Sequential(*stem, *(Block(*s) for s in sizes), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))
