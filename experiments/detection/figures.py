"""Draw histograms of gradients with linear and logarithmic shares, losses, and scenes of the data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from experiments.curves import draw_losses
from experiments.detection.scenes import draw_scenes
from experiments.experiment import drawn_as
from experiments.gradients import as_histogram
from experiments.measurement import select
from experiments.options import FIRST_SEED
from simfloat import FP16
from simfloat.plots import FULL_WIDTH, add_legend, draw_exponents, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.plots.formats import exponents_finding
from simfloat.studies import Result

TITLES = {
    "detector": ("Digits on textures", "held-out loss"),
    "small-gradients": ("The same, loss times 2^-18", "held-out loss"),
}


@drawn_as("detection.png", kind="training")
def draw_training(results: list[Result], path: Path) -> None:
    """Draw the held-out loss of each problem."""
    draw_losses(results, TITLES, path)


@drawn_as("gradients.png", given=False, kind="training")
def draw_gradients(results: list[Result], path: Path) -> None:
    """Draw the exponents of all activation gradients in FP32, as in Figures 2 and 3 of the guide."""
    figure, axes = new_figure(2, 2, FULL_WIDTH, 5.2)
    for row, problem in zip(axes, TITLES, strict=True):
        total: Counter[str] = Counter()
        for run in select(results, problem=problem, variant="fp32"):
            total.update(run["gradients"]["activations"])
        counts, title = as_histogram(dict(total)), TITLES[problem][0]
        for place, log in zip(row, (False, True), strict=True):
            draw_exponents(place, counts, format=FP16, scale=2.0**15, log=log, title=title, name="gradient")
    add_legend(figure, axes[1, 1], columns=3)
    add_title(figure, f"Small gradients: {exponents_finding(counts, FP16, 2.0**15, 'gradient')}")
    save_figure(figure, path)


@drawn_as("scenes.png", kind="printed")
def draw_pictures(results: list[Result], path: Path) -> None:
    """Draw six scenes with the boxes of their objects."""
    from matplotlib.patches import Rectangle

    figure, axes = new_figure(1, 6, FULL_WIDTH, 1.4)
    scenes = draw_scenes(6, FIRST_SEED)
    for place, image, (boxes, digits) in zip(axes, scenes.images[:, 0], scenes.objects, strict=True):
        place.imshow(image, cmap="gray", vmin=0, vmax=1, extent=(0, image.shape[1], image.shape[0], 0))
        for left, top, right, bottom in boxes:
            place.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="#e69f00"))
        place.set_title(" ".join(map(str, digits)), fontsize=7, pad=2)
        place.set_axis_off()
    save_figure(figure, path)
