"""The logarithm of |Gamma(x)|, and its derivative.

Where x is positive, by Taylor's series around 2 or by Stirling's; below, by Euler's reflection.
"""

from __future__ import annotations

import math

import numpy as np

from simfloat.kernels.functions.constants import SPECK, pair
from simfloat.kernels.functions.gamma_series import (
    DIGAMMA_ROWS,
    EULER,
    LOG_GAMMA_ROWS,
    LOG_PI,
    PI,
    STIRLING,
    WHOLE,
    cosine_of_half_turns,
    log_of_pair,
    polynomial,
    shift_to_at_least,
    sine_of_half_turns,
    stirling,
    stirling_slope,
)
from simfloat.kernels.functions.logarithm import log_pair
from simfloat.kernels.functions.shifted_logarithm import log1p_pair
from simfloat.kernels.jit import scalar
from simfloat.kernels.pairs import add_number, add_pairs, divide_pairs, multiply_pairs
from simfloat.kernels.unrounded import nearest_integer, split, two_sum

EULER_PAIR = pair(EULER)


@scalar
def _log_gamma_near(t, t_low):
    """log Gamma(2 + t + t_low)."""
    high, low = polynomial(LOG_GAMMA_ROWS, WHOLE, t, t_low)
    return multiply_pairs(high, low, t, t_low)


@scalar
def _log_gamma(x, x_low):
    """log Gamma(x + x_low) as (high, low), for 1/2 < x <= 2^500."""
    if x < 1.5:
        t, t_low = add_number(x, x_low, -1.0)
        high, low = _log_gamma_near(t, t_low)
        # Near 1, log Gamma(x) is that of x + 1 less log x, and both vanish together: the series in t around 2, and
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
    """log |Gamma(x)|."""
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
        # x (log x - 1), of which less than 2^-100 are missing
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
    """The derivative at x + x_low as (high, low), for 0 < x."""
    if x <= 2.45:
        # The series from t = -0.55 on, less what leads there from below.
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
    """The derivative of log Gamma at x."""
    if not abs(x) < np.inf:
        return x if x > 0.0 else np.nan, 0.0, 0
    if x == 0.0:
        return -math.copysign(np.inf, x), 0.0, 0
    if abs(x) < 2.0**-120:
        # -1 / x - EULER, of which the sign is enough
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
