"""Arrays and tensors on the stand-in for CuPy: the same values as on the CPU, and CuPy's errors."""

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from simfloat.telemetry.ranges import histogram_of_values  # noqa: E402
from tests.cuda.cases import arrays, compare, given, results  # noqa: E402
from tests.cuda.cases.arrays import X, Y  # noqa: E402
from tests.cuda.devices import StandIn  # noqa: E402


def compare_machines(case):
    """The results of a case on both devices: types, shapes and bits."""
    want, device = results(case, given), StandIn()
    with device.present():
        got = results(case, device.take)
    compare(got, want)


def test_an_array_on_a_gpu_gives_the_cpus_numbers():
    for case in (arrays.reads, arrays.writes):
        compare_machines(case)


def test_an_index_out_of_range_has_the_same_message_on_a_gpu():
    device = StandIn()
    for function in (
        lambda a, b: a[[0, 9]], lambda a, b: a[np.array(-5)], lambda a, b: a[..., np.array([0, 3])],
        lambda a, b: a.__setitem__((0, [-4]), 1.0), lambda a, b: np.take(a, [0, 12]),
        lambda a, b: np.take_along_axis(a, np.full((1, 3), 4), 0), lambda a, b: np.delete(a, [1, 4], 0),
    ):  # fmt: skip
        with pytest.raises(IndexError) as here:
            function(*arrays.both(given))
        with device.present(), pytest.raises(IndexError) as there:
            function(*arrays.both(device.take))
        assert str(there.value) == str(here.value)


def maxima(move):
    """The largest elements of rows, and the gradient of their sum."""
    x = sf.Tensor(move(X), requires_grad=True)
    with sf.simulate("fp32"):
        largest = x.max(1)
        largest.sum().backward()
    return largest.data, x.grad, x.argmax(1)


def test_the_gradient_of_a_maximum_goes_to_the_first_nan_on_a_gpu():
    compare_machines(maxima)


def attended(x):
    """Attention behind NumPy's masks: of numbers, and of truth values, where one query sees nothing."""
    mask = np.tril(np.ones((4, 4), bool), -1)
    numbers = np.where(mask, np.float32(0.5), np.float32(-np.inf))
    attention = sf.nn.scaled_dot_product_attention
    return attention(x, x, x, mask) + attention(x, x, x, numbers) + attention(x, x, x, is_causal=True)


@sf.operation(
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, u.round(scale), np.float32(0))),
    lambda u, g, y, x, low, *, scale: u.multiply(g, np.where(x > low, np.float32(0), u.round(scale))),
)
def bounded_below(u, x, low, *, scale=2.0):
    """scale * max(x, low), of a user's own."""
    return u.multiply(np.where(x > low, x, low), scale)


def batch_of_rows(x):
    rows, again = next(iter(sf.train.Batches(x.data, x.data, 3, seed=1)))
    return (x * x).sum() + sf.Tensor(rows).sum() + sf.Tensor(again).sum()


def test_a_loss_of_gpu_tensors_accepts_numpy_arrays_and_numbers():
    classes, weights = np.array([1, 0, -100, 2]), [0.5, 1.0, 2.0]
    for loss in (
        lambda x: sf.nn.cross_entropy(x, classes, weight=weights),
        lambda x: sf.nn.cross_entropy(x, classes, weight=weights, label_smoothing=0.1),
        lambda x: attended(x).sum(), lambda x: bounded_below(x, 0.1).sum(), batch_of_rows,
    ):  # fmt: skip

        def made(move, loss=loss):
            x = sf.Tensor(move(np.nan_to_num(X, posinf=2.0)), requires_grad=True)
            with sf.simulate("bf16-standard"):
                y = loss(x)
                y.backward()
            return y.data, x.grad

        compare_machines(made)


def test_errors_of_a_gpus_gradients_are_attributed_as_the_cpus():
    def costs(move, device):
        model, batch = sf.nn.Linear(3, 1, rng=0).to(device), (move(np.ones((2, 3))), move(np.ones((2, 1))))
        return str(sf.attribute(model, sf.nn.mse_loss, batch, "bf16-standard"))

    want, device = costs(lambda x: x, "cpu"), StandIn()
    with device.present():
        assert costs(device.take, "cuda") == want


def test_tensors_on_a_gpu_are_refused_and_counted_as_on_the_cpu():
    device = StandIn()
    with device.present():
        with sf.simulate("fp32"):
            with pytest.raises(ValueError, match=r"no element at .*index 4 is out of bounds"):
                sf.Tensor(device.take(X))[[0, 4]]
            rows = sf.Tensor(device.take(np.zeros((0, 3), np.float32)))
            assert rows.softmax(-1).shape == rows.log_softmax(-1).shape == (0, 3)
            assert rows.logsumexp(-1).shape == (0,)
        for function, x in ((lambda x: x * x, device.take(Y)), (sf.nn.Linear(3, 1, rng=0).to("cuda"), Y)):
            with pytest.raises(ValueError, match="gradcheck computes on the CPU: pass NumPy arrays"):
                sf.gradcheck(function, x)
        assert histogram_of_values(device.take(X)) == histogram_of_values(X)
