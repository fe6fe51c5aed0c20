"""Implement `simfloat reveal LIBRARY ...`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import simfloat as sf
from simfloat.analysis.reveal import Revealed
from simfloat.common import table
from simfloat.terminal import argument_type
from simfloat.tools.commands import info

#: The columns of the table.
COLUMNS = ("function", "operands", "accumulator", "result")

HELP = "the order and the precision of additions in sums and products of NumPy and PyTorch on this computer"


class Sum(NamedTuple):
    """A function of a library that sums products: its name, the format of its operands, and the call."""

    name: str
    inputs: sf.Format
    call: Callable[[Any, Any], Any]


def numpy_sums() -> Iterator[Sum]:
    """Yield the sums of NumPy."""
    yield Sum("np.dot", sf.FP32, np.dot)
    yield Sum("np.matmul", sf.FP32, lambda a, b: (np.stack([a, a]) @ np.stack([b, b], 1))[1, 1])
    yield Sum("np.einsum", sf.FP32, lambda a, b: np.einsum("i,i->", a, b))
    yield Sum("np.sum", sf.FP32, lambda a, b: (a * b).sum())
    yield Sum("np.sum of float16", sf.FP16, lambda a, b: (a.astype(np.float16) * b.astype(np.float16)).sum())
    yield Sum("np.sum of float64", sf.FP32, lambda a, b: (a.astype(np.float64) * b).sum())


def torch_sums() -> Iterator[Sum]:
    """Yield the sums of PyTorch on the CPU."""
    torch = import_module("torch")
    array = torch.from_numpy
    yield Sum("torch.dot", sf.FP32, lambda a, b: array(a).dot(array(b)))
    yield Sum("torch.sum", sf.FP32, lambda a, b: (array(a) * array(b)).sum())
    yield Sum("torch.matmul", sf.FP32, lambda a, b: (array(a)[None] @ array(b)[:, None])[0, 0])
    for format, dtype in ((sf.BF16, torch.bfloat16), (sf.FP16, torch.float16)):
        name = str(dtype).removeprefix("torch.")
        yield Sum(f"torch.dot of {name}", format, partial(_narrow_dot, dtype))
        yield Sum(f"torch.matmul of {name}", format, partial(_narrow_matmul, dtype))


def _narrow_dot(dtype: Any, a: Any, b: Any) -> Any:
    torch = import_module("torch")
    return torch.from_numpy(a).to(dtype).dot(torch.from_numpy(b).to(dtype))


def _narrow_matmul(dtype: Any, a: Any, b: Any) -> Any:
    torch = import_module("torch")
    return (torch.from_numpy(a).to(dtype)[None] @ torch.from_numpy(b).to(dtype)[:, None])[0, 0]


#: The libraries by name, with the sums of each.
LIBRARIES: dict[str, Callable[[], Iterator[Sum]]] = {"numpy": numpy_sums, "torch": torch_sums}


def _terms(text: str) -> int:
    """Return a number of products; raise ValueError if the text is invalid."""
    if not text.isdecimal() or not 2 <= int(text) <= 2048:
        raise ValueError(f"the number of products is an integer from 2 to 2048, got {text!r}")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the libraries, the number of products and the file."""
    parser.add_argument("libraries", nargs="+", choices=LIBRARIES, metavar="LIBRARY", help=" or ".join(LIBRARIES))
    parser.add_argument(
        "--terms", metavar="K", type=argument_type(_terms), default=40, help="the number of products of a sum (40)"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="also store the table and all versions as JSON")


def run(options: argparse.Namespace) -> int:
    """Print a table of the accumulators that give the bits of each function."""
    rows, versions = [], dict(info.versions()) | dict(info.machine())
    for library in dict.fromkeys(options.libraries):
        try:
            module = import_module(library)
        except ImportError:
            print(f"simfloat reveal {library} needs {library}, which is not installed.", file=sys.stderr)
            return 1
        versions[library] = module.__version__
        for each in LIBRARIES[library]():
            revealed = sf.reveal(each.call, options.terms, inputs=each.inputs)
            rows.append((each.name, str(each.inputs), *describe(revealed)))
    print(table([COLUMNS, *rows]))
    if options.out is not None:
        sums = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        record = {"versions": versions, "terms": options.terms, "sums": sums}
        options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


def describe(revealed: Revealed) -> tuple[str, str]:
    """Return the accumulator and the format of its results, or the order if no accumulator gives the bits."""
    if revealed.accumulator is None:
        return f"none; order {revealed.tree}" if revealed.tree is not None else "none", ""
    rounding = "" if revealed.rounding is None else f" {revealed.rounding}"
    return str(revealed.accumulator), f"{revealed.output or revealed.accumulator.result}{rounding}"
