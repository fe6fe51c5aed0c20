"""Compare our tensor cores with GPUs: the run, its file, and recorded results of real GPUs."""

import json
import os
import pathlib
import pickle
import time
import types

import numpy as np
import pytest

import simfloat as sf
from benchmarks.tensor_cores import __main__ as command
from benchmarks.tensor_cores import comparing, libraries, recording, worker
from tests.bits import assert_bits
from tests.cuda import unit_by_hand

RECORDED = sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json"))

#: (file, instruction and kind) of products whose recorded bits our models do not give: facts still to be explained.
UNEXPLAINED: set[tuple[str, str]] = set()


def test_recorded_results_equal_our_models():
    replayed = ((path.name, comparing.replayed(json.loads(path.read_text()))) for path in RECORDED)
    cases = ((name, *case) for name, rows in replayed for case in rows)
    assert {(name, what) for name, what, got, want in cases if not comparing.equal_bits(got, want).all()} == UNEXPLAINED


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of Hopper's with our models' bits and no libraries."""
    monkeypatch.setattr(libraries, "on_gpu", lambda library: [])
    return unit_by_hand.install(monkeypatch)


@pytest.fixture
def few(gpu, monkeypatch):
    """Units that are enough to look for one fault: all of TF32 and BF16."""
    chosen = [unit for unit in command.units(90) if unit.a in (sf.TF32, sf.BF16)]
    monkeypatch.setattr(command, "units", lambda capability: chosen)
    return chosen


def run(path, seconds=1e6):
    code = command.run(path, seconds, unit_by_hand.Here())
    return code, json.loads(path.read_text())


def test_a_gpu_with_our_bits_differs_nowhere_and_its_file_is_replayed(gpu, tmp_path, capsys, monkeypatch):
    path, seen, compared = tmp_path / "by_hand.json", [], comparing.compared

    def looking(*given):
        seen.append(len(json.loads(path.read_text())["instructions"]))
        return compared(*given)

    monkeypatch.setattr(comparing, "compared", looking)
    code, found = run(path)
    assert code == 0 and seen == list(range(24)), "the file is whole after every finding"
    assert (found["device"], found["capability"]) == ("GPU by hand", 90)
    assert found["cuda"] == {"driver": 13000, "runtime": 13020} and found["driver"]
    assert found["versions"]["numpy"] == np.__version__
    assert found["date"].startswith("20") and found["commit"] and "python" in found["command"]
    assert [[case["differing"] for case in entry["cases"]] for entry in found["instructions"]] == [[0] * 12] * 24
    replayed = list(comparing.replayed(found))
    assert len(replayed) == 24 * 6
    for _, got, want in replayed:
        assert got.shape == (1, 4, 8)
        assert_bits(got, want)
    assert len(capsys.readouterr().out.splitlines()) == 1 + 24 and path.stat().st_size < 300_000


def test_other_bits_are_counted_and_kept(few, tmp_path, monkeypatch, capsys):
    def wrong(self, blocks, threads, arguments):
        right(self, blocks, threads, arguments)
        if (self.unit.family, self.unit.b) == ("mma", sf.BF16) and arguments[4] == 2:
            arguments[3][1, 9, 3] = 7.25

    right = unit_by_hand.Module.__call__
    monkeypatch.setattr(unit_by_hand.Module, "__call__", wrong)
    code, found = run(tmp_path / "wrong.json")
    name = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    (entry,) = [entry for entry in found["instructions"] if entry["instruction"] == name]
    assert code == 1 and [case["differing"] for case in entry["cases"]] == [0, 1] * 6
    # The row that differs is the first one kept.
    differing = [
        (what, place.tolist())
        for what, got, want in comparing.replayed(found)
        for place in np.argwhere(~comparing.equal_bits(got, want))
    ]
    assert differing == [(f"{name}, {kind}", [0, 0, 3]) for kind in comparing.KINDS]
    assert f"{name}: 6 of" in capsys.readouterr().out


def test_operands_at_wrong_places_are_called_so_and_not_counted(few, tmp_path, monkeypatch, capsys):
    elements = unit_by_hand.elements

    def one_side(words, format, rows):
        return elements(words[:, :, ::-1].copy() if rows == 64 else words, format, rows)

    monkeypatch.setattr(unit_by_hand, "elements", one_side)
    code, found = run(tmp_path / "layout.json")
    assert code == 1 and "layout: " in capsys.readouterr().out
    for entry in found["instructions"]:
        is_wrong = "wgmma" in entry["instruction"]
        assert ("layout" in entry, "cases" in entry) == (is_wrong, not is_wrong)
        assert not is_wrong or "sums of whole numbers are wrong, the first at [0, 0, 0]" in entry["layout"]


def test_a_failure_is_recorded_and_the_rest_continues(few, tmp_path, monkeypatch):
    compiled, error = comparing.programs.compiled, "NVRTC_ERROR_COMPILATION: no such instruction"

    def refused(unit, capability):
        if unit.family == "wgmma" and unit.a == sf.TF32:
            raise RuntimeError(error)
        return compiled(unit, capability)

    monkeypatch.setattr(comparing.programs, "compiled", refused)
    code, found = run(tmp_path / "refused.json")
    name = "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32"
    failed = [entry for entry in found["instructions"] if "error" in entry]
    assert code == 1 and failed == [{"instruction": name, "error": f"RuntimeError: {error}"}]
    assert len(list(comparing.replayed(found))) == (len(few) - 1) * 6
    code, found = run(tmp_path / "late.json", seconds=0.0)
    assert code == 1 and {entry["error"] for entry in found["instructions"]} == {"no time was left"}


def test_requests_of_a_worker_can_be_sent_to_it(gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(libraries, "names_on_gpu", lambda library: ["FP16"])
    file = recording.Recording(tmp_path / "file.json", {})
    tasks = list(command._tasks(90, unit_by_hand.Here(), file))
    assert len(tasks) == 24 + 2 * len(libraries.SHAPES)
    for task in tasks:
        assert pickle.loads(pickle.dumps((task.call, task.then))) == (task.call, task.then)


def test_without_a_gpu_or_a_model_of_it_it_says_so(gpu, tmp_path, monkeypatch, capsys):
    gpu.cuda.Device = lambda: types.SimpleNamespace(compute_capability="75")
    with pytest.raises(worker.Failure, match="no model of compute capability 75"):
        command.run(tmp_path / "turing.json", 1.0, unit_by_hand.Here())
    monkeypatch.setattr(command, "what_cuda_lacks", lambda: "CuPy finds no GPU")
    with pytest.raises(SystemExit) as end:
        command.main.callback(None, 5.0)
    assert end.value.code == 2 and "CuPy finds no GPU" in capsys.readouterr().err


def test_a_worker_that_fails_hangs_or_ends_is_replaced():
    with worker.Worker() as hands:
        assert hands.call(divmod, 7, 2, seconds=60) == (3, 1)
        first = hands.call(os.getpid, seconds=60)
        assert hands.call(os.getpid, seconds=60) == first != os.getpid()
        with pytest.raises(worker.Failure, match="ZeroDivisionError"):
            hands.call(divmod, 7, 0, seconds=60)
        assert hands.call(os.getpid, seconds=60) != first
        with pytest.raises(worker.Failure, match="its process ended with 3"):
            hands.call(os._exit, 3, seconds=60)
        with pytest.raises(worker.Failure, match="longer than 0 s"):
            hands.call(time.sleep, 60, seconds=0.1)
        assert hands.call(len, "four", seconds=60) == 4
