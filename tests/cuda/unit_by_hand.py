"""A simulated GPU: its tensor-core instructions are our models, which read the words of a program."""

import sys
import types

import numpy as np

import simfloat as sf
from benchmarks.tensor_cores import comparing, operands, programs, worker
from benchmarks.tensor_cores.instructions import bytes_of, units
from simfloat.arithmetic import machines
from tests.cuda import standin

UNITS = {unit.name: unit for unit in units(90)}


def install(monkeypatch):
    """Make it the GPU at hand, and comparisons small."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    module = standin.install()
    runtime = types.SimpleNamespace(
        getDeviceProperties=lambda number: {"name": b"GPU by hand"},
        driverGetVersion=lambda: 13000,
        runtimeGetVersion=lambda: 13020,
    )
    module.cuda = types.SimpleNamespace(
        Device=lambda: types.SimpleNamespace(compute_capability="90"), runtime=runtime, Module=Module
    )
    monkeypatch.setattr(programs, "compiled", lambda unit, capability: f"{unit.name} {capability}".encode())
    monkeypatch.setattr(comparing, "WORK", 1 << 14)
    monkeypatch.setattr(comparing, "DEPTHS", (16, 32))
    return module


class Module:
    """CuPy's module of machine code, here the name of an instruction."""

    def load(self, code):
        name, _, capability = code.decode().partition(" ")
        self.unit, self.capability = UNITS[name], int(capability)

    def get_function(self, name):
        assert name == "products"
        return self

    def __call__(self, blocks, threads, arguments):
        a, b, c, d, chunks = arguments
        unit = self.unit
        assert (blocks, threads) == ((len(c),), (32 * unit.warps,)) and a.shape[1] == b.shape[1] == chunks
        assert c.dtype == (np.float16 if unit.sums == sf.FP16 else np.float32)
        x, y = (elements(*given) for given in ((a.get(), unit.a, unit.rows), (b.get(), unit.b, 8)))
        x = operands.Operands(x, y, c.get().astype(np.float32))
        d[...] = machines.GPU.to_device(comparing.modelled(unit, self.capability, x).astype(c.dtype))


def elements(words, format, rows):
    """The matrices (n, rows, depth) that words hold: K-major without swizzling, in the PTX ISA's section on Canonical
    Layouts ((8, m), (T, 2)) : ((T, SBO), (1, LBO)), counted in elements."""
    size = bytes_of(format)
    codes = words.reshape(len(words), words.shape[1], -1).view(f"u{size}")
    term, group, half = 16 // size, 8 * (16 // size), rows * (16 // size)
    i, k = np.ogrid[:rows, : 2 * term]
    places = i % 8 * term + i // 8 * group + k % term + k // term * half
    found = codes[:, :, places].transpose(0, 2, 1, 3).reshape(len(words), rows, -1)
    return operands.numbers_of(np.ascontiguousarray(found), format)


class Here:
    """Stands in for a worker: calls in this process."""

    def call(self, function, *arguments, seconds):
        try:
            return function(*arguments)
        except Exception as error:
            raise worker.Failure(f"{type(error).__name__}: {error}") from error
