"""Modules: trees of parameters and buffers with names.

The paths of a model's parts are found once and kept until a module somewhere gains or loses a part. The state_dict of a
model has the arrays that it holds; a state is checked before it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, Self
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import device_named, is_on_gpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.parameter import Owned, forget_gradients, outermost_owner
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.simulation.context import TREES, Names, module_running

#: Under this name, which no attribute of a user's has, a module keeps what `names_of` found, and its path then; copies
#: and pickles leave it behind.
NAMES_KEY = "simfloat names"

#: Under this name a module notes that it was called by itself while it had no owner.
OUTERMOST = "simfloat is outermost"


class NamedParts(Protocol):
    """A module, as far as names go."""

    @property
    def path(self) -> str:
        """Where it is by way of its first owner."""

    def named_modules(self, path: str) -> Iterator[tuple[str, Any]]:
        """Pairs of path and module."""

    def named_parameters(self, path: str) -> Iterator[tuple[str, Any]]:
        """Pairs of path and parameter."""


def parts_changed() -> None:
    """Note that some module has gained or lost a part: what was found before may be wrong."""
    TREES.state = object()


def names_of(module: NamedParts) -> Names:
    """The paths of the module itself and of all modules and parameters inside, by identity.

    They begin with the path that the module has by way of its first owner. One that has none stays the outermost of
    its names: what is later built around it, to evaluate it for example, renames nothing.
    """
    path = module.path
    if not path:
        vars(module)[OUTERMOST] = True
    path_and_names: tuple[str, Names] | None = vars(module).get(NAMES_KEY)
    if path_and_names is not None and path_and_names[1].state is TREES.state and path_and_names[0] == path:
        return path_and_names[1]
    now = TREES.state  # before looking: what changes meanwhile makes it old
    parts = list(module.named_modules(path))
    link = ref(module)
    names = Names(
        {id(part): where for where, part in parts},
        {id(parameter): where for where, parameter in module.named_parameters(path)},
        now,
        lambda: None if (root := link()) is None else names_of(root),
        ref(outermost_owner(module)) if path else link,
    )
    for _, part in parts:
        _check_containers(part, names)
    vars(module)[NAMES_KEY] = path, names
    return names


def _check_containers(module: Any, names: Names) -> None:
    """Raise ValueError for modules and parameters in a list, a tuple or a dictionary, where they have no path."""
    for name, value in vars(module).items():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for part in inside:
            if isinstance(part, Owned) and id(part) not in names.modules and id(part) not in names.parameters:
                raise ValueError(
                    f"{type(module).__name__}.{name} is a {type(value).__name__} with a {type(part).__name__} inside, "
                    "which so has no path, and is not trained: hold modules in a simfloat.nn.ModuleList, or each part "
                    "as an attribute of its own."
                )


class StateEntry(NamedTuple):
    """A parameter or a buffer: the module that holds it, and its name there."""

    module: Any
    name: str

    @property
    def value(self) -> Parameter | NDArray:
        """The parameter itself, or the buffer's array."""
        return vars(self.module)[self.name]

    @property
    def identity(self) -> tuple[int, str]:
        """What is equal for two that are one: a tied parameter, or a buffer of a module that occurs twice."""
        value = self.value
        return (id(value), "") if isinstance(value, Parameter) else (id(self.module), self.name)

    @property
    def numbers(self) -> NDArray:
        """Its numbers."""
        value = self.value
        return value.numbers if isinstance(value, Parameter) else value

    def store(self, array: NDArray) -> None:
        """Hold these numbers from now on."""
        value = self.value
        if isinstance(value, Parameter):
            value.data = array
        else:
            setattr(self.module, self.name, array)


def as_buffer(value: Any, what: str) -> NDArray:
    """An array that a buffer can hold: integers and truth values as they are, other numbers as float32 or float64."""
    if isinstance(value, np.ndarray | np.generic | int) and (array := np.asarray(value)).dtype.kind in "biu":
        return array
    if is_on_gpu(value) and value.dtype.kind in "biu":
        return value
    return as_operand(value, what)


class Keys(NamedTuple):
    """The keys of a model that a state lacks, and those of the state that the model lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"Keys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def fitting_arrays(
    names: Mapping[str, StateEntry], state: Mapping[str, Any], strict: bool
) -> tuple[list[tuple[StateEntry, NDArray]], Keys]:
    """All that a model takes of a state, each with a copy of its new numbers, and the keys that do not match.

    names has each parameter and buffer under every path where it occurs; a state may name it under any of them. Raises
    ValueError unless all fits that is taken; strict, unless all keys match.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"load_state_dict takes arrays by path, as state_dict gives, got a {type(state).__name__}.")
    entries = {path: entry for path, entry in names.items() if path in state}
    there = {entry.identity for entry in entries.values()}
    missing = [path for path, entry in names.items() if entry.identity not in there]
    keys = Keys(missing, [key for key in state if key not in names])
    if strict and any(keys):
        raise ValueError(
            f"The state does not fit the model: missing {missing}, unknown {keys.unexpected_keys}. With strict=False, "
            "what both have is taken."
        )
    first: dict[tuple[int, str], tuple[str, NDArray]] = {}
    for path, entry in entries.items():
        array = _array(path, entry.numbers, state[path])
        name, first_array = first.setdefault(entry.identity, (path, array))
        if not np.array_equal(array, first_array, equal_nan=array.dtype.kind == "f"):
            kind = "parameter" if isinstance(entry.value, Parameter) else "buffer"
            raise ValueError(f"{name} and {path} are one {kind}; the state gives it different numbers.")
    return [(entries[path], array) for path, array in first.values()], keys


def _array(path: str, before: NDArray, value: Any) -> NDArray:
    """A copy of the new numbers: of the old ones' shape, and of their type where they are no floats."""
    array = on_device_of(as_operand(value, path), before)
    array = np.array(array, like=array)
    if array.shape != before.shape:
        raise ValueError(f"{path} has shape {before.shape}, the state {array.shape}.")
    if before.dtype.kind == "f":
        return array
    with np.errstate(invalid="ignore"):  # numbers that the type lacks
        whole = array.astype(before.dtype)
    if not (whole == array).all():
        raise ValueError(f"{path} holds {before.dtype} numbers, the state others.")
    return whole


class Module(Owned):
    """A part of a model: the parameters and modules among its attributes belong to it, in the order of assignment.

    So do buffers, arrays that are part of its state though nothing learns them, which `register_buffer` adds.
    Names, shapes and `state_dict` keys are torch.nn's. A path such as ``hidden.0.weight`` names the same thing in
    policies, parameters, gradients and telemetry. A module or parameter that occurs twice is listed once, under the
    first of its paths. What runs inside the call of another module runs under its path there; a module that is called
    by itself runs under its own `path`. A module that moves to another place in the model has its new path from then
    on, in the middle of a simulation too.

    Examples:
        >>> class Square(sf.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.linear = sf.nn.Linear(3, 3, rng=0)
        ...
        ...     def forward(self, x):
        ...         h = self.linear(x)
        ...         return h * h
        >>> list(Square().state_dict())
        ['linear.weight', 'linear.bias']
    """

    training = True
    _persistent: Mapping[str, bool] = {}  # its buffers' names, and whether they are part of the state

    def __init_subclass__(cls) -> None:
        # Layers compute with floats of their own, such as 1 / sqrt(inputs). Containers only call other layers.
        if cls.__module__.startswith("simfloat.") and cls.__module__ != "simfloat.nn.containers":
            in_usual_environment(cls)

    def __init__(self) -> None:
        self.training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._persistent:
            object.__setattr__(self, name, self._checked_buffer(name, value))
            return
        if isinstance(value, Owned):
            self._check_part(name, value)
        elif name in _PUBLIC and not callable(value):
            raise ValueError(f"{name!r} is an attribute of every module; choose another name for yours.")
        elif value is not None and isinstance(vars(self).get(name), Owned):
            kind = "parameter" if isinstance(vars(self)[name], Parameter) else "module"
            raise ValueError(
                f"{name!r} is a {kind} of {type(self).__name__}; assign a {kind.capitalize()} or None, "
                f"not a {type(value).__name__}." + (f" New numbers go to {name}.data." if kind == "parameter" else "")
            )
        is_part = isinstance(value, Owned) or isinstance(vars(self).get(name), Owned)
        object.__setattr__(self, name, value)
        if isinstance(value, Owned):
            value._attach(self, name)
        if is_part:
            parts_changed()

    def __delattr__(self, name: str) -> None:
        is_part = isinstance(vars(self).get(name), Owned)
        object.__delattr__(self, name)
        self._persistent = {other: is_persistent for other, is_persistent in self._persistent.items() if other != name}
        if is_part:
            parts_changed()

    def register_buffer(self, name: str, array: ArrayLike | None, persistent: bool = True) -> None:
        """Make an array a part of the module that nothing learns, as the attribute `name`, which may be assigned.

        Integers and truth values keep their type; other numbers are held as float32 or float64. None takes the place of
        an array that is absent, or comes later. Buffers are part of `state_dict` unless `persistent` is False.

        Raises ValueError for a name that is taken or no name of a part, and for what holds no numbers.
        """
        check_flags(persistent=persistent)
        if not isinstance(name, str) or not name or "." in name or hasattr(Module, name):
            raise ValueError(
                f"A buffer's name is text without dots that no attribute of every module has; got {name!r}."
            )
        if name in vars(self) and name not in self._persistent:
            raise ValueError(f"{type(self).__name__} has an attribute {name!r} already; choose another name.")
        checked = self._checked_buffer(name, array)
        self._persistent = {**self._persistent, name: bool(persistent)}
        object.__setattr__(self, name, checked)

    def _checked_buffer(self, name: str, value: Any) -> NDArray | None:
        """What the buffer `name` holds when it is given `value`."""
        if isinstance(value, Owned | Tensor):
            raise ValueError(
                f"{name!r} is a buffer of {type(self).__name__}; assign an array or None to it, not a "
                f"{type(value).__name__}."
            )
        return None if value is None else as_buffer(value, name)

    def _check_part(self, name: str, part: Owned) -> None:
        """Raise ValueError unless `part` may be the attribute `name`."""
        if "training" not in vars(self):
            raise ValueError(
                f"{type(self).__name__} holds no parameters or modules yet: call super().__init__() first in __init__."
            )
        if not name or "." in name or hasattr(Module, name):
            reason = "is an attribute of every module" if hasattr(Module, name) else "would be ambiguous in a path"
            raise ValueError(f"A part of a module cannot be called {name!r}, which {reason}; choose another name.")
        if isinstance(part, Module) and any(module is self for _, module in part.named_modules()):
            raise ValueError(
                f"{type(self).__name__} cannot hold {type(part).__name__} as {name!r}: it would contain itself."
            )

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop(NAMES_KEY, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name, value in state.items():
            if isinstance(value, Owned):
                value._attach(self, name)
        parts_changed()

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, by way of its first owner, joined by dots.

        Empty for a module without an owner, or that had none when it was first called by itself.
        """
        return "" if OUTERMOST in vars(self) else super().path

    @property
    def _parameters(self) -> dict[str, Parameter]:
        """Its own parameters by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Parameter)}

    @property
    def _buffers(self) -> dict[str, NDArray]:
        """Its own buffers by name, without those that are None."""
        return {name: array for name in self._persistent if (array := vars(self)[name]) is not None}

    @property
    def _modules(self) -> dict[str, Module]:
        """The modules just inside by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    @property
    def is_layer(self) -> bool:
        """Whether the module computes something itself: it has parameters of its own, or no modules inside."""
        return bool(self._parameters) or not self._modules

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the module computes; each kind of module has its own."""
        raise ValueError(f"{type(self).__name__} has no forward method; define one.")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run `forward` as the layer at this module's path."""
        with module_running(self, names_of):
            return self.forward(*inputs, **options)

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Pairs of path and module: this one first, then those inside, in the order they were assigned, each once."""
        seen: set[int] = set()
        stack = [(path, self)]
        while stack:
            where, module = stack.pop()
            if id(module) not in seen:
                seen.add(id(module))
                yield where, module
                inside = [(_below(where, name), child) for name, child in module._modules.items()]
                stack += reversed(inside)

    def modules(self) -> Iterator[Module]:
        """This module and those inside, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Pairs of name and module of those just inside, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules just inside, each once."""
        for _, module in self.named_children():
            yield module

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call the function with every module inside and then with this one, those further inside first, as torch does.

        For example to draw other initial values.
        """
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Pairs of path and parameter, each parameter once."""
        seen: set[int] = set()
        for where, module in self.named_modules(path):
            for name, parameter in module._parameters.items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _below(where, name), parameter

    def named_buffers(self, path: str = "") -> Iterator[tuple[str, NDArray]]:
        """Pairs of path and buffer, those of each module once."""
        for where, module in self.named_modules(path):
            for name, array in module._buffers.items():
                yield _below(where, name), array

    def buffers(self) -> Iterator[NDArray]:
        """The buffers of this module and of those inside."""
        for _, array in self.named_buffers():
            yield array

    def _own_entries(self, path: str) -> Iterator[tuple[str, StateEntry]]:
        """What of the module's own is part of a state: parameters, then buffers, as in torch."""
        buffers = [name for name in self._buffers if self._persistent[name]]
        for name in (*self._parameters, *buffers):
            yield _below(path, name), StateEntry(self, name)

    def _occurrences(self, path: str = "") -> Iterator[tuple[str, StateEntry]]:
        """All that is part of the state, what occurs several times under each of its paths, in torch's order."""
        yield from self._own_entries(path)
        for name, module in self._modules.items():
            yield from module._occurrences(_below(path, name))

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and of those inside, each once."""
        for _, parameter in self.named_parameters():
            yield parameter

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters; with set_to_none=False those that there are become zeros."""
        forget_gradients(self.parameters(), set_to_none)

    def train(self, mode: bool = True) -> Module:
        """Set whether the module is training, here and inside. Raises ValueError unless mode is True or False."""
        check_flags(mode=mode)
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Set the module to evaluation, here and inside."""
        return self.train(False)

    def state_dict(self) -> dict[str, NDArray]:
        """Copies of the numbers of parameters and persistent buffers by path, in torch's order.

        What occurs under several paths, as tied weights do, stands under each of them, as one array.
        """
        entries = dict(self._occurrences())
        copies = {part.identity: part.numbers.copy() for part in entries.values()}
        return {path: copies[part.identity] for path, part in entries.items()}

    def to(self, device: str) -> Self:
        """Move the parameters, their gradients and the buffers of floats to "cuda" or "cpu"; returns the module.

        The numbers stay what they are. Optimizers that have made steps follow by their method `follow`. Raises
        ValueError for another device, and for "cuda" where there is no GPU, CuPy or numba-cuda.

        Examples:
            >>> sf.nn.Linear(2, 1, rng=0).to("cpu").weight.shape
            (1, 2)
        """
        machine = device_named(device)
        for parameter in self.parameters():
            parameter.move(machine)
        for module in self.modules():
            for name, array in module._buffers.items():
                if array.dtype.kind == "f":
                    setattr(module, name, machine.to_device(array))
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Keys:
        """Take the numbers of parameters and buffers from a state, arrays by path: all of them, or none if one does not
        fit.

        What occurs under several paths may be given under all of them, if the numbers are the same, or under any. With
        strict=False, keys that only the model or only the state has are left alone. Returns `missing_keys`, those that
        only the model has, and `unexpected_keys`, as torch does.

        Raises ValueError naming such keys, if strict; shapes that differ, and what holds no numbers.
        """
        check_flags(strict=strict)
        arrays, keys = fitting_arrays(dict(self._occurrences()), state_dict, strict)
        for entry, array in arrays:
            entry.store(array)
        return keys

    def extra_repr(self) -> str:
        """What stands between the parentheses of its repr: the arguments that made it."""
        return ""

    def __repr__(self) -> str:
        parts = {name: repr(module) for name, module in self._modules.items()}
        return _as_text(type(self).__name__, self.extra_repr(), parts, sum(p.size for p in self.parameters()))


#: What every module has; an attribute of a user's that hid it would be called in its place.
_PUBLIC = {name for name in vars(Module) if not name.startswith("_")} - {"training"}


def _below(path: str, name: str) -> str:
    """The path of the part `name` of what lies at `path`."""
    return f"{path}.{name}" if path else name


def _as_text(kind: str, arguments: str, parts: Mapping[str, str], count: int) -> str:
    """A module in the manner of torch: its parts, as text, by name; a comment counts the parameters at and below it."""
    text = f"{kind}({arguments})"
    if parts:
        inside = [arguments] * bool(arguments) + [f"({name}): {part}" for name, part in parts.items()]
        text = "\n".join([f"{kind}(", *("  " + line.replace("\n", "\n  ") for line in inside), ")"])
    return f"{text}  # {count} parameters" if count else text
