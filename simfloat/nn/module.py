"""Modules: trees of parameters and buffers with names.

The paths of a model's parts are computed once, and again only after some module has gained or lost a part. `state_dict`
returns the model's arrays; `load_state_dict` checks a state before it loads anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, Protocol, Self, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.machines import device_named, is_on_gpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.parameter import Owned, forget_gradients, outermost_owner
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment
from simfloat.simulation.context import CONTEXT, TREES, Names, context_of_module, restore_context

#: The attribute in which a module caches the result of `names_of` and its path at that time. The space in it keeps it
#: apart from the attributes that users write. Copies and pickles omit it.
NAMES_KEY = "simfloat names"

#: The attribute that marks a module which was called directly while it had no owner.
OUTERMOST = "simfloat is outermost"


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class HasForward(Protocol[P, R]):
    """A module with its forward method: for type checkers, a call takes and returns what this method does."""

    def forward(self, *inputs: P.args, **options: P.kwargs) -> R:
        """Compute the result of the module."""


class NamedParts(Protocol):
    """A module with the attributes that `names_of` uses."""

    @property
    def path(self) -> str:
        """The path of the module through its first owner."""

    def named_modules(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield pairs of path and module."""

    def named_parameters(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield pairs of path and parameter."""


def parts_changed() -> None:
    """Record that some module has gained or lost a part, so that cached paths are computed again."""
    TREES.state = object()


def names_of(module: NamedParts) -> Names:
    """Return the paths of the module and of all modules and parameters inside it, by identity.

    The paths begin with the module's own path through its first owner. A module without an owner remains the root of
    its paths: if you wrap it in another module later, for example to evaluate it, no path changes.
    """
    path = module.path
    if not path:
        vars(module)[OUTERMOST] = True
    path_and_names: tuple[str, Names] | None = vars(module).get(NAMES_KEY)
    if path_and_names is not None and path_and_names[1].state is TREES.state and path_and_names[0] == path:
        return path_and_names[1]
    now = TREES.state  # read before the search, so that a change during the search makes the result outdated
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
    """Raise ValueError for a module or parameter in a list, tuple or dictionary: it would have no path there."""
    for name, value in vars(module).items():
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for part in inside:
            if isinstance(part, Owned) and id(part) not in names.modules and id(part) not in names.parameters:
                raise ValueError(
                    f"{type(module).__name__}.{name} is a {type(value).__name__} with a {type(part).__name__} inside, "
                    "which therefore has no path and is not trained. Put modules into a simfloat.nn.ModuleList, or "
                    "assign each part to an attribute."
                )


class StateEntry(NamedTuple):
    """A parameter or a buffer, given by its module and its name there."""

    module: Any
    name: str

    @property
    def value(self) -> Parameter | NDArray:
        """The parameter itself, or the array of the buffer."""
        return vars(self.module)[self.name]

    @property
    def identity(self) -> tuple[int, str]:
        """A key that is equal for entries of one thing: a tied parameter, or a buffer of a module that occurs twice."""
        value = self.value
        return (id(value), "") if isinstance(value, Parameter) else (id(self.module), self.name)

    @property
    def numbers(self) -> NDArray:
        """The array of its values."""
        value = self.value
        return value.numbers if isinstance(value, Parameter) else value

    def store(self, array: NDArray) -> None:
        """Replace the values by this array."""
        value = self.value
        if isinstance(value, Parameter):
            value.data = array
        else:
            setattr(self.module, self.name, array)


def as_buffer(value: Any, what: str) -> NDArray:
    """Return an array for a buffer: integers and booleans unchanged, other numbers as float32 or float64."""
    if isinstance(value, np.ndarray | np.generic | int) and (array := np.asarray(value)).dtype.kind in "biu":
        return array
    if is_on_gpu(value) and value.dtype.kind in "biu":
        return value
    return as_operand(value, what)


class Keys(NamedTuple):
    """The keys that only the model has, and the keys that only the state has."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"Keys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def fitting_arrays(
    names: Mapping[str, StateEntry], state: Mapping[str, Any], strict: bool
) -> tuple[list[tuple[StateEntry, NDArray]], Keys]:
    """Return the entries that a state sets, each with a copy of its new values, and the keys that do not match.

    `names` contains each parameter and buffer under every path where it occurs; a state may use any of these paths.

    Raises:
        ValueError: if an array does not fit; if `strict` and some keys do not match.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"load_state_dict takes a result of state_dict: arrays by path, got a {type(state).__name__}.")
    entries = {path: entry for path, entry in names.items() if path in state}
    there = {entry.identity for entry in entries.values()}
    missing = [path for path, entry in names.items() if entry.identity not in there]
    keys = Keys(missing, [key for key in state if key not in names])
    if strict and any(keys):
        raise ValueError(
            f"The state does not fit the model: missing {missing}, unknown {keys.unexpected_keys}. With strict=False, "
            "only the keys that both have are loaded."
        )
    first: dict[tuple[int, str], tuple[str, NDArray]] = {}
    for path, entry in entries.items():
        array = _array(path, entry.numbers, state[path])
        name, first_array = first.setdefault(entry.identity, (path, array))
        if not np.array_equal(array, first_array, equal_nan=array.dtype.kind == "f"):
            kind = "parameter" if isinstance(entry.value, Parameter) else "buffer"
            raise ValueError(f"{name} and {path} are one {kind}; the state has different values for them.")
    return [(entries[path], array) for path, array in first.values()], keys


def _array(path: str, before: NDArray, value: Any) -> NDArray:
    """Return a copy of the new values with the old shape, and with the old dtype if that is not a float."""
    array = on_device_of(as_operand(value, path), before)
    array = np.array(array, like=array)
    if array.shape != before.shape:
        raise ValueError(f"{path} has shape {before.shape}, the state {array.shape}.")
    if before.dtype.kind == "f":
        return array
    with np.errstate(invalid="ignore"):  # values that the dtype cannot represent
        whole = array.astype(before.dtype)
    if not (whole == array).all():
        raise ValueError(f"{path} has dtype {before.dtype}; the state has values that this dtype cannot represent.")
    return whole


class Module(Owned):
    """A part of a model: it owns the parameters and modules among its attributes, in the order of assignment.

    A module can also own buffers. A buffer is an array that belongs to the state although it is not learned;
    `register_buffer` adds one.

    Names, shapes and `state_dict` keys are those of torch.nn. A path such as ``hidden.0.weight`` means the same part in
    policies, parameters, gradients and telemetry.

    * A module or parameter that occurs twice is listed once, under the first of its paths.
    * A module that runs inside the call of another module runs under its path there. A module that you call directly
      runs under its own `path`.
    * A module that moves to another position in the model has its new path immediately, even in the middle of a
      simulation.

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
    _persistent: Mapping[str, bool] = {}  # names of buffers -> True if the buffer is part of the state

    def __init_subclass__(cls) -> None:
        # Layers compute with Python floats, such as 1 / sqrt(inputs). Containers only call other layers.
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
                f"not a {type(value).__name__}." + (f" New values go to {name}.data." if kind == "parameter" else "")
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
        """Add an array that is not learned as the attribute `name`, which may be assigned later.

        Parameters:
            name: the name of the attribute, without dots.
            array: integers and booleans keep their dtype; other numbers are stored as float32 or float64. None reserves
                the name for an array that is absent or comes later.
            persistent: True if the buffer is part of `state_dict`.

        Raises:
            ValueError: if the name is taken or cannot be the name of a part; if `array` does not contain numbers.
        """
        check_flags(persistent=persistent)
        if not isinstance(name, str) or not name or "." in name or hasattr(Module, name):
            raise ValueError(
                f"A buffer's name must be text without dots, and not the name of a Module attribute; got {name!r}."
            )
        if name in vars(self) and name not in self._persistent:
            raise ValueError(f"{type(self).__name__} has an attribute {name!r} already; choose another name.")
        checked = self._checked_buffer(name, array)
        self._persistent = {**self._persistent, name: bool(persistent)}
        object.__setattr__(self, name, checked)

    def _checked_buffer(self, name: str, value: Any) -> NDArray | None:
        """Return the array that the buffer `name` stores when `value` is assigned to it."""
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
                f"{type(self).__name__} has no parameters or modules yet: call super().__init__() first in __init__."
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
        """The names from the outermost module down to this one, through its first owner, joined by dots.

        Empty for a module without an owner, or for one that had no owner when it was first called directly.
        """
        return "" if OUTERMOST in vars(self) else super().path

    @property
    def _parameters(self) -> dict[str, Parameter]:
        """The parameters that are direct attributes, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Parameter)}

    @property
    def _buffers(self) -> dict[str, NDArray]:
        """The buffers of this module by name, without those that are None."""
        return {name: array for name in self._persistent if (array := vars(self)[name]) is not None}

    @property
    def _modules(self) -> dict[str, Module]:
        """The modules that are direct attributes, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    @property
    def is_layer(self) -> bool:
        """True if the module computes something itself: it owns parameters directly, or contains no modules."""
        return bool(self._parameters) or not self._modules

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the result of the module; each kind of module defines its own method."""
        raise ValueError(f"{type(self).__name__} has no forward method; define one.")

    def __call__(self: HasForward[P, R], *inputs: P.args, **options: P.kwargs) -> R:
        """Run `forward` as the layer at this module's path."""
        module: Any = self
        before = inside = CONTEXT.get()
        try:
            inside = context_of_module(before, module, names_of)
            CONTEXT.set(inside)
            return self.forward(*inputs, **options)
        finally:
            restore_context(before, inside)

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Yield pairs of path and module, each once: this one first, then the modules inside in the order of
        assignment.
        """
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
        """Yield this module and the modules inside, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield pairs of name and module for the direct children, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """Yield the direct children, each once."""
        for _, module in self.named_children():
            yield module

    def apply(self, function: Callable[[Module], Any]) -> Self:
        """Call the function with every module inside, innermost first, and then with this module, as torch does.

        Use it for example to draw other initial values.
        """
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Yield pairs of path and parameter, each parameter once; `path` is the prefix of all paths."""
        seen: set[int] = set()
        for where, module in self.named_modules(path):
            for name, parameter in module._parameters.items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _below(where, name), parameter

    def named_buffers(self, path: str = "") -> Iterator[tuple[str, NDArray]]:
        """Yield pairs of path and buffer, the buffers of each module once; `path` is the prefix of all paths."""
        for where, module in self.named_modules(path):
            for name, array in module._buffers.items():
                yield _below(where, name), array

    def buffers(self) -> Iterator[NDArray]:
        """Yield the buffers of this module and of the modules inside."""
        for _, array in self.named_buffers():
            yield array

    def _own_entries(self, path: str) -> Iterator[tuple[str, StateEntry]]:
        """Yield the direct parts of this module that belong to a state: parameters, then buffers, as in torch."""
        buffers = [name for name in self._buffers if self._persistent[name]]
        for name in (*self._parameters, *buffers):
            yield _below(path, name), StateEntry(self, name)

    def _occurrences(self, path: str = "") -> Iterator[tuple[str, StateEntry]]:
        """Yield every part of the state under each path where it occurs, in the order of torch."""
        yield from self._own_entries(path)
        for name, module in self._modules.items():
            yield from module._occurrences(_below(path, name))

    def parameters(self) -> Iterator[Parameter]:
        """Yield the parameters of this module and of the modules inside, each once."""
        for _, parameter in self.named_parameters():
            yield parameter

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters; with set_to_none=False, set existing gradients to zero."""
        forget_gradients(self.parameters(), set_to_none)

    def train(self, mode: bool = True) -> Module:
        """Switch this module and the modules inside to training, or with `mode=False` to evaluation; return the module.

        Raises:
            ValueError: if mode is neither True nor False.
        """
        check_flags(mode=mode)
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch this module and the modules inside to evaluation; return the module."""
        return self.train(False)

    def state_dict(self) -> dict[str, NDArray]:
        """Return copies of the values of parameters and persistent buffers by path, in the order of torch.

        A part with several paths, such as tied weights, is listed under each of them with the same array.
        """
        entries = dict(self._occurrences())
        copies = {part.identity: part.numbers.copy() for part in entries.values()}
        return {path: copies[part.identity] for path, part in entries.items()}

    def to(self, device: str) -> Self:
        """Move the parameters, their gradients and the floating-point buffers to a device; return the module.

        The values do not change. An optimizer that has already made steps follows if you call its method `follow`.

        Parameters:
            device: "cuda" or "cpu".

        Raises:
            ValueError: if the device is unknown; for "cuda", if a GPU, CuPy or numba-cuda is missing.

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
        """Set parameters and buffers from a state; if one array does not fit, nothing changes.

        A part with several paths may be given under any of them, or under several with equal values.

        Parameters:
            state_dict: arrays by path, as `state_dict` returns them.
            strict: True if all keys must match. With False, keys that only the model or only the state has are ignored.

        Returns:
            `missing_keys`, which only the model has, and `unexpected_keys`, which only the state has, as in torch.

        Raises:
            ValueError: if keys do not match and `strict` is True; if shapes differ; if a value does not contain
                numbers.
        """
        check_flags(strict=strict)
        arrays, keys = fitting_arrays(dict(self._occurrences()), state_dict, strict)
        for entry, array in arrays:
            entry.store(array)
        return keys

    def extra_repr(self) -> str:
        """Return the text between the parentheses of the repr: the arguments of the constructor."""
        return ""

    def __repr__(self) -> str:
        parts = {name: repr(module) for name, module in self._modules.items()}
        return _as_text(type(self).__name__, self.extra_repr(), parts, sum(p.size for p in self.parameters()))


#: The public names of every module. A user's attribute with such a name would hide the method.
_PUBLIC = {name for name in vars(Module) if not name.startswith("_")} - {"training"}


def _below(path: str, name: str) -> str:
    """Return the path of the part `name` of the module at `path`."""
    return f"{path}.{name}" if path else name


def _as_text(kind: str, arguments: str, parts: Mapping[str, str], count: int) -> str:
    """Return a module as text in the style of torch: its parts by name, and a comment with the number of parameters."""
    text = f"{kind}({arguments})"
    if parts:
        inside = [arguments] * bool(arguments) + [f"({name}): {part}" for name, part in parts.items()]
        text = "\n".join([f"{kind}(", *("  " + line.replace("\n", "\n  ") for line in inside), ")"])
    return f"{text}  # {count} parameters" if count else text
