"""The losses of a diagnosis, and where what went wrong began."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simfloat.diagnosis.fault import Diagnosis
from simfloat.plots.curves import Curve, draw_curves, plain_label
from simfloat.plots.figure import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A style for each training: the reference lies below, in black.
STYLES = {"reference": 0, "policy": 2, "mended": 6}

#: How far the names of faults stand apart, one below the other, in shares of the axes' height.
LINE_HEIGHT = 0.09


def draw_diagnosis(axes: Axes, diagnosis: Diagnosis, *, most: int = 3, title: str = "") -> None:
    """Draw the loss of every step under the policy, with its verified remedies, and under the reference.

    Dashed lines stand where the first faults were met, with their names, at most so many. A loss that is not finite
    leaves a gap; the axis is logarithmic where all losses are positive.

    Raises ValueError for what is no diagnosis, for one without a loss, and for a `most` that is below 0.
    """
    from matplotlib.ticker import MaxNLocator

    if not isinstance(diagnosis, Diagnosis):
        raise ValueError(f"draw_diagnosis takes what simfloat.diagnose gives, got a {type(diagnosis).__name__}.")
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ValueError(f"most is how many faults are named, 0 or more, got {most!r}.")
    losses = {name: np.array(diagnosis.losses[name], np.float64) for name in STYLES}
    finite = np.concatenate([each[np.isfinite(each)] for each in losses.values()])
    if not finite.size:
        raise ValueError("No training of this diagnosis has a finite loss: there is nothing to draw.")
    curves = [Curve(name, np.arange(each.size), each, STYLES[name]) for name, each in losses.items() if each.size]
    draw_curves(axes, curves, xlabel="step", ylabel="loss", title=plain_label(title), log=bool((finite > 0).all()))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(-0.5, max(each.size for each in losses.values()) - 0.5)
    axes.legend(fontsize=SMALL, frameon=False, loc="upper right")
    for number, fault in enumerate(diagnosis.faults[:most]):
        axes.axvline(fault.step, color="black", linestyle="--", linewidth=0.8, zorder=1)
        where = f" ({fault.path})" if fault.path else ""
        place = fault.step, 0.04 + LINE_HEIGHT * number
        axes.annotate(
            plain_label(f"{fault.kind}{where}"), place, (3, 0), xycoords=("data", "axes fraction"),
            textcoords="offset points", fontsize=SMALL, va="bottom",
        )  # fmt: skip
