"""The processor's floating-point environment: which way it rounds, and whether it keeps subnormal numbers.

`torch.set_flush_denormal(True)`, a library that was linked with ``gcc -Ofast``, or C's `fesetround` changes it for a
thread, and from then on every operation of that thread gives other bits: Python's, NumPy's and PyTorch's too. No result
of simfloat depends on it, and every call leaves it as it was, in four ways:

* compiled kernels compute in the usual environment: their entry sets and restores it (`kernels/compile/processor.py`);
* the threads of simfloat's own pool set it once, when they start;
* a function that computes with floats in Python, NumPy or PyTorch is decorated with `in_usual_environment`;
* modules are imported in it, for the constants that they compute.

The check is four operations on floats, so that it needs no library and works on every processor: a subnormal operand
that counts as zero, a subnormal result that becomes zero, or another direction of rounding each give another number. It
takes a fifth of the time of a call of C through ctypes (AMD Zen 3). The environment is read and written by C only where
it is not the usual one.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache, wraps
from importlib.machinery import PathFinder
from types import FrameType, FunctionType
from typing import Any, TypeVar, cast

#: A function or a class.
FunctionOrClass = TypeVar("FunctionOrClass")

# Read from bytes: the parser of decimals computes with floats itself.
SUBNORMAL, LARGEST_SUBNORMAL, NORMAL = struct.unpack("<3d", struct.pack("<3Q", 1, (1 << 52) - 1, 1 << 52))
ONE, TINY = struct.unpack("<2d", struct.pack("<2Q", 1023 << 52, (1023 - 60) << 52))

#: Bytes of the largest `fenv_t` of any system, rounded up.
SIZE = 128

#: What C's headers call FE_DFL_ENV on Linux, with glibc and with musl.
DEFAULT_ON_LINUX = ctypes.c_void_p(-1)

#: The file that tracebacks name for the code of guarded functions.
FILE = "<in_usual_environment>"

#: Operators that compute nothing with floats.
UNGUARDED = {
    "__eq__",
    "__hash__",
    "__repr__",
    "__str__",
    "__format__",
    "__reduce__",
    "__setattr__",
    "__getattr__",
    "__len__",
}

#: The environment that each thread had before simfloat set the usual one, while that lasts: `callers`.
_thread = threading.local()

#: Arguments of `_controlfp` on Windows: to nearest, subnormal numbers are kept; and the bits that say so.
WINDOWS_USUAL, WINDOWS_BITS = 0, 0x0300_0300


def is_usual() -> bool:
    """Tell whether this thread rounds to nearest even and keeps subnormal numbers."""
    return NORMAL - SUBNORMAL == LARGEST_SUBNORMAL and ONE + TINY == ONE - TINY


def in_usual_environment(function: FunctionOrClass) -> FunctionOrClass:
    """Make a function compute in the usual environment; afterwards the thread's own is back, whatever happened.

    Of a class it does so for the public methods and operators that the class itself defines. Where the environment is
    the usual one, a call takes 0.2 microseconds longer (AMD Zen 3): the new function has the parameters of the old one
    by name, since to collect and to pass on ``*args, **options`` takes longer still. Inside, a user's functions are
    called by `in_callers_environment`.
    """
    if isinstance(function, type):
        for name, method in list(vars(function).items()):
            is_public = not name.startswith("_") or (name.endswith("__") and name not in UNGUARDED)
            if is_public and isinstance(method, FunctionType):
                setattr(function, name, in_usual_environment(method))
        return cast(FunctionOrClass, function)
    parameters, arguments, defaults = _write_signature(cast(Any, function))
    text = f"""
def guarded({parameters}):
    if _NORMAL - _SUBNORMAL == _LARGEST_SUBNORMAL and _ONE + _TINY == _ONE - _TINY:  # is_usual(), without a call
        return _function({arguments})
    return _computed(lambda: _function({arguments}))
"""
    constants = {f"_{name}": globals()[name] for name in ("NORMAL", "SUBNORMAL", "LARGEST_SUBNORMAL", "ONE", "TINY")}
    # Warnings and refusals look for the frame that entered the package, by the names of modules.
    module = {"__name__": cast(Any, function).__module__}
    space: dict[str, Any] = {
        **module,
        **constants,
        **defaults,
        "_function": function,
        "_computed": call_in_usual_environment,
    }
    exec(compile(text, FILE, "exec"), space)
    return cast(FunctionOrClass, wraps(cast(Any, function))(space["guarded"]))


class InUsualEnvironment:
    """The base of classes whose methods, and those of subclasses in this package, compute in the usual environment."""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("simfloat."):
            in_usual_environment(cls)


def skip_guard_frames(frame: FrameType) -> FrameType:
    """Find the frame itself, or the first one below it that is not that of a guarded function."""
    while frame.f_code.co_filename == FILE and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _write_signature(function: Callable[..., Any]) -> tuple[str, str, dict[str, Any]]:
    """Write a function's parameters as in ``def``, and how they are passed on; with the defaults by name."""
    from inspect import Parameter, signature  # a third of the time that this module takes to import

    parameters: list[str] = []
    arguments: list[str] = []
    defaults: dict[str, Any] = {}
    previous: Any = Parameter.POSITIONAL_ONLY
    for name, parameter in signature(function).parameters.items():
        default, kind = "", parameter.kind
        if parameter.default is not Parameter.empty:
            default = f"=_default_of_{name}"
            defaults[f"_default_of_{name}"] = parameter.default
        if previous == Parameter.POSITIONAL_ONLY != kind and parameters:
            parameters.append("/")
        if kind == Parameter.KEYWORD_ONLY and previous < Parameter.VAR_POSITIONAL:
            parameters.append("*")
        stars = "*" if kind == Parameter.VAR_POSITIONAL else "**" if kind == Parameter.VAR_KEYWORD else ""
        parameters.append(f"{stars}{name}{default}")
        arguments.append(f"{name}={name}" if kind == Parameter.KEYWORD_ONLY else f"{stars}{name}")
        previous = kind
    if parameters and previous == Parameter.POSITIONAL_ONLY:
        parameters.append("/")
    return ", ".join(parameters), ", ".join(arguments), defaults


def call_in_usual_environment(call: Callable[[], Any]) -> Any:
    """Call in the usual environment, and restore this thread's.

    An interrupt (Ctrl-C) cannot come between the end of the call and the restoring: Python looks for it after a call,
    and the first call in `finally` is the one that restores.
    """
    library, outer = c_library(), getattr(_thread, "callers", None)
    callers = (ctypes.c_char * SIZE)()
    library.fegetenv(callers)
    try:
        _thread.callers = callers
        set_usual()
        return call()
    finally:
        library.fesetenv(callers)
        _thread.callers = outer


def in_callers_environment(function: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function, such as an observer, in the environment that this thread had before simfloat's.

    What the function does to the environment ends with it: the rest of simfloat's call is computed in the usual one.
    """
    callers = getattr(_thread, "callers", None)
    if callers is not None:
        c_library().fesetenv(callers)
    try:
        return function(*args)
    finally:
        if not is_usual():
            set_usual()


class UsualEnvironmentFinder:
    """A finder of this package's modules that lets them be executed in the usual environment.

    A module's constants are computed when it is imported, and when Python compiles it, which may be at any time: in a
    thread that flushes subnormal numbers, ``2.0**-1074`` would be 0 from then on, in the file of the bytecode as well.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module of the package where the environment is unusual; everything else is left to other finders."""
        if not name.startswith("simfloat.") or is_usual():
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = in_usual_environment(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def set_usual() -> None:
    """Set the usual environment for this thread, for good.

    On ARM64, glibc leaves two bits as they are: FZ16, which flushes subnormal numbers of FP16 in the processor's own
    arithmetic, and DN. Only kernels have such arithmetic, and their entry clears both (seen under QEMU).
    """
    library = c_library()
    if sys.platform == "win32":
        library._controlfp(WINDOWS_USUAL, WINDOWS_BITS)
    elif sys.platform == "darwin":
        library.fesetenv(ctypes.byref(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")))
    else:
        library.fesetenv(DEFAULT_ON_LINUX)


def unusual_facts() -> list[str]:
    """List in words how this thread's environment differs from the usual one: nothing, if it does not."""
    up, down = ONE + TINY != ONE, ONE - TINY != ONE
    toward_zero = down and -ONE + TINY != -ONE
    facts = {
        "rounds toward zero": toward_zero,
        "rounds up": up and not toward_zero,
        "rounds down": down and not toward_zero,
        "takes subnormal operands for zero": SUBNORMAL == ONE - ONE,
        "flushes subnormal results to zero": not any(struct.pack("<d", NORMAL * (ONE / (ONE + ONE)))),
    }
    return [fact for fact, holds in facts.items() if holds]


@cache
def c_library() -> Any:
    """Load C's library of mathematics, which has `fegetenv` and `fesetenv` on every system."""
    if sys.platform == "win32":
        library = ctypes.CDLL("ucrtbase")
    else:
        library = ctypes.CDLL(None)
        if not hasattr(library, "fesetenv"):
            library = ctypes.CDLL("libm.so.6")
    library.fegetenv.argtypes = library.fesetenv.argtypes = [ctypes.c_void_p]
    return library
