"""python -m benchmarks [NAME ...]: print the tables of all benchmarks, or of those named."""

from __future__ import annotations

import platform
import sys

import click
import numba
import numpy as np
from llvmlite import binding
from rich.console import Console
from rich.table import Table

import simfloat as sf
from benchmarks import (
    agreement,
    elimination,
    gpu,
    images,
    operations,
    peers,
    products,
    pytorch,
    roads,
    rounding,
    startup,
    torch_gpu,
    training,
)

BENCHMARKS = {
    "startup": startup,
    "roads": roads,
    "rounding": rounding,
    "products": products,
    "elimination": elimination,
    "operations": operations,
    "training": training,
    "images": images,
    "pytorch": pytorch,
    "peers": peers,
    "agreement": agreement,
    "gpu": gpu,
    "torch_gpu": torch_gpu,
}
COLUMNS = ("what", "measured", "compared", "target")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
def main(names: tuple[str, ...]) -> None:
    """Print the tables of all benchmarks, or of those named."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    console.print(f"{binding.get_host_cpu_name()}, {sf.get_threads()} threads; {versions}, simfloat {sf.__version__}")
    for name in names or BENCHMARKS:
        module = BENCHMARKS[name]
        table = Table(title=(module.__doc__ or name).strip(), title_justify="left")
        for column in getattr(module, "COLUMNS", COLUMNS):
            table.add_column(column)
        try:
            for row in module.rows():
                table.add_row(*row)
        finally:  # also the rows before an error or Ctrl-C
            console.print(table)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
