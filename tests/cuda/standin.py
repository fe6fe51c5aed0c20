"""A stand-in for CuPy without a GPU: arrays that never mix with NumPy arrays, like CuPy's.

The values are stored in a NumPy array that only this file and `simulated.py` read. As with CuPy, only `get` converts an
array to NumPy, an array does not compute with NumPy arrays, results without axes are arrays, and functions that CuPy 14
does not have are missing. `install` replaces the module `cupy`.
"""

import sys
import types
import weakref

import numpy as np

from tests.cuda import cupys_own

#: NumPy's functions that CuPy has not.
LACKING = {"block", "insert", "spacing", "geomspace", "nanpercentile", "nanquantile", "vecdot", "matvec", "vecmat"}

#: Ufuncs that have these methods in CuPy.
METHODS = {
    "__call__": None, "reduce": {"add", "multiply"}, "accumulate": {"add", "multiply"}, "reduceat": {"add"},
    "at": {"add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"},
}  # fmt: skip


class Flags:
    def __init__(self, flags):
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, flags.owndata


#: Arrays by the identity of their numbers, so that a view's base is the array that it is a view of.
KNOWN = weakref.WeakValueDictionary()


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    __module__ = "cupy"

    def __init__(self, host):
        self._host = host
        KNOWN.setdefault(id(host), self)

    shape = property(lambda self: self._host.shape)
    dtype = property(lambda self: self._host.dtype)
    size = property(lambda self: self._host.size)
    ndim = property(lambda self: self._host.ndim)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    strides = property(lambda self: self._host.strides)
    flags = property(lambda self: Flags(self._host.flags))
    T = property(lambda self: ndarray(self._host.T))
    real = property(lambda self: wrapped(self._host.real), lambda self, value: self._write_part("real", value))
    imag = property(lambda self: wrapped(self._host.imag), lambda self, value: self._write_part("imag", value))
    base = property(lambda self: None if self._host.base is None else array_of(self._host.base))
    device = types.SimpleNamespace(id=0)
    data = property(lambda self: types.SimpleNamespace(ptr=self._host.ctypes.data, device_id=0))
    __cuda_array_interface__ = property(lambda self: self._host.__array_interface__)

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __dlpack__(self, **options):
        return self._host.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._host.__dlpack_device__()

    def get(self):
        return self._host.copy()

    def __str__(self):
        return str(self._host)

    def item(self):
        return self._host.item()

    def tolist(self):
        return self._host.tolist()

    def __len__(self):
        return len(self._host)

    def __bool__(self):
        return bool(self._host)

    def __int__(self):
        return int(self._host)

    def __float__(self):
        return float(self._host)

    def __index__(self):
        return self._host.__index__()

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __getitem__(self, place):
        return wrapped(self._host[cupys_own.key_of(self._host, index_of(place))])

    def __setitem__(self, place, value):
        value = unwrapped(value) if isinstance(value, ndarray) else filled_with(unwrapped(value))
        cupys_own.write(self._host, index_of(place), value)

    def _write_part(self, part, value):
        setattr(self._host, part, unwrapped(value))

    def fill(self, value):
        self._host.fill(filled_with(value))

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        allowed = METHODS.get(method, set())
        if ufunc is np.matmul:
            raise TypeError("cuBLAS adds in an order of its own")
        if {"where", "initial"} & set(options):
            raise TypeError("CuPy has no where= or initial=")
        if allowed is not None and ufunc.__name__ not in allowed:
            raise TypeError(f"CuPy has no {ufunc.__name__}.{method}")
        return wrapped(getattr(ufunc, method)(*unwrapped(inputs), **unwrapped(options)))

    def __array_function__(self, function, kinds, inputs, options):
        if {"where", "initial"} & set(options):
            raise TypeError("CuPy has no where= or initial=")
        if "device" in options:  # which NumPy adds where full, ones and eye are given like=
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument 'device'")
        if function.__name__ in LACKING or not function.__module__ == "numpy":
            raise TypeError(f"CuPy has no {function.__module__}.{function.__name__}")
        if function.__name__ in ("take", "take_along_axis") and len(inputs) > 1:
            return wrapped(cupys_own.taken(function, *map(index_of, inputs), **options))
        if function.__name__ in cupys_own.REDUCTIONS:
            host, *rest = unwrapped(inputs)
            return wrapped(cupys_own.reduced(function.__name__, host, *rest, **unwrapped(options)))
        if function.__name__.endswith("_like") and options.get("shape") == ():
            options = {**options, "shape": inputs[0].shape}  # CuPy takes it for none
        return wrapped(function(*unwrapped(inputs), **unwrapped(options)))


def index_of(key):
    """A key of NumPy's arrays: unlike an operand, it may be one."""
    if isinstance(key, tuple):
        return tuple(map(index_of, key))
    return key._host if isinstance(key, ndarray) else key


def filled_with(number):
    """What CuPy fills an array with: it makes all bits zeros if the number is zero, -0 too."""
    return 0 if np.ndim(number) == 0 and number == 0 else number


def array_of(host):
    """The array with these numbers: the first one that was made of them."""
    found = KNOWN.get(id(host))
    return ndarray(host) if found is None else found


def _method(name):
    def method(self, *inputs, **options):
        if {"where", "initial"} & set(options):
            raise TypeError("CuPy has no where= or initial=")
        if name in cupys_own.REDUCTIONS:
            return wrapped(cupys_own.reduced(name, self._host, *unwrapped(inputs), **unwrapped(options)))
        return wrapped(getattr(self._host, name)(*unwrapped(inputs), **unwrapped(options)))

    return method


for _name in (
    *("all any argmax argmin astype clip copy cumsum diagonal dot flatten max mean min nonzero prod".split()),
    *("ravel repeat reshape round sort squeeze std sum swapaxes take trace transpose var view".split()),
):
    setattr(ndarray, _name, _method(_name))


def wrapped(value):
    """Return a result of NumPy as CuPy would return it."""
    if isinstance(value, tuple | list):
        return type(value)(map(wrapped, value))
    if isinstance(value, np.ndarray | np.generic):
        return ndarray(np.asarray(value))
    return value


def unwrapped(value):
    """Return the NumPy operand; TypeError for an operand that CuPy does not accept."""
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(map(unwrapped, value))
    if isinstance(value, dict):
        return {name: unwrapped(one) for name, one in value.items() if name != "like"}
    return value


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__") or name in LACKING:
            raise AttributeError(name)
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function
        return lambda *inputs, **options: wrapped(function(*unwrapped(inputs), **unwrapped(options)))


def install():
    """Make it the module `cupy`, and return that."""
    module = sys.modules["cupy"] = Module("cupy")
    module.ndarray = ndarray
    module.asarray = module.array = lambda x, *args, **kwargs: (
        x if isinstance(x, ndarray) else moved(x, *args, **kwargs)
    )
    strided = np.lib.stride_tricks.as_strided
    tricks = types.SimpleNamespace(as_strided=lambda x, *options: wrapped(strided(unwrapped(x), *options)))
    module.lib = types.SimpleNamespace(stride_tricks=tricks)
    device = types.SimpleNamespace(id=0, compute_capability="90")
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    module.cuda = types.SimpleNamespace(runtime=runtime, Device=lambda number=0: device)
    module.asnumpy = lambda x: x.get() if isinstance(x, ndarray) else np.asarray(x)
    return module


def moved(x, dtype=None, **_):
    """Something of NumPy's or Python's on the GPU, where one that has no axes is filled in."""
    made = np.array(x, dtype)
    if not made.ndim:
        made.fill(filled_with(made))
    return ndarray(made)
