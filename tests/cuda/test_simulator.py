"""Every case has the bits of the CPU on a simulated GPU, with arrays that behave like CuPy's."""

import os
import pickle
import subprocess
import sys
from functools import cache

import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda for its simulator")

from tests.cuda import plain, standin  # noqa: E402
from tests.cuda.cases import CASES, compare, given, results  # noqa: E402
from tests.cuda.devices import StandIn  # noqa: E402


class Watching(StandIn):
    """The stand-in, with the bodies of all loops that were started."""

    def __init__(self):
        super().__init__()
        self.started = set()

    def launch(self, body, count, arguments):
        self.started.add(body)
        super().launch(body, count, arguments)


@cache
def carried_out(name):
    """The results of a case with threads in random order, and the bodies that they ran."""
    gpu = Watching()
    with gpu.present():
        return results(CASES[name], standin.moved), gpu.started


@pytest.mark.parametrize("name", CASES)
def test_threads_in_any_order_give_the_bits_of_the_cpu(name):
    compare(carried_out(name)[0], results(CASES[name], given))


def test_the_cases_need_every_loop_that_a_gpu_has():
    started = set().union(*(carried_out(name)[1] for name in CASES))
    left = {name for name, bodies in bodies_by_loop() if not bodies & started}
    assert left == set()


def labelled(name, value):
    """A value, or those of a dictionary, of dictionaries too, with their names."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, one in value.items():
        yield from labelled(f"{name}[{key}]", one)


def bodies_by_loop():
    """The name and the bodies of every loop in `kernels.gpu`: one, or one for every tile that was asked for."""
    for path, module in plain.modules().items():
        for name, value in vars(module).items():
            for label, loop in labelled(name, value):
                if type(loop).__module__.startswith("simfloat.kernels.gpu") and callable(loop):
                    tiles = loop.tiles if hasattr(getattr(loop, "tiles", None), "loops") else loop
                    bodies = {one.body for one in getattr(tiles, "loops", {}).values()} | {getattr(loop, "body", None)}
                    yield f"{path.rpartition('.')[2]}.{label}", bodies


def test_the_simulator_gives_these_results_and_the_self_test_compares_a_gpu_with_the_cpu(tmp_path):
    # In one process, without compilation.
    names, environment = ("given_bits",), {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.cuda.simulator_run", str(tmp_path / "found"), *names]
    pipes = {"check": True, "timeout": 240, "stdout": subprocess.PIPE, "text": True}
    lines = subprocess.run(command, env={**os.environ, **environment}, **pipes).stdout.splitlines()
    for got, name in zip(pickle.loads((tmp_path / "found").read_bytes()), names, strict=True):
        compare(got, results(CASES[name], given))
    assert [line.split()[0] for line in lines[:-1]] == ["rounding", "operations", "sums", "events"]
    assert all(line.endswith(" ok") for line in lines[:-1])
    assert lines[-1].startswith("All 4 checks passed: ")
