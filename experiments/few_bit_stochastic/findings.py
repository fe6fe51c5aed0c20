"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.few_bit_stochastic.sums import SMALL, SUGGESTED, TERMS
from experiments.few_bit_stochastic.updates import BITS
from experiments.measurement import measured_rows, over_seeds, select
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, MATCH, all_of, compare, count_test, ratio_test, search_test


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    sums, training = select(results, kind="sums"), select(results, kind="training")
    return [
        _bias(select(results, kind="bias")),
        _stagnation(sums),
        _sums(sums, "A", SUGGESTED, f"variant A: {SUGGESTED} bits, half of log2 n, are about as good", enough=True),
        _sums(sums, "A", 3, "variant A: 3 bits are not", enough=False),
        _sums(sums, "C", 1, "variant C: 1 bit is about as good if terms differ", enough=True),
        _trains(training, "C", 4),
        _trains(training, "A", 4),
        _trains(training, "A", 8),
        _nearest(training),
    ]


@claim(
    "N random bits round away with a multiple of 2^-N: A truncates f, B and C round it, ties up or to even",
    "P(away) of every fraction f, and its mean bias: A -2^-(N+1) + 2^-(D+1), B 2^-(D+1), C 0; N = 1 ... {most}",
)
def _bias(results: list[Result]) -> Measured:
    rows = [row for result in results for row in measured_rows(result)]
    wrong = sum(row["exceptions"] + (row["bias"] != row["theory"]) for row in rows)
    fractions = sum(2 ** row["extra"] for row in rows)
    most = max(row["bits"] for row in rows)
    least = {row["mode"]: row["bias"] for row in rows if row["bits"] == 1 and row["extra"] == rows[-1]["extra"]}
    test = count_test(wrong, fractions + len(rows))
    return (
        "N = 1, D = 10: " + ", ".join(f"{variant} {bias:+.4f}" for variant, bias in least.items()) + " of the spacing",
        test,
        {"most": most},
    )


@claim(
    f"sums of equal terms stagnate with too few bits: a fraction 2^-{SMALL} of the spacing needs {SMALL} bits",
    f"the sum moves with {SMALL} bits and more in A and C, with {SMALL - 1} and more in B",
)
def _stagnation(results: list[Result]) -> Measured:
    rows = [row for result in results for row in measured_rows(result) if "small_bits" in row]
    wrong = sum(row["moves"] != row["can"] for row in rows)
    moving = {
        variant: [row["small_bits"] for row in rows if row["mode"] == variant and row["moves"]] for variant in "ABC"
    }
    texts = [f"{variant} with {min(bits)} and more" if bits else f"{variant} never" for variant, bits in moving.items()]
    proof = (
        "2^N f of the 2^N draws round away; A rounds this number down, B to nearest with ties up, "
        f"C to nearest with ties to even; f = 2^-{SMALL}"
    )
    return ", ".join(texts), search_test(wrong, len(rows), proof)


@claim(
    f"sums of {TERMS} random terms compared with 32 bits, {{claim}}",
    f"root mean square error / that with 32 bits {{sign}} {ABOUT:g}",
)
def _sums(results: list[Result], variant: str, bits: int, claim: str, *, enough: bool) -> Measured:
    few, all_bits = (over_seeds(results, "error", mode=variant, bits=number) for number in (bits, 32))
    return spread(few / all_bits), ratio_test(few, all_bits, **_limit(ABOUT, enough)), {"sign": "<" if enough else ">"}


def _losses(results: list[Result], variant: str, bits: int) -> NDArray[np.float64]:
    return over_seeds(results, "loss", mode=variant, bits=bits)


@claim(
    "digits, BF16 weights, variant {variant}: {bits} random bits train as 32 do",
    f"loss / loss with 32 bits within a factor of {MATCH}",
)
def _trains(results: list[Result], variant: str, bits: int) -> Measured:
    few, all_bits = _losses(results, variant, bits), _losses(results, variant, BITS[-1])
    return spread(few / all_bits, 4), compare(few, all_bits)


@claim(
    "digits, BF16 weights: even 1 random bit is better than rounding to nearest",
    "loss / loss to nearest < 1, in A and C",
)
def _nearest(results: list[Result]) -> Measured:
    nearest = _losses(results, "nearest", 0)
    parts = {variant: _losses(results, variant, 1) / nearest for variant in ("A", "C")}
    test = all_of([ratio_test(_losses(results, variant, 1), nearest, below=1) for variant in parts])
    return ", ".join(f"{variant} {spread(values, 3)}" for variant, values in parts.items()), test


def _limit(value: float, enough: bool) -> dict[str, float]:
    return {"below": value} if enough else {"above": value}
