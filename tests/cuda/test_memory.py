"""A computation that needs more GPU memory than there is raises an error with both sizes."""

import re
import sys

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from tests.cuda import standin  # noqa: E402
from tests.cuda.devices import StandIn  # noqa: E402

#: Bytes of the largest array that can be made.
LEFT = 70_000

ROW, COLUMN = np.ones((1, 100)), np.ones((100, 1))
IMAGES, KERNELS = np.ones((2, 3, 20, 20)), np.ones((4, 3, 5, 5))
SCALED = sf.scaled(sf.E4M3, sf.block(4, sf.E8M0))


def convolved(move, inputs=sf.FP16, **options):
    return sf.conv2d(move(IMAGES), move(KERNELS), inputs=inputs, accumulate=sf.FP16, **options)


#: Calls, and the shapes of the arrays that they create; for a convolution, of the patches.
CALLS = [
    (lambda move: sf.round(np.broadcast_to(move(ROW), (100, 100)), sf.FP16), (100, 100)),
    (lambda move: sf.add(move(ROW), move(COLUMN), sf.FP16), (100, 100)),
    (lambda move: sf.matmul(move(COLUMN), move(ROW), inputs=sf.FP16, accumulate=sf.FP16), None),
    (lambda move: sf.matmul(move(COLUMN), move(ROW), accumulate=sf.exact, output=sf.FP16), None),
    (convolved, (2, 3, 5, 5, 16, 16)),
    (lambda move: convolved(move, SCALED), (2, 3, 5, 5, 16, 16)),
    (lambda move: convolved(move, padding=30), (2, 3, 80, 80)),
]


@pytest.fixture
def small(monkeypatch):
    """A GPU with so much memory left."""
    make = standin.ndarray.__init__

    def limited(self, host):
        if host.base is None and host.nbytes > LEFT:
            raise MemoryError
        make(self, host)

    monkeypatch.setattr(standin.ndarray, "__init__", limited)
    with StandIn().present():
        sys.modules["cupy"].cuda.runtime.memGetInfo = lambda: (LEFT, 80_000)
        yield


def test_the_needed_memory_is_reported(small):
    for call, shape in CALLS:
        with pytest.raises(
            ValueError, match="of the GPU's 80,000 there are 70,000 left: pass smaller operands"
        ) as error:
            call(standin.moved)
        told = re.match(r"An array of shape (\(.*\)) takes ([0-9,]+) bytes", str(error.value))
        sizes = tuple(int(size) for size in re.findall("[0-9]+", told[1]))
        assert shape in (None, sizes) and int(told[2].replace(",", "")) in (4 * np.prod(sizes), 8 * np.prod(sizes))
    assert sf.round(standin.moved(np.ones((80, 100))), sf.FP16).shape == (80, 100), "what fits into memory runs"
