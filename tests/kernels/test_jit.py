"""Compiled functions have different names, on disk and for LLVM."""

import importlib
import pkgutil

import numba
import numpy as np

import simfloat.kernels
from simfloat.kernels.compile.cache import KernelCache
from simfloat.kernels.compile.jit import kernel, out_of_line, reader, scalar


def all_kernels():
    """Every kernel of the package, in modules and in their dictionaries."""
    for module in pkgutil.walk_packages(simfloat.kernels.__path__, "simfloat.kernels."):
        for value in vars(importlib.import_module(module.name)).values():
            for candidate in value.values() if isinstance(value, dict) else [value]:
                if isinstance(getattr(candidate, "_cache", None), KernelCache):
                    yield candidate


def test_no_two_kernels_of_a_module_share_a_name():
    kernels = {id(k): k for k in all_kernels()}.values()
    names = {(k.py_func.__module__, k.py_func.__qualname__) for k in kernels}
    assert len(names) == len(kernels) > 80


def test_a_closure_is_called_after_what_it_closes_over():
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
    name = test_a_closure_is_called_after_what_it_closes_over.__name__
    assert summing(twice, 1.0).py_func.__qualname__ == f"{name}(function=twice, start=1.0)"


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


def test_a_reader_gives_the_fields_in_order():
    from simfloat.kernels.rounding.random import Counter, unpack_counter

    assert unpack_counter(np.arange(6)) == Counter(*range(6))
    assert reader(Counter).py_func.__name__ == "read_Counter"
