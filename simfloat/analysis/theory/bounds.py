"""Bounds on the errors of several roundings: deterministic, probable, and for stochastic rounding."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.common import as_rectangular_array, check_count, check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding


@in_usual_environment
def roundoff(format: FormatLike, rounding: RoundingLike = nearest_even) -> float:
    """Return the largest relative error of one rounding: u to nearest, and 2 u in every other mode.

    Parameters:
        format: a floating-point format, or its name.
        rounding: the rounding mode; by default nearest even.

    Returns:
        The bound on |delta| in fl(x) = x (1 + delta), for results in the normal range.

    Raises:
        ValueError: if `format` or `rounding` is invalid.
        ValueError: for a fixed-point format, whose errors have an absolute bound and no relative one.

    Source: Higham 2002, theorem 2.2; for stochastic rounding Connolly, Higham and Mary 2021, section 2.

    Examples:
        >>> sf.theory.roundoff(sf.FP16) * 2048, sf.theory.roundoff(sf.FP16, sf.stochastic()) * 2048
        (1.0, 2.0)
    """
    format, units = as_format(format), 1 if as_rounding(rounding).is_to_nearest else 2
    error = float(format.unit_roundoff) * units
    if format.is_fixed:
        size = f"2^{math.frexp(error)[1] - 1}"
        raise ValueError(
            f"Errors in {format} have no relative bound: numbers of a fixed-point format have a constant spacing, and "
            f"the error of one rounding is at most {size}. Use the bound n * {size} for n roundings."
        )
    return error


@in_usual_environment
def bias(format: FormatLike, rounding: RoundingLike) -> float:
    """Return the largest relative error of the mean of one stochastic rounding.

    With N random bits, the probability of rounding away from zero is a multiple of 2^-N. It differs from the exact
    probability by less than 2^-N in variant A, and by at most 2^-(N+1) in variants B and C. The bias is this difference
    times u, the largest relative distance of two neighbours. With few random bits, the bias dominates the error of long
    sums: an addend may be lost in every step.

    Parameters:
        format: a floating-point format, or its name.
        rounding: a stochastic rounding mode.

    Returns:
        2^-N u in variant A, and 2^-(N+1) u in variants B and C; u is ``roundoff(format, rounding)``. Results must be in
        the normal range.

    Raises:
        ValueError: for a mode that is not stochastic, whose errors are not random; otherwise as :func:`roundoff`.

    Source: the definition of the variants in IEEE P3109 interim report 4.0, section 4.7.4.

    Examples:
        >>> [sf.theory.bias(sf.FP32, sf.stochastic(4, variant)) * 2**28 for variant in "ABC"]
        [2.0, 1.0, 1.0]
    """
    rounding = as_rounding(rounding)
    if not rounding.is_stochastic:
        raise ValueError(f"Only stochastic rounding has a bias; {rounding} makes the same error in every run.")
    return math.ldexp(roundoff(format, rounding), -rounding.bits - (rounding.variant != "A"))


@in_usual_environment
def gamma(n: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """Return gamma_n = n u / (1 - n u), which bounds the relative error of n roundings.

    If |delta_i| <= u, the product of n factors (1 + delta_i) or 1 / (1 + delta_i) is 1 + theta_n with |theta_n| <=
    gamma_n. The error of a dot product of n terms, added one after the other, is at most gamma_n times the sum of |a_i
    b_i|. For a sum of n numbers it is at most gamma_(n-1) times the sum of |x_i|. All results must be in the normal
    range of the format, or exact.

    Parameters:
        n: numbers of roundings, 0 or more, in an array of any shape.
        unit_roundoff: u, the largest relative error of one rounding, between 0 and 1 (:func:`roundoff`).

    Returns:
        A float64 array of the shape of `n`; infinity if n u is 1 or more.

    Raises:
        ValueError: if a number is negative, or if `unit_roundoff` is not between 0 and 1.

    Source: Higham 2002, lemma 3.1 and section 3.1.

    Examples:
        >>> sf.theory.gamma([1, 2047, 2048], sf.FP16.unit_roundoff)
        array([4.88519785e-04, 2.04700000e+03,            inf])
    """
    n, u = check_lengths(n, unit_roundoff)
    return np.where(n * u < 1, n * u / np.where(n * u < 1, 1 - n * u, 1.0), np.inf)


@in_usual_environment
def probable_gamma(
    n: ArrayLike, unit_roundoff: float, factor: float = 1.0, independent: bool = False, bias: float = 0.0
) -> NDArray[np.float64]:
    """Return exp((factor sqrt(n) u + n u^2) / (1 - u)) - 1, about factor sqrt(n) u: a probable bound on n roundings.

    It bounds |theta_n| of :func:`gamma` with the probability 1 - 2 exp(-factor^2 / 2), if errors have mean zero,
    whatever the earlier errors were (*mean independence*). Errors of stochastic rounding with enough random bits have
    this property; u is then ``roundoff(format, sf.stochastic())``. With few random bits, their means are not zero: pass
    `bias`. Errors of rounding to nearest often behave similarly, but not if a sum stagnates. A dot product of n terms
    has n such errors: :func:`confidence` counts them.

    With a bias b, each factor is 1 + delta = (1 + mean) (1 + rest), where |mean| <= b and the rest has mean zero and is
    at most u / (1 - b). The result is (1 + the bound for u / (1 - b)) (1 + b)^n - 1.

    Parameters:
        n: numbers of roundings, 0 or more, in an array of any shape.
        unit_roundoff: u, the largest relative error of one rounding, between 0 and 1.
        factor: a positive number, lambda in the papers; the bound is more probable for larger factors.
        independent: True for the bound of 2019, exp(factor sqrt(n) u + n u^2 / (1 - u)) - 1. It assumes independent
            errors, and its probability is 1 - 2 exp(-factor^2 (1 - u)^2 / 2).
        bias: the largest relative error of the mean of one rounding, from 0 to below u (:func:`bias`).

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `factor` is not positive; if a number, `unit_roundoff` or `bias` is invalid; if `independent` is
            not a boolean.

    Source: Connolly, Higham and Mary 2021, theorem 4.6; with `independent` Higham and Mary 2019, theorem 2.4.

    Examples:
        >>> round(float(sf.theory.probable_gamma(10_000, sf.FP32.unit_roundoff)) * 2**24, 2)
        100.0
    """
    n, u = check_lengths(n, unit_roundoff)
    check_positive("factor", factor)
    check_flags(independent=independent)
    check_bias(bias, u)
    u /= 1 - bias
    with np.errstate(over="ignore"):
        exponent = factor * np.sqrt(n) * u + n * u * u / (1 - u)
        if not independent:
            exponent = (factor * np.sqrt(n) * u + n * u * u) / (1 - u)
        return np.asarray(np.expm1(exponent + n * math.log1p(bias)))


@in_usual_environment
def confidence(factor: float, terms: int = 1) -> float:
    """Return 1 - 2 terms exp(-factor^2 / 2), but at least 0: the probability of :func:`probable_gamma`.

    Parameters:
        factor: a positive number.
        terms: the number of products of errors that are bounded at once: n for a dot product of n terms.

    Returns:
        The probability.

    Raises:
        ValueError: if `factor` is not positive, or `terms` is not a positive integer.

    Source: Connolly, Higham and Mary 2021, theorems 4.6 and 4.8; it follows from Azuma's inequality.

    Examples:
        >>> round(sf.theory.confidence(4.0), 5), round(sf.theory.confidence(6.0, terms=1000), 5)
        (0.99933, 0.99997)
    """
    check_positive("factor", factor)
    check_count("terms", terms)
    return max(1 - 2 * terms * math.exp(-factor * factor / 2), 0.0)


@in_usual_environment
def confidence_factor(probability: float, terms: int = 1) -> float:
    """Return sqrt(2 log(2 terms / (1 - probability))): the factor for which :func:`confidence` is `probability`.

    Parameters:
        probability: a number from 0 to below 1.
        terms: as in :func:`confidence`.

    Returns:
        The factor.

    Raises:
        ValueError: if `probability` is not from 0 to below 1, or `terms` is not a positive integer.

    Examples:
        >>> round(sf.theory.confidence_factor(0.99), 3), round(sf.theory.confidence_factor(0.99, terms=1000), 3)
        (3.255, 4.941)
    """
    check_count("terms", terms)
    if isinstance(probability, bool) or not isinstance(probability, int | float) or not 0 <= probability < 1:
        raise ValueError(f"probability must be a number from 0 to below 1, got {probability!r}.")
    return math.sqrt(2 * math.log(2 * terms / (1 - probability)))


@in_usual_environment
def stochastic_variance(n: ArrayLike, unit_roundoff: float) -> NDArray[np.float64]:
    """Return (1 + u^2)^n - 1: a bound on the variance of a sum under stochastic rounding.

    With enough random bits, the mean of a computed dot product is the exact value. With few random bits, it has a
    :func:`bias`, which this bound does not include. The variance is at most this bound times the square of the sum of
    |a_i b_i|, if a term takes part in at most n roundings. The bound grows like n u^2, so the standard deviation grows
    like sqrt(n) u.

    Parameters:
        n: numbers of roundings, 0 or more: the terms of a dot product, or the terms of a sum less 1.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if a number is negative, or if `unit_roundoff` is not between 0 and 1.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.BF16, sf.stochastic())
        >>> round(float(sf.theory.stochastic_variance(100, u)) ** 0.5 / u, 2)
        10.02
    """
    n, u = check_lengths(n, unit_roundoff)
    with np.errstate(over="ignore"):
        return np.asarray(np.expm1(n * np.log1p(u * u)))


@in_usual_environment
def chebyshev_bound(
    n: ArrayLike, unit_roundoff: float, failure: float = 0.05, bias: float = 0.0
) -> NDArray[np.float64]:
    """Return sqrt(((1 + u^2)^n - 1) / failure): a probable bound on the error of a sum under stochastic rounding.

    The error of a dot product is at most this bound times the sum of |a_i b_i|, except with the probability
    `failure`. This is the inequality of Bienayme and Chebyshev with :func:`stochastic_variance`.

    With a bias b, the mean square of a partial sum grows by at most q^2 = (1 + b)^2 + u^2 in each step. The bound is
    then (u sqrt((q^(2 n) - 1) / (q^2 - 1)) + b (q^n - 1) / (q - 1)) / sqrt(failure).

    Parameters:
        n: numbers of roundings, as in :func:`stochastic_variance`.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.
        failure: a probability above 0, at most 1.
        bias: b, the largest relative error of the mean of one rounding, from 0 to below u (:func:`bias`).

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `failure` is not above 0 and at most 1; if a number, `unit_roundoff` or `bias` is invalid.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.BF16, sf.stochastic())
        >>> round(float(sf.theory.chebyshev_bound(100, u, failure=0.01)) / u, 1)
        100.2
    """
    share = check_share("failure", failure)
    lengths, u = check_lengths(n, unit_roundoff)
    if not check_bias(bias, u):
        return np.asarray(np.sqrt(stochastic_variance(n, unit_roundoff) / share))
    # The error is the sum of all rounding errors, which are products of a partial sum and of a part with mean zero, or
    # of the bias. Parts with mean zero are uncorrelated, and partial sums of one height in a tree have disjoint terms.
    growth = bias * (2 + bias) + u * u  # q^2 - 1
    rise = math.expm1(math.log1p(growth) / 2)  # q - 1
    with np.errstate(over="ignore"):
        spread = u * np.sqrt(np.expm1(lengths * math.log1p(growth)) / growth)
        shift = bias * np.expm1(lengths * math.log1p(growth) / 2) / rise
    return np.asarray((spread + shift) / math.sqrt(share))


@in_usual_environment
def azuma_bound(n: ArrayLike, unit_roundoff: float, failure: float = 0.05, bias: float = 0.0) -> NDArray[np.float64]:
    """Return sqrt(u ((1 + u)^(2 n) - 1) log(2 / failure)): a probable bound that grows slowly as `failure` falls.

    It bounds the same error as :func:`chebyshev_bound`, by the inequality of Azuma and Hoeffding for the martingale of
    the partial sums. It is the smaller bound if `failure` is small and n u is below about 1; for larger n u
    it grows like exp(n u). The terms must be added one after the other. A bias b adds b ((1 + u)^n - 1) / u.

    Parameters:
        n: numbers of roundings, as in :func:`stochastic_variance`.
        unit_roundoff: u, the largest relative error of one rounding, ``roundoff(format, sf.stochastic())``.
        failure: a probability above 0, at most 1.
        bias: b, the largest relative error of the mean of one rounding, from 0 to below u (:func:`bias`).

    Returns:
        A float64 array of the shape of `n`.

    Raises:
        ValueError: if `failure` is not above 0 and at most 1; if a number, `unit_roundoff` or `bias` is invalid.

    Source: El Arar, Sohier, de Oliveira Castro and Petit 2023, on inner products.

    Examples:
        >>> u = sf.theory.roundoff(sf.FP16, sf.stochastic())
        >>> bool(sf.theory.azuma_bound(100, u, 1e-6) < sf.theory.chebyshev_bound(100, u, 1e-6))
        True
    """
    # Step k adds an error of at most u (1 + u)^(k - 1) times the sum of magnitudes, with mean zero whatever came
    # before. The squares of these bounds, which Azuma's inequality needs, add up to at most u / 2 ((1 + u)^(2 n) - 1).
    share = check_share("failure", failure)
    lengths, u = check_lengths(n, unit_roundoff)
    shift = check_bias(bias, u) / u
    with np.errstate(over="ignore"):
        spread = np.sqrt(u * np.expm1(2 * lengths * np.log1p(u)) * math.log(2 / share))
        return np.asarray(spread + shift * np.expm1(lengths * np.log1p(u)) if shift else spread)


def check_lengths(lengths: ArrayLike, unit_roundoff: float) -> tuple[NDArray[np.float64], float]:
    """Return both arguments of a bound; raise ValueError if one is invalid."""
    n = as_rectangular_array(lengths, "n", np.float64)
    if not (n >= 0).all():
        raise ValueError(f"Lengths must be zero or more, got {lengths!r}.")
    if not isinstance(unit_roundoff, float | np.floating) or not 0 < unit_roundoff < 1:
        raise ValueError(
            f"unit_roundoff must be a number between 0 and 1, such as simfloat.FP16.unit_roundoff, got "
            f"{unit_roundoff!r}."
        )
    return n, float(unit_roundoff)


def check_bias(bias: Any, unit_roundoff: float) -> float:
    """Return a bias from 0 to below u; raise ValueError for others."""
    is_number = isinstance(bias, int | float | np.number) and not isinstance(bias, bool)
    if not is_number or not 0 <= bias < unit_roundoff:
        raise ValueError(f"bias must be a number from 0 to below u = {unit_roundoff}, see theory.bias; got {bias!r}.")
    return float(bias)


def check_number(name: str, value: Any, what: str, most: float) -> float:
    """Return a number above 0 and at most `most`; raise ValueError for others."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most:
        raise ValueError(f"{name} must be {what}, got {value!r}.")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Return a positive number; raise ValueError for others."""
    return check_number(name, value, "a positive number", sys.float_info.max)


def check_share(name: str, value: Any) -> float:
    """Return a number above 0 and at most 1; raise ValueError for others."""
    return check_number(name, value, "a number above 0 and at most 1", 1.0)
