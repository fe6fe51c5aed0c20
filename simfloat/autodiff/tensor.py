"""Tensors: arrays with a record of their operations; and the protocols of Python, NumPy and PyTorch.

A tensor with one element can be converted to a number; every tensor can be converted to a NumPy array and compared. A
NumPy function of tensors is an operation of the policy if it is exactly one; otherwise it raises ValueError. Error
messages translate the names of PyTorch.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from simfloat.arithmetic.machines import as_array, device_of
from simfloat.arithmetic.numpy_protocol import NumpyProtocol, refuse_readers
from simfloat.arithmetic.operands import as_operand
from simfloat.arithmetic.spacing import place_of_largest
from simfloat.arrays import Array
from simfloat.autodiff import movement
from simfloat.autodiff.composites import Composites, run_composite
from simfloat.autodiff.contractions import ConstantProducts, Contractions, Convolutions
from simfloat.autodiff.movement import Indexing, Joining, Reshaping
from simfloat.autodiff.pointwise import Pointwise
from simfloat.autodiff.record import Operand, OperationResult, Operations, Result, run_backward
from simfloat.autodiff.reductions import Pooling, Reductions
from simfloat.autodiff.variable import Variable
from simfloat.common import check_flags
from simfloat.environment import in_usual_environment


def _refusing_method(sign: str, function: str) -> Callable[..., Any]:
    """Return a method that raises the error for a Python operator that no policy supports."""

    def method(self: Any, *_: Any) -> Any:
        raise ValueError(
            f"A tensor does not support {sign}, which no policy rounds: compute numpy.{function}(numpy.asarray(x), "
            "...) without the policy, or write it in operations of tensors."
        )

    return method


@in_usual_environment
class Comparable(Variable):
    """The Python protocols of a tensor. They are not operations of a policy, and round nothing.

    Comparisons return boolean arrays. Tensors are hashed by identity.
    """

    __hash__ = object.__hash__

    def item(self) -> float:
        """Return the only element as a Python float; ValueError if the tensor does not have exactly one element."""
        if self.numbers.size != 1:
            raise ValueError(f"Only a tensor of one element is a number; this one has the shape {self.numbers.shape}.")
        return float(self.numbers.item())

    def argmax(self, axis: int | None = None) -> Any:
        """Return the index of the largest element along `axis`, or in row-major order, as numpy.argmax does."""
        return place_of_largest(self.numbers, axis)

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    __floordiv__ = __rfloordiv__ = _refusing_method("//", "floor_divide")
    __mod__ = __rmod__ = _refusing_method("%", "remainder")
    __divmod__ = __rdivmod__ = _refusing_method("divmod", "divmod")
    __round__ = _refusing_method("round to decimal digits", "round")

    def __len__(self) -> int:
        if not self.numbers.ndim:
            raise TypeError(
                "A tensor without axes has no length. Use torch.as_tensor(x.data) in PyTorch, and numpy.asarray(x) "
                "elsewhere."
            )
        return len(self.numbers)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        refuse_readers("tensors", "the policy and without a gradient", NumpyProtocol.alternatives)
        return np.array(getattr(self, "data", self.numbers), dtype, copy=copy)

    def _compare(self, compare: Callable[[Any, Any], Any], other: Any) -> NDArray[np.bool_]:
        """Compare the exact values with others; NumPy would first convert Python floats to float32."""
        try:
            operand = other.numbers if isinstance(other, Variable) else as_operand(other, "other")
        except ValueError as error:
            raise ValueError(f"A tensor cannot be compared with {type(other).__name__}: {error}") from None
        machine = device_of(self.numbers, operand)
        return as_array(compare(machine.to_device(self.numbers), machine.to_device(operand)))

    def __lt__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.lt, other)

    def __le__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.le, other)

    def __gt__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.gt, other)

    def __ge__(self, other: Variable | ArrayLike) -> NDArray[np.bool_]:
        return self._compare(operator.ge, other)

    def __eq__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.eq, other) if _holds_numbers(other) else as_array(self.numbers == other)

    def __ne__(self, other: object) -> NDArray[np.bool_]:  # type: ignore[override]
        return self._compare(operator.ne, other) if _holds_numbers(other) else as_array(self.numbers != other)


def _holds_numbers(x: object) -> bool:
    """True if `x` may be equal to numbers; False for text, None and unknown objects."""
    return hasattr(x, "__float__") or hasattr(x, "__array__") or isinstance(x, list | tuple | complex)


#: Names of PyTorch -> names of simfloat.
NAMES = {
    **dict.fromkeys(("bfloat16", "double", "float", "half"), "the policy, which chooses formats"),
    "absolute": "abs", "amax": "max", "amin": "min", "argmin": "data.argmin", "bmm": "matmul",
    "chunk": "split", "clamp": "clip", "clone": "detach", "contiguous": "not needed", "cpu": "data",
    "cuda": "Module.to", "dim": "ndim", "div": "/", "expand": "broadcast_to", "mm": "matmul", "mul": "*",
    "movedim": "transpose", "neg": "-", "numel": "size", "numpy": "data", "permute": "transpose", "pow": "**",
    "repeat": "broadcast_to and reshape", "repeat_interleave": "unsqueeze, broadcast_to and reshape",
    "std": "var and sqrt", "sub": "-", "t": "T", "tolist": "data.tolist", "unflatten": "reshape", "view": "reshape",
}  # fmt: skip

#: PyTorch functions behind operators: if they return NotImplemented, Python calls the operator of our tensor.
OPERATORS = frozenset("add sub mul div true_divide pow matmul eq ne lt le gt ge".split())


#: Subpackages of PyTorch -> their equivalents, by subpackage of simfloat.
ROOMS = {
    "nn": {
        "functional": "losses are functions of simfloat.nn, and other operations methods of tensors, such as x.relu()",
        "utils": "clip_grad_norm_ and clip_grad_value_ are functions of simfloat.optim",
    },
    "optim": {
        "GradScaler": "it is simfloat.optim.DynamicLossScale",
        "lr_scheduler": "schedules are names of simfloat.optim itself, such as simfloat.optim.StepLR",
    },
}


def missing(room: str, name: str) -> AttributeError:
    """Return the error for an unknown name in a subpackage."""
    module, hint = f"simfloat.{room}", ROOMS[room].get(name, "")
    text = f"module {module!r} has no attribute {name!r}{hint and f': {hint}.'}"
    # With both, Python adds the nearest name to the message.
    return AttributeError(text, name=name, obj=sys.modules[module])


class TorchHints:
    """Errors for names and functions of PyTorch that tensors do not have; they name the equivalent in simfloat."""

    if not TYPE_CHECKING:  # type checkers know the names

        def __getattr__(self, name: str) -> Any:
            hint = f"; in simfloat it is {NAMES[name]}" if name in NAMES else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raise ValueError for a function of PyTorch; return NotImplemented for its operators."""
        name = getattr(function, "__name__", str(function))
        if name in OPERATORS or name.startswith("__"):
            return NotImplemented
        raise ValueError(
            f"PyTorch's {name} takes tensors of PyTorch, got a simfloat.{cls.__name__}: use the functions of simfloat, "
            "or run a PyTorch model under simfloat.torch.simulate; torch.as_tensor(x.data) returns the values."
        )


@in_usual_environment
class NumpyFunctions(Operations[Result], NumpyProtocol):
    """NumPy's protocol for functions of other array types."""

    name_in_messages: ClassVar[str] = "tensors"
    bypassed_rule: ClassVar[str] = "the policy and without a gradient"
    internal_names: ClassVar[frozenset[str]] = frozenset(
        "current_format from_result gradient_scaler is_weight made_with moved node operand_at operand_in origin "
        "scaled stored_format times_factors trace".split()
    )
    unlike_ufuncs: ClassVar[frozenset[str]] = frozenset({"remainder"})  # the method is the remainder of IEEE 754

    def _as_operand_array(self, x: Any) -> Any:
        """Return an operand as a tensor; other types become constants."""
        return x if isinstance(x, NumpyFunctions) else self.from_result(OperationResult(as_operand(x), None, None))

    def _concatenate(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.from_result(movement.concatenate(arrays, axis))

    def _stack(self, arrays: Sequence[Any], axis: int) -> Result:
        return self.from_result(movement.stack(arrays, axis))

    def _where(self, condition: Any, x: Any, y: Any) -> Result:
        return self.from_result(movement.where(condition, x, y))


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
    """An array, and the operation that created it.

    Input data are not rounded: they keep their type, float32 or float64. Values are rounded as operands of a
    contraction and as results. Operations work only inside a `simulate` block.

    `data` and `grad` are arrays; `grad` is None before `backward`. `format` is the format of the values, None for
    input data; data movement keeps it.

    Parameters:
        data: an array, a tensor or numbers.
        requires_grad: True to compute the gradient with respect to this tensor in `backward`.

    Raises:
        ValueError: if `data` are not real numbers, or `requires_grad` is not True or False.

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
        """The values. Do not write to them between a forward pass and a backward pass that reads them."""
        if self.node is not None:
            self.node.origin.watch(self.numbers)
        return self.numbers

    @data.setter
    def data(self, value: ArrayLike) -> None:
        self.numbers = as_operand(value, "data")
        self.format = self.made_with = None

    @staticmethod
    def from_result(result: OperationResult) -> Tensor:
        """Return the result of an operation as a tensor."""
        tensor = Tensor.__new__(Tensor)
        # The constructor of `Variable`, written out: every operation creates a tensor.
        tensor.numbers, tensor.requires_grad = result.numbers, result.node is not None
        tensor.format, tensor.node, tensor._grad = result.format, result.node, None
        if result.made_with is not None:
            tensor.made_with = result.made_with
        if result.moved is not None:
            tensor.moved = result.moved
        return tensor

    def detach(self) -> Tensor:
        """Return a tensor with the same data and without history."""
        return tensor_of(OperationResult(self.data, self.format, None, self.made_with))

    def backward(self, gradient: ArrayLike | None = None) -> None:
        """Compute the gradient with respect to every leaf that requires one, and add it to the `grad` of the leaf.

        `gradient` is the gradient of the final result with respect to this tensor, with its shape. For a tensor of
        one element it may be left out; it is then one. The new gradient of a leaf is complete before it is added to
        the old one.

        Raises ValueError if no operand of this tensor requires a gradient, or the shape of `gradient` is wrong.
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

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return self.abs()

    def __setitem__(self, key: Any, value: Any) -> None:
        raise ValueError(
            "Elements of a tensor cannot be assigned, because its history would not contain the change. Create a new "
            "tensor, for example by simfloat.where, or, before any operation has used it, write to t.data[...] = ..."
        )

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.numbers!r}{', requires_grad=True' if self.requires_grad else ''})"


def as_tensor(x: Operand) -> Tensor:
    """Return `x` if it is a tensor, otherwise a constant tensor."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, Variable):
        return tensor_of(OperationResult(x.numbers, x.format, x.node))
    return tensor_of(OperationResult(as_operand(x, "data"), None, None))


#: The function that returns the result of an operation as a tensor.
tensor_of = Tensor.from_result


def compose(name: str, steps: Callable[..., Tensor], *operands: Operand) -> Tensor:
    """Run the composite `name` of the catalog: `steps` applied to the operands as tensors; see `composites`."""
    return run_composite(name, steps, [as_tensor(x) for x in operands], tensor_of)


@overload
def concatenate(tensors: Sequence[Array], axis: int = 0) -> Array: ...


@overload
def concatenate(tensors: Sequence[Operand], axis: int = 0) -> Tensor: ...


@in_usual_environment
def concatenate(tensors: Sequence[Operand | Array], axis: int = 0) -> Tensor | Array:
    """Join tensors and arrays along an axis.

    This is data movement: nothing is rounded. The `format` of the result is the common format of the operands. If
    formats differ, it is the narrowest of them that can represent all values, otherwise a wider one of the catalog
    (FP32 for BF16 and FP16). It is None if one operand is input data without a format.

    If no operand is a tensor and one is a :func:`simfloat.array`, the result is an array of its format, inside a
    simulation and outside. Operands without a format are then rounded.

    Parameters:
        tensors: a list or tuple of tensors and arrays with equal sizes along the other axes.
        axis: the axis along which they are joined.

    Returns:
        A `Tensor`, or an `Array`.

    Raises:
        ValueError: if there are no operands, the shapes do not fit, or the axis does not exist.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     joined = sf.concatenate([sf.Tensor([1.0]), sf.Tensor([2.0, 3.0])])
        >>> joined.shape
        (3,)
    """
    array = _array_among(tensors)
    return tensor_of(movement.concatenate(tensors, axis)) if array is None else array._concatenate(tensors, axis)


@overload
def stack(tensors: Sequence[Array], axis: int = 0) -> Array: ...


@overload
def stack(tensors: Sequence[Operand], axis: int = 0) -> Tensor: ...


@in_usual_environment
def stack(tensors: Sequence[Operand | Array], axis: int = 0) -> Tensor | Array:
    """Join tensors and arrays of one shape along a new axis.

    Parameters:
        tensors: a list or tuple of tensors and arrays of one shape.
        axis: the position of the new axis in the result.

    Returns:
        A `Tensor`, or an `Array`, with a format as in `concatenate`.

    Raises:
        ValueError: if there are no operands, the shapes differ, or the axis does not exist.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     rows = sf.stack([sf.Tensor([1.0, 2.0]), sf.Tensor([3.0, 4.0])])
        >>> rows.shape
        (2, 2)
    """
    array = _array_among(tensors)
    return tensor_of(movement.stack(tensors, axis)) if array is None else array._stack(tensors, axis)


@overload
def where(condition: ArrayLike, a: Array, b: Array | float) -> Array: ...


@overload
def where(condition: ArrayLike, a: Operand, b: Operand) -> Tensor: ...


@in_usual_environment
def where(condition: ArrayLike, a: Operand | Array, b: Operand | Array) -> Tensor | Array:
    """Select elements of `a` where `condition` is True, otherwise elements of `b`.

    The `format` of the result follows the rule of `concatenate`; a constant such as 0.0 or -inf is ignored if it is a
    number of the format of the other operand. Gradients of an operand that was broadcast are summed with the
    accumulator `reduce` of the policy.

    Parameters:
        condition: an array of booleans, such as a comparison of tensors.
        a, b: tensors, arrays or numbers; the three shapes are broadcast.

    Returns:
        A `Tensor`, or an `Array`.

    Raises:
        ValueError: if the shapes do not fit, or the condition does not consist of booleans.

    Examples:
        >>> with sf.simulate("fp32"):
        ...     chosen = sf.where(np.array([True, False]), sf.Tensor([1.0, 2.0]), 0.0)
        >>> chosen.data
        array([1., 0.])
    """
    array = _array_among((a, b))
    return tensor_of(movement.where(condition, a, b)) if array is None else array._where(condition, a, b)


def _array_among(operands: Any) -> Array | None:
    """Return the first array with a format, unless one of the operands is a tensor."""
    members = operands if isinstance(operands, list | tuple) else ()
    if any(isinstance(one, Variable) for one in members):
        return None
    return next((one for one in members if isinstance(one, Array)), None)
