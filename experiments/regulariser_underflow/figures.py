"""The figure: the decay of the weights that only the regulariser changes, for every lambda and method."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import curves
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.regulariser_underflow.jobs import PLACES
from experiments.regulariser_underflow.products import LAMBDAS, text_of
from simfloat.plots import FULL_WIDTH, add_legend, draw_curves, new_figure, save_figure
from simfloat.studies import Result

#: Every method has the same style in all panels.
STYLES = {place: number for number, place in enumerate(PLACES)}


@drawn_as("decay.png", kind="decay")
def draw_decay(results: list[Result], path: Path) -> None:
    """Draw a panel for each lambda: the norm relative to the initial one."""
    figure, axes = new_figure(rows=1, columns=len(LAMBDAS), width=FULL_WIDTH, height=2.7, legend=0.4)
    for side, lam in zip(axes, LAMBDAS, strict=True):
        lines = curves(select(results, problem=text_of(lam)), "dead", STYLES)
        label = "" if side is not axes[0] else "norm / norm at the start"
        draw_curves(side, lines, xlabel="step", ylabel=label, title=f"$\\lambda$ = {text_of(lam)}")
    add_legend(figure, axes[0], columns=3)
    save_figure(figure, path)
