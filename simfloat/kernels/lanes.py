"""Lanes: neighbours in a row that a vector of the processor holds.

LLVM makes vectors of a loop over columns, but keeps its sums in memory from one step to the next, and where rows are
short the checks before such a loop take longer than the loop. Lanes are local variables, so they stay in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model

from simfloat.kernels import machine
from simfloat.kernels.processor import VECTORS


def width(array):
    """How many numbers of the array's type a vector has."""
    return VECTORS // 8 // array.itemsize


def load(array, i, j):
    """The lanes of row i from column j on."""
    return array[i, j : j + width(array)].copy()


def store(array, i, j, lanes):
    """Put them back."""
    array[i, j : j + lanes.size] = lanes


def load_bytes(array, i, j):
    """Bytes of row i from column j on, as 32-bit integers: as many as a vector has float32 numbers."""
    return array[i, j : j + VECTORS // 32].astype(np.uint32)


def fma_lanes(x, lanes, sums):
    """x * lanes + sums, each rounded once to nearest even; x is a number."""
    return np.array([machine.fma(x, p, s) for p, s in zip(lanes, sums, strict=True)], sums.dtype)


class Lanes(types.Type):
    """A vector's numbers as a type of Numba's."""

    def __init__(self, dtype: Any, count: int | None = None) -> None:
        self.dtype, self.count = dtype, count or VECTORS // dtype.bitwidth
        super().__init__(name=f"Lanes({dtype}, {self.count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        # Numba keeps a boolean in a byte. Comparisons of vectors are of single bits, which AVX-512 has in mask
        # registers.
        number = ir.IntType(1) if lanes.dtype == types.boolean else manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


def _address(context, builder, kind, array, i, j, vector):
    """Where the lanes of row i from column j on lie."""
    struct = context.make_array(kind)(context, builder, array)
    place = cgutils.get_item_pointer(context, builder, kind, struct, [i, j])
    return builder.bitcast(place, vector.as_pointer())


def spread(builder, number, vector):
    """The number in every lane of a vector of this type."""
    index = ir.IntType(32)
    # The form that LLVM knows as a broadcast: insert into the first lane, then shuffle with a mask of zeros. It folds
    # the load of the number into one instruction.
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(index, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(index, vector.count), [0] * vector.count))


@intrinsic
def _llvm_load(typing_context, array, i, j):
    lanes = Lanes(array.dtype)

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, array, *arguments, context.get_value_type(lanes))
        # The alignment of one number, not of the vector: a tile may begin in any column. LLVM would take a vector's own
        # alignment for granted and make loads that fault elsewhere.
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return lanes(array, types.intp, types.intp), generate


@intrinsic
def _llvm_load_bytes(typing_context, array, i, j):
    images = Lanes(types.uint32)

    def generate(context, builder, signature, arguments):
        bytes_of = ir.VectorType(ir.IntType(8), images.count)
        address = _address(context, builder, array, *arguments, bytes_of)
        return builder.zext(builder.load(address, align=1), context.get_value_type(images))

    return images(array, types.intp, types.intp), generate


@intrinsic
def _llvm_store(typing_context, array, i, j, lanes):
    def generate(context, builder, signature, arguments):
        *place, vector = arguments
        address = _address(context, builder, array, *place, vector.type)
        builder.store(vector, address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, lanes), generate


@intrinsic
def _llvm_fma_lanes(typing_context, x, lanes, sums):
    def generate(context, builder, signature, arguments):
        number, *vectors = arguments
        kind = vectors[0].type
        name = f"llvm.fma.v{kind.count}f{sums.dtype.bitwidth}"
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
        return builder.call(fma, [spread(builder, number, kind), *vectors])

    return lanes(sums.dtype, lanes, sums), generate


@overload(width, jit_options={"forceinline": True})
def _width(array):
    count = VECTORS // array.dtype.bitwidth
    return lambda array: count


@overload(load, jit_options={"forceinline": True})
def _load(array, i, j):
    return lambda array, i, j: _llvm_load(array, i, j)


@overload(load_bytes, jit_options={"forceinline": True})
def _load_bytes(array, i, j):
    return lambda array, i, j: _llvm_load_bytes(array, i, j)


@overload(store, jit_options={"forceinline": True})
def _store(array, i, j, lanes):
    return lambda array, i, j, lanes: _llvm_store(array, i, j, lanes)


@overload(fma_lanes, jit_options={"forceinline": True})
def _fma_lanes(x, lanes, sums):
    return lambda x, lanes, sums: _llvm_fma_lanes(x, lanes, sums)
