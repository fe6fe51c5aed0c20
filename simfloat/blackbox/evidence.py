"""What probes have shown of a function's additions."""

from __future__ import annotations

from typing import NamedTuple

from simfloat.blackbox.additions import Addition, additions_of, fraction_bits, last_addition
from simfloat.blackbox.probe import BlackBox, ProductRange
from simfloat.blackbox.tree import Tree
from simfloat.formats import FP32, Format, nearest_even

#: An addition that may hide behind results of fewer bits.
UNSEEN = (1, Addition(FP32.precision, nearest_even))


class Evidence(NamedTuple):
    """What probes have shown of a function's additions."""

    inputs: tuple[Format, Format]
    span: ProductRange
    steps: list[tuple[int, Addition]]  # of how many products a sum is, and how it is made
    last: Addition | None
    fraction_bits: int | None = None
    saturates: bool = False

    @property
    def kinds(self) -> list[Addition]:
        """The kinds of additions that were seen."""
        steps = [step for _, step in self.steps]
        return list(dict.fromkeys(steps if self.last is None else [*steps, self.last]))

    @property
    def is_uniform(self) -> bool:
        """Whether all additions are alike; those of compensated sums look as if they kept a bit more than the last."""
        kinds = self.kinds
        corrected = len(kinds) == 2 and kinds[0] == Addition(kinds[1].precision + 1, kinds[1].rounding)
        return len(kinds) == 1 or corrected

    def inside(self, size: int) -> Evidence:
        """What was seen of sums of at most so many products; all that was seen, if nothing was of these."""
        steps = [(products, step) for products, step in self.steps if products <= size]
        return self._replace(steps=steps, last=None) if steps else self

    def above(self, size: int) -> Evidence:
        """What was seen of the sums of runs of so many products; if only the result was of these, all that was seen and
        FP32."""
        steps = [(-(-products // size), step) for products, step in self.steps if products > size]
        return self._replace(steps=steps or [*self.steps, UNSEEN])


def evidence_of(box: BlackBox, span: ProductRange, tree: Tree | None) -> Evidence:
    """The evidence that probes of a function give; without a tree only that of its results."""
    if tree is None:
        return Evidence(box.inputs, span, [], last_addition(box, span, None))
    overflow = box.products(dict.fromkeys(range(box.terms), 2.0**span.high))
    return Evidence(
        box.inputs,
        span,
        additions_of(box, span, tree) or [UNSEEN],
        last_addition(box, span, tree),
        fraction_bits(box, span, tree),
        overflow < 2.0 ** (span.high + 1),
    )
