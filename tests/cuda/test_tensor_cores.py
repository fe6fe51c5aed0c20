"""Comparing our tensor cores with a GPU's: the program, and what it has recorded on real ones."""

import json
import pathlib
import sys
import types

import numpy as np
import pytest

import simfloat as sf
from benchmarks import tensor_cores
from simfloat.arithmetic import machines
from tests.bits import assert_bits
from tests.cuda import standin

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json"))


def test_what_real_units_gave_is_what_our_models_give():
    for path in RECORDED:
        for _, got, want in tensor_cores.replayed(path):
            assert_bits(got, want)


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(tensor_cores, "what_cuda_lacks", lambda: "CuPy finds no GPU")
    assert tensor_cores.main("unread") == 2
    assert "CuPy finds no GPU" in capsys.readouterr().err


@pytest.fixture
def unit_by_hand(monkeypatch):
    """A GPU whose units are our models: they read the words that a kernel is given."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    module = standin.install()
    monkeypatch.setattr(tensor_cores, "what_cuda_lacks", lambda: None)
    monkeypatch.setattr(tensor_cores, "PRODUCTS", 2)
    monkeypatch.setattr(tensor_cores, "DEPTHS", (32, 64))
    runtime = types.SimpleNamespace(
        getDeviceProperties=lambda number: {"name": b"by hand"}, driverGetVersion=lambda: 13000
    )
    module.__version__ = "14"
    module.cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(compute_capability="90"), runtime=runtime)
    module.RawKernel = Kernel
    return module


class Kernel:
    def __init__(self, source, name):
        (self.unit,) = [unit for unit in tensor_cores.UNITS if unit.instruction in source]
        assert name in source

    def __call__(self, blocks, threads, arguments):
        a, b, c, d, chunks = arguments
        assert (blocks, threads) == ((2,), (32,)) and a.shape[-1] == 8 * chunks
        x, y = (self.numbers(words.get()) for words in (a, b))
        accumulate = tensor_cores.model("hopper", self.unit)
        d[...] = machines.GPU.take(sf.matmul(x, y.swapaxes(1, 2), accumulate=accumulate, initial=c.get()))

    def numbers(self, words):
        if self.unit.format == sf.TF32:
            return words.view(np.float32)
        return sf.decode(words.view(np.uint16 if self.unit.format.bits == 16 else np.uint8), self.unit.format)


def test_a_gpu_with_our_bits_differs_nowhere_and_its_file_is_replayed(unit_by_hand, tmp_path, capsys):
    assert tensor_cores.main(str(tmp_path / "by_hand.json")) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(tensor_cores.UNITS) * len(tensor_cores.KINDS) * 2
    facts = json.loads((tmp_path / "by_hand.json").read_text())
    assert (facts["device"], facts["architecture"], facts["driver"]) == ("by hand", "hopper", 13000)
    replayed = list(tensor_cores.replayed(tmp_path / "by_hand.json"))
    assert len(replayed) == len(tensor_cores.UNITS) * len(tensor_cores.KINDS)
    for _, got, want in replayed:
        assert_bits(got, want)
