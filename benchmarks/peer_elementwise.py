"""Operations, functions and codes, compared with PyTorch's 16-bit dtypes, NumPy and ml_dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import simfloat as sf
from benchmarks.measure import Work, optional

#: Our function -> PyTorch's function, which computes in float32 and rounds once more.
OPERATIONS = {"add": "add", "multiply": "mul", "divide": "div", "sqrt": "sqrt"}
FUNCTIONS = {"exp": "exp", "log": "log", "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf", "sin": "sin"}

Prepared = tuple[str, Work, str, Callable[[], Work]]


def elementwise_works(rng: np.random.Generator, count: int) -> Iterator[Prepared]:
    """Yield (title, our work, name of the peer, function that creates its work) for each comparison."""
    for format in (sf.BF16, sf.FP16):
        pair = [sf.round(np.abs(x), format) for x in rng.standard_normal((2, count)).astype(np.float32)]
        for name, peer in {**OPERATIONS, **FUNCTIONS}.items():
            operands = pair if name in ("add", "multiply", "divide") else pair[:1]
            ours = Work(lambda name=name, operands=operands, format=format: getattr(sf, name)(*operands, format))
            for _ in range(3):  # after some calls, functions store a table
                ours.run()
            yield f"{name}, {format}", ours, "torch", lambda x=operands, p=peer, f=format: _torch(p, x, f)
    for format, dtype in (
        (sf.BF16, "bfloat16"),
        (sf.FP16, "float16"),
        (sf.E4M3, "float8_e4m3fn"),
        (sf.FP32, "float32"),
    ):
        x = sf.round(rng.standard_normal(count).astype(np.float32), format)
        codes, package = sf.encode(x, format), "numpy" if hasattr(np, dtype) else "ml_dtypes"
        ours = Work(lambda x=x, f=format: sf.encode(x, f), array=None)
        yield f"encode {format}", ours, package, lambda x=x, d=dtype: _cast(x, d, None)
        ours = Work(lambda codes=codes, f=format: sf.decode(codes, f))
        yield f"decode {format}", ours, package, lambda x=x, d=dtype: _cast(x, None, d)


def _torch(name: str, operands: list[np.ndarray], format: sf.Format) -> Work:
    import torch

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if format == sf.BF16 else torch.float16
    tensors = [torch.tensor(x).to(dtype) for x in operands]
    return Work(lambda: getattr(torch, name)(*tensors), array=lambda out: out.float().numpy())


def _cast(x: np.ndarray, to: str | None, back: str | None) -> Work:
    """Return a cast to a dtype, whose bits are codes, or from it."""
    module: Any = np if hasattr(np, to or back or "") else optional("ml_dtypes")
    dtype = getattr(module, to or back or "")
    if to:
        return Work(lambda: x.astype(dtype), array=None)
    narrow = x.astype(dtype)
    return Work(lambda: narrow.astype(np.float32))
