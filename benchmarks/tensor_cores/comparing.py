"""Compare one instruction with our model: the number of results that differ, and products to replay."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from benchmarks.tensor_cores import operands, programs
from benchmarks.tensor_cores.instructions import Unit, bytes_of, units
from benchmarks.tensor_cores.operands import KINDS, Array, Operands
from simfloat.tools.selftest.checks import equal_bits

DEPTHS = (16, 32, 64, 256, 1024, 4096)

#: Multiply-adds per kind and depth, and the largest number of products among which they are divided. The CPU's part,
#: operands and the sums of our model, takes 0.1 s of one core: 36 kinds and depths of 24 instructions take 90 s.
WORK = 1 << 22
MOST_PRODUCTS = 1 << 10

#: For each kind, this number of rows of a product of this depth are kept for the tests, with its 8 columns.
KEPT_DEPTH = 32
KEPT_ROWS = 4

#: The integers that check the layout of an instruction.
LAYOUT_DEPTH = 64

#: A function that multiplies stacks of matrices on a GPU: (n, rows, 8) results.
Multiply = Callable[[Operands], Array]


def launched(unit: Unit, capability: int) -> Multiply:
    """Return a function that runs the instruction on the current GPU. Raises RuntimeError if it does not compile."""
    import cupy

    module = cupy.cuda.Module()
    module.load(programs.compiled(unit, capability))
    kernel = module.get_function("products")

    def multiply(x: Operands) -> Array:
        a, b = (cupy.asarray(operands.packed(*one)) for one in ((x.a, unit.a), (x.b, unit.b)))
        c = cupy.asarray(x.c.astype(np.float16 if unit.sums == sf.FP16 else np.float32))
        d = cupy.empty_like(c)
        kernel((len(x.a),), (32 * unit.warps,), (a, b, c, d, np.int32(a.shape[1])))
        return d.get().astype(np.float32)

    return multiply


def compared(unit: Unit, capability: int) -> dict[str, Any]:
    """Return the entry of an instruction: for every kind and depth, the number of results that differ."""
    multiply, rng = launched(unit, capability), np.random.default_rng(0)
    entry: dict[str, Any] = {"instruction": unit.name, "model": str(unit.model(capability))}
    if (fault := layout_fault(unit, multiply, rng)) is not None:
        return {**entry, "layout": fault}
    cases: list[dict[str, Any]] = []
    products: list[dict[str, Any]] = []
    for kind in KINDS:
        for depth in DEPTHS:
            count = min(max(1, WORK // (unit.rows * 8 * depth)), MOST_PRODUCTS)
            x = operands.operands(kind, unit, count, depth, rng)
            got, want = multiply(x), modelled(unit, capability, x)
            differs = ~equal_bits(got, want)
            cases.append({"kind": kind, "depth": depth, "results": got.size, "differing": int(differs.sum())})
            if depth == KEPT_DEPTH:
                products.append({"kind": kind, "depth": depth, **_kept(unit, x, got, differs)})
    return {**entry, "cases": cases, "products": products}


def modelled(unit: Unit, capability: int, x: Operands) -> Array:
    """Return the results of our model."""
    return sf.matmul(x.a, x.b.swapaxes(1, 2), accumulate=unit.model(capability), initial=x.c)


def layout_fault(unit: Unit, multiply: Multiply, rng: np.random.Generator) -> str | None:
    """Return a message if the results show that operands are not where the instruction reads them."""
    x = operands.whole_numbers(unit, LAYOUT_DEPTH, rng)
    got, want = multiply(x), x.a @ x.b.swapaxes(1, 2) + x.c
    wrong = np.argwhere(got != want)
    if not len(wrong):
        return None
    n, i, j = wrong[0]
    return (
        f"{len(wrong)} of {want.size} sums of whole numbers are wrong, the first at [{n}, {i}, {j}]: {got[n, i, j]}, "
        f"expected {want[n, i, j]}"
    )


def _kept(unit: Unit, x: Operands, got: Array, differs: NDArray[np.bool_]) -> dict[str, str]:
    """Return a part of the product with most differing results, those rows first, as text."""
    n = int(differs.sum((1, 2)).argmax())
    rows = np.argsort(-differs[n].sum(1), kind="stable")[:KEPT_ROWS]
    parts = {"a": (x.a[n, rows], unit.a), "b": (x.b[n], unit.b), "c": (x.c[n, rows], unit.sums)}
    parts["d"] = (got[n, rows], unit.sums)
    return {name: base64.b64encode(operands.codes_of(*part).tobytes()).decode() for name, part in parts.items()}


def replayed(recorded: dict[str, Any]) -> Iterator[tuple[str, Array, Array]]:
    """Yield the name, the results of the GPU and those of our model for every product in a file."""
    capability = recorded["capability"]
    known = {unit.name: unit for unit in units(capability)}
    for entry in recorded["instructions"]:
        for product in entry.get("products", ()):
            unit = known[entry["instruction"]]
            a, b, c, d = (
                _numbers(product[name], format)
                for name, format in zip("abcd", (unit.a, unit.b, unit.sums, unit.sums), strict=True)
            )
            b = b.reshape(8, -1)
            x = Operands(a.reshape(1, -1, b.shape[1]), b[np.newaxis], c.reshape(1, -1, 8))
            yield f"{unit.name}, {product['kind']}", d.reshape(x.c.shape), modelled(unit, capability, x)


def _numbers(text: str, format: sf.Format) -> Array:
    codes = np.frombuffer(base64.b64decode(text), f"u{bytes_of(format)}")
    return operands.numbers_of(codes, format)
