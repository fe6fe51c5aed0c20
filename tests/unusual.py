"""Unusual floating-point environments: blocks in which this thread has one, and a way to run other tests in one.

With ``pytest --environment up``, every call from a test to a public function or method of the package is made in that
environment. Only the outermost call is: nothing changes inside of it and between calls, so that the expected values of
tests are computed as usual.
"""

import ctypes
import functools
import importlib
import inspect
import platform
import threading
from contextlib import contextmanager

from simfloat.environment import SIZE, c_library

#: Where the control register lies in C's `fenv_t`, and its bits: flush subnormal results, take subnormal operands for
#: zero (on ARM64 one bit does both), round down, up, toward zero.
PLACE, FLUSH, ZERO_OPERANDS, DOWN, UP, TOWARD_ZERO = (
    (slice(28, 32), 0x8000, 0x40, 0x2000, 0x4000, 0x6000)
    if platform.machine() in ("x86_64", "AMD64")
    else (slice(0, 4), 1 << 24, 1 << 24, 2 << 22, 1 << 22, 3 << 22)
)
ALL = FLUSH | ZERO_OPERANDS | TOWARD_ZERO

#: The environments by name; `torch.set_flush_denormal(True)` makes "flush".
ENVIRONMENTS = {
    "flush": FLUSH | ZERO_OPERANDS, "up": UP, "down": FLUSH | DOWN, "toward_zero": ZERO_OPERANDS | TOWARD_ZERO,
    "flush_up": FLUSH | ZERO_OPERANDS | UP,
}  # fmt: skip


def control_bits():
    """The bits of this thread's control register that decide results."""
    environment = (ctypes.c_char * SIZE)()
    c_library().fegetenv(environment)
    return int.from_bytes(environment.raw[PLACE], "little") & ALL


@contextmanager
def environment(name):
    """A block in which this thread has the environment of that name; afterwards its own is back."""
    library, own = c_library(), (ctypes.c_char * SIZE)()
    library.fegetenv(own)
    content = bytearray(own.raw)
    control = int.from_bytes(content[PLACE], "little") & ~ALL | ENVIRONMENTS[name]
    content[PLACE] = control.to_bytes(4, "little")
    library.fesetenv(bytes(content))
    try:
        yield
    finally:
        library.fesetenv(own)


#: Methods that begin and end blocks and objects: nothing is computed in them.
LEFT_OUT = {"__init_subclass__", "__class_getitem__", "__new__", "__getattribute__", "__enter__", "__exit__", "__del__"}
ROOMS = ("simfloat", *(f"simfloat.{room}" for room in ("linalg", "nn", "optim", "telemetry", "train", "studies")))


def install(name):
    """Let tests call the package's public functions and methods in the environment of that name."""
    inside = threading.local()

    def unusually(function):
        @functools.wraps(function)
        def called(*args, **options):
            if getattr(inside, "is_busy", False):
                return function(*args, **options)
            inside.is_busy = True
            try:
                with environment(name):
                    result = function(*args, **options)
                    assert control_bits() == ENVIRONMENTS[name], "a call leaves the environment as it was"
                    return result
            finally:
                inside.is_busy = False

        return called

    classes = set()
    for room in ROOMS:
        package = importlib.import_module(room)
        for public in package.__all__:
            value = getattr(package, public)
            if inspect.isfunction(value):
                setattr(package, public, unusually(value))
            elif inspect.isclass(value):
                classes |= {owner for owner in value.__mro__ if owner.__module__.startswith("simfloat.")}
    for owner in classes:
        for key, method in list(vars(owner).items()):
            is_public = not key.startswith("_") or (key.endswith("__") and key not in LEFT_OUT)
            if is_public and inspect.isfunction(method) and not inspect.isgeneratorfunction(method):
                setattr(owner, key, unusually(method))
