"""Modules that contain modules, Sequential, ModuleList and MLP, and layers that compute nothing.

These give numbers another shape, or leave them as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.common import is_integer
from simfloat.nn.arguments import generator_of
from simfloat.nn.linear import Linear
from simfloat.nn.module import Module

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed


class _Numbered(Module):
    """Modules named 0, 1, ..., which are counted and reached by number."""

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__()
        self._add_all(modules)

    def _add_all(self, modules: Iterable[Module]) -> None:
        if not isinstance(modules, Iterable):
            name, kind = type(self).__name__, type(modules).__name__
            raise ValueError(f"{name} takes several modules, got one {kind}: write {name}([{kind}(...)]).")
        for module in modules:
            self._add(module)

    def _add(self, module: Module) -> None:
        number = len(self)
        if not isinstance(module, Module):
            unpack = f" Unpack it: {type(self).__name__}(*modules)." if isinstance(module, list | tuple) else ""
            raise ValueError(f"{type(self).__name__} takes modules, got a {type(module).__name__} at {number}.{unpack}")
        setattr(self, str(number), module)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())


class Sequential(_Numbered):
    """Modules one after the other, named 0, 1, ...

    They are counted and reached by number; a slice is a Sequential of the same modules.

    Examples:
        >>> model = sf.nn.Sequential(sf.nn.Linear(3, 4, rng=0), sf.nn.ReLU(), sf.nn.Linear(4, 1, rng=1))
        >>> list(model.state_dict())
        ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    @overload
    def __getitem__(self, number: int) -> Module: ...
    @overload
    def __getitem__(self, number: slice) -> Sequential: ...
    def __getitem__(self, number: int | slice) -> Module:
        modules = list(self)
        return Sequential(*modules[number]) if isinstance(number, slice) else modules[number]

    def forward(self, x: Any) -> Tensor:
        """The output of the last module."""
        for module in self:
            x = module(x)
        return x


class ModuleList(_Numbered):
    """Modules in a list, named 0, 1, ..., for a module that calls them in its own way.

    They are counted and reached by number; a slice is a ModuleList of the same modules. Raises ValueError for what is
    no module.

    Examples:
        >>> layers = sf.nn.ModuleList(sf.nn.Linear(3, 3, rng=i) for i in range(2))
        >>> len(layers), layers[1].weight.shape
        (2, (3, 3))
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__(modules)

    @overload
    def __getitem__(self, number: int) -> Module: ...
    @overload
    def __getitem__(self, number: slice) -> ModuleList: ...
    def __getitem__(self, number: int | slice) -> Module:
        modules = list(self)
        return ModuleList(modules[number]) if isinstance(number, slice) else modules[number]

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end."""
        self._add(module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add modules at the end, one after the other."""
        self._add_all(modules)
        return self


class ReLULinear(Linear):
    """A linear layer followed by max(x, 0).

    Examples:
        >>> layer = sf.nn.ReLULinear(3, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 4)
    """

    def forward(self, x: Operand) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        return super().forward(x).relu()


class MLP(Module):
    """A multilayer perceptron: ReLU layers ``hidden.0``, ``hidden.1``, ... and a linear layer ``head``.

    sizes are the numbers of inputs, of units in each hidden layer, and of outputs; `rng` as in Linear.

    Examples:
        >>> layer = sf.nn.MLP([3, 8, 1], rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 1)
        >>> [name for name, parameter in layer.named_parameters()]
        ['hidden.0.weight', 'hidden.0.bias', 'head.weight', 'head.bias']
    """

    def __init__(self, sizes: Sequence[int], *, rng: Seed = None) -> None:
        super().__init__()
        sizes = list(sizes) if isinstance(sizes, Iterable) else [sizes]
        if len(sizes) < 2:
            raise ValueError(f"An MLP needs the sizes of its input and its output at least, got {sizes}.")
        generator = generator_of(rng)
        *hidden, last = zip(sizes[:-1], sizes[1:], strict=True)
        self.hidden = Sequential(*(ReLULinear(inputs, outputs, rng=generator) for inputs, outputs in hidden))
        self.head = Linear(*last, rng=generator)

    def forward(self, x: Operand) -> Tensor:
        """x (..., inputs) -> (..., outputs)."""
        return self.head(self.hidden(x))


class Identity(Module):
    """x itself, unrounded: the place of a layer that a model has not. Arguments of any kind are taken, and left.

    Examples:
        >>> layer = sf.nn.Identity()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer([0.1])
        >>> y.data
        array([0.1])
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__()

    def forward(self, x: Operand) -> Tensor:
        """x of any shape -> the same."""
        return as_tensor(x)


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one; by default all but the first, which counts examples.

    Examples:
        >>> layer = sf.nn.Flatten()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 256)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Operand) -> Tensor:
        """x (N, C, H, W) -> (N, C * H * W), as an example."""
        return as_tensor(x).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Its axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis `dim` as several, of the sizes unflattened_size, one of which may be -1, what is left.

    Raises ValueError for what is no axis and no sizes, and when it is called, for sizes that do not fit.

    Examples:
        >>> layer = sf.nn.Unflatten(1, (4, -1))
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 12)))
        >>> y.shape
        (2, 4, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        sizes = tuple(unflattened_size) if isinstance(unflattened_size, tuple | list) else ()
        if not is_integer(dim) or not sizes or not all(is_integer(size, -1) for size in sizes):
            raise ValueError(
                f"Unflatten takes the number of an axis and a tuple of sizes, got {dim!r} and {unflattened_size!r}."
            )
        self.dim, self.unflattened_size = dim, sizes

    def forward(self, x: Operand) -> Tensor:
        """x with an axis of n elements -> the same with several, of n elements together."""
        x = as_tensor(x)
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"Unflatten needs the axis {self.dim} of x, got shape {x.shape}.")
        axis = self.dim % x.ndim
        return x.reshape(*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :])

    def extra_repr(self) -> str:
        """Its axis and sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
