"""The Python calls that one warm call makes inside simfloat, and the files that they pass: python -m benchmarks.roads.

With `--show "matmul 4x4"` every call of one road is printed, indented by depth, with its file and line.

Calls of functions that are written in a file below simfloat/ count, and the call of a compiled kernel counts as one. A
generator counts once, however often it is resumed. Comprehensions do not count, because they are no calls since Python
3.12. Formats are not FP16, because some processors compute in FP16 and take another road. A processor without vectors
of 256 bits takes other roads for some sums.

Each call is repeated until its kernels are compiled and its caches are filled, and is then counted once, on one thread.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import click
import numpy as np

import simfloat as sf
from benchmarks.measure import Row, threads

ROOT = Path(sf.__file__).parent

#: Repetitions before the call that is counted. Some shortcuts are prepared at the third call.
WARM = 4

POLICY = "bf16-standard"
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


class Call(NamedTuple):
    """One call inside simfloat."""

    file: str
    line: int
    function: str
    depth: int


Prepare = Callable[[], Iterator[Callable[[], Any]]]

ROADS: dict[str, Callable[[], AbstractContextManager[Callable[[], Any]]]] = {}

#: How many parameters one call of a road updates; its calls are counted for each of them.
PARAMETERS: dict[str, int] = {}


def road(name: str, parameters: int = 0) -> Callable[[Prepare], None]:
    """Register a generator that prepares a call and yields it; the call is counted while the generator waits."""

    def register(prepare: Prepare) -> None:
        ROADS[name] = contextmanager(prepare)
        if parameters:
            PARAMETERS[name] = parameters

    return register


def trace(call: Callable[[], Any], root: Path = ROOT) -> list[Call]:
    """Repeat a call until it is warm, then record which functions below the folder `root` one more calls."""
    for _ in range(WARM):
        call()
    calls: list[Call] = []
    generators: set[FrameType] = set()
    start, depth = f"{root}/", 0

    def record(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(start) or code.co_name in COMPREHENSIONS:
            return
        if event == "return":
            depth -= 1
        elif event == "call":
            if frame not in generators:
                calls.append(Call(code.co_filename.removeprefix(start), frame.f_lineno, code.co_qualname, depth))
            if code.co_flags & inspect.CO_GENERATOR:
                generators.add(frame)
            depth += 1

    gc.collect()
    gc.disable()
    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def random(*shape: int) -> np.ndarray:
    """The same standard normal float32 numbers in every run."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@road("round")
def _() -> Iterator[Callable[[], Any]]:
    x = random(1000)
    yield lambda: sf.round(x, sf.E4M3)


@road("add")
def _() -> Iterator[Callable[[], Any]]:
    x = random(1000)
    yield lambda: sf.add(x, 1.0, sf.BF16)


@road("add, observed")
def _() -> Iterator[Callable[[], Any]]:
    x, recorder = random(1000), sf.Recorder()
    yield lambda: sf.add(x, 1.0, sf.BF16, observer=recorder)


def product(size: int, **options: Any) -> Iterator[Callable[[], Any]]:
    """The product of two square matrices."""
    a, b = random(size, size), random(size, size).T.copy()
    yield lambda: sf.matmul(a, b, **options)


@road("matmul 4x4")
def _() -> Iterator[Callable[[], Any]]:
    yield from product(4, inputs=sf.BF16, accumulate=sf.BF16)


@road("matmul 64x64")
def _() -> Iterator[Callable[[], Any]]:
    yield from product(64, inputs=sf.BF16, accumulate=sf.BF16)


@road("matmul E4M3 on Hopper")
def _() -> Iterator[Callable[[], Any]]:
    yield from product(64, inputs=sf.E4M3, accumulate=sf.tensor_core("hopper", sf.E4M3))


@road("matmul MXFP8")
def _() -> Iterator[Callable[[], Any]]:
    yield from product(64, inputs=sf.scaled(sf.E4M3, sf.block(32, sf.E8M0)), accumulate=sf.FP32)


@road("override and recipe")
def _() -> Iterator[Callable[[], Any]]:
    policy = sf.policies["fp8-hopper"]
    yield lambda: policy.override("head", compute=sf.BF16).recipe("head.weight", "linear")


@road("Linear forward")
def _() -> Iterator[Callable[[], Any]]:
    layer, x = sf.nn.Linear(16, 8, rng=0), random(4, 16)
    with sf.simulate(POLICY):
        yield lambda: layer(x)


@road("Linear forward, observed")
def _() -> Iterator[Callable[[], Any]]:
    layer, x = sf.nn.Linear(16, 8, rng=0), random(4, 16)
    with sf.simulate(POLICY, observer=sf.Recorder()):
        yield lambda: layer(x)


def mlp() -> tuple[sf.nn.MLP, Callable[[], sf.Tensor]]:
    """A model with three layers, and the function that computes its loss."""
    model, x, y = sf.nn.MLP([8, 16, 16, 1], rng=0), random(4, 8), random(4, 1)
    return model, lambda: sf.nn.mse_loss(model(x), y)


@road("MLP forward and loss")
def _() -> Iterator[Callable[[], Any]]:
    with sf.simulate(POLICY):
        yield mlp()[1]


@road("MLP backward")
def _() -> Iterator[Callable[[], Any]]:
    _, loss = mlp()
    with sf.simulate(POLICY):
        losses = iter([loss() for _ in range(WARM + 1)])
        yield lambda: next(losses).backward()


@road("SGD step, one parameter of 6", parameters=6)
def _() -> Iterator[Callable[[], Any]]:
    model, loss = mlp()
    with sf.simulate(POLICY):
        loss().backward()
        yield sf.optim.SGD(model.parameters(), lr=0.1).step


if importlib.util.find_spec("torch"):

    def linear_of_torch() -> tuple[Any, Any]:
        """A linear layer of PyTorch, and a batch."""
        import torch

        return torch.nn.Linear(16, 8), torch.tensor(random(4, 16))

    @road("torch linear forward")
    def _() -> Iterator[Callable[[], Any]]:
        layer, x = linear_of_torch()
        with sf.torch.simulate(layer, POLICY):
            yield lambda: layer(x)

    @road("torch backward")
    def _() -> Iterator[Callable[[], Any]]:
        layer, x = linear_of_torch()
        with sf.torch.simulate(layer, POLICY):
            losses = iter([layer(x).square().mean() for _ in range(WARM + 1)])
            yield lambda: next(losses).backward()


def calls_of(name: str) -> list[Call]:
    """The calls of one road."""
    with threads(1), ROADS[name]() as call:
        return trace(call)


def measure() -> dict[str, dict[str, float]]:
    """The number of calls and of files of every road."""
    numbers: dict[str, dict[str, float]] = {"calls": {}, "files": {}}
    for name in ROADS:
        calls = calls_of(name)
        numbers["calls"][name] = round(len(calls) / PARAMETERS.get(name, 1), 1)
        numbers["files"][name] = len({call.file for call in calls})
    return numbers


def rows() -> list[Row]:
    """A row for every road: a list, because calls take a longer road in a block that a generator opens."""
    numbers = measure()
    return [Row(name, f"{numbers['calls'][name]:g} calls", f"in {numbers['files'][name]} files") for name in ROADS]


@click.command()
@click.option("--show", metavar="ROAD", type=click.Choice(list(ROADS)), help="Print every call of one road.")
def main(show: str | None) -> None:
    """Print the calls and files of every road, or every call of one."""
    if show:
        for call in calls_of(show):
            print(f"{'  ' * call.depth}{call.file}:{call.line} {call.function}")
    else:
        for row in rows():
            print(f"{row.name:30}{row.measured:>12} {row.compared}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.roads")
