"""Tensors: arrays that remember how they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.autodiff import composites, contractions, indexing, joining, movement, reductions
from simfloat.autodiff.fusing import enter, leave
from simfloat.autodiff.numpy_functions import NumpyFunctions
from simfloat.autodiff.pointwise import Pointwise
from simfloat.autodiff.record import Made, Operand
from simfloat.autodiff.reductions import Axes
from simfloat.autodiff.scalars import Comparable
from simfloat.autodiff.tape import run_backward
from simfloat.autodiff.torch_hints import TorchHints
from simfloat.autodiff.variable import Variable
from simfloat.checks import check_flags, is_integer
from simfloat.simulation.context import composite
from simfloat.simulation.simulation import current


class Tensor(Comparable, Variable, Pointwise["Tensor"], TorchHints, NumpyFunctions):
    """An array of numbers, and the operation that made it.

    `data` and `grad` are NumPy arrays; `grad` is None before `backward`. Data enters as it is, float32 or float64; it
    is rounded only as an operand of a contraction or as a result. `format` is what the numbers were rounded to, None
    for data; operations that move numbers keep it. Operations work inside a `simulate` block.

    Examples:
        >>> with sf.simulate("fp16-standard"):
        ...     x = sf.Tensor([1.0, 2.0], requires_grad=True)
        ...     y = (x * x).sum()
        ...     y.backward()
        >>> y, x.grad
        (Tensor(array(5., dtype=float32), requires_grad=True), array([2., 4.], dtype=float32))
    """

    def __init__(self, data: ArrayLike | Tensor, requires_grad: bool = False) -> None:
        check_flags(requires_grad=requires_grad)
        if isinstance(data, Tensor):
            super().__init__(data.data, requires_grad, data.format)
        else:
            super().__init__(as_operand(data, "data"), requires_grad)

    @property
    def data(self) -> NDArray[np.floating]:
        """The numbers. Between the forward pass and a backward pass that reads them nothing may be written to them."""
        if self.node is not None:
            self.node.origin.lend(self.numbers)
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        self.numbers = as_operand(value, "data")
        self.format = self.made_with = None

    def made(self, result: Made) -> Tensor:
        """The tensor that the result of an operation is."""
        return tensor_of(result)

    def detach(self) -> Tensor:
        """The same data without its history."""
        return tensor_of(Made(self.data, self.format, None, self.made_with))

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Add the gradient of this tensor with respect to every leaf that requires one to the leaf's `grad`.

        gradient is that of the final result with respect to this tensor, of its shape; it may be left out, and is
        then one, for a tensor of one element. The new gradient of a leaf is completed before it is added to the old.

        Raises ValueError if nothing that made this tensor requires a gradient.
        """
        if gradient is None:
            if self.size != 1:
                raise ValueError(f"backward without a gradient needs one element, got a tensor of shape {self.shape}.")
            gradient = np.ones_like(self.numbers, order="C")
        gradient = as_operand(gradient, "gradient")
        if gradient.shape != self.shape:
            raise ValueError(f"The gradient has shape {gradient.shape}, the tensor {self.shape}.")
        run_backward(self, gradient)

    # --- operators ----------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Tensor:
        return self.add(other)

    def __radd__(self, other: Operand) -> Tensor:
        return as_tensor(other).add(self)

    def __sub__(self, other: Operand) -> Tensor:
        return self.subtract(other)

    def __rsub__(self, other: Operand) -> Tensor:
        return as_tensor(other).subtract(self)

    def __mul__(self, other: Operand) -> Tensor:
        return self.multiply(other)

    def __rmul__(self, other: Operand) -> Tensor:
        return as_tensor(other).multiply(self)

    def __truediv__(self, other: Operand) -> Tensor:
        return self.divide(other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return as_tensor(other).divide(self)

    def __pow__(self, other: Operand) -> Tensor:
        return self.power(other)

    def __rpow__(self, other: Operand) -> Tensor:
        return as_tensor(other).power(self)

    def __matmul__(self, other: Operand) -> Tensor:
        return tensor_of(contractions.matmul(self, other))

    def __rmatmul__(self, other: Operand) -> Tensor:
        return tensor_of(contractions.matmul(other, self))

    def __neg__(self) -> Tensor:
        return self.negative()

    def __abs__(self) -> Tensor:
        return self.abs()

    def __getitem__(self, key: Any) -> Tensor:
        return tensor_of(indexing.index(self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ValueError(
            "Elements of a tensor are not assigned: its history would not show it. Make another tensor, for example by "
            "simfloat.where, or write to the numbers of one that nothing was computed from yet, t.data[...] = ..."
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    # --- reductions, movement, composites -----------------------------------------------------

    def matmul(self, other: Operand) -> Tensor:
        """The matrix product, as ``@``."""
        return self @ other

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, through the policy's `reduce`, in row-major order."""
        return tensor_of(reductions.sum(self, axis, keepdims))

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, divided by the number of terms."""
        return tensor_of(reductions.mean(self, axis, keepdims))

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element along `axis`; the gradient goes to the first one that is."""
        return tensor_of(reductions.extreme("max", self, axis, keepdims))

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The smallest element along `axis`; the gradient goes to the first one that is."""
        return tensor_of(reductions.extreme("min", self, axis, keepdims))

    def var(self, axis: Axes = None, keepdims: bool = False, *, correction: int = 0) -> Tensor:
        """The sum of (x - mean(x))^2 over `axis`, divided by their number less `correction`.

        Raises ValueError unless correction is an integer from 0.
        """
        if not is_integer(correction, 0):
            raise ValueError(f"correction is an integer from 0, got {correction!r}.")
        return compose("var", lambda x: composites.variance(x, axis, keepdims, correction), self)

    def softmax(self, axis: int = -1) -> Tensor:
        """exp(d) / sum(exp(d)) with d = x - max(x) along `axis`, each step rounded unless it is fused."""
        return compose("softmax", lambda x: composites.softmax(x, axis), self)

    def log_softmax(self, axis: int = -1) -> Tensor:
        """d - log(sum(exp(d))) with d = x - max(x) along `axis`, each step rounded unless it is fused."""
        return compose("log_softmax", lambda x: composites.log_softmax(x, axis), self)

    def logsumexp(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """log(sum(exp(d))) + m with d = x - m and m = max(x) along `axis`; -inf, with no gradient, where all x are."""
        check_flags(keepdims=keepdims)
        return compose("logsumexp", lambda x: composites.logsumexp(x, axis, keepdims), self)

    def reshape(self, *shape: Any) -> Tensor:
        """The same numbers in another shape."""
        return tensor_of(movement.reshape(self, *shape))

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, given one by one or as a tuple; reversed if none is given."""
        return tensor_of(movement.transpose(self, *axes))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes from `start_dim` to `end_dim` as one."""
        return tensor_of(movement.flatten(self, start_dim, end_dim))

    def pad(self, pad: Sequence[int], value: float = 0.0) -> Tensor:
        """The same numbers with `value` around them: pad is (before, after) of the last axis, then of that before it.

        As torch.nn.functional.pad. Raises ValueError for a `value` that is no number of the tensor's format.
        """
        return tensor_of(movement.pad(self, pad, value))

    @property
    def T(self) -> Tensor:
        """The axes in reversed order."""
        return self.transpose()

    def swapaxes(self, first: int, second: int) -> Tensor:
        """Two axes exchanged."""
        return tensor_of(movement.swapaxes(self, first, second))

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """Without axes of size one: all of them, or those named."""
        return tensor_of(movement.squeeze(self, axis))

    def unsqueeze(self, axis: int) -> Tensor:
        """With a new axis of size one, at the place `axis` of the result."""
        return tensor_of(movement.unsqueeze(self, axis))

    def broadcast_to(self, shape: Sequence[int]) -> Tensor:
        """The numbers repeated to fill `shape`; their gradients are added through the policy's `reduce`."""
        return tensor_of(movement.broadcast_to(self, shape))

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
        """The parts along `axis`: of the sizes given, or all of one size but a shorter last one."""
        return tuple([tensor_of(part) for part in joining.split(self, sizes, axis)])

    def unbind(self, axis: int = 0) -> tuple[Tensor, ...]:
        """The elements along `axis`, which they lack, as iteration gives them along the first."""
        return tuple([tensor_of(part) for part in joining.unbind(self, axis)])

    def masked_fill(self, mask: ArrayLike, value: Operand) -> Tensor:
        """`value` where the mask holds, else the numbers themselves; see `where`."""
        return tensor_of(joining.where(mask, value, self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.numbers!r}{', requires_grad=True' if self.requires_grad else ''})"


def as_tensor(x: Operand) -> Tensor:
    """`x` itself if it is a tensor, else a constant one."""
    if isinstance(x, Tensor):
        return x
    return tensor_of(Made(x.numbers, x.format, x.node)) if isinstance(x, Variable) else Tensor(x)


def tensor_of(made: Made) -> Tensor:
    """The tensor that the result of an operation is."""
    tensor = Tensor.__new__(Tensor)
    Variable.__init__(tensor, made.numbers, made.node is not None, made.format, made.node)
    if made.made_with is not None:
        tensor.made_with = made.made_with
    return tensor


def compose(name: str, body: Callable[..., Tensor], *operands: Operand) -> Tensor:
    """The composite `name` of the catalog: `body` of the operands as tensors, in whose place its operations run.

    Every step is rounded as the policy says for it. Where the policy fuses the composite, each is rounded to the format
    of `reduce`, forward and backward, and the result once, to `activations`; gradients once where they leave, to their
    roles: those of operands when they are added up, those of what `body` uses besides once for every use.
    """
    tensors = [as_tensor(x) for x in operands]
    is_fused = current().place(name).recipe.fused
    inside = [tensor_of(enter(name, x)) for x in tensors] if is_fused else tensors
    with composite(name):
        result = body(*inside)
    if not is_fused:
        return result
    if not isinstance(result, Tensor):
        raise ValueError(f"A fused composite gives one tensor, whose numbers are rounded once; {name} gave {result!r}.")
    return tensor_of(leave(name, result, tensors or [result]))
