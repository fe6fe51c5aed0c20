"""Draw the loss against the learning rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import signed
from experiments.experiment import drawn_as
from experiments.measurement import select
from experiments.tuned_rates.findings import STANDARD, best_gap, earlier_gap
from experiments.tuned_rates.jobs import ARMS
from experiments.tuned_rates.problems import TUNED
from simfloat.plots import FULL_WIDTH, Curve, add_legend, draw_curves, new_figure, save_figure
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

#: The number of panels side by side.
COLUMNS = 3


@drawn_as("rates.png")
def draw_rates(results: list[Result], path: Path) -> None:
    """Draw, for each problem, the loss at every rate on the seeds that choose; a line marks the earlier rate."""
    chosen = [result for result in results if "chooser" in result] or results  # a tiny run chooses nothing
    panels = [(problem, schedule) for problem, tuned in TUNED.items() for schedule in tuned.schedules]
    rows = -(-len(panels) // COLUMNS)
    figure, axes = new_figure(rows, COLUMNS, FULL_WIDTH, 2.5 * rows)
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    for place, (problem, schedule) in zip(axes.flat, panels, strict=False):
        runs = select(chosen, problem=problem, schedule=schedule)
        curves = [
            _curve(select(runs, arm=arm), ARMS[arm].label, style)
            for style, arm in enumerate(ARMS)
            if arm in TUNED[problem].arms
        ]
        title = f"{problem}, {schedule} rate"
        draw_curves(place, curves, xlabel="learning rate", ylabel="held-out loss", title=title, log=True)
        place.set_xscale("log")
        place.axvline(TUNED[problem].earlier, color=foreground(), linewidth=0.8, linestyle=":")
    add_legend(figure, axes.flat[0], columns=3)
    decided = [result for result in results if "seed" in result]
    texts = [f"{problem} {_gaps(select(decided, problem=problem), problem)}" for problem in TUNED]
    add_title(figure, f"Gap of nearest updates at the earlier (dotted) and best rates: {', '.join(texts)}")
    save_figure(figure, path)


def _curve(runs: list[Result], label: str, style: int) -> Curve:
    """Return the losses of a policy by rate; a run that diverged is left out."""
    rates = sorted({run["rate"] for run in runs})
    losses = [[np.nan if run["loss"] is None else run["loss"] for run in select(runs, rate=rate)] for rate in rates]
    values = np.array(losses, np.float64).T
    return Curve(label, np.array(rates), np.where(np.isfinite(values), values, np.nan), style)


def _gaps(results: list[Result], problem: str) -> str:
    earlier, best = (float(np.mean(each(results, problem, STANDARD))) for each in (earlier_gap, best_gap))
    return f"{signed(earlier)} and {signed(best)} %"
