"""PyTorch models on a GPU: bits compared with the CPU, launches, and times of steps compared with PyTorch's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from statistics import median
from typing import Any

import simfloat as sf
from benchmarks.measure import Row
from simfloat.arithmetic.machines import what_cuda_lacks

#: The policies whose bits are compared, and those whose time is measured.
COMPARED = ("bf16-standard", "amp-bf16", "fp8-hybrid", "bf16-stochastic", "fp16-master")
MEASURED = ("bf16-standard", "amp-bf16", "fp8-hybrid")

#: (name, width, layers, length of the text); the last one has about 100 million parameters.
MODELS = (("GPT of 0.8 million parameters", 128, 4, 128), ("GPT of 100 million parameters", 768, 12, 512))


def rows() -> Iterator[Row]:
    """Yield a row for each comparison and each measured time; one row if there is no GPU."""
    missing = what_cuda_lacks()
    if missing is None:
        import torch

        if not torch.cuda.is_available():
            missing = "PyTorch finds no GPU"
    if missing is not None:
        yield Row(f"not measured: {missing}", "")
        return
    for policy in COMPARED:
        pairs = list(zip(_train("cpu", policy), _train("cuda", policy), strict=True))
        differing = sum(int((a != b.cpu()).sum()) for a, b in pairs)
        yield Row(
            f"{policy}: two steps, CPU and GPU", f"{differing} of {sum(a.numel() for a, _ in pairs)} numbers differ"
        )
        step, update, parameters = launches(policy, "cuda")
        yield Row(
            f"{policy}: launches of a step", f"{step}, and {update / parameters:.1f} of its update for a parameter"
        )
    for name, *sizes in MODELS:
        plain = _seconds(*sizes, None)
        yield Row(f"{name}, PyTorch in float32", f"{plain * 1e3:.1f} ms")
        for policy in MEASURED:
            seconds = _seconds(*sizes, policy)
            yield Row(f"{name}, {policy}", f"{seconds * 1e3:.1f} ms, {seconds / plain:.1f} times PyTorch's")


def _model(width: int, layers: int, length: int) -> Any:
    """Return a GPT of PyTorch's layers, without dropout, for 256 tokens."""
    import torch

    torch.manual_seed(0)
    options: dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
    blocks = [torch.nn.TransformerEncoderLayer(width, width // 32, 4 * width, **options) for _ in range(layers)]
    return torch.nn.Sequential(torch.nn.Embedding(256, width), *blocks, torch.nn.Linear(width, 256))


def _step(model: Any, optimizer: Any, tokens: Any) -> Callable[[], None]:
    import torch

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def _train(device: str, policy: str) -> list[Any]:
    """Return parameters and gradients after two steps of a small model on a device."""
    import torch

    model, tokens = _model(64, 2, 16).to(device), torch.arange(34).reshape(2, 17).to(device)
    step = _step(model, torch.optim.AdamW(model.parameters(), lr=1e-3), tokens)
    with sf.torch.simulate(model, policy):
        step(), step()
    return [t.detach() for p in model.parameters() for t in (p, p.grad)]


def launches(policy: str, device: str) -> tuple[int, int, int]:
    """Return the launches of our kernels in the second step, and in its update, and the number of parameters."""
    import torch

    model, tokens = _model(64, 2, 16).to(device), torch.arange(34).reshape(2, 17).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    counts: list[int] = []
    step = _step(model, optimizer, tokens)
    optimizer.register_step_pre_hook(lambda *_: counts.append(len(started)))
    with sf.torch.simulate(model, policy), counted_launches() as started:
        step()
        first = len(started)
        step()
    return len(started) - first, len(started) - counts[-1], len(list(model.parameters()))


@contextmanager
def counted_launches() -> Iterator[list[int]]:
    """A block with a list of the numbers of threads of all loops that start in it."""
    threads: Any = import_module("simfloat.kernels.gpu.threads")
    started: list[int] = []
    launch = threads.launch

    def counted(body: Any, count: int, arguments: tuple[Any, ...]) -> None:
        started.append(count)
        launch(body, count, arguments)

    threads.launch = counted
    try:
        yield started
    finally:
        threads.launch = launch


def _seconds(width: int, layers: int, length: int, policy: str | None) -> float:
    """Return the median time of a step on the GPU, after a first one that compiles."""
    import torch

    model, tokens = _model(width, layers, length).cuda(), torch.randint(0, 256, (1, length + 1)).cuda()
    step, times = _step(model, torch.optim.AdamW(model.parameters(), lr=1e-4), tokens), []
    with nullcontext() if policy is None else sf.torch.simulate(model, policy):
        for _ in range(4):
            torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    return median(times[1:])
