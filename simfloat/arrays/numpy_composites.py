"""NumPy's functions that are made of operations of arrays of a format, each of them rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.arrays import complex_parts
from simfloat.checks import is_integer


def _inner(t: Any, a: Any, b: Any) -> Any:
    a, b = t._as_operand_array(a), t._as_operand_array(b)
    if a.ndim == 0 or b.ndim == 0:
        return a.multiply(b)
    if a.ndim > 2 or b.ndim > 2:
        raise ValueError(
            f"numpy.inner of {t.name_in_messages} takes at most two axes, got shapes {a.shape} and {b.shape}."
        )
    return a @ b.T


def _outer(t: Any, a: Any, b: Any) -> Any:
    return t._as_operand_array(a).reshape(-1, 1) * t._as_operand_array(b).reshape(1, -1)


def _diff(t: Any, a: Any, n: int = 1, axis: int = -1) -> Any:
    if not is_integer(n, 0):
        raise ValueError(f"n, how often neighbours are subtracted, is an integer from 0, got {n!r}.")
    x = t._with_numbers(np.moveaxis(t._as_operand_array(a).numbers, axis, -1))
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return t._with_numbers(np.moveaxis(x.numbers, -1, axis))


def _trace(t: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x = t._as_operand_array(a)
    return x._with_numbers(x.numbers.diagonal(offset, axis1, axis2).copy()).sum(-1)


def _ptp(t: Any, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    x = t._as_operand_array(a)
    return x.max(axis, keepdims) - x.min(axis, keepdims)


def _round(t: Any, a: Any, decimals: int = 0) -> Any:
    if decimals != 0:
        raise ValueError(f"numpy.round of {t.name_in_messages} rounds to integers; got decimals={decimals!r}.")
    return t._as_operand_array(a).rint()


def _nan_to_num(
    t: Any, x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    a, largest = t._as_operand_array(x), t.format.max
    a._real_numbers("nan_to_num")
    result = np.where(np.isnan(a), nan, a)
    result = np.where(np.isposinf(a), largest if posinf is None else posinf, result)
    result = np.where(np.isneginf(a), -largest if neginf is None else neginf, result)
    return result if copy else a._write_in_place(result)


#: What norms of vectors are, by what NumPy calls them; others are sums of squares.
_VECTOR_NORMS: dict[Any, Callable[..., Any]] = {
    1: lambda x, axis, keepdims: abs(x).sum(axis, keepdims),
    np.inf: lambda x, axis, keepdims: abs(x).max(axis, keepdims),
    -np.inf: lambda x, axis, keepdims: abs(x).min(axis, keepdims),
}


def _norm(t: Any, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The root of the sum of rounded squares; of real numbers also sums and extremes of magnitudes."""
    a = t._as_operand_array(x)
    axes = tuple(range(a.ndim)) if axis is None else tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    is_matrix = len(axes) == 2 and not (ord is None and axis is None)
    if ord is None or (ord == "fro" and is_matrix) or (ord == 2 and len(axes) == 1):
        if complex_parts.is_complex(a.numbers):
            squares = a._with_numbers(complex_parts.squares(a.arithmetic, a.numbers))
        else:
            squares = a * a
        return squares.sum(axes, keepdims).sqrt()
    if len(axes) == 1 and ord in _VECTOR_NORMS:
        return _VECTOR_NORMS[ord](a, axes, keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        first, last = (int(i) % a.ndim for i in axes)
        summed, reduced = (first, last) if ord in (1, -1) else (last, first)
        sums = abs(a).sum(summed, True)
        extreme = sums.max(reduced, True) if ord > 0 else sums.min(reduced, True)
        return extreme if keepdims else extreme.squeeze((first, last))
    advice = ": the largest is sf.linalg.svd(x).s[0]" if ord == 2 else ""
    raise ValueError(
        f"numpy.linalg.norm of {t.name_in_messages} takes ord 1, 2, inf and -inf of vectors, and 'fro', 1, -1, inf and -inf of "
        f"matrices; got ord={ord!r} along axis {axis!r} of shape {a.shape}{advice}."
    )


#: NumPy's function -> the operations that it is.
COMPOSITES: dict[Callable[..., Any], Callable[..., Any]] = {
    np.inner: _inner,
    np.outer: _outer,
    np.diff: _diff,
    np.vdot: lambda t, a, b: t._as_operand_array(a).conj().ravel() @ t._as_operand_array(b).ravel(),
    np.trace: _trace,
    np.linalg.norm: _norm,
    np.ptp: _ptp,
    np.round: _round,
    np.around: _round,
    np.fix: lambda t, x: t._as_operand_array(x).trunc(),
    np.nan_to_num: _nan_to_num,
    np.std: lambda t, a, axis=None, *, ddof=0, keepdims=False: a.std(axis, keepdims, correction=ddof),
    np.real: lambda t, val: val.real,
    np.imag: lambda t, val: val.imag,
}
