"""Code that is compiled for GPUs gives the bits of the CPU: the PTX itself is run, not a body in Python.

PTX and a body in Python differ in widths and signs of integers, types of constants, divisions, NaN, values of memory
that was not written, and negative indices.
"""

import dataclasses
import shutil

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from simfloat.arithmetic import machines  # noqa: E402
from simfloat.kernels.gpu import threads, tiles  # noqa: E402
from tests.cuda import ptx, standin  # noqa: E402
from tests.cuda.cases.elementwise import Events, numbers  # noqa: E402
from tests.cuda.cases.tiles import hard_factors  # noqa: E402


@pytest.fixture
def cupy(cupy, nvvm, monkeypatch, tmp_path):
    """A GPU whose kernels a C compiler makes of their PTX."""
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("needs a C compiler")
    # What is remembered of calls has the machine in its key, and loops of its own.
    monkeypatch.setattr(machines, "GPU", dataclasses.replace(machines.GPU))
    gpu = ptx.Cupy(compiler, tmp_path)
    cupy.cuda.Device, cupy.cuda.Module = gpu.cuda.Device, gpu.cuda.Module
    monkeypatch.setattr(standin.ndarray, "data", property(gpu.data_of), raising=False)
    monkeypatch.setattr(tiles, "LEAST", 0)
    monkeypatch.setattr(tiles, "WARP", 2)
    threads._load_kernel.cache_clear()
    with np.errstate(all="ignore"):
        yield gpu
    threads._load_kernel.cache_clear()


def rounding(move):
    for format, mode in ((sf.E4M3, sf.nearest_even), (sf.FP16, sf.stochastic(5)), (sf.E8M0, sf.toward_positive)):
        x = numbers(format, np.float32)
        yield sf.round(move(x), format, mode, stream=sf.BitStream(7))


def operations(move):
    x = numbers(sf.FP16, np.float32)
    yield sf.add(move(x), move(x[::-1].copy()), sf.E5M2)
    yield sf.divide(move(x), 3.0, sf.FP16)
    yield sf.log(move(x), sf.BF16)
    yield sf.encode(sf.round(move(x), sf.E4M3), sf.E4M3)


def counting(move):
    watching = Events()
    sf.round(move(numbers(sf.E4M3)), sf.E4M3, observer=watching)
    yield from watching.seen


def tiled(move):
    a, b, start = hard_factors(33, 18, 6, 12)
    directed = sf.sequential(sf.FP32, sf.toward_negative, products=sf.FP32)
    for accumulate in (sf.sequential(sf.FP16), sf.sequential(sf.E4M3), directed):
        initial = sf.round(start, accumulate.result, sf.nearest_even.saturating())
        yield sf.matmul(move(a), move(b), accumulate=accumulate, initial=move(initial), output=sf.FP32)
    a, b, start = hard_factors(12, 20, 6, 12)
    beside = np.concatenate([[0.0], b.ravel()]).astype(np.float32)
    for right in (move(b), move(beside)[1:].reshape(b.shape)):  # numbers that are read by fours begin at 16 bytes
        yield sf.matmul(move(a), right, accumulate=sf.FP32, initial=move(start), output=sf.FP32)
    yield sf.matmul(move(a), move(b), accumulate=sf.tensor_core("hopper", sf.BF16), initial=move(start), output=sf.FP32)


def sums(move):
    a, b, _ = hard_factors(5, 3, 11, 6)
    for accumulate in (
        *(sf.pairwise(sf.FP16), sf.kahan(sf.BF16), sf.exact),
        *(sf.matrix_core("cdna3", sf.BF16), sf.sequential(sf.Format(5, 3, subnormals=False), sf.stochastic(8))),
    ):
        yield sf.matmul(move(a), move(b), accumulate=accumulate, output=sf.FP32, stream=sf.BitStream(1))


def updates(move):
    x, policies = numbers(sf.FP16, np.float32)[::29], ("bf16-stochastic", "bf16-kahan", sf.Policy(compute=sf.FP32))
    more = ((sf.E5M2FNUZ, sf.to_odd), (sf.BF16, sf.toward_negative), (sf.Format(8, 1), sf.stochastic(8)))
    for policy in (*policies, *(sf.Policy(compute=format, rounding=mode) for format, mode in more)):
        for kind in (sf.optim.AdamW, sf.optim.Lion):
            weight = sf.Parameter(move(x))
            optimizer = kind([weight], lr=0.25, weight_decay=0.5)
            with sf.simulate(policy, 1):
                for gradient in (x[::-1].copy(), 3 * x):
                    weight.grad = move(gradient)
                    optimizer.step()
            yield from (weight.data, *(array for array in optimizer.state[0].values() if array.ndim))


@pytest.mark.parametrize("case", [rounding, operations, counting, tiled, sums, updates], ids=lambda case: case.__name__)
def test_compiled_code_gives_the_bits_of_the_cpu_those_of_nan_too(case, cupy):
    got = [x if isinstance(x, np.ndarray) else x.get() for x in case(standin.moved)]
    assert cupy.started and not cupy.strangers
    for one, other in zip(got, case(lambda x: x), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
