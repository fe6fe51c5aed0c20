"""What optimizers share: parameters, options, state, and the loop of a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import Parameter, Tensor
from simfloat.optim.options import Check, number_from_zero
from simfloat.optim.step import COMPENSATION, Step
from simfloat.simulation import current


class Optimizer:
    """An optimizer of `params` with learning rate `lr`; each kind defines its options and its `direction`.

    Options are attributes and may be changed between steps; they are checked when they are used.
    """

    #: What each option may be; the options are attributes of these names.
    options: ClassVar[dict[str, Check]] = {"lr": number_from_zero}

    #: Names of the moments that it keeps for a parameter.
    moments: ClassVar[tuple[str, ...]] = ()

    lr: float

    def __init__(self, params: Iterable[Parameter], lr: float, **options: Any) -> None:
        self.params = _distinct_parameters(params)
        self._take({"lr": lr, **options})
        self.state: list[dict[str, NDArray]] = [{} for _ in self.params]

    def zero_grad(self) -> None:
        """Forget the gradients of the parameters."""
        for parameter in self.params:
            parameter.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient; inside a `simulate` block.

        Raises ValueError, before anything is updated, for an option that cannot be used, and for a gradient or a state
        that has not the parameter's shape.
        """
        current()  # refuses a step outside of any block, even if there is nothing to do
        self.check({name: getattr(self, name) for name in self.options})
        for number, (parameter, state) in enumerate(zip(self.params, self.state, strict=True)):
            _check_shapes(number, parameter, state)
        for parameter, state in zip(self.params, self.state, strict=True):
            if parameter.grad is not None:
                step = Step(parameter, state)
                step.finish(step.multiply(-self.lr, self.direction(step, parameter.grad)))

    def direction(self, step: Step, gradient: NDArray) -> NDArray:
        """What is subtracted from the parameter, before it is multiplied by lr."""
        raise ValueError(f"{type(self).__name__} has no direction method; define one.")

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError, naming the option, unless all of these may be used together."""
        for name, value in options.items():
            self.options[name](name, value)

    def _take(self, options: Mapping[str, Any]) -> None:
        self.check(options)
        for name, value in options.items():
            setattr(self, name, value)

    def state_dict(self) -> dict[str, Any]:
        """The options, and under ``state`` copies of the arrays kept for every parameter, in their order."""
        kept = [{name: array.copy() for name, array in state.items()} for state in self.state]
        return {**{name: getattr(self, name) for name in self.options}, "state": kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave: all of it is taken, or nothing if a part does not fit.

        Raises ValueError for the state of another optimizer: other keys, another number of parameters, other shapes.
        """
        if not isinstance(state, Mapping) or not isinstance(state.get("state"), list):
            raise ValueError("load_state_dict takes what state_dict gives: options, and a list under 'state'.")
        if len(state["state"]) != len(self.params):
            raise ValueError(f"The state is of {len(state['state'])} parameters, the optimizer has {len(self.params)}.")
        keys = {*self.options, "state"}
        missing, unknown = [key for key in keys if key not in state], [key for key in state if key not in keys]
        if missing or unknown:
            kind = type(self).__name__
            raise ValueError(f"The state is not {kind}'s: missing {sorted(missing)}, unknown {unknown}.")
        kept = [self._fitting(number, entry) for number, entry in enumerate(state["state"])]
        self._take({name: state[name] for name in self.options})
        self.state = kept

    def _fitting(self, number: int, entry: Any) -> dict[str, NDArray]:
        """Copies of the arrays in a state's entry for one parameter; ValueError unless they are ones that it has."""
        name, known = _name(number, self.params[number]), (*self.moments, COMPENSATION)
        if not isinstance(entry, Mapping) or any(key not in known for key in entry):
            raise ValueError(f"The state of {name} must hold arrays under {' or '.join(known)}, got {entry!r}.")
        what = {key: f"{key} of {name}" for key in entry}
        return {key: _like(self.params[number], entry[key], what[key]).copy() for key in entry}

    def __repr__(self) -> str:
        defaults = {name: parameter.default for name, parameter in signature(type(self)).parameters.items()}
        given = {name: getattr(self, name) for name in self.options}
        shown = [f"{k}={value!r}" for k, value in given.items() if k == "lr" or value != defaults.get(k)]
        count = f"{len(self.params)} parameter{'s' if len(self.params) > 1 else ''}"
        return f"{type(self).__name__}({', '.join([*shown, count])})"


def _distinct_parameters(params: Any) -> list[Parameter]:
    """The parameters as a list; ValueError for anything else, for none, and for one that comes twice."""
    if isinstance(params, Tensor | set | frozenset) or not isinstance(params, Iterable):
        kind = type(params).__name__
        raise ValueError(f"An optimizer takes model.parameters() or a list of parameters in their order, got a {kind}.")
    found = list(params)
    if not found:
        raise ValueError("An optimizer needs parameters; got none.")
    seen: set[int] = set()
    for number, parameter in enumerate(found):
        if not isinstance(parameter, Parameter):
            raise ValueError(f"An optimizer takes model.parameters(), got a {type(parameter).__name__} among them.")
        if id(parameter) in seen:
            raise ValueError(f"{_name(number, parameter)} was given twice; it would be updated twice a step.")
        seen.add(id(parameter))
    return found


def _name(number: int, parameter: Parameter) -> str:
    return parameter.path or f"parameter {number}"


def _check_shapes(number: int, parameter: Parameter, state: dict[str, NDArray]) -> None:
    """Raise ValueError if the parameter has been given another shape than its gradient and its state have."""
    if parameter.grad is None:
        return
    for what, array in (("gradient", parameter.grad), *state.items()):
        if array.shape != parameter.shape:
            raise ValueError(_mismatch(f"the {what} of {_name(number, parameter)}", array, parameter))


def _like(parameter: Parameter, value: Any, what: str) -> NDArray[np.floating]:
    """An array of the parameter's shape, or ValueError."""
    array = as_operand(value, what)
    if array.shape != parameter.shape:
        raise ValueError(_mismatch(what, array, parameter))
    return array


def _mismatch(what: str, array: NDArray, parameter: Parameter) -> str:
    return f"{what} must have the parameter's shape {parameter.shape}, got {array.shape}."
