"""Operands as arrays: reading the arguments of users, broadcasting shapes, and creating arrays.

Arrays of any kind are accepted if float64 can represent their values.

New arrays start at a cache line. A vector that crosses from one line to the next needs two loads or stores. NumPy
aligns to 16 bytes: a product of matrices of 512 rows took 1.7 times as long if both its right operand and its sums
started in the middle of a line. The rows of these arrays are read side by side.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from ctypes import addressof, c_char
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np
from numpy import ndarray
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import CPU, Device, check_reachable, device_of, is_on_gpu
from simfloat.common import as_rectangular_array, message_text
from simfloat.environment import in_usual_environment
from simfloat.formats import E2M1, Format
from simfloat.formats.exact_numbers import exact_number, is_float64

#: np.float32 or np.float64, as the type of elements. (mypy does not accept type[np.floating] as a dictionary key.)
FloatType: TypeAlias = Any

#: The types that are read as numbers, including numbers that float64 cannot represent.
OperandLike: TypeAlias = ArrayLike | Fraction | Decimal | Sequence[Any]

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

#: If the columns of a transposed matrix are a multiple of CONFLICTING bytes apart, only a few of them fit into the
#: cache. COLUMNS columns of it are copied at a time, if it has at least LEAST_TURNED elements.
CONFLICTING, COLUMNS, LEAST_TURNED = 1024, 16, 1 << 14

#: NumPy repeats a short row with one call of its inner loop for each repetition. At least MANY_ROWS rows of at most
#: SHORT_ROW elements are written as repetitions of a block with LONG_ROW elements, which takes a quarter of the time
#: for rows of 16.
MANY_ROWS, SHORT_ROW, LONG_ROW = 1 << 11, 64, 1 << 11

#: Above this value, float64 does not have every integer.
INTEGERS = 2.0**53

#: PyTorch's dtype of E2M1, with two numbers in a byte.
PAIRS = "torch.float4_e2m1fn_x2"

#: Alternatives for dtypes without real numbers, by their kind.
REMEDIES = {
    "S": "np.asarray({0}).astype(str), the texts",
    "sparse": "{0}.toarray(), because zeros take part in sums (or only {0}.data, if 0 gives 0)",
    "mpf": "fractions.Fraction(*mpmath.libmp.to_rational({0}._mpf_)), which is exact, or float({0}), which is rounded",
    "c": "the parts, {0}.real and {0}.imag, one after the other",
    "V": "simfloat.decode({}, format): numpy.load returns bfloat16 as dtype V2 (simfloat.BF16) and FP8 as dtype V1 "
    "(simfloat.E4M3 or simfloat.E5M2)",
}


def as_operand(x: OperandLike, name: str = "x") -> NDArray[np.floating]:
    """Return `x` as a float32 array if it is one, otherwise as float64; the memory layout is kept.

    Numbers, sequences, arrays of NumPy and CuPy with real dtypes, arrays of ml_dtypes, and PyTorch tensors on the CPU
    are read exactly, and so are Fractions and Decimals that float64 can represent. CuPy arrays stay on the GPU. Raises
    ValueError for values that float64 cannot represent, for texts, and for masked arrays.
    """
    if type(x) is ndarray:
        dtype = x.dtype
        if dtype is FLOAT64 or dtype is FLOAT32:
            return x
    if type(x) is float:
        return np.array(x)
    numbers = exact_operand(x, name, reads_texts=False)
    if numbers.dtype == object:
        place = first_beyond_float64(numbers)
        kind = "integers" if numbers[place].denominator == 1 else "numbers"
        content = f"{kind} that float64 cannot hold exactly, such as {message_text(numbers[place])}{at_index(place)}"
        raise ValueError(f"{name} holds {content}{_rounding_advice(name)}")
    return numbers


def exact_operand(x: Any, name: str = "x", *, reads_texts: bool = True) -> NDArray:
    """Return `x` as `as_operand` does, or as an array of exact objects if float64 cannot represent one of the values.

    These may be texts, integers, Fractions, Decimals, numbers of gmpy2 and NumPy's long floats, in arrays and
    sequences, also mixed with floats. Raises ValueError for other contents, and for masked arrays.
    """
    on_gpu, array = is_on_gpu(x), cast(Any, x)
    if (on_gpu or type(x) is ndarray) and array.dtype in (FLOAT32, FLOAT64):
        return array
    return _convert_operand(x, name, on_gpu, reads_texts)


@in_usual_environment
def _convert_operand(x: Any, name: str, on_gpu: bool, reads_texts: bool) -> NDArray:
    """Return the values of any other operand, which NumPy converts."""
    operand = x
    array = operand if on_gpu else _as_array(x, name)
    dtype, is_array = array.dtype, hasattr(x, "dtype")
    if dtype.kind == "f" and dtype.itemsize == 4:
        return array.astype(np.float32)  # in native byte order
    if dtype.kind in "OUT" or (dtype.kind == "f" and dtype.itemsize > 8 and not is_array):
        # NumPy converts a sequence with a text to texts, and a sequence with a long float to long floats.
        return _from_objects(array.astype(object) if is_array else np.array(x, object), name, reads_texts)
    is_long = dtype.kind == "f" and dtype.itemsize > 8
    if not _is_real(dtype) and not is_long:
        raise ValueError(_no_numbers_message(name, f"dtype {dtype}", dtype.kind))
    with np.errstate(all="ignore"):  # conversion of a signalling NaN, or a long float
        wide = array.astype(np.float64)
    if is_long:
        is_held = bool(((wide == array) | (wide != wide) & (array != array)).all())
        return wide if is_held else _from_objects(array.astype(object), name, reads_texts)
    # An object with a dtype has values of one kind, and no integers among its floats.
    large = not is_array or dtype.kind in "iu"
    if large and wide.size and not (np.abs(wide) < INTEGERS).all():
        if on_gpu:
            array = operand.get()
        # NumPy converts integers among floats to floats, so they can be found only in the sequence itself.
        objects = array.astype(object) if dtype.kind in "iu" else np.array(x, object)
        exact = _from_objects(objects, name, reads_texts)
        return wide if on_gpu and exact.dtype != object else exact
    return wide


def _no_numbers_message(name: str, content: str, kind: str = "") -> str:
    """Return the message for an operand without real numbers."""
    remedy = REMEDIES.get(kind)
    answer = f"; pass {remedy.format(name)}" if remedy else ""
    return f"{name} must hold real numbers that can be read exactly, got {content}{answer}."


def _rounding_advice(name: str) -> str:
    """Return the advice for numbers that only some functions read."""
    call = name if name.isidentifier() else "x"
    return (
        f": pass simfloat.round({call}, format), which rounds such numbers once. Only round, array and elementwise "
        "operations accept them directly."
    )


def first_beyond_float64(numbers: NDArray) -> tuple[int, ...]:
    """Return the index of the first number in an array of objects that float64 cannot represent."""
    return next(place for place, number in np.ndenumerate(numbers) if not is_float64(number))


def at_index(place: tuple[int, ...]) -> str:
    """Return a text with the index of an operand, if it has one."""
    return f" at index {place[0] if len(place) == 1 else place}" if place else ""


def is_torch_tensor(x: Any) -> bool:
    """Return True for a PyTorch tensor, without an import of PyTorch."""
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def _as_array(x: Any, name: str) -> NDArray:
    """Return `x` as an array of its own dtype."""
    if is_torch_tensor(x):
        return _from_torch(x, name)
    check_reachable(x, name)
    if hasattr(x, "requires_grad"):
        raise ValueError(
            f"{name} is a Tensor; pass {name}.data, its numbers, to compute without gradients, or call its own methods."
        )
    if hasattr(x, "tensor_scale"):
        raise ValueError(
            f"{name} is a result of block_quantize, which matmul and dot accept; pass {name}.values(), the values "
            f"that it stands for. Its codes are those of two arrays: encode {name}.elements in the format of the "
            f"elements, and {name}.scales in the format of the scales."
        )
    check_not_masked(x, name)
    return as_rectangular_array(x, name)


#: The default of a required argument. Python's own error for a missing argument says nothing about Tensors.
MISSING: Any = object()


def missing_format(name: str, operands: Sequence[Any], operand_names: Sequence[str]) -> TypeError:
    """Return the error for a call without a format. A Tensor has a method that takes the format from a policy."""
    message = f"{name}() missing 1 required positional argument: 'format'"
    tensors = [hasattr(x, "requires_grad") and not is_torch_tensor(x) for x in operands]
    if not any(tensors):
        return TypeError(f"{message}. Pass one, such as sf.{name}({', '.join(operand_names)}, sf.FP16).")
    numbers = ", ".join(f"{x}.data" if is_tensor else x for x, is_tensor in zip(operand_names, tensors, strict=True))
    first, *others = operand_names
    tensor = first if tensors[0] else f"sf.Tensor({first})"
    return TypeError(
        f"{message}. sf.{name} expects numbers and a format, got a Tensor. Write {tensor}.{name}({', '.join(others)}), "
        f"to which a policy gives the format, or sf.{name}({numbers}, sf.FP16), which computes without gradients."
    )


def check_not_masked(x: Any, name: str) -> None:
    """Raise ValueError for a masked array, or a sequence with one: NumPy would drop the mask."""
    if hasattr(x, "mask") and hasattr(x, "filled"):
        raise ValueError(f"{name} is a masked array, and masked elements have no number; pass {name}.filled(value).")
    if isinstance(x, list | tuple):
        for element in x:
            if type(element) is not float:  # most long sequences contain floats
                check_not_masked(element, name)


def _from_torch(x: Any, name: str) -> NDArray:
    """Return the values of a PyTorch tensor: float64 can represent all its real dtypes except large integers."""
    if x.device.type != "cpu":
        raise ValueError(f"{name} is a tensor on {x.device}; pass {name}.cpu().")
    if str(x.dtype) == PAIRS:
        return _from_pairs(x)
    try:
        narrow = x.is_floating_point() and str(x.dtype) != "torch.float32"
        plain = x.detach().resolve_neg()  # imaginary parts of conjugates are views with another sign
        return (plain.double() if narrow else plain).numpy()
    except (TypeError, RuntimeError) as error:
        why = str(error).removesuffix(".")
        raise ValueError(
            f"{name} is a tensor of {x.dtype}, which cannot be converted to a NumPy array: {why}."
        ) from None


def pairs_of_codes(x: Any) -> NDArray[np.uint8]:
    """Return the codes of a PyTorch tensor with two in a byte, the first one in the lower half, along the last axis."""
    packed = x.detach().contiguous().view(sys.modules["torch"].uint8).numpy()
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def _from_pairs(x: Any) -> NDArray[np.float32]:
    """Return the values of such a tensor."""
    codes = pairs_of_codes(x).astype(np.int64)
    magnitudes = E2M1.magnitudes(codes & 7)
    return np.where(codes < 8, magnitudes, -magnitudes).astype(np.float32)


def _is_real(dtype: np.dtype) -> bool:
    """Return True if a dtype is real, and float64 can represent its values except large integers."""
    if dtype.kind in "fiub":
        return dtype.itemsize <= 8
    return dtype.type.__module__ == "ml_dtypes" and not dtype.name.startswith(("complex", "bcomplex"))


def _from_objects(array: NDArray, name: str, reads_texts: bool) -> NDArray:
    """Read numbers one by one: return float64 if it can represent all, otherwise the objects of `exact_number`."""
    exact = np.empty(array.shape, object)
    for place, element in np.ndenumerate(array):
        try:
            exact[place] = exact_number(_as_python_number(element))
        except TypeError as error:
            # SciPy's sparse matrices have this method; NumPy sees them as one object. Numbers of mpmath have the other.
            kind = "sparse" if hasattr(element, "toarray") else "mpf" if hasattr(element, "_mpf_") else ""
            method = getattr(element, "__name__", "") if callable(element) and not isinstance(element, type) else ""
            content = f"{error} {method}: call it, as {method}()" if method.isidentifier() else str(error)
            if isinstance(element, Format):
                content = f"the format {element}; all operands come before the format"
            raise ValueError(_no_numbers_message(name, content, kind)) from None
        except ValueError as error:
            raise ValueError(f"{name} must hold real numbers, and{at_index(place)} {error}.") from None
        if not reads_texts and isinstance(element, str):
            content = f"the text {message_text(str(element))}{at_index(place)}"
            raise ValueError(f"{name} must hold plain numbers, got {content}{_rounding_advice(name)}")
    return exact.astype(np.float64) if all(map(is_float64, exact.reshape(-1))) else exact


def _as_python_number(element: Any) -> Any:
    """Return a NumPy scalar, or a 0-dimensional array, as a Python number; anything else unchanged."""
    return element.item() if hasattr(element, "item") and not getattr(element, "ndim", 0) else element


def are_float32(arrays: Sequence[NDArray]) -> bool:
    """Return True if all are float32 arrays."""
    for array in arrays:
        if array.dtype is not FLOAT32 and array.dtype != FLOAT32:
            return False
    return True


def common_type_and_device(arrays: Sequence[NDArray]) -> tuple[bool, Device]:
    """Return whether all are float32 arrays, and their device: see `device_of`."""
    single = True
    for array in arrays:
        if type(array) is not ndarray:
            return are_float32(arrays), device_of(*arrays)
        if array.dtype is not FLOAT32 and array.dtype != FLOAT32:
            single = False
    return single, CPU


def flat(array: NDArray) -> NDArray:
    """Return the elements in C order as one aligned, writeable vector, the form that kernels are compiled for."""
    # Contiguity first: reading the flag `writeable` of a broadcast array raises a warning.
    flags = array.flags
    if flags.c_contiguous and (not isinstance(array, np.ndarray) or flags.carray):
        return array if array.ndim == 1 else array.reshape(-1)
    return _copy_broadcast(array.shape, array).reshape(-1)


def broadcast_vectors(operands: list[NDArray]) -> tuple[tuple[int, ...], list[NDArray]]:
    """Return the common shape of operands, and the elements of each in C order; a single element is not repeated."""
    shape = operands[0].shape
    for operand in operands:
        if operand.shape != shape:
            shape = broadcast_shape(operands)
            break
    # The usual case of `flat` is written out: a call takes three times as long.
    return shape, [
        x.reshape(-1)
        if type(x) is ndarray and (flags := x.flags).c_contiguous and flags.carray and (x.shape == shape or x.size == 1)
        else _broadcast_vector(x, shape)
        for x in operands
    ]


def broadcast_shape(operands: list[NDArray]) -> tuple[int, ...]:
    """Return the shape that operands broadcast to; ValueError if they do not."""
    shapes = [operand.shape for operand in operands]
    longest = max(shapes, key=len)
    # The most frequent cases are numbers and rows combined with an array.
    if all([not shape or shape == longest[-len(shape) :] for shape in shapes]):
        return longest
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        texts = map(str, shapes)
        raise ValueError(f"Shapes {' and '.join(texts)} do not broadcast.") from None


def _broadcast_vector(operand: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return the elements of an operand, broadcast to the shape; a single element is not repeated."""
    if operand.shape == shape or operand.size == 1:
        return flat(operand)
    return _copy_broadcast(shape, operand).reshape(-1)


def _copy_broadcast(shape: tuple[int, ...], numbers: NDArray) -> NDArray:
    """Return a new array in C order with these values, broadcast to the shape."""
    is_on_cpu = type(numbers) is ndarray
    out = np.empty(shape, numbers.dtype) if is_on_cpu else device_of(numbers).new_array("empty", shape, numbers.dtype)
    return _fill(out, numbers)


def _fill(out: NDArray, numbers: NDArray) -> NDArray:
    """Write values to an array in C order, broadcast to its shape; return the array."""
    strides = numbers.strides
    is_turned = strides[-2:-1] == (numbers.itemsize,) and strides[-1] % CONFLICTING == 0
    if is_turned and numbers.size >= LEAST_TURNED and type(numbers) is ndarray:
        for start in range(0, out.shape[-1], COLUMNS):
            out[..., start : start + COLUMNS] = numbers[..., start : start + COLUMNS]
    elif (
        1 < numbers.size == out.shape[-1] <= SHORT_ROW
        and out.size >= MANY_ROWS * numbers.size
        and type(numbers) is ndarray
    ):
        _repeat_row(out.reshape(-1), numbers.reshape(-1))
    else:
        out[...] = numbers
    return out


def _repeat_row(out: NDArray, row: NDArray) -> None:
    """Fill a vector with repetitions of a short row."""
    block = np.tile(row, LONG_ROW // row.size)
    whole = out.size // block.size * block.size
    out[:whole].reshape(-1, block.size)[...] = block
    out[whole:].reshape(-1, row.size)[...] = row


#: The length of a cache line in bytes.
LINE = 64

#: With fewer elements, aligning an array does not pay off.
LEAST_ALIGNED = 1 << 14


def empty(shape: tuple[int, ...], dtype: FloatType, device: Device = CPU) -> NDArray[Any]:
    """Return an uninitialised array in C order."""
    if device is not CPU:
        return device.new_array("empty", shape, dtype)
    size = math.prod(shape)
    return np.empty(shape, dtype) if size < LEAST_ALIGNED else _part_at_line(np.empty(size + LINE, dtype), shape)


def zeros(shape: tuple[int, ...], dtype: FloatType, device: Device = CPU) -> NDArray[Any]:
    """Return an array of zeros in C order."""
    if device is not CPU:
        return device.new_array("zeros", shape, dtype)
    size = math.prod(shape)
    return np.zeros(shape, dtype) if size < LEAST_ALIGNED else _part_at_line(np.zeros(size + LINE, dtype), shape)


def copy(x: NDArray, dtype: FloatType) -> NDArray[Any]:
    """Return the values in another dtype and in C order."""
    if x.size < LEAST_ALIGNED and type(x) is ndarray:
        return x.astype(dtype, "C")
    return _fill(empty(x.shape, dtype, device_of(x)), x)


def is_cache_aligned(x: NDArray) -> bool:
    """Return True if an array starts at a cache line."""
    return x.__array_interface__["data"][0] % LINE == 0


def _part_at_line(longer: NDArray, shape: tuple[int, ...]) -> NDArray:
    """Return the part of a longer vector that starts at a cache line, in this shape."""
    # NumPy's functions for the address take four times as long. Slices and `reshape` would take as long as this line.
    return ndarray(shape, longer.dtype, longer, -addressof(c_char.from_buffer(longer)) % LINE)  # type: ignore[arg-type]


def image_of(x: NDArray) -> NDArray[np.unsignedinteger]:
    """Return the bit patterns of float32 or float64 values as integers, in the same memory."""
    return x.view(np.uint32 if x.dtype == np.float32 else np.uint64)


def same_bits(a: NDArray, b: NDArray) -> bool:
    """Return True if two float arrays have the same values: -0 differs from +0, and NaN equals NaN."""
    if a is b:
        return True
    return a.dtype == b.dtype and a.shape == b.shape and bool((image_of(a) == image_of(b)).all())
