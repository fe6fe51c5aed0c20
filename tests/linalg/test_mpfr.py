"""Compare elimination, roots and substitution with MPFR, in its own arithmetic of 24 and 53 bits."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits


@pytest.fixture(params=[sf.FP32, sf.FP64], ids=str)
def format(request):
    return request.param


def numbers(x, gmpy2):
    return np.array([[gmpy2.mpfr(float(v)) for v in row] for row in np.asarray(x)], object)


def test_elimination_and_substitution_are_mpfrs(format, gmpy2, rng):
    n = 20
    a, b = sf.round(rng.standard_normal((n, n)), format), sf.round(rng.standard_normal((n, 1)), format)
    with gmpy2.context(precision=format.precision):
        w, x = numbers(a, gmpy2), numbers(b, gmpy2)
        for k in range(n):
            best = max(range(k, n), key=lambda i: abs(w[i, k]))
            w[[k, best]], x[[k, best]] = w[[best, k]], x[[best, k]]
            for i in range(k + 1, n):
                w[i, k] = w[i, k] / w[k, k]
                for j in range(k + 1, n):
                    w[i, j] = gmpy2.fma(-w[i, k], w[k, j], w[i, j])
        for k in range(n):
            for i in range(k + 1, n):
                x[i, 0] = gmpy2.fma(-w[i, k], x[k, 0], x[i, 0])
        for k in reversed(range(n)):
            x[k, 0] = x[k, 0] / w[k, k]
            for i in range(k):
                x[i, 0] = gmpy2.fma(-w[i, k], x[k, 0], x[i, 0])
    _, lower, upper = sf.linalg.lu(a, format=format)
    assert_bits(np.tril(np.asarray(lower), -1) + np.asarray(upper), w.astype(float))
    assert_bits(sf.linalg.solve(a, b, format=format), x.astype(float))


def test_cholesky_is_mpfrs(format, gmpy2, rng):
    n = 20
    half = rng.standard_normal((n, n))
    a = sf.round(half @ half.T + np.eye(n), format)
    with gmpy2.context(precision=format.precision):
        w = numbers(a, gmpy2)
        for k in range(n):
            w[k, k] = gmpy2.sqrt(w[k, k])
            for i in range(k + 1, n):
                w[i, k] = w[i, k] / w[k, k]
            for i in range(k + 1, n):
                for j in range(k + 1, i + 1):
                    w[i, j] = gmpy2.fma(-w[i, k], w[j, k], w[i, j])
    assert_bits(sf.linalg.cholesky(a, format=format), np.tril(w.astype(float)))
