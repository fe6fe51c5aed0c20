"""The error function, the normal distribution function, gelu, and their inverses, complements and logarithms.

**Integrals** of the bell curve exp(-rate t^2 / 2) are computed from their values at evenly spaced points and the series
around the nearest point. The error function has rate 2, the normal distribution rate 1; both are `start + slope *
integral from 0 to x`.

**gelu**(x) = x / 2 * (1 + erf(x / sqrt 2)) is x times the probability that a normal variable is below x (D. Hendrycks
and K. Gimpel, "Gaussian error linear units", arXiv 1606.08415). With Q(z), the probability of more than z, it is max(x,
0) - |x| Q(|x|), which has no cancellation.

**erfinv and ndtri**, the inverses, use Halley's method on a first guess in float64 (Abramowitz and Stegun, 26.2.23).
The last step is added to a float64 number, so the sum has the precision of erf or erfc there.

**Tails without underflow** are exp(x^2) erfc(x), and the logarithm of the normal distribution function.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    INTEGER,
    add_number,
    add_pairs,
    divide_pairs,
    horner,
    multiply_pairs,
    power_of_two,
    quick_two_sum,
    split,
    two_product,
    two_sum,
)
from simfloat.kernels.functions.constants import INTEGER_IMAGE, SPECK, circle, exponential, pair, square_root
from simfloat.kernels.functions.exponential import exp_wide
from simfloat.kernels.functions.gamma_and_bessel import log_of_pair
from simfloat.kernels.functions.powers_and_logarithms import log1p_pair, log_pair

THIRD = pair(Fraction(1, 3))

#: b(n + 1) = -rate (c F[n] b(n) + G[n] b(n - 1)) for the Taylor coefficients b of the integral.
F2, F3, F4, F5, F6, F7, F8, F9, F10 = (1 / (n + 2) for n in range(2, 11))
G2, G3, G4, G5, G6, G7, G8, G9, G10 = (n / ((n + 1) * (n + 2)) for n in range(2, 11))

#: Levels of the continued fraction at z: PAIRS levels need more than float64, and LEVELS / z more are needed for 80
#: bits.
PAIRS, LEVELS = 6, 180.0


def bell_table(start: Fraction, slope: Fraction, rate: int, parts: int, end: float) -> np.ndarray:
    """Return rows (the value at c as a pair, its derivative as a pair) for c = i / parts up to `end`.

    Each row is computed from the row before, in units of 2^-160.
    """
    one = 1 << 160
    terms = 160 // (parts.bit_length() - 1)  # parts^-terms is 2^-160
    value, derivative = math.floor(start * one), math.floor(slope * one)
    # From one c to the next the curve falls by exp(-(2i + 1) u), a factor that itself falls by exp(-2u).
    fall, fall_of_fall = (math.floor(exponential(Fraction(-n * rate, 2 * parts**2)) * one) for n in (1, 2))
    rows = np.zeros((int(parts * end) + 1, 4))
    for i in range(len(rows)):
        rows[i] = *pair(Fraction(value, one)), *pair(Fraction(derivative, one))
        # The integral of exp(-rate (c t + t^2 / 2)) from 0 to 1 / parts, by the recurrence of the Taylor coefficients.
        before, last = 0, derivative // parts
        for n in range(1, terms + 1):
            value += last // n
            before, last = last, -(rate * (i * last + before) // parts**2) // n
        derivative, fall = derivative * fall >> 160, fall * fall_of_fall >> 160
    return rows


@scalar
def bell_quotient(z, step):
    """Return 1 / (z + step / (z + 2 step / (z + 3 step / ...))) as (high, low), for z >= 5: Laplace's continued
    fraction.

    It is the area beyond z below the curve exp(-t^2 / (2 step)), divided by the value of the curve at z and by step.
    """
    # The part below a level, as a quotient: z + n / (a / b) = (z a + n b) / a needs no division.
    a, a_low, b, b_low = z, 0.0, 1.0, 0.0
    for n in range(PAIRS + np.int64(LEVELS / z), PAIRS, -1):
        a, b = fma(z, a, n * step * b), a
    for n in range(PAIRS, 0, -1):
        c, c_low = multiply_pairs(a, a_low, z, 0.0)
        c, c_low = horner(b, b_low, n * step, 0.0, c, c_low)
        a, a_low, b, b_low = c, c_low, a, a_low
    return divide_pairs(b, b_low, a, a_low)


@scalar
def bell_integral(table, rate, parts, x):
    """Return the value at x as (high, low), by a table of rate and parts, for x from 0 to its end."""
    shifted = fma(x, parts, INTEGER)
    i = np.float64(shifted).view(np.uint64) - np.uint64(INTEGER_IMAGE)
    c = (shifted - INTEGER) / parts
    d = x - c
    # From c to c + d the value grows by derivative * d (1 + b1 d + b2 d^2 + ...).
    v = -rate * c
    w = 0.5 * rate * (rate * c * c - 1.0)
    b1 = 0.5 * v
    b2, b2_low = two_product(w, THIRD[0])
    b2_low = fma(w, THIRD[1], b2_low)
    b3 = fma(v * F2, b2, -rate * G2 * b1)
    b4 = fma(v * F3, b3, -rate * G3 * b2)
    b5 = fma(v * F4, b4, -rate * G4 * b3)
    b6 = fma(v * F5, b5, -rate * G5 * b4)
    b7 = fma(v * F6, b6, -rate * G6 * b5)
    b8 = fma(v * F7, b7, -rate * G7 * b6)
    b9 = fma(v * F8, b8, -rate * G8 * b7)
    b10 = fma(v * F9, b9, -rate * G9 * b8)
    b11 = fma(v * F10, b10, -rate * G10 * b9)
    p = fma(fma(fma(fma(b11, d, b10), d, b9), d, b8), d, b7)
    p = fma(fma(fma(fma(p, d, b6), d, b5), d, b4), d, b3)
    square, square_low = two_product(d, d)
    t, t_low = multiply_pairs(b2, b2_low, square, square_low)
    s, s_low = two_product(d, b1)
    s, s_low = add_pairs(s, s_low, t, t_low)
    s_low += p * d * square
    first, first_low = quick_two_sum(1.0, s)
    first, first_low = quick_two_sum(first, first_low + s_low)
    slope, slope_low = two_product(d, table[i, 2])
    s, s_low = multiply_pairs(slope, fma(d, table[i, 3], slope_low), first, first_low)
    high, low = quick_two_sum(table[i, 0], s)
    return quick_two_sum(high, low + (table[i, 1] + s_low))


#: For larger x, erf(x) differs from 1 by less than 2^-82.
END = 7.5

SLOPE = square_root(4 / circle(200), 200)  # of erf at 0
SLOPE_PAIR = pair(SLOPE)

RATE, PARTS = 2, 32
TABLE = bell_table(Fraction(0), SLOPE, RATE, PARTS, END)

#: Up to TAIL, a table of erfc with finer steps and its series have the precision of erfc.
TAIL, FINE_PARTS = 5.25, 128
FINE_TABLE = bell_table(Fraction(1), -SLOPE, RATE, FINE_PARTS, TAIL)

#: Larger arguments give an erfc out of the range of every format.
FAR = 40.0


@scalar
def _erf(x):
    """Return erf(x) as (high, low); for larger x, erf(END)."""
    high, low = bell_integral(TABLE, float(RATE), float(PARTS), abs(x) if abs(x) < END else END)
    return math.copysign(high, x), low if x > 0.0 else -low


@scalar
def erf_quick(x):
    """Return erf(x) for zero and 2^-300 <= |x|."""
    high, low = _erf(x)
    return round_sum_to_odd(high, low) if abs(x) < np.inf else np.nan


@scalar
def erf_wide(x):
    """Return erf(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return math.copysign(1.0, x) if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-30:
        # 2 / sqrt(pi) (x - x^3 / 3), on the significand so that nothing underflows
        significand, exponent = split(x)
        high, low = two_product(significand, SLOPE_PAIR[0])
        high, low = quick_two_sum(high, fma(significand, SLOPE_PAIR[1], low) - high * (x * x / 3.0))
        return high, low, exponent
    high, low = _erf(x)
    return high, low, 0


@scalar
def _erfc_beyond(z):
    """Return erfc(z) as (high, low, exponent), for TAIL <= z."""
    z = min(z, FAR)
    t, t_low = bell_quotient(z, 0.5)
    t, t_low = multiply_pairs(t, t_low, 0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1])
    square, square_low = two_product(z, z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    return high, low, exponent


@scalar
def _erfc(x):
    """Return erfc(x) as (high, low), for 2^-60 <= |x| <= TAIL."""
    high, low = bell_integral(FINE_TABLE, float(RATE), float(FINE_PARTS), abs(x))
    other, other_low = add_number(-high, -low, 2.0)
    return high if x > 0.0 else other, low if x > 0.0 else other_low


@scalar
def erfc_quick(x):
    """Return erfc(x) for |x| <= TAIL."""
    small, inside = abs(x) < 2.0**-60, abs(x) <= TAIL
    high, low = _erfc(x if inside else 0.0)
    result = round_sum_to_odd(1.0, -x) if small else round_sum_to_odd(high, low)
    return result if inside else np.nan


@scalar
def erfc_wide(x):
    """Return erfc(x) = 1 - erf(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x if x != x else 1.0 - math.copysign(1.0 if x != 0.0 else 0.0, x), 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, -math.copysign(max(abs(x) * SLOPE_PAIR[0], SPECK), x), 0
    if abs(x) <= TAIL:
        high, low = _erfc(x)
        return high, low, 0
    high, low, exponent = _erfc_beyond(abs(x))
    if x > 0.0:
        return high, low, exponent
    high, low = quick_two_sum(2.0, -high * power_of_two(max(exponent, -200)))
    return high, low, 0


#: For larger arguments Q is less than 2^-83.
NORMAL_END = 10.5

#: Up to here the table and its series have the precision of Q itself, not only of x - x Q.
NORMAL_TAIL = 7.5

#: Larger z give a gelu(-z) out of the range of every format.
NORMAL_FAR = 60.0

NORMAL_SLOPE = square_root(1 / (2 * circle(200)), 200)  # of the probability at 0, 1 / sqrt(2 pi)
NORMAL_SLOPE_PAIR = pair(NORMAL_SLOPE)

NORMAL_RATE, NORMAL_PARTS = 1, 128
NORMAL_TABLE = bell_table(Fraction(1, 2), -NORMAL_SLOPE, NORMAL_RATE, NORMAL_PARTS, NORMAL_END)


@scalar
def _gelu(x):
    """Return gelu(x) as (high, low), for -NORMAL_TAIL <= x."""
    z = abs(x)
    q, q_low = bell_integral(NORMAL_TABLE, float(NORMAL_RATE), float(NORMAL_PARTS), z if z < NORMAL_END else NORMAL_END)
    p, p_low = multiply_pairs(q, q_low, z, 0.0)
    high, low = quick_two_sum(x if x > 0.0 else 0.0, -p)
    return quick_two_sum(high, low - p_low)


@scalar
def _tail(z):
    """Return gelu(-z) as (high, low, exponent), for NORMAL_TAIL <= z.

    Q(z) = exp(-z^2 / 2) / sqrt(2 pi) * bell_quotient(z).
    """
    z = min(z, NORMAL_FAR)
    t, t_low = bell_quotient(z, 1.0)
    t, t_low = multiply_pairs(t, t_low, z, 0.0)
    t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
    square, square_low = two_product(z, 0.5 * z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    return -high, -low, exponent


@scalar
def gelu_quick(x):
    """Return gelu(x) for zero and -NORMAL_TAIL <= x, 2^-300 <= |x| <= 2^300."""
    inside = (x >= -NORMAL_TAIL) & (x < np.inf)
    high, low = _gelu(x if inside else 0.0)
    result = round_sum_to_odd(high, low) if inside else np.nan
    return x if x == 0.0 else result


@scalar
def gelu_wide(x):
    """Return gelu(x), with the limit -0 at -inf."""
    if not abs(x) < np.inf or x == 0.0:
        return -0.0 if x == -np.inf else x, 0.0, 0
    if x < -NORMAL_TAIL:
        return _tail(-x)
    significand, exponent = split(x)
    if x > NORMAL_END:
        return significand, -SPECK, exponent
    if abs(x) < 2.0**-30:
        # x / 2 + x^2 / sqrt(2 pi), on the significand so that nothing underflows
        high, low = quick_two_sum(0.5 * significand, max(abs(x) * NORMAL_SLOPE_PAIR[0], SPECK) * abs(significand))
        return high, low, exponent
    high, low = _gelu(x)
    return high, low, 0


ROOT_OF_TWO = pair(square_root(Fraction(2), 200))
INVERSE_SLOPE = pair(square_root(circle(200), 200) / 2)  # of erfinv at 0, sqrt(pi) / 2
TWELFTH = float(circle(100) / 12)

#: Steps of Halley's method: each triples the number of correct digits.
STEPS = 4


@scalar
def _erf_inverse(x):
    """Return erfinv(x) as (high, low), for 2^-28 <= |x| <= 1/2."""
    y = INVERSE_SLOPE[0] * x * (1.0 + TWELFTH * x * x)
    step = 0.0
    for _ in range(STEPS):
        y += step
        high, low, _ = erf_wide(y)
        missing, _ = add_number(-high, -low, x)
        bell, _, power = exp_wide(y * y)
        w = missing / SLOPE_PAIR[0] * bell * power_of_two(power)
        step = w / (1.0 - w * y)
    return quick_two_sum(y, step)


@scalar
def _erfc_inverse(c):
    """Return the y >= 0 with erfc(y) = c as (high, low), for 0 < c <= 1."""
    significand, exponent = split(c)
    # The logarithm and exponential of a library are avoided, because other computers may round them differently.
    logarithm, _ = log_pair(0.5 * significand, float(exponent))
    t = math.sqrt(-2.0 * logarithm)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    y = max(t - (2.515517 + t * (0.802853 + t * 0.010328)) / below, 0.0) * math.sqrt(0.5)
    step = 0.0
    for _ in range(STEPS):
        y += step
        high, low, power = erfc_wide(y)
        scale = power_of_two(power - exponent)
        more, _ = add_number(high * scale, low * scale, -significand)
        # The height of the curve, in units of 2^exponent.
        bell, _, power = exp_wide(-y * y)
        w = more / (SLOPE_PAIR[0] * bell * power_of_two(power - exponent))
        step = w / (1.0 - w * y)
    return quick_two_sum(y, step)


@scalar
def erfinv_wide(x):
    """Return the number with the error function x."""
    if not abs(x) < 1.0:
        return math.copysign(np.inf, x) if abs(x) == 1.0 else np.nan, 0.0, 0
    if x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-28:
        # sqrt(pi) / 2 (x + pi / 12 x^3), on the significand so that nothing underflows
        significand, exponent = split(x)
        high, low = multiply_pairs(INVERSE_SLOPE[0], INVERSE_SLOPE[1], significand, 0.0)
        high, low = quick_two_sum(high, fma(high, TWELFTH * x * x, low))
        return high, low, exponent
    if abs(x) <= 0.5:
        high, low = _erf_inverse(x)
        return high, low, 0
    high, low = _erfc_inverse(1.0 - abs(x))
    return high if x > 0.0 else -high, low if x > 0.0 else -low, 0


@scalar
def ndtri_wide(p):
    """Return the number that a normal variable does not exceed with probability p."""
    if not 0.0 < p < 1.0:
        return -np.inf if p == 0.0 else np.inf if p == 1.0 else np.nan, 0.0, 0
    if p == 0.5:
        return 0.0, 0.0, 0
    if abs(p - 0.5) < 0.25:
        high, low, exponent = erfinv_wide(2.0 * p - 1.0)
    else:
        high, low = _erfc_inverse(2.0 * min(p, 1.0 - p))
        exponent = 0
        high, low = high if p > 0.5 else -high, low if p > 0.5 else -low
    high, low = multiply_pairs(high, low, ROOT_OF_TWO[0], ROOT_OF_TWO[1])
    return high, low, exponent


#: Larger |x| give an exp(x^2) out of the range of every format.
FAR_TAIL = 44.0


@scalar
def erfcx_wide(x):
    """Return exp(x^2) erfc(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else 0.0 if x > 0.0 else np.inf if x < 0.0 else x, 0.0, 0
    if abs(x) < 2.0**-60:
        # 1 - 2 / sqrt(pi) x
        return 1.0, -SLOPE_PAIR[0] * x if abs(x) > 2.0**-300 else -math.copysign(SPECK, x), 0
    if x >= 2.0**30:
        # 1 / (sqrt(pi) x) (1 - 1 / (2 x^2))
        significand, exponent = split(x)
        high, low = divide_pairs(0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1], significand, 0.0)
        return high, low - high * max(0.5 / x / x, SPECK), -exponent
    if x >= TAIL:
        high, low = bell_quotient(x, 0.5)
        high, low = multiply_pairs(high, low, 0.5 * SLOPE_PAIR[0], 0.5 * SLOPE_PAIR[1])
        return high, low, 0
    x = max(x, -FAR_TAIL)
    square, square_low = two_product(x, x)
    bell, bell_low, exponent = exp_wide(square)
    high, low, more = erfc_wide(x)
    high, low = multiply_pairs(high, low, bell, fma(square_low, bell, bell_low))
    return high, low, exponent + more


@scalar
def _beyond(z):
    """Return the probability of more than z as (high, low), for 0 <= z <= NORMAL_TAIL."""
    return bell_integral(NORMAL_TABLE, float(NORMAL_RATE), float(NORMAL_PARTS), z)


@scalar
def log_ndtr_wide(x):
    """Return the logarithm of the probability that a normal variable is below x."""
    if x != x or abs(x) == np.inf:
        return -0.0 if x > 0.0 else x, 0.0, 0
    if x <= 0.0:
        z = -x
        if z <= NORMAL_TAIL:
            q, q_low = _beyond(z)
            high, low = log_of_pair(q, q_low)
            return high, low, 0
        significand, exponent = split(z)
        if z > 2.0**60:
            # -z^2 / 2, minus a logarithm
            high, low = two_product(significand, 0.5 * significand)
            return -high, -low - SPECK, 2 * exponent
        t, t_low = bell_quotient(z, 1.0)
        t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
        high, low = log_of_pair(t, t_low)
        square, square_low = two_product(z, 0.5 * z)
        high, low = add_pairs(-square, -square_low, high, low)
        return high, low, 0
    if x <= NORMAL_TAIL:
        q, q_low = _beyond(x)
        high, low = log1p_pair(-q, -q_low)
        return high, low, 0
    # log(1 - q) = -q - q^2 / 2 - q^3 / 3
    t, t_low = bell_quotient(min(x, 60.0), 1.0)
    t, t_low = multiply_pairs(t, t_low, NORMAL_SLOPE_PAIR[0], NORMAL_SLOPE_PAIR[1])
    z = min(x, 60.0)
    square, square_low = two_product(z, 0.5 * z)
    bell, bell_low, exponent = exp_wide(-square)
    high, low = multiply_pairs(t, t_low, bell, fma(-square_low, bell, bell_low))
    q = high * power_of_two(max(exponent, -200))
    high, low = two_sum(-high, -low - high * max(q * (0.5 + q / 3.0), SPECK))
    return high, low, exponent
