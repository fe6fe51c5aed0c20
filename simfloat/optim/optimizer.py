"""The base class of optimizers: parameter groups, options, state, and the loop over parameters in a step.

A step updates each parameter under the current policy. The state_dict has the layout of PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from types import NoneType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import is_on_gpu, on_cpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter
from simfloat.autodiff.parameter import begin_update, forget_gradients
from simfloat.environment import in_usual_environment
from simfloat.optim.options import LABELS, Option, check_names, groups_in, name_of, number_from_zero, read_group
from simfloat.options import Declaration, InitVar, anything, option, with_options
from simfloat.simulation.simulation import Simulation, current
from simfloat.simulation.update_programs import UpdateGroup, run_as_program
from simfloat.simulation.updates import COMPENSATION, COUNTERS, STEP, UpdateArithmetic

#: Keys in PyTorch's states that affect only the execution, not the results.
EXECUTION_KEYS = {"foreach", "fused", "capturable", "differentiable"}

Groups = list[dict[str, Any]]
State = list[dict[str, NDArray]]


def pack_state(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state: copies of the stored arrays by number of the parameter, and the groups with these numbers."""
    state = {i: {name: array.copy() for name, array in entry.items()} for i, entry in enumerate(optimizer.state)}
    numbers = iter(range(len(state)))
    groups = [{**group, "params": [next(numbers) for _ in group["params"]]} for group in optimizer.param_groups]
    return {"state": {number: entry for number, entry in state.items() if entry}, "param_groups": groups}


def unpack_state(optimizer: Optimizer, data: Any) -> tuple[Groups, State]:
    """Return copies of the groups and arrays of a state; raise ValueError if it does not fit this optimizer.

    The keys that number the parameters may be text, as in JSON. A state from PyTorch's optimizer of the same kind fits.
    """
    if not isinstance(data, Mapping) or set(data) != {"state", "param_groups"}:
        raise ValueError("load_state_dict takes a result of state_dict: a dictionary with 'state' and 'param_groups'.")
    groups, state = data["param_groups"], data["state"]
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise ValueError(
            "load_state_dict takes a result of state_dict: a list of 'param_groups', and 'state' by number."
        )
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"The state has {len(groups)} groups, the optimizer has {len(optimizer.param_groups)}.")
    new_groups = [_group(optimizer, mine, group) for mine, group in zip(optimizer.param_groups, groups, strict=True)]
    params = optimizer.params
    if (numbers := [number for group in groups for number in group["params"]]) != list(range(len(params))):
        raise ValueError(f"The groups of a state must number the parameters in order from 0; got {numbers!r}.")
    unknown = [key for key in state if str(key) not in map(str, range(len(params)))]
    if unknown:
        raise ValueError(f"The state has a parameter {unknown[0]!r}, the optimizer has {len(params)}, from 0.")
    entries = {str(key): entry for key, entry in state.items()}
    read = [optimizer.read({name: group[name] for name in optimizer.options}) for group in new_groups]
    options = [chosen for chosen, group in zip(read, new_groups, strict=True) for _ in group["params"]]
    fitting = [_fitting(optimizer, number, entries.get(str(number), {})) for number in range(len(params))]
    for number, (entry, chosen) in enumerate(zip(fitting, options, strict=True)):
        _check_complete(optimizer, number, entry, chosen)
    return new_groups, fitting


def _check_complete(optimizer: Optimizer, number: int, entry: Mapping[str, Any], options: SimpleNamespace) -> None:
    """Raise ValueError if a parameter has some of the arrays that its updates continue from, but not all."""
    parameter = optimizer.params[number]
    needed = optimizer.required_names(parameter.shape, options)
    if missing := [name for name in needed if entry and name not in entry]:
        raise ValueError(
            f"The state of {name_of(number, parameter)} has no {' and no '.join(missing)}; {type(optimizer).__name__} "
            f"continues from {', '.join(needed)}. Load a complete state, or leave out this parameter to start it anew."
        )


def _group(optimizer: Optimizer, mine: dict[str, Any], group: Any) -> dict[str, Any]:
    """Return the group with the options of a state's group."""
    kind, required_keys = type(optimizer).__name__, {*optimizer.options, "params"}
    if not isinstance(group, Mapping) or not isinstance(group.get("params"), list):
        raise ValueError(f"A group of a state is a dictionary with a list of 'params', got {group!r}.")
    marks = {key for key, mark in optimizer.marks.items() if group.get(key) == mark}
    missing = required_keys.difference(group)
    unknown = [key for key in group if key not in required_keys.union(LABELS, EXECUTION_KEYS, marks)]
    if missing or unknown:
        raise ValueError(f"The state is not {kind}'s: missing {sorted(missing)}, unknown {unknown}.")
    if len(group["params"]) != len(mine["params"]):
        theirs, ours = len(group["params"]), len(mine["params"])
        raise ValueError(f"A group of the state has {theirs} parameters; the group of the optimizer has {ours}.")
    options = vars(optimizer.read({name: group[name] for name in optimizer.options}))
    labels = {name: (group if name in group else mine)[name] for name in LABELS if name in group or name in mine}
    return {"params": mine["params"], **labels, **options}


def _fitting(optimizer: Optimizer, number: int, entry: Any) -> dict[str, NDArray]:
    """Return copies of the arrays in a state's entry for one parameter; raise ValueError if one does not fit."""
    parameter = optimizer.params[number]
    name, shapes = name_of(number, parameter), optimizer.shapes(parameter.shape)
    if not isinstance(entry, Mapping) or any(key not in shapes for key in entry):
        got = f"some under {', '.join(map(str, entry))}" if isinstance(entry, Mapping) else repr(entry)
        raise ValueError(f"The state of {name} must hold arrays under {' or '.join(shapes)}, got {got}.")
    present = {key: value for key, value in entry.items() if value is not None}
    arrays = {key: as_operand(value, f"{key} of {name}") for key, value in present.items()}
    arrays = {key: _copy_to_device(array, parameter) for key, array in arrays.items()}
    for key, array in arrays.items():
        check_shape(f"{key} of {name}", array, shapes[key], parameter)
    if not _is_count(arrays.get(STEP, np.zeros(()))):
        raise ValueError(f"{STEP} of {name} must be a whole number of at least 0, got {arrays[STEP]}.")
    return arrays


def _copy_to_device(array: NDArray, parameter: Parameter) -> NDArray:
    """Return a copy on the device of the parameter, or on the CPU for a scalar, which is used there."""
    placed = on_device_of(array, parameter.numbers) if array.ndim else on_cpu(array)
    return np.array(placed, like=placed)


def _is_count(value: NDArray) -> bool:
    """True if a value can be the number of steps of a parameter."""
    return bool(np.isfinite(value) and value >= 0 and value == np.floor(value))


def check_shape(what: str, array: NDArray, shape: tuple[int, ...], parameter: Parameter) -> None:
    """Raise ValueError if the shape of an array is not `shape`."""
    if array.shape != shape:
        whose = "the parameter's shape" if shape == parameter.shape else "the shape"
        raise ValueError(f"{what} must have {whose} {shape}, got {array.shape}.")


class Step(UpdateArithmetic):
    """The update of one parameter under the current policy: its arithmetic and its state.

    Results are rounded to `weights`, and moments to `optimizer_state`; Python numbers are exact operands. An observer
    receives the events of the last addition at the path of the parameter. The events of a moment go to the path of its
    name below the parameter, as operation ``moment``, and all other events to ``update`` below the parameter.

    Parameters:
        parameter: the parameter to update.
        state: its stored arrays by name; the step changes this dictionary.
        simulation: the simulation of the update; by default the current one.
    """

    __slots__ = ("_simulation", "parameter")

    def __init__(self, parameter: Parameter, state: dict[str, NDArray], simulation: Simulation | None = None) -> None:
        self.parameter = parameter
        self._simulation = current() if simulation is None else simulation
        place = begin_update(parameter, self._simulation)
        super().__init__(place, parameter.operand_at(place).numbers, state)

    def store(self, weight: NDArray) -> None:
        """Replace the values of the parameter."""
        self.parameter.store(weight, self._place.weights, self._simulation.streams)


#: The first argument of an optimizer: parameters, (name, parameter) pairs, or a dictionary for each group.
Params = Iterable[Parameter] | Iterable[tuple[str, Parameter]] | Iterable[Mapping[str, Any]]

#: A parameter with its state, its gradient, the options of its group, and the updates of this step that share them.
Work = tuple[Parameter, dict[str, NDArray], NDArray, SimpleNamespace, UpdateGroup | None]

#: Types of options that are immutable.
FIXED = (bool, int, float, str, tuple, NoneType)


@with_options
class Optimizer:
    """The base class of optimizers; each kind defines its options and its `update`.

    Options are read and changed between steps in `param_groups`, or as attributes, which apply to all groups. They are
    checked when they are used. The policy decides how each parameter is updated, and in which formats its state is
    stored: ``policy.override("*.weight", update="kahan")``.

    A custom optimizer is a subclass::

        class SignSGD(Optimizer):
            def update(self, step, gradient, options):
                return step.multiply(-options.lr, np.sign(gradient))

    Parameters:
        params: parameters, (name, parameter) pairs, or a dictionary for each group with ``"params"`` and options that
            differ from those of the call.
        lr: the learning rate.
        options: the options of the kind, by name.

    Raises:
        ValueError: if a parameter is not a Parameter or is given twice; if an option is unknown or invalid.
    """

    #: Names of the arrays that are stored for a parameter, in addition to Kahan's compensation.
    kept: ClassVar[tuple[str, ...]] = ()

    #: Array name -> the option that must be set for the array to be stored; arrays of `kept` that are missing here are
    #: always stored. None, as in this class, means that `load_state_dict` accepts states with missing arrays.
    kept_with: ClassVar[Mapping[str, str] | None] = None

    #: True if `update` calls only elementwise methods of the step and depends only on its arguments. It is then
    #: recorded once and runs as one program. Subclasses do not inherit the value.
    is_elementwise: ClassVar[bool] = False

    arguments: InitVar[Params] = option(anything, alias="params")
    lr: float = Option(number_from_zero)  # type: ignore[assignment]  # the descriptor of a number

    #: The options of the kind, by name; a subclass adds its options.
    options: ClassVar[dict[str, Option]] = {"lr": lr}  # type: ignore[dict-item]

    #: Keys of PyTorch's states of this kind that are not options, with their required values.
    marks: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        for name, value in list(vars(cls).items()):
            if isinstance(value, Declaration):
                cls.options = {**cls.options, name: Option(value.read, value.default)}
                setattr(cls, name, cls.options[name])
                cls.options[name].__set_name__(cls, name)
        cls.is_elementwise = vars(cls).get("is_elementwise", False)

    @in_usual_environment
    def __init__(self, params: Params, lr: float, **options: Any) -> None:
        self.defaults: dict[str, Any] = {"lr": lr, **options}
        self.param_groups: list[dict[str, Any]] = []
        self.state: list[dict[str, NDArray]] = []
        self._last_read: dict[int, tuple[list[Any], SimpleNamespace]] = {}
        for group in groups_in(params):
            self.add_param_group(group)

    @property
    def params(self) -> list[Parameter]:
        """The parameters of all groups, in order; `state` has an entry for each."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @in_usual_environment
    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add parameters: a dictionary with ``"params"``, and options that differ from the defaults.

        Raises:
            ValueError: if an option is unknown or invalid; if a parameter already belongs to the optimizer.
        """
        group = read_group(param_group, self.defaults, self.params)
        group |= vars(self.read(group))
        for number, parameter in enumerate(group["params"], len(self.state)):
            self.check_parameter(number, parameter)
        self.param_groups.append(group)
        self.state.extend({} for _ in group["params"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of all parameters; with set_to_none=False, set existing gradients to zero."""
        forget_gradients(self.params, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; call it inside a `simulate` block.

        Parameters:
            closure: a function that computes the loss, calls its `backward` and returns it; it is called first.

        Returns:
            The result of the closure, or None without a closure.

        Raises:
            ValueError: before any update, if an option is invalid, or a gradient or a state does not have the shape of
                its parameter.
        """
        simulation = current()  # raises an error outside of any block, even if no parameter has a gradient
        if closure is not None and not callable(closure):
            kind = type(closure).__name__
            raise ValueError(f"step takes a function that computes the loss and calls its backward, got a {kind}.")
        loss = None if closure is None else closure()
        self._update_all(simulation if closure is None else current())
        return loss

    @in_usual_environment
    def _update_all(self, simulation: Simulation) -> None:
        """Update every parameter that has a gradient, after all options, gradients and states are checked."""
        for parameter, state, gradient, chosen, group in self._checked_work():
            if group is not None and gradient.size:
                place = begin_update(parameter, simulation)
                updated = run_as_program(group, place, parameter.operand_at(place).numbers, gradient, state)
                if updated is not None:
                    parameter.store(updated, place.weights, simulation.streams)
                    continue
            step = Step(parameter, state, simulation)
            if gradient.size:
                self._update(step, gradient, chosen)

    def _checked_work(self) -> list[Work]:
        """Return every parameter that has a gradient, with its state, gradient and options; check all of them."""
        params = self.params
        if len(params) != len(self.state):
            raise ValueError(
                f"The groups contain {len(params)} parameters, but the optimizer was given {len(self.state)}: add "
                "parameters by add_param_group."
            )
        options: list[tuple[SimpleNamespace, UpdateGroup | None]] = []
        for number, group in enumerate(self.param_groups):
            chosen = self._options_of(number, group)
            shared = UpdateGroup(type(self), self._addend, chosen) if self.is_elementwise else None
            options += [(chosen, shared)] * len(group["params"])
        work: list[Work] = []
        for number, (parameter, state, its_options) in enumerate(zip(params, self.state, options, strict=True)):
            gradient = parameter.grad
            if gradient is not None:
                self._check_shapes(number, parameter, gradient, state)
                work.append((parameter, state, gradient, *its_options))
        return work

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter, computed in the arithmetic of `step` with the options of its group."""
        raise ValueError(f"{type(self).__name__} has no update method; define one.")

    def read(self, group: Mapping[str, Any]) -> SimpleNamespace:
        """Return the options of a group for updates; raise ValueError, naming the option, if one is invalid."""
        check_names(group, self.options)
        chosen = SimpleNamespace(**{name: option.read(name, group.get(name)) for name, option in self.options.items()})
        self.check(chosen)
        return chosen

    def check(self, options: SimpleNamespace) -> None:
        """Raise ValueError if these options, each valid on its own, may not be used together."""

    def check_parameter(self, number: int, parameter: Parameter) -> None:
        """Raise ValueError if this kind of optimizer cannot update the parameter with this number."""

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every array that may be stored for a parameter of this `shape`, by name."""
        return {name: () if name in COUNTERS else shape for name in (*self.kept, COMPENSATION)}

    def required_names(self, shape: tuple[int, ...], options: SimpleNamespace) -> list[str]:
        """Return the names of the arrays that are stored for a parameter of this `shape` after its first update."""
        if self.kept_with is None:
            return []
        others = {name for name, option in self.kept_with.items() if not getattr(options, option)}
        return [name for name in self.shapes(shape) if name != COMPENSATION and name not in others]

    def state_dict(self) -> dict[str, Any]:
        """Return the groups with numbers for parameters, and the stored arrays by number, in the layout of PyTorch.

        ``{"state": {0: {"exp_avg": array, ...}, ...}, "param_groups": [{"lr": 0.1, ..., "params": [0, 1]}]}``. Arrays
        are copies.
        """
        return pack_state(self)

    def follow(self) -> None:
        """Move the stored arrays to the device of their parameters, after a model was moved."""
        for parameter, state in zip(self.params, self.state, strict=True):
            state.update({name: on_device_of(array, parameter.numbers) for name, array in state.items() if array.ndim})

    @in_usual_environment
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a state of `state_dict`, or of PyTorch's optimizer; if a part does not fit, nothing changes.

        A parameter without an entry in the state starts anew, as if it had never been updated.

        Raises:
            ValueError: if the state has other options, numbers of parameters, names, shapes or types; if it contains
                only some of the moments of a parameter.
        """
        self.param_groups, self.state = unpack_state(self, state_dict)

    def _options_of(self, number: int, group: dict[str, Any]) -> SimpleNamespace:
        """Return the options of a group, read again if one of them is another object than last time."""
        now = [*group, *group.values()]
        before, chosen = self._last_read.get(number, ((), None))
        if chosen is None or len(now) != len(before) or not all(map(operator.is_, now, before)):
            chosen = self.read(group)
            if all(isinstance(group[name], FIXED) for name in self.options):
                self._last_read[number] = now, chosen
        return SimpleNamespace(**vars(chosen))  # a copy for this step

    def _update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> None:
        step.gradient = gradient
        u = self._addend(step, gradient, options)
        if not (isinstance(u, np.ndarray) or is_on_gpu(u)) or u.shape != gradient.shape:
            got = f"one of shape {u.shape}" if hasattr(u, "shape") else f"a {type(u).__name__}"
            raise ValueError(f"{type(self).__name__}.update must give an array of {gradient.shape}, got {got}.")
        step.finish(u)

    def _addend(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """Return the addend of the parameter, from the gradient, or from the negated gradient with `maximize`."""
        ascends = getattr(options, "maximize", False)
        return self.update(step, step.negative(gradient) if ascends else gradient, options)

    def _check_shapes(self, number: int, parameter: Parameter, gradient: NDArray, state: dict[str, NDArray]) -> None:
        """Raise ValueError if the shape of the gradient or of a stored array does not fit the parameter."""
        self.check_parameter(number, parameter)
        parameter_shape = parameter.numbers.shape
        shapes = self.shapes(parameter_shape) if state else {}
        for what, array in (("gradient", gradient), *state.items()):
            shape = shapes.get(what, parameter_shape)
            if array.shape != shape:
                check_shape(f"the {what} of {name_of(number, parameter)}", array, shape, parameter)

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        shown = []
        for group in self.param_groups:
            options = {name: group[name] for name in self.options}
            parts = [f"{k}={value!r}" for k, value in options.items() if k == "lr" or value != defaults.get(k)]
            count = len(group["params"])
            shown.append(", ".join([*parts, f"{count} parameter{'' if count == 1 else 's'}"]))
        return f"{type(self).__name__}({'; '.join(shown)})"
