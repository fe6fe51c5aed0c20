"""Fixtures of GPU tests: the stand-in for CuPy, and NVIDIA's compilers, which need no GPU."""

import sys

import pytest

from tests.cuda import standin


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in as the module `cupy`, while a test lasts."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    return standin.install()


@pytest.fixture(scope="session")
def nvvm():
    """The compiler of loops."""
    _load("nvvm", "compiler (nvidia-nvvm)")


@pytest.fixture(scope="session")
def nvrtc():
    """The compiler of programs for tensor cores."""
    pytest.importorskip("cuda.bindings", reason="needs NVIDIA's bindings (cuda-bindings)")
    _load("nvrtc", "runtime compiler (nvidia-cuda-nvrtc)")


def _load(library, what):
    pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs NVIDIA's pathfinder (cuda-pathfinder)")
    try:
        pathfinder.load_nvidia_dynamic_lib(library)
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip(f"needs NVIDIA's {what}")
