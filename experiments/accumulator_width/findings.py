"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.accumulator_width.dots import CHUNK, CHUNKED_BITS, CHUNKED_LENGTH, needed_bits
from experiments.accumulator_width.training import CHUNK as TRAINED_CHUNK
from experiments.measurement import final, measured_rows, select, table_over_seeds
from experiments.operands import DATA, TITLES
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, EXPONENT, MATCH, all_of, compare, difference_test, ratio_test

#: The allowed error of a sum.
ALLOWED = 0.05

#: Bits that each doubling of the length needs: half a bit if errors are random, one if they add up.
THEORY = {"normal": 0.5, "uniform": 1.0}


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim that the results test."""
    dots, training = select(results, kind="dots"), select(results, kind="training")
    if given := select(training, variant="given"):
        return [_trains(training, "given", f"{given[0]['label']} trains as with FP32 sums")]
    return [
        *(_growth(dots, data) for data in DATA),
        _chunks_save(dots),
        _best_chunk(dots),
        _too_narrow(training),
        _trains(training, "5", "sums of 5 mantissa bits train as FP32 sums do"),
        _trains(training, "3 chunked", f"in chunks of {TRAINED_CHUNK}, sums of 3 bits train as FP32 sums do"),
    ]


def needed(results: list[Result], data: str, chunk: int) -> tuple[NDArray, NDArray[np.float64]]:
    """Return lengths, and the bits that each needs (seeds, lengths)."""
    rows = [row for result in results for row in measured_rows(result) if "length" in row]
    lengths = sorted({row["length"] for row in rows})
    columns = []
    for length in lengths:
        bits, errors = table_over_seeds(of_lengths(results), "error", "bits", data=data, chunk=chunk, length=length)
        columns.append([needed_bits(bits, row, ALLOWED) for row in errors])
    return np.array(lengths), np.array(columns).T


def of_lengths(results: list[Result]) -> list[Result]:
    """Return the results without the measurements of chunks only."""
    return [{**result, "rows": [row for row in result["rows"] if "length" in row]} for result in results]


def of_chunks(results: list[Result]) -> list[Result]:
    """Return only the measurements of chunks."""
    return [{**result, "rows": [row for row in result["rows"] if "only_chunk" in row]} for result in results]


@claim(
    "{title}: every doubling of the length costs {theory:g} mantissa bits",
    f"slope of the bits needed for an error of {100 * ALLOWED:.0f} % within {EXPONENT} of that",
)
def _growth(results: list[Result], data: str) -> Measured:
    lengths, bits = needed(results, data, chunk=0)
    slopes = np.array([np.polyfit(np.log2(lengths), row, 1)[0] for row in bits])
    test = difference_test(slopes, THEORY[data], above=-EXPONENT, below=EXPONENT)
    return (
        (
            f"{spread(slopes)} bits a doubling; K = {lengths[0]} needs {spread(bits[:, 0], 1)}, "
            f"K = {lengths[-1]} {spread(bits[:, -1], 1)}"
        ),
        test,
        {"title": TITLES[data], "theory": THEORY[data]},
    )


@claim(
    f"summing in chunks of {CHUNK} saves several mantissa bits (K = {{longest}})",
    f"bits needed for an error of {100 * ALLOWED:.0f} % - those with chunks > 2, on both kinds of data",
)
def _chunks_save(results: list[Result]) -> Measured:
    saved = {}
    for data in DATA:
        (lengths, plain), (_, chunked) = (needed(results, data, chunk) for chunk in (0, CHUNK))
        saved[data] = plain[:, -1] - chunked[:, -1]
    test = all_of([difference_test(values, 0, above=2) for values in saved.values()])
    return ", ".join(f"{data} {spread(values, 1)}" for data, values in saved.items()), test, {"longest": lengths[-1]}


@claim(
    f"chunks of the root of the length are near the best (K = {CHUNKED_LENGTH}, {CHUNKED_BITS} bits)",
    f"error with chunks of {{root}} / error with the best < {ABOUT:g}",
)
def _best_chunk(results: list[Result]) -> Measured:
    root = round(CHUNKED_LENGTH**0.5)
    parts, text = [], []
    for data in DATA:
        chunks, errors = table_over_seeds(of_chunks(results), "error", "only_chunk", data=data)
        best = int(np.argmin(errors.mean(axis=0)))
        at_root = errors[:, list(chunks).index(root)]
        parts.append(ratio_test(at_root, errors[:, best], below=ABOUT))
        text.append(f"{data}: {spread(at_root / errors[:, best])} times that of the best, {chunks[best]}")
    return "; ".join(text), all_of(parts), {"root": root}


@claim(
    "digits: sums of 3 mantissa bits, below what 256 products need, degrade training",
    f"loss / loss with FP32 sums > {MATCH}",
)
def _too_narrow(results: list[Result]) -> Measured:
    fp32, narrow = final(results, "digits", "fp32"), final(results, "digits", "3")
    return spread(narrow / fp32), ratio_test(narrow, fp32, above=MATCH)


@claim("digits: {what}", f"loss / loss with FP32 sums within a factor of {MATCH}")
def _trains(results: list[Result], variant: str, what: str) -> Measured:
    fp32, found = final(results, "digits", "fp32"), final(results, "digits", variant)
    return spread(found / fp32, 3), compare(found, fp32)
