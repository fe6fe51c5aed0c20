"""NumPy functions on arrays: each is a rounded operation, only reads values, or raises an error with its name."""

import math
import re

import numpy as np
import pytest
from numpy.polynomial import chebyshev

import simfloat as sf
from simfloat.arithmetic.catalog import FUNCTIONS
from simfloat.arrays.alternatives import ALTERNATIVES
from tests.bits import assert_bits

SAME = {
    "add": (lambda x, y: np.add(x, y), lambda x, y: x + y),
    "subtract": (lambda x, y: np.subtract(1.0, y), lambda x, y: 1.0 - y),
    "true_divide": (lambda x, y: np.true_divide(x, y), lambda x, y: x / y),
    "power": (lambda x, y: np.power(abs(x), 0.3), lambda x, y: abs(x) ** 0.3),
    "arctan2": (lambda x, y: np.arctan2(x, y), lambda x, y: x.atan2(y)),
    "exp": (lambda x, y: np.exp(x), lambda x, y: x.exp()),
    "square": (lambda x, y: np.square(x), lambda x, y: x * x),
    "sqrt": (lambda x, y: np.sqrt(np.abs(x)), lambda x, y: abs(x).sqrt()),
    "maximum": (lambda x, y: np.maximum(0.1, x), lambda x, y: x.maximum(0.1)),
    "minimum": (lambda x, y: np.minimum(x, y), lambda x, y: -np.maximum(-x, -y)),
    "clip": (lambda x, y: np.clip(x, -0.1, 0.1), lambda x, y: x.maximum(-0.1).minimum(0.1)),
    "matmul": (lambda x, y: np.matmul(x, y.T), lambda x, y: x @ y.T),
    "dot": (lambda x, y: np.dot(x, y.T), lambda x, y: x @ y.T),
    "dot of a number": (lambda x, y: np.dot(2.0, y), lambda x, y: y * 2.0),
    "sum": (lambda x, y: np.sum(x, 1, keepdims=True), lambda x, y: x.sum(1).reshape(2, 1)),
    "mean": (lambda x, y: np.mean(x), lambda x, y: x.sum() / 6),
    "max": (lambda x, y: np.max(x, 0), lambda x, y: x.max(0)),
    "var": (lambda x, y: np.var(x, ddof=1), lambda x, y: ((x - x.mean()) * (x - x.mean())).sum() / 5),
    "concatenate": (lambda x, y: np.concatenate([x, y], axis=1)[:, 3:], lambda x, y: y),
    "stack": (lambda x, y: np.stack((x, y))[1], lambda x, y: y),
    "where": (lambda x, y: np.where(x > y, x, 0.1)[x > y], lambda x, y: x[x > y]),
    "transpose": (lambda x, y: np.transpose(x), lambda x, y: x.T),
    "reshape": (lambda x, y: np.reshape(x, (3, 2)), lambda x, y: x.reshape(3, 2)),
    "ravel": (lambda x, y: np.ravel(x), lambda x, y: x.reshape(-1)),
    "swapaxes": (lambda x, y: np.swapaxes(x, 0, 1), lambda x, y: x.T),
    "squeeze": (lambda x, y: np.squeeze(np.expand_dims(x, 1)), lambda x, y: x),
    "broadcast_to": (lambda x, y: np.broadcast_to(x, (4, 2, 3))[3], lambda x, y: x),
    "inner": (lambda x, y: np.inner(x, y), lambda x, y: x @ y.T),
    "outer": (lambda x, y: np.outer(x, y), lambda x, y: x.reshape(6, 1) * y.reshape(6)),
    "vdot": (lambda x, y: np.vdot(x, y), lambda x, y: x.ravel() @ y.ravel()),
    "diff": (lambda x, y: np.diff(x, 2), lambda x, y: (x[:, 2:] - x[:, 1:2]) - (x[:, 1:2] - x[:, :1])),
    "trace": (lambda x, y: np.trace(x), lambda x, y: x[0, 0] + x[1, 1]),
    "trace of three axes": (lambda x, y: np.trace(np.stack([x, y], 2), axis1=0, axis2=2), lambda x, y: x[0] + y[1]),
    "norm": (lambda x, y: np.linalg.norm(x), lambda x, y: (x * x).sum().sqrt()),
    "norms of rows": (lambda x, y: np.linalg.norm(x, axis=1), lambda x, y: (x * x).sum(1).sqrt()),
    "sum of magnitudes": (lambda x, y: np.linalg.norm(x, 1, axis=0), lambda x, y: abs(x).sum(0)),
    "norm of a matrix": (lambda x, y: np.linalg.norm(x, np.inf), lambda x, y: abs(x).sum(1).max()),
    "ptp": (lambda x, y: np.ptp(x, 1), lambda x, y: x.max(1) - x.min(1)),
    "fma": (lambda x, y: x.fma(y, 0.1), lambda x, y: sf.array(sf.fma(x, y, 0.1, x.format, x.rounding), sf.BF16)),
    "std": (lambda x, y: np.std(x, 1), lambda x, y: x.var(1).sqrt()),
    "std with ddof": (lambda x, y: x.std(1, ddof=1), lambda x, y: x.var(1, correction=1).sqrt()),
    "append": (lambda x, y: np.append(x, 0.1)[6], lambda x, y: x[0, 0] * 0 + 0.1),
    "meshgrid": (lambda x, y: np.meshgrid(x[0], y[:, 0])[1], lambda x, y: y[:, :1].broadcast_to((2, 3))),
    "real": (lambda x, y: np.real(x) + np.imag(x), lambda x, y: x),
    "conjugate": (lambda x, y: np.conjugate(x), lambda x, y: x),
}


@pytest.fixture
def operands(rng):
    return [sf.array(rng.standard_normal((2, 3)), sf.BF16, rounding="toward_positive") for _ in range(2)]


@pytest.mark.parametrize("numpys, own", SAME.values(), ids=SAME)
def test_a_function_that_is_an_operation_is_carried_out_as_it(numpys, own, operands):
    got, want = numpys(*operands), own(*operands)
    assert isinstance(got, sf.Array) and got.format == sf.BF16 and got.rounding == sf.toward_positive
    assert_bits(got, want)
    assert_bits(got, sf.round(got, sf.BF16))


#: What NumPy computes of integers and signs: exact, and numbers of most formats.
EXACT = {
    **{name: getattr(np, name) for name in ("rint", "floor", "ceil", "trunc", "sign", "round", "fix", "fabs")},
    "copysign": lambda x: np.copysign(x, x[::-1]),
    "fmod": lambda x: np.fmod(x, x[::-1]),
    "fmax": lambda x: np.fmax(x, x[::-1]),
    "fmin": lambda x: np.fmin(x, x[::-1]),
    "nan_to_num": lambda x: np.nan_to_num(x, nan=0.5, posinf=2, neginf=-2),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("format", [sf.E4M3, sf.E2M1, sf.BF16, sf.fixed(8, 6), sf.Format(11, 49)], ids=str)
def test_exact_functions_give_the_exact_result_rounded_once(name, format, rng):
    special = [0.0, -0.0, 0.5, 1.5, -2.5, format.max, -format.max, format.smallest_subnormal]
    special += [np.nan] * format.has_nan + [np.inf, -np.inf] * format.has_infinity
    x = sf.round(np.concatenate([special, 3 * rng.standard_normal(20)]), format)
    with np.errstate(invalid="ignore"):
        exact = EXACT[name](x.astype(np.float64))
    for rounding in (sf.nearest_even, sf.toward_negative):
        if np.isnan(exact).any() and not format.has_nan:
            with pytest.raises(ValueError, match="NaN"):
                EXACT[name](sf.array(x, format, rounding=rounding))
            continue
        got = EXACT[name](sf.array(x, format, rounding=rounding))
        assert isinstance(got, sf.Array) and got.format == format
        assert_bits(got, sf.round(exact, format, rounding))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_the_catalog_is_a_method_and_numpys_function_of_that_name(name):
    format = sf.Format(11, 20)  # its carrier is float64, for which other tests also compile every function
    operands = sf.round(np.random.default_rng(0).uniform(1, 3, (3, 7)), format)
    operands = list(operands[: len(FUNCTIONS[name].operands)])
    x, *others = (sf.array(one, format) for one in operands)
    due = getattr(sf, name)(*operands, format)
    assert_bits(getattr(x, name)(*others), due)
    numpys = getattr(np, FUNCTIONS[name].numpy or name, None)
    if numpys is not None:
        assert_bits(numpys(x, *others), due)


#: Joins of an array with numbers that are not of its format; each has numbers of A and of what it is joined with.
TENTHS = [[0.1, 0.2, 0.3], [0.7, 0.9, 1.1]]
JOINED = {
    "hstack": lambda x, y: np.hstack([x, y]), "hstack of a number": lambda x, y: np.hstack([0.1, x[0], y[0]]),
    "vstack": lambda x, y: np.vstack((y, x)), "dstack": lambda x, y: np.dstack([x, y]),
    "column_stack": lambda x, y: np.column_stack([x, y]), "stack": lambda x, y: np.stack([x, y], -1),
    "stack of numbers": lambda x, y: np.stack([x[0, 0], 0.1]), "concatenate": lambda x, y: np.concatenate([x, y], 1),
    "concatenate of all": lambda x, y: np.concatenate([x, 0.1, y], axis=None), "append": lambda x, y: np.append(x, y),
    "append to a number": lambda x, y: np.append(0.1, x), "append to numbers": lambda x, y: np.append(y, x, axis=0),
    "insert": lambda x, y: np.insert(x, 1, 0.1, axis=1),
    "insert into numbers": lambda x, y: np.insert(y, 1, x[:, 0], axis=1),
    "meshgrid": lambda x, y: np.meshgrid(x[0], y[0])[1], "where": lambda x, y: np.where(x > 0, 0.1, x),
    "where not": lambda x, y: np.where(x, y, x), "select": lambda x, y: np.select([x > 1, x < 0], [x, y], 0.1),
    "choose": lambda x, y: np.choose([[0, 1, 2], [2, 1, 0]], [x, y, 0.1]),
    "pad": lambda x, y: np.pad(x, 1, constant_values=0.1), "full_like": lambda x, y: np.full_like(x, 0.1),
    "full_like of a shape": lambda x, y: np.full_like(x, [0.1, 0.2], shape=(3, 2)),
    "block": lambda x, y: np.block([[x, np.array(y)], [np.array(y), x]]),
    "broadcast_arrays": lambda x, y: np.broadcast_arrays(x, 0.1)[1],
    "sf.where": lambda x, y: sf.where(np.asarray(x) > 0, 0.1, x), "sf.stack": lambda x, y: sf.stack([x, y]),
    "sf.concatenate": lambda x, y: sf.concatenate([x, y]),
}  # fmt: skip


@pytest.mark.parametrize("rounding", [sf.nearest_even, sf.toward_positive], ids=str)
@pytest.mark.parametrize("join", JOINED.values(), ids=JOINED)
def test_numbers_that_are_joined_are_rounded(join, rounding, rng):
    x = sf.round(rng.standard_normal((2, 3)), sf.E4M3)
    A = sf.array(x, sf.E4M3, rounding=rounding)
    numpys = {sf.where: np.where, sf.stack: np.stack, sf.concatenate: np.concatenate}
    names = join.__code__.co_names
    due = (
        join
        if "sf" not in names
        else lambda x, y: np.where(x > 0, 0.1, x) if "where" in names else numpys[getattr(sf, names[-1])]([x, y])
    )
    for given in (TENTHS, np.array(TENTHS)):
        for got in (join(A, given), _in_a_simulation(join, A, given)):
            assert isinstance(got, sf.Array) and got.format == sf.E4M3 and got.rounding == rounding
            assert_bits(got, sf.round(due(x, np.array(given)), sf.E4M3, rounding))


def _in_a_simulation(join, x, y):
    with sf.simulate("fp8-hybrid"):
        return join(x, y)


WRITTEN = {
    "fill": lambda x: x.fill(0.1), "put": lambda x: np.put(x, [0, -1, 2], [0.1, 0.2]),
    "put clipped": lambda x: np.put(x, [0, 99], 0.3, mode="clip"), "copyto": lambda x: np.copyto(x, TENTHS),
    "copyto where": lambda x: np.copyto(x, 0.1, where=[True, False, True]),
    "place": lambda x: np.place(x, x < 0, [0.1, 0.2]), "putmask": lambda x: np.putmask(x, x < 0, [0.1, 0.2]),
    "put_along_axis": lambda x: np.put_along_axis(x, np.array([[0], [2]]), 0.1, 1),
    "fill_diagonal": lambda x: np.fill_diagonal(x, [0.1, 0.3]), "transposed": lambda x: np.put(x.T, 3, 0.1),
    "real": lambda x: setattr(x, "real", 0.1),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITTEN.values(), ids=WRITTEN)
def test_numbers_that_are_written_are_rounded(write, rng):
    x = sf.round(rng.standard_normal((2, 3)), sf.E4M3)
    A = sf.array(x, sf.E4M3, rounding="toward_zero")
    x = x.astype(np.float64)
    write(A)
    if write is WRITTEN["fill"]:
        x.fill(0.1)
    elif write is WRITTEN["real"]:
        x[:] = 0.1
    else:
        write(x)
    assert_bits(A, sf.round(x, sf.E4M3, sf.toward_zero))


def test_arrays_of_numbers_of_the_format_are_operands(operands):
    x, eye = operands[0], np.eye(3)
    assert_bits(x @ x.T - np.eye(2), x @ x.T - sf.array(np.eye(2), sf.BF16, rounding="toward_positive"))
    assert_bits(np.subtract(eye[:2], x), -(x - sf.array(eye[:2], sf.BF16, rounding="toward_positive")).numbers)
    assert_bits((x * (x > 0)), np.where(x > 0, x, np.asarray(x) * 0))
    assert (x @ np.eye(3, dtype=int)).format == sf.BF16 and (x + np.eye(2, 3, dtype=">c16")).imag[0, 0] == 0


def test_tests_compare_exact_numbers():
    x = sf.array([0.1, 1.0], sf.FP32)
    assert np.greater(x, 0.1).tolist() == (x > 0.1).tolist() == [True, True]
    assert not np.equal(0.1, x).any() and not np.isclose(x, 0.1, rtol=0, atol=0).any()
    assert np.logical_and(x, [0, 2]).tolist() == [False, True] and np.any(x) and np.argwhere(x == 1).tolist() == [[1]]


def test_functions_that_are_not_operations_raise_errors_with_their_names(operands):
    for call, words in [
        (lambda x: np.einsum("ij,ij", x, x), r"numpy.einsum would compute in float64, past the format: write @"),
        (lambda x: np.add.reduce(x), r"numpy.add.reduce would compute.*write x.sum\(\)"),
        (lambda x: np.maximum.reduce(x), r"numpy.maximum.reduce would compute.*write x.max\(\)"),
        (lambda x: np.multiply.reduce(x), "numpy.multiply.reduce would compute.*write the products one after"),
        (lambda x: np.multiply.at(x, 0, 2.0), "numpy.multiply.at would compute.*write it in operations"),
        (lambda x: np.linalg.solve(x, x), r"numpy.linalg.solve would compute.*write sf\.linalg\.solve"),
        (lambda x: np.fft.fft(x), "numpy.fft.fft would compute"),
        (lambda x: np.add.reduce(x), "numpy.add.reduce would compute"),
        (lambda x: np.deg2rad(x), r"numpy.deg2rad would compute"),
        (
            lambda x: np.sum([x, x]),
            r"numpy would compute in float64, past the format.*numpy.sum of a list of arrays: np.sum\(np.stack\(",
        ),
        (
            lambda x: chebyshev.chebval(x, x[0]),
            r"coefficients of numpy.polynomial.chebyshev.chebval may be c.tolist\(\)",
        ),
        (lambda x: np.polynomial.Legendre(x[0]), r"coefficients of numpy.polynomial.Legendre may be c.tolist\(\)"),
        (lambda x: np.nextafter(x, x), r"sf.nextafter\(x, y, x.format\)"),
        (lambda x: np.c_[x[0], x[1]], r"np.concatenate\(\[x, y\]\) for np.r_\[x, y\], and np.stack\(\[x, y\], -1\)"),
        (lambda x: np.vectorize(abs)(x), r"np.vectorize passes float64 numbers to its function f: call f\(x\)"),
        (lambda x: np.average(x, weights=x), r"with weights w \(x \* w\).sum\(\) / w.sum\(\)"),
        (lambda x: np.sum(x, dtype=np.float64), "numpy.sum of arrays of a format takes a, axis, keepdims"),
        (lambda x: np.add(x, x, out=np.zeros((2, 3))), "numpy.add of arrays of a format takes no out"),
        (lambda x: np.add(x, [1.0, 0.5, 0.1]), "array of BF16 or a single number, got list"),
        (
            lambda x: x - [[1, 1, 1]] * np.array(0.1),
            r"^An operand .*but 0.1 at index \(0, 0\) is not one: simfloat.array\(x, 'BF16'",
        ),
        (lambda x: np.array([1, 0.5, 1 + 2.0**-8]) + x, "only numbers of BF16, but 1.00390625 at index 2 is not one"),
        (lambda x: x @ np.array([1, 2j, 0.1j]), r"but 0.1j at index 2 is not one"),
        (lambda x: np.linalg.norm(x, 2), r"numpy.linalg.norm.*got ord=2.*the largest is sf.linalg.svd\(x\).s\[0\]"),
        (lambda x: np.round(x, 1), "rounds to integers; got decimals=1"),
        (lambda x: np.pad(x, 1, "mean"), "numpy.pad of arrays of a format has the modes constant, .*got 'mean'"),
        (lambda x: np.copyto(np.zeros((2, 3)), x), "numpy.copyto would write numbers of arrays of a format to ndarray"),
        (lambda x: np.copyto(x, 1, casting="no"), "numpy.copyto of arrays of a format takes a, src, where"),
        (lambda x: np.sign(x + 0j), "sign of complex arrays is not supported"),
        (lambda x: np.copysign(x, 1j), "copysign of complex arrays is not supported"),
    ]:
        with pytest.raises(ValueError, match=words):
            call(operands[0])


def test_the_median_that_the_error_names_is_numpys():
    recipe = ALTERNATIVES["median"].partition(" of all")[0]
    for x in ([3.0, 1.0, 2.0], [1.0, 4.0, 2.0, 3.0], [[5.0, 1.0], [2.0, 8.0], [0.5, 9.0]], 7.0):
        array = sf.array(x, sf.BF16)
        assert eval(recipe, {"np": np, "x": array}) == np.median(np.asarray(array))


def test_a_recipe_for_a_product_of_sequences_has_the_bits_of_a_loop(rng):
    a, b = (sf.array(rng.standard_normal(size), sf.BF16) for size in (9, 4))
    names = {"np": np, "a": a, "b": b, "x": a, "y": a * a}

    def loop(terms):  # the sequential sum in the format of exact products
        total = sf.array(0.0, sf.BF16)
        for x, y in terms:
            total = x.fma(y, total)
        return total

    every = [[(a[i], b[n - i]) for i in range(9) if 0 <= n - i < 4] for n in range(12)]
    assert_bits(eval(ALTERNATIVES["convolve"], names), np.stack(list(map(loop, every))))
    inner = [[(a[n + i], b[i]) for i in range(4)] for n in range(6)]
    assert_bits(eval(ALTERNATIVES["correlate"].partition(" (mode")[0], names), np.stack(list(map(loop, inner))))
    x = y = sf.array([1.0, 2.0, 4.0], sf.BF16)
    assert eval(ALTERNATIVES["trapezoid"], {"np": np, "x": x, "y": y}) == np.trapezoid(np.asarray(y), np.asarray(x))
    A, B = sf.array([[1.0, 2.0, 3.0]], sf.BF16), sf.array([[0.5, 2.0], [4.0, 8.0]], sf.BF16)
    due = np.kron(np.asarray(A), np.asarray(B))
    assert np.array_equal(eval(ALTERNATIVES["kron"].partition(" of two")[0], {"a": A, "b": B}), due)


def test_other_recipes_have_the_values_of_numpys_functions():
    x, numbers = sf.array([1.0, 4.0, 2.5], sf.FP32), np.array([1.0, 4.0, 2.5])
    names = {"np": np, "sf": sf, "math": math, "x": x, "h": sf.array(0.25, sf.FP32), "n": 4, "shape": (2, 3)}

    def value(name):
        return np.asarray(eval(ALTERNATIVES[name].rpartition(", or ")[2].partition(" for ")[0], names))

    for name, want in (
        ("vander", np.vander(numbers)),
        ("full", np.full((2, 3), 0.25)),
        ("arange", np.arange(0, 1, 0.25)),
        ("ediff1d", np.ediff1d(numbers)),
        ("diagflat", np.diagflat(numbers)),
        ("partition", np.partition(numbers, 1)),
        ("cumulative_sum", np.cumsum(numbers)),
    ):
        assert np.array_equal(value(name), want), name
    assert np.allclose(value("deg2rad"), np.deg2rad(numbers), rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(np\.full_like\(x, h\), or sf\.array\(np\.full\(shape, float\(h\)\), h\.f"):
        np.full((2, 3), names["h"])
    for one in (x, sf.Tensor(numbers)):
        assert np.array_equal(np.positive(one), numbers) and np.array_equal(+one, numbers)


#: Functions of numpy.linalg with their operands, if these are not one matrix.
ARGUMENTS = {
    "solve": "Ab", "lstsq": "Ab", "cross": "AA", "matmul": "AA", "outer": "bb", "tensordot": "AA", "tensorsolve": "Ab",
    "vecdot": "AA", "vector_norm": "b",
}  # fmt: skip


def test_every_function_of_linalg_is_supported_or_names_what_to_write():
    A = sf.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]], sf.BF16)
    calls = {
        name: lambda function=function, name=name: function(*({"A": A, "b": A[0]}[x] for x in ARGUMENTS.get(name, "A")))
        for name, function in vars(np.linalg).items()
        if not name.startswith("_") and name != "test" and callable(function) and not isinstance(function, type)
    }
    calls |= {"matrix_power": lambda: np.linalg.matrix_power(A, 2), "multi_dot": lambda: np.linalg.multi_dot([A, A])}
    calls |= {f"add.{name}": lambda name=name: getattr(np.add, name)(A) for name in ("reduce", "accumulate")}
    messages = {}
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            messages[name] = str(error)
    assert not [message for message in messages.values() if "write it in operations" in message]
    for name in ("det", "inv", "cond", "solve"):
        assert f"write sf.linalg.{name}" in messages[name]
    assert "write np.cumsum(x)" in messages["add.accumulate"]
    for text in ALTERNATIVES.values():  # every function that a message names exists
        for name in re.findall(r"sf\.linalg\.(\w+)", text):
            assert name in sf.linalg.__all__, text


def test_functions_that_only_look_take_the_numbers(operands, tmp_path):
    x, y = operands
    assert np.shape(x) == (2, 3) and np.size(x) == 6 and np.array_equal(x, x) and not np.array_equal(x, y)
    assert np.argmax(x) == np.asarray(x).argmax() and np.isfinite(x).all() and np.allclose(x, x)
    np.save(tmp_path / "x.npy", x)
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.asarray(x))


MOVED = {
    "diag": lambda x: np.diag(x, 1), "diagonal": np.diagonal, "tril": np.tril, "triu": lambda x: np.triu(x, k=1),
    "flip": lambda x: np.flip(x, axis=0), "roll": lambda x: np.roll(x, 1, axis=1), "rot90": np.rot90,
    "moveaxis": lambda x: np.moveaxis(x, 0, 1), "repeat": lambda x: np.repeat(x, 2, axis=1),
    "tile": lambda x: np.tile(x, (2, 1)), "take": lambda x: np.take(x, [2, 0], axis=1),
    "delete": lambda x: np.delete(x, 0, axis=1), "sort": np.sort, "split": lambda x: np.split(x, 3, axis=1)[2],
    "vstack": lambda x: np.vstack([x, x[0]]), "hstack": lambda x: np.hstack((x, x)), "zeros_like": np.zeros_like,
    "ones_like": lambda x: np.ones_like(x, shape=(3,)), "dstack": lambda x: np.dstack([x, x]),
    "block": lambda x: np.block([[x, x], [x, x]]), "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[0])[1],
    "extract": lambda x: np.extract([True, False, True], x[0]), "pad": lambda x: np.pad(x, ((1, 0), (0, 2)), "edge"),
}  # fmt: skip


@pytest.mark.parametrize("moved", MOVED.values(), ids=MOVED)
def test_functions_that_move_numbers_give_arrays_of_the_format(moved, operands):
    got = moved(operands[0])
    assert isinstance(got, sf.Array) and got.format == sf.BF16 and got.rounding == sf.toward_positive
    assert np.array_equal(got, moved(np.asarray(operands[0])))


def test_an_array_like_another_holds_numbers_of_its_format(operands):
    full = np.full_like(operands[0], 0.1)
    full[0, 0] = 0.3
    assert full[1, 1].item() == sf.round(0.1, sf.BF16, "toward_positive")
    assert full[0, 0].item() == sf.round(0.3, sf.BF16, "toward_positive")
    empty = np.empty_like(operands[0])
    empty[:] = 1 / 3
    assert (empty == sf.round(1 / 3, sf.BF16, "toward_positive")).all()
    scales = sf.array([1.0, 2.0], sf.E8M0)
    assert np.isnan(np.diag(scales)[0, 1]), "a zero is no number of the format"


def test_joined_arrays_have_one_format(operands):
    with pytest.raises(ValueError, match="two formats do not mix"):
        np.vstack([operands[0], operands[0].astype("fp16")])
    with pytest.raises(ValueError, match=r"numpy.take of arrays of a format returns a new array: write y\[...\] = x"):
        np.take(operands[0], [0], axis=0, out=operands[0])


def test_extremes_have_places(operands):
    x = operands[0]
    assert np.array_equal(x.argmax(0, keepdims=True), np.asarray(x).argmax(0, keepdims=True))
    assert x.argmax() == np.asarray(x).argmax() and np.array_equal(abs(x).argmin(axis=0), abs(np.asarray(x)).argmin(0))
    assert np.array_equal(x.diagonal(1), np.asarray(x).diagonal(1))
    assert np.array_equal(x.flatten(), x.ravel()) and not np.shares_memory(x.flatten(), x)
