"""NumPy's functions of tensors: an operation of the policy where it is exactly one, else refused by name.

NumPy would compute on a tensor's numbers in float64, past every policy and without a gradient. `np.asarray(x)` takes
the numbers out for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import as_array
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import joining
from simfloat.autodiff.record import Made, Operations, Result
from simfloat.autodiff.variable import Variable

#: NumPy's ufuncs by the tensor's method that each of them is.
UFUNCS = {
    name: name
    for name in "add subtract multiply divide power matmul negative maximum minimum sqrt square reciprocal".split()
    + "exp log log2 sin cos tanh".split()
} | {"absolute": "abs", "fabs": "abs"}

#: Tests, which give truth values.
TESTS = frozenset("less less_equal greater greater_equal equal not_equal isnan isinf isfinite signbit".split())

#: Functions that compute no numbers: shapes, places of numbers, equality, printing and storing.
READERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(np.shape, np.ndim, np.size, np.argmax, np.argmin, np.argsort, np.count_nonzero, np.nonzero),
        *(np.array_equal, np.array_equiv, np.allclose, np.isclose, np.may_share_memory, np.shares_memory),
        *(np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.iscomplexobj, np.isrealobj),
        *(np.array_repr, np.array_str, np.array2string, np.save, np.savez, np.savez_compressed, np.savetxt),
    }
)

#: What to write for some of the others.
INSTEAD = {
    "einsum": "matmul, transpose and sum", "inner": "a @ b.T", "vdot": "a @ b", "outer": "a.unsqueeze(1) * b",
    "tensordot": "reshape and @", "vecdot": "(a * b).sum(-1)", "norm": "(x * x).sum().sqrt()", "average": "x.mean()",
    "std": "x.var().sqrt()", "log10": "x.log2() / math.log2(10)", "exp2": "2.0 ** x", "float_power": "x ** y",
    "erf": "x.erf()", "expit": "x.sigmoid()", "logaddexp": "sf.stack([a, b]).logsumexp(0)", "pad": "x.pad(...)",
    "vstack": "sf.concatenate", "hstack": "sf.concatenate", "append": "sf.concatenate", "column_stack": "sf.stack",
    "split": "x.split(sizes)", "take": "x[places]", "copy": "x.detach()", "positive": "x",
}  # fmt: skip


class NumpyFunctions(Operations[Result]):
    """NumPy's protocol for functions of other arrays."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if method != "__call__":
            raise _refusal(f"numpy.{name}.{method}")
        if options and (name in UFUNCS or name in TESTS):
            raise ValueError(f"numpy.{name} of tensors takes no {', '.join(options)}: tensors are not written to.")
        if name in TESTS:
            return as_array(ufunc(*map(_numbers, inputs)))
        if name not in UFUNCS:
            raise _refusal(f"numpy.{name}" if hasattr(np, name) else name)
        return getattr(self._as_tensor(inputs[0]), UFUNCS[name])(*inputs[1:])

    def __array_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if function in READERS:
            return function(*map(_numbers, args), **{key: _numbers(value) for key, value in kwargs.items()})
        name = f"{function.__module__}.{function.__name__}"
        if function not in FUNCTIONS:
            raise _refusal(name)
        operation = FUNCTIONS[function]
        try:
            signature(operation).bind(self, *args, **kwargs)
        except TypeError:
            taken = list(signature(operation).parameters)[1:]
            raise ValueError(f"{name} of tensors takes {', '.join(taken)}, and nothing else.") from None
        return operation(self, *args, **kwargs)

    def _as_tensor(self, x: Any) -> Any:
        """An operand as a tensor: one that is none is constant."""
        return x if isinstance(x, NumpyFunctions) else self.made(Made(as_operand(x), None, None))


def _dot(t: Any, a: Any, b: Any) -> Any:
    a, b = t._as_tensor(a), t._as_tensor(b)
    if a.ndim == 0 or b.ndim == 0:
        return a.multiply(b)
    if a.ndim > 2 or b.ndim > 2:
        raise ValueError(f"numpy.dot of tensors takes at most two axes, got shapes {a.shape} and {b.shape}; use a @ b.")
    return a.matmul(b)


def _clip(t: Any, a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return t._as_tensor(a).clip(a_min if min is None else min, a_max if max is None else max)


def _transpose(t: Any, a: Any, axes: Sequence[int] | None = None) -> Any:
    return a.transpose() if axes is None else a.transpose(axes)


def _var(t: Any, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    return a.var(axis, keepdims, correction=ddof)


def _reduction(name: str) -> Callable[..., Any]:
    return lambda t, a, axis=None, *, keepdims=False: getattr(a, name)(axis, keepdims)


#: NumPy's function -> the operation that it is; each takes a tensor, then what NumPy's takes, in its order.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.sum: _reduction("sum"),
    np.mean: _reduction("mean"),
    np.max: _reduction("max"),
    np.amax: _reduction("max"),
    np.min: _reduction("min"),
    np.amin: _reduction("min"),
    np.var: _var,
    np.dot: _dot,
    np.clip: _clip,
    np.concatenate: lambda t, arrays, axis=0: t.made(joining.concatenate(arrays, axis)),
    np.stack: lambda t, arrays, axis=0: t.made(joining.stack(arrays, axis)),
    np.where: lambda t, condition, x, y: t.made(joining.where(condition, x, y)),
    np.reshape: lambda t, a, shape: a.reshape(shape),
    np.ravel: lambda t, a: a.reshape(-1),
    np.transpose: _transpose,
    np.swapaxes: lambda t, a, axis1, axis2: a.swapaxes(axis1, axis2),
    np.squeeze: lambda t, a, axis=None: a.squeeze(axis),
    np.expand_dims: lambda t, a, axis: a.unsqueeze(axis),
    np.broadcast_to: lambda t, array, shape: array.broadcast_to(shape),
}


def _numbers(x: Any) -> Any:
    """The numbers of tensors, also of those in a list."""
    if isinstance(x, list | tuple):
        return [_numbers(one) for one in x]
    return x.numbers if isinstance(x, Variable) else x


def _refusal(name: str) -> ValueError:
    instead = INSTEAD.get(name.rpartition(".")[2])
    write = f"write {instead}" if instead else "write it in operations of tensors"
    return ValueError(
        f"{name} would compute in float64, past the policy and without a gradient: {write}, or take the numbers out "
        "with np.asarray(x)."
    )
