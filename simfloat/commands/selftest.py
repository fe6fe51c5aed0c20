"""simfloat selftest [--quick]"""

from __future__ import annotations

import argparse
import platform

import numpy as np

import simfloat as sf

HELP = "check that this machine computes every bit as defined"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All cases, or fewer."""
    parser.add_argument("--quick", action="store_true", help="a tenth of the cases")


def run(options: argparse.Namespace) -> int:
    """Check the library on this machine; 1 if a check failed."""
    import numba

    from simfloat.selftest import CHECKS, run

    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    print(f"simfloat {sf.__version__} on {platform.machine()}, {sf.get_threads()} threads; {versions}", flush=True)
    return 0 if run(CHECKS, options.quick) else 1
