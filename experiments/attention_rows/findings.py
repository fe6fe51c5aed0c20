"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.attention_rows.rows import SMALL
from experiments.measurement import largest, over_seeds
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import FAR, MANY, difference_test, ratio_test

#: The bias of P V, in u, for two equal maxima, values of one sign and little else (experiment flash-attention).
REPEATED = 0.284

#: The factor of the scores that stands for sharper attention.
SHARP = 8.0


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        many_have_ones(results),
        ones_have_company(results),
        is_biased(results),
        is_nearly_unbiased(results, 1.0, "scores as they are"),
        is_biased_if_sharp(results),
        is_nearly_unbiased(results, SHARP, f"scores {SHARP:g} times as large"),
        output_is_nearly_unbiased(results),
    ]


def at_end(results: list[Result], key: str, factor: float = 1.0) -> NDArray[np.float64]:
    """Return a measure of rows at the end of training, for every seed."""
    return over_seeds(results, key, step=last(results), factor=factor)


def last(results: list[Result]) -> int:
    """Return the number of steps of training."""
    return largest(results, "step")


@claim("many rows of a trained GPT have several weights that are exactly 1 in BF16", f"share of rows > {MANY}")
def many_have_ones(results: list[Result]) -> Measured:
    """Test the condition of Qiu and Yao, arXiv 2510.04212: the maximum of a row is repeated."""
    ones, before = at_end(results, "ones"), over_seeds(results, "ones", step=0, factor=1.0)
    text = f"{spread(100 * ones)} % of rows, {spread(100 * before)} % before training"
    return text, difference_test(ones, MANY, above=0)


@claim(
    "in rows with several such weights, the others are far more than the bias permits",
    f"smallest share of the other weights / 2^-9 > {FAR:g}",
)
def ones_have_company(results: list[Result]) -> Measured:
    """Test the other condition: the bias needs a rest that is smaller than about 2^-9 of the row."""
    least, both = at_end(results, "least"), at_end(results, "both")
    text = f"smallest share {spread(least, 3)}; {100 * np.mean(both):.2g} % of rows have both"
    return text, ratio_test(least, np.full(len(least), SMALL), above=FAR)


@claim("scores as they are: rounding P V to BF16 is biased away from zero", "mean error of P V > 0")
def is_biased(results: list[Result]) -> Measured:
    """Test the bias of the same paper on trained rows."""
    bias = at_end(results, "bias")
    return f"{spread(bias, 4)} u", difference_test(bias, 0, above=0)


@claim("scores {factor:g} times as large: rounding P V to BF16 is biased away from zero", "mean error of P V > 0")
def is_biased_if_sharp(results: list[Result], factor: float = SHARP) -> Measured:
    """Test the same on the same rows with sharper attention."""
    bias, small = at_end(results, "bias", factor), at_end(results, "small", factor)
    return f"{spread(bias, 4)} u, {spread(100 * small, 1)} % of rows have little else", difference_test(
        bias, 0, above=0
    )


@claim("{what}: the bias of P V is far smaller than for two equal maxima", f"within {REPEATED} u / {FAR:g}")
def is_nearly_unbiased(results: list[Result], factor: float, what: str) -> Measured:
    """Test if the bias is negligible on rows of a trained model, in either direction."""
    bias = at_end(results, "bias", factor)
    return f"{spread(bias, 4)} u", difference_test(bias / REPEATED, 0, above=-1 / FAR, below=1 / FAR)


@claim("scores as they are: the bias of the output is far smaller, too", f"within {REPEATED} u / {FAR:g}")
def output_is_nearly_unbiased(results: list[Result]) -> Measured:
    """Test the same for the output, which kernels round once, after the division."""
    bias = at_end(results, "output")
    return f"{spread(bias, 4)} u", difference_test(bias / REPEATED, 0, above=-1 / FAR, below=1 / FAR)
