"""Complex operations, composed of rounded operations on real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of
from simfloat.arrays.arithmetic import ArrayArithmetic

#: What to write instead of an operation of complex arrays that is not available.
BY_PARTS = "write it in x.real and x.imag, and join two parts by a + 1j * b"

#: Operations that are available for complex arrays.
OPERATIONS = frozenset({"add", "subtract", "multiply", "divide"})


def is_complex(x: NDArray) -> bool:
    """True if the array is complex."""
    return x.dtype.kind == "c"


def reads_as_complex(x: Any) -> bool:
    """True if NumPy reads `x` as complex; False for ragged sequences, which NumPy cannot read as complex values."""
    if hasattr(x, "is_complex"):  # PyTorch's tensors, some of which NumPy cannot read: bfloat16, or with a gradient
        return bool(x.is_complex())
    try:
        return bool(np.iscomplexobj(x))
    except ValueError:
        return False


def from_parts(real: NDArray, imaginary: NDArray) -> NDArray:
    """Return the complex array with these real and imaginary parts."""
    kind = np.complex64 if real.dtype == imaginary.dtype == np.float32 else np.complex128
    out = np.empty_like(real, dtype=kind, shape=np.broadcast_shapes(real.shape, imaginary.shape))
    out.real, out.imag = real, imaginary
    return out


def round_parts(u: ArrayArithmetic, x: NDArray) -> NDArray:
    """Round both parts; the real parts use their random bits first."""
    return from_parts(u.round(x.real), u.round(x.imag))


def compute(u: ArrayArithmetic, operation: str, x: NDArray, y: NDArray) -> NDArray:
    """Compute an operation with at least one complex operand; a real operand has no imaginary part, not even zero."""
    if not is_complex(x):
        return _REAL_FIRST[operation](u, x, y.real, y.imag)
    if not is_complex(y):
        return _REAL_LAST[operation](u, x.real, x.imag, y)
    return _BOTH[operation](u, x.real, x.imag, y.real, y.imag)


def magnitude(u: ArrayArithmetic, x: NDArray) -> NDArray[np.floating]:
    """Return sqrt(a a + b b), with every operation rounded."""
    return u.compute("sqrt", squares(u, x))


def squares(u: ArrayArithmetic, x: NDArray) -> NDArray[np.floating]:
    """Return a a + b b, with every operation rounded."""
    return _sum_of_squares(u, x.real, x.imag)


def matmul(u: ArrayArithmetic, x: NDArray, y: NDArray) -> NDArray:
    """Multiply matrices; each part is one sum of real products.

    If both factors are complex, a sum has two products for each index k, next to each other: a c, then -b d, in the
    real part; a d, then b c, in the imaginary part.
    """
    if not is_complex(x):
        return from_parts(u.matmul(x, y.real), u.matmul(x, y.imag))
    if not is_complex(y):
        return from_parts(u.matmul(x.real, y), u.matmul(x.imag, y))
    c, d = y.real, y.imag
    real = u.matmul(interleave(x.real, -x.imag, -1), interleave(c, d, -2))
    return from_parts(real, u.matmul(interleave(x.real, x.imag, -1), interleave(d, c, -2)))


def interleave(first: NDArray, second: NDArray, axis: int) -> NDArray:
    """Interleave two arrays of one shape along an axis, counted from the end; for vectors this is their only axis."""
    axis = max(axis, -first.ndim)
    shape = list(first.shape)
    shape[axis] *= 2
    return np.stack((first, second), axis=first.ndim + axis + 1).reshape(shape)


def _add(u: ArrayArithmetic, a: NDArray, b: NDArray, c: NDArray, d: NDArray) -> NDArray:
    return from_parts(u.compute("add", a, c), u.compute("add", b, d))


def _subtract(u: ArrayArithmetic, a: NDArray, b: NDArray, c: NDArray, d: NDArray) -> NDArray:
    return from_parts(u.compute("subtract", a, c), u.compute("subtract", b, d))


def _multiply(u: ArrayArithmetic, a: NDArray, b: NDArray, c: NDArray, d: NDArray) -> NDArray:
    if u.complex_products == "fma":
        real = u.compute("fma", a, c, -u.compute("multiply", b, d))
        return from_parts(real, u.compute("fma", a, d, u.compute("multiply", b, c)))
    real = u.compute("subtract", u.compute("multiply", a, c), u.compute("multiply", b, d))
    return from_parts(real, u.compute("add", u.compute("multiply", a, d), u.compute("multiply", b, c)))


def _divide(u: ArrayArithmetic, a: NDArray, b: NDArray, c: NDArray, d: NDArray) -> NDArray:
    """Multiply by the conjugate of the divisor, and divide each part by c c + d d."""
    product, square = _multiply(u, a, b, c, -d), _sum_of_squares(u, c, d)
    return from_parts(u.compute("divide", product.real, square), u.compute("divide", product.imag, square))


def _sum_of_squares(u: ArrayArithmetic, a: NDArray, b: NDArray) -> NDArray:
    if u.complex_products == "fma":
        return u.compute("fma", a, a, u.compute("multiply", b, b))
    return u.compute("add", u.compute("multiply", a, a), u.compute("multiply", b, b))


def _broadcast_part(x: NDArray, like: NDArray) -> NDArray:
    """Broadcast a part that the operation does not change to the shape of the result."""
    return np.broadcast_to(device_of(x, like).to_device(x), np.broadcast_shapes(x.shape, like.shape))


_BOTH: dict[str, Any] = {"add": _add, "subtract": _subtract, "multiply": _multiply, "divide": _divide}

_REAL_LAST: dict[str, Any] = {
    "add": lambda u, a, b, y: from_parts(u.compute("add", a, y), _broadcast_part(u.round(b), y)),
    "subtract": lambda u, a, b, y: from_parts(u.compute("subtract", a, y), _broadcast_part(u.round(b), y)),
    "multiply": lambda u, a, b, y: from_parts(u.compute("multiply", a, y), u.compute("multiply", b, y)),
    "divide": lambda u, a, b, y: from_parts(u.compute("divide", a, y), u.compute("divide", b, y)),
}

_REAL_FIRST: dict[str, Any] = {
    "add": lambda u, x, c, d: from_parts(u.compute("add", x, c), _broadcast_part(u.round(d), x)),
    "subtract": lambda u, x, c, d: from_parts(u.compute("subtract", x, c), _broadcast_part(u.negate(u.round(d)), x)),
    "multiply": lambda u, x, c, d: from_parts(u.compute("multiply", x, c), u.compute("multiply", x, d)),
    "divide": lambda u, x, c, d: _divide_real(u, x, c, d),
}


def _divide_real(u: ArrayArithmetic, x: NDArray, c: NDArray, d: NDArray) -> NDArray:
    square = _sum_of_squares(u, c, d)
    real, imaginary = u.compute("multiply", x, c), u.compute("multiply", x, -d)
    return from_parts(u.compute("divide", real, square), u.compute("divide", imaginary, square))
