"""Draw the decay of weights that only the regulariser moves, for every lambda and place."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import curves, last, short
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.regulariser_underflow.jobs import PLACES
from experiments.regulariser_underflow.products import LAMBDAS, text_of
from simfloat.plots import FULL_WIDTH, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: The style of each place, in all panels.
STYLES = {place: number for number, place in enumerate(PLACES)}


@drawn_as("decay.png", kind="decay")
def draw_decay(results: list[Result], path: Path) -> None:
    """Draw the norm relative to that at the start, in a panel for each lambda."""
    figure, axes = new_figure(rows=1, columns=len(LAMBDAS), width=FULL_WIDTH, height=2.9)
    finding = ""
    for side, lam in zip(axes, LAMBDAS, strict=True):
        lines = curves(select(results, problem=text_of(lam)), "dead", STYLES)
        label = "" if side is not axes[0] else "norm / norm at the start"
        draw_curves(side, lines, xlabel="step", ylabel=label, title=f"$\\lambda$ = {text_of(lam)}")
        decays = [f"{short(100 * (1 - last(line)))} % ({line.label})" for line in (lines[0], lines[-1])]
        finding = finding or f"Decay of the norm with lambda = {text_of(lam)}: {', '.join(decays)}"
    add_legend(figure, axes[0], columns=3)
    add_title(figure, finding)
    save_figure(figure, path)
