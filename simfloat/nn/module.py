"""Modules: trees of parameters with names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff import Parameter, Tensor, current


class Module:
    """A part of a model: parameters and modules that are assigned to its attributes belong to it.

    Names, shapes and `state_dict` keys are torch.nn's. A path such as ``hidden.0.weight`` names the same thing in
    policies, parameters, gradients and telemetry.
    """

    def __init__(self) -> None:
        self._parameters: dict[str, Parameter] = {}
        self._modules: dict[str, Module] = {}
        self._owner: Module | None = None
        self._name = ""
        self.training = True

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" in self.__dict__:
            self._parameters.pop(name, None)
            self._modules.pop(name, None)
        if isinstance(value, Parameter):
            self._parameters[name] = value
            value.owner, value.name = self, name
        elif isinstance(value, Module) and name != "_owner":
            self._modules[name] = value
            value._owner, value._name = self, name
        object.__setattr__(self, name, value)

    @property
    def path(self) -> str:
        """The names from the model down to this module, joined by dots; empty for the model itself."""
        above = self._owner.path if self._owner is not None else ""
        return f"{above}.{self._name}" if above else self._name

    @property
    def is_layer(self) -> bool:
        """Whether the module computes something itself: it has parameters of its own, or no modules inside."""
        return bool(self._parameters) or not self._modules

    def forward(self, *inputs: Any) -> Tensor:
        """What the module computes; each kind of module has its own."""
        raise ValueError(f"{type(self).__name__} has no forward method; define one.")

    def __call__(self, *inputs: Any) -> Tensor:
        """Run `forward` as the layer at this module's path."""
        simulation = current()
        simulation.enter_layer(self.path)
        try:
            return self.forward(*inputs)
        finally:
            simulation.leave_layer()

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """Pairs of path and module: this one first, then those inside, in the order they were assigned."""
        yield path, self
        for name, child in self._modules.items():
            yield from child.named_modules(f"{path}.{name}" if path else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Pairs of path and parameter."""
        for path, module in self.named_modules():
            for name, parameter in module._parameters.items():
                yield f"{path}.{name}" if path else name, parameter

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and of those inside."""
        for _, parameter in self.named_parameters():
            yield parameter

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Module:
        """Set whether the module is training, here and inside."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Set the module to evaluation, here and inside."""
        return self.train(False)

    def state_dict(self) -> dict[str, NDArray]:
        """Copies of the parameters' numbers by path."""
        return {path: parameter.data.copy() for path, parameter in self.named_parameters()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the parameters' numbers from `state`, arrays by path.

        Raises ValueError naming the keys that are missing or unknown, and shapes that differ.
        """
        parameters = dict(self.named_parameters())
        missing, unknown = [k for k in parameters if k not in state], [k for k in state if k not in parameters]
        if missing or unknown:
            raise ValueError(f"The state does not fit the model: missing {missing}, unknown {unknown}.")
        arrays = {path: np.array(state[path]) for path in parameters}
        for path, parameter in parameters.items():
            if arrays[path].shape != parameter.shape:
                raise ValueError(f"{path} has shape {parameter.shape}, the state {arrays[path].shape}.")
        for path, parameter in parameters.items():
            parameter.data = arrays[path]
