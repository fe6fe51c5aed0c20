"""The borders of fused composites: operations inside compute in the format of `reduce`, results are rounded once.

The gradient of an operand adds up inside, in the format of `reduce` too, and is rounded to its role where it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from simfloat.autodiff.movement import seen
from simfloat.autodiff.record import Made, begin, finish
from simfloat.autodiff.variable import Variable


def enter(name: str, x: Variable) -> Made:
    """An operand as the inside of the composite sees it: the same numbers."""
    started = begin(name, x)
    used = started.operands[0]
    return finish(started, seen(used), used.format, lambda u, g: u.round(g), is_view=True)


def leave(name: str, result: Variable, operands: Sequence[Variable]) -> Made:
    """The result of the composite, rounded as results of operations on these operands are."""
    arithmetic = begin(name, *operands).forward
    return finish(begin(name, result), arithmetic.round(result.numbers), arithmetic.format, lambda u, g: g)
