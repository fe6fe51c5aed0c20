"""Make results independent of the floating-point environment: rounding direction and subnormal flushing.

`torch.set_flush_denormal(True)`, a library that was linked with ``gcc -Ofast``, or C's `fesetround` changes the
environment of a thread. After that, every operation of the thread in Python, NumPy and PyTorch may give other bits. No
result of simfloat depends on the environment, and every call restores it:

* compiled kernels compute in the usual environment: their entry sets and restores it (`kernels/compile/processor.py`);
* the threads of simfloat's pool set it once, when they start;
* a function that computes with floats in Python, NumPy or PyTorch is decorated with `in_usual_environment`;
* modules are imported in it, for the constants that they compute.

The check consists of four float operations, so it needs no library and works on every processor. If a subnormal operand
is read as zero, a subnormal result is flushed, or the rounding direction differs, one of the four results changes. The
check takes a fifth of the time of a call to C through ctypes (AMD Zen 3). Only an unusual environment is read and
written through C.
"""

from __future__ import annotations

import ctypes
import json
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

# Read from bytes, because the parser of decimals computes with floats.
SUBNORMAL, LARGEST_SUBNORMAL, NORMAL = struct.unpack("<3d", struct.pack("<3Q", 1, (1 << 52) - 1, 1 << 52))
ONE, TINY = struct.unpack("<2d", struct.pack("<2Q", 1023 << 52, (1023 - 60) << 52))

#: The size of the largest `fenv_t` of any system in bytes, rounded up.
SIZE = 128

#: The value of FE_DFL_ENV in the headers of C on Linux, with glibc and with musl.
DEFAULT_ON_LINUX = ctypes.c_void_p(-1)

#: The file name of guarded functions in tracebacks.
FILE = "<in_usual_environment>"

#: Special methods that do not compute with floats.
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

#: The environment of the caller of each thread, `callers`, while simfloat's is set.
_thread = threading.local()

#: Arguments of `_controlfp` on Windows: round to nearest and keep subnormal numbers, and the mask of these bits.
WINDOWS_USUAL, WINDOWS_BITS = 0, 0x0300_0300


def is_usual() -> bool:
    """True if this thread rounds to nearest even and keeps subnormal numbers."""
    return NORMAL - SUBNORMAL == LARGEST_SUBNORMAL and ONE + TINY == ONE - TINY


def in_usual_environment(function: FunctionOrClass) -> FunctionOrClass:
    """Make a function compute in the usual environment, and restore the environment of the thread afterwards.

    For a class, decorate the public methods and operators that the class itself defines. In the usual environment a
    call takes 0.2 microseconds longer (AMD Zen 3). The new function has the parameters of the old one by name, because
    collecting and passing ``*args, **options`` is slower. Within the function, a user's functions are called by
    `in_callers_environment`.
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
    # Warnings and some errors search for the frame that entered the package by the names of modules.
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
    """A base class: methods of its subclasses in this package compute in the usual environment."""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("simfloat."):
            in_usual_environment(cls)


def skip_guard_frames(frame: FrameType) -> FrameType:
    """Return the frame, or the first caller that is not the wrapper of a guarded function."""
    while frame.f_code.co_filename == FILE and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _write_signature(function: Callable[..., Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the parameters of a function as code of a ``def`` and of a call, and the defaults by name."""
    from inspect import Parameter, signature  # importing it takes a third of this module's time

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
    """Call a function in the usual environment, and restore the environment of this thread.

    Ctrl-C cannot prevent this: Python checks for an interrupt after a call, and the first call in `finally` restores
    the environment.
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
    """Call a user's function, such as an observer, in the environment of the caller of simfloat.

    If the function changes the environment, the change ends with it: the usual one is set again.
    """
    callers = getattr(_thread, "callers", None)
    if callers is not None:
        c_library().fesetenv(callers)
    elif not is_usual():  # no guarded function runs, so the unusual environment is the caller's
        return function(*args)
    try:
        return function(*args)
    finally:
        if not is_usual():
            set_usual()


class UsualEnvironmentFinder:
    """A finder that executes the modules of this package in the usual environment.

    The constants of a module are computed when it is imported and compiled, which can happen in any thread. In a thread
    that flushes subnormal numbers, ``2.0**-1074`` would become 0 for good, also in the bytecode file.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Return the specification of a module of this package if the environment is unusual, otherwise None."""
        if not name.startswith("simfloat.") or is_usual():
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = in_usual_environment(spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def set_usual() -> None:
    """Set the usual environment for this thread.

    On ARM64, glibc does not change two bits: FZ16, which flushes subnormal numbers in FP16 arithmetic of the processor,
    and DN. Only kernels have such arithmetic, and their entry clears both bits (seen under QEMU).
    """
    library = c_library()
    if sys.platform == "win32":
        library._controlfp(WINDOWS_USUAL, WINDOWS_BITS)
    elif sys.platform == "darwin":
        library.fesetenv(ctypes.byref(ctypes.c_char.in_dll(library, "_FE_DFL_ENV")))
    else:
        library.fesetenv(DEFAULT_ON_LINUX)


@in_usual_environment
def parse_json(text: str | bytes) -> Any:
    """Parse JSON. In an unusual environment, Python reads one in six decimals as a neighbour of the right number."""
    return json.loads(text)


def unusual_facts() -> list[str]:
    """Return the differences between this thread's environment and the usual one, in words."""
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
    """Load the C library that has `fegetenv` and `fesetenv`."""
    if sys.platform == "win32":
        library = ctypes.CDLL("ucrtbase")
    else:
        library = ctypes.CDLL(None)
        if not hasattr(library, "fesetenv"):
            library = ctypes.CDLL("libm.so.6")
    library.fegetenv.argtypes = library.fesetenv.argtypes = [ctypes.c_void_p]
    return library
