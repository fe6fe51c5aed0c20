"""Draw errors over the length of sums, with the bounds of theory."""

from __future__ import annotations

from pathlib import Path

from experiments.curves import last, short
from experiments.experiment import drawn_as
from experiments.measurement import table_over_seeds
from experiments.operands import TITLES
from experiments.probabilistic_bounds.findings import unit
from experiments.probabilistic_bounds.jobs import FORMATS, ROUNDINGS
from simfloat.plots import (
    FULL_WIDTH,
    Curve,
    add_legend,
    deterministic_bound,
    draw_curves,
    new_figure,
    probabilistic_bound,
    save_figure,
)
from simfloat.plots.curves import make_logarithmic
from simfloat.plots.figure import add_title, foreground
from simfloat.studies import Result

STYLES = {"nearest": 2, "stochastic": 6}


@drawn_as("bounds.png")
def draw_bounds(results: list[Result], path: Path) -> None:
    """Draw the greatest error for both formats and kinds of data, and the bounds."""
    figure, axes = new_figure(rows=2, columns=2, width=FULL_WIDTH, height=4.8)
    finding = ""
    for row, format in zip(axes, FORMATS, strict=True):
        for panel, (data, title) in zip(row, TITLES.items(), strict=True):
            curves = []
            for rounding in ROUNDINGS:
                n, greatest = table_over_seeds(
                    results, "greatest", "length", format=format, data=data, rounding=rounding
                )
                curves.append(Curve(f"{rounding}: greatest error", n, greatest, STYLES[rounding]))
            draw_curves(
                panel,
                curves,
                xlabel="products a sum, n" if format == "bf16" else "",
                ylabel="error / sum |a b|" if data == "uniform" else "",
                title=f"{format.upper()}, {title}",
                log=True,
            )
            lines = (
                (deterministic_bound(n, unit(format, "nearest")), ":", "n u / (1 - n u)"),
                (probabilistic_bound(n, unit(format, "nearest")), "--", "sqrt(n) u"),
                (probabilistic_bound(n, unit(format, "stochastic")), "-", "sqrt(n) 2 u"),
            )
            for values, dashes, label in lines:
                panel.plot(n, values, color=foreground(), linestyle=dashes, linewidth=0.8, label=label)
            panel.set_ylim(top=2)
            make_logarithmic(panel)
            if not finding:
                errors = [f"{short(last(each))} ({name})" for name, each in zip(ROUNDINGS, curves, strict=True)]
                finding = f"{format.upper()}, one sign, {n[-1]:,} products: greatest error {', '.join(errors)}"
            panel.set_xscale("log", base=2)
    add_legend(figure, axes[0][0], columns=3)
    add_title(figure, finding)
    save_figure(figure, path)
