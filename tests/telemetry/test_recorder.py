"""The recorder: events of single calls, compared with NumPy, and events of training by path and phase."""

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.rounding.events import SIZE

COUNTS = ["total", "overflow", "underflow", "subnormal", "nan", "unchanged"]


def counts(call):
    recorder = sf.Recorder()
    call(recorder)
    return recorder.counts()


def test_infinities_and_nan_are_not_overflow():
    assert counts(lambda r: sf.round([np.inf, np.nan, 1e9], sf.FP16, observer=r))["overflow"] == 1
    assert counts(lambda r: sf.divide([1.0], [0.0], sf.FP16, observer=r))["overflow"] == 0
    assert counts(lambda r: sf.multiply([1e300], [1e300], sf.FP64, observer=r))["overflow"] == 1
    assert counts(lambda r: sf.multiply([1e-300], [1e-300], sf.FP32, observer=r))["underflow"] == 1
    assert counts(lambda r: sf.multiply(np.float32([1e30]), np.float32([1e30]), sf.FP32, observer=r))["overflow"] == 1


def test_unchanged_counts_addends_that_were_lost():
    w, u = np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.5 * 2.0**-9, 2.0**-7, 0.0, 0.0])
    assert counts(lambda r: sf.add(w, u, sf.BF16, observer=r))["unchanged"] == 1
    assert counts(lambda r: sf.subtract(w, u, sf.BF16, observer=r))["unchanged"] == 0, "half a gap below one is less"


@pytest.mark.parametrize("format", [sf.BF16, sf.FP32, sf.FP64, sf.E4M3], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_lost_operand_of_an_fma_is_counted(format, dtype, rng):
    exponents = rng.integers(-8 - format.precision, 2, (3, 3000))
    a, b, c = sf.round(rng.standard_normal((3, 3000)) * 2.0**exponents, format).astype(dtype)
    b[::3], c[::5], a[::7] = 1, 0, 0
    recorder = sf.Recorder()
    y = sf.fma(a, b, c, format, observer=recorder)
    lost = sum(
        (after == c and a * b != 0) or (after == a * b and c != 0)
        for a, b, c, after in (map(Fraction, map(float, each)) for each in zip(a, b, c, y, strict=True))
    )
    assert recorder.counts()["unchanged"] == lost > 0


class Own(sf.Recorder):
    """A program's own class, which receives the events of each call."""


@pytest.mark.parametrize("more", [False, True])
def test_counts_that_are_added_at_once_are_those_of_each_call(more):
    x = np.array([0, -0.0, 1, 1e-45, 3e38, np.inf, np.nan, 70000, -1e-9, 2.5, 1e-5, 448], np.float32)
    own, ours = Own(more=more), sf.Recorder(more=more)
    for recorder in (own, ours):
        for numbers in (x[2:3], x[:3], x[[2, 3, 8]], x[7:], x):
            for format in (sf.FP16, sf.E4M3, sf.BF16):
                sf.round(numbers, format, observer=recorder)
                sf.add(numbers, numbers[::-1], format, observer=recorder)
            sf.matmul(numbers, numbers[:, None], inputs=sf.FP16, accumulate=sf.FP32, observer=recorder)
    assert own.first_nan == ours.first_nan is not None
    for (key, events), (name, others) in zip(own.entries(), ours.entries(), strict=True):
        assert key == name and events.tolist() == others.tolist()


def test_sums_count_their_results():
    assert counts(lambda r: sf.matmul(np.ones((3, 4)), np.ones((4, 5)), accumulate=sf.FP16, observer=r))["total"] == 15
    result = counts(lambda r: sf.dot([300.0], [300.0], accumulate=sf.FP32, output=sf.FP16, observer=r))
    assert result["overflow"] == 1 and result["total"] == 1


@pytest.fixture
def trained():
    recorder = sf.Recorder()
    model = sf.nn.MLP([3, 4, 2], rng=0)
    optimizer = sf.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, y = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 2
    before = None
    lost = 0
    with sf.simulate("bf16-standard", observer=recorder):
        for _ in range(5):
            optimizer.zero_grad()
            sf.nn.cross_entropy(model(x), y).backward()
            before = sf.round(model.head.weight.data, sf.BF16)
            optimizer.step()
            lost += int((model.head.weight.data == before).sum())
    return recorder, lost


def test_every_exponent_is_counted_in_arrays_of_every_size(rng):
    """Few results, many with few exponents and many with many exponents are counted by different loops."""
    for size in (1, 127, 128, 513, 1025, 5000):
        normal, wide = rng.standard_normal(size), np.exp2(rng.uniform(-140.0, 120.0, size))
        for numbers in (normal, normal**2, np.maximum(normal, 0.0), wide, np.append(wide, [np.inf, np.nan])):
            for dtype, format in ((np.float32, sf.FP32), (np.float64, sf.FP64)):
                recorder, x = sf.Recorder(), numbers.astype(dtype)
                sf.round(x, format, observer=recorder)
                finite = x[np.isfinite(x) & (x != 0)]
                exponents, counts = np.unique(np.frexp(finite)[1] - 1, return_counts=True)
                wanted = dict(zip(exponents.tolist(), counts.tolist(), strict=True)) | {"zero": (x == 0).sum()}
                assert recorder.histogram() == wanted, (size, dtype)


def test_a_parameters_path_holds_its_gradient_and_its_update(trained):
    recorder, lost = trained
    for path, size in (("hidden.0.weight", 12), ("hidden.0.bias", 4), ("head.weight", 8), ("head.bias", 2)):
        assert recorder.counts(path, "backward")["total"] == 5 * size
        assert recorder.counts(path, "update")["total"] == 5 * size
    assert recorder.counts("head.weight", "update")["unchanged"] == lost > 0


def test_counts_sum_over_what_matches(trained):
    recorder, _ = trained
    total = recorder.counts()
    assert list(total) == COUNTS
    phases = [recorder.counts(phase=phase) for phase in ("forward", "backward", "update")]
    assert {k: sum(p[k] for p in phases) for k in COUNTS} == total
    assert recorder.counts("hidden.*")["total"] > recorder.counts("hidden.0")["total"] > 0
    assert recorder.counts(operation="linear")["total"] < recorder.counts(operation="l*")["total"]


def test_table_and_jsonl_tell_the_same(trained, tmp_path):
    recorder, _ = trained
    recorder.to_jsonl(tmp_path / "events.jsonl")
    entries = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text("utf-8").splitlines()]
    rows = recorder.table().splitlines()
    assert len(rows) == len(entries) + 1 and rows[0].split() == ["path", "operation", "phase", *COUNTS]
    for row, entry in zip(rows[1:], entries, strict=True):
        path, operation, phase, total, *_ = row.split()
        assert (path, operation, phase) == (entry["path"] or "-", entry["operation"], entry["phase"])
        assert int(total) == entry["total"] == sum(entry["histogram"].values()) + entry["zero"] + entry["nan"]


def test_a_table_may_show_only_what_matches(trained):
    recorder, _ = trained
    head, *rows = recorder.table().rows
    assert recorder.table("*.weight", "update", operation="u*").rows == (
        head, *(row for row in rows if row[0].endswith(".weight") and row[1:3] == ("update", "update"))
    )  # fmt: skip
    for kind in COUNTS:
        assert recorder.table(kind=kind).rows == (head, *(row for row in rows if row[head.index(kind)] != "0"))
    assert len(recorder.table(phase="backward", kind="unchanged").rows) < len(recorder.table(phase="backward").rows)


def test_a_recorder_may_count_only_what_matches(trained):
    everything, _ = trained
    for path, phase in (("*.weight", None), (None, "update"), ("head.weight", "backward"), ("head", "forward")):
        recorder = sf.Recorder(path=path, phase=phase)
        model = sf.nn.MLP([3, 4, 2], rng=0)
        optimizer = sf.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        x, y = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 2
        with sf.simulate("bf16-standard", observer=recorder):
            for _ in range(5):
                optimizer.zero_grad()
                sf.nn.cross_entropy(model(x), y).backward()
                optimizer.step()
        assert recorder.counts() == everything.counts(path, phase)
        assert recorder.counts()["total"] > 0


def test_events_are_copied_not_kept():
    recorder = sf.Recorder()
    events = np.arange(SIZE)
    for _ in range(2):
        recorder.observe(events, "add")
    assert (events == np.arange(SIZE)).all()
    events[:] = 0
    assert recorder.counts()["overflow"] == 2


def test_nothing_seen_is_zero_everywhere():
    recorder = sf.Recorder()
    assert recorder.counts("head", "update") == dict.fromkeys(COUNTS, 0)
    assert recorder.histogram("head") == {"zero": 0}
    assert repr(recorder) == "Recorder()" and recorder.table().split() == ["path", "operation", "phase", *COUNTS]
    sf.add([1.0], [1.0], sf.BF16, observer=recorder)
    assert recorder.counts("", "update") == dict.fromkeys(COUNTS, 0), "a phase without events is no mistake"
    assert len(recorder.table(phase="update").rows) == 1
    assert recorder.counts("*", "forward")["total"] == 1 and repr(recorder) == recorder.table()
    recorder.reset()
    assert recorder.counts("head") == dict.fromkeys(COUNTS, 0)
    assert repr(sf.Recorder("*.weight", "update")) == "Recorder(path='*.weight', phase='update')"


@pytest.mark.parametrize("ask, message", [
    (lambda r: r.counts(phase="forwards"), "Unknown phase 'forwards'. Phases: .*Did you mean 'forward'"),
    (lambda r: r.histogram(phase="fwd"), "Unknown phase 'fwd'. Phases: forward, backward, update"),
    (lambda r: sf.Recorder(phase="updates"), "Unknown phase 'updates'.*Did you mean 'update'"),
    (lambda r: r.counts("backward"), "matches nothing that was seen. 'backward' is a phase: pass phase='backward'"),
    (lambda r: r.counts("hiden.*"), r"path 'hiden.\*' matches nothing that was seen. Did you mean 'hidden.0"),
    (lambda r: r.histogram("haed", "update"), "path 'haed' .* Did you mean 'head'.* Seen: hidden.0"),
    (lambda r: r.counts(3), r"path must be a text, such as 'hidden.\*', got 3"),
    (lambda r: sf.Recorder(path=["head"]), r"path must be a text, .* got \['head'\]"),
    (lambda r: sf.add(1.0, 1.0, sf.FP16, observer=sf.Recorder), "an object with a method observe"),
    (lambda r: r.counts(operation="liner"), "operation 'liner' .* Did you mean 'linear'"),
    (lambda r: r.table("haed"), "path 'haed' .* Did you mean 'head'"),
    (lambda r: r.table("head*", operation="rel?"), r"^path 'head\*' and operation 'rel\?' match no row together: path "
     r"'head\*' matches rows with operation .*linear.*; operation 'rel\?' matches rows with path hidden.0\.$"),
    (lambda r: r.table("head", "update"), "path 'head' matches rows with phase .*; phase 'update' matches rows"),
    (lambda r: r.table(kind="overflows"), "Unknown kind 'overflows'. Kinds: total, .*Did you mean 'overflow'"),
    (lambda r: r.table(kind="inexact"), r"Only simfloat.Recorder\(more=True\) counts saturated, inexact"),
])  # fmt: skip
def test_questions_that_match_nothing_are_refused(trained, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(trained[0])


def test_threads_may_share_a_recorder():
    recorder, x = sf.Recorder(), np.ones(1000)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: sf.add(x, x, sf.BF16, observer=recorder), range(400)))
    assert recorder.counts()["total"] == 400_000


@pytest.mark.parametrize("again", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))], ids=["copy", "pickle"])
def test_a_copy_counts_on_its_own(again):
    recorder = sf.Recorder(path="")
    sf.add([1.0], [1.0], sf.BF16, observer=recorder)
    twin = again(recorder)
    sf.add([1.0], [1.0], sf.BF16, observer=twin)
    assert (recorder.counts()["total"], twin.counts()["total"]) == (1, 2)
    assert not twin.wants("head", "forward")


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    recorder = sf.Recorder()
    recorder.observe(np.zeros(SIZE, np.int64), "add", "größe")
    file = tmp_path / "events.jsonl"
    recorder.to_jsonl(file)
    before = file.read_bytes()
    assert json.loads(before.decode("utf-8"))["path"] == "größe" and b"\r" not in before

    def full(*_):
        raise OSError("no space left")

    link = tmp_path / "link"
    link.symlink_to(file)
    recorder.to_jsonl(link)
    assert link.is_symlink() and file.read_bytes() == before
    link.unlink()
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space left"):
        sf.Recorder().to_jsonl(file)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]
    with pytest.raises(ValueError, match="to_jsonl takes a path, text or a pathlib.Path, got 3"):
        sf.Recorder().to_jsonl(3)


# What was not applied in one step is gone, left to chance, or kept: all three are counted alike.
@pytest.mark.parametrize("update", ["nearest", "stochastic", "kahan"])
def test_unchanged_of_an_update_counts_lost_updates_in_this_step(update):
    recorder, u = sf.Recorder(phase="update"), 2.0**-10
    w = sf.Parameter(np.ones(1000, np.float32))
    w.name = "w"
    w.grad = np.full(1000, -1.0)
    with sf.simulate(sf.Policy(compute=sf.BF16, update=update), observer=recorder):
        sf.optim.SGD([w], lr=u).step()
    assert recorder.counts("w", operation="update")["unchanged"] == int((w.data == 1).sum()) > 0


def test_an_update_that_replaces_a_tiny_weight_is_not_lost():
    recorder = sf.Recorder()
    w = sf.Parameter(np.float32([2.0**-60]))
    w.name, w.grad = "w", np.array([-1.0])
    with sf.simulate("bf16-standard", observer=recorder):
        sf.optim.SGD([w], lr=1.0).step()
    assert w.data[0] == 1 and recorder.counts("w")["unchanged"] == 0


class Picky(sf.Observer):
    """Wants one place and phase, and receives the events of no other."""

    def __init__(self, path, phase):
        self.wanted, self.received = (path, phase), 0

    def wants(self, path, phase):
        return (path, phase) == self.wanted

    def observe(self, events, operation, path="", phase="forward"):
        assert (path, phase) == self.wanted
        self.received += 1


@pytest.mark.parametrize("path, phase", [("head", "forward"), ("head.weight", "backward"), ("head.weight", "update")])
def test_events_that_an_observer_does_not_want_are_not_counted(path, phase):
    observer = Picky(path, phase)
    model = sf.nn.MLP([3, 4, 2], rng=0)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with sf.simulate("bf16-kahan", observer=observer):
        sf.nn.cross_entropy(model(np.ones((2, 3))), [0, 1]).backward()
        optimizer.step()
    assert observer.received


def test_casts_of_operands_are_counted_at_their_layer():
    recorder, model = sf.Recorder(), sf.nn.MLP([3, 4, 2], rng=0)
    policy = sf.Policy(compute=sf.E2M3, compute_gradients=sf.E2M1, weights=sf.FP32, activations=sf.FP32)
    model.head.weight.data = np.where(np.arange(8).reshape(2, 4) == 5, 1e-4, 1.0)
    with sf.simulate(policy, observer=recorder):
        sf.nn.cross_entropy(model(np.full((5, 3), 1000.0)), [0, 1, 0, 1, 0]).backward()

    def count(kind, path, phase, operation):
        return recorder.counts(path, phase, operation=operation)[kind]

    assert count("overflow", "hidden.0", "forward", "cast_input") == 5 * 3, "inputs of 1000 become 7.5"
    assert count("underflow", "head", "forward", "cast_weight") == 1, "a weight of 1e-4 becomes 0"
    for path, outputs, inputs in (("hidden.0", 4, 3), ("head", 2, 4)):
        assert count("total", path, "forward", "cast_input") == 5 * inputs
        assert count("total", path, "forward", "cast_weight") == outputs * inputs
        assert count("total", path, "backward", "cast_gradient") % (5 * outputs) == 0
    assert count("total", "head", "backward", "cast_gradient") == 2 * 5 * 2, "towards the input and towards the weight"
    assert not {key.operation for key, _ in recorder.entries() if key.path.endswith("weight")} & {"cast_weight"}


def test_lost_updates_are_the_share_of_final_additions_whatever_else_runs_in_the_phase():
    model, recorder = sf.nn.MLP([4, 8, 1], rng=0), sf.Recorder()
    assert recorder.lost_updates() == 0.0, "nothing was counted"
    optimizer = sf.optim.AdamW(model.parameters(), lr=1e-3)
    x = np.random.default_rng(0).standard_normal((16, 4))
    with sf.simulate("bf16-standard", observer=recorder):
        for _ in range(5):
            optimizer.zero_grad()
            sf.nn.mse_loss(model(x), x[:, :1]).backward()
            optimizer.step()
    last, phase = sf.Recorder(), recorder.counts(phase="update")
    assert 0 < recorder.lost_updates() != phase["unchanged"] / phase["total"]
    counts = recorder.counts("head.weight", operation="update")
    assert recorder.lost_updates("head.weight") == counts["unchanged"] / counts["total"] and counts["total"] == 5 * 8
    with pytest.raises(ValueError, match="path 'haed.*' matches nothing"):
        recorder.lost_updates("haed.*")
    with sf.simulate("bf16-standard", observer=last):
        model(x)
    with pytest.raises(ValueError, match="operation 'update' matches nothing"):
        last.lost_updates()


def recorded(*values):
    recorder = sf.Recorder()
    for each in values:
        sf.round(each, sf.FP16, observer=recorder)
    return recorder


def test_shares_that_differ_have_a_row_the_largest_first():
    this, other = recorded([1e5, 1.0, 1.0, 1e-9]), recorded([1.0, 1.0, 1e-9, 1e-9])
    assert this.diff(other).rows[1:] == (
        ("-", "round", "forward", "overflow", "1", "0", "25 %", "0 %"),
        ("-", "round", "forward", "underflow", "1", "2", "25 %", "50 %"),
    )


def test_longer_runs_with_the_same_shares_do_not_differ():
    assert len(recorded([1e5, 1.0]).diff(recorded([1e5, 1.0, 1e6, 2.0])).rows) == 1


def test_places_that_one_did_not_see_are_named():
    this = recorded([1.0])
    sf.add([1.0], [1.0], sf.FP16, observer=this)
    assert this.diff(recorded([1.0])).rows[1:] == (("-", "add", "forward", "total", "1", "0", "100 %", "0 %"),)


def test_other_things_are_refused():
    with pytest.raises(ValueError, match="diff takes another Recorder, got a dict"):
        sf.Recorder().diff({})


def test_the_gradient_at_the_output_of_a_layer_is_counted_by_each_product_that_reads_it():
    recorder, model = sf.Recorder(), sf.nn.MLP([3, 4, 2], rng=0)
    with sf.simulate("fp32", observer=recorder):
        (model(np.ones((5, 3))) * 2.0**-9).sum().backward()
    assert recorder.histogram("head", "backward", operation="cast_gradient") == {-9: 2 * 5 * 2, "zero": 0}
    assert recorder.counts("hidden.0", "backward", operation="cast_gradient")["total"] == 5 * 4, "data need no gradient"
    assert recorder.counts("head", "backward", operation="linear")["total"] == 5 * 4, "the gradient of its input"


def test_a_path_without_the_operation_has_no_counts_and_says_so():
    recorder, model = sf.Recorder(), sf.nn.MLP([3, 4, 2], rng=0)
    with sf.simulate("fp32", observer=recorder):
        model(np.ones((5, 3)))
    words = r"All counts are 0: path 'head' and operation 'relu' match no row together: .*cast_weight, linear, add"
    for read in (recorder.counts, recorder.histogram, recorder.series):
        with pytest.warns(UserWarning, match=words):
            found = read("head", operation="relu")
        assert not any(np.any(value) for value in found.values())
    # A place without results in a phase is no contradiction.
    assert recorder.counts("head", "backward", operation="linear")["total"] == 0
