"""The loops of a GPU as plain Python, in a process with compiled loops for the CPU.

Only the fused multiply-add is computed by the processor, because its plain body uses fractions, and functions consist
mostly of fused multiply-adds.
"""

import importlib
import pkgutil
import sys
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace

import numba
import numpy as np
from numba.core import config

import simfloat
from simfloat.arithmetic import machines
from simfloat.kernels.compile import intrinsics


@cache
def modules():
    """The modules of `simfloat.kernels.gpu` once more, by name; nothing in them, nor in what they call, is compiled."""
    kernels, compiled = simfloat.kernels, taken_out()
    config.DISABLE_JIT = True
    try:
        importlib.import_module("simfloat.kernels.compile.intrinsics").fma = fma
        room = importlib.import_module("simfloat.kernels.gpu")
        for module in pkgutil.iter_modules(room.__path__):
            if module.name != "compiling":  # which has no use here
                importlib.import_module(f"simfloat.kernels.gpu.{module.name}")
        made = {name: module for name, module in sys.modules.items() if name.startswith("simfloat.kernels.gpu")}
        # Some loops are made when they are first called: nothing is compiled then, either.
        for module in (*made.values(), sys.modules["simfloat.kernels.compile.jit"]):
            vars(module).update(config=SimpleNamespace(DISABLE_JIT=True), numba=SimpleNamespace(njit=as_it_is))
        return made
    finally:
        config.DISABLE_JIT = False
        taken_out()
        put_in(compiled)
        simfloat.kernels = kernels


@contextmanager
def in_place():
    """They are `simfloat.kernels.gpu` meanwhile, and the machine of CuPy's arrays has these loops."""
    made, gpu = modules(), machines.GPU
    kept = {name: sys.modules[name] for name in made if name in sys.modules}
    package, loops = simfloat.kernels.gpu, gpu.loops
    put_in(made)
    object.__setattr__(gpu, "loops", made["simfloat.kernels.gpu"])
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]
        put_in(kept)
        simfloat.kernels.gpu = package
        object.__setattr__(gpu, "loops", loops)


def as_it_is(**options):
    """A decorator that compiles nothing."""
    return lambda function: function


def put_in(modules):
    """Make these the modules of their names, and each the attribute of its package."""
    sys.modules.update(modules)
    for name, module in modules.items():
        package, _, attribute = name.rpartition(".")
        setattr(sys.modules[package], attribute, module)


def fma(a, b, c):
    """a * b + c rounded once to nearest even, in the type of that."""
    kind = np.float32 if isinstance(a * b + c, np.float32) else np.float64
    return kind(processors_fma(kind(a), kind(b), kind(c)))


@numba.njit
def processors_fma(a, b, c):
    return intrinsics.fma(a, b, c)


def taken_out():
    """The modules of the kernels, which the next import makes anew."""
    names = [name for name in sys.modules if name == "simfloat.kernels" or name.startswith("simfloat.kernels.")]
    return {name: sys.modules.pop(name) for name in names}
