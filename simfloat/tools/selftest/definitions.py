"""Define operations independently of the kernels: by neighbours in a table, by exact fractions, and by known answers.

The magnitudes of a small format are in a table. An exact result is between two of them. Comparisons decide whether it
equals the lower one, or is below, on or above their middle. They are exact in float64, because all numbers have few
bits. This is fast enough for every pair of 8-bit numbers, and for every triple of some formats.

Operations and sums by exact fractions are slow and obvious; every kernel is compared with them.

Known answers are codes from exact rational computation, checked against NumPy and ml_dtypes, and published values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.formats import Format, Rounding
from simfloat.formats.definition import round_value
from simfloat.formats.exact_numbers import exact_number, exact_result
from simfloat.kernels.rounding.random import words_at

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


def operate_on_arrays(operation: str, operands: tuple[Array, ...], format: Format, rounding: Rounding) -> Array:
    """Add, subtract, multiply, divide or fma numbers of a format of at most 8 bits.

    Sums and products of two such numbers are exact in float64, and a * b + c is for at most 4 exponent bits. Specials
    follow IEEE 754, as in float64. A quotient is not exact: its numerator is compared with denominator times neighbour.
    """
    with np.errstate(all="ignore"):
        if operation == "fma":
            operation, operands = "add", (operands[0] * operands[1], operands[2])
        elif operation == "subtract":
            operation, operands = "add", (operands[0], -operands[1])
        a, b = operands
        plain = {"add": np.add, "multiply": np.multiply, "divide": np.divide}[operation](a, b)
    negative = np.signbit(plain)
    if operation == "add" and rounding.zero_sum < 0:
        # IEEE 754-2019, 6.3: under toward_negative an exact zero sum is -0, unless both addends are +0.
        negative = negative | ((plain == 0) & (np.signbit(a) | np.signbit(b)))
    finite = np.isfinite(plain)
    numerator, denominator = (np.abs(a), np.abs(b)) if operation == "divide" else (np.abs(plain), np.ones_like(plain))
    usable = finite & np.isfinite(denominator)  # x / inf is zero
    rounded = round_quotient(
        np.where(usable, numerator, 0.0), np.where(usable, denominator, 1.0), negative, format, rounding
    )
    infinite = np.where(negative, -1, 1) * _overflow(negative, format, rounding, infinite=True)
    return np.where(finite, rounded, np.where(np.isnan(plain), np.nan, infinite))


def round_quotient(numerator: Array, denominator: Array, negative: Flags, format: Format, rounding: Rounding) -> Array:
    """Return +-numerator / denominator, rounded; denominator times table entry must be exact in float64."""
    table = _magnitudes(format)
    # Division is monotone: its result may have been rounded up to a number of the table, but not beyond it.
    low = np.searchsorted(table, numerator / denominator, side="right") - 1
    low = np.minimum(low, table.size - 2)
    low = low - (table[low] * denominator > numerator)
    middle = (table[low] + table[low + 1]) / 2
    inexact = numerator > table[low] * denominator
    side = np.sign(numerator - middle * denominator)
    chosen = low + _away(inexact, side, low % 2 == 1, negative, rounding)
    beyond = chosen > format.max_code
    magnitude = np.where(beyond, _overflow(negative, format, rounding), table[np.minimum(chosen, format.max_code)])
    keeps_sign = negative & ((magnitude != 0) | format.has_negative_zero)
    return np.where(keeps_sign, -magnitude, magnitude)


@cache
def _magnitudes(format: Format) -> Array:
    """Return all finite magnitudes and two steps beyond: the first decides overflow, the second is certain overflow."""
    table = format.magnitudes(np.arange(format.max_code + 1))
    step = 2.0 ** (format.emax - format.mantissa_bits)
    return np.array([*table, format.max + step, format.max + 2 * step])


def _away(inexact: Flags, side: Array, odd: Flags, negative: Flags, rounding: Rounding) -> Flags:
    """Return True for results that round to the upper neighbour of their magnitude."""
    match rounding.mode:
        case "nearest_even":
            return (side > 0) | ((side == 0) & odd)
        case "nearest_away":
            return side >= 0
        case "nearest_toward_zero":
            return side > 0
        case "nearest_up":
            return (side > 0) | ((side == 0) & ~negative)
        case "nearest_down":
            return (side > 0) | ((side == 0) & negative)
        case "toward_zero":
            return np.zeros_like(inexact)
        case "toward_positive":
            return inexact & ~negative
        case "toward_negative":
            return inexact & negative
        case "to_odd":
            return inexact & ~odd
        case _:
            raise ValueError(f"Neighbours decide deterministic modes, got {rounding!r}.")


def _overflow(negative: Flags, format: Format, rounding: Rounding, infinite: bool = False) -> Array:
    """Return the magnitude of a result beyond max: max, infinity, or NaN if the format has no infinity."""
    stops = np.where(negative, rounding.stops(negative=True), rounding.stops(negative=False))
    if infinite:
        stops = np.full_like(negative, rounding.saturates)
    if format.clamps:
        stops = np.ones_like(negative)
    return np.where(stops, format.max, np.inf if format.has_infinity else np.nan)


def exact(
    operation: str, a: float, b: float = 0.0, c: float = 0.0, *, negative_zero_sums: bool = False
) -> Fraction | float:
    """Return the exact result: a Fraction, or a float if zero, infinite or NaN (IEEE 754-2019, sections 6 and 7)."""
    operands = [exact_number(float(x)) for x in (a, b, c)[: len(OPERATIONS[operation].operands)]]
    return exact_result(operation, *operands, negative_zero_sums=negative_zero_sums)


def operate(operation: str, format: Format, rounding: Rounding, *operands: float, random: int = 0) -> float:
    """Return the exact result, rounded once by the definition."""
    down = rounding.zero_sum < 0
    return round_value(exact(operation, *operands, negative_zero_sums=down), format, rounding, int(random))


def draws(count: int, rounding: Rounding, seed: int = 0, call: int = 0) -> list[int]:
    """Return the random integers R of the elements of a stochastic call, by the definition of the random words."""
    return [draw_at(rounding, i, lambda n: words_at_python(n // 4, 0, call, 0, seed)[n % 4]) for i in range(count)]


def draw_at(rounding: Rounding, place: int, word: Callable[[int], int]) -> int:
    """Return the random bits of an element or a step: of a word, or for up to 8 bits of a byte, four to a word."""
    if rounding.bits > 8:
        return word(place) >> (32 - rounding.bits)
    return (word(place // 4) >> 8 * (place % 4) & 255) >> (8 - rounding.bits)


@lru_cache(maxsize=1024)
def words_at_python(element: int, step: int, call: int, stage: int, seed: int) -> tuple[int, ...]:
    """Call `kernels.rounding.random.words_at` on Python integers; up to 16 draws in a row read the same words."""
    return tuple(int(w) for w in words_at(*(np.uint64(v) for v in (element, step, call, stage, seed))))


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
    """Add products in ascending k to `start`, each step by the definition."""
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
    """Return the random integer R of a step of a stochastic sum; 0 for other modes."""
    if not rounding.is_stochastic:
        return 0
    return draw_at(rounding, step, lambda n: words_at_python(element, n, call, stage, seed)[n % 4])


#: The modes of the columns of `ROUNDED`.
ROUNDED_MODES = tuple(
    map(Rounding, ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative", "to_odd"))
)

#: Format, number, and its codes under each of these modes.
ROUNDED: tuple[tuple[str, Fraction, str], ...] = (
    ("FP16", Fraction(1) + Fraction(1, 2**11), "3C00 3C01 3C00 3C01 3C00 3C01"),
    ("FP16", Fraction(1) + Fraction(3, 2**11), "3C02 3C02 3C01 3C02 3C01 3C01"),
    ("FP16", -(Fraction(1) + Fraction(1, 2**11) + Fraction(1, 2**20)), "BC01 BC01 BC00 BC00 BC01 BC01"),
    ("FP16", Fraction(1, 10), "2E66 2E66 2E66 2E67 2E66 2E67"),
    ("FP16", Fraction(1, 2**25), "0000 0001 0000 0001 0000 0001"),
    ("FP16", Fraction(3, 2**25), "0002 0002 0001 0002 0001 0001"),
    ("FP16", -Fraction(1, 2**26), "8000 8000 8000 8000 8001 8001"),
    ("FP16", Fraction(65519), "7BFF 7BFF 7BFF 7C00 7BFF 7BFF"),
    ("FP16", Fraction(65520), "7C00 7C00 7BFF 7C00 7BFF 7BFF"),
    ("BF16", Fraction(1) + Fraction(1, 2**8), "3F80 3F81 3F80 3F81 3F80 3F81"),
    ("BF16", Fraction(1) + Fraction(3, 2**8), "3F82 3F82 3F81 3F82 3F81 3F81"),
    ("BF16", Fraction(1, 10), "3DCD 3DCD 3DCC 3DCD 3DCC 3DCD"),
    ("BF16", Fraction(1, 2**134), "0000 0001 0000 0001 0000 0001"),
    ("BF16", -Fraction(1, 2**135), "8000 8000 8000 8000 8001 8001"),
    ("BF16", (2 - Fraction(1, 2**8)) * 2**127, "7F80 7F80 7F7F 7F80 7F7F 7F7F"),
    ("E4M3", Fraction(17, 16), "38 39 38 39 38 39"),
    ("E4M3", Fraction(19, 16), "3A 3A 39 3A 39 39"),
    ("E4M3", Fraction(1, 10), "1D 1D 1C 1D 1C 1D"),
    ("E4M3", Fraction(1, 2**10), "00 01 00 01 00 01"),
    ("E4M3", Fraction(464), "7E 7F 7E 7F 7E 7E"),
    ("E4M3", Fraction(465), "7F 7F 7E 7F 7E 7E"),
    ("E5M2", Fraction(9, 8), "3C 3D 3C 3D 3C 3D"),
    ("E5M2", Fraction(11, 8), "3E 3E 3D 3E 3D 3D"),
    ("E5M2", -(Fraction(9, 8) + Fraction(1, 64)), "BD BD BC BC BD BD"),
    ("E5M2", Fraction(3, 2**17), "02 02 01 02 01 01"),
    ("E5M2", Fraction(61439), "7B 7B 7B 7C 7B 7B"),
    ("E5M2", Fraction(61440), "7C 7C 7B 7C 7B 7B"),
    # One significand bit: ties go to the even code.
    ("E8M0", Fraction(3, 2), "80 80 7F 80 7F 7F"),
    ("E8M0", Fraction(3), "80 81 80 81 80 81"),
    ("E8M0", Fraction(1, 2**140), "00 00 00 00 00 00"),
    ("E8M0", -Fraction(1), "FF FF FF FF FF FF"),
    ("E8M0", Fraction(0), "FF FF FF FF FF FF"),
    ("E8M0", Fraction(2) ** 128, "FF FF FE FF FE FE"),
)

#: The format of a sum of ones, and the value at which it stops growing: 2 to the power of the precision.
COUNTING = (("FP16", 2048), ("BF16", 256), ("E4M3", 16), ("E5M2", 8))

#: The harmonic series: format, the first k whose rounded 1 / k changes nothing, and the sum.
#: FP16 and BF16: Higham, Accuracy and Stability of Numerical Algorithms, and Malone 2020.
HARMONIC = (
    ("FP16", 513, 7.0859375),
    ("BF16", 65, 5.0625),
    ("FP32", 2097152, 15.403682708740234),
    ("E3M4", 16, 3.5),
    ("E4M3", 9, 3.0),
    ("E5M2", 5, 2.0),
)

#: Kind, architecture, inputs, and the result of 2^23 - 2^23 - 1/2 - 1/4 - 1/8, where the first term is the partial sum
#: (Xie et al., MMA-Sim, arXiv 2511.10909, equation 10, and its simulator 2.1.1).
UNITS = (
    *(("tensor_core", *unit) for unit in (
        ("volta", "FP16", 0.0), ("turing", "FP16", -0.5), ("ampere", "FP16", -0.5), ("ampere", "BF16", -0.5),
        ("ampere", "TF32", -0.5), ("ada", "FP16", -0.5), ("ada", "E5M2", 0.0), ("hopper", "FP16", -0.75),
        ("hopper", "BF16", -0.75), ("hopper", "TF32", -0.75), ("hopper", "E5M2", 0.0), ("hopper", "FP64", -0.875),
        ("blackwell", "FP16", -0.75), ("blackwell", "TF32", -0.75), ("blackwell", "E5M2", -0.75),
    )),
    *(("matrix_core", *unit) for unit in (
        ("cdna1", "FP16", -0.875), ("cdna1", "BF16", -0.875), ("cdna1", "FP32", -0.875), ("cdna2", "FP16", 0.0),
        ("cdna2", "BF16", -0.375), ("cdna3", "FP16", -0.5), ("cdna3", "BF16", -0.5), ("cdna3", "TF32", -0.5),
        ("cdna3", "E5M2FNUZ", -1.0),
    )),
)  # fmt: skip

#: Philox4x32-10 of the Random123 library (kat_vectors): counter, key, answer.
PHILOX = (
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
)
