"""Adaptive loss scaling: the factor of each layer is found during the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import compute_with_draw
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.variable import Node, Variable
from simfloat.formats import Format, nearest_even
from simfloat.optim.float64_sums import sum_of_squares
from simfloat.optim.loss_scale import Losses, LossScale, as_scale
from simfloat.optim.optimizer_options import number, number_from_zero

#: How many products make an element of the gradient of an operand: of x, and of a weight that is no parameter.
#: A weight has so many elements for each channel of x; channels lie along the last axis of x, or that of images.
FANS: dict[str, tuple[Callable[..., int], Callable[..., int]]] = {
    "linear": (lambda x, w: w.size // max(x.shape[-1], 1), lambda x, w: x.size // max(x.shape[-1], 1)),
    "conv2d": (lambda x, w: w.size // x.shape[1], lambda x, w: x.size // x.shape[1]),
    "conv_transpose2d": (lambda x, w: w.size // x.shape[1], lambda x, w: x.size // x.shape[1]),
    "matmul": (
        lambda a, b: b.shape[-1] if b.ndim > 1 else 1,
        lambda a, b: a.shape[-2] if a.ndim > 1 else 1,
    ),
}


class LayerwiseLossScale(LossScale):
    """Adaptive loss scaling: each contraction multiplies the gradient that it hands on by a factor of its own.

    A gradient g that comes to a layer with weight W would leave it with the standard deviation
    rms(g) * rms(W) * sqrt(fan / 2), if its fan products were independent and half of them zero, as behind a ReLU.
    The factor lets a share `underflow` of a normal distribution of that width fall below the smallest number of the
    gradients' format. It is a power of two from 1 to `max_factor`, and no more than lets the sums, and all factors so
    far together, stay below the format's largest number and `max_scale`. Gradients of weights do not take their own
    layer's factor. Where gradients meet, all are brought to the largest of their scales that does not overflow.

    `backward` is to be called on what `scale` gives; init_scale is S, the factor of the loss. Factors are found anew in
    every backward pass and `unscale_` takes them out of each parameter by itself; S stays as it is.

    Source: Zhao et al. 2019, arXiv 1910.12385, with its defaults for FP16.

    Raises ValueError for a max_factor or max_scale below 1, and for a share that is not from 1e-12 to below 1.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.LayerwiseLossScale()
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> sorted(scaler.state_dict())
        ['max_factor', 'max_scale', 'scale', 'underflow']
    """

    state_names = dict.fromkeys(("underflow", "max_factor", "max_scale"), False)

    def __init__(
        self,
        init_scale: float = 1.0,
        *,
        underflow: float = 1e-3,
        max_factor: float = 16.0,
        max_scale: float = 1024.0,
    ) -> None:
        super().__init__(as_scale("init_scale", init_scale))
        number("underflow", underflow)
        if not 1e-12 <= underflow < 1:
            raise ValueError(f"underflow must be a share from 1e-12 to below 1, got {underflow!r}.")
        for name, value in (("max_factor", max_factor), ("max_scale", max_scale)):
            number_from_zero(name, value)
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}.")
        self.underflow, self.max_factor, self.max_scale = float(underflow), float(max_factor), float(max_scale)
        self._leaves: dict[int, tuple[Variable, float]] = {}

    def scale(self, loss: Losses) -> Losses:
        """The loss times S; on the way back from it every layer takes a factor of its own."""
        scaled = super().scale(loss)
        if isinstance(scaled, Variable):
            scaled.gradient_scaler = _BackwardScales(self)
        return scaled

    def scale_of(self, parameter: Variable) -> float:
        """The factor that its gradient has before it is unscaled: S, and those of the layers that it came through."""
        return self._leaves.get(id(parameter), (parameter, self._scale))[1]

    def update(self, new_scale: float | None = None) -> None:
        """Forget the factors of the layers; S becomes `new_scale` if it is given."""
        super().update(new_scale)
        self._leaves = {}

    def remember_scale(self, leaf: Variable, scale: float) -> None:
        """Remember the factor that the gradient of a leaf has."""
        self._leaves[id(leaf)] = leaf, scale

    def factor(self, node: Node, place: int, g: NDArray, scale: float) -> float:
        """By what the gradient g, whose scale is given, is multiplied before it goes on to the operand at `place`."""
        operation = node.place.operation
        if operation not in FANS or node.paths[place] is not None or len(node.read) != 2:
            return 1.0
        fan = FANS[operation][place](*node.parents)
        other = node.read[1 - place]
        deviation = _rms(g) * _rms(other) * math.sqrt(0.5 * fan)
        if not 0 < deviation < math.inf:
            return 1.0
        format = node.arithmetic(place).format
        factor_for_underflow = format.smallest_subnormal / (deviation * NormalDist().inv_cdf((1 + self.underflow) / 2))
        room = format.max / (_largest(g) * max(fan * _largest(other), 1.0))
        most = min(factor_for_underflow, room, self.max_factor, self.max_scale / scale)
        return 2.0 ** math.floor(math.log2(most)) if most >= 1 else 1.0

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles take: the factors of leaves, without identities, which are others there."""
        return {**super().__getstate__(), "_leaves": list(self._leaves.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_leaves": {id(entry[0]): entry for entry in state["_leaves"]}})

    def with_state(self, state: Any) -> LayerwiseLossScale:
        """A scaler in this state, which names everything; ValueError for a value that it cannot have."""
        return LayerwiseLossScale(state["scale"], **{name: state[name] for name in self.state_names})


class _BackwardScales:
    """The scales of all gradients on one way back."""

    def __init__(self, scaler: LayerwiseLossScale) -> None:
        self._scaler = scaler
        self._scales: dict[int, float] = {}  # of the gradients of variables, by identity

    def rescale(
        self, variable: Variable, node: Node, number: int, gradient: NDArray, before: NDArray | None
    ) -> tuple[NDArray, NDArray | None]:
        """A gradient times its layer's factor, and what it is to be added to, in one scale."""
        scaler, parent, format = self._scaler, node.parents[number], node.arithmetic(number).format
        scale = self._scales.get(id(variable), 1.0)
        if node.place.operation == "scale":
            scale *= scaler.get_scale()  # the operation itself multiplies
        common = reached = scale * scaler.factor(node, number, gradient, scale)
        older = parent.grad if parent.is_leaf else None  # of an earlier backward pass
        earlier = [array for array in (before, older) if array is not None]
        if earlier:
            scale_before = scaler.scale_of(parent) if parent.is_leaf else self._scales[id(parent)]
            risen = max(map(_largest, earlier)) if scale_before < reached else _largest(gradient) * reached / scale
            low, high = sorted((scale_before, reached))
            common = high if risen * (high / low) <= format.max else low
            before = None if before is None else _times(before, common / scale_before, format)
            if older is not None:
                parent.grad = _times(older, common / scale_before, format)
        self._scales[id(parent)] = common
        if parent.is_leaf:
            scaler.remember_scale(parent, common)
        return _times(gradient, common / scale, format), before


def _times(x: NDArray, factor: float, format: Format) -> NDArray:
    """x times a power of two, rounded to nearest even where it has to be."""
    if factor == 1:
        return x
    target = Target(format, nearest_even, carrier_of(format), operation="scale")
    return compute_with_draw("multiply", [x, np.array(factor)], target, None)


def _largest(x: NDArray) -> float:
    return float(np.abs(x).max()) if x.size else 0.0


def _rms(x: NDArray) -> float:
    """The square root of the mean square."""
    return math.sqrt(sum_of_squares(x) / max(x.size, 1))
