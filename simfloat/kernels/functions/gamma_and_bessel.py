"""The logarithm of |Gamma(x)| and its derivative, zeta(s, q), and the modified Bessel functions I0 and I1.

**Gamma**: for positive x, by the Taylor series of log Gamma around 2 or by Stirling's series; for negative x, by
Euler's reflection. The coefficients of both series come first.

**zeta**(s, q), the sum of (q + k)^-s over k = 0, 1, ...: some terms, and a remainder by the formula of Euler and
Maclaurin (Abramowitz and Stegun, 23.2). For negative q and an integer s, the terms below zero are another such sum.

**I0 and I1**, with and without a factor exp(-|x|): by their power series, which has only positive terms, or by Hankel's
expansion for arguments of at least FAR (Abramowitz and Stegun, 9.6.10 and 9.7.1).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import (
    add_number,
    add_pairs,
    divide_pairs,
    multiply_pairs,
    nearest_integer,
    power_of_two,
    quick_two_sum,
    root_of_pair,
    split,
    two_product,
    two_sum,
)
from simfloat.kernels.functions.constants import SPECK, circle, logarithm, pair
from simfloat.kernels.functions.exponential import exp_pair, exp_wide
from simfloat.kernels.functions.powers_and_logarithms import log1p_pair, log_pair, power_wide
from simfloat.kernels.functions.trigonometric import sine_of

#: Euler's constant, to 70 digits: OEIS A001620.
EULER = Fraction("0.5772156649015328606065120900824024310421593359399235988057672348848677")

#: For arguments of at least this size, Stirling's series has 95 bits.
STIRLING = 20.0

#: Number of terms of Stirling's series, and of the Taylor series; its terms with index WHOLE and more are in float64.
TERMS, TAYLOR, WHOLE = 12, 56, 26


def bernoulli(count: int) -> list[Fraction]:
    """Return `count` Bernoulli numbers B(2), B(4), ..., by the triangle of Akiyama and Tanigawa."""
    row, numbers = [], []
    for m in range(2 * count + 1):
        row.append(Fraction(1, m + 1))
        for j in range(m, 0, -1):
            row[j - 1] = j * (row[j - 1] - row[j])
        if m and not m % 2:
            numbers.append(row[0])
    return numbers


BERNOULLI = bernoulli(25)


def zeta_less_one(s: int) -> Fraction:
    """Return zeta(s) - 1 for an integer s > 1, to 180 bits; Euler's and Maclaurin's formula from the 64th term."""
    one, a = 1 << 220, 64
    total = sum(one // n**s for n in range(2, a)) + one // ((s - 1) * a ** (s - 1)) + one // (2 * a**s)
    factor = Fraction(s, 2 * a ** (s + 1))
    for j, number in enumerate(BERNOULLI, 1):
        total += math.floor(one * number * factor)
        factor *= Fraction((s + 2 * j - 1) * (s + 2 * j), (2 * j + 1) * (2 * j + 2) * a * a)
    return Fraction(total, one)


ZETAS = [zeta_less_one(k) for k in range(2, TAYLOR)]

#: log Gamma(2 + t) = (1 - EULER) t + sum of (-1)^k (zeta(k) - 1) / k t^k: (high, low) from t^1; then its derivative.
LOG_GAMMA_ROWS = np.array([pair(1 - EULER), *(pair((-1) ** k * z / k) for k, z in enumerate(ZETAS, 2))])
DIGAMMA_ROWS = np.array([pair(1 - EULER), *(pair((-1) ** k * z) for k, z in enumerate(ZETAS, 2))])

#: Stirling's coefficients: B(2k) / (2k (2k - 1)), by x^(1 - 2k); and of its derivative: B(2k) / 2k, by x^(-2k).
STIRLING_ROWS = np.array([pair(b / (2 * k * (2 * k - 1))) for k, b in enumerate(BERNOULLI[:TERMS], 1)])
STIRLING_SLOPES = np.array([pair(b / (2 * k)) for k, b in enumerate(BERNOULLI[:TERMS], 1)])

PI = pair(circle(200))
LOG_PI = pair(logarithm(circle(200)))
#: log(2 pi) / 2 - 1 / 2
STIRLING_START = pair(logarithm(2 * circle(200)) / 2 - Fraction(1, 2))


@scalar
def polynomial(rows, whole, x, x_low):
    """Return rows[0] + rows[1] x + ... as (high, low); the rows with index `whole` and more in float64."""
    p = 0.0
    for k in range(rows.shape[0] - 1, whole - 1, -1):
        p = fma(p, x, rows[k, 0])
    high, low = p, 0.0
    for k in range(whole - 1, -1, -1):
        product, product_low = multiply_pairs(high, low, x, x_low)
        high, low = add_pairs(rows[k, 0], rows[k, 1], product, product_low)
    return high, low


@scalar
def log_of_pair(x, x_low):
    """Return log(x + x_low), for positive normal x."""
    high, low = log_pair(x, 0.0)
    return add_number(high, low, x_low / x)


@scalar
def stirling(x, x_low):
    """Return log Gamma(x + x_low) as (high, low), for STIRLING <= x <= 2^500."""
    high, low = log_of_pair(x, x_low)
    high, low = add_number(high, low, -1.0)
    a, a_low = add_number(x, x_low, -0.5)
    high, low = multiply_pairs(high, low, a, a_low)
    high, low = add_pairs(high, low, STIRLING_START[0], STIRLING_START[1])
    y, y_low = divide_pairs(1.0, 0.0, x, x_low)
    square, square_low = multiply_pairs(y, y_low, y, y_low)
    p, p_low = polynomial(STIRLING_ROWS, 5, square, square_low)
    p, p_low = multiply_pairs(p, p_low, y, y_low)
    return add_pairs(high, low, p, p_low)


@scalar
def stirling_slope(x, x_low):
    """Return the derivative of log Gamma at x + x_low as (high, low), for STIRLING <= x."""
    high, low = log_of_pair(x, x_low)
    y, y_low = divide_pairs(1.0, 0.0, x, x_low)
    square, square_low = multiply_pairs(y, y_low, y, y_low)
    p, p_low = polynomial(STIRLING_SLOPES, 5, square, square_low)
    p, p_low = multiply_pairs(p, p_low, square, square_low)
    p, p_low = add_pairs(0.5 * y, 0.5 * y_low, p, p_low)
    return add_pairs(high, low, -p, -p_low)


@scalar
def sine_of_half_turns(r):
    """Return sin(pi r) as (high, low), for |r| <= 1/2."""
    near = abs(r) <= 0.25
    part = r if near else 0.5 - abs(r)
    y, y_low = multiply_pairs(PI[0], PI[1], part, 0.0)
    high, low = sine_of(y, y_low, np.uint64(0 if near else 1))
    negative = (not near) & (r < 0.0)
    return -high if negative else high, -low if negative else low


@scalar
def cosine_of_half_turns(r):
    """Return cos(pi r) as (high, low), for |r| <= 1/2."""
    return sine_of_half_turns(0.5 - abs(r))


@scalar
def shift_to_at_least(x, x_low, least):
    """Return (y, y_low, n) with y + y_low = x + x_low + n, for the first sum that is not below `least`."""
    n = 0.0
    y, y_low = quick_two_sum(x, x_low)
    while y < least:
        n += 1.0
        y, y_low = add_number(x, x_low, n)
    return y, y_low, n


EULER_PAIR = pair(EULER)


@scalar
def _log_gamma_near(t, t_low):
    """Return log Gamma(2 + t + t_low)."""
    high, low = polynomial(LOG_GAMMA_ROWS, WHOLE, t, t_low)
    return multiply_pairs(high, low, t, t_low)


@scalar
def _log_gamma(x, x_low):
    """Return log Gamma(x + x_low) as (high, low), for 1/2 < x <= 2^500."""
    if x < 1.5:
        t, t_low = add_number(x, x_low, -1.0)
        high, low = _log_gamma_near(t, t_low)
        # Near 1, log Gamma(x) is log Gamma(x + 1) - log x, and both vanish together: the series in t around 2, and
        # log1p of the same t, keep the relative precision there.
        rest, rest_low = log1p_pair(t, t_low)
        return add_pairs(high, low, -rest, -rest_low)
    if x <= 2.5:
        t, t_low = add_number(x, x_low, -2.0)
        return _log_gamma_near(t, t_low)
    y, y_low, n = shift_to_at_least(x, x_low, STIRLING)
    high, low = stirling(y, y_low)
    if n == 0.0:
        return high, low
    p, p_low = x, x_low
    for k in range(1, int(n)):
        z, z_low = add_number(x, x_low, float(k))
        p, p_low = multiply_pairs(p, p_low, z, z_low)
    rest, rest_low = log_of_pair(p, p_low)
    return add_pairs(high, low, -rest, -rest_low)


@scalar
def lgamma_wide(x):
    """Return log |Gamma(x)|."""
    if x != x or abs(x) == np.inf:
        return abs(x), 0.0, 0
    if x == 1.0 or x == 2.0:
        return 0.0, 0.0, 0
    if abs(x) < 2.0**-60:
        # -log |x| - EULER x
        if x == 0.0:
            return np.inf, 0.0, 0
        normal = abs(x) * 2.0**200
        high, low = log_pair(normal, -200.0)
        high, low = add_number(-high, -low, -EULER_PAIR[0] * x)
        return high, low, 0
    if x > 2.0**100:
        # x (log x - 1), with an error below 2^-100
        significand, exponent = split(x)
        high, low = log_pair(x, 0.0)
        high, low = add_number(high, low, -1.0)
        high, low = multiply_pairs(high, low, significand, 0.0)
        return high, low, exponent
    if x > 0.5:
        high, low = _log_gamma(x, 0.0)
        return high, low, 0
    if x > 0.0:
        high, low = _log_gamma_near(x, 0.0)
        rest, rest_low = log1p_pair(x, 0.0)
        high, low = add_pairs(high, low, -rest, -rest_low)
        rest, rest_low = log_pair(x, 0.0)
        high, low = add_pairs(high, low, -rest, -rest_low)
        return high, low, 0
    r = x - nearest_integer(x) if x > -(2.0**51) else 0.0
    if r == 0.0 or x < -(2.0**51):
        return np.inf, 0.0, 0
    # Gamma(x) Gamma(1 - x) = pi / sin(pi x)
    y, y_low = two_sum(1.0, -x)
    high, low = _log_gamma(y, y_low)
    s, s_low = sine_of_half_turns(abs(r))
    rest, rest_low = log_of_pair(s, s_low)
    high, low = add_pairs(high, low, rest, rest_low)
    high, low = add_pairs(LOG_PI[0], LOG_PI[1], -high, -low)
    return high, low, 0


@scalar
def _digamma(x, x_low):
    """Return the derivative at x + x_low as (high, low), for 0 < x."""
    if x <= 2.45:
        # The series for t >= -0.55, minus the terms of the recurrence that leads there.
        steps = 2.0 if x < 0.45 else 1.0 if x < 1.45 else 0.0
        t, t_low = add_number(x, x_low, steps - 2.0)
        high, low = polynomial(DIGAMMA_ROWS, WHOLE, t, t_low)
        n = steps
    else:
        y, y_low, n = shift_to_at_least(x, x_low, STIRLING)
        high, low = stirling_slope(y, y_low)
    for k in range(int(n)):
        z, z_low = add_number(x, x_low, float(k))
        q, q_low = divide_pairs(1.0, 0.0, z, z_low)
        high, low = add_pairs(high, low, -q, -q_low)
    return high, low


@scalar
def digamma_wide(x):
    """Return the derivative of log Gamma at x."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else np.nan, 0.0, 0
    if x == 0.0:
        return -math.copysign(np.inf, x), 0.0, 0
    if abs(x) < 2.0**-120:
        # -1 / x - EULER; the sign of EULER is enough
        significand, exponent = split(x)
        high, low = divide_pairs(-1.0, 0.0, significand, 0.0)
        return high, low - SPECK, -exponent
    if x > 2.0**400:
        high, low = log_pair(x, 0.0)
        return high, low, 0
    if x > 0.0:
        high, low = _digamma(x, 0.0)
        return high, low, 0
    r = x - nearest_integer(x) if x > -(2.0**51) else 0.0
    if r == 0.0 or x < -(2.0**51):
        return np.nan, 0.0, 0
    y, y_low = two_sum(1.0, -x)
    high, low = _digamma(y, y_low)
    # psi(1 - x) - psi(x) = pi cot(pi x)
    c, c_low = cosine_of_half_turns(r)
    c, c_low = multiply_pairs(c, c_low, PI[0], PI[1])
    s, s_low = sine_of_half_turns(r)
    q, q_low = divide_pairs(c, c_low, s, s_low)
    high, low = add_pairs(high, low, -q, -q_low)
    return high, low, 0


#: Number of terms of the remainder, for q of at least START.
ZETA_TERMS, START = 14, 24.0

#: B(2j) / (2j)!
ROWS = np.array([pair(b / Fraction(math.factorial(2 * j))) for j, b in enumerate(BERNOULLI[:ZETA_TERMS], 1)])

#: Terms below this fraction of a sum are omitted.
LEAST = 2.0**-108

#: Sums with a logarithm of larger magnitude are out of the range of every format.
FAR_BEYOND = 2000.0

#: For q of at least this size, the integral of the terms plus half the first term equals the sum to 170 bits.
LARGE = 2.0**90


@scalar
def _power(q, q_low, s, start, start_low):
    """Return (q + q_low)^-s / exp(start) as (high, low), 0 if it is below 2^-700."""
    y, y_low = log_of_pair(q, q_low)
    p, p_low = two_product(y, -s)
    p, p_low = add_pairs(p, fma(y_low, -s, p_low), -start, -start_low)
    if p < -500.0:
        return 0.0, 0.0
    high, low, exponent = exp_pair(p)
    high, low = multiply_pairs(high, low, 1.0, p_low)
    return high * power_of_two(exponent), low * power_of_two(exponent)


@scalar
def _remainder(s, a, a_low, t, t_low):
    """Return the sum of the terms that begin at a, with t = a^-s: t a / (s - 1) + t / 2 + the derivatives at a."""
    d, d_low = two_sum(s, -1.0)
    high, low = divide_pairs(a, a_low, d, d_low)
    high, low = add_number(high, low, 0.5)
    f, f_low = divide_pairs(s, 0.0, a, a_low)
    square, square_low = multiply_pairs(a, a_low, a, a_low)
    for j in range(ZETA_TERMS):
        p, p_low = multiply_pairs(f, f_low, ROWS[j, 0], ROWS[j, 1])
        high, low = add_pairs(high, low, p, p_low)
        first, first_low = two_sum(s, 2.0 * j + 1.0)
        second, second_low = two_sum(s, 2.0 * j + 2.0)
        p, p_low = multiply_pairs(first, first_low, second, second_low)
        f, f_low = multiply_pairs(f, f_low, p, p_low)
        f, f_low = divide_pairs(f, f_low, square, square_low)
    return multiply_pairs(high, low, t, t_low)


@scalar
def _positive(s, q, q_low, start, start_low):
    """Return zeta(s, q + q_low) / exp(start), for s > 1 and q > 0."""
    high, low, k = 0.0, 0.0, 0.0
    a, a_low = q, q_low
    t, t_low = _power(a, a_low, s, start, start_low)
    # The terms of the remainder decrease if a is large compared with s; otherwise the terms of the sum do.
    while a < START + 0.5 * s and (t > LEAST * high or k == 0.0):
        high, low = add_pairs(high, low, t, t_low)
        k += 1.0
        a, a_low = add_number(q, q_low, k)
        t, t_low = _power(a, a_low, s, start, start_low)
    if a < START + 0.5 * s:
        return high, low + max(t, SPECK)
    rest, rest_low = _remainder(s, a, a_low, t, t_low)
    return add_pairs(high, low, rest, rest_low)


@scalar
def _result(high, low, start, start_low):
    """Return (high + low) exp(start + start_low)."""
    bell, bell_low, exponent = exp_pair(start)
    bell, bell_low = multiply_pairs(bell, bell_low, 1.0, start_low)
    high, low = multiply_pairs(high, low, bell, bell_low)
    return high, low, exponent


@scalar
def _start(s, q):
    """Return -s log(q) as (high, low)."""
    y, y_low = log_of_pair(q, 0.0)
    p, p_low = two_product(y, -s)
    return p, fma(y_low, -s, p_low)


@scalar
def _largest_term_alone(sign, start):
    """Return a sum with a largest term, of this sign, beyond every format: no other term changes its rounding.

    Such terms are not summed, because float64 may not distinguish them for a large s or a large q.
    """
    return _result(sign, 0.0, math.copysign(FAR_BEYOND, start), 0.0)


@scalar
def _above_zero(s, q):
    """Return zeta(s, q) for s > 1 and q > 0."""
    start, start_low = _start(s, q)
    if abs(start) > FAR_BEYOND:
        return _largest_term_alone(1.0, start)
    if q >= LARGE:
        return _integral(s, q)
    high, low = _positive(s, q, 0.0, start, start_low)
    return _result(high, low, start, start_low)


@scalar
def _integral(s, q):
    """Return q^(1 - s) / (s - 1) + q^-s / 2, if the second term is relatively small: powers of two are exact."""
    d = s - 1.0
    high, low, exponent = power_wide(q, -d)
    high, low = divide_pairs(high, low, d, 0.0)
    return high, low + high * max(0.5 * d / q, SPECK), exponent


@scalar
def zeta_wide(s, q):
    """Return zeta(s, q): infinite at s = 1 and integers q <= 0, NaN for s < 1, and for q < 0 unless s is an integer."""
    if s != s or q != q or s < 1.0 or q == -np.inf:
        return np.nan, 0.0, 0
    if s == 1.0 or (q <= 0.0 and nearest_integer(q) == q) or q < -(2.0**51):
        return np.inf, 0.0, 0
    if q < 0.0 and nearest_integer(s) != s:
        return np.nan, 0.0, 0
    if q == np.inf or s == np.inf:
        return 0.0 if q > 1.0 else 1.0 if q == 1.0 else np.inf, 0.0, 0
    if q > 0.0:
        return _above_zero(s, max(q, 2.0**-1022))
    # q = f - n: the terms below zero are (-1)^s times the terms of zeta(s, 1 - f) up to 1 - q.
    n = -math.floor(q)
    f = q + n
    is_even = nearest_integer(0.5 * s) == 0.5 * s
    if f == 0.5 and not is_even:  # they cancel the first terms above zero
        return _above_zero(s, 1.0 - q)
    start, start_low = _start(s, min(f, 1.0 - f))
    if start > FAR_BEYOND:
        return _largest_term_alone(1.0 if is_even or f < 0.5 else -1.0, start)
    high, low = _positive(s, f, 0.0, start, start_low)
    below, below_low = _positive(s, 1.0 - f, 0.0, start, start_low)
    y, y_low = two_sum(1.0, -q)
    rest, rest_low = _positive(s, y, y_low, start, start_low)
    below, below_low = add_pairs(below, below_low, -rest, -rest_low)
    high, low = add_pairs(high, low, below if is_even else -below, below_low if is_even else -below_low)
    return _result(high, low, start, start_low)


#: For larger x, the smallest term of the expansion, exp(-2 x), is below LEAST.
FAR = 40.0


@scalar
def _series(x, order):
    """Return the sum of (x / 2)^(2 k) / (k! (k + order)!), which is I0(x) or I1(x) / (x / 2), for 0 < x < FAR."""
    q, q_low = two_product(0.5 * x, 0.5 * x)
    high, low, term, term_low, k = 1.0, 0.0, 1.0, 0.0, 0.0
    while term > LEAST * high:
        k += 1.0
        term, term_low = multiply_pairs(term, term_low, q, q_low)
        term, term_low = divide_pairs(term, term_low, k * (k + order), 0.0)
        high, low = add_pairs(high, low, term, term_low)
    return high, low


@scalar
def _expansion(x, order):
    """Return sqrt(2 pi x) exp(-x) times I0(x) or I1(x), as (high, low), for FAR <= x."""
    high, low, term, term_low, k = 1.0, 0.0, 1.0, 0.0, 0.0
    while abs(term) > LEAST:
        k += 1.0
        odd = 2.0 * k - 1.0
        term, term_low = multiply_pairs(term, term_low, odd * odd - 4.0 * order, 0.0)
        term, term_low = divide_pairs(term, term_low, k, 0.0)
        term, term_low = divide_pairs(0.125 * term, 0.125 * term_low, x, 0.0)
        high, low = add_pairs(high, low, term, term_low)
    return high, low


@scalar
def _scaled_bessel(x, order):
    """Return exp(-x) times I0(x) or I1(x), as (high, low, exponent), for 2^-60 <= x < infinity."""
    if x < FAR:
        high, low = _series(x, order)
        if order > 0.0:
            high, low = multiply_pairs(high, low, 0.5 * x, 0.0)
        bell, bell_low, exponent = exp_wide(-x)
        high, low = multiply_pairs(high, low, bell, bell_low)
        return high, low, exponent
    high, low = _expansion(x, order)
    # The root of an even power of two is a power of two.
    significand, exponent = split(x)
    half = exponent >> 1
    significand = 2.0 * significand if exponent & 1 else significand
    r, r_low = multiply_pairs(2.0 * PI[0], 2.0 * PI[1], significand, 0.0)
    r, r_low = root_of_pair(r, r_low)
    high, low = divide_pairs(high, low, r, r_low)
    return high, low, -half


@scalar
def _plain_bessel(x, order):
    """Return I0(x) or I1(x), as (high, low, exponent), for 2^-60 <= x < infinity."""
    if x < FAR:
        high, low = _series(x, order)
        if order > 0.0:
            high, low = multiply_pairs(high, low, 0.5 * x, 0.0)
        return high, low, 0
    x = min(x, 2000.0)  # larger results are out of the range of every format
    high, low, exponent = _scaled_bessel(x, order)
    bell, bell_low, more = exp_wide(x)
    high, low = multiply_pairs(high, low, bell, bell_low)
    return high, low, exponent + more


@scalar
def i0_wide(x):
    """Return I0(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else abs(x), 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, SPECK, 0
    return _plain_bessel(abs(x), 0.0)


@scalar
def i0e_wide(x):
    """Return exp(-|x|) I0(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return 1.0 if x == 0.0 else 0.0 if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        return 1.0, -max(abs(x), SPECK), 0
    return _scaled_bessel(abs(x), 0.0)


@scalar
def i1_wide(x):
    """Return I1(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return x, 0.0, 0
    if abs(x) < 2.0**-60:
        significand, exponent = split(x)
        return significand, significand * SPECK, exponent - 1
    high, low, exponent = _plain_bessel(abs(x), 1.0)
    return high if x > 0.0 else -high, low if x > 0.0 else -low, exponent


@scalar
def i1e_wide(x):
    """Return exp(-|x|) I1(x)."""
    if not abs(x) < np.inf or x == 0.0:
        return math.copysign(0.0, x) if abs(x) == np.inf else x, 0.0, 0
    if abs(x) < 2.0**-60:
        significand, exponent = split(x)
        return significand, -significand * max(abs(x), SPECK), exponent - 1
    high, low, exponent = _scaled_bessel(abs(x), 1.0)
    return high if x > 0.0 else -high, low if x > 0.0 else -low, exponent
