"""Operations of users, which policies and observers know by name: primitives with derivatives, and composites."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper, wraps
from inspect import Parameter, Signature, getdoc, isfunction, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.bounds import bounds_of
from simfloat.accumulate.operand_bounds import first_outside_format
from simfloat.arithmetic.catalog import Kind, Operation, register
from simfloat.arithmetic.machines import as_array, device_of, is_on_gpu
from simfloat.arithmetic.observer import notify
from simfloat.arithmetic.operands import broadcast_shape
from simfloat.autodiff.record import BegunOperation, begin, finish, sum_to_shape
from simfloat.autodiff.tensor import Tensor, compose, tensor_of
from simfloat.autodiff.user_arithmetic import GRADIENT, UserArithmetic
from simfloat.autodiff.variable import Variable, as_variable
from simfloat.formulas.rounded import Slope
from simfloat.simulation.arithmetic import Arithmetic, Input, PendingEvents

#: What an operation of a user can be.
KINDS = ("pointwise", "reduction", "contraction", "composite")

Inputs = dict[str, Input]


def operation(
    *derivatives: Slope | None, kind: Kind = "pointwise", name: str | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function below becomes an operation of tensors that obeys policies as the package's own do.

    The function takes ``(u, *operands, **options)``: the arithmetic of the place where it runs
    (:class:`~simfloat.autodiff.user_arithmetic.UserArithmetic`), one array for each operand, and options, which are
    keyword-only. There is a derivative for each operand: a function ``(u, g, y, *operands, **options)`` of the backward
    pass's arithmetic, the gradient `g` of the result `y`, and the same again; None where there is none::

        def swish_slope(u, g, y, x):
            s = u.sigmoid(x)
            return u.multiply(g, u.fma(y, u.subtract(1, s), s))

        @sf.operation(swish_slope)
        def swish(u, x):
            "x * sigmoid(x)."
            return u.multiply(x, u.sigmoid(x))

        with sf.simulate("bf16-standard"):
            y = swish(sf.Tensor([1.0, 2.0], requires_grad=True))

    What these functions return are results of `u`, or taken from such: numbers of ``u.format``. Kinds are

    * ``"pointwise"``: operands broadcast; gradients have the shape of the result, and are summed to the operand's;
    * ``"reduction"``: any shapes; gradients have the operand's;
    * ``"contraction"``: the same, and ``u.matmul`` rounds operands to the policy's `compute`;
    * ``"composite"``: a function of tensors, made of operations that have derivatives. It takes no `u`, and has none of
      its own.

    Overrides, observers and random streams know the operation by its name, by default the function's. Defined again, as
    in a notebook, it takes the place of the old one. It is pickled by reference, as functions are.

    Raises ValueError for an unknown kind, a name that another operation has, and a number of derivatives that is not
    that of the operands; when it runs, for results that are no numbers of the format or of another shape.
    """
    if kind not in KINDS:
        raise ValueError(f"The kind of an operation is one of {', '.join(KINDS)}; got {kind!r}.")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not isfunction(function):
            raise ValueError(
                f"Write @simfloat.operation(...), its derivatives in parentheses, above a function; got {function!r}."
            )
        called = function.__name__ if name is None else name
        operands = _operands(function)[0 if kind == "composite" else 1 :]
        if not operands:
            first = "tensors" if kind == "composite" else "the arithmetic and of arrays"
            raise ValueError(f"The operation {called!r} needs an operand: a function of {first}; got {function!r}.")
        _check_derivatives(called, derivatives, () if kind == "composite" else operands)
        row = Operation(called, operands, kind, (getdoc(function) or "").partition("\n")[0])
        register(row, function.__module__)
        return _composite(called, function) if kind == "composite" else Primitive(row, function, derivatives)

    return decorate


def _operands(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that are not keyword-only."""
    parameters = signature(function).parameters.values()
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in parameters):
        raise ValueError(f"The operands and options of an operation are known by name; {function.__name__} takes any.")
    return tuple(p.name for p in parameters if p.kind is not Parameter.KEYWORD_ONLY)


def _check_derivatives(name: str, derivatives: tuple[Slope | None, ...], operands: tuple[str, ...]) -> None:
    if len(derivatives) != len(operands):
        each = f"a derivative for each of its operands, {', '.join(operands)}" if operands else "no derivatives"
        raise ValueError(f"The operation {name!r} takes {each}: expected {len(operands)}, got {len(derivatives)}.")
    for derivative in derivatives:
        if derivative is not None and not callable(derivative):
            raise ValueError(
                f"A derivative of {name!r} is a function, or None where there is none; got {derivative!r}."
            )


def _composite(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose operations are parts of the composite `name`."""

    @wraps(function)
    def run(*operands: Any, **options: Any) -> Any:
        values = [*operands, *options.values()]
        tensors = [i for i, value in enumerate(values) if isinstance(value, Variable)]

        def body(*inside: Variable) -> Any:
            tensor_at = dict(zip(tensors, inside, strict=True))
            now = [tensor_at.get(i, value) for i, value in enumerate(values)]
            return function(*now[: len(operands)], **dict(zip(options, now[len(operands) :], strict=True)))

        return compose(name, body, *(values[i] for i in tensors))

    return run


class Primitive:
    """See :func:`simfloat.operation`. Called with tensors, arrays or numbers, it gives a tensor."""

    def __init__(self, row: Operation, forward: Callable[..., NDArray], slopes: tuple[Slope | None, ...]) -> None:
        update_wrapper(self, forward)
        arithmetic, *parameters = signature(forward).parameters.values()
        self.__signature__ = signature(forward).replace(parameters=parameters, return_annotation=Signature.empty)
        self._row, self._forward, self._slopes = row, forward, slopes

    def __call__(self, *operands: Any, **options: Any) -> Tensor:
        """The result of the operation on tensors, arrays and numbers, recorded for backward."""
        bound = self.__signature__.bind(*operands, **options)
        bound.apply_defaults()
        started = begin(self._row.name, *map(as_variable, bound.args))
        inputs = self._inputs(started)
        arrays, arithmetic = _on_one_device([x.numbers for x in started.operands]), started.forward
        result = self._run_forward(arithmetic, inputs, arrays, bound.kwargs)
        shape = broadcast_shape(arrays) if self._row.kind == "pointwise" else None
        numbers = _numbers_of(result, arithmetic, "result", shape)
        derivatives = [
            partial(self._gradient, number, numbers, arrays, bound.kwargs, inputs) for number in range(len(arrays))
        ]
        return tensor_of(finish(started, numbers, arithmetic.format, *derivatives, reads="both"))

    def _run_forward(
        self, arithmetic: Arithmetic, inputs: Inputs, arrays: list[NDArray], options: dict[str, Any]
    ) -> NDArray:
        """The result as the user computes it; an observer receives the last rounding under the operation's name."""
        observer = arithmetic.target.observer
        if observer is None:
            return self._forward(UserArithmetic(arithmetic, inputs), *arrays, **options)
        pending_events = PendingEvents(observer)
        result = self._forward(UserArithmetic(arithmetic.with_observer(pending_events), inputs), *arrays, **options)
        for number, (counts, step) in enumerate(pending_events.pending, 1):
            notify(observer, counts, self._row.name if number == len(pending_events.pending) else step)
        return result

    def _inputs(self, started: BegunOperation) -> Inputs:
        """How the operands of a contraction are rounded, by their names."""
        if self._row.kind != "contraction":
            return {}
        inputs = {name: started.input(number) for number, name in enumerate(self._row.operands)}
        return {**inputs, GRADIENT: started.place.gradient}

    def _gradient(
        self, number: int, result: NDArray, arrays: list[NDArray], options: dict[str, Any], inputs: Inputs,
        arithmetic: Arithmetic, g: NDArray,
    ) -> NDArray:  # fmt: skip
        """The gradient with respect to the operand of this number, from that of the result."""
        name, slope, shape = self._row.operands[number], self._slopes[number], arrays[number].shape
        if slope is None:
            raise ValueError(f"{arithmetic.where} has no derivative with respect to {name}, which requires a gradient.")
        gradient = slope(UserArithmetic(arithmetic, inputs), g, result, *arrays, **options)
        what = f"gradient with respect to {name}"
        if self._row.kind != "pointwise":
            return _numbers_of(gradient, arithmetic, what, shape)
        return sum_to_shape(arithmetic, _numbers_of(gradient, arithmetic, what, g.shape), shape)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    def __repr__(self) -> str:
        return f"<operation {self._row.name}{self.__signature__}>"


def _on_one_device(arrays: list[NDArray]) -> list[NDArray]:
    """The operands, single numbers beside the others."""
    machine = device_of(*arrays)
    return [machine.to_device(array) for array in arrays]


def _numbers_of(x: Any, arithmetic: Arithmetic, what: str, shape: tuple[int, ...] | None) -> NDArray:
    """What a user's function returned; ValueError unless it is an array of the format's numbers in that shape."""
    format, where = arithmetic.format, f"The {what} of {arithmetic.where}"
    if not (isinstance(x, np.ndarray | np.floating) or is_on_gpu(x)) or x.dtype not in (np.float32, np.float64):
        raise ValueError(f"{where} must be an array of floats, made by its arithmetic; got {x!r}.")
    if shape is not None and x.shape != shape:
        raise ValueError(f"{where} must have the shape {shape}, got {x.shape}.")
    array = as_array(x)
    if not bounds_of(array).need_no_rounding(format):
        stranger = first_outside_format(array, format)
        if stranger is not None:
            raise ValueError(
                f"{where} holds {array[stranger]!r} at index {stranger}, which is no number of {format}: compute it by "
                "the arithmetic that comes first, or end by its round."
            )
    return array.astype(arithmetic.target.dtype, copy=False)
