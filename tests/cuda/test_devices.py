"""Devices by name, and the messages if a device is missing."""

import importlib.util
import sys
import types

import numpy as np
import pytest

import simfloat as sf
from simfloat.__main__ import main
from simfloat.arithmetic import machines, operands


def without(monkeypatch, missing):
    """A process in which a module cannot be found."""
    found = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, missing, raising=False)
    monkeypatch.setattr(machines, "find_spec", lambda name: None if name == missing else found(name))


CALLS = {"to": lambda: sf.nn.Linear(2, 1, rng=0).to("cuda"), "fit": lambda: fitted("cuda")}


def fitted(device):
    model = sf.nn.Linear(2, 1, rng=0)
    with sf.simulate("fp32"):
        return sf.train.fit(
            model, sf.nn.mse_loss, [], sf.optim.SGD(model.parameters(), lr=0.1), progress=False, device=device
        )


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_without_cupy_there_is_one_message(call, monkeypatch):
    without(monkeypatch, "cupy")
    with pytest.raises(ValueError, match=r"device='cuda' needs .* pip install simfloat\[cuda\]; CuPy is not installed"):
        call()


def test_without_numba_cuda_it_says_so(cupy, monkeypatch):
    without(monkeypatch, "numba_cuda")
    with pytest.raises(ValueError, match="; numba-cuda is not installed"):
        CALLS["to"]()


@pytest.mark.parametrize("count, reason", [(lambda: 0, "CuPy finds no GPU"), (lambda: 1 / 0, "no GPU: division")])
def test_without_a_gpu_it_says_so(count, reason, cupy, monkeypatch):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    cupy.cuda.runtime.getDeviceCount = count
    with pytest.raises(ValueError, match=f"; .*{reason}"):
        CALLS["fit"]()


@pytest.mark.parametrize("make", [lambda x: np.full(2, 1.0, like=x), lambda x: np.ones(2, like=x)])
def test_arguments_that_only_numpy_has_are_refused_as_in_cupy(make, cupy):
    with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
        make(cupy.asarray(np.zeros(2)))


def test_the_oldest_generation_is_the_one_that_code_is_made_for():
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    from simfloat.kernels.gpu import compiling

    assert divmod(machines.OLDEST_GENERATION, 10) == compiling.OLDEST


def test_a_gpu_older_than_ampere_is_named(cupy):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    cupy.cuda.Device = lambda: types.SimpleNamespace(compute_capability="75")
    with pytest.raises(ValueError, match=r"; the GPU's compute capability is 7\.5, and kernels need 8\.0"):
        CALLS["to"]()


def test_the_self_test_refuses_a_gpu_that_is_not_there(monkeypatch, capsys):
    without(monkeypatch, "cupy")
    assert main(["selftest", "--device", "cuda"]) == 2
    assert "simfloat selftest: device='cuda' needs" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["gpu", 0, None, "cuda:0"])
def test_other_devices_are_refused_by_name(device):
    with pytest.raises(ValueError, match=f"device is 'cpu' or 'cuda', got {device!r}"):
        sf.nn.Linear(2, 1).to(device)


def test_a_model_goes_to_a_gpu_and_comes_back(cupy):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    model = sf.nn.Sequential(sf.nn.Linear(3, 2, rng=0), sf.nn.BatchNorm2d(2))
    before = {name: np.array(array) for name, array in model.state_dict().items()}
    model[0].weight.grad = np.ones((2, 3))
    assert model.to("cuda") is model
    assert isinstance(model[0].weight.data, cupy.ndarray) and isinstance(model[0].weight.grad, cupy.ndarray)
    assert isinstance(model[1].running_mean, cupy.ndarray)
    model.load_state_dict(before)
    assert isinstance(model[0].weight.data, cupy.ndarray)
    model.to("cpu").to("cpu")
    for name, array in model.state_dict().items():
        assert type(array) is np.ndarray and np.array_equal(array, before[name])


def test_the_state_of_an_optimizer_moves_with_its_parameters(cupy):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    model = sf.nn.Linear(3, 2, rng=0)
    optimizer = sf.optim.Adam(model.parameters())
    with sf.simulate("fp32"):
        model(np.ones((1, 3))).sum().backward()
        optimizer.step()
    state = optimizer.state_dict()
    model.to("cuda")
    optimizer.follow()
    assert {type(array) for array in optimizer.state[0].values() if array.ndim} == {cupy.ndarray}
    optimizer.load_state_dict(state)
    assert {type(array) for array in optimizer.state[0].values() if array.ndim} == {cupy.ndarray}


def test_states_on_a_gpu_are_kept_in_files_of_the_cpu(cupy, tmp_path):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    model, other = (sf.nn.Linear(3, 2, rng=seed) for seed in (0, 1))
    sf.save(tmp_path / "model", model=model.to("cuda"))
    sf.load(tmp_path / "model", model=other)
    assert np.array_equal(other.weight.data, model.weight.data.get())


def test_a_gpu_with_too_little_memory_is_reported_with_both_sizes(cupy):
    def full(shape, dtype):
        raise MemoryError

    cupy.empty = full
    cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(memGetInfo=lambda: (1000, 80_000)))
    message = r"shape \(1024, 2\) takes 16,384 bytes, and of the GPU's 80,000 there are 1,000 left"
    with pytest.raises(ValueError, match=message):
        operands.empty((1024, 2), np.float64, machines.GPU)
