"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.kernel_orders.jobs import DEPTHS
from experiments.kernel_orders.kernels import policies
from experiments.measurement import over_seeds
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import FAR, HARDLY, difference_test, ratio_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        diverges_far_less(results, "FP16"),
        diverges_far_less(results, "LayerCast"),
        head_diverges_less(results),
        hardly_flips(results),
        depth_diverges_more(results),
    ]


def mean_over_kernels(results: list[Result], form: str, key: str, depth: int = DEPTHS[-1]) -> NDArray[np.float64]:
    """Return the mean of a measure over the kernels other than the reference, for every seed."""
    kernels = list(policies(form))[1:]
    return np.mean([over_seeds(results, key, form=form, kernel=kernel, depth=depth) for kernel in kernels], axis=0)


def ratio_text(values: NDArray[np.float64], reference: NDArray[np.float64]) -> str:
    """Return the mean ratio of two divergences as text."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = values / reference
        deviation = np.std(ratio, ddof=1) if len(ratio) > 1 else 0.0
        return f"{np.mean(ratio):.2g} ± {deviation:.2g} times"


@claim("{form}: kernels diverge far less than in BF16", f"divergence in BF16 / divergence > {FAR:g}")
def diverges_far_less(results: list[Result], form: str) -> Measured:
    """Test if a form removes the mismatch: arXiv 2510.26788 of FP16, arXiv 2506.09501 of LayerCast."""
    plain, other = (mean_over_kernels(results, name, "divergence") for name in ("BF16", form))
    text = f"{np.mean(other):.2g} nats a letter; BF16's is {ratio_text(plain, other)}"
    return text, ratio_test(plain, other, above=FAR)


@claim("with logits in FP32, kernels diverge less than in BF16", "divergence in BF16 / divergence > 1")
def head_diverges_less(results: list[Result]) -> Measured:
    """Test if the rounding of the logits is a part of the divergence."""
    plain, head = (mean_over_kernels(results, form, "divergence") for form in ("BF16", "FP32 head"))
    return f"{np.mean(head):.2g} nats a letter; BF16's is {ratio_text(plain, head)}", ratio_test(plain, head, above=1)


@claim("in BF16, kernels change hardly any greedy letters after the same text", f"share of letters < {HARDLY}")
def hardly_flips(results: list[Result]) -> Measured:
    """Test how often the most probable letter is another one."""
    flipped = mean_over_kernels(results, "BF16", "flipped")
    return f"{spread(100 * flipped, 3)} % of letters", difference_test(flipped, 0, below=HARDLY)


@claim("in BF16, kernels diverge more in a deeper model", "divergence with two blocks / with one > 1")
def depth_diverges_more(results: list[Result]) -> Measured:
    """Test if differences grow through the blocks."""
    few, many = (mean_over_kernels(results, "BF16", "divergence", depth) for depth in DEPTHS)
    return ratio_text(many, few), ratio_test(many, few, above=1)
