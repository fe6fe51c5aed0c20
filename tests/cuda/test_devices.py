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


def fitted(device):
    model = sf.nn.Linear(2, 1, rng=0)
    with sf.simulate("fp32"):
        return sf.train.fit(
            model, sf.nn.mse_loss, [], sf.optim.SGD(model.parameters(), lr=0.1), progress=False, device=device
        )


def moved(device):
    return sf.nn.Linear(2, 1, rng=0).to(device)


def test_without_cupy_there_is_one_message(monkeypatch, capsys):
    without(monkeypatch, "cupy")
    for call in (moved, fitted):
        words = r"device='cuda' needs .* pip install simfloat\[cuda\]; CuPy is not installed"
        with pytest.raises(ValueError, match=words):
            call("cuda")
    assert main(["selftest", "--device", "cuda"]) == 2
    assert "simfloat selftest: device='cuda' needs" in capsys.readouterr().err
    for device in ("gpu", 0, None, "cuda:0"):
        with pytest.raises(ValueError, match=f"device is 'cpu' or 'cuda', got {device!r}"):
            moved(device)


def test_the_message_names_the_missing_part_of_the_gpu_software(cupy, monkeypatch):
    compiling = pytest.importorskip("simfloat.kernels.gpu.compiling", reason="needs numba-cuda")
    assert divmod(machines.OLDEST_GENERATION, 10) == compiling.OLDEST

    def refused(words, call=moved):
        with pytest.raises(ValueError, match=words):
            call("cuda")

    cupy.cuda.Device = lambda: types.SimpleNamespace(compute_capability="75")
    refused(r"; the GPU's compute capability is 7\.5, and kernels need 8\.0")
    for count, reason in ((lambda: 0, "CuPy finds no GPU"), (lambda: 1 / 0, "no GPU: division")):
        cupy.cuda.runtime.getDeviceCount = count
        refused(f"; .*{reason}", fitted)
    without(monkeypatch, "numba_cuda")
    refused("; numba-cuda is not installed")


def test_arguments_that_only_numpy_has_are_refused_as_in_cupy(cupy):
    for make in (lambda x: np.full(2, 1.0, like=x), lambda x: np.ones(2, like=x)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
            make(cupy.asarray(np.zeros(2)))


def test_a_model_goes_to_a_gpu_and_comes_back(cupy, tmp_path):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    model, other = (sf.nn.Sequential(sf.nn.Linear(3, 2, rng=seed), sf.nn.BatchNorm2d(2)) for seed in (0, 1))
    before = {name: np.array(array) for name, array in model.state_dict().items()}
    model[0].weight.grad = np.ones((2, 3))
    assert model.to("cuda") is model
    assert isinstance(model[0].weight.data, cupy.ndarray) and isinstance(model[0].weight.grad, cupy.ndarray)
    assert isinstance(model[1].running_mean, cupy.ndarray)
    model.load_state_dict(before)
    assert isinstance(model[0].weight.data, cupy.ndarray)
    sf.save(tmp_path / "model", model=model)  # files are those of the CPU
    sf.load(tmp_path / "model", model=other)
    model.to("cpu").to("cpu")
    for name, array in model.state_dict().items():
        assert type(array) is np.ndarray and np.array_equal(array, before[name])
        assert np.array_equal(other.state_dict()[name], array)


def test_the_state_of_an_optimizer_moves_with_its_parameters(cupy):
    pytest.importorskip("numba_cuda", reason="needs numba-cuda")
    model = sf.nn.Linear(3, 2, rng=0)
    optimizer = sf.optim.Adam(model.parameters())
    with sf.simulate("fp32"):
        model(np.ones((1, 3))).sum().backward()
        optimizer.step()
    state = optimizer.state_dict()
    model.to("cuda")
    for follow in (optimizer.follow, lambda: optimizer.load_state_dict(state)):
        follow()
        assert {type(array) for array in optimizer.state[0].values() if array.ndim} == {cupy.ndarray}


def test_a_gpu_with_too_little_memory_is_reported_with_both_sizes(cupy):
    def full(shape, dtype):
        raise MemoryError

    cupy.empty = full
    cupy.cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(memGetInfo=lambda: (1000, 80_000)))
    message = r"shape \(1024, 2\) takes 16,384 bytes, and of the GPU's 80,000 there are 1,000 left"
    with pytest.raises(ValueError, match=message):
        operands.empty((1024, 2), np.float64, machines.GPU)
