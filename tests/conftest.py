"""Fixtures and options for all tests."""

import gc
import importlib.util
import os

# Threads of the libraries below NumPy and PyTorch wait for work in loops: beside other processes of tests that takes
# several times as long as what they do. Read when these are imported, here and in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from simfloat import terminal
from simfloat.arithmetic.programs import READINESS
from simfloat.simulation.streams import RepeatedDraws
from tests import unusual

# Tests look at what is said on standard error; how long kernels take to compile is no part of it.
terminal.silence()

# Tests of updates are about programs, in processes too short for the loop of programs to be compiled on its own.
READINESS.compile_at_once()

DEVICES = {
    "simulated": "small calls, a few of every kind, on what stands for a GPU",
    "cuda": "every call on the GPU",
    "cpu": "none",
}

#: The tests whose calls are repeated where nothing else is said.
REPEATED = {"accumulate", "arithmetic", "autodiff", "optim", "simulation", "telemetry"}

#: The tests of extensions take minutes in other processes: at the end, one worker would wait for them. The rooms that
#: compile the loops of sums follow: then one worker of two compiles the functions that these loops have in common.
#: Those whose processes call every kernel come last, when other tests have compiled most.
FIRST, LAST = ("extensions", "accumulate", "linalg", "kernels", "selftest"), ("commands",)


def pytest_addoption(parser):
    told = "; ".join(f"{name}: {what}" for name, what in DEVICES.items())
    parser.addoption("--device", choices=list(DEVICES), default="simulated", help=f"which calls are repeated ({told})")
    parser.addoption(
        "--environment",
        choices=["usual", *unusual.ENVIRONMENTS],
        default="usual",
        help="the floating-point environment of calls",
    )


def pytest_configure(config):
    """Have what computes on arrays repeated on a GPU, before tests import it, in processes that run tests."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    # What is imported and collected is no garbage: to look for some in it took a tenth of the time of collection.
    gc.disable()
    if (environment := config.getoption("--environment")) != "usual":
        unusual.install(environment)
    device = config.getoption("--device")
    # A GPU has an environment of its own, which the stand-in does not have.
    is_possible = environment == "usual" and importlib.util.find_spec("numba_cuda") is not None
    if device == "cpu" or (device == "simulated" and not is_possible):
        return
    from simfloat.arithmetic.machines import what_cuda_lacks
    from tests.cuda import devices, shadow

    if device == "cuda" and (missing := what_cuda_lacks()) is not None:
        raise pytest.UsageError(f"--device cuda: {missing}")
    config.shadow = shadow.Shadow(devices.Gpu() if device == "cuda" else devices.StandIn(most_steps=100))
    config.shadow.paused = True
    shadow.install(config.shadow)


def pytest_collection_modifyitems(items):
    """Compile each kernel once, before processes need it."""
    places = {room: place for place, room in enumerate((*FIRST, "", *LAST))}
    items.sort(key=lambda item: places.get(item.path.parent.name, places[""]))


def pytest_collection_finish():
    """Look for garbage less often, and not among what was imported: that took a tenth of the processor's time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


# A hook, because two fixtures for every test took a fifth of the time of a short test.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Repeat calls, except in tests that change the package or count its calls; forget simulations of other tests."""
    RepeatedDraws.same_run = (None, 0)  # the warning about equal runs in a row is for one test
    if (shadow := getattr(item.config, "shadow", None)) is not None:
        here = item.config.getoption("--device") == "cuda" or item.path.parent.name in REPEATED
        shadow.paused = not here or "monkeypatch" in item.fixturenames
    outcome = yield
    if shadow is not None:
        shadow.paused = True
    return outcome


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


@pytest.fixture
def ml_dtypes():
    return pytest.importorskip("ml_dtypes", reason="needs ml_dtypes as an oracle")


@pytest.fixture
def gmpy2():
    return pytest.importorskip("gmpy2", reason="needs gmpy2 (MPFR) as an oracle")


@pytest.fixture
def gfloat():
    pytest.importorskip("gfloat.formats", reason="needs gfloat as an oracle")
    return pytest.importorskip("gfloat")


@pytest.fixture
def apytypes():
    return pytest.importorskip("apytypes", reason="needs apytypes as an oracle")
