"""The base class of optimizers: parameter groups, options, state, and the loop of a step.

A step is the update of each parameter under the policy in force. The state_dict has PyTorch's layout.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import is_on_gpu, on_cpu, on_device_of
from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter
from simfloat.autodiff.parameter import begin_update, forget_gradients
from simfloat.environment import in_usual_environment
from simfloat.optim.options import LABELS, Option, check_names, groups_in, name_of, number_from_zero, read_group
from simfloat.simulation.simulation import Simulation, current
from simfloat.simulation.update_programs import run_as_program
from simfloat.simulation.updates import COMPENSATION, COUNTERS, STEP, UpdateArithmetic

if TYPE_CHECKING:
    pass

#: What PyTorch's states say of how it runs, and not of what it computes.
EXECUTION_KEYS = {"foreach", "fused", "capturable", "differentiable"}

Groups = list[dict[str, Any]]
State = list[dict[str, NDArray]]


def pack_state(optimizer: Optimizer) -> dict[str, Any]:
    """The state: copies of the arrays kept for every parameter, by its number, and the groups with these numbers."""
    state = {i: {name: array.copy() for name, array in entry.items()} for i, entry in enumerate(optimizer.state)}
    numbers = iter(range(len(state)))
    groups = [{**group, "params": [next(numbers) for _ in group["params"]]} for group in optimizer.param_groups]
    return {"state": {number: entry for number, entry in state.items() if entry}, "param_groups": groups}


def unpack_state(optimizer: Optimizer, data: Any) -> tuple[Groups, State]:
    """The groups and the arrays of a state, copied, for the parameters of this optimizer; ValueError if it is not its.

    The numbers of parameters may be texts, as JSON makes them. A state of PyTorch's optimizer of the kind is one.
    """
    if not isinstance(data, Mapping) or set(data) != {"state", "param_groups"}:
        raise ValueError("load_state_dict takes what state_dict gives: a dictionary of 'state' and 'param_groups'.")
    groups, state = data["param_groups"], data["state"]
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise ValueError(
            "load_state_dict takes what state_dict gives: a list of 'param_groups', and 'state' by number."
        )
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"The state is of {len(groups)} groups, the optimizer has {len(optimizer.param_groups)}.")
    new_groups = [_group(optimizer, mine, group) for mine, group in zip(optimizer.param_groups, groups, strict=True)]
    params = optimizer.params
    if (numbers := [number for group in groups for number in group["params"]]) != list(range(len(params))):
        raise ValueError(f"The groups of a state number the parameters from 0 on, in their order; got {numbers!r}.")
    unknown = [key for key in state if str(key) not in map(str, range(len(params)))]
    if unknown:
        raise ValueError(f"The state is of parameter {unknown[0]!r}, the optimizer has {len(params)}, from 0.")
    entries = {str(key): entry for key, entry in state.items()}
    read = [optimizer.read({name: group[name] for name in optimizer.options}) for group in new_groups]
    options = [chosen for chosen, group in zip(read, new_groups, strict=True) for _ in group["params"]]
    fitting = [_fitting(optimizer, number, entries.get(str(number), {})) for number in range(len(params))]
    for number, (entry, chosen) in enumerate(zip(fitting, options, strict=True)):
        _check_complete(optimizer, number, entry, chosen)
    return new_groups, fitting


def _check_complete(optimizer: Optimizer, number: int, entry: Mapping[str, Any], options: SimpleNamespace) -> None:
    """Raise ValueError for a parameter of which some is kept, but not all that its updates go on from."""
    parameter = optimizer.params[number]
    needed = optimizer.required_names(parameter.shape, options)
    if missing := [name for name in needed if entry and name not in entry]:
        raise ValueError(
            f"The state of {name_of(number, parameter)} has no {' and no '.join(missing)}; {type(optimizer).__name__} "
            f"goes on from {', '.join(needed)}. Load a complete state, or leave out this parameter's to begin anew."
        )


def _group(optimizer: Optimizer, mine: dict[str, Any], group: Any) -> dict[str, Any]:
    """The group with the options that a state gives it."""
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
        raise ValueError(f"The state is of {theirs} parameters, in a group where the optimizer has {ours}.")
    options = vars(optimizer.read({name: group[name] for name in optimizer.options}))
    labels = {name: (group if name in group else mine)[name] for name in LABELS if name in group or name in mine}
    return {"params": mine["params"], **labels, **options}


def _fitting(optimizer: Optimizer, number: int, entry: Any) -> dict[str, NDArray]:
    """Copies of the arrays in a state's entry for one parameter; ValueError unless they are ones that it has."""
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
    """A copy, where the parameter is; of a single number where it is used, on the CPU."""
    placed = on_device_of(array, parameter.numbers) if array.ndim else on_cpu(array)
    return np.array(placed, like=placed)


def _is_count(value: NDArray) -> bool:
    """Whether a number can be that of a parameter's steps."""
    return bool(np.isfinite(value) and value >= 0 and value == np.floor(value))


def check_shape(what: str, array: NDArray, shape: tuple[int, ...], parameter: Parameter) -> None:
    """Raise ValueError for an array of another shape than this, that of the parameter or one that follows from it."""
    if array.shape != shape:
        whose = "the parameter's shape" if shape == parameter.shape else "the shape"
        raise ValueError(f"{what} must have {whose} {shape}, got {array.shape}.")


class Step(UpdateArithmetic):
    """The update of one parameter under the policy in force: its arithmetic and its state.

    Results are rounded to `weights`, moments to `optimizer_state`; numbers are exact operands. An observer receives the
    events of the last addition at the parameter's own path, those of a moment at its name below, as operation
    ``moment``, and those of everything else at ``update`` below.
    """

    __slots__ = ("_simulation", "parameter")

    def __init__(self, parameter: Parameter, state: dict[str, NDArray], simulation: Simulation | None = None) -> None:
        self.parameter = parameter
        self._simulation = current() if simulation is None else simulation
        place = begin_update(parameter, self._simulation)
        super().__init__(place, parameter.operand_at(place).numbers, state)

    def store(self, weight: NDArray) -> None:
        """Give the parameter its new numbers."""
        self.parameter.store(weight, self._place.weights, self._simulation.streams)


#: What an optimizer takes: parameters, (name, parameter) pairs, or dictionaries with "params" and options of a group.
Params = Iterable[Parameter] | Iterable[tuple[str, Parameter]] | Iterable[Mapping[str, Any]]

#: Values of options that do not change where they stand.
FIXED = (bool, int, float, str, tuple, NoneType)


class Optimizer:
    """An optimizer of `params` with learning rate `lr`; each kind defines its options and its `update`.

    params are parameters, pairs of a name and a parameter, or dictionaries of a group each, with ``"params"`` and
    options that differ from those of the call. Options are read and changed between steps in `param_groups`, or as
    attributes, which stand for all groups; they are checked when they are used. Which parameters are updated in which
    way and kept in which formats is the policy's matter: ``policy.override("*.weight", update="kahan")``.

    A kind of one's own is a subclass::

        class SignSGD(Optimizer):
            def update(self, step, gradient, options):
                return step.multiply(-options.lr, np.sign(gradient))
    """

    #: Names of the arrays that it keeps for a parameter, beside Kahan's compensation.
    kept: ClassVar[tuple[str, ...]] = ()

    #: The option under which an array of `kept` is kept, for those that are not always kept. A class that says None, as
    #: this one does, takes states that lack any.
    kept_with: ClassVar[Mapping[str, str] | None] = None

    #: Whether `update` calls nothing but elementwise methods of the step, and depends on nothing but its arguments: it
    #: is then written down once, and carried out in one go. It holds for the class that says so, not for subclasses.
    is_elementwise: ClassVar[bool] = False

    lr = Option(number_from_zero)

    #: The options of the kind, by name; those of a subclass are added to them.
    options: ClassVar[dict[str, Option]] = {"lr": lr}

    #: What a PyTorch state of this kind says beside the options, and what must be said there.
    marks: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        new_options = {name: value for name, value in vars(cls).items() if isinstance(value, Option)}
        cls.options = {**cls.options, **new_options}
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
        """The parameters of all groups, in their order; `state` has an entry for each."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @in_usual_environment
    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Update more parameters: a dictionary with ``"params"``, and options that differ from the defaults.

        Raises ValueError for options that there are not or that cannot be used, and for a parameter that is there.
        """
        group = read_group(param_group, self.defaults, self.params)
        group |= vars(self.read(group))
        for number, parameter in enumerate(group["params"], len(self.state)):
            self.check_parameter(number, parameter)
        self.param_groups.append(group)
        self.state.extend({} for _ in group["params"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of the parameters; with set_to_none=False those that there are become zeros."""
        forget_gradients(self.params, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; inside a `simulate` block.

        A closure, which computes the loss anew, calls its `backward` and returns it, is called first, and its result
        is returned; None without one.

        Raises ValueError, before anything is updated, for an option that cannot be used, and for a gradient or a state
        that has not the parameter's shape.
        """
        simulation = current()  # refuses a step outside of any block, even if there is nothing to do
        if closure is not None and not callable(closure):
            kind = type(closure).__name__
            raise ValueError(f"step takes a function that computes the loss and calls its backward, got a {kind}.")
        loss = None if closure is None else closure()
        self._update_all(simulation if closure is None else current())
        return loss

    @in_usual_environment
    def _update_all(self, simulation: Simulation) -> None:
        """Update every parameter that has a gradient, once all that is read is known to fit."""
        params = self.params
        if len(params) != len(self.state):
            raise ValueError(
                f"The groups hold {len(params)} parameters, the optimizer was given {len(self.state)}: add others by "
                "add_param_group."
            )
        read = [(self._options_of(number, group), group["params"]) for number, group in enumerate(self.param_groups)]
        options = [chosen for chosen, its_params in read for _ in its_params]
        work = []
        for number, (parameter, state, chosen) in enumerate(zip(params, self.state, options, strict=True)):
            gradient = parameter.grad
            if gradient is not None:
                self._check_shapes(number, parameter, gradient, state)
                work.append((parameter, state, gradient, chosen))
        for parameter, state, gradient, chosen in work:
            step = Step(parameter, state, simulation)
            if gradient.size:
                self._update(step, gradient, chosen)

    def update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter, computed in the arithmetic of `step`; `options` are those of its group."""
        raise ValueError(f"{type(self).__name__} has no update method; define one.")

    def read(self, group: Mapping[str, Any]) -> SimpleNamespace:
        """A group's options as updates take them; ValueError, naming the option, unless they may be used together."""
        check_names(group, self.options)
        chosen = SimpleNamespace(**{name: option.read(name, group.get(name)) for name, option in self.options.items()})
        self.check(chosen)
        return chosen

    def check(self, options: SimpleNamespace) -> None:
        """Raise ValueError unless these options, each of which is fine, may be used together."""

    def check_parameter(self, number: int, parameter: Parameter) -> None:
        """Raise ValueError for a parameter, that of this number, that this kind of optimizer cannot update."""

    def shapes(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """The shape of every array that may be kept for a parameter of this `shape`, by name."""
        return {name: () if name in COUNTERS else shape for name in (*self.kept, COMPENSATION)}

    def required_names(self, shape: tuple[int, ...], options: SimpleNamespace) -> list[str]:
        """The names of all arrays that are kept for a parameter of this `shape` once it was updated."""
        if self.kept_with is None:
            return []
        others = {name for name, option in self.kept_with.items() if not getattr(options, option)}
        return [name for name in self.shapes(shape) if name != COMPENSATION and name not in others]

    def state_dict(self) -> dict[str, Any]:
        """The groups with numbers for parameters, and the arrays kept for these; laid out as PyTorch's.

        ``{"state": {0: {"exp_avg": array, ...}, ...}, "param_groups": [{"lr": 0.1, ..., "params": [0, 1]}]}``.
        Arrays are copies.
        """
        return pack_state(self)

    def follow(self) -> None:
        """Take what is kept of parameters to where they are, once a model was moved to another device."""
        for parameter, state in zip(self.params, self.state, strict=True):
            state.update({name: on_device_of(array, parameter.numbers) for name, array in state.items() if array.ndim})

    @in_usual_environment
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, here or in PyTorch: all of it is taken, or nothing if a part does not fit.

        What the state holds nothing of begins anew, as a parameter that was not updated yet. Raises ValueError for the
        state of another optimizer: other options, numbers of parameters, names, shapes or types, and for one that has
        some of a parameter's moments and lacks others.
        """
        self.param_groups, self.state = unpack_state(self, state_dict)

    def _options_of(self, number: int, group: dict[str, Any]) -> SimpleNamespace:
        """The options of the group of this number, read again if one of them is another object than last time."""
        now = [*group, *group.values()]
        before, chosen = self._last_read.get(number, ((), None))
        if chosen is None or len(now) != len(before) or not all(map(operator.is_, now, before)):
            chosen = self.read(group)
            if all(isinstance(group[name], FIXED) for name in self.options):
                self._last_read[number] = now, chosen
        return SimpleNamespace(**vars(chosen))  # of this step alone

    def _update(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> None:
        step.gradient = gradient
        if self.is_elementwise and run_as_program(type(self), self._addend, step, gradient, options):
            return
        u = self._addend(step, gradient, options)
        if not (isinstance(u, np.ndarray) or is_on_gpu(u)) or u.shape != gradient.shape:
            got = f"one of shape {u.shape}" if hasattr(u, "shape") else f"a {type(u).__name__}"
            raise ValueError(f"{type(self).__name__}.update must give an array of {gradient.shape}, got {got}.")
        step.finish(u)

    def _addend(self, step: Step, gradient: NDArray, options: SimpleNamespace) -> NDArray:
        """What is added to the parameter, of the gradient or, where the loss is to grow, of the gradient negated."""
        ascends = getattr(options, "maximize", False)
        return self.update(step, step.negative(gradient) if ascends else gradient, options)

    def _check_shapes(self, number: int, parameter: Parameter, gradient: NDArray, state: dict[str, NDArray]) -> None:
        """Raise ValueError if the parameter has been given another shape than its gradient and its state have."""
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
