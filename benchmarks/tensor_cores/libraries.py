"""Compare matrix products of libraries with our sums, and find their undocumented order of additions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from benchmarks.tensor_cores.operands import Array, rounded
from simfloat.tools.selftest.checks import equal_bits

#: m, n, k.
Shape = tuple[int, int, int]

LIBRARIES = ("PyTorch", "CuPy")

#: Small and large products; long sums of few results, which libraries divide among blocks of threads; and a vector
#: times a matrix, whose order takes the longest to be found.
SHAPES = ((64, 64, 64), (128, 128, 512), (1024, 1024, 1024), (512, 512, 4096), (32, 32, 992), (1, 256, 1024))

#: The number of rows of a product that are compared.
ROWS = 64


class Product(NamedTuple):
    """A product a b^T of a library, on arrays of its own type."""

    name: str
    inputs: sf.Format
    output: sf.Format
    take: Callable[[Array], Any]  # values of `inputs` -> its array
    multiply: Callable[[Any, Any], Any]  # (m, k), (n, k) -> (m, n)
    numbers: Callable[[Any], NDArray[np.floating]]  # its array -> values
    put: Callable[[Any, int, Any], None]  # (array, index of a row, its array of a row): writes the row

    def model(self, architecture: str) -> sf.Accumulator:
        """The sum in one chain: of the tensor core, or of fused multiply-adds in FP32."""
        if self.inputs == sf.FP32:
            return sf.sequential(sf.FP32)
        return sf.tensor_core(architecture, self.inputs)  # type: ignore[arg-type]


def torch_products(device: str) -> list[Product]:
    """Yield products of PyTorch on "cuda", or on "cpu", which has no TF32, and FP32 results only for FP8."""
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    single = torch.float32

    def product(name: str, inputs: sf.Format, dtype: Any, output: sf.Format, multiply: Any) -> Product:
        return Product(
            f"PyTorch, {name}",
            inputs,
            output,
            lambda x: torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(device).to(dtype),
            multiply,
            lambda x: x.to(single).cpu().numpy(),
            # Not every operation accepts FP8; copies of bytes do.
            lambda x, row, values: x.view(torch.uint8)[row].copy_(values.view(torch.uint8)),
        )

    def plain(precision: str) -> Callable[[Any, Any], Any]:
        def multiply(a: Any, b: Any) -> Any:
            torch.set_float32_matmul_precision(precision)
            return torch.matmul(a, b.t())

        return multiply

    def whole(a: Any, b: Any) -> Any:
        return torch.mm(a, b.t(), out_dtype=single)

    def scaled(fast: bool) -> Callable[[Any, Any], Any]:
        one = torch.ones((), device=device)
        return lambda a, b: torch._scaled_mm(a, b.t(), one, one, out_dtype=single, use_fast_accum=fast)

    eight = sf.E4M3, torch.float8_e4m3fn, sf.FP32
    products = [
        product("FP16", sf.FP16, torch.float16, sf.FP16, plain("highest")),
        product("BF16", sf.BF16, torch.bfloat16, sf.BF16, plain("highest")),
        product("FP32", sf.FP32, single, sf.FP32, plain("highest")),
        product("E4M3", *eight, scaled(False)),
        product("E4M3, use_fast_accum", *eight, scaled(True)),
    ]
    if device == "cuda":
        products += [
            product("TF32", sf.TF32, single, sf.FP32, plain("high")),
            product("FP16 to FP32", sf.FP16, torch.float16, sf.FP32, whole),
            product("BF16 to FP32", sf.BF16, torch.bfloat16, sf.FP32, whole),
        ]
    return products


def array_products(arrays: Any) -> list[Product]:
    """Yield products of CuPy, or of NumPy; `arrays` is the module."""

    def product(inputs: sf.Format, dtype: Any) -> Product:
        def put(x: Any, row: int, values: Any) -> None:
            x[row] = values

        return Product(
            f"{arrays.__name__}, {inputs}",
            inputs,
            inputs,
            lambda x: arrays.asarray(x.astype(dtype)),
            lambda a, b: arrays.matmul(a, b.T),
            lambda x: (x.get() if hasattr(x, "get") else np.asarray(x)).astype(np.float32),
            put,
        )

    return [product(sf.FP16, np.float16), product(sf.FP32, np.float32)]


def on_gpu(library: str) -> list[Product]:
    """Return the products of a library on the current GPU. Raises ImportError or RuntimeError if it has none."""
    if library == "PyTorch":
        return torch_products("cuda")
    import cupy

    return array_products(cupy)


def names_on_gpu(library: str) -> list[str]:
    """Return the names of the products of a library."""
    return [product.name for product in on_gpu(library)]


def counted_on_gpu(library: str, name: str, shape: Shape, architecture: str) -> dict[str, Any]:
    """Return `counted` for the product with that name."""
    return counted(_named(library, name), shape, architecture)


def revealed_on_gpu(library: str, name: str, shape: Shape, place: tuple[int, int]) -> dict[str, Any]:
    """Return `revealed` for the product with that name."""
    return revealed(_named(library, name), shape, place)


def _named(library: str, name: str) -> Product:
    (product,) = [product for product in on_gpu(library) if product.name == name]
    return product


def counted(product: Product, shape: Shape, architecture: str) -> dict[str, Any]:
    """Return the entry of a product: the number of results that differ from one chain, and the first one's position."""
    model = product.model(architecture)
    differs = _differing(product, shape, model, product.output)
    entry = {"product": product.name, "shape": list(shape), "model": str(model)}
    entry |= {"results": differs.size, "differing": int(differs.sum())}
    if differs.any():
        row, column = np.argwhere(differs)[0]
        entry["first"] = [int(_rows(shape)[row]), int(column)]
    return entry


def revealed(product: Product, shape: Shape, place: tuple[int, int]) -> dict[str, Any]:
    """Find the order of additions at a position, and count the results that differ from this accumulator."""
    found = sf.reveal(dot_inside(product, shape, *place), shape[2], inputs=product.inputs)
    entry: dict[str, Any] = {"order": str(found.tree), "reason": found.reason}
    if found.accumulator is not None:
        differs = _differing(product, shape, found.accumulator, found.output, found.rounding)
        entry |= {"found": str(found.accumulator), "output": str(found.output or found.accumulator.result)}
        entry["differing from it"] = int(differs.sum())
    return entry


def _differing(
    product: Product,
    shape: Shape,
    accumulate: sf.Accumulator,
    output: sf.Format | None,
    rounding: sf.Rounding | None = None,
) -> NDArray[np.bool_]:
    """Return a mask of the results in some rows of a random product that differ from an accumulator."""
    a, b = operands_of(product, shape)
    rows = _rows(shape)
    got = product.numbers(product.multiply(product.take(a), product.take(b)))[rows]
    return ~equal_bits(got, sf.matmul(a[rows], b.T, accumulate=accumulate, output=output, rounding=rounding))


def operands_of(product: Product, shape: Shape) -> tuple[Array, Array]:
    """Return random operands for a product, with the shapes (m, k) and (n, k)."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    return rounded(rng.standard_normal((m, k)), product.inputs), rounded(rng.standard_normal((n, k)), product.inputs)


def _rows(shape: Shape) -> NDArray[np.int64]:
    """Return the rows that are compared."""
    return np.unique(np.linspace(0, shape[0] - 1, ROWS).astype(np.int64))


def dot_inside(product: Product, shape: Shape, row: int, column: int) -> Callable[[Array, Array], float]:
    """Return a dot product as the library computes it at a position of a product of this shape, by the same kernel."""
    m, n, k = shape
    a, b = (product.take(np.zeros((count, k), np.float32)) for count in (m, n))

    def dot(x: Array, y: Array) -> float:
        product.put(a, row, product.take(x))
        product.put(b, column, product.take(y))
        return float(product.numbers(product.multiply(a, b)[row, column]))

    return dot
