"""The claims, and their tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.measurement import final, measured_rows, over_seeds, select, table_over_seeds
from experiments.muon_bf16.iterations import STEPS
from simfloat.studies import Finding, Measured, Result, claim, spread
from simfloat.studies.verdicts import ABOUT, EXPONENT, FAR, MATCH, all_of, compare, difference_test, ratio_test


def sizes(results: list[Result]) -> list[int]:
    """Return the sizes of matrices, ascending."""
    return sorted({row["size"] for result in select(results, kind="iterations") for row in measured_rows(result)})


def errors(results: list[Result], coefficients: str, precision: str, steps: int, size: int) -> NDArray[np.float64]:
    """Return the final distance of the iteration from an orthogonal matrix, for every seed."""
    where = {"coefficients": coefficients, "precision": precision, "steps": steps, "size": size}
    return over_seeds(results, "error", kind="iterations", **where)


@claim(
    "five steps with Muon's coefficients come as near to orthogonal in BF16 as in FP32",
    f"distance / FP32's within {MATCH}, matrices of each size",
)
def bf16_is_enough(results: list[Result]) -> Measured:
    """Test Jordan et al. 2024: the iteration "can be stably run in bfloat16"."""
    pairs = {
        size: [errors(results, "Muon's", name, STEPS[0], size) for name in ("BF16", "FP32")] for size in sizes(results)
    }
    measured = ", ".join(f"{size}: {spread(bf16, 3)} / {spread(fp32, 3)}" for size, (bf16, fp32) in pairs.items())
    return measured, all_of([compare(bf16, fp32) for bf16, fp32 in pairs.values()])


@claim(
    "the effect of BF16 does not grow with the matrix",
    f"exponent of the distance from float64's iteration by size < {EXPONENT}",
)
def change_does_not_grow(results: list[Result]) -> Measured:
    """Test that the error does not grow with the size: sums are in FP32, so there are no more roundings in a row."""
    where = {"coefficients": "Muon's", "precision": "BF16", "steps": STEPS[0]}
    found, changes = table_over_seeds(select(results, kind="iterations"), "change", "size", **where)
    slopes = np.array([np.polyfit(np.log(found), np.log(row), 1)[0] for row in changes])
    measured = f"{spread(slopes)}; {spread(changes[:, 0], 3)} at {found[0]}, {spread(changes[:, -1], 3)} at {found[-1]}"
    return measured, difference_test(slopes, EXPONENT, below=0)


@claim(
    "with coefficients that converge, BF16 stops far from orthogonal ({steps} steps, {size} rows)",
    f"distance / FP32's > {FAR:g}",
)
def converging_stops_in_bf16(results: list[Result]) -> Measured:
    """Test what "stably" does not say: an iteration that converges has the precision of its last step."""
    where = {"steps": STEPS[-1], "size": sizes(results)[-1]}
    bf16, fp32 = (errors(results, "converging", name, **where) for name in ("BF16", "FP32"))
    return f"{spread(bf16, 4)}, FP32 {np.mean(fp32):.2g}", ratio_test(bf16, fp32, above=FAR), where


@claim(
    "with coefficients that converge, the operands of products lose ({steps} steps, {size} rows)",
    f"distance with BF16 operands and FP32 results / with BF16 throughout within a factor of {ABOUT:g}",
)
def operands_lose(results: list[Result]) -> Measured:
    """Test that operands lose: tensor cores accept BF16 operands, and need not round their results."""
    where = {"steps": STEPS[-1], "size": sizes(results)[-1]}
    operands, bf16 = (errors(results, "converging", name, **where) for name in ("BF16 operands", "BF16"))
    return f"{spread(operands / bf16)}", ratio_test(operands, bf16, above=1 / ABOUT, below=ABOUT), where


@claim("digits: Muon trains with {precision} as with FP32", f"loss / FP32's within a factor of {MATCH}")
def trains_as_fp32(results: list[Result], precision: str) -> Measured:
    """Test the claim of the same source that nothing is lost in training."""
    loss, fp32 = (final(results, "digits", name) for name in (precision, "FP32"))
    diverged = int(np.sum(~np.isfinite(loss)))
    measured = f"{diverged} of {len(loss)} runs diverge" if diverged else spread(loss / fp32, 4)
    return measured, compare(loss, fp32)


def findings(results: list[Result]) -> list[Finding]:
    """Return one finding for each claim."""
    return [
        bf16_is_enough(results),
        change_does_not_grow(results),
        converging_stops_in_bf16(results),
        operands_lose(results),
        *(trains_as_fp32(results, precision) for precision in ("BF16", "BF16 operands", "E4M3 operands")),
    ]
