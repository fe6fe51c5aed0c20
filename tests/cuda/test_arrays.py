"""What a user does with arrays and tensors on what stands for CuPy: the CPU's numbers, and its refusals."""

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from tests.bits import assert_bits  # noqa: E402
from tests.cuda.devices import StandIn  # noqa: E402

#: Zeros of both signs, and more than one NaN in a row.
X = np.array([[1.5, -0.0, 0.0], [np.nan, -2.0, np.nan], [-0.0, -1.0, -0.0], [3, np.inf, 0.5]], np.float32)
Y = np.array([[0.5, 1.0, -3.0]], np.float32)
FIRST_TWO = np.array([True, True, False, False])

READS = {
    "extremes": lambda a, b: [a.max(), a.max(0), a.max(1, True), a.min(), a.min(0), np.min(a, 1), np.max(a[[0, 2]], 1)],
    "places of extremes": lambda a, b: [a.argmax(), a.argmax(1), a.argmin(0), np.argmax(a, 1, keepdims=True)],
    "comparisons": lambda a, b: [a == 0.1, a < 2, 1.5 <= a, a > b, a != sf.array(0.1, "fp32"), b == b[0, 1]],
    "numbers not of the type": lambda a, b: [sf.array(b, sf.FP32) == 0.1, np.full_like(b, 0.1) < 0.1],
    "masks": lambda a, b: [a[a > 0], a[FIRST_TWO], a[FIRST_TWO, 1:], a[..., np.array([True, False, True])]],
    "places": lambda a, b: [
        np.resize(a, 300)[np.array([-1, 9], np.int8)],
        a[[0, -1]],
        a[np.array([1, 1])],
        a[[0, 2], [1, -3]],
        a[None, ..., [2, 0]],
        a[-1, ::-1],
    ],
    "choices": lambda a, b: [np.where(a > 0, a, b), np.where(X > 0, -0.0, a), np.where(a > 0, a, 0.1)],
    "joined": lambda a, b: [np.append(a, [0.1, -0.0]), np.concatenate([a, b]), np.stack([b, b], 1), np.append(a, b, 0)],
    "moved": lambda a, b: [np.take(a, [0, -2], 1), np.take_along_axis(a, np.ones((4, 2), int)), np.delete(a, 1, 0)],
    "filled": lambda a, b: [np.full_like(a, -0.0), np.full_like(a, 0.3, shape=()), np.ones_like(a, shape=(2,))],
    "sorted": lambda a, b: [np.sort(a), np.sort(a, 0), np.sort(a[2])],
    "complex": lambda a, b: [a + 0j, (a * 1j).abs(), (b + 2j) * (b - 1j), (b + 2j) / (b - 1j), 1j / b, (b + 1j) @ b.T],
}


def of_format(x, device):
    return sf.array(device.take(x.copy()) if device else x.copy(), sf.BF16)


def host(result):
    """Results as NumPy's arrays, complex numbers as their parts."""
    x = result.numbers if isinstance(result, sf.Array) else result
    x = x.get() if hasattr(x, "get") else np.asarray(x)
    return np.stack([x.real, x.imag]) if x.dtype.kind == "c" else x


def compared(function):
    """The results of a function of both arrays, here and on a GPU."""
    want = [host(one) for one in function(of_format(X, None), of_format(Y, None))]
    device = StandIn()
    with device.present():
        got = [host(one) for one in function(of_format(X, device), of_format(Y, device))]
    for one, other in zip(got, want, strict=True):
        assert one.dtype == other.dtype
        assert_bits(one, other)


@pytest.mark.parametrize("function", READS.values(), ids=READS)
def test_an_array_on_a_gpu_gives_the_cpus_numbers(function):
    compared(function)


WRITES = {
    "a row": lambda a, b: a.__setitem__(0, [1.1, -0.0, 3]),
    "rows with axes of one": lambda a, b: a.__setitem__([0, 1], sf.array(np.ones((1, 1, 3)), sf.BF16)),
    "all": lambda a, b: a.__setitem__(..., -0.0),
    "by mask": lambda a, b: a.__setitem__(a > 0, -0.0),
    "rows": lambda a, b: a.__setitem__([0, -2], -0.0),
    "the last of several values": lambda a, b: a.__setitem__(([0, 0, -4], 1), sf.array([1.0, 2.0, 3.0], sf.BF16)),
    "places in a short type": lambda a, b: a.__setitem__(np.array([-1, 0], np.int8), 2.0),
    "into a view": lambda a, b: a.T.__setitem__([2, 0, 2], sf.array([[1.0], [2.0], [3.0]], sf.BF16)),
    "over its source": lambda a, b: a.__setitem__(slice(1, None), a[:-1]),
    "backwards": lambda a, b: a.__setitem__(slice(None, None, -1), a),
    "rows over its source": lambda a, b: a.__setitem__([0, 1, 2], a[1:]),
    "in place": lambda a, b: a.__imul__(b),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_written_to_an_array_on_a_gpu_is_what_the_cpu_writes(write):
    compared(lambda a, b: (write(a, b), a)[1:])


REFUSED = {
    "rows": lambda a, b: a[[0, 9]],
    "one row of an array's": lambda a, b: a[np.array(-5)],
    "columns": lambda a, b: a[..., np.array([0, 3])],
    "written": lambda a, b: a.__setitem__((0, [-4]), 1.0),
    "taken": lambda a, b: np.take(a, [0, 12]),
    "taken along an axis": lambda a, b: np.take_along_axis(a, np.full((1, 3), 4), 0),
    "deleted": lambda a, b: np.delete(a, [1, 4], 0),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_places_that_are_not_there_are_refused_on_a_gpu_in_the_same_words(function):
    with pytest.raises(IndexError) as here:
        function(of_format(X, None), of_format(Y, None))
    device = StandIn()
    with device.present(), pytest.raises(IndexError) as there:
        function(of_format(X, device), of_format(Y, device))
    assert str(there.value) == str(here.value)


def test_a_tensor_on_a_gpu_has_no_elements_beyond_its_end():
    device = StandIn()
    with (
        device.present(),
        sf.simulate("fp32"),
        pytest.raises(ValueError, match=r"nothing at .*index 4 is out of bounds"),
    ):
        sf.Tensor(device.take(X))[[0, 4]]


def maxima(move):
    """The largest elements of rows, and the gradient of their sum."""
    x = sf.Tensor(move(X), requires_grad=True)
    with sf.simulate("fp32"):
        largest = x.max(1)
        largest.sum().backward()
    return [host(largest.data), host(x.grad), host(x.argmax(1))]


def test_the_gradient_of_a_maximum_goes_to_the_first_nan_on_a_gpu():
    want, device = maxima(lambda x: x), StandIn()
    with device.present():
        got = maxima(device.take)
    for one, other in zip(got, want, strict=True):
        assert_bits(one, other)


def test_no_rows_have_no_softmax_on_a_gpu_either():
    device = StandIn()
    with device.present(), sf.simulate("fp32"):
        rows = sf.Tensor(device.take(np.zeros((0, 3), np.float32)))
        assert rows.softmax(-1).shape == rows.log_softmax(-1).shape == (0, 3)
        assert rows.logsumexp(-1).shape == (0,)


def weighted_loss(x):
    """A loss whose classes and weights are NumPy's."""
    return sf.nn.cross_entropy(x, np.array([1, 0, -100, 2]), weight=[0.5, 1.0, 2.0])


def smoothed_loss(x):
    """The same of all classes."""
    return sf.nn.cross_entropy(x, np.array([1, 0, -100, 2]), weight=[0.5, 1.0, 2.0], label_smoothing=0.1)


def attended(x):
    """Attention behind NumPy's masks: of numbers, and of truth values, where one query sees nothing."""
    mask = np.tril(np.ones((4, 4), bool), -1)
    numbers = np.where(mask, np.float32(0.5), np.float32(-np.inf))
    attention = sf.nn.scaled_dot_product_attention
    return (attention(x, x, x, mask) + attention(x, x, x, numbers) + attention(x, x, x, is_causal=True)).sum()


@sf.operation(
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, u.round(scale), np.float32(0))),
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, np.float32(0), u.round(scale))),
)
def bounded_below(u, x, low, *, scale=2.0):
    """scale * max(x, low), of a user's own."""
    return u.multiply(np.where(x > low, x, low), scale)


def own_operation(x):
    return bounded_below(x, 0.1).sum()


def batch_of_rows(x):
    rows, again = next(iter(sf.train.Batches(x.data, x.data, 3, seed=1)))
    return (x * x).sum() + sf.Tensor(rows).sum() + sf.Tensor(again).sum()


@pytest.mark.parametrize("loss", [weighted_loss, smoothed_loss, attended, own_operation, batch_of_rows])
def test_what_goes_into_a_loss_beside_a_gpus_tensors_may_be_numpys_or_a_number(loss):
    def made(move):
        x = sf.Tensor(move(np.nan_to_num(X, posinf=2.0)), requires_grad=True)
        with sf.simulate("bf16-standard"):
            y = loss(x)
            y.backward()
        return host(y.data), host(x.grad)

    want, device = made(lambda x: x), StandIn()
    with device.present():
        got = made(device.take)
    for one, other in zip(got, want, strict=True):
        assert_bits(one, other)


def test_errors_of_a_gpus_gradients_are_attributed_as_the_cpus():
    def costs(move, device):
        model, batch = sf.nn.Linear(3, 1, rng=0).to(device), (move(np.ones((2, 3))), move(np.ones((2, 1))))
        return str(sf.attribute(model, sf.nn.mse_loss, batch, "bf16-standard"))

    want, device = costs(lambda x: x, "cpu"), StandIn()
    with device.present():
        assert costs(device.take, "cuda") == want


def test_gradients_are_checked_on_the_cpu():
    device = StandIn()
    with device.present():
        for function, x in ((lambda x: x * x, device.take(Y)), (sf.nn.Linear(3, 1, rng=0).to("cuda"), Y)):
            with pytest.raises(ValueError, match="gradcheck computes on the CPU: pass NumPy's arrays"):
                sf.gradcheck(function, x)
