"""Errors of sums against their length, and the bounds of theory on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.checks import as_rectangular_array
from simfloat.environment import in_usual_environment
from simfloat.plots.curves import (
    Curve,
    add_curve_legend,
    assign_styles,
    check_curves,
    draw_band,
    make_logarithmic,
    plain_label,
)
from simfloat.plots.figure import label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


#: Points of a bound's line.
POINTS = 200


def draw_errors(
    axes: Axes,
    curves: Sequence[Curve],
    *,
    unit_roundoff: float | None = None,
    factor: float = 1.0,
    xlabel: str = "length",
    ylabel: str = "relative error",
    title: str = "",
) -> None:
    """Draw errors against lengths, both axes logarithmic: the mean over samples, and a band from the least to the most.

        figure, axes = sf.plots.new_figure(1, 1, sf.plots.COLUMN_WIDTH, 2.4)
        sf.plots.draw_errors(axes, [sf.plots.Curve("FP16", lengths, errors)], unit_roundoff=sf.FP16.unit_roundoff)

    Values of a curve are errors (samples, lengths). An error of zero counts in the mean, and has no place of its own on
    the axis. Given a unit roundoff, `deterministic_bound` and `probabilistic_bound` are drawn as far as they are below
    1; they bound the error relative to the sum of the absolute values of the terms. Styles and the legend are those of
    `draw_curves`; bounds have their names in it.

    Raises ValueError without curves, for a length or an error that is negative, and where `draw_curves` and the bounds
    do.
    """
    from matplotlib.ticker import NullLocator

    check_curves(curves)
    if not curves:
        raise ValueError("draw_errors takes a list of curves, got none.")
    for number, curve in enumerate(assign_styles(curves)):
        x = as_rectangular_array(curve.x, "x of a curve", np.float64)
        values = np.atleast_2d(as_rectangular_array(curve.values, "values of a curve", np.float64))
        if not (np.isfinite(x) & (x > 0)).all() or (values < 0).any():
            raise ValueError(f"Lengths are positive and errors not negative; those of {curve.label!r} are not.")
        mean, low, high = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
        middle, low, high = np.where(mean > 0, [mean, low, high], np.nan)
        draw_band(axes, curve, middle, low, high, (number, len(curves)))
    if unit_roundoff is not None:
        _draw_bounds(axes, curves, unit_roundoff, factor)
    for name in ("x", "y"):
        make_logarithmic(axes, name)
    axes.xaxis.set_minor_locator(NullLocator())
    label_axes(axes, xlabel=xlabel, ylabel=ylabel, title=plain_label(title))
    add_curve_legend(axes, curves, bounds=unit_roundoff is not None)


def _draw_bounds(axes: Axes, curves: Sequence[Curve], unit_roundoff: float, factor: float) -> None:
    """Both bounds, over the lengths of all curves."""
    ends = [end for curve in curves for end in (float(np.min(curve.x)), float(np.max(curve.x)))]
    n = np.geomspace(min(ends), max(ends), POINTS)
    times = "" if factor == 1 else f"{factor:g}"
    for values, dashes, label in (
        (deterministic_bound(n, unit_roundoff), "--", "bound $nu$"),
        (probabilistic_bound(n, unit_roundoff, factor), ":", f"likely bound ${times}\\sqrt{{n}}u$"),
    ):
        axes.plot(n, _below_one(values), color="#444444", linestyle=dashes, linewidth=1, label=label)


def _below_one(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A bound where it says something."""
    return np.where(values < 1, values, np.nan)


@in_usual_environment
def deterministic_bound(lengths: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """gamma_n = n u / (1 - n u), which no error of n roundings exceeds; infinite where n u is 1 or more.

    The error of a dot product of n terms, added one after the other, is at most gamma_n sum |a_i b_i| (Higham, Accuracy
    and Stability of Numerical Algorithms, 2002, section 3.1). Under stochastic and directed rounding u counts twice.

    Raises ValueError for lengths that are negative, and for a unit roundoff that does not lie between 0 and 1.
    """
    n, u = _check_bound_arguments(lengths, unit_roundoff)
    return np.where(n * u < 1, n * u / np.where(n * u < 1, 1 - n * u, 1.0), np.inf)


@in_usual_environment
def probabilistic_bound(lengths: ArrayLike, unit_roundoff: float, factor: float = 1.0) -> NDArray[np.float64]:
    """exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u; likelier to hold for larger factors.

    It takes rounding errors as mean independent with mean zero, which those of stochastic rounding are, with u counted
    twice, and those of rounding to nearest often resemble; not where a sum stagnates (Connolly, Higham and Mary, SIAM
    J. Sci. Comput. 43, 2021).

    Raises ValueError where `deterministic_bound` does, and for a factor that is not positive.
    """
    n, u = _check_bound_arguments(lengths, unit_roundoff)
    if isinstance(factor, bool) or not isinstance(factor, int | float | np.number) or not 0 < factor < math.inf:
        raise ValueError(f"factor must be a positive number, got {factor!r}.")
    with np.errstate(over="ignore"):
        return np.expm1((factor * np.sqrt(n) * u + n * u * u) / (1 - u))


def _check_bound_arguments(lengths: ArrayLike, unit_roundoff: float) -> tuple[NDArray[np.float64], float]:
    n = as_rectangular_array(lengths, "lengths", np.float64)
    if not (n >= 0).all():
        raise ValueError(f"Lengths must be zero or more, got {lengths!r}.")
    if not isinstance(unit_roundoff, float | np.floating) or not 0 < unit_roundoff < 1:
        raise ValueError(
            f"unit_roundoff must be a number between 0 and 1, such as simfloat.FP16.unit_roundoff, got "
            f"{unit_roundoff!r}."
        )
    return n, float(unit_roundoff)
