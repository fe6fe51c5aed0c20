"""Codes: the bit patterns of a format's numbers, as unsigned integers or as hexadecimal text."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat import kernels
from simfloat.arithmetic.machines import CPU, Device, Loop, device_of, is_on_gpu
from simfloat.arithmetic.operands import (
    PAIRS,
    at_index,
    check_not_masked,
    empty,
    exact_operand,
    first_beyond_float64,
    is_torch_tensor,
    pairs_of_codes,
)
from simfloat.arithmetic.plan import element_ranges
from simfloat.arithmetic.target import carrier_of
from simfloat.arithmetic.threads import run_all
from simfloat.common import as_rectangular_array, message_text
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, FP64, Format, as_format, fixed
from simfloat.formats.catalog import DTYPES, FormatLike
from simfloat.formats.text import hexadecimal_code

#: Nanoseconds for encoding a value, for decoding a code, and for testing if a value is a number of a format.
ENCODING, DECODING, MEMBERSHIP = 0.5, 0.5, 0.1

#: Digits with or without 0x. Underscores may separate digits, as in Verilog and in Python.
CODE = re.compile(r"(?:0x_?)?([0-9a-f](?:_?[0-9a-f])*)", re.IGNORECASE)


@in_usual_environment
def encode(x: ArrayLike, format: FormatLike) -> NDArray[np.unsignedinteger]:
    """Return the codes of numbers of `format`.

    NaN encodes as the positive quiet NaN, and -0 as 0 if the format has no -0. Codes of fixed-point numbers are in
    two's complement.

    Parameters:
        x: a number of the format, or an array of them.
        format: the format, or its name.

    Returns:
        An array of the shape of x, in the smallest unsigned dtype with at least `format.bits` bits.

    Raises:
        ValueError: naming the first element (in C order) that is not a number of the format, and its index.

    Examples:
        >>> sf.encode([1.0, -2.0, 448.0], sf.E4M3)
        array([ 56, 192, 126], dtype=uint8)
    """
    format = as_format(format)
    with np.errstate(invalid="ignore"):  # conversion of a signalling NaN
        operand = exact_operand(x)
        if operand.dtype == object:
            _refuse_beyond_float64(operand, format)
        codes = _codes_by_loop(operand, format)
        if codes is not None:
            return codes
        x = operand.astype(np.float64)
    magnitude = np.abs(x)
    codes = finite_codes(magnitude, format)
    negative = np.signbit(x) & ((magnitude > 0) | format.has_negative_zero)
    largest = np.where(negative, _largest_negative(format), format.max_code)
    outside = ~(magnitudes(codes, format) == magnitude) | (codes > largest) | (negative & (not format.signed))
    if format.infinity_code is not None:
        infinite = np.isinf(x) & (format.signed | ~negative)
        codes, outside = np.where(infinite, format.infinity_code, codes), outside & ~infinite
    sign = np.uint64(1 << (format.bits - 1))
    with np.errstate(over="ignore"):  # of codes outside the format
        codes = np.where(negative, sign + (sign - codes) if format.is_fixed else codes | sign, codes)
    if format.nan_code is not None:
        codes, outside = np.where(np.isnan(x), format.nan_code, codes), outside & ~np.isnan(x)
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        mend = "it has no NaN" if np.isnan(x[place]) else "round to the format first"
        raise ValueError(f"{float(x[place])!r}{at_index(place)} is not a number of {format}; {mend}.")
    return codes.astype(_code_dtype(format))


def _refuse_beyond_float64(x: NDArray, format: Format) -> None:
    """Raise ValueError naming the first number that float64, and so the format, cannot represent."""
    place = first_beyond_float64(x)
    raise ValueError(
        f"{message_text(x[place])}{at_index(place)} is not a number of {format}; round to the format first."
    )


def _codes_by_loop(x: NDArray, format: Format) -> NDArray[np.unsignedinteger] | None:
    """Return the codes by one compiled loop; None without a loop for the format, and for values outside of it."""
    numbers = _encoding_numbers(format)
    if numbers is None or device_of(x) is not CPU:
        return None
    operands = np.ascontiguousarray(x).reshape(-1)
    codes: NDArray[np.unsignedinteger] = np.empty(operands.size, _code_dtype(format))
    loop = _encoder(format, operands.dtype.type)

    def work(piece: tuple[int, int]) -> bool:
        part = slice(*piece)
        return bool(loop(operands[part], codes[part], numbers))

    return codes.reshape(x.shape) if all(run_all(work, element_ranges(operands.size, ENCODING))) else None


@in_usual_environment
def are_surely_numbers(x: NDArray[np.floating], format: Format) -> bool:
    """Return True if all values of an array of floats on the CPU are certain to be numbers of a format.

    The test takes one pass. It is not certain of a NaN with an unusual payload, and of formats without a simple layout.
    """
    limits = _membership_limits(format, x.dtype == np.float32)
    if limits is None or not x.flags.carray:
        return False
    values, numbers = x.reshape(-1), limits[0]
    loop, images = CPU.loops.encoding.are_numbers, values.view(numbers.dtype)
    pieces = element_ranges(values.size, MEMBERSHIP)
    if len(pieces) == 1:
        return bool(loop(values, images, *limits))

    def work(piece: tuple[int, int]) -> bool:
        part = slice(*piece)
        return bool(loop(values[part], images[part], *limits))

    return all(run_all(work, pieces))


@lru_cache(maxsize=64)
def _membership_limits(format: Format, is_single: bool) -> tuple[NDArray, np.floating] | None:
    """Return the parameters of the loop `are_numbers`, or None if the loop cannot test the format in this dtype."""
    carrier: Any = np.float32 if is_single else np.float64
    wide, image = (FP32, np.uint32) if is_single else (FP64, np.uint64)
    missing_bits = wide.mantissa_bits - format.mantissa_bits
    anchor_exponent = format.emin + missing_bits
    is_plain = format.signed and format.subnormals and not format.is_fixed and format.has_zero
    in_range = format.max <= wide.max and format.emin >= wide.emin and wide.emin < anchor_exponent < wide.emax
    if not is_plain or missing_bits < 1 or not in_range:
        return None
    infinity = (2 ** (wide.bits - 1) - 1) >> wide.mantissa_bits << wide.mantissa_bits
    special = infinity if format.has_infinity else infinity + 1 if format.has_nan else 2 ** (wide.bits - 1)
    beyond = int(np.array(format.max, carrier).view(image)) + 1
    least = int(np.array(format.smallest_normal, carrier).view(image))
    limits = np.array([2 ** (wide.bits - 1) - 1, 2**missing_bits - 1, least, beyond, special - beyond], image)
    return limits, carrier(2.0**anchor_exponent)


def _encoder(format: Format, carrier: type) -> Loop:
    """Return the loop for numbers of a format in an array of this dtype."""
    if carrier is np.float32 and _codes_are_images(format):
        return CPU.loops.encoding.encode_images
    # float32 can represent the reciprocal of the lowest spacing, and the smallest normal number.
    in_single = format.bias < 128 and format.mantissa_bits + format.bias <= 128
    if carrier is np.float32 and in_single:
        return CPU.loops.encoding.encode_float32
    return CPU.loops.encoding.encode


def _codes_are_images(format: Format) -> bool:
    """Return True if codes are the upper bits of float32 bit patterns."""
    return format == FP32 or kernels.rounding.grid.has_exponents_of_float32(format)


@lru_cache(maxsize=64)
def _encoding_numbers(format: Format) -> NDArray[np.float64] | None:
    """Return the parameters of the loop for a format; None for formats beyond float32, or without subnormals or
    zero."""
    if not format.fits_float32 or format.flushes or not format.has_zero:
        return None
    drop = 52 - format.mantissa_bits
    sign = 1 << (format.bits - 1)
    return np.array(
        kernels.rounding.codes.Coding(
            least=2.0 ** (1 - format.bias),
            per_subnormal=2.0 ** (format.mantissa_bits + format.bias - 1),
            drop=drop,
            offset=(1023 - format.bias) << format.mantissa_bits,
            largest=format.max_code,
            largest_negative=_largest_negative(format),
            complement=format.is_fixed,
            negative=sign if format.signed else -1,
            has_negative_zero=format.has_negative_zero,
            infinity=-1 if format.infinity_code is None else format.infinity_code,
            nan=-1 if format.nan_code is None else format.nan_code,
        ),
        np.float64,
    )


@in_usual_environment
def to_hex(x: ArrayLike, format: FormatLike) -> str | NDArray[np.str_]:
    """Return the codes of numbers of `format` as hexadecimal text, such as ``"3c00"``.

    Digits are lower-case, with leading zeros. :func:`decode` reads them back. NaN and -0 are encoded as in
    :func:`encode`.

    Parameters:
        x: a number of the format, or an array of them.
        format: the format, or its name.

    Returns:
        A str for a single number, otherwise an array of texts.

    Raises:
        ValueError: naming the first element that is not a number of the format, and its index.

    Examples:
        >>> sf.to_hex(1.0, sf.FP16), sf.to_hex(-0.0, sf.BF16)
        ('3c00', '8000')
    """
    format = as_format(format)
    codes = encode(x, format)
    return hexadecimal_texts(codes, format)[()].item() if codes.ndim == 0 else hexadecimal_texts(codes, format)


@in_usual_environment
def decode(codes: ArrayLike, format: FormatLike) -> NDArray[np.floating]:
    """Return the numbers that codes represent.

    Parameters:
        codes: integers, or hexadecimal texts such as ``"3c00"`` and ``"0x3C00"``, which may have underscores between
            digits. An array of this format in ml_dtypes or PyTorch is read as its codes. So are the bytes (dtype V1 or
            V2) that numpy.load returns for such an array. PyTorch's float4_e2m1fn_x2 has two codes in a byte, the first
            one in the lower half. Codes of fixed-point numbers are in two's complement.
        format: the format, or its name.

    Returns:
        float32 if the format fits into float32, otherwise float64.

    Raises:
        ValueError: if a code is not an integer from 0 below 2^format.bits.
        ValueError: for the lowest code of symmetric fixed-point formats (0x80 of `fixed(8)`).

    Examples:
        >>> sf.decode([0x00, 0x7E, 0xFF], sf.E4M3)
        array([  0., 448.,  nan], dtype=float32)
        >>> sf.decode("3c00", sf.FP16)
        array(1., dtype=float32)
    """
    format = as_format(format)
    check_not_masked(codes, "codes")
    array: NDArray = codes if is_on_gpu(codes) else _as_code_array(codes, format)  # type: ignore[assignment]
    codes = read_codes(codes, format) if array.dtype.kind in "UT" else array
    if codes.dtype.kind not in "iu":
        is_wide = codes.dtype.kind == "f" and codes.size and 8 * codes.dtype.itemsize == format.bits
        view = f"numpy.asarray(codes).view(numpy.uint{format.bits})"
        hint = f" If the array contains numbers of {format}, their codes are {view}." if is_wide else ""
        raise ValueError(f"Codes are integers, got dtype {codes.dtype}; hexadecimal texts are also accepted.{hint}")
    if format.special == "fixed_symmetric":
        _check_symmetric(codes, format)
    numbers = _numbers_by_loop(codes, format)
    if numbers is not None:
        return numbers
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >> format.bits):
        place = np.argmax((codes < 0) | (codes > (1 << format.bits) - 1))
        raise ValueError(
            f"Code {codes.reshape(-1)[place]} is not one of {format}, whose codes have {format.bits} bits."
        )
    flat = codes.reshape(-1)
    numbers = _table(format, device_of(codes))[flat] if format.bits <= 16 else _decode(flat.astype(np.uint64), format)
    return numbers.reshape(codes.shape)


def _as_code_array(codes: Any, format: Format) -> NDArray:
    """Return codes as an array: integers, texts, or the codes of an array of narrow floats or bytes."""
    if is_torch_tensor(codes):
        return _codes_in_tensor(codes, format)
    array = as_rectangular_array(codes, "codes")
    dtype = array.dtype
    if dtype.type.__module__ == "ml_dtypes" and dtype.name in DTYPES:
        _check_same(dtype, format)
    elif dtype.kind == "O" and all(isinstance(code, str) for code in array.flat):
        return array.astype(np.str_)  # a column of pandas
    elif dtype.type is not np.void or dtype.fields is not None:
        return array if array.size else array.astype(np.uint8)  # NumPy reads [] as float64
    integer = np.dtype(_code_dtype(format))
    if dtype.itemsize != integer.itemsize:
        raise ValueError(
            f"Codes of {format} have {integer.itemsize} bytes, got dtype {dtype}, which has {dtype.itemsize}. Name "
            "the format of the array: numpy.load returns bfloat16 as dtype V2 and FP8 as dtype V1."
        )
    return np.ascontiguousarray(array).view(integer).reshape(array.shape)


def _codes_in_tensor(codes: Any, format: Format) -> NDArray:
    """Return the codes in a PyTorch tensor on the CPU: its integers, or the bits of its narrow floating-point
    numbers."""
    if codes.device.type != "cpu":
        raise ValueError(f"codes is a tensor on {codes.device}; pass codes.cpu().")
    name = str(codes.dtype).rpartition(".")[2]
    if name not in DTYPES or DTYPES[name].bits > 16 or name == "float16":
        return np.asarray(codes.detach())
    _check_same(codes.dtype, format)
    if str(codes.dtype) == PAIRS:
        return pairs_of_codes(codes)
    integers = sys.modules["torch"].uint8 if format.bits <= 8 else sys.modules["torch"].int16
    stored: NDArray = codes.detach().contiguous().view(integers).numpy()
    return stored.view(_code_dtype(format))


def _check_same(dtype: Any, format: Format) -> None:
    """Raise ValueError if a dtype is not the format of the codes that the array should contain."""
    if as_format(dtype) != format:
        dtype_format = as_format(dtype)
        raise ValueError(
            f"An array of dtype {dtype} has codes of {dtype_format}, not of {format}: write simfloat.decode(codes, "
            f"simfloat.{dtype_format}), or simfloat.round(codes, simfloat.{format}) to round its numbers."
        )


def _numbers_by_loop(codes: NDArray, format: Format) -> NDArray[np.floating] | None:
    """Return the numbers by one compiled loop; None without a loop for the format, and for invalid codes."""
    numbers = _decoding_numbers(format)
    if numbers is None or device_of(codes) is not CPU or (format.bits == 64 and codes.dtype.kind == "i"):
        return None
    vector = np.ascontiguousarray(codes, codes.dtype.newbyteorder("=")).reshape(-1)
    out = empty((vector.size,), carrier_of(format))
    is_image = _codes_are_images(format)

    def work(piece: tuple[int, int]) -> bool:
        part, results = vector[slice(*piece)], out[slice(*piece)]
        if is_image:
            return bool(CPU.loops.encoding.decode_images(part, results, format.bits))
        if format.bits <= 16:
            return bool(CPU.loops.encoding.decode_by_table(part, _table(format, CPU), results))
        return bool(CPU.loops.encoding.decode(part, results, numbers))

    return out.reshape(codes.shape) if all(run_all(work, element_ranges(vector.size, DECODING))) else None


@lru_cache(maxsize=64)
def _decoding_numbers(format: Format) -> NDArray[np.float64] | None:
    """Return the parameters of the loop for a format; None if its numbers or codes exceed float64."""
    none = 2.0**63
    above = none if not format.has_nan else format.max_code if format.infinity_code is None else format.infinity_code
    if format.emin < -1022 or float(above) != above:
        return None
    at_sign = format.has_nan and format.signed and not format.has_negative_zero
    return np.array(
        kernels.rounding.codes.Decoding(
            bits=format.bits,
            first=(1 << format.mantissa_bits) if format.has_zero else 0,
            smallest=0.0 if format.flushes else 2.0 ** (1 - format.bias - format.mantissa_bits),
            drop=52 - format.mantissa_bits,
            offset=(1023 - format.bias) << format.mantissa_bits,
            sign=1 << (format.bits - 1) if format.signed else 0,
            infinity=none if format.infinity_code is None else format.infinity_code,
            above=none if at_sign else above,
            nan_at_sign=at_sign,
            has_negative_zero=format.has_negative_zero,
            complement=format.is_fixed,
        ),
        np.float64,
    )


def _largest_negative(format: Format) -> int:
    """Return the largest code of a negative magnitude: two's complement may have one more number below zero."""
    return format.max_code + (format.special == "fixed")


def _check_symmetric(codes: NDArray, format: Format) -> None:
    """Raise ValueError naming the first code without a number in a symmetric range: the code of the lowest number."""
    lowest = codes == (1 << (format.bits - 1))
    if lowest.any():
        place = tuple(int(i) for i in np.argwhere(lowest)[0])
        where = f" at index {place[0] if len(place) == 1 else place}" if place else ""
        full = fixed(format.bits, format.fraction_bits, symmetric=False)
        raise ValueError(
            f"Code {hexadecimal_code(1 << (format.bits - 1), format)}{where} is not one of {format}, whose range is "
            f"symmetric: {format.min:g} to {format.max:g}. Decode it in simfloat.{full}, which has {full.min:g}."
        )


@lru_cache(maxsize=64)
def _table(format: Format, device: Device) -> NDArray[np.floating]:
    return _decode(device.arrays.arange(1 << format.bits, dtype=np.uint64), format)


def _decode(codes: NDArray[np.uint64], format: Format) -> NDArray[np.floating]:
    sign_bit = np.uint64(1 << (format.bits - 1) if format.signed else 0)
    negative = (codes & sign_bit) != 0
    body = codes & ~sign_bit
    if format.is_fixed:
        body = np.where(negative, sign_bit - body, body)
    numbers = magnitudes(body, format)
    if format.infinity_code is not None:
        numbers[body == format.infinity_code] = np.inf
    # Codes of flushed subnormals represent zeros; some formats have only one zero.
    numbers = np.where(negative & (format.has_negative_zero | (numbers > 0)), -numbers, numbers)
    if format.has_nan:
        above = format.max_code if format.infinity_code is None else format.infinity_code
        # In signed formats without -0, the code of -0 is NaN. In other formats, the codes of NaN are above the numbers.
        nan = (body > above) if format.has_negative_zero or not format.signed else codes == sign_bit
        numbers[nan] = np.nan
    return numbers.astype(np.float32 if format.fits_float32 else np.float64)


def _code_dtype(format: Format) -> type:
    return next(t for t in (np.uint8, np.uint16, np.uint32, np.uint64) if np.iinfo(t).bits >= format.bits)


def finite_codes(magnitude: NDArray[np.float64], format: Format) -> NDArray[np.uint64]:
    """Return the codes of magnitudes; the result is only valid if it decodes to the same magnitude."""
    finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
    first = 1 if format.has_zero else 0
    field = np.maximum(np.where(finite > 0, np.frexp(finite)[1] - 1 + format.bias, first), first)
    # In units of the last place. The hidden bit of a normal number adds one to the field, so the field starts one
    # lower.
    units = np.ldexp(finite, format.mantissa_bits + format.bias - field).astype(np.int64)
    return (((field - 1).astype(np.int64) << format.mantissa_bits) + units).astype(np.uint64)


def magnitudes(codes: NDArray, format: Format) -> NDArray[np.float64]:
    """Return the numbers of codes without a sign, read as if they were finite."""
    field = (codes >> format.mantissa_bits).astype(np.int64)
    fraction = (codes & ((1 << format.mantissa_bits) - 1)).astype(np.float64)
    low = (field == 0) & format.has_zero
    significand = np.where(low, 0.0, 2.0**format.mantissa_bits) + fraction
    if format.flushes:
        significand = np.where(low, 0.0, significand)
    with np.errstate(over="ignore"):
        return np.ldexp(significand, np.where(low, 1, field) - format.bias - format.mantissa_bits)


def hexadecimal_texts(codes: NDArray[np.unsignedinteger], format: Format) -> NDArray[np.str_]:
    """Return each code in lower-case digits, with the number of digits of the largest code of the format."""
    digits = -(-format.bits // 4)
    texts = [f"{code:0{digits}x}" for code in codes.reshape(-1).tolist()]
    return np.array(texts, f"U{digits}").reshape(codes.shape)


def read_codes(texts: Any, format: Format) -> NDArray[np.uint64]:
    """Return the codes of a text, or of texts in an array or in sequences.

    Raises ValueError naming the first text that is not a code of the format.
    """
    array = np.asarray(texts, object)
    codes = [read_code(text, format) for text in array.reshape(-1).tolist()]
    return np.array(codes, np.uint64).reshape(array.shape)


def read_code(text: Any, format: Format) -> int:
    """Return the code of a text; raise ValueError for anything else."""
    digits = CODE.fullmatch(text) if isinstance(text, str) else None
    if digits is None:
        example = f"{1:0{-(-format.bits // 4)}x}"
        raise ValueError(
            f"A code of {format} is hexadecimal digits such as {example!r} or '0x{example}', got {text!r}."
        )
    code = int(digits[1], 16)
    if code >> format.bits:
        raise ValueError(f"Code {text!r} is not one of {format}, whose codes have {format.bits} bits.")
    return code
