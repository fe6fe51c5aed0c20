"""A training step of an MLP 784-256-128-10 with batch 64, compared with torch in float32 on the same cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Row, optional, seconds

SIZES, BATCH = [784, 256, 128, 10], 64


def rows() -> Iterator[Row]:
    """Yield a row for each policy: forward, backward and update."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((BATCH, SIZES[0])).astype(np.float32), rng.integers(0, SIZES[-1], BATCH)
    torch_step = _torch_step(x, y)
    theirs = seconds(torch_step, least_total=2.0) if torch_step else None
    if theirs:
        yield Row("torch float32", f"{1e3 * theirs:.2f} ms")
    for name in ("bf16-standard", "fp32", "bf16-stochastic", "bf16-kahan", "fp16-master"):
        with sf.simulate(name):
            time = seconds(_step(x, y), least_total=2.0)
        ratio = f"{time / theirs:.1f} times torch" if theirs else ""
        yield Row(name, f"{1e3 * time:.2f} ms", ratio, "<= 3" if name == "bf16-standard" else "")
    with sf.simulate("bf16-standard"):
        plain = seconds(_step(x, y), least_total=2.0)
    with sf.simulate("bf16-standard", observer=sf.Recorder()):
        time = seconds(_step(x, y), least_total=2.0)
    yield Row("bf16-standard with a Recorder", f"{1e3 * time:.2f} ms", f"{time / plain:.1f} times without", "<= 1.5")
    if theirs:
        time = _unmodified(x, y)
        yield Row(
            "bf16-standard, the PyTorch model", f"{1e3 * time:.2f} ms", f"{time / theirs:.1f} times torch", "<= 12"
        )


def _step(x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    model = sf.nn.MLP(SIZES)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        sf.nn.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _unmodified(x: np.ndarray, y: np.ndarray) -> float:
    """Return the seconds of a step of an unmodified PyTorch model and loop, by `sf.torch`."""
    model = _torch_model()
    with sf.torch.simulate(model, "bf16-standard"):
        return seconds(_torch_step(x, y, model), least_total=2.0)


def _torch_model() -> Any:
    torch = optional("torch")
    layers = []
    for inputs, outputs in zip(SIZES[:-1], SIZES[1:], strict=True):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def _torch_step(x: np.ndarray, y: np.ndarray, model: Any = None) -> Any:
    torch = optional("torch")
    if torch is None:
        return None
    model = _torch_model() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.tensor(x), torch.tensor(y)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step
