"""CuPy's own operations are compiled without flushing subnormal numbers of float32."""

import gc
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import machines
from tests.unusual import environment


class Operation:
    """One of CuPy's, which keeps what was compiled of it."""

    def __init__(self):
        self._kernel_memo = {"float32": "flushing"}


class OwnOperation(Operation):
    pass


@pytest.fixture
def compiled(cupy):
    """The options that a CuPy asks its compiler for; it computes as they say."""
    options_of = []

    def compile(source, options, arch=None):
        options += ("-ftz=true",)
        options_of.append((source, options, arch))

    cupy.cuda.compiler = types.SimpleNamespace(_compile_with_cache_cuda=compile)
    cupy.clear_memo = lambda: options_of.append("forgotten")
    cupy._core = types.SimpleNamespace(_kernel=types.SimpleNamespace(ufunc=Operation, ElementwiseKernel=OwnOperation))
    machines.keep_subnormal_numbers.cache_clear()
    yield options_of
    machines.keep_subnormal_numbers.cache_clear()


def test_the_flag_is_removed_once_and_compiled_code_is_discarded(cupy, compiled):
    x, operation, proxies = cupy.asarray(np.float32([2.0**-149])), Operation(), [weakref.proxy(Operation())]
    for _ in range(2):
        sf.ulp(x, sf.FP32)
    assert operation._kernel_memo == {} and any(proxies[0] is each for each in gc.get_objects())
    cupy.cuda.compiler._compile_with_cache_cuda("y = x", ("-I.",), arch="90")
    assert compiled == ["forgotten", ("y = x", ("-I.",), "90")]


def test_a_cupy_that_flushes_all_the_same_is_refused(cupy, compiled, monkeypatch):
    def flushed(self, dtype):
        return cupy.asarray(np.zeros(self.shape, dtype))

    cupy.__version__ = "99.0"
    x = cupy.asarray(np.float32([2.0**-149]))
    monkeypatch.setattr(type(x), "astype", flushed)
    with pytest.raises(ValueError, match="CuPy 99.0 flushes subnormal numbers of float32 to zero.*install CuPy 14"):
        sf.round(x, sf.BF16)


def test_a_cupy_is_tested_in_the_usual_environment(cupy, compiled):
    with environment("flush_up"):
        machines.keep_subnormal_numbers()


def test_numba_cuda_can_be_imported_with_a_numpy_without_row_stack():
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    code = """
import numpy as np
if hasattr(np, "row_stack"):
    del np.row_stack
from simfloat.kernels.gpu.compiling import cuda
assert cuda.grid and not hasattr(np, "row_stack")
"""
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning:numba", "-c", code], check=True)
