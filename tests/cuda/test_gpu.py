"""Every case has the bits of the CPU on a GPU, if there is one."""

import pytest

from simfloat.arithmetic.machines import what_cuda_lacks
from tests.cuda.cases import CASES, compare, given, results

cupy = pytest.importorskip("cupy", reason="needs CuPy")

if what_cuda_lacks() is not None:
    pytest.skip("needs a GPU", allow_module_level=True)


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_gives_the_bits_of_the_cpu(name):
    compare(results(CASES[name], cupy.asarray), results(CASES[name], given))
