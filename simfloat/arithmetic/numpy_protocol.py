"""NumPy's protocols for the library's own arrays: NumPy functions on them, and elements by keys.

**Functions.** A NumPy function of these arrays is supported if it is exactly one of their operations. Otherwise it
raises ValueError: NumPy would compute in float64, without formats and policies. `np.asarray(x)` returns the values for
that.

**Elements** are read and written by the keys of NumPy. CuPy differs in three ways. It takes integers modulo the length
of the axis, and when it writes, it converts them to their own dtype, which may be too short for the length. It writes
elements that are named several times in any order. It writes an overlapping source while it is read. This module makes
all devices agree: positions out of range raise IndexError, the last of several values for one element stays, and
sources are copied first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from types import FrameType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import catalog
from simfloat.arithmetic.machines import as_array, device_of, is_on_gpu
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.spacing import place_of_largest, place_of_least
from simfloat.common import as_rectangular_array, first_uneven_row
from simfloat.environment import in_usual_environment, skip_guard_frames
from simfloat.formats import Format

#: The methods of NumPy's ufuncs, for methods that have another name.
UFUNCS = {row.numpy: name for name, row in catalog.OPERATIONS.items() if row.numpy} | {
    "absolute": "abs",
    "fabs": "abs",
    "conjugate": "conj",
    "positive": "__pos__",
    "matvec": "@",  # not the method of this name, which SciPy calls
}

#: Tests, which return booleans.
TESTS = frozenset(
    "less less_equal greater greater_equal equal not_equal isnan isinf isfinite signbit".split()
    + "logical_and logical_or logical_xor logical_not".split()
)

#: The names of comparisons that need an order, in NumPy and in Python's module operator.
ORDERS = frozenset("less less_equal greater greater_equal lt le gt ge".split())

#: Functions that compute no values: shapes, positions, equality, printing and storing.
READERS: frozenset[Callable[..., Any]] = frozenset(
    {
        *(np.shape, np.ndim, np.size, np.argsort, np.count_nonzero, np.nonzero, np.argwhere, np.flatnonzero),
        *(np.any, np.all, np.isin, np.isposinf, np.isneginf, np.isreal, np.iscomplex, np.searchsorted, np.digitize),
        *(np.array_equal, np.array_equiv, np.may_share_memory, np.shares_memory),
        *(np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.iscomplexobj, np.isrealobj),
        *(np.array_repr, np.array_str, np.array2string, np.save, np.savez, np.savez_compressed, np.savetxt),
    }
)

#: Readers that compare with Python's numbers, which are exact only in comparisons with float64 values.
APPROXIMATE_COMPARISONS: frozenset[Callable[..., Any]] = frozenset({np.allclose, np.isclose})

#: Options that packages such as xarray pass with NumPy's default, None.
NUMPY_DEFAULTS = ("dtype", "out")

#: Packages that would compute with the values of an array, and their modules that only store or compare values.
COMPUTING_PACKAGES, STORING_MODULES = ("numpy.", "scipy.", "sklearn."), ("numpy.testing.", "scipy.io.")

#: The names of NumPy's functions that only read values. They read a `DataArray` without NumPy's protocol.
READER_NAMES = frozenset(function.__name__ for function in READERS | APPROXIMATE_COMPARISONS)

#: The modules of xarray that read the array of a `DataArray` for their caller.
XARRAY_MODULES = ("xarray.core.variable", "xarray.core.dataarray", "xarray.core.common")

#: Plotting packages, which read the values like `np.asarray`.
PLOTTING = ("matplotlib", "mpl_toolkits")

#: Alternatives to some of the other functions, in methods that all such arrays, or tensors, have.
ALTERNATIVES = {
    "einsum": "matmul, transpose and sum", "inner": "a @ b.T", "vdot": "a @ b", "outer": "a.unsqueeze(1) * b",
    "tensordot": "reshape and @", "vecdot": "(a * b).sum(-1)", "norm": "(x * x).sum().sqrt()",
    "average": "x.mean(), or with weights w (x * w).sum() / w.sum()", "std": "x.var().sqrt()",
    "float_power": "x ** y", "erf": "x.erf()", "expit": "x.sigmoid()",
    "logaddexp": "sf.stack([a, b]).logsumexp(0)", "pad": "x.pad(...)",
    "vstack": "sf.concatenate", "hstack": "sf.concatenate", "append": "sf.concatenate", "column_stack": "sf.stack",
    "multiply.outer": "a.unsqueeze(1) * b", "add.outer": "a.unsqueeze(1) + b",
    "add.reduce": "x.sum()", "maximum.reduce": "x.max()", "minimum.reduce": "x.min()",
    "split": "x.split(sizes)", "take": "x[places]", "copy": "x.detach()",
    "remainder": "x.fmod(y), which has the sign of x, or x.remainder(y), which is IEEE 754's", "round": "x.rint()",
    "fix": "x.trunc()",
}  # fmt: skip


@in_usual_environment
class NumpyProtocol:
    """The methods that NumPy calls; a subclass defines its name in messages, and how operands are joined."""

    #: The name of such arrays in messages.
    name_in_messages: ClassVar[str]

    #: The rule that computing in float64 would bypass.
    bypassed_rule: ClassVar[str]

    #: Functions that these arrays support in addition to `FUNCTIONS`, each with its operation.
    further_functions: ClassVar[Mapping[Callable[..., Any], Callable[..., Any]]] = {}

    #: Alternatives to other functions, if they differ from `ALTERNATIVES`.
    alternatives: ClassVar[Mapping[str, str]] = {}

    #: Public attributes that only other parts of the library use; `dir` does not list them.
    internal_names: ClassVar[frozenset[str]] = frozenset()

    #: Methods that have the name of a ufunc, but compute another function.
    unlike_ufuncs: ClassVar[frozenset[str]] = frozenset()

    #: True if ufuncs accept an `out` of this kind.
    writes_out: ClassVar[bool] = False

    numbers: NDArray

    def __dir__(self) -> list[str]:
        # The annotated attributes of this class describe the protocol; users need none of them.
        internal_names = self.internal_names.union(NumpyProtocol.__annotations__)
        return sorted(name for name in super().__dir__() if not name.startswith("_") and name not in internal_names)

    def _compared_numbers(self, x: Any) -> NDArray:
        """Return the values of an operand of a comparison: complex numbers as NumPy reads them, others as operands."""
        if isinstance(x, NumpyProtocol):
            return x.numbers
        is_complex = isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c"
        return np.asarray(x) if is_complex else as_operand(x)

    def _compare_exactly(self, compare: Callable[..., Any], operands: Sequence[Any]) -> NDArray[np.bool_]:
        """Return booleans of an exact comparison: Python's numbers are not rounded to the dtype of the arrays."""
        numbers = [self._compared_numbers(x) for x in operands]
        if compare.__name__ in ORDERS and any(map(np.iscomplexobj, numbers)):
            raise ValueError("Complex numbers have no order: compare their parts or magnitudes.")
        machine = device_of(*numbers)
        with np.errstate(invalid="ignore"):  # NumPy warns if it compares NaN with an exact object
            return as_array(compare(*map(machine.to_device, numbers)))

    def _write_out(self, out: Any, operation: str, operands: Sequence[Any]) -> Any:
        """Write the results of a ufunc into `out`."""
        raise NotImplementedError

    def _as_operand_array(self, x: Any) -> Any:
        """Return an operand as an array of this kind."""
        raise NotImplementedError

    def _concatenate(self, arrays: Sequence[Any], axis: int) -> Any:
        raise NotImplementedError

    def _stack(self, arrays: Sequence[Any], axis: int) -> Any:
        raise NotImplementedError

    def _where(self, condition: Any, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        name = ufunc.__name__
        if _is_called_by_plotting(skip_guard_frames(sys._getframe(1))):
            return getattr(ufunc, method)(*map(_in_float64, inputs), **options)
        if method != "__call__":
            raise self._refusal(f"numpy.{name}.{method}", f"{name}.{method}")
        own = UFUNCS.get(name, name)
        is_method = hasattr(np, name) and hasattr(self, own) and own not in self.unlike_ufuncs
        writes_out = is_method and self.writes_out
        if "dtype" in options and self._is_own_dtype(options["dtype"]):
            del options["dtype"]
        out = options["out"][0] if writes_out and "out" in options else None
        if type(out) is type(self) and set(options) == {"out"}:
            return self._write_out(out, own, inputs)
        if options and (is_method or name in TESTS):
            refused = [key for key in options if key != "out" or type(out) is not type(self)]
            result = "a new one, or written into one of these arrays as out" if writes_out else "a new one"
            raise ValueError(
                f"numpy.{name} of {self.name_in_messages} takes no {', '.join(refused)}: it takes its operands, and "
                f"its result is {result}."
            )
        if name in TESTS:
            return self._compare_exactly(ufunc, inputs)
        if not is_method:
            raise self._refusal(f"numpy.{name}" if hasattr(np, name) else name)
        return getattr(self._as_operand_array(inputs[0]), own)(*inputs[1:])

    def __array_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        operation = self.further_functions.get(function) or FUNCTIONS.get(function)
        kwargs = {
            name: value
            for name, value in kwargs.items()
            if name not in NUMPY_DEFAULTS or not (value is None or self._is_own_dtype(value))
        }
        is_drawn = _is_called_by_plotting(skip_guard_frames(sys._getframe(1)))
        if is_drawn or (operation is None and (function in READERS or function in APPROXIMATE_COMPARISONS)):
            read = _in_float64 if is_drawn or function in APPROXIMATE_COMPARISONS else _numbers
            return function(*map(read, args), **{key: read(value) for key, value in kwargs.items()})
        name = f"{function.__module__}.{function.__name__}"
        if operation is None:
            raise self._refusal(name)
        try:
            signature(operation).bind(self, *args, **kwargs)
        except TypeError:
            parameters = list(signature(operation).parameters)[1:]
            raise ValueError(
                f"{name} of {self.name_in_messages} takes {', '.join(parameters)}, and nothing else."
            ) from None
        return operation(self, *args, **kwargs)

    def _is_own_dtype(self, dtype: Any) -> bool:
        """Return True for the dtype of this array, which has the format in its metadata."""
        own = getattr(dtype, "metadata", None) and getattr(self, "dtype", None)
        return isinstance(own, np.dtype) and dtype == own and dict(dtype.metadata) == dict(own.metadata or {})

    def _refusal(self, name: str, key: str | None = None) -> ValueError:
        key = key or name.rpartition(".")[2]
        instead = self.alternatives.get(key) or ALTERNATIVES.get(key)
        if instead is None and key.startswith("nan"):
            without_skips = key.removeprefix("nan")
            instead = self.alternatives.get(without_skips) or ALTERNATIVES.get(without_skips)
            if getattr(np, without_skips, None) in {*self.further_functions, *FUNCTIONS}:
                instead = f"{without_skips}, which does not skip NaN (xarray: skipna=False)"
        write = f"write {instead}" if instead else f"write it in operations of {self.name_in_messages}"
        return ValueError(
            f"{name} would compute in float64, past {self.bypassed_rule}: {write}, or take the numbers out with "
            "np.asarray(x)."
        )


#: Larger than the priorities of pandas' own classes.
PANDAS_PRIORITY = 10_000


class OperandOfPandas:
    """A base class of arrays: operators of pandas leave such an operand to its own class, which raises ValueError.

    Otherwise pandas would compute in float64. In-place operators of pandas ignore the priority, so reading it from them
    raises ValueError.
    """

    @property
    def format(self) -> Format:
        """The format of all values."""
        raise NotImplementedError

    @property
    def __pandas_priority__(self) -> int:
        """The priority that pandas compares with its own."""
        frame = skip_guard_frames(sys._getframe(1)).f_back
        if frame is not None and frame.f_code.co_name == "_inplace_method":
            raise ValueError(
                "pandas would compute in float64, past the format: for s += A write s[:] = np.asarray("
                f"simfloat.array(s, {str(self.format)!r}) + A)."
            )
        return PANDAS_PRIORITY

    def __arrow_array__(self, type: Any = None) -> Any:
        import pyarrow

        return pyarrow.array(np.asarray(self), type)


def refuse_readers(called: str, passed_by: str, alternatives: Mapping[str, str]) -> None:
    """Raise ValueError if another library asks for the values of such an array, in `__array__`, to compute with them.

    NumPy calls the protocol before it computes on such an array, but not for a list of arrays or a `DataArray` of
    xarray. SciPy, scikit-learn and the matrix product of pandas never call it.
    """
    frame = skip_guard_frames(sys._getframe(2))
    while (reader := frame.f_globals.get("__name__", "")) in XARRAY_MODULES and frame.f_back is not None:
        frame = frame.f_back
    is_product = reader.startswith("pandas.") and frame.f_code.co_name == "dot"
    if (is_product or (reader.startswith(COMPUTING_PACKAGES) and not reader.startswith(STORING_MODULES))) and not (
        _is_called_by_plotting(frame) or _only_reads(frame)
    ):
        raise ValueError(
            f"{reader.partition('.')[0]} would compute in float64, past {passed_by}: write it in operations of {called}"
            f"{_advice_for_reader(frame, alternatives)}, or take the numbers out with np.asarray(x)."
        )


def _advice_for_reader(frame: FrameType, alternatives: Mapping[str, str]) -> str:
    """Return a replacement for the function of another package that the user called, in brackets."""
    last, module, instead = "", "", ""
    code, variables = frame.f_code, frame.f_locals
    while frame.f_globals.get("__name__", "").startswith(COMPUTING_PACKAGES) and frame.f_back is not None:
        code, module, variables = frame.f_code, frame.f_globals["__name__"], frame.f_locals
        last = code.co_qualname.partition(".")[0]
        instead = alternatives.get(last, instead)
        frame = frame.f_back
    if last == "AxisConcatenator":
        return " (np.concatenate([x, y]) for np.r_[x, y], and np.stack([x, y], -1) for np.c_[x, y])"
    if last == "vectorize":
        return " (np.vectorize passes float64 numbers to its function f: call f(x), or f(x[i]) for each i)"
    function = getattr(np, last, None)
    if getattr(getattr(function, "_implementation", function), "__code__", None) is code:
        if function in {*FUNCTIONS, *READERS}:
            instead = f"numpy.{last} of a list of arrays: np.{last}(np.stack([x, y]))"
    elif module.startswith("numpy.polynomial"):
        if last == "ABCPolyBase":  # the private base class of Polynomial and the others
            module, last = "numpy.polynomial", (variables.get("cls") or type(variables.get("self"))).__name__
        instead = f"coefficients of {module}.{last} may be c.tolist(), if x is an array"
    return f" ({instead})" if instead else ""


def _dot(t: Any, a: Any, b: Any) -> Any:
    a, b = t._as_operand_array(a), t._as_operand_array(b)
    if a.ndim == 0 or b.ndim == 0:
        return a.multiply(b)
    if a.ndim > 2 or b.ndim > 2:
        raise ValueError(
            f"numpy.dot of {t.name_in_messages} takes at most two axes, got shapes {a.shape} and {b.shape}; use a @ b."
        )
    return a.matmul(b)


def _clip(t: Any, a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    return t._as_operand_array(a).clip(a_min if min is None else min, a_max if max is None else max)


def _transpose(t: Any, a: Any, axes: Sequence[int] | None = None) -> Any:
    return a.transpose() if axes is None else a.transpose(axes)


def _var(t: Any, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
    return a.var(axis, keepdims, correction=ddof)


def _reduction(name: str) -> Callable[..., Any]:
    return lambda t, a, axis=None, *, keepdims=False: getattr(a, name)(axis, keepdims)


def _place(find: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, a, axis=None, *, keepdims=False: find(a.numbers, axis, keepdims)


def _function(name: str) -> Callable[..., Any]:
    return lambda t, x: getattr(t._as_operand_array(x), name)()


#: Functions of the catalog that are plain functions in NumPy, not ufuncs.
NO_UFUNCS = {
    name: function
    for name in catalog.FUNCTIONS
    if callable(function := getattr(np, name, None)) and type(function) is not np.ufunc
}

#: The operation for each NumPy function. It takes one of the operands, then the arguments of the NumPy function.
FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{function: _function(name) for name, function in NO_UFUNCS.items()},
    **{
        getattr(np, name): _reduction(name)
        for name, row in catalog.OPERATIONS.items()
        if row.kind == "reduction" and hasattr(np, name)
    },
    np.amax: _reduction("max"),
    np.amin: _reduction("min"),
    np.argmax: _place(place_of_largest),
    np.argmin: _place(place_of_least),
    np.var: _var,
    np.dot: _dot,
    np.clip: _clip,
    np.concatenate: lambda t, arrays, axis=0: t._concatenate(arrays, axis),
    np.stack: lambda t, arrays, axis=0: t._stack(arrays, axis),
    np.where: lambda t, condition, x, y: t._where(condition, x, y),
    np.reshape: lambda t, a, shape: a.reshape(shape),
    np.ravel: lambda t, a: a.reshape(-1),
    np.transpose: _transpose,
    np.swapaxes: lambda t, a, axis1, axis2: a.swapaxes(axis1, axis2),
    np.squeeze: lambda t, a, axis=None: a.squeeze(axis),
    np.expand_dims: lambda t, a, axis: a.unsqueeze(axis),
    np.broadcast_to: lambda t, array, shape: array.broadcast_to(shape),
}


def _is_called_by_plotting(frame: FrameType | None) -> bool:
    """Return True if a plotting package called NumPy, directly or through other NumPy functions."""
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package != "numpy":
            return package in PLOTTING
        frame = frame.f_back
    return False


def _only_reads(frame: FrameType | None) -> bool:
    """Return True if a function of NumPy that only reads is running."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("numpy."):
        if frame.f_code.co_name in READER_NAMES:
            return True
        frame = frame.f_back
    return False


def _numbers(x: Any) -> Any:
    """Return the values of such arrays, also of those in a list."""
    return _read(x, lambda array: array.numbers)


def _in_float64(x: Any) -> Any:
    """Return the values of such arrays in float64, in new memory."""
    return _read(x, np.asarray)


def _read(x: Any, read: Callable[[Any], Any]) -> Any:
    if isinstance(x, list | tuple):
        return [_read(one, read) for one in x]
    return read(x) if isinstance(x, NumpyProtocol) else x


def elements(array: NDArray, key: Any) -> Any:
    """Return array[key]; IndexError for positions out of range, ValueError for lists of unlike lengths."""
    if is_on_gpu(array):
        _check_key(array, key)
    try:
        return array[key]
    except ValueError:  # lists of unlike lengths
        raise ValueError(f"An index must be a rectangular array of integers{first_uneven_row(key)}.") from None


def write_elements(array: NDArray, key: Any, value: Any) -> None:
    """Set array[key] = value, with a value on the device of the array; IndexError for positions out of range."""
    if not is_on_gpu(array):
        array[key] = value
        return
    names_places = _check_key(array, key)
    key = tuple(_as_full_integers(part) for part in (key if isinstance(key, tuple) else (key,)))
    if np.may_share_memory(array, value):
        value = value.copy()
    if names_places:
        _write_last(array, key, value)
    else:
        array[key] = value


def check_places(array: NDArray, places: Any, axis: int | None) -> None:
    """Raise IndexError, like NumPy, for integers that are out of range along an axis, or in the whole array."""
    if not is_on_gpu(array) or isinstance(places, slice) or (places := as_array(places)).dtype.kind not in "iu":
        return
    size = array.size if axis is None else array.shape[axis]
    wrong = (places < -size) | (places >= size)
    if wrong.any():
        first = int(places.reshape(-1)[int(np.argmax(wrong))])
        raise IndexError(f"index {first} is out of bounds for axis {axis or 0} with size {size}")


def _check_key(array: NDArray, key: Any) -> bool:
    """Return True if arrays of integers name several positions; IndexError if one is out of range."""
    parts = [_as_indices(part) for part in (key if isinstance(key, tuple) else (key,))]
    axes = sum(_axes_of(part) for part in parts)
    axis, names_places = 0, False
    for part in parts:
        if part is Ellipsis:
            axis += array.ndim - axes
            continue
        if hasattr(part, "dtype") and axis < array.ndim:
            check_places(array, part, axis)
            names_places |= part.size > 1 and part.dtype.kind in "iu"
        axis += _axes_of(part)
    return names_places


def _as_indices(part: Any) -> Any:
    """Return one index of a key; a list becomes the array that NumPy makes of it."""
    return as_rectangular_array(part, "an index", None if part else np.intp) if isinstance(part, list | tuple) else part


def _as_full_integers(part: Any) -> Any:
    """Return an array of integers in the dtype of positions; any other index unchanged."""
    part = _as_indices(part)
    return part.astype(np.intp) if hasattr(part, "dtype") and part.dtype.kind in "iu" else part


def _axes_of(part: Any) -> int:
    """Return the number of axes that an index is for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if hasattr(part, "dtype") and part.dtype.kind == "b" else 1


def _write_last(array: NDArray, key: Any, value: Any) -> None:
    """Write to elements, some of which may be named several times, so that the last value stays."""
    places = np.arange(array.size, like=array).reshape(array.shape)[key]
    values = np.broadcast_to(value.reshape(value.shape[-places.ndim :]), places.shape).reshape(-1)
    # A stable sort keeps the values of one element in their order, so the last of each group is written. CuPy would
    # write them in any order.
    order = np.argsort(places.reshape(-1), kind="stable")
    named = places.reshape(-1)[order]
    is_last = np.concatenate([named[1:] != named[:-1], np.ones_like(named[:1], bool)])
    flat = array.reshape(-1)
    flat[named[is_last]] = values[order[is_last]]
    array[...] = flat.reshape(array.shape)
