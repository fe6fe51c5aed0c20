"""NumPy's functions of arrays: each is one of their operations, only looks, or is refused by name."""

import numpy as np
import pytest

import simfloat as sf
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
    "std": (lambda x, y: np.std(x, 1), lambda x, y: x.var(1).sqrt()),
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


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: np.einsum("ij,ij", x, x), r"numpy.einsum would compute in float64, past the format: write @"),
        (lambda x: np.copyto(x, x), r"numpy.copyto would compute.*write y\[...\] = x"),
        (lambda x: np.ptp(x), r"numpy.ptp would compute.*write x.max\(\) - x.min\(\)"),
        (lambda x: np.add.reduce(x), r"numpy.add.reduce would compute.*write x.sum\(\)"),
        (lambda x: np.maximum.reduce(x), r"numpy.maximum.reduce would compute.*write x.max\(\)"),
        (lambda x: np.multiply.reduce(x), "numpy.multiply.reduce would compute.*write the products one after"),
        (lambda x: np.multiply.at(x, 0, 2.0), "numpy.multiply.at would compute.*write it in operations"),
        (lambda x: np.cumsum(x), r"numpy.cumsum would compute.*np\.asarray\(x\)"),
        (lambda x: np.linalg.solve(x, x), r"numpy.linalg.solve would compute.*write sf\.linalg\.solve"),
        (lambda x: np.linalg.norm(x), r"numpy.linalg.norm would compute.*\(x \* x\)\.sum\(\)\.sqrt\(\)"),
        (lambda x: np.fft.fft(x), "numpy.fft.fft would compute"),
        (lambda x: np.add.reduce(x), "numpy.add.reduce would compute"),
        (lambda x: np.cbrt(x), "numpy.cbrt would compute"),
        (lambda x: np.sum([x, x]), "numpy would compute in float64, past the format"),
        (lambda x: np.sum(x, dtype=np.float64), "numpy.sum of arrays of a format takes a, axis, keepdims"),
        (lambda x: np.add(x, x, out=np.zeros((2, 3))), "numpy.add of arrays of a format takes no out"),
        (lambda x: np.add(x, np.ones(3)), "arrays of BF16 and single numbers, got ndarray"),
        (lambda x: np.ones(3) + x, "arrays of BF16 and single numbers, got ndarray"),
    ],
)
def test_what_is_no_operation_is_refused_by_name(call, words, operands):
    with pytest.raises(ValueError, match=words):
        call(operands[0])


def test_functions_that_only_look_take_the_numbers(operands, tmp_path):
    x, y = operands
    assert np.shape(x) == (2, 3) and np.size(x) == 6 and np.array_equal(x, x) and not np.array_equal(x, y)
    assert np.argmax(x) == np.asarray(x).argmax() and np.isfinite(x).all() and np.allclose(x, x)
    np.save(tmp_path / "x.npy", x)
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.asarray(x))


MOVED = {
    "diag": lambda x: np.diag(x, 1),
    "diagonal": np.diagonal,
    "tril": np.tril,
    "triu": lambda x: np.triu(x, k=1),
    "flip": lambda x: np.flip(x, axis=0),
    "roll": lambda x: np.roll(x, 1, axis=1),
    "rot90": np.rot90,
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "repeat": lambda x: np.repeat(x, 2, axis=1),
    "tile": lambda x: np.tile(x, (2, 1)),
    "take": lambda x: np.take(x, [2, 0], axis=1),
    "delete": lambda x: np.delete(x, 0, axis=1),
    "sort": np.sort,
    "split": lambda x: np.split(x, 3, axis=1)[2],
    "vstack": lambda x: np.vstack([x, x[0]]),
    "hstack": lambda x: np.hstack((x, x)),
    "zeros_like": np.zeros_like,
    "ones_like": lambda x: np.ones_like(x, shape=(3,)),
}


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


def test_what_is_joined_has_one_format(operands):
    with pytest.raises(ValueError, match="two formats do not mix"):
        np.vstack([operands[0], operands[0].astype("fp16")])
    with pytest.raises(ValueError, match=r"numpy.take of arrays of a format gives a new one: write y\[...\] = x"):
        np.take(operands[0], [0], axis=0, out=operands[0])


def test_extremes_have_places(operands):
    x = operands[0]
    assert x.argmax() == np.asarray(x).argmax() and np.array_equal(abs(x).argmin(axis=0), abs(np.asarray(x)).argmin(0))
    assert np.array_equal(x.diagonal(1), np.asarray(x).diagonal(1))
    assert np.array_equal(x.flatten(), x.ravel()) and not np.shares_memory(x.flatten(), x)
