"""Rules of pooling of sequences, images and volumes, forward and backward, by `simfloat.simulation.formulas.pooling`.

PyTorch chooses the largest elements of windows, and the rule of selections rounds them; this file has their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_device_of
from simfloat.simulation.formulas import number, pooling
from simfloat.simulation.inside import WindowAxis
from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import array_on, numbers_of

Sizes = Sequence[int]


def sides_of(
    axes: int, result: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes = (1,)
) -> list[WindowAxis]:
    """Return the windows along the last axes of images, as many as `result` has; one option may apply to all axes."""
    per_axis = (list(s) * (axes // len(s)) for s in (kernel, stride or kernel, padding, dilation))
    return [WindowAxis(*side) for side in zip(*per_axis, result.shape[-axes:], strict=True)]


class Average:
    """Average pooling along `axes` axes: windows with a constant step, or a given number of windows."""

    def __init__(self, axes: int) -> None:
        self.axes = axes
        self.pool: Callable[..., torch.Tensor] = getattr(torch.ops.aten, f"avg_pool{axes}d")

    def sides(
        self, x: torch.Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), ceil_mode: bool = False,
        with_padding: bool = True, divisor: int | None = None,
    ) -> tuple[list[WindowAxis], NDArray]:  # fmt: skip
        """Return the windows along each axis, and the divisor of each window, for an average with these options."""
        result = self.pool(x, kernel, stride, padding, ceil_mode, with_padding, divisor)
        sides = sides_of(self.axes, result, kernel, stride, padding)
        if divisor is not None:
            return sides, number(divisor)
        divisors = pooling.divisors(sides, x.shape[-self.axes :], with_padding=with_padding)
        return sides, on_device_of(divisors, numbers_of(x))

    def avg_pool(self, call: RuleCall, x: torch.Tensor, *options: Any) -> torch.Tensor:
        """Return averages of windows with a constant step."""
        sides, divisor = self.sides(x, *options)
        return call.tensor(pooling.average(call.begin_sums(), numbers_of(x), sides, divisor))

    def avg_pool_backward(self, call: RuleCall, g: torch.Tensor, x: torch.Tensor, *options: Any) -> torch.Tensor:
        """Return the gradient of images."""
        sides, divisor = self.sides(x, *options)
        return call.tensor(pooling.average_slope(call.begin_sums(), numbers_of(g), divisor, sides, tuple(x.shape)))

    def adaptive_avg_pool(self, call: RuleCall, x: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """Return a given number of averages."""
        return call.tensor(pooling.adaptive_average(call.begin_sums(), numbers_of(x), sizes))

    def adaptive_avg_pool_backward(self, call: RuleCall, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the gradient of images."""
        u = call.begin_sums()
        return call.tensor(pooling.adaptive_average_slope(u, numbers_of(g), tuple(x.shape), self.axes))


def max_pool_backward(axes: int) -> Callable[..., torch.Tensor]:
    """Return a rule for the gradient of images with `axes` axes, from the positions of the maxima of windows."""

    def rule(
        call: RuleCall, g: torch.Tensor, x: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes,
        dilation: Sizes, _: bool, places: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        sides = sides_of(axes, g, kernel, stride, padding, dilation)
        within = []
        for axis, (side, pixel) in enumerate(
            zip(sides, np.unravel_index(array_on(places), x.shape[-axes:]), strict=True)
        ):
            start = side.step * np.arange(side.number) - side.border
            start = on_device_of(start.reshape(-1, *[1] * (axes - 1 - axis)), pixel)
            within.append((pixel - start) // side.gap)
        first = np.ravel_multi_index(tuple(within), [side.places for side in sides])
        return call.tensor(pooling.largest_slope(call.begin_sums(), numbers_of(g), first, sides, tuple(x.shape)))

    return rule


def irregular_max_pool_backward(axes: int) -> Callable[..., torch.Tensor]:
    """Return a rule for windows with irregular steps."""

    def rule(call: RuleCall, g: torch.Tensor, x: torch.Tensor, *options: Any) -> torch.Tensor:
        places, pixels = options[-1], math.prod(x.shape[-axes:])
        image = torch.arange(x.numel() // pixels, device=x.device).reshape(*x.shape[:-axes], *[1] * axes) * pixels
        u, index = call.begin_sums(), array_on(places + image)
        return call.tensor(pooling.adaptive_largest_slope(u, numbers_of(g), index, tuple(x.shape)))

    return rule


#: Rules, by PyTorch's name.
TABLE: dict[str, Rule] = {
    name: Rule("avg_pool2d", rule)
    for axes, pool in ((2, Average(2)), (3, Average(3)))
    for name, rule in (
        (f"avg_pool{axes}d", pool.avg_pool),
        (f"avg_pool{axes}d_backward", pool.avg_pool_backward),
        (f"_adaptive_avg_pool{axes}d", pool.adaptive_avg_pool),
        (f"_adaptive_avg_pool{axes}d_backward", pool.adaptive_avg_pool_backward),
    )
} | {
    name: Rule("max_pool2d", rule(axes))
    for axes in (2, 3)
    for name, rule in (
        (f"max_pool{axes}d_with_indices_backward", max_pool_backward),
        (f"adaptive_max_pool{axes}d_backward", irregular_max_pool_backward),
        (f"fractional_max_pool{axes}d_backward", irregular_max_pool_backward),
    )
}
