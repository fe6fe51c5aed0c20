"""The arithmetic of a recurrent layer's steps, as its single operations have it, on arrays and on recorded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.formulas import slopes
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, Elementwise
from simfloat.simulation.place import Place
from simfloat.torch.phases import target_operand


class RecurrentArithmetic(Elementwise):
    """The arithmetic of the steps of a layer in the forward pass: every operation at its own place."""

    def __init__(self, simulation: Simulation, path: str) -> None:
        self._simulation, self._path = simulation, path
        self._arithmetics: dict[str, Arithmetic] = {}
        self.products = self.place("linear")

    def place(self, operation: str) -> Place:
        """The place of an operation."""
        return self._simulation.place(operation, self._path)

    def _at(self, operation: str) -> Arithmetic:
        # A step asks about ten times for an arithmetic, and a layer has many steps: the place is found once a call of
        # the layer.
        arithmetic = self._arithmetics.get(operation)
        if arithmetic is None:
            arithmetic = self._arithmetics[operation] = self._arithmetic_of(self.place(operation))
        return arithmetic

    def _arithmetic_of(self, place: Place) -> Arithmetic:
        return place.forward

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """An operation of the catalog."""
        return self._at(operation).apply(operation, *operands)

    def relu(self, x: NDArray) -> NDArray:
        """x where it is above 0, else 0."""
        return self._at("relu").round(slopes.where_above(x, x))

    def hidden_gates(self, h: NDArray, weight: NDArray, path: str, bias: NDArray | None) -> NDArray:
        """Return the contribution of the hidden state to the gates, by the weight at a path."""
        place = self.products
        product = place.forward.matmul(h, weight, place.input(), place.input(path))
        return product if bias is None else self.add(product, bias)


class RecurrentGradients(RecurrentArithmetic):
    """The arithmetic of the backward pass through the steps of a layer."""

    def _arithmetic_of(self, place: Place) -> Arithmetic:
        return place.to_activation()

    def negative(self, g: NDArray) -> NDArray:
        """-g."""
        return self._at("negative").round(-g)

    def sigmoid(self, g: NDArray, y: NDArray) -> NDArray:
        """The gradient through a sigmoid."""
        return slopes.sigmoid(self._at("sigmoid"), g, y)

    def tanh(self, g: NDArray, y: NDArray) -> NDArray:
        """The gradient through a tanh."""
        return slopes.tanh(self._at("tanh"), g, y)

    def relu_slope(self, g: NDArray, y: NDArray) -> NDArray:
        """The gradient through a ReLU."""
        return self._at("relu").round(slopes.where_above(y, g))

    def concatenate(self, parts: Sequence[NDArray | None]) -> NDArray | None:
        """Gradients side by side."""
        like = next((x for x in parts if x is not None), None)
        return None if like is None else np.concatenate([np.zeros_like(like) if x is None else x for x in parts], 1)

    def to_state(self, g: NDArray, weight: NDArray, path: str) -> NDArray:
        """The gradient of the hidden state."""
        place = self.products
        return self._at("linear").matmul(g, weight.T, place.gradient, place.input(path))

    def to_weight(self, g: NDArray, h: NDArray, path: str, number: int) -> NDArray:
        """The gradient of the weight at a path."""
        place = self.products
        return place.to_weight(path, 1).matmul(g.T, h, place.gradient, place.input()).T

    def to_bias(self, g: NDArray, path: str, number: int) -> NDArray:
        """The gradient of the bias at a path."""
        return self.place("add").to_weight(path, 1).sum(g, (0,))

    def total(self, shares: Sequence[NDArray], path: str) -> NDArray:
        """The sum of shares in the gradient of a parameter, in their order."""
        first, *others = shares
        for x in others:
            first = self.products.to_weight(path, 1).add(first, x)
        return first


class RecordedGradients:
    """The derivatives of RecurrentSlopes as operations that autograd records, for gradients of gradients."""

    add, multiply, negative = staticmethod(torch.add), staticmethod(torch.mul), staticmethod(torch.neg)
    sigmoid = staticmethod(torch.ops.aten.sigmoid_backward)
    tanh = staticmethod(torch.ops.aten.tanh_backward)

    @staticmethod
    def relu_slope(g: torch.Tensor, y: torch.Tensor) -> Any:
        """The gradient through a ReLU."""
        return torch.ops.aten.threshold_backward(g, y, 0)

    @staticmethod
    def concatenate(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        """Gradients side by side."""
        like = next((x for x in parts if x is not None), None)
        return None if like is None else torch.cat([torch.zeros_like(like) if x is None else x for x in parts], 1)

    @staticmethod
    def to_state(g: torch.Tensor, weight: torch.Tensor, path: str) -> torch.Tensor:
        """The gradient of the hidden state."""
        return g.mm(weight.t())

    @staticmethod
    def to_weight(g: torch.Tensor, h: torch.Tensor, path: str, number: int) -> torch.Tensor:
        """The gradient of the weight, the operand of this number."""
        with target_operand(number):
            return g.t().mm(h).t()

    @staticmethod
    def to_bias(g: torch.Tensor, path: str, number: int) -> torch.Tensor:
        """The gradient of the bias, the operand of this number."""
        with target_operand(number):
            return g.sum(0)
