"""The recorder: events of single calls against NumPy, and events of training by path and phase."""

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.events import EVENTS

COUNTS = ["total", "overflow", "underflow", "subnormal", "nan", "unchanged"]


def counts(call):
    recorder = sf.Recorder()
    call(recorder)
    return recorder.counts()


@pytest.mark.parametrize(
    "rounding", [sf.nearest_even, sf.toward_zero, sf.toward_positive.saturating(), sf.to_odd], ids=repr
)
@pytest.mark.parametrize("format", [sf.FP16, sf.E4M3, sf.E2M1, sf.E4M3FNUZ], ids=str)
def test_events_of_rounding(format, rounding, rng):
    x = rng.standard_normal(40_000) * 2.0 ** rng.integers(-35, 20, 40_000)
    recorder = sf.Recorder()
    y = sf.round(x, format, rounding, observer=recorder)
    # The same format with a larger exponent range says what would have been chosen without an upper bound.
    wide = sf.Format(format.exponent_bits + 3, format.mantissa_bits, bias=format.bias)
    unbounded = sf.round(x, wide, rounding)
    nonzero = np.isfinite(y) & (y != 0)
    assert recorder.counts() == {
        "total": x.size,
        "overflow": int((np.abs(unbounded) > format.max).sum()),
        "underflow": int(((y == 0) & (x != 0)).sum()),
        "subnormal": int((nonzero & (np.abs(y) < format.smallest_normal)).sum()),
        "nan": int(np.isnan(y).sum()),
        "unchanged": 0,
    }
    exponents, occurrences = np.unique(np.floor(np.log2(np.abs(y[nonzero]))).astype(int), return_counts=True)
    want = dict(zip(exponents.tolist(), occurrences.tolist(), strict=True))
    assert recorder.histogram() == {**want, "zero": int((y == 0).sum())}


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


def test_results_do_not_depend_on_being_observed(rng):
    x, y = rng.standard_normal((2, 1000))
    for rounding in (sf.nearest_even, sf.stochastic()):
        plain = sf.multiply(x, y, sf.FP16, rounding, stream=sf.BitStream(0))
        seen = sf.multiply(x, y, sf.FP16, rounding, stream=sf.BitStream(0), observer=sf.Recorder())
        assert (plain == seen).all()


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
            before = model.head.weight.data.copy()
            optimizer.step()
            lost += int((model.head.weight.data == before).sum())
    return recorder, lost


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


def test_moved_parameters_count_their_gradient_once():
    recorder = sf.Recorder()
    w = sf.Parameter(np.ones((2, 3)))
    w.name = "w"
    with sf.simulate("bf16-standard", observer=recorder):
        (w.T.reshape(6)[1:] * 2.0).sum().backward()
    assert recorder.counts("w", "backward")["total"] == 6
    assert w.grad.tolist() == [[0.0, 2.0, 2.0], [2.0, 2.0, 2.0]]


def test_a_parameter_used_twice_counts_its_gradient_once():
    recorder = sf.Recorder()

    class Twice(sf.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = sf.nn.Linear(3, 3, rng=0)

        def forward(self, x):
            return self.layer(self.layer(x))

    model = Twice()
    with sf.simulate("bf16-standard", observer=recorder):
        model(np.ones((2, 3))).sum().backward()
    assert recorder.counts("layer.weight", "backward")["total"] == 9
    assert recorder.counts("layer.bias", "backward")["total"] == 3


def test_events_are_copied_not_kept():
    recorder = sf.Recorder()
    events = np.arange(EVENTS)
    for _ in range(2):
        recorder.observe(events, "add")
    assert (events == np.arange(EVENTS)).all()
    events[:] = 0
    assert recorder.counts()["overflow"] == 2


def test_nothing_seen_is_zero_everywhere():
    recorder = sf.Recorder()
    assert recorder.counts("head", "update") == dict.fromkeys(COUNTS, 0)
    assert recorder.histogram("head") == {"zero": 0}
    assert repr(recorder) == "Recorder()" and recorder.table().split() == ["path", "operation", "phase", *COUNTS]
    sf.add([1.0], [1.0], sf.BF16, observer=recorder)
    assert recorder.counts("", "update") == dict.fromkeys(COUNTS, 0), "a phase without events is no mistake"
    assert recorder.counts("*", "forward")["total"] == 1 and repr(recorder) == recorder.table()
    recorder.reset()
    assert recorder.counts("head") == dict.fromkeys(COUNTS, 0)
    assert repr(sf.Recorder("*.weight", "update")) == "Recorder(path='*.weight', phase='update')"


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda r: r.counts(phase="forwards"), "Unknown phase 'forwards'. Phases: .*Did you mean 'forward'"),
        (lambda r: r.histogram(phase="fwd"), "Unknown phase 'fwd'. Phases: forward, backward, update"),
        (lambda r: sf.Recorder(phase="updates"), "Unknown phase 'updates'.*Did you mean 'update'"),
        (lambda r: r.counts("hiden.*"), r"path 'hiden.\*' matches nothing that was seen. Did you mean 'hidden.0"),
        (lambda r: r.histogram("haed", "update"), "path 'haed' .* Did you mean 'head'.* Seen: hidden.0"),
        (lambda r: r.counts(3), r"path must be a text, such as 'hidden.\*', got 3"),
        (lambda r: sf.Recorder(path=["head"]), r"path must be a text, .* got \['head'\]"),
        (lambda r: sf.add(1.0, 1.0, sf.FP16, observer=sf.Recorder), "an object with a method observe"),
        (lambda r: r.counts(operation="liner"), "operation 'liner' .* Did you mean 'linear'"),
    ],
)
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
    recorder.observe(np.zeros(EVENTS, np.int64), "add", "größe")
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
    """Wants one place and phase, and hears of no other."""

    def __init__(self, path, phase):
        self.wanted, self.heard = (path, phase), 0

    def wants(self, path, phase):
        return (path, phase) == self.wanted

    def observe(self, events, operation, path="", phase="forward"):
        assert (path, phase) == self.wanted
        self.heard += 1


@pytest.mark.parametrize("path, phase", [("head", "forward"), ("head.weight", "backward"), ("head.weight", "update")])
def test_what_an_observer_does_not_want_is_not_counted_for_it(path, phase):
    observer = Picky(path, phase)
    model = sf.nn.MLP([3, 4, 2], rng=0)
    optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with sf.simulate("bf16-kahan", observer=observer):
        sf.nn.cross_entropy(model(np.ones((2, 3))), [0, 1]).backward()
        optimizer.step()
    assert observer.heard


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


def more(call):
    recorder = sf.Recorder(more=True)
    result = call(recorder)
    return recorder.counts(more=True), result


@pytest.mark.parametrize(
    "rounding", [sf.nearest_even, sf.toward_zero, sf.toward_positive.saturating(), sf.to_odd, sf.stochastic()], ids=repr
)
@pytest.mark.parametrize("format", [sf.FP16, sf.E4M3, sf.E2M1, sf.E4M3FNUZ], ids=str)
def test_saturated_and_inexact_results_are_counted_if_asked_for(format, rounding, rng):
    x = rng.standard_normal(70_000) * 2.0 ** rng.integers(-35, 20, 70_000)
    x[:3] = np.inf, -np.inf, format.max
    if format.has_nan:
        x[3] = np.nan
    seen, y = more(lambda r: sf.round(x, format, rounding, stream=sf.BitStream(0), observer=r))
    wide = sf.Format(format.exponent_bits + 3, format.mantissa_bits, bias=format.bias)
    unbounded = sf.round(x, wide, rounding, stream=sf.BitStream(0))
    assert seen["saturated"] == int(((np.abs(unbounded) > format.max) & (np.abs(y) == format.max)).sum())
    assert seen["inexact"] == int(((x != y) & ~np.isnan(y)).sum()) > 1000
    plain, again = sf.Recorder(), sf.round(x, format, rounding, stream=sf.BitStream(0))
    sf.round(x, format, rounding, stream=sf.BitStream(0), observer=plain)
    assert (again == y)[~np.isnan(y)].all() and {kind: seen[kind] for kind in COUNTS} == plain.counts()


def test_results_are_inexact_where_the_exact_ones_have_more_bits_than_float64_holds():
    cases = [
        (lambda r: sf.add([1.0, 1.0], [2.0**-90, 2.0**-10], sf.FP16, observer=r), 1),
        (lambda r: sf.multiply(np.float32([3, 1.1]), np.float32([5, 1.1]), sf.FP32, observer=r), 1),
        (lambda r: sf.divide([1.0, 1.0], [3.0, 4.0], sf.BF16, observer=r), 1),
        (lambda r: sf.sqrt([2.0, 4.0, -1.0], sf.FP32, observer=r), 1),
        (lambda r: sf.exp([0.0, 1e-20], sf.FP32, observer=r), 1),
        (lambda r: sf.dot([3.0, 3.0], [683.5, 683.0], accumulate=sf.FP32, output=sf.FP16, observer=r), 1),
    ]
    for call, inexact in cases:
        assert more(call)[0]["inexact"] == inexact


def test_a_whole_training_counts_more_at_the_same_places():
    def trained(recorder):
        model = sf.nn.MLP([3, 4, 2], rng=0)
        optimizer = sf.optim.Adam(model.parameters(), lr=1e-2)
        x, y = np.random.default_rng(0).standard_normal((8, 3)), np.arange(8) % 2
        with sf.simulate(sf.policies["fp8-hybrid"], observer=recorder):
            for _ in range(3):
                optimizer.zero_grad()
                sf.nn.cross_entropy(model(x), y).backward()
                optimizer.step()
        return recorder

    plain, full = trained(sf.Recorder()), trained(sf.Recorder(more=True))
    assert [key for key, _ in plain.entries()] == [key for key, _ in full.entries()]
    for key, _ in plain.entries():
        found = full.counts(key.path, key.phase, operation=key.operation, more=True)
        assert list(found) == [*COUNTS, "saturated", "inexact"] and found["inexact"] <= found["total"]
        assert plain.counts(key.path, key.phase, operation=key.operation) == {kind: found[kind] for kind in COUNTS}
    assert full.histogram() == plain.histogram()
    for operation in ("cast_input", "cast_gradient", "linear", "moment", "update"):
        assert full.counts(operation=operation, more=True)["inexact"] > 0, operation


def test_what_was_counted_besides_is_written_too(tmp_path):
    recorder = sf.Recorder(more=True)
    sf.round([1e9, 0.1, 1.0], sf.FP16, sf.toward_zero, observer=recorder)
    head, row = (line.split() for line in recorder.table().splitlines())
    assert dict(zip(head[-2:], row[-2:], strict=True)) == {"saturated": "1", "inexact": "2"}
    recorder.to_jsonl(tmp_path / "events.jsonl")
    entry = json.loads((tmp_path / "events.jsonl").read_text("utf-8"))
    assert (entry["saturated"], entry["inexact"]) == (1, 2)
    recorder.to_csv(tmp_path / "events.csv")
    assert (tmp_path / "events.csv").read_text("utf-8").splitlines()[0].endswith("unchanged,saturated,inexact,zero")
    assert repr(sf.Recorder(more=True)) == "Recorder(more=True)"
    assert copy.deepcopy(recorder).counts(more=True) == recorder.counts(more=True)


def test_vectors_of_either_length_are_taken():
    full, plain = sf.Recorder(more=True), sf.Recorder()
    for recorder in (full, plain):
        for size in (EVENTS, EVENTS + 2, EVENTS):
            recorder.observe(np.ones(size, np.int64), "add")
    assert full.counts(more=True) == {**plain.counts(), "saturated": 1, "inexact": 1}
    assert plain.counts() == dict.fromkeys(COUNTS, 3) and full.histogram() == plain.histogram()


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda: sf.Recorder(more=1), "more must be True or False, got 1"),
        (lambda: sf.Recorder().counts(more=True), r"saturated, inexact are counted by simfloat.Recorder\(more=True\)"),
        (
            lambda: more(lambda r: sf.add([1.0], [1e-20], sf.FP64, observer=r)),
            "Which results of add are inexact cannot be told in FP64; .* Count without more=True",
        ),
        (lambda: more(lambda r: sf.add([1.0], [1.0], sf.Format(11, 49), observer=r)), "cannot be told in e11m49"),
    ],
)
def test_more_that_cannot_be_counted_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
