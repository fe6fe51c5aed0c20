"""Compare products of libraries with our models: the counts, the orders, and recorded orders of an H200."""

import json
import pathlib

import numpy as np
import pytest

import simfloat as sf
from benchmarks.tensor_cores import __main__ as command
from benchmarks.tensor_cores import libraries, record_libraries
from tests.bits import assert_bits
from tests.cuda import unit_by_hand
from tests.reference import in_halves

SHAPE = (5, 7, 96)


def put(x, row, values):
    x[row] = values


def by_hand(accumulate, inputs=sf.FP16, output=sf.FP16):
    """A library that adds as an accumulator of ours does."""

    def multiply(a, b):
        return sf.matmul(a, b.T, accumulate=accumulate, output=output)

    return libraries.Product("by hand", inputs, output, lambda x: x.copy(), multiply, np.asarray, put)


def test_a_difference_is_counted_and_its_order_found_inside_the_product():
    found = libraries.counted(by_hand(sf.tensor_core("hopper", sf.FP16)), SHAPE, "hopper")
    model = 'tensor_core("hopper", FP16)'
    assert found == dict(product="by hand", shape=[5, 7, 96], model=model, results=35, differing=0)
    for accumulate, inputs in (
        (sf.blocked(64, sf.tensor_core("hopper", sf.E4M3), sf.FP32), sf.E4M3),
        (sf.blocked(24, sf.FP32, sf.FP32), sf.FP32),
    ):
        product = by_hand(accumulate, inputs, sf.FP32)
        counted = libraries.counted(product, SHAPE, "hopper")
        assert counted["differing"] > 0
        found = libraries.revealed(product, SHAPE, counted["first"])
        assert (found["found"], found["output"], found["differing from it"]) == (str(accumulate), "FP32", 0)
        assert found["reason"].startswith("The accumulator gives the bits of all ")


def test_an_order_that_no_accumulator_has_is_written_down():
    def backwards(a, b):
        return sf.matmul(a[:, ::-1], b[:, ::-1].T, accumulate=sf.blocked(5, sf.FP32, sf.FP32))

    product = by_hand(sf.FP32, sf.FP32, sf.FP32)._replace(multiply=backwards)
    found = libraries.revealed(product, (3, 3, 12), (2, 1))
    assert "found" not in found and "each gives other bits. If f rounds its operands" in found["reason"]
    # Of two operands of an addition the larger sum is written first.
    assert found["order"] == "5 + 6 + 4 + 3 + 2 + (10 + 11 + 9 + 8 + 7) + (0 + 1)"


def test_libraries_are_asked_on_a_cpu_as_on_a_gpu():
    pytest.importorskip("torch", reason="needs PyTorch")
    for product in [*libraries.torch_products("cpu"), *libraries.array_products(np)]:
        x = np.eye(4, 16, dtype=np.float32)
        a, b = product.take(x), product.take(2 * x)
        product.put(a, 3, product.take(np.full(16, 0.5, np.float32)))
        assert np.array_equal(product.numbers(product.multiply(a, b))[3], [1.0] * 4), product.name
        dot = libraries.dot_inside(product, (3, 4, 16), 2, 1)
        assert dot(np.arange(16.0, dtype=np.float32), np.ones(16, np.float32)) == 120.0, product.name
        found = libraries.counted(product, (8, 8, 16), "hopper")
        assert found["results"] == 64
        if "first" in found:
            assert libraries.revealed(product, (8, 8, 16), found["first"])["reason"]


def test_a_run_counts_libraries_and_follows_up_where_they_differ(monkeypatch, tmp_path, capsys):
    unit_by_hand.install(monkeypatch)
    monkeypatch.setattr(command, "units", lambda capability: [])
    monkeypatch.setattr(libraries, "SHAPES", (SHAPE, (2, 2, 4096)))
    products = {"PyTorch": [by_hand(sf.blocked(24, sf.FP32, sf.FP32), sf.FP32, sf.FP32)]}
    monkeypatch.setattr(libraries, "on_gpu", lambda library: products[library])
    assert command.run(tmp_path / "file.json", 1e6, unit_by_hand.Here()) == 0
    short, long, missing = json.loads((tmp_path / "file.json").read_text())["libraries"]
    assert short["found"] == "blocked(24, inner=sequential(FP32), outer=sequential(FP32))"
    assert long["differing"] == 4 and "reason" not in long
    assert missing == {"product": "CuPy", "error": "KeyError: 'CuPy'"}
    out = capsys.readouterr().out
    assert "CuPy is left out: KeyError: 'CuPy'" in out
    assert "by hand, 5 x 7 x 96: " in out and "0 from blocked(24" in out


def test_a_recording_of_libraries_has_its_origin_and_is_replayed(monkeypatch, tmp_path):
    accumulate = sf.blocked(24, sf.FP32, sf.FP32)

    def fails(a, b):
        raise RuntimeError("no kernel")

    def on_gpu(library):
        if library == "CuPy":
            raise ImportError("no module")
        product = by_hand(accumulate, sf.FP32, sf.FP32)
        return [product, product._replace(name="broken", multiply=fails)]

    unit_by_hand.install(monkeypatch)
    monkeypatch.setattr(libraries, "on_gpu", on_gpu)
    path, count = record_libraries.write(tmp_path / "new" / "file.npz", "cuda")
    recorded = np.load(path)
    facts = json.loads(str(recorded["facts"]))
    assert count == 32 * 32 + 256 and facts["device"] == "GPU by hand"
    assert {"date", "commit", "command", "driver", "cuda", "versions"} <= set(facts)
    assert facts["errors"]["CuPy"] == "ImportError: no module"
    assert facts["errors"]["broken|32x32x992"] == "RuntimeError: no kernel"
    a, b = libraries.operands_of(by_hand(accumulate, sf.FP32, sf.FP32), (32, 32, 992))
    assert_bits(sf.matmul(a, b.T, accumulate=accumulate, output=sf.FP32), recorded["by hand|32x32x992"])


def test_libraries_of_a_cpu_are_recorded_by_the_same_command(tmp_path):
    pytest.importorskip("torch", reason="needs PyTorch")
    path, count = record_libraries.write(tmp_path / "cpu.npz", "cpu")
    recorded = np.load(path)
    facts = json.loads(str(recorded["facts"]))
    assert facts["device"] and facts["date"]
    assert sum(recorded[name].size for name in recorded if name != "facts") == count
    assert recorded["numpy, FP32|1x256x1024"].shape == (1, 256)


WARP = sf.lanes(32, sf.FP32, sf.tree(in_halves(32), sf.FP32))
CORES = {format: sf.tensor_core("hopper", format) for format in (sf.FP16, sf.BF16, sf.TF32, sf.E4M3)}
PROMOTED = sf.blocked(128, CORES[sf.E4M3], sf.FP32)
BLOCKS = sf.blocked(32, sf.FP32, sf.FP32)

#: Formats of operands and results, and the accumulators for m, n, k = 32, 32, 992 and for 1, 256, 1024.
ON_AN_H200 = {
    "PyTorch, FP16": (sf.FP16, sf.FP16, CORES[sf.FP16], CORES[sf.FP16]),
    "PyTorch, BF16": (sf.BF16, sf.BF16, CORES[sf.BF16], CORES[sf.BF16]),
    "PyTorch, FP16 to FP32": (sf.FP16, sf.FP32, CORES[sf.FP16], CORES[sf.FP16]),
    "PyTorch, BF16 to FP32": (sf.BF16, sf.FP32, CORES[sf.BF16], CORES[sf.BF16]),
    "PyTorch, E4M3": (sf.E4M3, sf.FP32, PROMOTED, PROMOTED),
    "PyTorch, E4M3, use_fast_accum": (sf.E4M3, sf.FP32, CORES[sf.E4M3], CORES[sf.E4M3]),
    "PyTorch, FP32": (sf.FP32, sf.FP32, BLOCKS, WARP),
    "PyTorch, TF32": (sf.TF32, sf.FP32, sf.blocked(64, CORES[sf.TF32], sf.FP32), WARP),
    "cupy, FP16": (sf.FP16, sf.FP16, CORES[sf.FP16], CORES[sf.FP16]),
    "cupy, FP32": (sf.FP32, sf.FP32, BLOCKS, WARP),
}


def test_products_of_libraries_on_an_h200_are_sums_in_these_orders():
    # PyTorch 2.11.0 and CuPy 14.2.0 with cuBLAS 13.1, driver 580.159.04, November 2026.
    recorded = np.load(pathlib.Path(__file__).parent / "recorded" / "nvidia_h200_libraries.npz")
    for name, (inputs, output, *accumulators) in ON_AN_H200.items():
        for (m, n, k), accumulate in zip(((32, 32, 992), (1, 256, 1024)), accumulators, strict=True):
            a, b = libraries.operands_of(by_hand(accumulate, inputs, output), (m, n, k))
            product = sf.matmul(a, b.T, accumulate=accumulate, output=output)
            assert_bits(product, recorded[f"{name}|{m}x{n}x{k}"], of=name)
