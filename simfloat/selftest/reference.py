"""Operations and sums by exact fractions: slow and obvious; every kernel is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.formats import Format, Rounding
from simfloat.formats.definition import round_value
from simfloat.formats.exact_numbers import exact_number
from simfloat.formats.exact_results import exact_result
from simfloat.kernels.random import words_at


def exact(
    operation: str, a: float, b: float = 0.0, c: float = 0.0, *, negative_zero_sums: bool = False
) -> Fraction | float:
    """The exact result: a Fraction, or a float where it is zero, infinite or NaN (IEEE 754-2019, sections 6 and 7)."""
    operands = [exact_number(float(x)) for x in (a, b, c)[: len(OPERATIONS[operation].operands)]]
    return exact_result(operation, *operands, negative_zero_sums=negative_zero_sums)


def operate(operation: str, format: Format, rounding: Rounding, *operands: float, random: int = 0) -> float:
    """The exact result rounded once by the definition."""
    down = rounding.zero_sum < 0
    return round_value(exact(operation, *operands, negative_zero_sums=down), format, rounding, int(random))


def draws(count: int, rounding: Rounding, seed: int = 0, call: int = 0) -> list[int]:
    """The integers R that a plain stochastic call uses for its elements, by the definition of the random words."""
    return [draw_at(rounding, i, lambda n: words_at_python(n // 4, 0, call, 0, seed)[n % 4]) for i in range(count)]


def draw_at(rounding: Rounding, place: int, word: Callable[[int], int]) -> int:
    """The draw of an element or a step, from the word of that number; up to 8 bits from a byte, four to a word."""
    if rounding.bits > 8:
        return word(place) >> (32 - rounding.bits)
    return (word(place // 4) >> 8 * (place % 4) & 255) >> (8 - rounding.bits)


def words_at_python(element: int, step: int, call: int, stage: int, seed: int) -> list[int]:
    """`kernels.random.words_at` on Python integers."""
    return [int(w) for w in words_at(*(np.uint64(v) for v in (element, step, call, stage, seed)))]


def sequential_dot(
    a: Sequence[float],
    b: Sequence[float],
    format: Format,
    rounding: Rounding,
    products: Format | None = None,
    element: int = 0,
    seed: int = 0,
    call: int = 0,
    stage: int = 1,
    step: int = 0,
    start: float = 0.0,
) -> float:
    """Sum over ascending k from `start`, each step by the definition."""
    total = start
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        if products is None:
            r = step_draw(rounding, element, step + k, seed, call, stage)
            total = operate("fma", format, rounding, x, y, total, random=r)
        else:
            r = step_draw(rounding, element, step + k, seed, call, stage + 1)
            product = operate("multiply", products, rounding, x, y, random=r)
            r = step_draw(rounding, element, step + k, seed, call, stage)
            total = operate("add", format, rounding, total, product, random=r)
    return total


def step_draw(rounding: Rounding, element: int, step: int, seed: int, call: int, stage: int) -> int:
    """The integer R of a step of a stochastic sum; 0 for other modes."""
    if not rounding.is_stochastic:
        return 0
    return draw_at(rounding, step, lambda n: words_at_python(element, n, call, stage, seed)[n % 4])
