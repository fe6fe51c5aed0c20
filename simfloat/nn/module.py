"""Modules: trees of parameters with names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor
from simfloat.autodiff.owned import Owned
from simfloat.nn.names import KEPT, OUTERMOST, names_of, parts_changed
from simfloat.nn.state import fitting_arrays
from simfloat.nn.text import tree
from simfloat.simulation import Names, module_running


class Module(Owned):
    """A part of a model: the parameters and modules among its attributes belong to it, in the order of assignment.

    Names, shapes and `state_dict` keys are torch.nn's. A path such as ``hidden.0.weight`` names the same thing in
    policies, parameters, gradients and telemetry. A module or parameter that occurs twice is listed once, under the
    first of its paths. What runs inside the call of another module runs under its path there; a module that is called
    by itself runs under its own `path`.
    """

    training = True

    def __init__(self) -> None:
        self.training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Owned):
            self._check_part(name, value)
        elif value is not None and isinstance(vars(self).get(name), Owned):
            kind = "parameter" if isinstance(vars(self)[name], Parameter) else "module"
            raise ValueError(
                f"{name!r} is a {kind} of {type(self).__name__}; assign a {kind.capitalize()} or None, "
                f"not a {type(value).__name__}." + (f" New numbers go to {name}.data." if kind == "parameter" else "")
            )
        is_part = isinstance(value, Owned) or isinstance(vars(self).get(name), Owned)
        object.__setattr__(self, name, value)
        if isinstance(value, Owned):
            value.adopt(self, name)
        if is_part:
            parts_changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        parts_changed()

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
        state.pop(KEPT, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for name, value in state.items():
            if isinstance(value, Owned):
                value.adopt(self, name)
        parts_changed()

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, by way of its first owner, joined by dots.

        Empty for a module that nobody owns, or owned when it was first called by itself.
        """
        return "" if OUTERMOST in vars(self) else super().path

    @property
    def _parameters(self) -> dict[str, Parameter]:
        """Its own parameters by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Parameter)}

    @property
    def _modules(self) -> dict[str, Module]:
        """The modules just inside by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Module)}

    @property
    def is_layer(self) -> bool:
        """Whether the module computes something itself: it has parameters of its own, or no modules inside."""
        return bool(self._parameters) or not self._modules

    def forward(self, *inputs: Any, **options: Any) -> Tensor:
        """What the module computes; each kind of module has its own."""
        raise ValueError(f"{type(self).__name__} has no forward method; define one.")

    def __call__(self, *inputs: Any, **options: Any) -> Tensor:
        """Run `forward` as the layer at this module's path."""
        with module_running(self):
            return self.forward(*inputs, **options)

    def names(self) -> Names:
        """The paths of this module and of all modules and parameters inside, by identity; for simulations."""
        return names_of(self)

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

    def named_parameters(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Pairs of path and parameter, each parameter once."""
        seen: set[int] = set()
        for where, module in self.named_modules(path):
            for name, parameter in module._parameters.items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield _below(where, name), parameter

    def _occurrences(self, path: str = "") -> Iterator[tuple[str, Parameter]]:
        """Pairs of path and parameter, a parameter that occurs several times under each of its paths."""
        for name, parameter in self._parameters.items():
            yield _below(path, name), parameter
        for name, module in self._modules.items():
            yield from module._occurrences(_below(path, name))

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and of those inside, each once."""
        for _, parameter in self.named_parameters():
            yield parameter

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Module:
        """Set whether the module is training, here and inside. Raises ValueError unless mode is True or False."""
        if not isinstance(mode, bool):
            raise ValueError(f"train takes True or False, got {mode!r}.")
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Set the module to evaluation, here and inside."""
        return self.train(False)

    def state_dict(self) -> dict[str, NDArray]:
        """Copies of the parameters' numbers by path, each parameter once."""
        return {path: parameter.numbers.copy() for path, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the parameters' numbers from `state`, arrays by path: all of them, or none if one does not fit.

        A parameter that occurs under several paths may be given under each of them, as in torch's state of a model with
        tied parameters, if the numbers are the same.

        Raises ValueError naming the keys that are missing or unknown, shapes that differ, and what holds no numbers.
        """
        listed, names = dict(self.named_parameters()), dict(self._occurrences())
        for parameter, array in fitting_arrays(listed, names, state):
            parameter.data = array

    def extra_repr(self) -> str:
        """What stands between the parentheses of its repr: the arguments that made it."""
        return ""

    def __repr__(self) -> str:
        parts = {name: repr(module) for name, module in self._modules.items()}
        return tree(type(self).__name__, self.extra_repr(), parts, sum(p.size for p in self.parameters()))


def _below(path: str, name: str) -> str:
    """The path of the part `name` of what lies at `path`."""
    return f"{path}.{name}" if path else name
