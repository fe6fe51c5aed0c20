"""python -m benchmarks.tensor_cores.record_libraries [FILE]: record products of libraries, which the tests replay.

The file is an NPZ: an array for each product and shape, and "facts", a text in JSON with the date, the commit, the
command, the device, its driver, and the versions of packages.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from llvmlite import binding

import simfloat as sf
from benchmarks.tensor_cores import libraries, recording
from benchmarks.tensor_cores.libraries import Product, Shape
from benchmarks.tensor_cores.operands import Array

#: Shapes (m, n, k) of two products: of matrices, with long sums; and of a vector and a matrix, which libraries sum in
#: another order.
SHAPES: tuple[Shape, ...] = ((32, 32, 992), (1, 256, 1024))


def outcomes(products: Iterable[Product], shapes: Sequence[Shape] = SHAPES) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the results by product and shape, such as "PyTorch, FP16|32x32x992", and the errors by the same names."""
    results: dict[str, Array] = {}
    errors: dict[str, str] = {}
    for product in products:
        for shape in shapes:
            name = f"{product.name}|{'x'.join(map(str, shape))}"
            a, b = libraries.operands_of(product, shape)
            try:
                results[name] = product.numbers(product.multiply(product.take(a), product.take(b)))
            except Exception as error:  # libraries raise many kinds of errors
                errors[name] = f"{type(error).__name__}: {error}"
    return results, errors


def products_on(device: str) -> tuple[list[Product], dict[str, str]]:
    """Return the products of all libraries on "cuda" or "cpu", and the errors of libraries that are missing."""
    on_cpu = {"PyTorch": partial(libraries.torch_products, "cpu"), "NumPy": partial(libraries.array_products, np)}
    on_gpu = {library: partial(libraries.on_gpu, library) for library in libraries.LIBRARIES}
    products: list[Product] = []
    errors: dict[str, str] = {}
    for library, make in (on_gpu if device == "cuda" else on_cpu).items():
        try:
            products += make()
        except (ImportError, RuntimeError) as error:
            errors[library] = f"{type(error).__name__}: {error}"
    return products, errors


def facts_of(device: str) -> dict[str, Any]:
    """Return the origin of a recording, with the device and the versions of packages."""
    if device == "cuda":
        return {**recording.origin(), **recording.facts()}
    versions = {"python": platform.python_version(), "simfloat": sf.__version__, **recording.package_versions()}
    return {**recording.origin(), "device": binding.get_host_cpu_name(), "versions": versions}


def write(path: Path | None, device: str) -> tuple[Path, int]:
    """Record all products on a device; return the file and the number of results."""
    facts, (products, missing) = facts_of(device), products_on(device)
    results, errors = outcomes(products)
    facts["errors"] = missing | errors
    file = path or recording.RECORDED / f"{re.sub(r'[^a-z0-9]+', '_', facts['device'].lower())}_libraries.npz"
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, facts=np.array(json.dumps(facts)), **results)
    return file, sum(array.size for array in results.values())


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
def main(file: Path | None, device: str) -> None:
    """Record products of PyTorch and CuPy on a GPU, or of PyTorch and NumPy on a CPU, in FILE."""
    path, count = write(file, device)
    print(f"{count:,} results in {path}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.tensor_cores.record_libraries")
