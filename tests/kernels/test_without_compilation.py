"""Kernels as plain Python, as in a debugger under NUMBA_DISABLE_JIT=1, give the bits of compiled ones."""

import os
import subprocess
import sys

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from tests.bits import assert_bits

ACCUMULATORS = [
    *(sf.FP16, sf.sequential(sf.BF16), sf.sequential(sf.FP16, products=sf.FP16)),
    *(sf.sequential(sf.FP16, rounding=mode) for mode in (sf.toward_zero, sf.stochastic(), sf.stochastic(8, "A"))),
    *(sf.pairwise(sf.FP16), sf.pairwise(sf.FP16, rounding=sf.stochastic()), sf.kahan(sf.BF16), sf.exact),
    *(sf.tensor_core("hopper", sf.FP16), sf.tensor_core("volta", sf.FP16, sf.FP16), sf.fused(4, 13, sf.Format(8, 13))),
    *(sf.matrix_core(architecture, sf.FP16) for architecture in ("cdna1", "cdna2", "cdna3")),
]


def results():
    """A little of everything, as one vector."""
    rng = np.random.default_rng(3)
    a = sf.round(rng.standard_normal((2, 5)).astype(np.float32), sf.FP16)
    x = np.abs(a)
    parts = [
        sf.matmul(a, a.T, accumulate=accumulate, output=sf.FP32, stream=sf.BitStream(1)) for accumulate in ACCUMULATORS
    ]
    # Of float64 operands, whose loops other tests compile, too.
    given = x.astype(np.float64), a.astype(np.float64), a
    parts += [getattr(sf, name)(*given[: len(row.operands)], sf.FP16) for name, row in FUNCTIONS.items()]
    parts += [sf.add(a, x, sf.BF16), sf.fma(a, a, x, sf.E4M3), sf.round(a, sf.E4M3)]
    ends, far = np.array([0.0, -0.0, -1.0, 5e-324, 1.7e308]), np.array([1e300, -1e300, np.inf, 1e-300, 1.7e308])
    parts += [sf.rsqrt(ends, sf.BF16), sf.fma(far, far, ends, sf.BF16), sf.matmul([far], far, accumulate=sf.FP64)]
    return np.concatenate([part.ravel() for part in parts])


def test_plain_loops_give_the_same_bits(tmp_path):
    path = tmp_path / "results.npy"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.kernels.test_without_compilation", str(path)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    assert_bits(np.load(path), results())


if __name__ == "__main__":
    np.save(sys.argv[1], results())
