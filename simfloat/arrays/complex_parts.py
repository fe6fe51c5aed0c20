"""Operations on complex numbers, written in rounded operations on their real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import device_of
from simfloat.arrays.arithmetic import ArrayArithmetic

#: Operations that complex numbers have.
OPERATIONS = frozenset({"add", "subtract", "multiply", "divide"})


def is_complex(x: NDArray) -> bool:
    """Whether numbers have an imaginary part."""
    return x.dtype.kind == "c"


def from_parts(real: NDArray, imaginary: NDArray) -> NDArray:
    """Complex numbers of their parts."""
    kind = np.complex64 if real.dtype == imaginary.dtype == np.float32 else np.complex128
    out = np.empty_like(real, dtype=kind, shape=np.broadcast_shapes(real.shape, imaginary.shape))
    out.real, out.imag = real, imaginary
    return out


def round_parts(u: ArrayArithmetic, x: NDArray) -> NDArray:
    """Complex numbers whose parts are rounded: the real ones first, where bits are drawn."""
    return from_parts(u.round(x.real), u.round(x.imag))


def compute(u: ArrayArithmetic, operation: str, x: NDArray, y: NDArray) -> NDArray:
    """An operation of which at least one operand is complex; a real one has no imaginary part, not one of 0."""
    if not is_complex(x):
        return _REAL_FIRST[operation](u, x, y.real, y.imag)
    if not is_complex(y):
        return _REAL_LAST[operation](u, x.real, x.imag, y)
    return _BOTH[operation](u, x.real, x.imag, y.real, y.imag)


def magnitude(u: ArrayArithmetic, x: NDArray) -> NDArray[np.floating]:
    """sqrt(a a + b b), every operation rounded."""
    return u.compute("sqrt", squares(u, x))


def squares(u: ArrayArithmetic, x: NDArray) -> NDArray[np.floating]:
    """a a + b b, every operation rounded."""
    return _sum_of_squares(u, x.real, x.imag)


def matmul(u: ArrayArithmetic, x: NDArray, y: NDArray) -> NDArray:
    """The product of matrices: each part is one sum of real products, twice as many where both factors are complex.

    The products with index k stand side by side: a c, then -b d, in the real part; a d, then b c, in the other.
    """
    if not is_complex(x):
        return from_parts(u.matmul(x, y.real), u.matmul(x, y.imag))
    if not is_complex(y):
        return from_parts(u.matmul(x.real, y), u.matmul(x.imag, y))
    c, d = y.real, y.imag
    real = u.matmul(_side_by_side(x.real, -x.imag, -1), _side_by_side(c, d, -2))
    return from_parts(real, u.matmul(_side_by_side(x.real, x.imag, -1), _side_by_side(d, c, -2)))


def _side_by_side(first: NDArray, second: NDArray, axis: int) -> NDArray:
    """Two arrays of one shape, whose elements alternate along an axis from the end; vectors have one axis alone."""
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
    """The product with the divisor's conjugate, each part of it divided by c c + d d."""
    product, square = _multiply(u, a, b, c, -d), _sum_of_squares(u, c, d)
    return from_parts(u.compute("divide", product.real, square), u.compute("divide", product.imag, square))


def _sum_of_squares(u: ArrayArithmetic, a: NDArray, b: NDArray) -> NDArray:
    if u.complex_products == "fma":
        return u.compute("fma", a, a, u.compute("multiply", b, b))
    return u.compute("add", u.compute("multiply", a, a), u.compute("multiply", b, b))


def _broadcast_part(x: NDArray, like: NDArray) -> NDArray:
    """A part that no operation changes, in the shape that the operands broadcast to."""
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
