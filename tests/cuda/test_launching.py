"""The start of loops: a kernel receives the arguments as CuPy passes them."""

import dataclasses
import types

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic import machines
from simfloat.kernels.gpu import sums
from simfloat.kernels.gpu import threads as thread_loops
from simfloat.kernels.gpu.threads import threads_over
from tests.cuda import standin


@threads_over("out", each=4)
def loop(j, x, number, out):
    pass


@pytest.fixture
def cupy(cupy):
    """The stand-in with a GPU, and a record of the started kernels."""
    started = []

    class Module:
        def load(self, code):
            self.code = code

        def get_function(self, name):
            return lambda blocks, threads, given: started.append((self.code, name, blocks, threads, *given))

    device = types.SimpleNamespace(id=0, compute_capability="90")
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 1)
    cupy.cuda = types.SimpleNamespace(Device=lambda number=0: device, Module=Module, runtime=runtime)
    cupy.started = started
    thread_loops._load_kernel.cache_clear()
    yield cupy
    thread_loops._load_kernel.cache_clear()


@pytest.fixture
def placed(monkeypatch):
    """All arrays lie at the address 4096."""
    monkeypatch.setattr(standin.ndarray, "data", types.SimpleNamespace(ptr=4096, device_id=0), raising=False)


@pytest.fixture
def uncompiled(monkeypatch):
    """Kernels by the types that they are asked for."""
    pytest.importorskip("numba_cuda", reason="needs numba-cuda for its types")
    from simfloat.kernels.gpu import compiling

    asked = []

    def compiled(body, kinds):
        asked.append(str(kinds))
        return types.SimpleNamespace(entry="kernel", ptx=asked[-1].encode())

    monkeypatch.setattr(compiling, "load_or_compile", compiled)
    return asked


def test_arrays_come_as_numbas_structures_and_small_ones_by_value(cupy, placed, uncompiled):
    out = cupy.asarray(np.zeros((300, 7), np.float32))
    loop(np.array([1.5, 2.5]), True, out)
    ((code, name, blocks, threads, numbers),) = cupy.started
    assert (name, blocks, threads) == ("kernel", (3,), (256,))  # 2100 elements, four a thread
    of_loop, of_array = np.frombuffer(numbers.tobytes()[:24], "i8, 2f8")[0], numbers.tobytes()[24:]
    assert (of_loop[0], *of_loop[1]) == (525, 1.5, 2.5)
    assert np.frombuffer(of_array, np.int64).tolist() == [1, 0, 0, 2100, 4, 4096, 300, 7, 28, 4]
    assert code == b"(UniTuple(float64, 2), int64, Array(float32, 2, 'C', False, aligned=True))\0"


def test_a_launch_hands_over_one_structure_laid_out_as_in_c_and_kinds_that_came_before_ask_for_nothing(
    cupy, placed, uncompiled
):
    of_c = np.dtype([("count", "i8"), ("x", "f4", 3), ("number", "?"), ("out", "i8", 7)], align=True)
    out = cupy.asarray(np.zeros(5, np.float32))
    for first in (1.5, -0.0):
        loop(np.array([first, 2.5, 3.5], np.float32), np.bool_(True), out)
        (numbers,) = cupy.started[-1][4:]
        numbers = np.frombuffer(numbers.tobytes(), of_c)[0]
        assert numbers["x"].tobytes() == np.array([first, 2.5, 3.5], np.float32).tobytes()
        assert (numbers["count"], numbers["number"], *numbers["out"]) == (2, True, 0, 0, 5, 4, 4096, 5, 4)
    assert uncompiled == ["(UniTuple(float32, 3), bool, Array(float32, 1, 'C', False, aligned=True))"]


def test_a_training_step_reads_one_number_from_the_gpu_whether_all_class_numbers_are_classes(
    cupy, placed, uncompiled, monkeypatch
):
    # What is remembered of calls has the machine in its key, and loops of its own.
    monkeypatch.setattr(machines, "GPU", dataclasses.replace(machines.GPU))
    read = []
    for name in ("get", "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__array__"):
        convert = getattr(standin.ndarray, name)
        monkeypatch.setattr(standin.ndarray, name, lambda x, c=convert, n=name, *more: (read.append(n), c(x, *more))[1])
    model = sf.nn.MLP([4, 3, 2], rng=0).to("cuda")
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
    x, y = cupy.asarray(np.ones((5, 4), np.float32)), cupy.asarray(np.array([0, 1, 1, -100, 0]))
    with sf.simulate("bf16-standard"):
        for _ in range(2):  # the first one looks at weights of whose formats nothing is known
            read.clear()
            sf.nn.cross_entropy(model(sf.Tensor(x)), y).backward()
            optimizer.step()
    assert read == ["__bool__"]


def test_an_array_on_another_gpu_than_the_current_one_is_refused_and_none_starts_nothing(cupy, placed):
    loop(np.zeros(1), 1, cupy.asarray(np.zeros(0, np.float32)))
    cupy.cuda.Device().id = 1
    with pytest.raises(ValueError, match=r"GPU 1 is the current one, .* on GPU 0: .* `with cupy.cuda.Device\(0\):`"):
        loop(np.zeros(1), 1, cupy.asarray(np.zeros(3, np.float32)))
    assert cupy.started == []


def test_large_products_are_started_in_tiles_and_small_ones_in_elements(cupy, monkeypatch):
    counts = []
    monkeypatch.setattr(thread_loops, "launch", lambda body, count, arguments: counts.append(count))
    for m, n, products, started in (
        (1024, 512, 1, [128 * 4 * 32]), (1025, 513, 1, [129 * 5 * 32]), (1024, 512, 2, [128 * 4 * 32] * 2),
        (256, 2048, 1, [64 * 8 * 32]),
        (504, 1023, 1, [504 * 1023]),  # too few to keep a GPU busy
        (1 << 19, 1, 1, [1 << 19]),  # no warp's width
        (7, 1 << 17, 1, [7 << 17]),  # no tile's height
        (3, 5, 4, [4 * 3 * 5]), (3, 0, 1, []),
    ):  # fmt: skip
        counts.clear()
        shapes = (m, 2), (2 * products, n), (m * products, n)
        a, b, out = (cupy.asarray(np.zeros(shape, np.float32)) for shape in shapes)
        for kind in ("native", "odd"):
            sums.stepwise_loops["fused"][kind](a, b, out, np.zeros(1), np.zeros(1), 1.0)
        assert counts == [*started, *[m * n * products] * (n > 0)]
