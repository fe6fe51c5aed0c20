"""The repetition of calls on a GPU sees each call and any difference, and does not change arguments."""

import inspect
from itertools import product

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

import simfloat as sf  # noqa: E402
from simfloat.arithmetic.catalog import FUNCTIONS  # noqa: E402
from tests.cuda import plain, shadow, standin  # noqa: E402
from tests.cuda.devices import Gpu, StandIn  # noqa: E402
from tests.cuda.moving import Move, NotMovable, strided  # noqa: E402

X = np.array([[0.3, -0.7, 1e-9, 3.0], [2.5, 0.0, -0.0, 1e6]])


@pytest.fixture
def own():
    """A shadow of this test's alone."""
    return shadow.Shadow(StandIn())


def original(name):
    return inspect.unwrap(getattr(sf, name))


def test_every_public_function_whose_result_is_numbers_is_repeated():
    makes = {
        name
        for name in sf.__all__
        if inspect.isfunction(function := getattr(sf, name))
        and any(kind in str(inspect.signature(function).return_annotation) for kind in ("NDArray", "Result", "Scaled"))
    }
    assert makes - set(shadow.functions()) == {"readmemb", "readmemh"}  # which read a file
    assert set(FUNCTIONS) < set(shadow.functions())


def test_calls_of_tests_run_through_the_shadow_if_it_is_on(request):
    expected = getattr(request.config, "shadow", None) is not None
    for name in shadow.functions():
        assert (getattr(sf, name).__code__.co_filename == shadow.__file__) == expected


def test_a_repeated_call_returns_the_same_and_is_counted(own):
    rounded = own.beside(original("round"))
    assert np.array_equal(rounded(X, sf.FP16), original("round")(X, sf.FP16))
    with pytest.raises(ValueError, match="not a number of"):
        own.beside(original("encode"))(X, sf.FP16)
    assert own.repeated == {"round": 1, "encode": 1}


def test_small_calls_with_a_new_pair_of_arguments_are_repeated_and_every_call_on_a_gpu(own):
    rounded = own.beside(original("round"))
    for format, mode in product((sf.FP16, sf.BF16), (sf.nearest_even, sf.toward_zero)):
        rounded(X, format, mode)
        rounded(X + 1, format, mode)
    assert own.repeated == {"round": 4}
    short = shadow.Shadow(StandIn(most_steps=7))
    short.beside(original("round"))(X, sf.BF16)
    assert short.left_out == {"round": 1} and short.repeated == {}
    with StandIn().present():
        every = shadow.Shadow(Gpu())
        for _ in range(3):
            every.beside(original("add"))(X, X[:, ::-1], sf.FP16)
    assert every.repeated == {"add": 3}


def test_a_difference_is_found():
    launch = StandIn().launch
    for change in (  # a bit, the sign of a zero, a NaN
        lambda x: np.nextafter(x, 9, out=x), lambda x: np.copysign(x, -1.0, out=x), lambda x: x.fill(np.nan),
    ):  # fmt: skip

        def wrong(body, count, arguments, change=change):
            launch(body, count, arguments)
            change(arguments[2]._host)

        own = shadow.Shadow(StandIn())
        own.device.launch = wrong
        words = r"round on the GPU, of x=float64\(3,\), format=.*1 of 3 differ|3 of 3"
        with pytest.raises(AssertionError, match=words):
            own.beside(original("round"))(np.array([0.0, 1.0, 2.0]), sf.FP16)


def another_type(x, format):
    return x.astype(np.float32 if shadow.is_on_gpu(x) else np.float64)


def array_of_numpy(x, format):
    return np.zeros(3)


def error(x, format):
    return x.get() @ x if shadow.is_on_gpu(x) else x / x


def another_error(x, format):
    raise ValueError("there" if shadow.is_on_gpu(x) else "here")


def changed_operand(x, format):
    if shadow.is_on_gpu(x):
        x[0] = 7.0
    return x + 1


def test_other_differences_are_found():
    for function in (another_type, array_of_numpy, error, another_error, changed_operand):
        with pytest.raises(AssertionError, match="on the GPU, of x="):
            shadow.Shadow(StandIn()).beside(function)(np.ones(3), sf.FP16)


def test_events_are_compared_and_observed_once(own):
    watching = sf.Recorder()
    rounded = own.beside(original("round"))
    rounded(X, sf.E2M1, observer=watching)
    assert own.repeated == {"round": 1} and watching.counts()["total"] == X.size
    thread_counting = plain.modules()["simfloat.kernels.gpu.elementwise"]
    count = thread_counting.count_ends
    thread_counting.count_ends = lambda exact, out, numbers, events, shown: events.fill(1)
    try:
        with pytest.raises(AssertionError, match="round on the GPU"):
            rounded(X, sf.E3M2, observer=watching)
    finally:
        thread_counting.count_ends = count


def test_random_bits_are_the_same_and_continue_once(own):
    stream, other = sf.BitStream(5), sf.BitStream(5)
    rounded = own.beside(original("round"))
    for _ in range(2):
        got = rounded(X, sf.E2M1, sf.stochastic(), stream=stream)
        assert np.array_equal(got, original("round")(X, sf.E2M1, sf.stochastic(), stream=other))
    assert stream.state == other.state


def test_arrays_lie_on_the_gpu_as_they_lie_here():
    views = X, X.T, X[:, ::2], X[::-1, ::-2], np.broadcast_to(X[0], (3, 4)), X[:, ::-1].T, np.array(2.5), X[:, :0]
    with StandIn().present():
        for x in views:
            there = strided(StandIn(), x)
            assert there.strides == x.strides or x.size < 2
            assert np.array_equal(there.get(), x)
        move = Move(StandIn())  # an array that occurs twice is one array there
        assert move.argument(X, "ArrayLike") is move.argument(X, "ArrayLike")
        assert isinstance(move.argument([1.0, 2.0], "ArrayLike"), standin.ndarray)
        assert move.argument(1.5, "ArrayLike") == 1.5


def test_types_that_cupy_does_not_have_stay_on_the_cpu(own):
    for x in (
        np.array([1, 2], object), np.ma.masked_array([1.0], [True]), np.ones(2, np.longdouble), np.ones(2, ">f4"),
    ):  # fmt: skip
        with StandIn().present(), pytest.raises(NotMovable):
            Move(StandIn()).argument(x, "ArrayLike")
    own.beside(original("round"))(np.ones(2, ">f4"), sf.FP16)
    assert own.repeated == {}
