"""Orders of summation, each written as one step: what a sum does with the next product.

A step is made for a kind of rounded operations, of :mod:`simfloat.kernels.step_kinds`: `multiply`, `add` and
`subtract`, each called as ``add(a, b, draw, options)``. It gets the sum's state, a tuple of numbers that begins with
the running sum, two factors, and a draw for each of its stages, as its roundings are called; it returns the new state.
The first number of a state is at first what the sum starts from, the others are zero. The loops around it (`stepwise`,
and `cuda/thread_stepwise`) are the same for all.

A step in which nothing but operands of operations depends on numbers is carried out on rows of them, too. One that
compares numbers does so by :func:`simfloat.kernels.halves.magnitude`, since they may be images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from simfloat.kernels.jit import scalar


@scalar
def running_sum(state, draw, options):
    """The sum in a state that holds nothing else that belongs to it."""
    return state[0]


class Order(NamedTuple):
    """An order of summation for all kinds of operations."""

    step: Callable  # (multiply, add, subtract) -> the step: (state, x, y, draws, options) -> state
    state: int  # the numbers of a state
    stages: int  # the roundings of a step that draw, each from a stage of its own, and one for `finish` if it rounds
    finish: Callable | None = None  # add -> (state, draw, options) -> the sum; None: the first number of the state
    on_rows: bool = True  # whether the step takes rows in the place of numbers


def kahan(multiply: Any, add: Any, subtract: Any) -> Any:
    """Kahan's compensated sum (Kahan 1965; Higham 2002, section 4.3): the sum s, and c, by which it is too large.

    p = x * y, y = p - c, t = s + y, c = (t - s) - y, s = t.
    """

    @scalar
    def step(state, x, y, draws, options):
        s, c = state
        p = multiply(x, y, draws[1], options)
        corrected = subtract(p, c, draws[2], options)
        t = add(s, corrected, draws[0], options)
        return t, subtract(subtract(t, s, draws[3], options), corrected, draws[4], options)

    return step


#: Orders by the name of the function that makes the accumulator.
ORDERS = {
    "kahan": Order(kahan, state=2, stages=5),
}
