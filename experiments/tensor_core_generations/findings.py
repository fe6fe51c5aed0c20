"""The claims, and their tests."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from experiments.measurement import measured_rows, over_seeds, select
from experiments.operands import DATA, TITLES
from experiments.tensor_core_generations.jobs import FEW, example
from experiments.tensor_core_generations.units import GENERATIONS, GROUPS, INTERVAL
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, FAR, MOST, all_of, count_test, difference_test, ratio_test, search_test

#: The results of equation 10 in arXiv 2511.10909.
EXAMPLE = {"volta": 0.0, "turing": -0.5, "ampere": -0.5, "ada": -0.5, "hopper": -0.75, "blackwell": -0.75}

#: DeepSeek-V3's largest error: nearly 2 %.
NEARLY = 0.02


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    half, eight = select(results, kind="fp16"), select(results, kind="fp8")
    return [
        _example(),
        _groups(half),
        _toward_zero(half),
        *(_newer_is_closer(half, data) for data in DATA),
        _drift(half),
        _nearly_two_percent(eight, "uniform", "greatest", "the element"),
        _nearly_two_percent(eight, "normal", "spread", "the elements' root mean square"),
        _nearly_two_percent(eight, "normal", "few_spread", f"their root mean square among the first {FEW} sums"),
        _promotion(eight),
        _blackwell(eight),
    ]


@claim(
    "FP16: one set of operands distinguishes generations (equation 10 of arXiv 2511.10909; exactly -0.875)",
    "Volta 0; Turing, Ampere, Ada -0.5; Hopper, Blackwell -0.75",
)
def _example() -> Measured:
    found = example()
    wrong = sum(found[name] != EXAMPLE[name] for name in GENERATIONS)
    return ", ".join(f"{_name(name)} {value:g}" for name, value in found.items()), count_test(wrong, len(GENERATIONS))


@claim(
    "FP16: Turing, Ampere and Ada are equal, Hopper and Blackwell are equal, Volta and an FP32 chain differ from both",
    "no bit differs within a group; some do between two",
)
def _groups(results: list[Result]) -> Measured:
    group = {name: first for first, names in GROUPS.items() for name in names}
    rows = [row for result in results for row in measured_rows(result) if "differing" in row]
    within = [row["differing"] for row in rows if group[row["first"]] == group[row["second"]]]
    across = [row["differing"] for row in rows if group[row["first"]] != group[row["second"]]]
    wrong = sum(share > 0 for share in within) + sum(share == 0 for share in across)
    proof = "the units of a group have the same parameters; one result that differs distinguishes two units"
    test = search_test(wrong, len(rows), proof)
    return f"between groups {100 * min(across):.0f} to {100 * max(across):.0f} % of the results differ", test


@claim(
    f"FP16 {TITLES['uniform']}: tensor cores' sums come out too small, an FP32 chain's do not (K = {{longest}})",
    "mean error of each unit < 0; of the chain less than half of its mean magnitude",
)
def _toward_zero(results: list[Result]) -> Measured:
    longest = _longest(results)
    bias = {first: over_seeds(results, "outward", data="uniform", unit=first, length=longest) for first in GROUPS}
    error = over_seeds(results, "error", data="uniform", unit="fp32", length=longest)
    cut = [difference_test(values, 0, below=0) for first, values in bias.items() if first != "fp32"]
    test = all_of([*cut, ratio_test(abs(bias["fp32"]), error, below=MOST)])
    return (
        ", ".join(f"{_name(first)} {spread(1e6 * values)}" for first, values in bias.items()) + " in 1e-6",
        test,
        {"longest": longest},
    )


@claim(
    "FP16 {title}: a unit with more fraction bits is more accurate (K = {longest})",
    "mean error: Volta (23) > Turing (24) > Hopper (25); ratio of neighbours > 1",
)
def _newer_is_closer(results: list[Result], data: str) -> Measured:
    longest = _longest(results)
    error = {first: over_seeds(results, "error", data=data, unit=first, length=longest) for first in GROUPS}
    units = [first for first in GROUPS if first != "fp32"]
    test = all_of([ratio_test(error[old], error[new], above=1) for old, new in pairwise(units)])
    return (
        (
            ", ".join(f"{_name(first)} {spread(1e8 * values, 1)}" for first, values in error.items())
            + " in 1e-8 of sum |a b|"
        ),
        test,
        {"title": TITLES[data], "longest": longest},
    )


@claim(
    f"FP16 {TITLES['normal']}: units that truncate the sum, not only terms, shrink it at every step (K = {{longest}})",
    "Turing and Hopper: error toward zero / mean error > 0.5",
)
def _drift(results: list[Result]) -> Measured:
    longest = _longest(results)
    error, outward = (
        {first: over_seeds(results, key, data="normal", unit=first, length=longest) for first in GROUPS}
        for key in ("error", "outward")
    )
    share = {first: -outward[first] / error[first] for first in GROUPS}
    test = all_of([difference_test(share["turing"], MOST, above=0), difference_test(share["hopper"], MOST, above=0)])
    return ", ".join(f"{_name(first)} {spread(values)}" for first, values in share.items()), test, {"longest": longest}


@claim(
    "FP8 on Hopper, {title}: the greatest error is nearly 2 % of {reference} (K = {longest})",
    f"{100 * NEARLY:.0f} % within a factor of {ABOUT:g}",
)
def _nearly_two_percent(results: list[Result], data: str, key: str, reference: str) -> Measured:
    longest = _longest(results)
    values = over_seeds(results, key, data=data, unit="hopper", length=longest)
    test = ratio_test(values, np.full(len(values), NEARLY), above=1 / ABOUT, below=ABOUT)
    return f"{spread(100 * values)} %", test, {"title": TITLES[data], "longest": longest}


@claim(
    f"FP8 on Hopper: FP32 promotion every {INTERVAL} products makes sums far more accurate (K = {{longest}})",
    f"greatest error / that without promotion < {1 / FAR:g}, on both kinds of data",
)
def _promotion(results: list[Result]) -> Measured:
    longest = _longest(results)
    direct, moved = (
        {data: over_seeds(results, "greatest", data=data, unit=unit, length=longest) for data in DATA}
        for unit in ("hopper", "promoted")
    )
    test = all_of([ratio_test(moved[data], direct[data], below=1 / FAR) for data in direct])
    return ", ".join(f"{data} {spread(moved[data] / direct[data], 4)}" for data in direct), test, {"longest": longest}


@claim(
    "FP8: Blackwell needs no promotion (K = {longest})",
    "greatest error / that of Hopper with promotion < 1, on both kinds of data",
)
def _blackwell(results: list[Result]) -> Measured:
    longest = _longest(results)
    parts, text = [], []
    for data in DATA:
        new, old = (
            over_seeds(results, "greatest", data=data, unit=unit, length=longest) for unit in ("blackwell", "promoted")
        )
        parts.append(ratio_test(new, old, below=1))
        text.append(f"{data} {spread(new / old, 4)}")
    return ", ".join(text), all_of(parts), {"longest": longest}


def _longest(results: list[Result]) -> int:
    """Return the largest length of the sums."""
    return max(row.get("length", 0) for result in results for row in measured_rows(result))


def _name(unit: str) -> str:
    return "FP32" if unit == "fp32" else unit.capitalize()
