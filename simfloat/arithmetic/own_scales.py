"""Scales of blocks in formats and by rules of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.block_elements import RULES, Blocks, replace_unusable
from simfloat.arithmetic.machines import device_of, on_cpu
from simfloat.arithmetic.operations import compute_in_thread, compute_with_draw
from simfloat.arithmetic.target import Target, result_dtype
from simfloat.formats import E4M3, E8M0, Format, nearest_even
from simfloat.formats.definition import round_value

#: The scale of a block of numbers of this largest magnitude, for elements of this format.
ScaleFunction = Callable[[float, Format], float]

#: A rule by name, one of one's own, or that of the format of the scales.
Rule = str | ScaleFunction | None


def check_rule(rule: Rule, scale: Format, needed: str = "E8M0 scales") -> None:
    """Raise ValueError for what is no rule of scales of this format."""
    if not scale.fits_float32:
        raise ValueError(f"Scales of blocks are numbers of a format that float32 holds; {scale} has others.")
    if rule is None or callable(rule):
        return
    if not isinstance(rule, str) or rule not in RULES:
        raise ValueError(
            f"rule must be one of {', '.join(RULES)}; got {rule!r}. A function of amax and the element format "
            "serves, too."
        )
    if scale != E8M0:
        raise ValueError(
            f"rule={rule!r} chooses among powers of two: it needs {needed}, got {scale}. A function of amax and the "
            "element format may choose among the numbers of any format."
        )


def has_two_levels(scale: Format, rule: Rule) -> bool:
    """Whether there is a scale of the whole operand, too: NVFP4's rule."""
    return scale == E4M3 and not callable(rule)


def scaled_by_rule(
    x: NDArray, blocks: Blocks, target: Target, scale: Format, rule: ScaleFunction | None, draw: Draw | None
) -> tuple[NDArray, NDArray]:
    """Elements x / s rounded once, and the scales s: as the rule says, or amax / max rounded to nearest even.

    Blocks of zeros have the scale nearest to 1, a positive one.
    """
    with np.errstate(invalid="ignore"):  # of a signalling NaN
        amax = blocks.largest(x).astype(np.float64)
    usable = np.isfinite(amax)
    if not scale.has_nan and not usable.all():
        raise ValueError(f"{scale} has no NaN, the scale of a block with an infinity or a NaN: clip the numbers first.")
    have_scales = usable & (amax > 0)
    nearest_to_one = max(round_value(1.0, scale, nearest_even.saturating()), scale.smallest_subnormal)
    scales = np.full_like(amax, nearest_to_one)
    if rule is None:
        scales[have_scales] = _by_quotients(amax[have_scales], target.format, scale)
    else:
        own_scales = _by_rule(rule, on_cpu(amax[have_scales]), target.format, scale)
        scales[have_scales] = device_of(x).to_device(own_scales)
    sound = replace_unusable(x, usable, target.format, blocks)
    elements = compute_with_draw("divide", [sound, blocks.spread(scales, x)], target, draw)
    return elements, np.where(usable, scales, np.nan).astype(result_dtype([x], scale))


def _by_quotients(amax: NDArray, format: Format, scale: Format) -> NDArray:
    """amax / max rounded once, inside the positive numbers of the format."""
    target = Target(scale, nearest_even.saturating(), np.float64)
    quotients = compute_in_thread("divide", [amax, np.full_like(amax, format.max)], target)
    return np.maximum(quotients, scale.smallest_subnormal)


def _by_rule(rule: ScaleFunction, amax: NDArray, format: Format, scale: Format) -> NDArray:
    """What the rule gives for each magnitude; every one is asked for once."""
    magnitudes, places = np.unique(amax, return_inverse=True)
    scales = [_check_scale(rule(float(magnitude), format), float(magnitude), format, scale) for magnitude in magnitudes]
    return np.array(scales, np.float64)[places].reshape(amax.shape)


def _check_scale(value: Any, amax: float, format: Format, scale: Format) -> float:
    """A rule's result, if it is a scale."""
    try:
        number = np.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.nan
    if not 0 < number < np.inf or round_value(number, scale, nearest_even) != number:
        raise ValueError(
            f"A rule must return a positive number of {scale}, the format of the scales; for amax = {amax!r} and "
            f"elements of {format} it returned {value!r}. simfloat.round(s, {scale}) makes a number of it."
        )
    return number
