"""Draw loss, loss scale and format over the steps, and the costs and benefits of each rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.curves import curves, draw_losses, last, short
from experiments.experiment import drawn_as
from experiments.layer_switching.findings import MOST_IN_A_ROW, share, skipped_in_a_row
from experiments.layer_switching.policies import VARIANTS
from experiments.measurement import select
from simfloat.plots import (
    FULL_WIDTH,
    SMALL,
    add_legend,
    draw_curves,
    draw_loss_scale,
    draw_points,
    new_figure,
    save_figure,
)
from simfloat.plots.figure import GREY, add_title, foreground
from simfloat.studies import Result

TITLES = {
    "digits": ("Digits", "held-out cross-entropy"),
    "camera": ("Digits, pixels up to 1023", "held-out cross-entropy"),
}

#: The variants whose scale and format are drawn, for the first seed.
TRACED = ("fp16", "variance", "variance-late", "once-e4m3")


@drawn_as("layer-switching.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of each problem under the policy of the user."""
    draw_losses(results, TITLES, path)


@drawn_as("layer-switching.png", kind="switching", problem="digits")
def draw_traces(results: list[Result], path: Path) -> None:
    """Draw the loss scale of one run under each of four policies, shaded while the layer was in FP8."""
    figure, axes = new_figure(2, 2, FULL_WIDTH, 4.2)
    shares = []
    for place, variant in zip(axes.flat, TRACED, strict=True):
        run = select(results, variant=variant)[0]
        draw_loss_scale(place, run["trace"]["scale"], run["trace"]["skipped"], title=run["label"])
        low, high = place.get_ylim()
        place.set_ylim(low / (high / low) ** 0.25, high)  # space for the legend
        place.legend(loc="lower right", frameon=False, fontsize=SMALL, ncols=2)
        if variant != "fp16":
            steps = np.arange(len(run["trace"]["narrow"]) + 1)
            place.fill_between(
                steps, 0, 1, where=[*run["trace"]["narrow"], False], step="post", color=GREY, alpha=0.3,
                transform=place.get_xaxis_transform(), zorder=0, linewidth=0,
            )  # fmt: skip
            shares.append((100 * float(np.mean(run["trace"]["narrow"])), run["label"]))
    add_title(figure, f"Steps in FP8 (grey) – {'; '.join(f'{label}: {short(share)} %' for share, label in shares)}")
    save_figure(figure, path)


@drawn_as("costs.png", kind="switching")
def draw_costs(results: list[Result], path: Path) -> None:
    """Draw shares of steps and skipped steps in a row for every rule, and the loss of digits with large pixels."""
    digits, camera = select(results, problem="digits"), select(results, problem="camera")
    figure, (left, middle, right) = new_figure(1, 3, FULL_WIDTH, 3.3)
    variants = VARIANTS["digits"][1:]
    keys = {"narrow": "steps in FP8", "skipped": "steps skipped"}
    groups = {label: [100 * share(digits, each.key, key) for each in variants] for key, label in keys.items()}
    labels = [each.label for each in variants]
    draw_points(left, labels, groups, xlabel="share of steps (%)", title="Digits", log=False)
    left.legend(loc="lower right", frameon=False, fontsize=SMALL)
    rows = {"steps": [skipped_in_a_row(digits, each.key) for each in variants]}
    draw_points(middle, [""] * len(variants), rows, xlabel="skipped in a row, at most", title="Digits", log=False)
    middle.axvline(MOST_IN_A_ROW, color=foreground(), linewidth=0.8, linestyle=":")
    styles = {each.key: style for style, each in enumerate(VARIANTS["camera"])}
    lines = curves(camera, "loss", styles)
    title, loss = TITLES["camera"]
    draw_curves(right, lines, xlabel="iteration", ylabel=loss, title=title, log=True)
    add_legend(figure, right, columns=3)
    found = "; ".join(f"{line.label}: {short(last(line))}" for line in lines)
    add_title(figure, f"Final loss with large pixels – {found}")
    save_figure(figure, path)
