"""The command line: simfloat selftest [--quick] | simfloat --version."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence

import numpy as np

import simfloat as sf
from simfloat.terminal import guarded


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it succeeded. Mistakes in the arguments exit with 2, an interrupt with 130."""
    return guarded(lambda: carry_out(arguments))


def carry_out(arguments: Sequence[str] | None) -> int:
    """Carry out the command that the arguments name."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as end:  # a mistake, or what --help and --version have printed
        return int(end.code or 0)
    return {"selftest": selftest}[options.command](options)


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    parser = argparse.ArgumentParser("simfloat", description="Narrow floating-point arithmetic, bit for bit.")
    parser.add_argument("--version", action="version", version=f"simfloat {sf.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("selftest", help="check that this machine computes every bit as defined")
    command.add_argument("--quick", action="store_true", help="fewer cases: seconds instead of half a minute")
    return parser


def selftest(options: argparse.Namespace) -> int:
    """Check the library on this machine; 1 if a check failed."""
    import numba

    from simfloat.selftest import CHECKS, run

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    print(f"simfloat {sf.__version__} on {platform.machine()}, {sf.get_threads()} threads; {versions}", flush=True)
    return 0 if run(CHECKS, options.quick) else 1


if __name__ == "__main__":
    raise SystemExit(main())
