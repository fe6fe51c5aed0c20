"""Every algorithm has the bits of its documented order of operations, computed with fractions."""

import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.linalg import factorizations, matrices
from tests.bits import assert_bits
from tests.linalg import orders

WAYS = [
    (sf.BF16, sf.nearest_even), (sf.FP16, sf.toward_negative), (sf.FP32, sf.to_odd),
    (sf.Format(5, 6), sf.toward_positive), (sf.FP64, sf.nearest_even),
]  # fmt: skip


@pytest.fixture(params=WAYS, ids=str)
def way(request):
    return request.param


@pytest.fixture(params=["tiny blocks", "blocks"])
def blocks(request, monkeypatch):
    """Blocks that small matrices consist of many of."""
    if request.param == "tiny blocks":
        monkeypatch.setattr(matrices, "LEAF", 1)
        monkeypatch.setattr(factorizations, "BLOCK", 4)


def matrix(rng, shape, format):
    return sf.round(rng.standard_normal(shape), format)


def definite(rng, n, format):
    half = rng.standard_normal((n, n))
    return sf.round(half @ half.T + np.eye(n), format)


@pytest.mark.parametrize("shape", [(11, 11), (9, 5), (5, 9), (1, 1)])
def test_lu_is_right_looking_elimination(shape, way, blocks, rng):
    format, rounding = way
    a = matrix(rng, shape, format)
    p, lower, upper = sf.linalg.lu(a, format=format, rounding=rounding)
    rows, factors = orders.lu(a, orders.Steps(format, rounding))
    assert p.tolist() == rows
    k = min(shape)
    assert_bits(lower, np.tril(factors[:, :k], -1) + np.eye(shape[0], k))
    assert_bits(upper, np.triu(factors[:k]))


def test_lu_without_pivots_leaves_rows_where_they_are(way, rng):
    format, rounding = way
    a = sf.round(matrix(rng, (6, 6), format) + 8 * np.eye(6), format)
    p, lower, upper = sf.linalg.lu(a, format=format, rounding=rounding, pivot=False)
    _, factors = orders.lu(a, orders.Steps(format, rounding), pivot=False)
    assert p.tolist() == list(range(6))
    assert_bits(np.tril(lower.numbers, -1) + np.triu(upper.numbers), factors)


@pytest.mark.parametrize("products", [sf.BF16, sf.FP32])
def test_products_may_be_rounded_first(products, blocks, rng):
    a = matrix(rng, (9, 9), sf.BF16)
    order = sf.sequential(sf.BF16, products=products)
    _, lower, upper = sf.linalg.lu(a, format=sf.BF16, accumulate=order)
    _, factors = orders.lu(a, orders.Steps(sf.BF16, sf.nearest_even, products=products))
    assert_bits(np.tril(lower.numbers, -1) + np.triu(upper.numbers), factors)


def test_cholesky_is_right_looking(way, blocks, rng):
    format, rounding = way
    a = definite(rng, 9, format)
    got = sf.linalg.cholesky(a, format=format, rounding=rounding)
    assert_bits(got, orders.cholesky(a, orders.Steps(format, rounding)))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_unknowns_are_subtracted_in_the_order_in_which_they_are_found(lower, unit_diagonal, way, blocks, rng):
    format, rounding = way
    t, b = sf.round(matrix(rng, (9, 9), format) + 4 * np.eye(9), format), matrix(rng, (9, 2), format)
    options = dict(lower=lower, unit_diagonal=unit_diagonal, format=format, rounding=rounding)
    got = sf.linalg.solve_triangular(t, b, **options)
    assert_bits(got, orders.triangular(t, b, orders.Steps(format, rounding), lower, unit_diagonal))
    assert_bits(sf.linalg.solve_triangular(t, b[:, 0], **options), got[:, 0])


def test_solve_eliminates_then_substitutes_twice(way, rng):
    format, rounding = way
    a, b = matrix(rng, (7, 7), format), matrix(rng, (7, 1), format)
    steps = orders.Steps(format, rounding)
    rows, factors = orders.lu(a, steps)
    y = orders.triangular(factors, b[rows], steps, lower=True, unit=True)
    want = orders.triangular(factors, y, steps, lower=False)
    assert_bits(sf.linalg.solve(a, b, format=format, rounding=rounding), want)


@pytest.mark.parametrize("shape", [(6, 4), (4, 4), (3, 5)])
def test_qr_is_householders(shape, way, rng):
    format, rounding = way
    a = matrix(rng, shape, format)
    q, r = sf.linalg.qr(a, format=format, rounding=rounding)
    want_q, want_r, _ = orders.qr(a, orders.Steps(format, rounding))
    assert_bits(q, want_q)
    assert_bits(r, want_r)


@pytest.mark.parametrize("shape", [(6, 4), (4, 4), (3, 5)])
def test_qr_exchanges_columns_for_the_largest_sum_of_squares(shape, way, rng):
    format, rounding = way
    a = matrix(rng, shape, format)
    got = sf.linalg.qr(a, pivot=True, format=format, rounding=rounding)
    permutation = list(range(shape[1]))
    q, r, _ = orders.qr(a, orders.Steps(format, rounding), permutation=permutation)
    assert got.permutation.tolist() == permutation
    assert_bits(got.q, q)
    assert_bits(got.r, r)


def complex_matrix(rng, shape, format):
    return matrix(rng, shape, format) + 1j * matrix(rng, shape, format)


def complex_array(pairs):
    pairs = np.array(pairs)
    return pairs[..., 0] + 1j * pairs[..., 1]


def assert_complex_bits(got, want):
    got = np.asarray(got)
    assert_bits(got.real, want.real)
    assert_bits(got.imag, want.imag)


@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 3)])
def test_complex_qr_is_householders(shape, way, rng):
    format, rounding = way
    a = complex_matrix(rng, shape, format)
    got = sf.linalg.qr(a, format=format, rounding=rounding)
    q, r, _ = orders.complex_qr(a, orders.Steps(format, rounding))
    assert_complex_bits(got.q, complex_array(q))
    assert_complex_bits(got.r, complex_array(r))
    assert np.abs(np.asarray(got.q) @ np.asarray(got.r) - a).max() <= 64 * format.unit_roundoff * np.abs(a).max()
    assert not np.asarray(got.r).diagonal().imag.any()
    pivoted = sf.linalg.qr(a, pivot=True, format=format, rounding=rounding)
    assert_complex_bits(
        sf.linalg.qr(a[:, pivoted.permutation], format=format, rounding=rounding).r, np.asarray(pivoted.r)
    )
    assert (np.diff(np.abs(np.asarray(pivoted.r).diagonal())) <= 64 * format.unit_roundoff).all()


def test_complex_least_squares_have_two_sums_for_each_unknown(way, rng):
    format, rounding = way
    a, b = complex_matrix(rng, (4, 3), format), complex_matrix(rng, 4, format)
    steps = orders.Steps(format, rounding)
    _, r, reflections = orders.complex_qr(a, steps)
    c = [[(float(z.real), float(z.imag))] for z in b]
    for k, (v, tau) in enumerate(reflections):
        rest = c[k:]
        orders.complex_reflect(rest, v, orders.conjugate(tau), steps)
    x = [None] * 3
    for i in reversed(range(3)):
        found = [j for j in reversed(range(3)) if j > i]
        s = orders.less_products(c[i][0], [r[i][j] for j in found], [x[j] for j in found], steps)
        x[i] = tuple(steps("divide", part, r[i][i][0]) for part in s)
    got = sf.linalg.lstsq(a, b, format=format, rounding=rounding)
    assert_complex_bits(got.x, complex_array(x))
    rows = [[(float(z.real), float(z.imag)) for z in row] for row in a]
    residual = [
        orders.less_products((float(z.real), float(z.imag)), row, x, steps) for z, row in zip(b, rows, strict=True)
    ]
    assert_complex_bits(got.residual, complex_array(residual))


def test_real_least_squares_solve_the_parts_of_a_complex_b(rng):
    a, b = matrix(rng, (5, 3), sf.BF16), complex_matrix(rng, (5, 2), sf.BF16)
    got = sf.linalg.lstsq(a, b, format=sf.BF16)
    real, imaginary = (sf.linalg.lstsq(a, part, format=sf.BF16) for part in (b.real, b.imag))
    for mine, first, second in zip(got, real, imaginary, strict=True):
        assert_complex_bits(mine, np.asarray(first) + 1j * np.asarray(second))
    promoted = sf.linalg.lstsq(a + 0j, b.real, format=sf.FP32)
    assert np.iscomplexobj(promoted.x.numbers) and np.allclose(
        promoted.x.numbers.real, np.linalg.lstsq(a, b.real)[0], atol=1e-5
    )


def test_inverses_and_determinants_are_made_of_the_factors(way, rng):
    format, rounding = way
    options = dict(format=format, rounding=rounding)
    for n in (1, 4, 5):
        a = matrix(rng, (n, n), format)
        assert_bits(sf.linalg.inv(a, **options), sf.linalg.solve(a, np.eye(n), **options).numbers)
        steps, (p, _, upper) = orders.Steps(format, rounding), sf.linalg.lu(a, **options)
        product = float(upper[0, 0])
        for k in range(1, n):
            product = steps("multiply", product, float(upper[k, k]))
        odd = np.linalg.det(np.eye(n)[p]) < 0
        assert float(sf.linalg.det(a, **options)) == (-product if odd else product)
    assert float(sf.linalg.det([[1.0, 2.0], [2.0, 4.0]], **options)) == 0
    assert float(sf.linalg.det(np.zeros((0, 0)), **options)) == 1


@pytest.mark.parametrize("ord", [None, 1, 2, np.inf, -np.inf])
def test_norms_are_those_of_arrays(ord, rng):
    x = sf.array(rng.standard_normal((3, 4)), sf.BF16)
    for one in (x, x[0], x + 1j * x, x[0] * (1 + 1j)):
        if one.ndim == 2 and ord == 2:
            if not np.iscomplexobj(one.numbers):
                assert_bits(sf.linalg.norm(one, 2), sf.linalg.svd(one).s[0].numbers)
            continue
        assert_bits(sf.linalg.norm(one, ord), np.asarray(np.linalg.norm(one, ord)))
    assert_bits(sf.linalg.norm(x.numbers, ord, format=sf.FP16), np.asarray(sf.linalg.norm(x.astype(sf.FP16), ord)))


def test_the_condition_estimate_is_hagers(way, rng):
    format, rounding = way
    steps = orders.Steps(format, rounding)
    for n in (1, 5):
        a = matrix(rng, (n, n), format)
        rows, w = orders.lu(a, steps)
        x, estimate = [steps("divide", 1.0, float(n))] * n, 0.0
        for _ in range(5):
            y = orders.triangular(w, np.array(x)[rows][:, None], steps, lower=True, unit=True)
            y = orders.triangular(w, y, steps, lower=False)[:, 0]
            before, estimate = estimate, steps.dot([abs(v) for v in y], [1.0] * n)
            if estimate <= before:
                estimate = before
                break
            z = orders.triangular(w.T, np.where(y >= 0, 1.0, -1.0)[:, None], steps, lower=True)
            turned = orders.triangular(w.T, z, steps, lower=False, unit=True)[:, 0]
            z = np.empty(n)
            z[rows] = turned
            if np.abs(z).max() <= steps.dot(z, x):
                break
            x = np.eye(n)[np.argmax(np.abs(z))].tolist()
        size = max(steps.dot(np.abs(column), [1.0] * n) for column in a.T)
        got = float(sf.linalg.cond(a, format=format, rounding=rounding))
        assert got == steps("multiply", size, estimate)
        if format.precision > 20:
            exact = np.linalg.cond(a, 1)
            assert exact / 3 < got < exact * 1.01


def test_newtons_iteration_for_inverses_and_roots_step_by_step(way, rng):
    format, rounding = way
    a, steps, n = definite(rng, 3, format), orders.Steps(format, rounding), 3
    eye, options = np.eye(n), dict(format=format, rounding=rounding, max_iterations=2, tolerance=0)
    less = lambda s, left, right: np.array(  # noqa: E731
        [[_chain(s[i, j], left[i], right[:, j], steps) for j in range(n)] for i in range(n)]
    )
    times = lambda x, y: np.array([[steps.dot(row, column) for column in y.T] for row in x])  # noqa: E731
    power = math.frexp(np.abs(a).sum(0, np.float64).max() * np.abs(a).sum(1, np.float64).max())[1]
    x = np.ldexp(a.T.astype(float), -power)
    for _ in range(2):
        x = less(x, -x, less(eye, a, x))
    assert_bits(sf.linalg.newton_inverse(a, **options).x, x)
    k = -(-math.frexp(np.abs(a).sum(1, np.float64).max())[1] // 2)
    y, z = np.ldexp(a.astype(float), -2 * k), eye
    for _ in range(2):
        t = [
            [steps("fma", 0.5, v, e) for v, e in zip(*rows, strict=True)]
            for rows in zip(less(eye, z, y), eye, strict=True)
        ]
        y, z = times(y, np.array(t)), times(np.array(t), z)
    got = sf.linalg.newton_sqrt(a, **options)
    assert_bits(got.root, np.ldexp(y, k))
    assert_bits(got.inverse_root, np.ldexp(z, -k))


def test_newtons_iteration_goes_on_from_a_residual_of_one_half_that_does_not_shrink():
    a = np.array([[3.0, -0.75], [3.0, 0.75]])
    result = sf.linalg.newton_inverse(a, format=sf.Format(5, 1))
    assert result.residuals == [1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.1875]
    assert "no longer shrinks" in result.reason and result.converged


def _chain(s, xs, ys, steps):
    for x, y in zip(xs, ys, strict=True):
        s = steps.less(s, x, y)
    return s


def test_least_squares_apply_the_reflections_to_b(way, rng):
    format, rounding = way
    a, b = matrix(rng, (6, 3), format), matrix(rng, (6, 1), format)
    steps = orders.Steps(format, rounding)
    _, r, reflections = orders.qr(a, steps)
    c = b.astype(float)
    for k, (v, tau) in enumerate(reflections):
        orders.reflect(c[k:], v, tau, steps)
    got = sf.linalg.lstsq(a, b[:, 0], format=format, rounding=rounding)
    x = orders.triangular(r, c[:3], steps, lower=False)
    assert_bits(got.x, x[:, 0])
    residual = b[:, 0].tolist()
    for k in range(3):
        residual = [steps.less(one, a[i, k], x[k, 0]) for i, one in enumerate(residual)]
    assert_bits(got.residual, np.array(residual))


def test_eigenvalues_are_jacobis(way, rng):
    format, rounding = way
    a = matrix(rng, (4, 4), format)
    got = sf.linalg.eigh(a, format=format, rounding=rounding)
    values, vectors = orders.eigh(a, orders.Steps(format, rounding))
    assert_bits(got.values, values)
    assert_bits(got.vectors, vectors)
    near = np.linalg.eigvalsh(a)
    assert np.abs(got.values.numbers - near).max() <= 64 * format.unit_roundoff * np.abs(near).max()


@pytest.mark.parametrize("rounding", [sf.nearest_even, sf.toward_zero, sf.nearest_even.saturating()], ids=str)
def test_rotations_by_small_angles_are_made_where_the_square_of_their_cotangent_leaves_the_range(rounding):
    format, a = sf.Format(4, 10), np.array([[1, 0.02], [0.02, 2]])
    got = sf.linalg.eigh(a, format=format, rounding=rounding)
    values, vectors = orders.eigh(sf.round(a, format, rounding), orders.Steps(format, rounding))
    assert_bits(got.values, values)
    assert_bits(got.vectors, vectors)
    assert np.abs(got.vectors.numbers @ np.diag(got.values.numbers) @ got.vectors.numbers.T - a).max() < format.eps


@pytest.mark.parametrize("shape", [(4, 3), (2, 3)])
def test_singular_values_are_hestenes(shape, way, rng):
    format, rounding = way
    a = matrix(rng, shape, format)
    got = sf.linalg.svd(a, format=format, rounding=rounding)
    u, s, vh = orders.svd(a if shape[0] > shape[1] else a.T, orders.Steps(format, rounding))
    u, vh = (u, vh) if shape[0] > shape[1] else (vh.T, u.T)
    for mine, due in zip(got, (u, s, vh), strict=True):
        assert_bits(mine, due)
    near = np.linalg.svd(a)[1]
    assert np.abs(got.s.numbers - near).max() <= 64 * format.unit_roundoff * near[0]


def test_columns_that_singular_values_lack_are_those_of_qr(rng):
    a = matrix(rng, (5, 3), sf.BF16)
    a[:, 1] = 0
    u, s, vh = sf.linalg.svd(a, format=sf.BF16, full_matrices=True)
    assert u.shape == (5, 5) and vh.shape == (3, 3) and s.numbers[2] == 0
    assert_bits(u[:, :2], sf.linalg.svd(a[:, [0, 2]], format=sf.BF16).u)
    # Columns of zeros have no reflections of their own, and leave room for the rest of q.
    q, _ = sf.linalg.qr(np.concatenate([u.numbers[:, :2], np.zeros((5, 3))], 1), format=sf.BF16)
    assert_bits(u[:, 2:], q[:, 2:])


def test_conjugate_gradients_step_by_step(way, rng):
    format, rounding = way
    a, b = definite(rng, 4, format), matrix(rng, 4, format)
    for count in (1, 3):
        got = sf.linalg.cg(a, b, format=format, rounding=rounding, max_iterations=count, tolerance=0)
        want = orders.conjugate_gradients(a.tolist(), b.tolist(), orders.Steps(format, rounding), count)
        assert_bits(got.x, np.array(want))
        assert len(got.residuals) == len(got.true_residuals) == count + 1


def preconditioners(a, steps):
    """Preconditioners of a system, and the same as functions of lists."""
    near = np.eye(len(a)) - a / 64
    halve = lambda r: [steps("divide", x, 2.0) for x in r]  # noqa: E731
    diagonal = [steps("divide", 1.0, x) for x in a.diagonal()]
    return {
        "none": (None, list),
        "diagonal": (diagonal, lambda r: [steps("multiply", d, x) for d, x in zip(diagonal, r, strict=True)]),
        "matrix": (near, lambda r: orders.product(round_values(near, steps), r, steps)),
        "function": (lambda r: halve(r.tolist()), halve),
        "factors": (sf.linalg.lu(a, format=sf.BF16), lambda r: by_factors(a, r, steps)),
    }


def round_values(x, steps):
    return sf.round(x, steps.format, steps.rounding).tolist()


def by_factors(a, r, steps):
    p, lower, upper = sf.linalg.lu(a, format=sf.BF16)
    y = orders.triangular(lower.numbers, np.array(r)[p][:, None], steps, lower=True, unit=True)
    return orders.triangular(upper.numbers, y, steps, lower=False)[:, 0].tolist()


@pytest.mark.parametrize("name", ["none", "diagonal", "matrix", "function", "factors"])
def test_preconditioned_methods_step_by_step(name, rng):
    format, rounding = sf.FP32, sf.nearest_even
    steps = orders.Steps(format, rounding)
    a, b = definite(rng, 4, format), matrix(rng, 4, format)
    preconditioner, apply = preconditioners(a, steps)[name]
    options = dict(format=format, rounding=rounding, preconditioner=preconditioner, tolerance=0)
    got = sf.linalg.cg(a, b, max_iterations=3, **options)
    assert_bits(got.x, np.array(orders.conjugate_gradients(a.tolist(), b.tolist(), steps, 3, apply)))
    got = sf.linalg.gmres(a, b, max_iterations=6, restart=3, **options)
    x, sizes = orders.gmres(a.tolist(), b.tolist(), steps, 2, 3, apply)
    assert_bits(got.x, np.array(x))
    first = steps.sqrt(steps.dot(b.tolist(), b.tolist()))
    assert got.residuals == [1.0, *(size / first for size in sizes)] and len(got.true_residuals) == 3


def test_gmres_step_by_step(way, rng):
    format, rounding = way
    a, b = sf.round(matrix(rng, (4, 4), format) + 3 * np.eye(4), format), matrix(rng, 4, format)
    got = sf.linalg.gmres(a, b, format=format, rounding=rounding, max_iterations=5, restart=3, tolerance=0)
    steps = orders.Steps(format, rounding)
    x, sizes = orders.gmres(a.tolist(), b.tolist(), steps, 1, 3)
    assert len(got.residuals) == 6 and got.residuals[:4] == [
        1.0,
        *(s / steps.sqrt(steps.dot(b.tolist(), b.tolist())) for s in sizes),
    ]


def test_a_stochastic_elimination_takes_its_draws_in_the_stated_order(rng):
    mode = sf.stochastic(bits=8)
    draws = rng.integers(0, 256, 400).tolist()
    options = dict(format=sf.E4M3, rounding=mode)
    a = sf.round(rng.standard_normal((5, 5)), sf.E4M3)
    definite_one = sf.round(a @ a.T + 2 * np.eye(5), sf.E4M3)
    for name, operands in (("lu", (a,)), ("cholesky", (definite_one,)), ("solve_triangular", (a, a[:, :2]))):
        # Matrices are rounded as they enter, which takes a draw an element and leaves them as they are.
        entering = sum(x.size for x in operands)
        got = getattr(sf.linalg, name)(*operands, **options, stream=sf.GivenBits(draws))
        steps = orders.Steps(sf.E4M3, mode, draws[entering:])
        if name == "lu":
            rows, factors = orders.lu(a, steps)
            assert got.permutation.tolist() == rows
            assert_bits(np.tril(got.lower.numbers, -1) + np.triu(got.upper.numbers), factors)
        elif name == "cholesky":
            assert_bits(got, orders.cholesky(definite_one, steps))
        else:
            assert_bits(got, orders.triangular(*operands, steps, lower=False))


@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (6, 3)], ids=str)
@pytest.mark.parametrize("name", ["lu", "qr", "lstsq", "eigh", "svd", "cg", "gmres"])
def test_every_algorithm_takes_its_draws_in_the_stated_order(name, shape, rng):
    """With exact sums, each of which is rounded once; of elimination, whose steps round, with the default ones."""
    format, mode = sf.FP16, sf.stochastic(bits=8)
    m, n = shape
    krylov = name in ("cg", "gmres")
    if ((krylov or name == "eigh") and m != n) or (name == "lstsq" and m < n):
        return
    draws = rng.integers(0, 256, 20_000).tolist()
    a, b = matrix(rng, shape, format), matrix(rng, m, format)
    a = definite(rng, n, format) if name == "cg" else np.tril(a) + np.tril(a, -1).T if name == "eigh" else a
    operands = (a, b) if krylov or name == "lstsq" else (a,)
    steps = orders.Steps(format, mode, draws[sum(x.size for x in operands) :], exact_sums=name != "lu")
    options = {} if name == "lu" else {"accumulate": sf.exact}
    options |= {"max_iterations": 3, "tolerance": 0} if krylov else {}
    got = getattr(sf.linalg, name)(*operands, format=format, rounding=mode, stream=sf.GivenBits(draws), **options)
    if name == "lu":
        rows, factors = orders.lu(a, steps)
        assert got.permutation.tolist() == rows
        lower, upper = got.lower.numbers, got.upper.numbers
        assert_bits(np.tril(lower, -1), np.tril(factors[:, : min(shape)], -1))
        assert_bits(upper, np.triu(factors[: min(shape)]))
    elif name == "cg":
        assert_bits(got.x, np.array(orders.conjugate_gradients(a.tolist(), b.tolist(), steps, 3)))
    elif name == "gmres":
        t, _ = orders.gmres_cycle(lambda v: orders.product(a, v, steps), b.tolist(), steps, 0, 3, _subtracted)
        assert_bits(got.x, np.array([steps("add", 0.0, x) for x in t]))
    elif name == "lstsq":
        _, r, reflections = orders.qr(a, steps, with_q=False)
        c = b.astype(float)[:, np.newaxis]
        for k, (v, tau) in enumerate(reflections):
            orders.reflect(c[k:], v, tau, steps)
        assert_bits(got.x, _subtracted(r, c[:n, 0], steps))
    else:
        transposed = name == "svd" and m < n
        due = {"qr": orders.qr, "eigh": orders.eigh, "svd": orders.svd}[name](a.T if transposed else a, steps)
        due = (due[2].T, due[1], due[0].T) if transposed else due
        for mine, one in zip(got, due, strict=False):
            assert_bits(mine, one)


def _subtracted(r, c, steps):
    """Unknowns from the last one: c less the products in one sum, which is rounded once, then a quotient."""
    x = c.copy()
    for i in reversed(range(len(x))):
        if i + 1 < len(x):
            x[i] = steps.dot([1.0, *-r[i, i + 1 :]], x[i:])
        x[i] = steps("divide", x[i], r[i, i])
    return x


def test_rounded_products_draw_before_their_sums(rng):
    mode = sf.stochastic(bits=8)
    draws = rng.integers(0, 256, 200)
    a = sf.round(rng.standard_normal((3, 3)), sf.E4M3)
    order = sf.sequential(sf.E4M3, mode, products=sf.E4M3)
    options = dict(format=sf.E4M3, rounding=mode, accumulate=order, pivot=False)
    _, lower, upper = sf.linalg.lu(a, **options, stream=sf.GivenBits(draws))
    stream, w = sf.GivenBits(draws[a.size :]), a.copy()
    for k in range(3):
        if k < 2:
            w[k + 1 :, k] = sf.divide(w[k + 1 :, k], w[k, k], sf.E4M3, mode, stream=stream)
            products = sf.multiply(-w[k + 1 :, k : k + 1], w[k, k + 1 :], sf.E4M3, mode, stream=stream)
            w[k + 1 :, k + 1 :] = sf.add(w[k + 1 :, k + 1 :], products, sf.E4M3, mode, stream=stream)
    assert_bits(np.tril(lower.numbers, -1) + np.triu(upper.numbers), w)


#: Accumulators with a running sum that can be taken apart, that cannot, and without one.
ACCUMULATORS = [
    sf.sequential(sf.FP32), sf.blocked(3, sf.BF16, sf.FP32), sf.tensor_core("ampere", sf.BF16), sf.kahan(sf.BF16),
    sf.pairwise(sf.BF16), sf.exact, sf.fused(4, 12), sf.sequential(sf.FP64),
]  # fmt: skip


def less(s, left, right, accumulate):
    """s less a sum of products: one running sum, or a sum that is subtracted."""
    if not len(left):
        return s
    if accumulate.takes_initial:
        return float(sf.dot(-left, right, accumulate=accumulate, output=sf.BF16, initial=s))
    return float(sf.subtract(s, sf.dot(left, right, accumulate=accumulate, output=sf.BF16), sf.BF16))


@pytest.mark.parametrize("accumulate", ACCUMULATORS, ids=str)
def test_an_element_is_one_running_sum_of_the_accumulator(accumulate, blocks, rng):
    n = 12
    a = sf.round(rng.standard_normal((n, n)) + 4 * np.eye(n), sf.BF16)
    b = sf.round(rng.standard_normal(n), sf.BF16)
    options = dict(format=sf.BF16, accumulate=accumulate)
    f, c, x = a.copy(), sf.round(a @ a.T, sf.BF16), b.copy()
    symmetric = c.copy()
    for k in range(n):
        f[k:, k] = [less(a[i, k], f[i, :k], f[:k, k], accumulate) for i in range(k, n)]
        f[k + 1 :, k] = sf.divide(f[k + 1 :, k], f[k, k], sf.BF16)
        f[k, k + 1 :] = [less(a[k, j], f[k, :k], f[:k, j], accumulate) for j in range(k + 1, n)]
        c[k:, k] = [less(symmetric[i, k], c[i, :k], c[k, :k], accumulate) for i in range(k, n)]
        c[k, k] = sf.sqrt(c[k, k], sf.BF16)
        c[k + 1 :, k] = sf.divide(c[k + 1 :, k], c[k, k], sf.BF16)
        x[k] = sf.divide(less(b[k], a[k, :k], x[:k], accumulate), a[k, k], sf.BF16)
    _, lower, upper = sf.linalg.lu(a, pivot=False, **options)
    assert_bits(np.tril(lower.numbers, -1) + np.triu(upper.numbers), f)
    assert_bits(sf.linalg.cholesky(symmetric, **options), np.tril(c))
    assert_bits(sf.linalg.solve_triangular(a, b, lower=True, **options), x)


@pytest.mark.parametrize("format", [sf.BF16, sf.FP16, sf.FP32])
def test_blocks_have_the_bits_of_single_steps(format, rng):
    n = 150
    a = sf.array(rng.standard_normal((n, n)), format)
    p, lower, upper = sf.linalg.lu(a)
    w, rows = a.copy(), np.arange(n)
    for k in range(n):
        best = k + int(np.argmax(np.abs(w.numbers[k:, k])))
        w.numbers[[k, best]], rows[[k, best]] = w.numbers[[best, k]], rows[[best, k]]
        w[k + 1 :, k] /= w[k, k]
        w[k + 1 :, k + 1 :] = sf.fma(
            -w.numbers[k + 1 :, k, None], w.numbers[None, k, k + 1 :], w.numbers[k + 1 :, k + 1 :], format
        )
    assert (p == rows).all()
    assert_bits(np.tril(lower.numbers, -1) + np.triu(upper.numbers), w)
