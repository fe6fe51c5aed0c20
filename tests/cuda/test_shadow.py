"""The repetition of calls on a GPU sees each call and any difference, and does not change arguments."""

import inspect

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


@pytest.mark.parametrize("name", sorted(shadow.functions()))
def test_the_tests_calls_are_the_shadows(name, request):
    expected = getattr(request.config, "shadow", None) is not None
    assert (getattr(sf, name).__code__.co_filename == shadow.__file__) == expected


def test_a_repeated_call_returns_the_same_and_is_counted(own):
    rounded = own.beside(original("round"))
    assert np.array_equal(rounded(X, sf.FP16), original("round")(X, sf.FP16))
    with pytest.raises(ValueError, match="not a number of"):
        own.beside(original("encode"))(X, sf.FP16)
    assert own.repeated == {"round": 1, "encode": 1}


def test_calls_of_which_every_pair_of_arguments_was_met_are_not_repeated(own):
    rounded = own.beside(original("round"))
    for format in (sf.FP16, sf.BF16):
        for mode in (sf.nearest_even, sf.toward_zero):
            rounded(X, format, mode)
            rounded(X + 1, format, mode)
    assert own.repeated == {"round": 4}


def test_on_a_gpu_every_call_is_repeated():
    with StandIn().present():
        own = shadow.Shadow(Gpu())
        for _ in range(3):
            own.beside(original("add"))(X, X[:, ::-1], sf.FP16)
    assert own.repeated == {"add": 3}


def test_calls_too_long_for_plain_python_are_left_out_and_counted():
    own = shadow.Shadow(StandIn(most_steps=7))
    own.beside(original("round"))(X, sf.BF16)
    assert own.left_out == {"round": 1} and own.repeated == {}


WRONG = {
    "a bit": lambda x: np.nextafter(x, 9, out=x),
    "the sign of a zero": lambda x: np.copysign(x, -1.0, out=x),
    "a NaN": lambda x: x.fill(np.nan),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_difference_is_found(own, change):
    launch = own.device.launch

    def wrong(body, count, arguments):
        launch(body, count, arguments)
        change(arguments[2]._host)

    own.device.launch = wrong
    with pytest.raises(AssertionError, match=r"round on the GPU, of x=float64\(3,\), format=.*1 of 3 differ|3 of 3"):
        own.beside(original("round"))(np.array([0.0, 1.0, 2.0]), sf.FP16)


OTHERWISE = {
    "another type": lambda x, format: x.astype(np.float32 if shadow.is_on_gpu(x) else np.float64),
    "an array of NumPy's": lambda x, format: np.zeros(3),
    "an error": lambda x, format: x / x if not shadow.is_on_gpu(x) else x.get() @ x,
    "another error": lambda x, format: operand_error(shadow.is_on_gpu(x)),
    "an operand that changed": lambda x, format: write(x),
}


def operand_error(on_gpu):
    raise ValueError("there" if on_gpu else "here")


def write(x):
    if shadow.is_on_gpu(x):
        x[0] = 7.0
    return x + 1


@pytest.mark.parametrize("function", OTHERWISE.values(), ids=OTHERWISE)
def test_other_differences_are_found(own, function):
    with pytest.raises(AssertionError, match="on the GPU, of x="):
        own.beside(function)(np.ones(3), sf.FP16)


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


LAYOUTS = {
    "rows": X, "columns": X.T, "every second": X[:, ::2], "backwards": X[::-1, ::-2],
    "repeated": np.broadcast_to(X[0], (3, 4)), "backwards in rows alone": X[:, ::-1].T, "a number": np.array(2.5),
    "nothing": X[:, :0],
}  # fmt: skip


@pytest.mark.parametrize("x", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_lie_on_the_gpu_as_they_lie_here(x):
    with StandIn().present():
        there = strided(StandIn(), x)
    assert there.strides == x.strides or x.size < 2
    assert np.array_equal(there.get(), x)


def test_types_that_cupy_does_not_have_stay_on_the_cpu(own):
    for x in (
        np.array([1, 2], object), np.ma.masked_array([1.0], [True]), np.ones(2, np.longdouble), np.ones(2, ">f4"),
    ):  # fmt: skip
        with StandIn().present(), pytest.raises(NotMovable):
            Move(StandIn()).argument(x, "ArrayLike")
    own.beside(original("round"))(np.ones(2, ">f4"), sf.FP16)
    assert own.repeated == {}


def test_an_array_that_occurs_twice_is_one_array_on_the_gpu():
    with StandIn().present():
        move = Move(StandIn())
        assert move.argument(X, "ArrayLike") is move.argument(X, "ArrayLike")
        assert isinstance(move.argument([1.0, 2.0], "ArrayLike"), standin.ndarray)
        assert move.argument(1.5, "ArrayLike") == 1.5
