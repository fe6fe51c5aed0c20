"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.flash_attention.jobs import BLOCKS, RISES
from experiments.measurement import largest, over_seeds, select, table_over_seeds
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, EXPONENT, FAR, MATCH, all_of, compare, difference_test, ratio_test

#: The block size of most kernels; and the gaps at which the bias is tested, for two maxima and for one.
BLOCK, TWO, ONE = 64, 14, 12


def longest(results: list[Result]) -> int:
    """Return the largest number of keys."""
    return largest(select(results, kind="online"), "keys")


def errors(results: list[Result], scores: str, kernel: str, block: int) -> NDArray[np.float64]:
    """Return the error with the most keys, for every seed."""
    return over_seeds(results, "error", scores=scores, kernel=kernel, block=block, keys=longest(results))


@claim(
    "{scores} scores: with O in FP32 blocks lose no more than ordinary attention in BF16 ({keys} keys)",
    f"error, each size of blocks / ordinary within {MATCH}",
)
def fp32_loses_nothing(results: list[Result], scores: str) -> Measured:
    """Test Dao et al., arXiv 2205.14135: exact attention, computed by blocks."""
    keys = longest(results)
    ordinary = errors(results, scores, "ordinary", keys)
    found = {block: errors(results, scores, "O in FP32", block) for block in BLOCKS}
    measured = ", ".join(f"blocks of {block} {spread(values / ordinary, 3)}" for block, values in found.items())
    return measured, all_of([compare(values, ordinary) for values in found.values()]), {"keys": keys}


def accumulated(results: list[Result], block: int) -> tuple[NDArray, NDArray[np.float64]]:
    """Return numbers of blocks, and the additional error of O in BF16: the root of the difference of squares."""
    same = {"scores": "steady", "block": block}
    (counts, narrow), (_, wide) = (
        table_over_seeds(results, "error", "blocks", kernel=kernel, **same) for kernel in ("O in BF16", "O in FP32")
    )
    return counts, np.sqrt(np.maximum(narrow**2 - wide**2, np.finfo(float).tiny))


@claim(
    "steady scores: the error by O in BF16 grows as the root of the number of blocks",
    f"slope of the error without that of O in FP32 within {EXPONENT} of 0.5, blocks of {BLOCKS[0]}",
)
def loss_grows_as_the_root(results: list[Result]) -> Measured:
    """Test that errors grow as those of independent steps, for an output of constant size: Higham and Mary 2019."""
    counts, lost = accumulated(results, BLOCKS[0])
    slopes = np.array([np.polyfit(np.log(counts), np.log(row), 1)[0] for row in lost])
    measured = (
        f"{spread(slopes)}; {spread(100 * lost[:, 0])} % at {counts[0]}, {spread(100 * lost[:, -1])} % at {counts[-1]}"
    )
    return measured, difference_test(slopes, 0.5, above=-EXPONENT, below=EXPONENT)


@claim(
    "{scores} scores: O in BF16 is no longer about as good as O in FP32 ({keys} keys, blocks of {block})",
    f"error / error with O in FP32 > {ABOUT:g}",
)
def bf16_is_worse(results: list[Result], scores: str) -> Measured:
    """Test the reason for which kernels keep O in FP32."""
    narrow, wide = (errors(results, scores, kernel, BLOCK) for kernel in ("O in BF16", "O in FP32"))
    return spread(narrow / wide), ratio_test(narrow, wide, above=ABOUT), {"keys": longest(results), "block": BLOCK}


@claim(
    "the rescaling loses: if the maximum keeps rising, O in BF16 is worse than if it settles",
    "error, rising scores / steady scores > 1, blocks of 16 and of 64",
)
def rescaling_is_to_blame(results: list[Result]) -> Measured:
    """Test if the rescaled accumulator loses: each factor below one rounds all kept values once more."""
    pairs = {
        block: [errors(results, scores, "O in BF16", block) for scores in ("rising", "steady")] for block in BLOCKS[:2]
    }
    measured = ", ".join(f"blocks of {block} {spread(rising / steady)}" for block, (rising, steady) in pairs.items())
    return measured, all_of([ratio_test(rising, steady, above=1) for rising, steady in pairs.values()])


def biases(
    results: list[Result], repeats: int, gap: float, cure: str = "as it is", key: str = "bias"
) -> NDArray[np.float64]:
    """Return a measure of rows with `repeats` maxima, for every seed, in units of u."""
    return over_seeds(results, key, kind="maxima", repeats=repeats, gap=gap, cure=cure)


@claim(
    "two equal maxima, values of one sign, little else: rounding P V to BF16 is biased away from zero",
    "mean error of P V > 0",
)
def repeated_maxima_bias(results: list[Result]) -> Measured:
    """Test Qiu and Yao, arXiv 2510.04212: sums of values have a bit too many, and the small rest decides every tie."""
    bias = biases(results, 2, TWO)
    return f"{spread(bias, 3)} u, the rest {rest_of(results, 2, TWO)}", difference_test(bias, 0, above=0)


@claim("{cure}: the bias of P V is gone", f"within 1/{FAR:g} of the bias without the remedy")
def cure_unbiases(results: list[Result], cure: str) -> Measured:
    """Test the same paper: a larger maximum makes all weights smaller than one, and their products equally long."""
    bias, cured = biases(results, 2, TWO), biases(results, 2, TWO, cure)
    return f"{spread(cured, 3)} u", difference_test(cured / np.mean(bias), 0, above=-1 / FAR, below=1 / FAR)


@claim("a single maximum gives no bias", f"within 1/{FAR:g} of the bias of two maxima")
def one_maximum_is_unbiased(results: list[Result]) -> Measured:
    """Test that a bias needs several maxima."""
    bias, one = biases(results, 2, TWO), biases(results, 1, ONE)
    test = difference_test(one / np.mean(bias), 0, above=-1 / FAR, below=1 / FAR)
    return f"{spread(one, 3)} u, the rest {rest_of(results, 1, ONE)}", test


@claim("the doubled maximum costs no accuracy", f"error of the output / error with P V in FP32 within {MATCH}")
def cure_costs_nothing(results: list[Result]) -> Measured:
    """Test that the remedy costs nothing: weights of exactly one need no rounding to BF16; smaller ones do."""
    cured, wide = (biases(results, 2, TWO, cure, "error") for cure in ("maximum doubled", "P V in FP32"))
    return f"{spread(cured, 3)} u, with P V in FP32 {spread(wide, 3)} u", compare(cured, wide)


def rest_of(results: list[Result], repeats: int, gap: float) -> str:
    """Return the mean share of the weights other than those of the maxima, as text."""
    return f"{np.mean(biases(results, repeats, gap, key='rest')):.2g}"


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        *(fp32_loses_nothing(results, scores) for scores in RISES),
        loss_grows_as_the_root(results),
        *(bf16_is_worse(results, scores) for scores in RISES),
        rescaling_is_to_blame(results),
        repeated_maxima_bias(results),
        *(cure_unbiases(results, cure) for cure in ("maximum doubled", "P V in FP32")),
        one_maximum_is_unbiased(results),
        cure_costs_nothing(results),
    ]
