"""Event files, read back by TensorBoard's own reader if it is installed."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf

is_written = pytest.mark.skipif(
    importlib.util.find_spec("tensorboardX") is None, reason="tensorboardX is not installed"
)


@pytest.fixture
def recorder():
    recorder = sf.Recorder()
    for step in range(3):
        sf.multiply([1e-7, 1e5, 3.0, 0.0], [1e-7, 1e5, 1.0, 1.0], sf.FP16, observer=recorder)
        if step:
            sf.add([1.0, 2.0], [1e-9, 1.0], sf.FP16, observer=recorder)
        recorder.step(loss=0.5 / (step + 1), scale=np.float32(8), **({"norm": np.inf} if step == 1 else {"norm": 2.0}))
    return recorder


def read(folder):
    """The scalars and histograms that TensorBoard shows, by tag."""
    found = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = found.EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0}).Reload()
    scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return scalars, {tag: events.Histograms(tag) for tag in events.Tags()["histograms"]}


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard|google")


@is_written
def test_scalars_are_numbers_of_steps_and_shares_of_results_by_phase_and_path(recorder, tmp_path):
    recorder.to_tensorboard(tmp_path / "made" / "runs")
    scalars, _ = read(tmp_path / "made" / "runs")
    assert scalars["training/loss"] == [(0, 0.5), (1, 0.25), (2, pytest.approx(0.5 / 3))]
    assert scalars["training/scale"] == [(0, 8), (1, 8), (2, 8)]
    assert scalars["training/norm"] == [(0, 2), (2, 2)], "what is not finite leaves a gap"
    assert scalars["underflow/forward/-"] == [(0, 0.25), (1, pytest.approx(1 / 6)), (2, pytest.approx(1 / 6))]
    assert scalars["unchanged/forward/-"] == [(0, 0), (1, pytest.approx(1 / 6)), (2, pytest.approx(1 / 6))]
    assert {tag.split("/")[0] for tag in scalars} == {"training", "underflow", "overflow", "unchanged"}


@is_written
def test_histograms_have_a_bucket_for_each_binade(recorder, tmp_path):
    recorder.to_tensorboard(tmp_path)
    _, histograms = read(tmp_path)
    ((tag, (event,)),) = histograms.items()
    value, want = event.histogram_value, recorder.histogram()
    assert tag == "exponents/forward/-" and event.step == 2
    found = {int(end) - 1: int(n) for end, n in zip(value.bucket_limit, value.bucket, strict=True) if n}
    assert found == {exponent: n for exponent, n in want.items() if exponent != "zero"}
    assert value.num == sum(found.values()) and value.min == min(found) and value.max == max(found) + 1


@is_written
def test_without_steps_all_counts_are_those_of_one(tmp_path):
    recorder = sf.Recorder()
    sf.round([1e9, 1.0], sf.FP16, observer=recorder)
    recorder.to_tensorboard(str(tmp_path))
    scalars, histograms = read(tmp_path)
    assert scalars == {"overflow/forward/-": [(0, 0.5)]} and len(histograms) == 1


@is_written
def test_a_recorder_that_saw_nothing_writes_a_file_without_events(tmp_path):
    sf.Recorder().to_tensorboard(tmp_path)
    assert read(tmp_path) == ({}, {})


@is_written
def test_an_invalid_folder_is_refused(recorder, tmp_path):
    with pytest.raises(ValueError, match="to_tensorboard takes a path, text or a pathlib.Path, got 3"):
        recorder.to_tensorboard(3)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        recorder.to_tensorboard(tmp_path / "file")


def test_without_tensorboardx_the_extra_is_named():
    code = "import sys; sys.modules['tensorboardX'] = None\nimport simfloat as sf\nsf.Recorder().to_tensorboard('runs')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: Event files for TensorBoard need tensorboardX: pip install 'simfloat[tensorboard]'."
    )
