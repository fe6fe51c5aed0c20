"""A primitive of a user: how it is carried out at its place, and how gradients go back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from inspect import Signature, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.bounds import bounds_of
from simfloat.accumulate.operand_bounds import first_stranger
from simfloat.arithmetic.catalog import Operation
from simfloat.arithmetic.operands import broadcast_shape
from simfloat.autodiff.record import Started, begin, finish, summed_to
from simfloat.autodiff.tape import Collected
from simfloat.autodiff.tensor import Tensor, tensor_of
from simfloat.autodiff.user_arithmetic import GRADIENT, UserArithmetic
from simfloat.autodiff.variable import as_variable
from simfloat.simulation.arithmetic import Arithmetic, Input

#: (arithmetic, gradient of the result, result, *operands, **options) -> gradient of one operand
Slope = Callable[..., NDArray]
Inputs = dict[str, Input]


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
        arrays, arithmetic = [x.numbers for x in started.operands], started.forward
        result = self._carried_out(arithmetic, inputs, arrays, bound.kwargs)
        shape = broadcast_shape(arrays) if self._row.kind == "pointwise" else None
        numbers = _numbers_of(result, arithmetic, "result", shape)
        derivatives = [
            partial(self._gradient, number, numbers, arrays, bound.kwargs, inputs) for number in range(len(arrays))
        ]
        return tensor_of(finish(started, numbers, arithmetic.format, *derivatives, reads="both"))

    def _carried_out(
        self, arithmetic: Arithmetic, inputs: Inputs, arrays: list[NDArray], options: dict[str, Any]
    ) -> NDArray:
        """The result as the user computes it; an observer hears of the last rounding by the operation's name."""
        observer = arithmetic.target.observer
        if observer is None:
            return self._forward(UserArithmetic(arithmetic, inputs), *arrays, **options)
        collected = Collected(observer)
        result = self._forward(UserArithmetic(arithmetic.heard_by(collected), inputs), *arrays, **options)
        for number, (events, step) in enumerate(collected.received, 1):
            observer.observe(events, self._row.name if number == len(collected.received) else step)
        return result

    def _inputs(self, started: Started) -> Inputs:
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
        return summed_to(arithmetic, _numbers_of(gradient, arithmetic, what, g.shape), shape)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    def __repr__(self) -> str:
        return f"<operation {self._row.name}{self.__signature__}>"


def _numbers_of(x: Any, arithmetic: Arithmetic, what: str, shape: tuple[int, ...] | None) -> NDArray:
    """What a user's function returned; ValueError unless it is an array of the format's numbers in that shape."""
    format, where = arithmetic.format, f"The {what} of {arithmetic.where}"
    if not isinstance(x, np.ndarray | np.floating) or x.dtype not in (np.float32, np.float64):
        raise ValueError(f"{where} must be an array of floats, made by its arithmetic; got {x!r}.")
    if shape is not None and x.shape != shape:
        raise ValueError(f"{where} must have the shape {shape}, got {x.shape}.")
    array = np.asarray(x)
    if not bounds_of(array).unchanged_by(format):
        stranger = first_stranger(array, format)
        if stranger is not None:
            raise ValueError(
                f"{where} holds {array[stranger]!r} at index {stranger}, which is no number of {format}: compute it by "
                "the arithmetic that comes first, or end by its round."
            )
    return array.astype(arithmetic.target.dtype, copy=False)
