"""Draw the divergence of each kernel from the reference, for each form of inference and depth."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from experiments.experiment import drawn_as
from experiments.flash_attention.figures import one_scale
from experiments.kernel_orders.findings import mean_over_kernels
from experiments.kernel_orders.jobs import DEPTHS
from experiments.kernel_orders.kernels import FORMS, policies
from experiments.measurement import over_seeds
from simfloat.plots import FULL_WIDTH, new_figure, save_figure
from simfloat.plots.figure import add_title
from simfloat.studies import Result

#: Labels of the forms.
LABELS = {"BF16": "BF16", "FP32 head": "BF16, logits\nin FP32", "FP16": "FP16", "LayerCast": "FP32, weights\nin BF16"}


@drawn_as("kernels.png")
def draw_kernels(results: list[Result], path: Path) -> None:
    """Draw a point for each seed and kernel, and the mean of each form as a line."""
    figure, axes = new_figure(rows=1, columns=2, width=FULL_WIDTH, height=3.2)
    for place, depth in zip(axes, DEPTHS, strict=True):
        for number, form in enumerate(FORMS):
            for shift, kernel in enumerate(list(policies(form))[1:]):
                values = over_seeds(results, "divergence", form=form, kernel=kernel, depth=depth)
                at = np.full(len(values), number + 0.2 * (shift - 1))
                place.semilogy(at, values, "osD"[shift], color=f"C{shift}", markersize=3.5, fillstyle="none")
            mean = float(np.mean(mean_over_kernels(results, form, "divergence", depth)))
            place.semilogy([number - 0.35, number + 0.35], [mean, mean], color="0.4", linewidth=1)
        place.set_xticks(range(len(FORMS)), [LABELS[form] for form in FORMS], fontsize=7)
        place.set_title(f"{depth} block{'s' * (depth > 1)}")
    one_scale(axes)
    axes[0].set_ylabel("divergence (nats per letter)")
    bf16, fp16 = (float(np.mean(mean_over_kernels(results, form, "divergence"))) for form in ("BF16", "FP16"))
    add_title(figure, f"Kernels diverge by {bf16:.1e} nats per letter in BF16, and by {fp16:.1e} in FP16")
    save_figure(figure, path)
