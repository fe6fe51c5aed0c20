"""Alternatives to the functions of NumPy that arrays of a format do not support."""

from __future__ import annotations

#: The text for functions that multiply all elements: they are not supported, because the order would be a choice.
PRODUCTS = "the products one after the other"

#: The last part of a name in NumPy -> what to write. `numpy_protocol.ALTERNATIVES` contains those for all classes.
ALTERNATIVES: dict[str, str] = {
    # numpy.linalg
    "solve": "sf.linalg.solve", "lu": "sf.linalg.lu", "norm": "sf.linalg.norm(x, ord)",
    "cholesky": "sf.linalg.cholesky", "qr": "sf.linalg.qr", "lstsq": "sf.linalg.lstsq",
    "svd": "sf.linalg.svd", "svdvals": "sf.linalg.svd(A).s", "det": "sf.linalg.det", "slogdet": "sf.linalg.det",
    "inv": "sf.linalg.inv", "cond": "sf.linalg.cond, an estimate in the norm 1",
    "eigh": "sf.linalg.eigh", "eigvalsh": "sf.linalg.eigh(A).values",
    "eig": "sf.linalg.eigh for a symmetric matrix", "eigvals": "sf.linalg.eigh(A).values for a symmetric matrix",
    "pinv": "sf.linalg.lstsq for A x = b, or sf.linalg.inv", "matrix_rank": "the number of large sf.linalg.svd(A).s",
    "matrix_power": "A @ A", "multi_dot": "A @ B @ C", "matmul": "A @ B", "matvec": "A @ x", "matrix_transpose": "A.T",
    "matrix_norm": "sf.linalg.norm(A, ord)", "vector_norm": "sf.linalg.norm(x, ord)",
    "trace": "np.trace(A)", "diagonal": "A.diagonal()", "cross": "a[1] * b[2] - a[2] * b[1], and so on",
    "tensorsolve": "reshape and sf.linalg.solve", "tensorinv": "reshape and sf.linalg.inv",
    # methods of ufuncs
    "add.at": "x[i] = x[i] + y", "add.accumulate": "np.cumsum(x)", "add.reduceat": "x[i:j].sum()",
    "outer": "np.outer(a, b)", "multiply.outer": "np.outer(a, b) of vectors",
    "subtract.outer": "a.unsqueeze(1) - b", "divide.outer": "a.unsqueeze(1) / b",
    "maximum.outer": "np.maximum(a.unsqueeze(1), b)", "minimum.outer": "np.minimum(a.unsqueeze(1), b)",
    "multiply.reduce": PRODUCTS, "multiply.accumulate": PRODUCTS,
    # others
    "prod": f"{PRODUCTS} (math.prod(x) of a vector)", "cumprod": PRODUCTS,
    "nextafter": "sf.nextafter(x, y, x.format)", "spacing": "sf.ulp(x, x.format)",
    "ldexp": "sf.multiply(x, 2.0**k, x.format)",
    "frexp": "np.frexp(np.asarray(x))", "modf": "x - x.trunc() and x.trunc()",
    "divmod": "x % y, and (x / y).floor(), with two roundings", "floor_divide": "(x / y).floor(), with two roundings",
    "einsum": "@, transpose and sum (xarray: of d.data)", "tanh": "x.tanh()", "logaddexp": "exp and log",
    "convolve": "np.lib.stride_tricks.sliding_window_view(np.pad(a, b.size - 1), b.size) @ b[::-1]",
    "correlate": "np.lib.stride_tricks.sliding_window_view(a, b.size) @ b.conj() (mode='valid')",
    "trapezoid": "((y[1:] + y[:-1]) * np.diff(x) / 2).sum()",
    "kron": "(a[:, None, :, None] * b[None, :, None, :]).reshape(len(a) * len(b), -1) of two matrices",
    "linspace": "start + sf.array(np.arange(n), start.format) * step",
    "full": "np.full_like(x, h), or sf.array(np.full(shape, float(h)), h.format)",
    "arange": "sf.array(np.arange(n), h.format) * h",
    "vander": "np.stack([x * x, x, x**0], -1) for three columns", "interp": "y0 + (x - x0) * ((y1 - y0) / (x1 - x0))",
    "polyval": "Horner's scheme", "float_power": "x ** y",
    "median": "np.sort(x.reshape(-1))[(x.size - 1) // 2 : x.size // 2 + 1].mean() of all elements (xarray: of d.data)",
    "partition": "np.sort(x)", "cumulative_sum": "np.cumsum(x)", "ediff1d": "np.diff(x.ravel())",
    "diagflat": "np.diag(x.ravel())",
    "gradient": "(x[2:] - x[:-2]) / 2, and np.diff(x) at both ends", "piecewise": "np.select(conditions, choices)",
    "angle": "x.imag.atan2(x.real)", "deg2rad": "x * (math.pi / 180)", "rad2deg": "x * (180 / math.pi)",
    "radians": "x * (math.pi / 180)", "degrees": "x * (180 / math.pi)", "lexsort": "np.argsort(x)",
    "unique": "np.unique(np.asarray(x))", "histogram": "np.histogram(np.asarray(x))",
}  # fmt: skip
