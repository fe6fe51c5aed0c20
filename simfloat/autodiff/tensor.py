"""Tensors: arrays that remember how they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.operands import as_operand
from simfloat.arrays import Array
from simfloat.autodiff import joining
from simfloat.autodiff.composites import Composites, run_composite
from simfloat.autodiff.contractions import Contractions
from simfloat.autodiff.conv2d import Convolutions
from simfloat.autodiff.factors import ConstantProducts
from simfloat.autodiff.indexing import Indexing
from simfloat.autodiff.joining import Joining
from simfloat.autodiff.movement import Reshaping
from simfloat.autodiff.numpy_functions import NumpyFunctions
from simfloat.autodiff.pointwise import Pointwise
from simfloat.autodiff.pool2d import Pooling
from simfloat.autodiff.record import Operand, OperationResult
from simfloat.autodiff.reductions import Reductions
from simfloat.autodiff.scalars import Comparable
from simfloat.autodiff.tape import run_backward
from simfloat.autodiff.torch_hints import TorchHints
from simfloat.autodiff.variable import Variable
from simfloat.checks import check_flags
from simfloat.environment import in_usual_environment


@in_usual_environment
class Tensor(
    Comparable,
    Pointwise["Tensor"],
    Reductions["Tensor"],
    Contractions["Tensor"],
    Convolutions["Tensor"],
    Pooling["Tensor"],
    Reshaping["Tensor"],
    Indexing["Tensor"],
    Joining["Tensor"],
    ConstantProducts["Tensor"],
    Composites["Tensor"],
    NumpyFunctions["Tensor"],
    TorchHints,
):
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
            self.node.origin.watch(self.numbers)
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        self.numbers = as_operand(value, "data")
        self.format = self.made_with = None

    def from_result(self, result: OperationResult) -> Tensor:
        """The tensor that the result of an operation is."""
        return tensor_of(result)

    def detach(self) -> Tensor:
        """Return a tensor of these data without their history."""
        return tensor_of(OperationResult(self.data, self.format, None, self.made_with))

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
        return self.matmul(other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return as_tensor(other).matmul(self)

    def __neg__(self) -> Tensor:
        return self.negative()

    def __abs__(self) -> Tensor:
        return self.abs()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ValueError(
            "Elements of a tensor are not assigned: its history would not show it. Make another tensor, for example by "
            "simfloat.where, or write to the numbers of one that nothing was computed from yet, t.data[...] = ..."
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.numbers!r}{', requires_grad=True' if self.requires_grad else ''})"


def as_tensor(x: Operand) -> Tensor:
    """`x` itself if it is a tensor, else a constant one."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Variable):
        return tensor_of(OperationResult(x.numbers, x.format, x.node))
    return tensor_of(OperationResult(as_operand(x, "data"), None, None))


def tensor_of(result: OperationResult) -> Tensor:
    """The tensor that the result of an operation is."""
    tensor = Tensor.__new__(Tensor)
    Variable.__init__(tensor, result.numbers, result.node is not None, result.format, result.node)
    if result.made_with is not None:
        tensor.made_with = result.made_with
    if result.moved is not None:
        tensor.moved = result.moved
    return tensor


def compose(name: str, steps: Callable[..., Tensor], *operands: Operand) -> Tensor:
    """The composite `name` of the catalog: `steps` of the operands as tensors; see `composites`."""
    return run_composite(name, steps, [as_tensor(x) for x in operands], tensor_of)


@overload
def concatenate(tensors: Sequence[Array], axis: int = 0) -> Array: ...


@overload
def concatenate(tensors: Sequence[Operand], axis: int = 0) -> Tensor: ...


@in_usual_environment
def concatenate(tensors: Sequence[Operand | Array], axis: int = 0) -> Tensor | Array:
    """Tensors and arrays one after the other along `axis`; their other axes have equal sizes.

    As in every movement no number is rounded. The result's `format` is the one that all have in common; of several it
    is the narrowest of them that holds the numbers of all, or else of the catalog (FP32 for BF16 and FP16); it is None
    if one of them is data, of which nothing is known.

    Arrays of :func:`simfloat.array` stay arrays of their format if no tensor is among the operands, in a simulation and
    outside; numbers beside them are rounded.

    Raises ValueError for no tensors, for shapes that do not fit, and for an axis that is not there.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     joined = sf.concatenate([sf.Tensor([1.0]), sf.Tensor([2.0, 3.0])])
        >>> joined.shape
        (3,)
    """
    array = _array_among(tensors)
    return tensor_of(joining.concatenate(tensors, axis)) if array is None else array._concatenate(tensors, axis)


@overload
def stack(tensors: Sequence[Array], axis: int = 0) -> Array: ...


@overload
def stack(tensors: Sequence[Operand], axis: int = 0) -> Tensor: ...


@in_usual_environment
def stack(tensors: Sequence[Operand | Array], axis: int = 0) -> Tensor | Array:
    """Tensors and arrays of one shape along a new axis, at the place `axis` of the result; else as `concatenate`.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     rows = sf.stack([sf.Tensor([1.0, 2.0]), sf.Tensor([3.0, 4.0])])
        >>> rows.shape
        (2, 2)
    """
    array = _array_among(tensors)
    return tensor_of(joining.stack(tensors, axis)) if array is None else array._stack(tensors, axis)


@overload
def where(condition: ArrayLike, a: Array, b: Array | float) -> Array: ...


@overload
def where(condition: ArrayLike, a: Operand, b: Operand) -> Tensor: ...


@in_usual_environment
def where(condition: ArrayLike, a: Operand | Array, b: Operand | Array) -> Tensor | Array:
    """The elements of `a` where `condition` holds, else those of `b`; the three shapes are broadcast.

    condition holds truth values, as comparisons of tensors do. The `format` is that of `concatenate`; a number such
    as 0.0 or -inf counts only where the other operand's format does not have it. Gradients of an operand that was
    broadcast are added through the policy's `reduce`.

    Raises ValueError for shapes that do not fit, and for a condition that holds no truth values.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     chosen = sf.where(np.array([True, False]), sf.Tensor([1.0, 2.0]), 0.0)
        >>> chosen.data
        array([1., 0.])
    """
    array = _array_among((a, b))
    return tensor_of(joining.where(condition, a, b)) if array is None else array._where(condition, a, b)


def _array_among(operands: Any) -> Array | None:
    """The first array that knows its format, where no tensor is among the operands: they are joined as such arrays."""
    members = operands if isinstance(operands, list | tuple) else ()
    if any(isinstance(one, Variable) for one in members):
        return None
    return next((one for one in members if isinstance(one, Array)), None)
