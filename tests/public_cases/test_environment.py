"""Reported bugs of libraries that change the floating-point environment of a whole process."""

import contextlib
import ctypes
import ctypes.util
import platform

import numpy as np
import pytest

import simfloat as sf
from tests.public_cases.oracle import FP32, rounded

torch = pytest.importorskip("torch")

#: The rounding directions of fenv.h: down, up, toward zero.
DIRECTIONS = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}[platform.machine()]

# Operands are made beforehand: NumPy computes in the environment of the process.
TINY = np.ldexp(3.0, np.arange(-153, -143))  # beside and below the smallest subnormal number of FP32, 2^-149
MANY = np.tile(TINY, 2**14)
PAIR = np.ldexp([1.5, 1.0], [-70, -62])
LEAST = np.ldexp([1.0, 3.0], -1074)
SCALE = np.ldexp(1.25, -127)
WEIGHTS, INPUTS = [0.375732421875, -0.01229095458984375], [9.98377799987793e-05, -0.1905517578125]
TENTHS = np.arange(1.0, 197.0) / 10
SMALL = np.arange(-200, 200) / 128
SQUARE = TENTHS.reshape(14, 14)


def sample():
    """Results of several families, which no environment may change."""
    return [
        sf.round(TINY, sf.FP32),
        sf.round(MANY, sf.FP32),  # by several threads
        sf.multiply(*PAIR, sf.BF16),
        sf.add(*LEAST, sf.FP64),
        sf.dot(WEIGHTS, INPUTS, accumulate=sf.FP16),
        sf.round(SCALE, sf.E8M0),
        sf.round(TENTHS, sf.FP16),
        sf.exp(SMALL, sf.BF16),
        sf.sum(TENTHS, inputs=sf.FP32, accumulate=sf.kahan(sf.FP32)),
        sf.matmul(SQUARE, SQUARE, accumulate=sf.FP32),
    ]


@pytest.fixture(scope="module")
def due():
    """The bytes of the sample in a usual environment; the first seven are known without simfloat."""
    found = sample()
    assert found[0].tolist() == [rounded(x, FP32) for x in TINY] and found[1].tolist() == found[0].tolist() * 2**14
    assert found[2:6] == [1.5 * 2.0**-132, 2.0**-1072, 0.00238037109375, 2.0**-127]
    assert found[6].tolist() == np.float16(TENTHS).tolist()
    return [x.tobytes() for x in found]


@pytest.fixture
def environment():
    """Sets denormals-are-zero and a rounding direction, and sets both back, whatever happens."""
    fenv = ctypes.CDLL(ctypes.util.find_library("m"))
    before = fenv.fegetround()

    @contextlib.contextmanager
    def changed(direction=None):
        try:
            assert torch.set_flush_denormal(direction is None)
            if direction is not None:
                assert fenv.fesetround(direction) == 0
            yield
            after = fenv.fegetround()
        finally:
            fenv.fesetround(before)
            torch.set_flush_denormal(False)
        assert after == (before if direction is None else direction), "simfloat left the environment as it was"

    yield changed
    fenv.fesetround(before)
    torch.set_flush_denormal(False)


def test_subnormal_numbers_are_kept_where_a_library_has_them_flushed(environment, due):
    """Importing a module that fast math had been linked into made subnormal numbers zero for all others.

    https://github.com/neuro-ml/imops/issues/37
    """
    with environment():
        found = [x.tobytes() for x in sample()]
        flushed = torch.tensor([1e-40]).mul(1).item()
    assert flushed == 0.0, "PyTorch's own are flushed"
    assert found == due


@pytest.mark.parametrize("direction", DIRECTIONS, ids=["down", "up", "toward-zero"])
def test_the_rounding_direction_of_the_process_changes_no_bit(environment, due, direction):
    """Results of rounding followed a direction that the caller had set. https://github.com/xboot/libonnx/pull/20"""
    with environment(direction):
        found = [x.tobytes() for x in sample()]
    assert found == due
