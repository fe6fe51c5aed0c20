"""NumPy's functions that are made of operations of arrays of a format, each of them rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simfloat.checks import is_integer


def _inner(t: Any, a: Any, b: Any) -> Any:
    a, b = t._as_own(a), t._as_own(b)
    if a.ndim == 0 or b.ndim == 0:
        return a.multiply(b)
    if a.ndim > 2 or b.ndim > 2:
        raise ValueError(f"numpy.inner of {t.called} takes at most two axes, got shapes {a.shape} and {b.shape}.")
    return a @ b.T


def _outer(t: Any, a: Any, b: Any) -> Any:
    return t._as_own(a).reshape(-1, 1) * t._as_own(b).reshape(1, -1)


def _diff(t: Any, a: Any, n: int = 1, axis: int = -1) -> Any:
    if not is_integer(n, 0):
        raise ValueError(f"n, how often neighbours are subtracted, is an integer from 0, got {n!r}.")
    x = t._like(np.moveaxis(t._as_own(a).numbers, axis, -1))
    for _ in range(n):
        x = x[..., 1:] - x[..., :-1]
    return t._like(np.moveaxis(x.numbers, -1, axis))


#: NumPy's function -> the operations that it is.
COMPOSITES: dict[Callable[..., Any], Callable[..., Any]] = {
    np.inner: _inner,
    np.outer: _outer,
    np.diff: _diff,
    np.vdot: lambda t, a, b: t._as_own(a).conj().ravel() @ t._as_own(b).ravel(),
    np.trace: lambda t, a, offset=0: a.diagonal(offset).sum(),
    np.std: lambda t, a, axis=None, *, ddof=0, keepdims=False: a.std(axis, keepdims, correction=ddof),
    np.real: lambda t, val: val.real,
    np.imag: lambda t, val: val.imag,
}
