"""A digest of everything that a function computes with: its code, and the state of everything that it uses.

Objects are represented by their state, as in pickle. Functions and classes are represented by their code, the names in
it, and the present values of these names (`code_digest.py`). The digest does not depend on addresses, hash seeds, or
the order of a set. A value that cannot be read raises ValueError with its name, because stored results must never be
those of another state.
"""

from __future__ import annotations

import copyreg
import logging
import marshal
import os
import sys
import types
import weakref
from collections.abc import Callable
from functools import cache
from threading import Lock
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np

from simfloat.arithmetic.machines import is_on_gpu, on_cpu
from simfloat.autodiff.variable import ChangeGuard, Variable
from simfloat.studies.code_digest import ATOMS, LAYOUT, CodeDigest
from simfloat.train.states import array_of_tensor, is_tensor

#: Types of immutable values, for which identity has no meaning: equal values need no mark for a second occurrence.
UNMARKED = (*ATOMS, tuple, frozenset, CodeType, np.generic, np.dtype)

#: Types of methods of compiled classes, which are represented by class and name.
OF_A_CLASS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip

#: Attributes of tensors that record their use and do not affect values.
BOOKKEEPING = {"node", "moved", "made_with", "_is_lent", "_rounded", "_owners", "trace"}

#: The types of functools.cache functions and of threading.Lock objects.
CACHED, LOCK = type(cache(len)), type(Lock())


def function_digest(function: Any) -> str:
    """Return a digest of the function's code and of the state of everything that it uses.

    The digest ignores lists, dictionaries and sets that the function only appends to or fills, and numbers that it only
    increments. Raises ValueError, with the name, for a value that cannot be read.
    """
    digest = StateDigest(getattr(function, "__name__", type(function).__name__))
    try:
        digest.add(function)
        digest.finish()
    except RecursionError:
        raise ValueError(
            f"{digest.where()} is nested too deeply for the digest that identifies results in a folder. Build it "
            "inside the function, or use no folder."
        ) from None
    return digest.content.hexdigest()


class StateDigest(CodeDigest):
    """A traversal of everything that a value refers to; this class writes values, its base class writes code."""

    def add(self, value: Any) -> None:
        """Write a value into the digest."""
        kind = type(value)
        if kind in ATOMS:
            return self._write_pieces(kind.__name__, marshal.dumps(value, LAYOUT))
        if id(value) in self._numbers_by_id:
            return self._write_pieces(f"as {self._numbers_by_id[id(value)]}")
        if not isinstance(value, UNMARKED):
            self._numbers_by_id[id(value)] = len(self._numbers_by_id)
            self._kept_alive.append(value)
        if kind in PLAIN:
            return PLAIN[kind](self, value)
        for kinds, write in WRITERS:
            if isinstance(value, kinds):
                return write(self, value)
        if is_tensor(value):
            return self._tensor(value)
        if is_on_gpu(value):
            return self._array(on_cpu(value))
        return self._object(value)

    # Containers.

    def _sequence(self, value: list[Any] | tuple[Any, ...]) -> None:
        self._write_pieces(type(value).__name__, str(len(value)))
        if set(map(type, value)) <= {*ATOMS}:
            return self._write_pieces(marshal.dumps(value, LAYOUT))
        for number, item in enumerate(value):
            with self._step_into(f"[{number}]"):
                self.add(item)

    def _set(self, value: set[Any] | frozenset[Any]) -> None:
        """Write a set, with a separate digest for each item, so that the order of the set has no effect."""
        are_atoms = set(map(type, value)) <= {*ATOMS}
        items = [marshal.dumps(item, LAYOUT) if are_atoms else self._digest_of_item(item) for item in value]
        self._write_pieces(type(value).__name__, str(are_atoms), str(len(items)), *sorted(items))
        if type(value) not in (set, frozenset):
            self.add(type(value))
            self._add_named_values(getattr(value, "__dict__", {}))

    def _digest_of_item(self, item: Any) -> bytes:
        digest = StateDigest(self._name, self._numbers_by_id, [*self._trail, "{...}"])
        digest.add(item)
        digest.finish()
        self._kept_alive += digest._kept_alive
        return digest.content.digest()

    def _bytes(self, value: bytearray | memoryview) -> None:
        view = memoryview(value)
        self._write_pieces(type(value).__name__, view.format, str(view.shape), view.tobytes())

    # Arrays and tensors.

    def _array(self, value: Any) -> None:
        array = np.asarray(value)
        self.add(type(value))
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self._write_pieces("array", array.dtype.str, str(array.shape), order)
        if array.dtype.names:
            for name in array.dtype.names:
                self._write_pieces(name)
                self._array(array[name])
        elif array.dtype.hasobject:
            self._sequence(array.ravel().tolist())
        else:
            self._write_pieces(str(array.nbytes))
            if array.nbytes:
                flat = np.ascontiguousarray(array.T if order == "F" else array).reshape(-1)
                self.content.update(flat.view(np.uint8).data)
        if isinstance(value, np.ma.MaskedArray):
            self.add(np.ma.getmaskarray(value))
            self.add(value.fill_value)
        elif not isinstance(value, np.memmap):
            self._add_named_values(getattr(value, "__dict__", {}))

    def _number(self, value: np.generic) -> None:
        self._array(np.asarray(value)) if value.dtype.names is None else self.add(value.tolist())
        self._write_pieces(type(value).__name__)

    def _tensor(self, value: Any) -> None:
        """Write a PyTorch tensor: values, gradient, and attributes."""
        if value.grad_fn is not None:
            self._refuse("a tensor that an operation made, with its history", "use x.detach(), or create it inside")
        self.add(type(value))
        try:
            array, name = array_of_tensor(value, self.where())
        except ValueError:
            self._add_reduced_state(value)
        else:
            self._write_pieces("tensor", name, str(value.requires_grad), str(value.device))
            self._array(array)
        self.add(value.grad)
        self._add_named_values(vars(value))

    def _variable(self, value: Variable) -> None:
        """Write a tensor or parameter of simfloat."""
        if value.node is not None:
            self._refuse("a tensor that an operation made, with its history", "use x.detach(), or create it inside")
        dropped = BOOKKEEPING | ({"format"} if value.is_weight else set())
        self.add(type(value))
        self._add_named_values({name: item for name, item in vars(value).items() if name not in dropped})

    # Objects.

    def _wrapped_method(self, value: staticmethod[..., Any] | classmethod[Any, ..., Any]) -> None:
        self._write_pieces(type(value).__name__)
        self.add(value.__func__)

    def _property(self, value: property) -> None:
        self._write_pieces(type(value).__name__)
        for each in (value.fget, value.fset, value.fdel):
            self.add(each)

    def _weak_reference(self, value: weakref.ref[Any]) -> None:
        self._write_pieces("reference")
        self.add(value())

    def _cell(self, value: types.CellType) -> None:
        try:
            content = value.cell_contents
        except ValueError:
            return self._write_pieces("empty")  # it has no value yet
        self.add(content)

    def _logger(self, value: logging.Logger) -> None:
        self._write_pieces("logger", value.name)  # its output does not affect results

    def _skip(self, value: Any) -> None:
        """Write nothing: the value only protects arrays against changes."""

    def _object(self, value: Any) -> None:
        """Write an object: its type, and its state as in pickle."""
        kind = type(value)
        if kind.__module__.startswith("numba.") and hasattr(value, "py_func"):  # its pickle contains a random number
            self._write_pieces("compiled")
            self.add(value.py_func)
            return self._add_named_values({"options": value.targetoptions, "locals": value.locals})
        if isinstance(value, CACHED):  # its cache follows from the function
            self._write_pieces("cached")
            return self.add(value.__wrapped__)
        if any(value is stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)):
            return self._write_pieces("a stream of the process")
        if value is os.environ:
            return self._write_pieces("the environment")
        if isinstance(value, LOCK):
            return self._write_pieces("a lock", str(value.locked()))
        if isinstance(value, weakref.WeakKeyDictionary | weakref.WeakValueDictionary):
            return self._dictionary(dict(value))
        self.add(kind)
        self._add_reduced_state(value)

    def _add_reduced_state(self, value: Any) -> None:
        kind, what = type(value), _object_text(value)
        reducer = copyreg.dispatch_table.get(kind)
        try:
            reduced = reducer(value) if reducer else value.__reduce_ex__(4)
        except Exception as error:
            instead = "give the path, and open it inside" if hasattr(value, "fileno") else None
            self._refuse(f"{what} ({error})", *([instead] if instead else []))
        if isinstance(reduced, str):
            return self._global(value, reduced)
        make, arguments, state, items, pairs = (*reduced, *[None] * 5)[:5]
        self.add(make)
        with self._step_into(""):
            self.add(tuple(arguments))
        for part in state if isinstance(state, tuple) and len(state) == 2 else (state,):
            if isinstance(part, dict) and all(isinstance(name, str) for name in part):
                self._add_named_values(part)
            else:
                self.add(part)
        self._sequence([] if items is None else list(items))
        self._sequence([] if pairs is None else list(pairs))

    def _global(self, value: Any, name: str) -> None:
        """Write an object that is pickled by its name in a module."""
        own = getattr(value, "__module__", None), type(value).__module__
        for place in [*own, *(str(each).partition(".")[0] for each in own), "scipy.special"]:
            if getattr(sys.modules.get(str(place)), name, None) is value:
                if not self._write_if_installed(place):
                    self._write_pieces(str(place))
                return self._write_pieces(name)
        self._refuse(f"{_object_text(value)} of no module")


def _object_text(value: Any) -> str:
    """Return a description of a value for a message."""
    if hasattr(value, "fileno") and hasattr(value, "read"):
        return f"the open file {getattr(value, 'name', '')!r}"
    kind = type(value)
    return f"a {kind.__name__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__name__}"


#: Writers for containers of exactly these types; subclasses are written as objects.
PLAIN: dict[type, Callable[[StateDigest, Any], None]] = {
    list: StateDigest._sequence, tuple: StateDigest._sequence, dict: StateDigest._dictionary,
    MappingProxyType: StateDigest._dictionary,
}  # fmt: skip

#: Writers by type; the first type that fits is used.
WRITERS: tuple[tuple[Any, Callable[[StateDigest, Any], None]], ...] = (
    (np.generic, StateDigest._number),
    (np.ndarray, StateDigest._array),
    ((set, frozenset), StateDigest._set),
    ((bytearray, memoryview), StateDigest._bytes),
    (Variable, StateDigest._variable),
    (ChangeGuard, StateDigest._skip),
    (ModuleType, StateDigest._module),
    (FunctionType, StateDigest._function),
    (types.BuiltinFunctionType, StateDigest._builtin),
    (OF_A_CLASS, StateDigest._of_a_class),
    (MethodType, StateDigest._method),
    ((staticmethod, classmethod), StateDigest._wrapped_method),
    (property, StateDigest._property),
    (CodeType, StateDigest._code),
    (type, StateDigest._class),
    (weakref.ref, StateDigest._weak_reference),
    (types.CellType, StateDigest._cell),
    (logging.Logger, StateDigest._logger),
)
