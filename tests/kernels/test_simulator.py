"""The scalar functions under numba-cuda's simulator are the ones that are compiled for the CPU."""

import os
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.rounding.grid import pack_grid
from tests.bits import assert_bits

pytest.importorskip("numba_cuda", reason="needs numba-cuda for its simulator")


def test_a_simulated_grid_gives_the_same_bits(tmp_path, rng):
    a, b, c = rng.standard_normal((3, 96))
    a[4:48] = abs(a[4:48])
    c[::3] = -(a * b)[::3] + 2.0**-60
    a[:4], b[:4] = [np.inf, np.nan, -0.0, 70000.0], [1.0, 1.0, 0.5, 1.0]
    path = tmp_path / "operands.npz"
    np.savez(path, a=a, b=b, c=c, nearest=pack_grid(sf.FP16), stochastic=pack_grid(sf.FP16, sf.stochastic()))
    # Without compilation, since the simulator is plain Python: the functions must mean the same there.
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.kernels.simulated_grid", str(path)]
    subprocess.run(command, env=environment, check=True, timeout=120)

    nearest, random = (np.load(f"{path}.{name}.npy") for name in ("nearest", "stochastic"))
    assert_bits(nearest[0], sf.add(a, b, sf.FP16), a, b)
    assert_bits(nearest[1], sf.fma(a, b, c, sf.FP16), a, b, c)
    assert_bits(nearest[2], sf.multiply(a, b, sf.FP16), a, b)
    assert_bits(nearest[4], sf.sin(a, sf.FP16), a)
    assert_bits(nearest[5], sf.cos(2.0**60 * a, sf.FP16), a)
    assert_bits(nearest[6], sf.power(a, 2.0 * b, sf.FP16), a, b)
    finite = np.isfinite(a * b) & (np.abs(a * b) < 2.0**16)
    assert_bits(nearest[7][finite], (sf.multiply(a, b, sf.FP16, sf.toward_zero) + 0.0)[finite], a[finite], b[finite])
    assert_bits(nearest[8][finite], sf.fma(a, b, c, sf.FP32)[finite], a[finite], b[finite], c[finite])
    assert_bits(nearest[9], sf.add(a, b, sf.FP16), a, b)
    stream = sf.BitStream.from_state({"seed": 2**40, "calls": 3})
    assert_bits(random[2], sf.multiply(a, b, sf.FP16, sf.stochastic(), stream=stream), a, b)
    stream = sf.BitStream.from_state({"seed": 2**40, "calls": 3})
    assert_bits(random[3], sf.divide(a, b, sf.FP16, sf.stochastic(), stream=stream), a, b)
