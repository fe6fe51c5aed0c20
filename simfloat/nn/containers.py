"""Containers (Sequential, ModuleList, MLP), and layers that change only the shape of a tensor or nothing at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from simfloat.autodiff import Tensor
from simfloat.autodiff.record import Operand
from simfloat.autodiff.tensor import as_tensor
from simfloat.common import is_integer
from simfloat.nn.arguments import as_axis, generator_of
from simfloat.nn.layer import Layer
from simfloat.nn.linear import Linear
from simfloat.nn.module import Module
from simfloat.options import option, with_options

if TYPE_CHECKING:
    from simfloat.nn.arguments import Seed


class _Numbered(Module):
    """Modules named 0, 1, ..., with a length and access by number."""

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
    """Modules that run one after the other, named 0, 1, ...

    `len`, iteration and access by number work as for a list; a slice is a Sequential of the same modules.

    Parameters:
        modules: the modules, in the order of the forward pass.

    Raises:
        ValueError: if an argument is not a module.

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
        """Call each module with the result of the previous one; return the last result."""
        for module in self:
            x = module(x)
        return x


class ModuleList(_Numbered):
    """A list of modules, named 0, 1, ..., for a module that calls them in its own way.

    `len`, iteration and access by number work as for a list; a slice is a ModuleList of the same modules.

    Parameters:
        modules: an iterable of modules.

    Raises:
        ValueError: if an element is not a module.

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
        """Add a module at the end; return the list."""
        self._add(module)
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Add several modules at the end, in their order; return the list."""
        self._add_all(modules)
        return self


class ReLULinear(Linear):
    """max(x W^T + b, 0): a linear layer followed by ReLU.

    Parameters:
        in_features: the size of the last axis of x.
        out_features: the size of the last axis of the result.
        bias: False for a layer without bias.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if a size is not a positive integer.

    Examples:
        >>> layer = sf.nn.ReLULinear(3, 4, rng=0)
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 3)))
        >>> y.shape
        (2, 4)
    """

    def forward(self, x: Operand) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        return super().forward(x).relu()


class MLP(Module):
    """A multilayer perceptron: ReLU layers ``hidden.0``, ``hidden.1``, ... and a linear layer ``head``.

    Parameters:
        sizes: the number of inputs, the width of each hidden layer, and the number of outputs.
        rng: a NumPy generator or a seed for the initial values; by default the generator that `seed` restarts.

    Raises:
        ValueError: if there are fewer than two sizes; if a size is not a positive integer.

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
            raise ValueError(f"An MLP needs at least the sizes of its input and its output, got {sizes}.")
        generator = generator_of(rng)
        *hidden, last = zip(sizes[:-1], sizes[1:], strict=True)
        self.hidden = Sequential(*(ReLULinear(inputs, outputs, rng=generator) for inputs, outputs in hidden))
        self.head = Linear(*last, rng=generator)

    def forward(self, x: Operand) -> Tensor:
        """Map x (..., inputs) to (..., outputs)."""
        return self.head(self.hidden(x))


class Identity(Module):
    """A placeholder for a layer: x, unrounded.

    Parameters:
        arguments, options: any arguments; they are ignored.

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
        """Return x as a tensor, unrounded."""
        return as_tensor(x)


@with_options
class Flatten(Layer):
    """x with the axes from `start_dim` to `end_dim` merged into one.

    Parameters:
        start_dim: the first axis to merge; by default 1, which keeps the axis of examples.
        end_dim: the last axis to merge; by default the last one.

    Raises:
        ValueError: if an argument is not an integer; when called, if the axes are missing or not in ascending order.

    Examples:
        >>> layer = sf.nn.Flatten()
        >>> with sf.simulate("bf16-standard"):
        ...     y = layer(np.ones((2, 4, 8, 8)))
        >>> y.shape
        (2, 256)
    """

    start_dim: int = option(as_axis, default=1)
    end_dim: int = option(as_axis, default=-1)

    def forward(self, x: Operand) -> Tensor:
        """Merge the axes; with the default arguments, map x (N, C, H, W) to (N, C * H * W)."""
        return as_tensor(x).flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """x with the axis `dim` split into several axes.

    Parameters:
        dim: the number of the axis.
        unflattened_size: the sizes of the new axes, a tuple or list; one of them may be -1, and is computed from the
            others.

    Raises:
        ValueError: if `dim` is not an integer or the sizes are not integers; when called, if the axis is missing or the
            sizes do not fit.

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
        """Split the axis; the product of the new sizes must equal the size of the axis."""
        x = as_tensor(x)
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"Unflatten needs the axis {self.dim} of x, got shape {x.shape}.")
        axis = self.dim % x.ndim
        return x.reshape(*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :])

    def extra_repr(self) -> str:
        """Return the axis and the sizes as text."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
