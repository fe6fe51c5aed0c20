"""Lanes: neighbours in a row that fill a vector register of the processor, as floats and as bit patterns.

LLVM vectorises a loop over columns, but keeps its sums in memory from one step to the next; for short rows, the checks
before such a loop take longer than the loop. Lanes are local variables, so they stay in registers. Values are lanes of
float32, and bit patterns are lanes of uint32 with integer arithmetic. Comparisons return boolean lanes, by which
`choose` selects. As in `kernels/compile/intrinsics.py`, the Python body of each function defines its meaning, and NumPy
arrays have the same operators.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from simfloat.kernels.compile import intrinsics
from simfloat.kernels.compile.intrinsics import spread
from simfloat.kernels.compile.jit import overload
from simfloat.kernels.compile.processor import VECTORS


def width(array):
    """Return the number of lanes of the array's type in a vector."""
    return VECTORS // 8 // array.itemsize


def load(array, i, j):
    """Return the lanes of row i that begin at column j."""
    return array[i, j : j + width(array)].copy()


def store(array, i, j, lanes):
    """Write lanes to row i, beginning at column j."""
    array[i, j : j + lanes.size] = lanes


def load_bytes(array, i, j):
    """Return bytes of row i from column j, widened to 32-bit integers: as many as a vector has float32 lanes."""
    return array[i, j : j + VECTORS // 32].astype(np.uint32)


def fma_lanes(x, lanes, sums):
    """Return x * lanes + sums, each rounded once to nearest even; x is a scalar."""
    return np.array([intrinsics.fma(x, p, s) for p, s in zip(lanes, sums, strict=True)], sums.dtype)


class Lanes(types.Type):
    """The Numba type of a vector of lanes."""

    def __init__(self, dtype: Any, count: int | None = None) -> None:
        self.dtype, self.count = dtype, count or VECTORS // dtype.bitwidth
        super().__init__(name=f"Lanes({dtype}, {self.count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        # Numba stores a boolean in a byte. Comparisons of vectors give single bits, which AVX-512 keeps in mask
        # registers.
        number = ir.IntType(1) if lanes.dtype == types.boolean else manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


def _address(context, builder, kind, array, i, j, vector):
    """Return the address of the lanes of row i that begin at column j."""
    struct = context.make_array(kind)(context, builder, array)
    place = cgutils.get_item_pointer(context, builder, kind, struct, [i, j])
    return builder.bitcast(place, vector.as_pointer())


@intrinsic
def _llvm_load(typing_context, array, i, j):
    lanes = Lanes(array.dtype)

    def generate(context, builder, signature, arguments):
        address = _address(context, builder, array, *arguments, context.get_value_type(lanes))
        # The alignment is the one of an element, not of the vector, because a tile may begin in any column. By default
        # LLVM would assume the alignment of the vector, and generate loads that fault at other addresses.
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


@overload(width)
def _width(array):
    count = VECTORS // array.dtype.bitwidth
    return lambda array: count


@overload(load)
def _load(array, i, j):
    return lambda array, i, j: _llvm_load(array, i, j)


@overload(load_bytes)
def _load_bytes(array, i, j):
    return lambda array, i, j: _llvm_load_bytes(array, i, j)


@overload(store)
def _store(array, i, j, lanes):
    return lambda array, i, j, lanes: _llvm_store(array, i, j, lanes)


@overload(fma_lanes)
def _fma_lanes(x, lanes, sums):
    return lambda x, lanes, sums: _llvm_fma_lanes(x, lanes, sums)


#: The bit pattern of the positive quiet NaN.
NAN = np.uint32(0x7FC00000)


def image(lanes):
    """Return the bit patterns of floats."""
    return lanes.view(np.uint32)


def number(images):
    """Return the floats of bit patterns."""
    return images.view(np.float32)


def smaller(a, b):
    """Return the smaller of two bit patterns, as unsigned integers."""
    return np.minimum(a, b)


def larger(a, b):
    """Return the larger of two bit patterns, as unsigned integers."""
    return np.maximum(a, b)


def choose(which, a, b):
    """Return the bit pattern, or the byte, a if `which` is true, otherwise b."""
    return np.where(which, a, b)


def quiet(lanes):
    """Return floats with every NaN replaced by the positive quiet NaN: its bit pattern does not carry into the sign."""
    return np.where(lanes == lanes, lanes, lanes.dtype.type(np.nan))


def add_byte(lanes, four):
    """Return lanes of bytes plus a byte; `four` is a word that contains this byte four times."""
    return (lanes + np.uint8(four & np.uint32(0xFF))).astype(np.uint8)


def any_lane(which):
    """Return True if `which` is true in any lane."""
    return bool(np.any(which))


def define(function: Callable, operands: int, others: int, result: Callable, make: Callable) -> None:
    """Register a compiled implementation of a function for lanes. An overload would be compiled separately for every
    call.

    The function has `operands` operands, lanes or scalars that are spread over lanes, followed by `others` other
    parameters. `result(lanes)` is the type of the result, and `make(builder, vectors, others)` generates the code.
    """

    class Template(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            # None leaves operands without lanes to Numba's templates, because these functions are also Python's
            # operators. Literal types are widened, so that constants do not cause separate compilations.
            if any(isinstance(kind, Lanes) for kind in arguments[:operands]):
                return signature(result(_lanes_among(arguments)), *map(types.unliteral, arguments))
            return None

    infer_global(function)(Template)

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = _lanes_among(signature.args)
        vector = context.get_value_type(lanes)
        vectors = [
            value
            if isinstance(kind, Lanes)
            else spread(builder, context.cast(builder, value, kind, lanes.dtype), vector)
            for kind, value in zip(signature.args[:operands], arguments[:operands], strict=True)
        ]
        return make(builder, vectors, arguments[operands:])

    # Numba finds an implementation by the classes of all operands, so every mixture of lanes and scalars is registered.
    # Scalars without lanes are excluded: for them the operators keep the meaning that Numba gives them.
    for kinds in product((Lanes, types.Number), repeat=operands):
        if Lanes in kinds:
            lower_builtin(function, *kinds, *[types.Number] * others)(lower)


def _lanes_among(kinds: Any) -> Lanes:
    """Return the type to which scalars are spread: the lanes of floats or bit patterns; uint32 if all are boolean."""
    lanes = [kind for kind in kinds if isinstance(kind, Lanes)]
    return next((kind for kind in lanes if kind.dtype != types.boolean), Lanes(types.uint32, lanes[0].count))


def same(lanes: Lanes) -> Lanes:
    """Return the type of a result that has the type of its operands."""
    return lanes


def _truths(lanes: Lanes) -> Lanes:
    return Lanes(types.boolean, lanes.count)


def _lanes_of_type(dtype: Any) -> Callable:
    return lambda lanes: Lanes(dtype, lanes.count)


def _lower_cast(builder: Any, vectors: Any, number: Any) -> Any:
    return builder.bitcast(vectors[0], ir.VectorType(number, vectors[0].type.count))


def _lower_minimum(comparison: str) -> Callable:
    return lambda builder, ab, _: builder.select(builder.icmp_unsigned(comparison, *ab), *ab)


def _lower_comparison(builder: Any, name: str, a: Any, b: Any) -> Any:
    is_number = a.type.element == ir.FloatType()
    return (builder.fcmp_ordered if is_number else builder.icmp_unsigned)(name, a, b)


def _lower_any(builder: Any, which: Any, _: Any) -> Any:
    bits = ir.IntType(which[0].type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(which[0], bits), ir.Constant(bits, 0))


def _lower_quiet(builder: Any, lanes: Any, _: Any) -> Any:
    # Integer operations on bit patterns follow, and a payload near the top would carry into the sign. The quiet NaN is
    # far enough below.
    nan = ir.Constant(lanes[0].type, [math.nan] * lanes[0].type.count)
    return builder.select(builder.fcmp_ordered("==", lanes[0], lanes[0]), lanes[0], nan)


def _lower_add_byte(builder: Any, lanes: Any, others: Any) -> Any:
    words = ir.VectorType(ir.IntType(32), lanes[0].type.count // 4)
    return builder.add(lanes[0], builder.bitcast(spread(builder, others[0], words), lanes[0].type))


INTEGER_OPERATIONS = {
    operator.add: "add",
    operator.sub: "sub",
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.rshift: "lshr",
    operator.lshift: "shl",
}
# `_name=_name` binds the operation when the lambda is created; without it every operator would be compiled to the last
# operation of the table.
for _function, _name in INTEGER_OPERATIONS.items():
    define(_function, 2, 0, same, lambda builder, ab, _, _name=_name: getattr(builder, _name)(*ab))
for _function, _name in {operator.eq: "==", operator.gt: ">", operator.lt: "<"}.items():
    define(_function, 2, 0, _truths, lambda builder, ab, _, _name=_name: _lower_comparison(builder, _name, *ab))
define(operator.mul, 2, 0, same, lambda builder, ab, _: builder.fmul(*ab))
define(smaller, 2, 0, same, _lower_minimum("<"))
define(larger, 2, 0, same, _lower_minimum(">"))
define(choose, 3, 0, same, lambda builder, values, _: builder.select(*values))
define(image, 1, 0, _lanes_of_type(types.uint32), lambda builder, lanes, _: _lower_cast(builder, lanes, ir.IntType(32)))
define(
    number, 1, 0, _lanes_of_type(types.float32), lambda builder, lanes, _: _lower_cast(builder, lanes, ir.FloatType())
)
define(quiet, 1, 0, same, _lower_quiet)
define(add_byte, 1, 1, same, _lower_add_byte)
define(any_lane, 1, 0, lambda lanes: types.boolean, _lower_any)
