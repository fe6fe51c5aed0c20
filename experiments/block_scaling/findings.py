"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.block_scaling.rules import BLOCKS, DATA, FORMATS
from experiments.measurement import final, over_seeds, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import MATCH, all_of, compare, difference_test, log_ratios, ratio_test, search_test

#: The differences of losses that DeepSeek-V3 and NVFP4's paper report, relative to BF16 and FP8. The second is also the
#: margin of claims without a number.
DEEPSEEK, NVFP4 = 1.0025, 1.015


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, rules = select(results, kind="training"), select(results, kind="rules")
    if given := select(training, variant="given"):
        return [_close(training, "given", "bf16", MATCH, f"{given[0]['label']}: a loss as low as BF16's")]
    return [
        _floor_saturates(rules),
        _even_saturates_in_e4m3(rules),
        _rounded_up_is_better(rules, "E4M3"),
        _rounded_up_is_better(rules, "E2M1"),
        _close(training, "fp8-delayed", "bf16", NVFP4, "FP8 with delayed scaling trains as BF16 does"),
        _close(training, "fp8-hopper", "bf16", NVFP4, "FP8 with the sums of Hopper's tensor cores trains as BF16 does"),
        _close(training, "fp8-deepseek", "bf16", DEEPSEEK, "FP8 by DeepSeek-V3: a loss within 0.25 % of BF16's"),
        _close(training, "mxfp8", "bf16", NVFP4, "MXFP8 with scales rounded up trains as BF16 does"),
        _floor_trains_worse(training),
        _close(training, "nvfp4", "fp8-hopper", NVFP4, "NVFP4: a loss within 1.5 % of FP8's"),
        _mxfp4_is_worse(training),
        _stochastic_mxfp4_closes_the_gap(training),
        _close(training, "mxfp4-stochastic", "bf16", NVFP4, "MXFP4 with stochastic gradients trains as BF16 does"),
    ]


@claim(
    "scales rounded down (OCP) saturate the largest element of some blocks, scales rounded up saturate none",
    "floor: share of blocks > 0 in every format; ceil, rceil: none",
)
def _floor_saturates(results: list[Result]) -> Measured:
    share = {name: over_seeds(results, "blocks", data="normal", format=name, rule="floor") for name in FORMATS}
    others = [
        value
        for rule in ("ceil", "rceil")
        for name in FORMATS
        for value in over_seeds(results, "blocks", format=name, rule=rule)
    ]
    proof = "both rules scale the largest element to at most the largest number of the format"
    never = search_test(round(sum(others) * BLOCKS), len(others) * BLOCKS, proof)
    test = all_of([never, *(difference_test(values, 0, above=0) for values in share.values())])
    return "floor: " + ", ".join(f"{name} {spread(100 * values, 1)} %" for name, values in share.items()), test


@claim(
    'rule "even" saturates only in E4M3, where NaN has the code of the largest significand',
    "share of blocks > 0 in E4M3, none in other formats",
)
def _even_saturates_in_e4m3(results: list[Result]) -> Measured:
    e4m3 = over_seeds(results, "blocks", data="normal", format="E4M3", rule="even")
    others = np.concatenate(
        [over_seeds(results, "blocks", format=name, rule="even") for name in FORMATS if name != "E4M3"]
    )
    proof = "the largest element is rounded to the precision of the format, whose largest significand has only ones"
    never = search_test(round(others.sum() * BLOCKS), len(others) * BLOCKS, proof)
    test = all_of([difference_test(e4m3, 0, above=0), never])
    return f"{spread(100 * e4m3, 1)} % in E4M3, at most {100 * others.max():.1f} % elsewhere", test


@claim(
    "{format}: scales rounded up lose less than those rounded down",
    "error of rceil / error of floor < 1 on both kinds of data",
)
def _rounded_up_is_better(results: list[Result], format: str) -> Measured:
    ratios, tests = [], []
    for data in DATA:
        up, down = (over_seeds(results, "error", data=data, format=format, rule=rule) for rule in ("rceil", "floor"))
        ratios.append(f"{data} {spread(up / down, 3)}")
        tests.append(ratio_test(up, down, below=1))
    return ", ".join(ratios), all_of(tests)


@claim("GPT: {what}", "loss / loss of {reference} within a factor of {limit}")
def _close(results: list[Result], variant: str, reference: str, limit: float, what: str) -> Measured:
    loss, other = _losses(results, variant, reference)
    return spread(loss / other, 4), compare(loss, other, margin=limit)


@claim("GPT: MXFP8: scales rounded down train worse than those rounded up", "ratio of losses > 1")
def _floor_trains_worse(results: list[Result]) -> Measured:
    down, up = _losses(results, "mxfp8-floor", "mxfp8")
    return spread(down / up, 4), ratio_test(down, up, above=1)


@claim("GPT: MXFP4 without a recipe trains worse than NVFP4 with its recipe", "ratio of losses > 1")
def _mxfp4_is_worse(results: list[Result]) -> Measured:
    mxfp4, nvfp4 = _losses(results, "mxfp4", "nvfp4")
    return spread(mxfp4 / nvfp4, 4), ratio_test(mxfp4, nvfp4, above=1)


@claim(
    "GPT: stochastic gradients close most of the gap of MXFP4 to BF16",
    "log loss above BF16's, minus half of that of MXFP4 without a recipe, < 0",
)
def _stochastic_mxfp4_closes_the_gap(results: list[Result]) -> Measured:
    bf16, bare, stochastic = _losses(results, "bf16", "mxfp4", "mxfp4-stochastic")
    gap, rest = (100 * log_ratios(each, bf16) for each in (bare, stochastic))
    return f"gap {spread(gap)} %, with them {spread(rest)} %", difference_test(rest, gap / 2, below=0)


def _losses(results: list[Result], *variants: str) -> list[NDArray[np.float64]]:
    return [final(results, "gpt", variant) for variant in variants]
