"""Compiled functions have different names, on disk and for LLVM."""

import gc
import importlib
import pkgutil
import sys
import threading

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache
from numba.core.runtime import _nrt_python as memory
from numba.core.runtime import rtsys

import simfloat.kernels
from simfloat.kernels.compile import processor
from simfloat.kernels.compile.cache import KernelCache
from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import kernel, out_of_line, reader, scalar, vector_kernel
from simfloat.kernels.compile.pipeline import without_collections
from tests.bits import assert_bits

TABLE = np.linspace(1, 2, 256)


def all_kernels():
    """Every kernel of the package, in modules and in their dictionaries."""
    for module in pkgutil.walk_packages(simfloat.kernels.__path__, "simfloat.kernels."):
        for value in vars(importlib.import_module(module.name)).values():
            for candidate in value.values() if isinstance(value, dict) else [value]:
                if isinstance(getattr(candidate, "_cache", None), KernelCache):
                    yield candidate


def test_no_two_kernels_of_a_module_share_a_name_and_a_closure_is_called_after_what_it_closes_over():
    kernels = {id(k): k for k in all_kernels()}.values()
    names = {(k.py_func.__module__, k.py_func.__qualname__) for k in kernels}
    assert len(names) == len(kernels) > 80

    @scalar
    def twice(x):
        return 2.0 * x

    def summing(function, start):
        @kernel
        def loop(x):
            total = start
            for i in range(x.size):
                total += function(x[i])
            return total

        return loop

    # The functions of a test are made inside it, so its name is that of the maker.
    assert summing(twice, 1.0).py_func.__qualname__.endswith("(function=twice, start=1.0)")


def test_what_kernels_call_has_no_wrappers_and_python_calls_it_all_the_same():
    def tripled(x):
        return 3.0 * x

    inlined, called = scalar(tripled), out_of_line(tripled)

    @numba.njit
    def both(x):
        return inlined(x) + called(x)

    for _ in range(2):  # before there are versions for compiled functions, and after
        assert inlined(2.0) == called(x=2.0) == 6.0
        assert both(2.0) == 12.0
    for function in (inlined, called):
        assert [str(types) for types in function.signatures] == ["(float64,)"]
        text = function.inspect_llvm(function.signatures[0])
        assert "cpython" not in text and "cfunc" not in text


def test_a_kernel_that_owns_arrays_releases_them_and_only_such_a_kernel_counts_references():
    @scalar
    def halved(x):
        """A function that owns an array and returns it."""
        space = np.empty(x.size)
        for i in range(x.size):
            space[i] = 0.5 * x[i]
        return space

    @scalar
    def total(x):
        """A function that borrows an array, and parts of it."""
        rest, out = x[1:], 0.0
        for i in range(rest.size):
            out += rest[i]
        return x[0] + out

    @kernel
    def borrowing(x, out):
        out[0] = total(x[:2]) + total((x, out)[0][2:])

    @kernel
    def owning(x, out):
        part = halved(x)
        if out[0] > 0:
            part = halved(part)  # releases the first one
        out[0] = total(part) + total(x)

    x, out = np.arange(8.0), np.zeros(1)
    for loop, want, counts in ((borrowing, 28.0, False), (owning, 35.0, True)):
        loop._cache = NullCache()  # Numba shows no code that comes from a file
        loop(x, out)
        memory.memsys_enable_stats()
        try:
            before, references = rtsys.get_allocation_stats(), sys.getrefcount(x)
            for _ in range(100):
                out[0] = 1
                loop(x, out)
            after = rtsys.get_allocation_stats()
        finally:
            memory.memsys_disable_stats()
        assert out[0] == want and sys.getrefcount(x) == references
        assert after.mi_alloc - before.mi_alloc == after.mi_free - before.mi_free
        assert after.alloc - before.alloc == after.free - before.free
        (text,) = loop.inspect_llvm().values()
        body = text.split("define")[1]
        assert ("NRT_" in body) == counts, body


def test_a_reader_gives_the_fields_in_order():
    from simfloat.kernels.rounding.random import Counter, unpack_counter

    assert unpack_counter(np.arange(6)) == Counter(*range(6))
    assert reader(Counter).py_func.__name__ == "read_Counter"


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_looked_for_during_compilation(monkeypatch, enabled):
    seen = []

    @kernel
    def fails(x):
        return no_such_name(x)  # noqa: F821

    compile_types = fails._compiler.compile
    monkeypatch.setattr(fails._compiler, "compile", lambda *types: seen.append(gc.isenabled()) or compile_types(*types))
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(numba.TypingError):
            fails(1.0)
        assert seen == [False] and gc.isenabled() == enabled
        with pytest.raises(KeyboardInterrupt), without_collections(), without_collections():
            raise KeyboardInterrupt
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_threads_that_compile_at_once_leave_collections_as_they_were():
    @kernel
    def smaller(x):
        return min(2 * x, x)  # a function of Numba's serves kernels as it does other functions

    threads = [threading.Thread(target=smaller, args=(x,)) for x in (1, 1.0, np.float32(1), np.int32(1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(smaller.signatures) == 4 and gc.isenabled()
    assert smaller(1.5) == numba.njit(lambda x: min(2 * x, x))(1.5) == 1.5


def test_the_loops_of_vector_kernels_have_vectors_even_if_they_read_a_table():
    @scalar
    def looked_up(x):
        t = TABLE[np.int64(x)]
        return fma(fma(fma(t, x, t), x, t), x, t)

    @vector_kernel
    def loop(x, out):
        for i in range(out.size):
            out[i] = looked_up(x[i])

    loop._cache = NullCache()
    x, out = np.arange(37) + 0.25, np.zeros(37)
    loop(x, out)
    assert_bits(out, np.array([looked_up(number) for number in x]))
    (text,) = loop.inspect_llvm().values()
    assert f"call <{processor.VECTORS // 64} x double> @llvm.fma" in text
