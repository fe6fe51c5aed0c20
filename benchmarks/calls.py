"""Calls of simfloat's own functions that one warm call makes, and the files that they stand in: how long a road is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Row

ROOT = str(Path(sf.__file__).parent)

#: So many calls come first: plans are then kept, and kernels compiled.
WARM = 4


def rows() -> Iterator[Row]:
    """The roads of an operation, a product, a layer and a step, in both front ends; goals are those of the README."""
    rng = np.random.default_rng(0)
    a, b = (sf.round(rng.standard_normal((64, 64), np.float32), sf.BF16) for _ in range(2))
    recorder, hopper = sf.Recorder(), sf.tensor_core("hopper")
    yield _row("add", lambda: sf.add(a, b, sf.BF16))
    yield _row("the same, observed", lambda: sf.add(a, b, sf.BF16, observer=recorder))
    product = sf.round(a, sf.E4M3), sf.round(b, sf.E4M3)
    yield _row(
        "E4M3 product on Hopper", lambda: sf.matmul(*product, accumulate=hopper, inputs=sf.E4M3), "<= 40 in 12 files"
    )
    layer, x = sf.nn.Linear(16, 8), sf.Tensor(rng.standard_normal((4, 16)))
    optimizer = sf.optim.SGD(layer.parameters(), lr=0.1)
    with sf.simulate("bf16-standard"):
        yield _row("Linear, forward", lambda: layer(x), "<= 18 files")
        yield _row("the same, a sum, and backward", lambda: layer(x).sum().backward())
        yield _row("a step of SGD, 2 parameters", optimizer.step, "<= 12 files")
    yield from _of_pytorch()


def _of_pytorch() -> Iterator[Row]:
    """Roads of PyTorch's operations; none without it."""
    try:
        import torch
    except ImportError:
        return
    layer, x = torch.nn.Linear(16, 8), torch.randn(4, 16)
    with sf.torch.simulate(layer, "bf16-standard"):
        yield _row("torch.relu", lambda: torch.relu(x))
        yield _row("torch.nn.Linear, forward", lambda: layer(x))


def _row(what: str, function: Callable[[], Any], goal: str = "") -> Row:
    for _ in range(WARM):
        function()
    files = _files_of_calls(function)
    return Row(what, f"{len(files)} calls", f"in {len(set(files))} files", goal)


def _files_of_calls(function: Callable[[], Any]) -> list[str]:
    """The file of every function of simfloat's that is called, in their order."""
    files: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            files.append(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return files
