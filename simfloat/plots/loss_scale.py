"""The course of a loss scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from simfloat.plots.curves import plain
from simfloat.plots.figure import label_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_loss_scale(axes: Axes, scale: ArrayLike, skipped: ArrayLike | None = None, *, title: str = "") -> None:
    """Draw the scale of every step (steps,) on a logarithmic axis to base 2, with a mark where a step was skipped.

    As for the history of a training: ``draw_loss_scale(axes, history["scale"], history["skipped"])``.

    Raises ValueError for scales that are not positive and finite, and where there is not one of `skipped` for each.
    """
    from matplotlib.ticker import MaxNLocator

    factors = np.asarray(scale, np.float64)
    if factors.ndim != 1 or not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError("Scales must be positive, finite and one for each step, such as history['scale'].")
    missed = np.zeros(len(factors), bool) if skipped is None else np.asarray(skipped, bool)
    if missed.shape != factors.shape:
        raise ValueError(f"{len(factors)} scales need as many values of skipped, got an array of {missed.shape}.")
    steps = np.arange(len(factors))
    axes.step(steps, factors, where="post", color="#0072b2", linewidth=1.2, label="loss scale")
    if missed.any():
        axes.plot(
            steps[missed], factors[missed], "x", color="#d55e00", markersize=4, markeredgewidth=1,
            label=f"skipped ({missed.sum()} of {len(missed)})",
        )  # fmt: skip
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_axes(axes, xlabel="step", ylabel="loss scale", title=plain(title))
