"""Loss scales that follow measurements: the log-normal scale, and a scale for each layer.

The log-normal loss scale follows the distribution of the largest gradient. Adaptive loss scaling finds the factor of
each layer during the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.operations import compute_with_draw
from simfloat.arithmetic.target import Target, carrier_of
from simfloat.autodiff.variable import Node, Variable
from simfloat.common import check_count
from simfloat.formats import Format, nearest_even
from simfloat.optim.clipping import sum_of_squares
from simfloat.optim.loss_scale import Losses, LossScale, as_scale
from simfloat.optim.options import number, number_from_zero

OPTIONS = ("log_max", "beta1", "beta2", "deviations", "min_scale", "max_scale", "overflow")
COUNTERS = ("iteration", "mean", "center", "variance")


class LogNormalLossScale(LossScale):
    """S = 2^(log_max - (mean + deviations * sigma)), between min_scale and max_scale, from 1 on.

    x = log2(max|g|) of the unscaled gradients of a step is taken for normally distributed. `mean` is its moving average
    with weight beta1, sigma^2 its moving variance with weight beta2, both without the bias of their start. The defaults
    leave one step in a thousand to exceed 2^log_max: 3.09 is the 0.999 quantile of the normal distribution. A step
    whose gradients are all zero does not count. One that is not finite counts as x = `overflow`.

    Source: OpenSeq2Seq, LogMax scaling ("log-normal" in its documentation). There `overflow` is 2.0**16, which seems to
    be meant as log2 of it: a single overflow then holds S at 1 for about 12 000 steps.

    Raises ValueError for options that are no finite numbers, for betas outside of 0 to 1, and unless min_scale <= 1 <=
    max_scale.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.LogNormalLossScale()
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> scaler.get_scale()
        16384.0
    """

    state_names = dict.fromkeys((*OPTIONS, *COUNTERS), False)

    def __init__(
        self,
        *,
        log_max: float = 16.0,
        beta1: float = 0.99,
        beta2: float = 0.999,
        deviations: float = 3.09,
        min_scale: float = 1.0,
        max_scale: float = 2.0**14,
        overflow: float = 16.0,
    ) -> None:
        super().__init__(1.0)
        number("log_max", log_max)
        number("overflow", overflow)
        number_from_zero("deviations", deviations)
        for name, beta in (("beta1", beta1), ("beta2", beta2)):
            number_from_zero(name, beta)
            if beta >= 1:
                raise ValueError(f"{name} must be less than 1, got {beta!r}.")
        self.min_scale, self.max_scale = as_scale("min_scale", min_scale), as_scale("max_scale", max_scale)
        if not self.min_scale <= 1 <= self.max_scale:
            raise ValueError(f"S starts at 1, between min_scale and max_scale; got {min_scale!r} and {max_scale!r}.")
        self.log_max, self.overflow, self.deviations = float(log_max), float(overflow), float(deviations)
        self.beta1, self.beta2 = float(beta1), float(beta2)
        self.iteration = 0
        self.mean = 0.0  # of x, with beta1
        self.center = self.variance = 0.0  # of x, with beta2

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step whose gradients were all finite or not, and at most `largest` when unscaled."""
        if is_finite and largest == 0:
            return
        self._count(math.log2(largest) if is_finite else self.overflow)
        exponent = self.log_max - (self.mean + self.deviations * math.sqrt(self.variance))
        lowest, highest = math.log2(self.min_scale), math.log2(self.max_scale)
        self._scale = float(np.float32(2.0 ** min(max(exponent, lowest), highest)))

    def _count(self, x: float) -> None:
        """Take x into the averages.

        An average without the bias of its start gives the t-th value the share (1 - beta) / (1 - beta^t). The variance
        is that of the mean square less the squared mean, in the form of West 1979, which does not cancel.
        """
        self.iteration += 1
        share1 = (1 - self.beta1) / (1 - self.beta1**self.iteration)
        share2 = (1 - self.beta2) / (1 - self.beta2**self.iteration)
        self.mean += share1 * (x - self.mean)
        away = x - self.center
        self.center += share2 * away
        self.variance = (1 - share2) * (self.variance + share2 * away * away)

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """A scaler in this state, which names everything; ValueError for a value that it cannot have."""
        fresh = type(self)(**{name: state[name] for name in OPTIONS})
        check_count("iteration", state["iteration"], 0)
        fresh.iteration = int(state["iteration"])
        fresh.mean, fresh.center = number("mean", state["mean"]), number("center", state["center"])
        fresh.variance = number_from_zero("variance", state["variance"])
        fresh._scale = as_scale("scale", state["scale"])
        return fresh


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
