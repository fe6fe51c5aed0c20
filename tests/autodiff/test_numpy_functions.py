"""NumPy functions on tensors: each is an operation of the policy, only reads values, or raises an error."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

NARROW = sf.Policy(compute=sf.BF16, accumulate=sf.BF16, activations=sf.BF16, reduce=sf.BF16)

#: What NumPy calls it, and the tensor's own operation.
SAME = {
    "add": (lambda x, y: np.add(x, y), lambda x, y: x + y),
    "array + tensor": (lambda x, y: x.data + y, lambda x, y: x.detach() + y),
    "scalar * tensor": (lambda x, y: np.float64(0.1) * y, lambda x, y: y * 0.1),
    "array @ tensor": (lambda x, y: x.data @ y.T, lambda x, y: x.detach() @ y.T),
    "subtract": (lambda x, y: np.subtract(1.0, y), lambda x, y: 1.0 - y),
    "true_divide": (lambda x, y: np.true_divide(x, y), lambda x, y: x / y),
    "power": (lambda x, y: np.power(x, 2.0), lambda x, y: x**2.0),
    "negative": (lambda x, y: np.negative(x), lambda x, y: -x),
    "absolute": (lambda x, y: np.abs(x), lambda x, y: abs(x)),
    "exp": (lambda x, y: np.exp(x), lambda x, y: x.exp()),
    "tanh": (lambda x, y: np.tanh(x), lambda x, y: x.tanh()),
    "maximum": (lambda x, y: np.maximum(x, y), lambda x, y: x.maximum(y)),
    "matmul": (lambda x, y: np.matmul(x, y.T), lambda x, y: x @ y.T),
    "dot": (lambda x, y: np.dot(x, y.T), lambda x, y: x @ y.T),
    "dot of a number": (lambda x, y: np.dot(2.0, y), lambda x, y: y * 2.0),
    "sum": (lambda x, y: np.sum(x), lambda x, y: x.sum()),
    "sum over an axis": (lambda x, y: np.sum(x, 1, keepdims=True), lambda x, y: x.sum(1, True)),
    "mean": (lambda x, y: np.mean(x, axis=0), lambda x, y: x.mean(0)),
    "var": (lambda x, y: np.var(x, ddof=1), lambda x, y: x.var(correction=1)),
    "max": (lambda x, y: np.max(x, 0), lambda x, y: x.max(0)),
    "clip": (lambda x, y: np.clip(x, -0.5, y), lambda x, y: x.clip(-0.5, y)),
    "clip by name": (lambda x, y: np.clip(x, a_min=0.0, a_max=None), lambda x, y: x.clip(0.0)),
    "where": (lambda x, y: np.where(x > y, x, 0.0), lambda x, y: sf.where(x > y, x, 0.0)),
    "concatenate": (lambda x, y: np.concatenate([x, y], axis=1), lambda x, y: sf.concatenate([x, y], 1)),
    "stack": (lambda x, y: np.stack((x, y.data)), lambda x, y: sf.stack([x, y.data])),
    "reshape": (lambda x, y: np.reshape(x, (3, 2)), lambda x, y: x.reshape(3, 2)),
    "ravel": (lambda x, y: np.ravel(x), lambda x, y: x.flatten()),
    "transpose": (lambda x, y: np.transpose(x, (1, 0)), lambda x, y: x.T),
    "expand_dims": (lambda x, y: np.expand_dims(x, 0), lambda x, y: x.unsqueeze(0)),
    "broadcast_to": (lambda x, y: np.broadcast_to(x, (4, 2, 3)), lambda x, y: x.broadcast_to((4, 2, 3))),
}


@pytest.fixture
def operands(rng):
    return [sf.Tensor(rng.standard_normal((2, 3)).astype(np.float32), requires_grad=True) for _ in range(2)]


@pytest.mark.parametrize("numpys, own", SAME.values(), ids=SAME)
def test_a_function_that_is_an_operation_is_carried_out_as_it(numpys, own, operands):
    with sf.simulate(NARROW):
        got, want = numpys(*operands), own(*operands)
        gradients = []
        for result in (got, want):
            for x in operands:
                x.grad = None
            (result * result).sum().backward()
            gradients.append([x.grad for x in operands])
    assert isinstance(got, sf.Tensor) and got.format == want.format
    assert_bits(got.data, want.data)
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or np.array_equal(mine, theirs)


def test_a_long_dot_product_is_the_policys():
    x = sf.Tensor(np.ones(4096, np.float32))
    with sf.simulate(NARROW):
        assert np.dot(x, x).item() == (x @ x).item() == 256.0 == np.sum(x).item()


@pytest.mark.parametrize("call, words", [
    (lambda x: np.einsum("ij,ij", x, x), r"numpy.einsum would compute in float64.*write matmul, transpose and sum"),
    (lambda x: np.inner(x, x), "numpy.inner would compute"),
    (lambda x: np.outer(x, x), "numpy.outer would compute"),
    (lambda x: np.cumsum(x), r"numpy.cumsum would compute.*np\.asarray\(x\)"),
    (lambda x: np.linalg.norm(x), r"numpy.linalg.norm would compute.*\(x \* x\)\.sum\(\)\.sqrt\(\)"),
    (lambda x: np.linalg.solve(x[:, :2], x), "numpy.linalg.solve would compute"),
    (lambda x: np.fft.fft(x), "numpy.fft.fft would compute"),
    (lambda x: np.trapezoid(x), "numpy.trapezoid would compute"),
    (lambda x: np.polyval(x, 2.0), "numpy.polyval would compute"),
    (lambda x: np.prod(x), "numpy.prod would compute"),
    (lambda x: np.spacing(x), "numpy.spacing would compute"),
    (lambda x: np.logaddexp(x, x), "numpy.logaddexp would compute"),
    (lambda x: np.add.reduce(x), "numpy.add.reduce would compute"),
    (lambda x: np.multiply.outer(x, x), "numpy.multiply.outer would compute"),
    (lambda x: np.sum([x, x]), "numpy would compute in float64"),
    (lambda x: np.sum(x, dtype=np.float64), "numpy.sum of tensors takes a, axis, keepdims, and nothing else"),
    (lambda x: np.mean(x, 0, np.float64), "numpy.mean of tensors takes a, axis, keepdims"),
    (lambda x: np.exp(x, out=np.zeros((2, 3))), "numpy.exp of tensors takes no out"),
    (lambda x: np.where(x), "numpy.where of tensors takes condition, x, y"),
    (lambda x: np.dot(x.reshape(1, 2, 3), x.T), r"at most two axes, got shapes \(1, 2, 3\) and \(3, 2\)"),
])  # fmt: skip
def test_functions_that_are_no_operations_are_refused_by_name(call, words, operands):
    with sf.simulate(NARROW), pytest.raises(ValueError, match=words):
        call(operands[0])


def test_scipy_reads_no_tensor(operands):
    special = pytest.importorskip("scipy.special", reason="needs SciPy, which is to be refused")
    with sf.simulate(NARROW):
        for function in (special.logsumexp, special.softmax, special.expit, special.erf):
            with pytest.raises(ValueError, match="would compute in float64"):
                function(operands[0])


def test_functions_that_only_look_need_no_simulation(operands, tmp_path):
    x, y = operands
    assert np.shape(x) == (2, 3) and np.ndim(x) == 2 and np.size(x) == 6
    assert np.array_equal(x, x) and not np.array_equal(x, y) and np.allclose(x, x.data)
    assert np.argmax(x) == x.data.argmax() and np.isfinite(x).all() and not np.isnan(x).any()
    assert (np.float64(0) < x).tolist() == (x.data > 0).tolist() and np.zeros_like(x).tolist() == [[0.0] * 3] * 2
    np.testing.assert_array_equal(x, x.data)
    assert np.asarray(x) is not None and np.array(x).tolist() == np.array_equal(x, x) * x.data.tolist()
    np.save(tmp_path / "x.npy", x)
    assert np.array_equal(np.load(tmp_path / "x.npy"), x.data)


def test_an_operation_outside_a_simulation_is_refused_as_the_tensors_own(operands):
    for call in (np.sum, np.exp, lambda x: np.add(x, x), lambda x: np.concatenate([x, x])):
        with pytest.raises(ValueError, match="needs a policy in force"):
            call(operands[0])
