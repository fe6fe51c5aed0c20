"""Tensors: arrays that remember how they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat import autodiff
from simfloat.arithmetic._round import round_array
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.owned import Owned
from simfloat.autodiff.tape import Node, run_backward
from simfloat.formats import Format, nearest_even

if TYPE_CHECKING:
    from simfloat.autodiff.record import Operand
    from simfloat.autodiff.reductions import Axes


class Tensor:
    """An array of numbers, and the operation that made it.

    `data` and `grad` are NumPy arrays; `grad` is None before `backward`. Data enters as it is, float32 or float64; it
    is rounded only as an operand of a contraction or as a result. Operations work inside a `simulate` block.
    """

    is_weight = False  # whether its gradient takes the role of a weight's

    def __init__(self, data: ArrayLike | Tensor, requires_grad: bool = False) -> None:
        self.data = data.data if isinstance(data, Tensor) else data
        self.requires_grad = requires_grad
        self.grad: NDArray | None = None
        self.node: Node | None = None

    @property
    def data(self) -> NDArray[np.floating]:
        """The numbers."""
        return self._data

    @data.setter
    def data(self, value: ArrayLike) -> None:
        self._data = as_operand(value, "data")

    @property
    def path(self) -> str:
        """Its place in a model, for parameters; else empty."""
        return ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the data."""
        return self._data.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._data.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._data.size

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made it."""
        return self.node is None

    def item(self) -> float:
        """The only element as a Python float."""
        return float(self._data.item())

    def detach(self) -> Tensor:
        """The same data without its history."""
        return Tensor(self._data)

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Add the gradient of this tensor with respect to every leaf that requires one to the leaf's `grad`.

        gradient is that of the final result with respect to this tensor, of its shape; it may be left out, and is
        then one, for a tensor of one element.

        Raises ValueError if nothing that made this tensor requires a gradient.
        """
        if gradient is None:
            if self.size != 1:
                raise ValueError(f"backward without a gradient needs one element, got a tensor of shape {self.shape}.")
            gradient = np.ones(self.shape, self._data.dtype)
        gradient = as_operand(gradient, "gradient")
        if gradient.shape != self.shape:
            raise ValueError(f"The gradient has shape {gradient.shape}, the tensor {self.shape}.")
        run_backward(self, gradient)

    # --- operations ---------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.add(self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.add(other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.subtract(self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.subtract(other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.multiply(self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.multiply(other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.divide(self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.divide(other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.power(self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return autodiff.pointwise.power(other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return autodiff.contractions.matmul(self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return autodiff.contractions.matmul(other, self)

    def __neg__(self) -> Tensor:
        return autodiff.pointwise.negative(self)

    def __getitem__(self, key: Any) -> Tensor:
        return autodiff.movement.index(self, key)

    def abs(self) -> Tensor:
        """The absolute value."""
        return autodiff.pointwise.absolute(self)

    def square(self) -> Tensor:
        """The product with itself."""
        return autodiff.pointwise.square(self)

    def sqrt(self) -> Tensor:
        """The square root."""
        return autodiff.pointwise.sqrt(self)

    def exp(self) -> Tensor:
        """e to the power of every element."""
        return autodiff.pointwise.exp(self)

    def log(self) -> Tensor:
        """The natural logarithm."""
        return autodiff.pointwise.log(self)

    def log2(self) -> Tensor:
        """The logarithm to base 2."""
        return autodiff.pointwise.log2(self)

    def sin(self) -> Tensor:
        """The sine."""
        return autodiff.pointwise.sin(self)

    def cos(self) -> Tensor:
        """The cosine."""
        return autodiff.pointwise.cos(self)

    def erf(self) -> Tensor:
        """The error function."""
        return autodiff.pointwise.erf(self)

    def reciprocal(self) -> Tensor:
        """1 / x."""
        return autodiff.pointwise.reciprocal(self)

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
        return autodiff.pointwise.rsqrt(self)

    def power(self, exponent: Operand) -> Tensor:
        """Every element to the power `exponent`, as ``**``."""
        return autodiff.pointwise.power(self, exponent)

    def tanh(self) -> Tensor:
        """The hyperbolic tangent."""
        return autodiff.pointwise.tanh(self)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""
        return autodiff.pointwise.sigmoid(self)

    def relu(self) -> Tensor:
        """The larger of every element and zero."""
        return autodiff.pointwise.relu(self)

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, through the policy's accumulator, in row-major order."""
        return autodiff.reductions.sum(self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`, divided by the number of terms."""
        return autodiff.reductions.mean(self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest element along `axis`; the gradient goes to the first one that is."""
        return autodiff.reductions.maximum(self, axis, keepdims)

    def softmax(self, axis: int = -1) -> Tensor:
        """exp divided by its sum along `axis`, each step rounded."""
        return autodiff.composites.softmax(self, axis)

    def log_softmax(self, axis: int = -1) -> Tensor:
        """The logarithm of softmax, each step rounded."""
        return autodiff.composites.log_softmax(self, axis)

    def reshape(self, *shape: Any) -> Tensor:
        """The same numbers in another shape."""
        return autodiff.movement.reshape(self, *shape)

    def transpose(self, *axes: Any) -> Tensor:
        """The axes in another order, given one by one or as a tuple; reversed if none is given."""
        return autodiff.movement.transpose(self, *axes)

    @property
    def T(self) -> Tensor:
        """The axes in reversed order."""
        return autodiff.movement.transpose(self)

    #: NumPy arrays on the left leave an operation to the tensor.
    __array_ufunc__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._data!r}{', requires_grad=True' if self.requires_grad else ''})"

    def __len__(self) -> int:
        return len(self._data)


class Parameter(Owned, Tensor):
    """A tensor that a model learns: stored and updated in the policy's `weights`.

    A value outside that format is rounded to it, to nearest even, before its first use. `path` is its place in the
    model, such as ``hidden.0.weight``.
    """

    is_weight = True
    name = ""  # its path as long as no module owns it

    def __init__(self, data: ArrayLike | Tensor) -> None:
        super().__init__(data, requires_grad=True)

    @property
    def path(self) -> str:
        """The names from the model down to the parameter, joined by dots."""
        return super().path or self.name

    @property
    def data(self) -> NDArray[np.floating]:
        """The numbers; assigning them lets the next use round them to `weights`."""
        return self._data

    @data.setter
    def data(self, value: ArrayLike) -> None:
        self._data = as_operand(value, "data")
        self._format: Format | None = None

    def store(self, value: NDArray, format: Format) -> None:
        """Take numbers of `format` as the new value."""
        self._data = value
        self._format = format

    def conform(self, format: Format) -> None:
        """Round the value to `format` unless it is known to be in it."""
        if self._format != format:
            self.store(round_array(self._data, Target(format, nearest_even, carrier_of(format))), format)


def as_tensor(x: Tensor | ArrayLike) -> Tensor:
    """`x` itself if it is a tensor, else a constant one."""
    return x if isinstance(x, Tensor) else Tensor(x)
