"""Replicas of a model, one after the other: each has a part of the batch, and their gradients are reduced to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate import all_reduce, sequential
from simfloat.autodiff import Parameter
from simfloat.autodiff.parameter import begin_update
from simfloat.checks import as_rectangular_array
from simfloat.nn import Module
from simfloat.train.feed import Batch


def split_batch(batch: Batch, replicas: int) -> list[Batch]:
    """The parts of a batch along the first axis, one for each replica.

    Raises ValueError where they would have several sizes: the mean of their losses would not be that of the batch.
    """
    xs, ys = (_split(part, replicas) for part in batch)
    return list(zip(xs, ys, strict=True))


def _split(part: Any, replicas: int) -> Sequence[Any]:
    """The parts of an array, or of each in a list or tuple."""
    if isinstance(part, list | tuple) and any(hasattr(inner, "shape") for inner in part):
        return [type(part)(each) for each in zip(*(_split(inner, replicas) for inner in part), strict=True)]
    array = part if hasattr(part, "shape") else as_rectangular_array(part, "a batch")
    if not array.ndim or not len(array) or len(array) % replicas:
        raise ValueError(
            f"Each batch is split into replicas={replicas} parts of one size along its first axis; got {array.shape}."
        )
    size = len(array) // replicas
    return [array[size * number : size * (number + 1)] for number in range(replicas)]


class Replicas:
    """A ``with`` block in which each replica's gradients are kept; at its end parameters have those of all.

    Every replica begins with the buffers that there were, and those of the first one stay.
    """

    def __init__(self, model: Module) -> None:
        self._model = model
        self._parameters = list(model.parameters())
        self._initial_buffers = _copy_buffers(model)
        self._first_buffers: dict[str, NDArray] = {}
        self._gradients: list[list[NDArray | None]] = []

    def __enter__(self) -> Replicas:
        return self

    def keep_gradients(self) -> None:
        """Keep the gradients that there are now: those of the next replica."""
        self._gradients.append([parameter.grad for parameter in self._parameters])
        if len(self._gradients) == 1:
            self._first_buffers = _copy_buffers(self._model)
        _put_buffers(self._model, self._initial_buffers)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        _put_buffers(self._model, self._first_buffers)
        for parameter, gradients in zip(self._parameters, zip(*self._gradients, strict=True), strict=True):
            present = [gradient for gradient in gradients if gradient is not None]
            if present:
                parameter.grad = _reduce_gradients(
                    parameter, [np.zeros_like(present[0]) if g is None else g for g in gradients]
                )


def _reduce_gradients(parameter: Parameter, gradients: Sequence[NDArray]) -> NDArray:
    """The mean of the gradients, as replicas in a ring make it: each divides its own, then they are added."""
    u = begin_update(parameter).to_replicas
    shares = [u.divide(gradient, np.array(float(len(gradients)))) for gradient in gradients]
    target = u.target
    adds = sequential(target.format, rounding=target.rounding)
    return all_reduce(np.stack(shares), accumulate=adds, stream=target.stream, observer=target.observer)


def _copy_buffers(model: Module) -> dict[str, NDArray]:
    return {path: array.copy() for path, array in model.named_buffers()}


def _put_buffers(model: Module, buffers: dict[str, NDArray]) -> None:
    """Give the model's modules these buffers, in arrays of their own."""
    modules = dict(model.named_modules())
    for path, array in buffers.items():
        module, _, name = path.rpartition(".")
        setattr(modules[module], name, array.copy())
