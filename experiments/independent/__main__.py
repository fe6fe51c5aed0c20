"""The command: python -m experiments.independent."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from experiments.independent import (
    accumulation,
    attention,
    blocks,
    detector,
    eight_bits,
    large,
    rules,
    scaling,
    sums,
    switching,
    trainings,
)
from experiments.independent.narrow import Remade

#: The repeated findings, the fastest first.
AGAIN: tuple[Callable[[], Remade | tuple[Remade, ...]], ...] = (
    rules.orders_of_scaling,
    rules.squares_overflow,
    sums.harmonic_series,
    sums.counting,
    sums.below_the_least,
    sums.small_updates,
    sums.block_scales,
    accumulation.random_bits,
    accumulation.small_decays,
    accumulation.second_moments,
    accumulation.repeated_maxima,
    accumulation.aligned_sums,
    accumulation.promotion,
    accumulation.growth,
    accumulation.muon,
    accumulation.long_sums,
    accumulation.replicas,
    attention.rotary,
    sums.accumulator_bits,
    sums.stochastic_sums,
    trainings.least_squares,
    trainings.limits,
    scaling.resting_places,
    scaling.log_normal,
    scaling.dynamic_scale,
    scaling.loss_scales,
    trainings.sixteen_bits,
    trainings.tuned_rates,
    trainings.images,
    blocks.gains,
    attention.trained_rows,
    attention.kernels,
    blocks.fp4,
    blocks.language,
    eight_bits.significant_bits,
    rules.batch_norm_sums,
    rules.reductions,
    rules.autocast,
    rules.apex_level_3,
    eight_bits.hybrid_gradients,
    eight_bits.cheapest,
    rules.narrow_squares,
    switching.switching,
    eight_bits.hybrid_training,
    large.perplexities,
    detector.detection,
    large.photographs,
)

#: Verdicts that say that a difference is within the margin.
WITHIN = {"equal", "worse within the margin"}

#: A row of findings: its claim first, its verdict last.
ROW = re.compile(r"^\| (.*?) \| .* \| (.*?) \|$", re.MULTILINE)


def stored_verdict(remade: Remade) -> str:
    """Return the verdict of the experiment's README on the claim. Raises ValueError if the claim is missing."""
    readme = Path(__file__).parents[1] / remade.experiment.replace("-", "_") / "README.md"
    for claim, verdict in ROW.findall(readme.read_text(encoding="utf-8")):
        if claim.startswith(remade.claim):
            return verdict.partition(" (")[0]
    raise ValueError(f"{readme} has no claim that begins {remade.claim!r}.")


def contradict(one: str, other: str) -> bool:
    """True if two verdicts exclude each other: both are decided, and they do not both say "within the margin"."""
    return one != other and "inconclusive" not in (one, other) and not {one, other} <= WITHIN


def main() -> int:
    """Repeat all findings, and print a line for each and their number; return 1 if one contradicts the README."""
    others, experiments = 0, []
    for make in AGAIN:
        made = make()
        for remade in [made] if isinstance(made, Remade) else made:
            stored = stored_verdict(remade)
            experiments.append(remade.experiment)
            others += contradict(stored, remade.verdict)
            beside = "as in the README" if stored == remade.verdict else f"README: {stored}"
            print(f"{remade.experiment}: {remade.claim} ... {remade.measured}: {remade.verdict} ({beside})", flush=True)
    print(
        f"{len(experiments)} findings of {len(set(experiments))} experiments; {others} verdicts contradict the README; "
        f"{time.process_time():.0f} seconds of processor time"
    )
    return int(others > 0)


if __name__ == "__main__":
    sys.exit(main())
