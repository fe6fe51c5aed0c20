"""Optional counts of a recorder: results that a saturating mode clamped, and inexact results."""

import copy
import json

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.rounding.events import SIZE

COUNTS = ["total", "overflow", "underflow", "subnormal", "nan", "unchanged"]


def more(call):
    recorder = sf.Recorder(more=True)
    result = call(recorder)
    return recorder.counts(more=True), result


@pytest.mark.parametrize(
    "rounding", [sf.nearest_even, sf.toward_zero, sf.toward_positive.saturating(), sf.to_odd, sf.stochastic()], ids=repr
)
@pytest.mark.parametrize("format", [sf.FP16, sf.E4M3, sf.E2M1, sf.E4M3FNUZ], ids=str)
def test_events_are_those_of_the_results_and_saturated_and_inexact_ones_are_counted_if_asked_for(format, rounding, rng):
    x = rng.standard_normal(70_000) * 2.0 ** rng.integers(-35, 20, 70_000)
    x[:3] = np.inf, -np.inf, format.max
    if format.has_nan:
        x[3] = np.nan
    seen, y = more(lambda r: sf.round(x, format, rounding, stream=sf.BitStream(0), observer=r))
    wide = sf.Format(format.exponent_bits + 3, format.mantissa_bits, bias=format.bias)
    unbounded = sf.round(x, wide, rounding, stream=sf.BitStream(0))
    nonzero = np.isfinite(y) & (y != 0)
    assert {kind: seen[kind] for kind in COUNTS} == {
        "total": x.size,
        "overflow": int(((np.abs(unbounded) > format.max) & np.isfinite(x)).sum()),
        "underflow": int(((y == 0) & (x != 0)).sum()),
        "subnormal": int((nonzero & (np.abs(y) < format.smallest_normal)).sum()),
        "nan": int(np.isnan(y).sum()),
        "unchanged": 0,
    }
    assert seen["saturated"] == int(((np.abs(unbounded) > format.max) & (np.abs(y) == format.max)).sum())
    assert seen["inexact"] == int(((x != y) & ~np.isnan(y)).sum()) > 1000
    plain, again = sf.Recorder(), sf.round(x, format, rounding, stream=sf.BitStream(0))
    sf.round(x, format, rounding, stream=sf.BitStream(0), observer=plain)
    assert (again == y)[~np.isnan(y)].all() and {kind: seen[kind] for kind in COUNTS} == plain.counts()
    exponents, occurrences = np.unique(np.floor(np.log2(np.abs(y[nonzero]))).astype(int), return_counts=True)
    want = dict(zip(exponents.tolist(), occurrences.tolist(), strict=True))
    assert plain.histogram() == {**want, "zero": int((y == 0).sum())}


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


def test_optional_counts_are_written_as_well(tmp_path):
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
        for size in (SIZE, SIZE + 2, SIZE):
            recorder.observe(np.ones(size, np.int64), "add")
    assert full.counts(more=True) == {**plain.counts(), "saturated": 1, "inexact": 1}
    assert plain.counts() == dict.fromkeys(COUNTS, 3) and full.histogram() == plain.histogram()


@pytest.mark.parametrize("ask, message", [
    (lambda: sf.Recorder(more=1), "more must be True or False, got 1"),
    (lambda: sf.Recorder().counts(more=True), r"Only simfloat.Recorder\(more=True\) counts saturated"),
    (
        lambda: more(lambda r: sf.add([1.0], [1e-20], sf.FP64, observer=r)),
        "Inexact results of add cannot be detected in FP64, .* Count without more=True",
    ),
    (lambda: more(lambda r: sf.add([1.0], [1.0], sf.Format(11, 49), observer=r)), "cannot be detected in e11m49"),
])  # fmt: skip
def test_more_that_cannot_be_counted_is_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()
