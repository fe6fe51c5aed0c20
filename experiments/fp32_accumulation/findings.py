"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.fp32_accumulation.problems import PROBLEMS
from experiments.measurement import against_fp32, final, measured_rows, over_seeds, select
from experiments.operands import DATA
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, FAR, HARDLY, MANY, MATCH, all_of, compare, difference_test, ratio_test

NARROW, WIDE = ("products", "all"), ("mixed", "tensor-core")


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    training, lengths = select(results, kind="training"), select(results, kind="sums")
    if given := against_fp32(training, PROBLEMS):
        return given
    return [
        _wide_sums_stay(lengths),
        _narrow_sums_grow(lengths),
        _one_sign_stagnates(lengths),
        _tensor_core(lengths),
        _first_gradient(select(results, kind="gradients")),
        _wide_training_matches(training),
        _storage_is_enough(training),
        _narrow_training_does_not(training),
        _reductions_cost(training),
        _reductions_cost_by_averages(training),
        _pairs_cost(training),
        _pointwise_is_alike(training),
    ]


def ends(results: list[Result]) -> tuple[int, int]:
    """Return the smallest and the largest measured length."""
    lengths = [row["length"] for result in results for row in measured_rows(result)]
    return min(lengths), max(lengths)


def _error(results: list[Result], data: str, accumulator: str, length: int) -> NDArray[np.float64]:
    return over_seeds(results, "error", data=data, accumulator=accumulator, length=length)


@claim(
    "sums that are accumulated in FP32 and rounded to FP16 do not lose accuracy with their length",
    f"error of {{long}} products / error of {{short}} < {ABOUT:g}, on both kinds of data",
)
def _wide_sums_stay(results: list[Result]) -> Measured:
    short, long = ends(results)
    pairs = {data: [_error(results, data, "fp32", length) for length in (long, short)] for data in DATA}
    test = all_of([ratio_test(*pair, below=ABOUT) for pair in pairs.values()])
    return ", ".join(f"{data} {spread(a / b)}" for data, (a, b) in pairs.items()), test, {"long": long, "short": short}


@claim(
    "sums of {long} products are far less accurate if they are accumulated in FP16",
    f"error / error of FP32 accumulation > {FAR:g}, on both kinds of data",
)
def _narrow_sums_grow(results: list[Result]) -> Measured:
    _, long = ends(results)
    pairs = {data: [_error(results, data, name, long) for name in ("fp16", "fp32")] for data in DATA}
    test = all_of([ratio_test(*pair, above=FAR) for pair in pairs.values()])
    return ", ".join(f"{data} {spread(a / b, 0)}" for data, (a, b) in pairs.items()), test, {"long": long}


@claim("sums of {long} products of one sign stop growing in FP16", f"more than {MANY:.0%} of the sum is missing")
def _one_sign_stagnates(results: list[Result]) -> Measured:
    _, long = ends(results)
    names = ("fp16", "volta-fp16", "volta-fp32")
    missing = {name: over_seeds(results, "short", data="uniform", accumulator=name, length=long) for name in names}
    test = difference_test(missing["fp16"], MANY, above=0)
    return ", ".join(f"{name} {spread(100 * share, 1)} %" for name, share in missing.items()), test, {"long": long}


@claim(
    "Volta's tensor core, which accumulates in either, is about as good as FP32 only with FP32",
    f"{{long}} products: error / error of FP32 accumulation < {ABOUT:g} with FP32, > {FAR:g} with FP16",
)
def _tensor_core(results: list[Result]) -> Measured:
    _, long = ends(results)
    tests, texts = [], []
    for data in DATA:
        fp32 = _error(results, data, "fp32", long)
        wide, narrow = (_error(results, data, f"volta-{name}", long) for name in ("fp32", "fp16"))
        tests += [ratio_test(wide, fp32, below=ABOUT), ratio_test(narrow, fp32, above=FAR)]
        texts.append(f"{data} {spread(wide / fp32)} and {spread(narrow / fp32, 0)}")
    return ", ".join(texts), all_of(tests), {"long": long}


@claim(
    "segmentation: FP16 sums lose a large part of the first gradient of the weights, FP32 sums hardly any",
    f"distance to FP64's / its norm > {MANY} with FP16, < {HARDLY} with FP32",
)
def _first_gradient(results: list[Result]) -> Measured:
    errors = {name: over_seeds(results, "error", under=name) for name in (*NARROW, *WIDE)}
    tests = [difference_test(errors[name], MANY, above=0) for name in NARROW]
    test = all_of([*tests, *(difference_test(errors[name], HARDLY, below=0) for name in WIDE)])
    return ", ".join(f"{name} {spread(error, 4)}" for name, error in errors.items()), test


@claim("segmentation: with FP32 sums FP16 training matches FP32", f"loss / FP32's loss within a factor of {MATCH}")
def _wide_training_matches(results: list[Result]) -> Measured:
    fp32 = final(results, "segmentation", "fp32")
    losses = {name: final(results, "segmentation", name) for name in WIDE}
    test = all_of([compare(loss, fp32) for loss in losses.values()])
    return ", ".join(f"{name} {spread(loss / fp32, 4)}" for name, loss in losses.items()), test


@claim(
    "segmentation: FP16 storage with exact FP32 sums trains as with Volta's tensor core",
    f"loss / loss with the tensor core within a factor of {MATCH}",
)
def _storage_is_enough(results: list[Result]) -> Measured:
    storage, core = (final(results, "segmentation", name) for name in WIDE)
    return spread(storage / core, 4), compare(storage, core)


@claim("segmentation: with FP16 sums FP16 training does not match FP32", f"loss / FP32's loss > {MATCH}")
def _narrow_training_does_not(results: list[Result]) -> Measured:
    fp32 = final(results, "segmentation", "fp32")
    losses = {name: final(results, "segmentation", name) for name in NARROW}
    ink = {name: final(results, "segmentation", name, "ink") for name in (*NARROW, "fp32")}
    test = all_of([ratio_test(loss, fp32, above=MATCH) for loss in losses.values()])
    return (
        ", ".join(f"{name} {spread(loss / fp32, 3)}" for name, loss in losses.items())
        + "; expected ink / true ink: "
        + ", ".join(f"{name} {spread(share)}" for name, share in ink.items())
    ), test


@claim(
    "normalised: large reductions, such as the statistics of batch norm, should be carried out in FP32",
    f"FP16 reductions: loss / FP32's loss > {MATCH}",
)
def _reductions_cost(results: list[Result]) -> Measured:
    return _loss_above_fp32(results, "reductions")


def _loss_above_fp32(results: list[Result], variant: str, *measure: str) -> Measured:
    """Test that the loss of a variant does not match FP32's, by a measure of `final`."""
    loss, fp32 = (final(results, "normalised", each, *measure) for each in (variant, "fp32"))
    return spread(loss / fp32, 3), ratio_test(loss, fp32, above=MATCH)


@claim(
    "normalised: large reductions should be carried out in FP32, if models are judged with the averages of training",
    f"FP16 reductions, running averages of batch norm: loss / FP32's loss > {MATCH}",
)
def _reductions_cost_by_averages(results: list[Result]) -> Measured:
    return _loss_above_fp32(results, "reductions", "averaged")


@claim(
    "normalised: large reductions should be carried out in FP32, also if they add in pairs",
    f"FP16 reductions in pairs: loss / FP32's loss > {MATCH}",
)
def _pairs_cost(results: list[Result]) -> Measured:
    return _loss_above_fp32(results, "pairs")


@claim(
    "normalised: pointwise operations may be carried out in either format",
    f"in FP16 and in FP32, loss / FP32's loss within a factor of {MATCH}",
)
def _pointwise_is_alike(results: list[Result]) -> Measured:
    fp32 = final(results, "normalised", "fp32")
    losses = {name: final(results, "normalised", name) for name in ("mixed", "pointwise")}
    test = all_of([compare(loss, fp32) for loss in losses.values()])
    return f"FP16 {spread(losses['mixed'] / fp32, 3)}, FP32 {spread(losses['pointwise'] / fp32, 3)}", test
