"""Linear algebra in fractions, one operation after the other, in the documented order."""

from fractions import Fraction

import numpy as np

from tests.reference import operate
from tests.rounded import root


class Steps:
    """Operations on single numbers, each rounded by the definition; stochastic ones take the next of the draws."""

    def __init__(self, format, rounding, draws=(), products=None, exact_sums=False):
        self.format, self.rounding, self.draws, self.products = format, rounding, iter(draws), products
        self.exact_sums = exact_sums  # each of which is rounded once, and takes one draw

    def _draw(self):
        return next(self.draws) if self.rounding.is_stochastic else 0

    def __call__(self, name, *operands):
        return operate(name, self.format, self.rounding, *operands, random=self._draw())

    def less(self, s, x, y):
        """s - x y: rounded once, or after its product."""
        if self.products is None:
            return self("fma", -x, y, s)
        return self("add", s, operate("multiply", self.products, self.rounding, -x, y))

    def sqrt(self, x):
        from simfloat.formats.definition import round_value

        return x if x == np.inf else round_value(root(x) if x else x, self.format, self.rounding, self._draw())

    def dot(self, xs, ys):
        if self.exact_sums:
            from simfloat.formats.definition import round_value

            exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(xs, ys, strict=True))
            return round_value(exact, self.format, self.rounding, self._draw())
        total = 0.0
        for x, y in zip(xs, ys, strict=True):
            total = self("fma", x, y, total)
        return total


def lu(a, steps, pivot=True):
    """Right-looking elimination: the order of rows, and both factors in one array."""
    a = np.array(a, float)
    m, n = a.shape
    rows, rank = list(range(m)), min(m, n)
    for k in range(rank):
        best = max(range(k, m), key=lambda i: (abs(a[i, k]), -i)) if pivot else k
        a[[k, best]] = a[[best, k]]
        rows[k], rows[best] = rows[best], rows[k]
        for i in range(k + 1, m):
            a[i, k] = steps("divide", a[i, k], a[k, k])
        for i in range(k + 1, m):
            for j in range(k + 1, rank):
                a[i, j] = steps.less(a[i, j], a[i, k], a[k, j])
    for k in range(rank):
        for i in range(k + 1, m):
            for j in range(rank, n):
                a[i, j] = steps.less(a[i, j], a[i, k], a[k, j])
    return rows, a


def cholesky(a, steps):
    a = np.array(a, float)
    n = len(a)
    for k in range(n):
        a[k, k] = steps.sqrt(a[k, k])
        for i in range(k + 1, n):
            a[i, k] = steps("divide", a[i, k], a[k, k])
        for i in range(k + 1, n):
            for j in range(k + 1, n):
                a[i, j] = steps.less(a[i, j], a[i, k], a[j, k])
    return np.tril(a)


def triangular(t, b, steps, lower, unit=False):
    """Unknowns in the order in which they are found."""
    x = np.array(b, float)
    n = len(t)
    order = list(range(n)) if lower else list(range(n))[::-1]
    for place, i in enumerate(order):
        if not unit:
            for column in range(x.shape[1]):
                x[i, column] = steps("divide", x[i, column], t[i, i])
        for other in order[place + 1 :]:
            for column in range(x.shape[1]):
                x[other, column] = steps.less(x[other, column], t[other, i], x[i, column])
    return x


def reflection(x, steps, square=None):
    s = steps.sqrt(steps.dot(x, x) if square is None else square)
    if s == 0:
        return x[0], [1.0] + [0.0] * (len(x) - 1), 0.0
    alpha = -s if x[0] >= 0 else s
    pivot = steps("subtract", x[0], alpha)
    v = [1.0] + [steps("divide", one, pivot) for one in x[1:]]
    return alpha, v, steps("divide", pivot, -alpha)


def reflect(a, v, tau, steps):
    ws = [steps.dot(v, a[:, j]) for j in range(a.shape[1])]
    ts = [steps("multiply", tau, w) for w in ws]
    for i in range(len(v)):
        for j in range(a.shape[1]):
            a[i, j] = steps("fma", -v[i], ts[j], a[i, j])


def qr(a, steps, with_q=True, permutation=None):
    r = np.array(a, float)
    m, n = r.shape
    reflections = []
    for k in range(min(m, n)):
        square = None
        if permutation is not None:
            squares = [steps.dot(r[k:, j], r[k:, j]) for j in range(k, n)]
            square = max(squares)
            best = k + squares.index(square)
            r[:, [k, best]] = r[:, [best, k]]
            permutation[k], permutation[best] = permutation[best], permutation[k]
        if k == m - 1:
            break
        alpha, v, tau = reflection(r[k:, k].tolist(), steps, square)
        reflections.append((v, tau))
        r[k, k], r[k + 1 :, k] = alpha, 0
        if tau:
            reflect(r[k:, k + 1 :], v, tau, steps)
    q = np.eye(m, min(m, n))
    for k in reversed(range(len(reflections))):
        if reflections[k][1] and with_q:
            reflect(q[k:, k:], *reflections[k], steps)
    return q, r[: min(m, n)], reflections


def complex_product(x, y, steps):
    """a c - b d, then a d + b c, with every operation rounded."""
    (a, b), (c, d) = x, y
    real = steps("subtract", steps("multiply", a, c), steps("multiply", b, d))
    return real, steps("add", steps("multiply", a, d), steps("multiply", b, c))


def complex_quotient(x, y, steps):
    (a, b), (c, d) = complex_product(x, (y[0], -y[1]), steps), y
    square = steps("add", steps("multiply", c, c), steps("multiply", d, d))
    return steps("divide", a, square), steps("divide", b, square)


def conjugate(x):
    return x[0], -x[1]


def complex_dot(xs, ys, steps):
    """The sums of the products of both parts, in turn."""
    real = steps.dot([p for a, b in xs for p in (a, -b)], [p for y in ys for p in y])
    return real, steps.dot([p for x in xs for p in x], [p for c, d in ys for p in (d, c)])


def complex_less(s, x, y, steps):
    """s - x y, with two fma for each part."""
    real = steps("fma", x[1], y[1], steps("fma", -x[0], y[0], s[0]))
    return real, steps("fma", -x[1], y[0], steps("fma", -x[0], y[1], s[1]))


def complex_reflect(a, v, tau, steps):
    """Replace the rows a, lists of pairs, by (I - tau v v^H) a."""
    for j in range(len(a[0])):
        w = complex_dot([conjugate(x) for x in v], [row[j] for row in a], steps)
        t = complex_product(tau, w, steps)
        for i, x in enumerate(v):
            a[i][j] = complex_less(a[i][j], x, t, steps)


def complex_qr(a, steps):
    """The factors q and r as rows of pairs, and the reflections."""
    r = [[(float(z.real), float(z.imag)) for z in row] for row in a]
    m, n = len(r), len(r[0])
    reflections = []
    for k in range(min(m, n)):
        x = [row[k] for row in r[k:]]
        parts = [p for pair in x for p in pair]
        s = steps.sqrt(steps.dot(parts, parts))
        alpha = -s if x[0][0] >= 0 else s
        pivot = steps("subtract", x[0][0], alpha), x[0][1]
        v = [(1.0, 0.0), *(complex_quotient(one, pivot, steps) for one in x[1:])]
        tau = steps("divide", pivot[0], -alpha), steps("divide", pivot[1], -alpha)
        reflections.append((v, tau))
        rest = [row[k + 1 :] for row in r[k:]]
        if rest[0]:
            complex_reflect(rest, v, conjugate(tau), steps)
        for i, row in enumerate(rest):
            r[k + i][k:] = [(alpha if i == 0 else 0.0, 0.0), *row]
    q = [[(float(i == j), 0.0) for j in range(min(m, n))] for i in range(m)]
    for k, (v, tau) in reversed(list(enumerate(reflections))):
        rest = [row[k:] for row in q[k:]]
        complex_reflect(rest, v, tau, steps)
        for row, new in zip(q[k:], rest, strict=True):
            row[k:] = new
    return q, r[: min(m, n)], reflections


def less_products(s, rows, x, steps):
    """s minus a sum of products of pairs; each part is one sum that subtracts."""
    for a, y in zip(rows, x, strict=True):
        s = complex_less(s, a, y, steps)
    return s


def conjugate_gradients(a, b, steps, count, precondition=list):
    """x after so many steps."""
    n = len(b)
    x, r, p = [0.0] * n, list(b), precondition(b)
    rho = steps.dot(r, p)
    for _ in range(count):
        q = product(a, p, steps)
        alpha = steps("divide", rho, steps.dot(p, q))
        x = [steps("fma", alpha, p[i], x[i]) for i in range(n)]
        r = [steps("fma", -alpha, q[i], r[i]) for i in range(n)]
        z = precondition(r)
        before, rho = rho, steps.dot(r, z)
        beta = steps("divide", rho, before)
        p = [steps("fma", beta, p[i], z[i]) for i in range(n)]
    return x


def product(a, x, steps):
    return [steps.dot(row, x) for row in a]


def last_first(r, c, steps):
    """The unknowns of an upper triangle, in the order of single steps."""
    return triangular(r, np.array(c)[:, None], steps, lower=False)[:, 0]


def gmres_cycle(apply, r, steps, limit, count, solve=last_first):
    """The combination of the vectors of a cycle, and the estimated residuals."""
    beta = steps.sqrt(steps.dot(r, r))
    basis, g, columns, rotations, sizes = [[steps("divide", x, beta) for x in r]], [beta], [], [], []
    for k in range(count):
        w, h = apply(basis[k]), []
        for v in basis:
            h.append(steps.dot(v, w))
            w = [steps("fma", -h[-1], x, y) for x, y in zip(v, w, strict=True)]
        norm = steps.sqrt(steps.dot(w, w))
        h.append(norm)
        for j, (c, s) in enumerate(rotations):
            first = steps("fma", c, h[j], steps("multiply", s, h[j + 1]))
            h[j : j + 2] = [first, steps("fma", -s, h[j], steps("multiply", c, h[j + 1]))]
        rho = steps.sqrt(steps("fma", h[k], h[k], steps("multiply", norm, norm)))
        rotations.append((steps("divide", h[k], rho), steps("divide", norm, rho)))
        c, s = rotations[-1]
        columns.append([*h[:k], rho])
        g[k:] = [steps("multiply", c, g[k]), steps("multiply", -s, g[k])]
        sizes.append(abs(g[-1]))
        if sizes[-1] <= limit or not norm:
            break
        basis.append([steps("divide", x, norm) for x in w])
    triangle = np.zeros((len(columns), len(columns)))
    for k, column in enumerate(columns):
        triangle[: k + 1, k] = column
    y = solve(triangle, np.array(g[:-1]), steps)
    t = [0.0] * len(r)
    for share, v in zip(y, basis, strict=False):
        t = [steps("fma", share, x, one) for x, one in zip(v, t, strict=True)]
    return t, sizes


def gmres(a, b, steps, cycles, count, precondition=list):
    """x after `cycles` cycles of `count` steps, and all estimated residuals."""
    x, r, sizes = [0.0] * len(b), list(b), []
    for _ in range(cycles):
        t, more = gmres_cycle(lambda v: product(a, precondition(v), steps), r, steps, 0, count)
        sizes += more
        x = [steps("add", one, z) for one, z in zip(x, precondition(t), strict=True)]
        r = list(b)
        for k in range(len(x)):
            r = [steps.less(one, a[i][k], x[k]) for i, one in enumerate(r)]
    return x, sizes


def rotation(first, last, between, steps):
    """(t, c, s) of the angle that makes [[first, between], [between, last]] diagonal."""
    gap = steps("subtract", last, first)
    tau = steps("divide", gap, steps("multiply", 2.0, between))
    square = steps("fma", tau, tau, 1.0)
    if square < steps.format.max:
        t = steps("divide", -1.0 if tau < 0 else 1.0, steps("add", abs(tau), steps.sqrt(square)))
    else:
        t = steps("divide", between, gap)
    c = steps("divide", 1.0, steps.sqrt(steps("fma", t, t, 1.0)))
    return t, c, steps("multiply", t, c)


def rotate(x, y, c, s, steps):
    products = [steps("multiply", s, one) for one in y]
    new = [steps("fma", c, one, -product) for one, product in zip(x, products, strict=True)]
    products = [steps("multiply", s, one) for one in x]
    y[:] = [steps("fma", c, one, product) for one, product in zip(y, products, strict=True)]
    x[:] = new


def eigh(a, steps):
    """Cyclic rotations of pairs, until a sweep leaves all alone."""
    n = len(a)
    a, v, count = np.tril(a) + np.tril(a, -1).T, np.eye(n), 1
    while count:
        count = 0
        for p in range(n):
            for q in range(p + 1, n):
                between, first, last = a[p, q], a[p, p], a[q, q]
                if not between:
                    continue
                sums = [steps("add", abs(d), abs(between)) for d in (first, last)]
                if sums == [abs(first), abs(last)]:
                    continue
                count += 1
                t, c, s = rotation(first, last, between, steps)
                rotate(a[:, p], a[:, q], c, s, steps)
                rotate(v[:, p], v[:, q], c, s, steps)
                a[p, p], a[q, q] = steps("fma", -t, between, first), steps("fma", t, between, last)
                a[p, q] = a[q, p] = 0
                a[p], a[q] = a[:, p], a[:, q]
    order = np.argsort(a.diagonal(), kind="stable")
    return a.diagonal()[order], v[:, order]


def svd(a, steps):
    """Rotations of pairs of columns, until a sweep leaves all alone; of at least as many rows as columns."""
    a = np.array(a, float)
    n = a.shape[1]
    v, count = np.eye(n), 1
    while count:
        count = 0
        for p in range(n):
            for q in range(p + 1, n):
                alpha, beta, gamma = (steps.dot(a[:, i], a[:, j]) for i, j in ((p, p), (q, q), (p, q)))
                limit = steps("multiply", steps.sqrt(alpha), steps.sqrt(beta))
                if not gamma or abs(gamma) <= steps("multiply", len(a) * steps.format.eps, limit):
                    continue
                count += 1
                _, c, s = rotation(alpha, beta, gamma, steps)
                rotate(a[:, p], a[:, q], c, s, steps)
                rotate(v[:, p], v[:, q], c, s, steps)
    squares = [steps.dot(column, column) for column in a.T]
    norms = np.array([steps.sqrt(square) for square in squares])
    u = np.array([[steps("divide", x, s) for x in column] for column, s in zip(a.T, norms, strict=True)]).T
    order = np.argsort(-norms, kind="stable")
    return u[:, order], norms[order], v[:, order].T
