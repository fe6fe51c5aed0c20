"""Loss scales that follow measurements: the log-normal scale, and a scale for each layer.

The log-normal loss scale follows the distribution of the largest gradient. Adaptive loss scaling computes the factor of
each layer during the backward pass.
"""

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
from simfloat.optim.clipping import sum_of_squares
from simfloat.optim.loss_scale import DeclaredLossScale, Losses, as_scale, count_from_zero
from simfloat.optim.options import both, number, number_from_one, number_from_zero, number_that
from simfloat.options import KW_ONLY, option, with_options


@with_options
class LogNormalLossScale(DeclaredLossScale):
    """S = 2^(log_max - (mean + deviations * sigma)), limited to [min_scale, max_scale], with initial value 1.

    x = log2(max|g|) of the unscaled gradients of a step is assumed to be normally distributed. `mean` is its moving
    average with weight beta1, and sigma^2 its moving variance with weight beta2, both corrected for their start at
    zero. With the defaults, one step in a thousand exceeds 2^log_max: 3.09 is the 0.999 quantile of the normal
    distribution. A step with only zero gradients does not count. A step with infinite or NaN gradients counts as x =
    `overflow`.

    Parameters:
        log_max: the exponent that the scaled gradients should not exceed.
        beta1, beta2: the weights of the moving average and of the moving variance, from 0 to below 1.
        deviations: the number of standard deviations, from 0.
        min_scale, max_scale: the bounds of S, with min_scale <= 1 <= max_scale.
        overflow: the x of a step with an overflow.

    Raises:
        ValueError: if an option is not a finite number or is outside its range.

    Source: OpenSeq2Seq, LogMax scaling ("log-normal" in its documentation). Its `overflow` is 2.0**16, which was
    probably meant as log2 of it: a single overflow keeps S at 1 for about 12 000 steps there.

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

    counters = {"iteration": count_from_zero, "mean": number, "center": number, "variance": number_from_zero}

    _: KW_ONLY
    log_max: float = option(number, default=16.0)
    beta1: float = option(both(number_from_zero, number_that(lambda x: x < 1, "be less than 1")), default=0.99)
    beta2: float = option(both(number_from_zero, number_that(lambda x: x < 1, "be less than 1")), default=0.999)
    deviations: float = option(number_from_zero, default=3.09)
    min_scale: float = option(as_scale, default=1.0)
    max_scale: float = option(as_scale, default=2.0**14)
    overflow: float = option(number, default=16.0)

    def _start(self, **arguments: Any) -> None:
        if not self.min_scale <= 1 <= self.max_scale:
            bounds = f"{arguments['min_scale']!r} and {arguments['max_scale']!r}"
            raise ValueError(f"S starts at 1, between min_scale and max_scale; got {bounds}.")
        self.iteration = 0
        self.mean = 0.0  # moving average of x, with beta1
        self.center = self.variance = 0.0  # moving average and variance of x, with beta2

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step. `is_finite`: all gradients were finite; `largest`: their unscaled maximum."""
        if is_finite and largest == 0:
            return
        self._count(math.log2(largest) if is_finite else self.overflow)
        exponent = self.log_max - (self.mean + self.deviations * math.sqrt(self.variance))
        lowest, highest = math.log2(self.min_scale), math.log2(self.max_scale)
        self._scale = float(np.float32(2.0 ** min(max(exponent, lowest), highest)))

    def _count(self, x: float) -> None:
        """Add x to the averages.

        In an average that is corrected for its start, the t-th value has the weight (1 - beta) / (1 - beta^t). The
        variance, the mean square minus the squared mean, is updated in the form of West 1979, which has no
        cancellation.
        """
        self.iteration += 1
        share1 = (1 - self.beta1) / (1 - self.beta1**self.iteration)
        share2 = (1 - self.beta2) / (1 - self.beta2**self.iteration)
        self.mean += share1 * (x - self.mean)
        away = x - self.center
        self.center += share2 * away
        self.variance = (1 - share2) * (self.variance + share2 * away * away)


#: Operation -> the number of products in an element of the gradient: of x, and of a weight that is not a parameter.
#: It is the size of the other operand divided by the number of channels of x: its last axis, or axis 1 of images.
FANS: dict[str, tuple[Callable[..., int], Callable[..., int]]] = {
    "linear": (lambda x, w: w.size // max(x.shape[-1], 1), lambda x, w: x.size // max(x.shape[-1], 1)),
    "conv2d": (lambda x, w: w.size // x.shape[1], lambda x, w: x.size // x.shape[1]),
    "conv_transpose2d": (lambda x, w: w.size // x.shape[1], lambda x, w: x.size // x.shape[1]),
    "matmul": (
        lambda a, b: b.shape[-1] if b.ndim > 1 else 1,
        lambda a, b: a.shape[-2] if a.ndim > 1 else 1,
    ),
}


@with_options
class LayerwiseLossScale(DeclaredLossScale):
    """Adaptive loss scaling: each contraction multiplies the gradient that it passes on by a separate factor.

    Consider a gradient g that reaches a layer with weight W. Assume that its `fan` products are independent, and that
    half of them are zero, as after a ReLU. Then the gradient leaves the layer with the standard deviation rms(g) *
    rms(W) * sqrt(fan / 2). The factor is chosen so that only a share `underflow` of a normal distribution of that width
    is below the smallest number of the format of the gradients.

    The factor is a power of two from 1 to `max_factor`. It is limited so that the sums remain below the largest number
    of the format, and the product of all factors so far remains below `max_scale`. Gradients of weights do not contain
    the factor of their own layer. If gradients are added, all are first brought to the largest of their scales that
    does not overflow.

    Call `backward` on the result of `scale`. Factors are computed again in every backward pass, and `unscale_` removes
    them from each parameter separately. S does not change.

    Parameters:
        init_scale: S, the factor of the loss.
        underflow: the share of elements that may underflow, from 1e-12 to below 1.
        max_factor: the largest factor of one layer, at least 1.
        max_scale: the largest product of factors, at least 1.

    Raises:
        ValueError: if an option is outside its range.

    Source: Zhao et al. 2019, arXiv 1910.12385, with its defaults for FP16.

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

    init_scale: float = option(as_scale, default=1.0)
    _: KW_ONLY
    underflow: float = option(number_that(lambda x: 1e-12 <= x < 1, "be a share from 1e-12 to below 1"), default=1e-3)
    max_factor: float = option(both(number_from_zero, number_from_one), default=16.0)
    max_scale: float = option(both(number_from_zero, number_from_one), default=1024.0)

    def _start(self, **arguments: Any) -> None:
        self._leaves: dict[int, tuple[Variable, float]] = {}

    def scale(self, loss: Losses) -> Losses:
        """Return the loss times S; in its backward pass, every layer applies a separate factor."""
        scaled = super().scale(loss)
        if isinstance(scaled, Variable):
            scaled.gradient_scaler = _BackwardScales(self)
        return scaled

    def scale_of(self, parameter: Variable) -> float:
        """Return the factor that the gradient of a parameter contains: S times the factors of the layers on the way."""
        return self._leaves.get(id(parameter), (parameter, self._scale))[1]

    def update(self, new_scale: float | None = None) -> None:
        """Forget the factors of the layers; set S to `new_scale` if it is given."""
        super().update(new_scale)
        self._leaves = {}

    def remember_scale(self, leaf: Variable, scale: float) -> None:
        """Store the factor that the gradient of a leaf contains."""
        self._leaves[id(leaf)] = leaf, scale

    def factor(self, node: Node, place: int, g: NDArray, scale: float) -> float:
        """Return the factor that the gradient g gets before it is passed to operand `place` of the node.

        `scale` is the factor that g already contains.
        """
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
        """Return the attributes for copies and pickles, without object identities, which would be wrong there."""
        return {**super().__getstate__(), "_leaves": list(self._leaves.values())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_leaves": {id(entry[0]): entry for entry in state["_leaves"]}})


class _BackwardScales:
    """The scales of all gradients in one backward pass."""

    def __init__(self, scaler: LayerwiseLossScale) -> None:
        self._scaler = scaler
        self._scales: dict[int, float] = {}  # id of a variable -> the scale of its gradient

    def rescale(
        self, variable: Variable, node: Node, number: int, gradient: NDArray, before: NDArray | None
    ) -> tuple[NDArray, NDArray | None]:
        """Return a gradient times the factor of its layer, and the earlier gradient to add to, both in one scale."""
        scaler, parent, format = self._scaler, node.parents[number], node.arithmetic(number).format
        scale = self._scales.get(id(variable), 1.0)
        if node.place.operation == "scale":
            scale *= scaler.get_scale()  # the operation multiplies by S
        common = reached = scale * scaler.factor(node, number, gradient, scale)
        older = parent.grad if parent.is_leaf else None  # from an earlier backward pass
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
    """Return x times a power of two, rounded to nearest even if necessary."""
    if factor == 1:
        return x
    target = Target(format, nearest_even, carrier_of(format), operation="scale")
    return compute_with_draw("multiply", [x, np.array(factor)], target, None)


def _largest(x: NDArray) -> float:
    return float(np.abs(x).max()) if x.size else 0.0


def _rms(x: NDArray) -> float:
    """Return the square root of the mean square."""
    return math.sqrt(sum_of_squares(x) / max(x.size, 1))
