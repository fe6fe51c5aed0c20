"""Advice: its rules on known counts and on models, the range of formats, and overrides that can be run."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.telemetry.advice import remedy
from simfloat.telemetry.entries import Key
from simfloat.telemetry.ranges import Binades, RangeCounts, count_in_range, format_binades


def recorded(x, format, phase="forward"):
    recorder, seen = sf.Recorder(), sf.Recorder()
    sf.round(np.asarray(x, np.float64), format, observer=seen)
    ((_, events),) = seen.entries()
    recorder.observe(events, "round", "layer", phase)
    return recorder


def advised(x, format=sf.FP16, told=None, phase="forward", **limits):
    return [(each.need, each.scale) for each in recorded(x, format, phase).advise(told, **limits)]


MANY, TINY, HUGE = [1.0] * 50, [2.0**-30] * 5, [1e6] * 5


FP16, WIDER, SOME_SCALE = {"told": sf.FP16}, [("a wider format", None)], [("a scale", None)]
SPARSE = [0.0] * 1000 + [1.0] * 99 + [2.0**-30]


@pytest.mark.parametrize("x, options, need", [
    (MANY, {}, []), (MANY, FP16, []),
    ([0.0, np.inf], FP16, []), ([np.nan], FP16, [("data without NaN", None)]),  # what was not finite before is not lost
    (MANY + TINY, {}, SOME_SCALE), (MANY + TINY, FP16, [("a scale", 2.0**15)]),  # 1 may become 2^15, and no more
    (MANY + HUGE, {}, SOME_SCALE), (MANY + HUGE, FP16, [("a scale", 0.5)]),
    (MANY + HUGE + [2.0**-20], {}, WIDER),  # a smaller scale would lose subnormals
    (MANY + TINY + HUGE, {}, WIDER), (MANY + TINY + HUGE, FP16, WIDER),
    ([*MANY, *TINY, 40000.0], FP16, WIDER),  # there is no room above
    (MANY + TINY, {"format": sf.FP32}, []), (MANY + TINY, {"format": sf.FP32, **FP16}, [("a scale", 2.0**15)]),
    (MANY + [2.0**-60] * 5, {"format": sf.FP32, **FP16}, WIDER),
    (MANY + HUGE, {"format": sf.FP32, **FP16}, [("a scale", 2.0**-4)]),  # 1e6 < 2^20 = 2^16 / 2^-4
    ([2.0**-900] * 9, {"format": sf.FP64, "told": sf.FP32}, [("a scale", 2.0**1023)]),  # 1027 would fit
    ([2.0**900] * 9, {"format": sf.FP64, "told": sf.E8M0}, [("a scale", 2.0**-773)]),
    (MANY + TINY, {"phase": "update", **FP16}, WIDER),
    (SPARSE, {}, []), (SPARSE, {"lost": 0.0099}, SOME_SCALE),  # shares of results that are not exactly zero
    ([*MANY, 1e6], {}, SOME_SCALE), ([*MANY, 1e6], {"overflow": 0.02}, []),
    (MANY + TINY + HUGE[:1], {}, WIDER), (MANY + TINY + HUGE[:1], {"overflow": 0.02}, SOME_SCALE),
    (MANY + TINY + HUGE[:1], FP16, WIDER), (MANY + TINY + HUGE[:1], {"overflow": 0.02, **FP16}, [("a scale", 2.0**15)]),
])  # fmt: skip
def test_results_lost_below_need_a_scale_beyond_a_smaller_one_and_on_both_sides_a_wider_format(x, options, need):
    assert advised(x, **options) == need


def test_sums_that_lose_their_addends_need_more_precision():
    recorder = sf.Recorder()
    sf.add(np.ones(4), [2.0**-20, 2.0**-20, 0.0, 1.0], sf.FP16, observer=recorder)
    (advice,) = recorder.advise()
    why, call = "50% of the sums lose their addend", "policy.override(operation='add', activations=sf.FP32)"
    assert advice == ("", "add", "forward", "more precision", 0.5, None, why, call)
    assert repr(recorder.advise()).splitlines()[1] == f"-     add        forward  more precision  {why}  {call}"
    assert "<td" in recorder.advise()._repr_html_()


def test_without_advice_it_says_so():
    advice = sf.Recorder().advise()
    assert advice == () and repr(advice).startswith("Nothing to advise") and "Nothing" in advice._repr_html_()


def gradients(scale, policy):
    recorder, model = sf.Recorder(phase="backward"), sf.nn.MLP([3, 4, 2], rng=0)
    x = np.random.default_rng(0).standard_normal((8, 3))
    with sf.simulate(policy, observer=recorder):
        (sf.nn.cross_entropy(model(x), np.arange(8) % 2) * scale).backward()
    return recorder


def test_gradients_known_to_underflow_are_named_and_the_scale_saves_them():
    fp16 = sf.Policy(compute=sf.FP16)
    recorder, after = gradients(2.0**-20, fp16), gradients(2.0**-20, "fp32")
    named = {each.path: each for each in recorder.advise(sf.FP16)}
    assert named["head.weight"].need == named["hidden.0.weight"].need == "a scale"
    counts, zeros = recorder.counts("head.weight"), recorder.histogram("head.weight")["zero"]
    share = counts["underflow"] / (counts["total"] - zeros + counts["underflow"])
    assert named["head.weight"].share == share > 0.01
    # The same is foretold by a run in FP32, with a scale that serves all.
    scale = min(each.scale for each in after.advise("fp16"))
    saved = gradients(2.0**-20 * scale, fp16)
    assert saved.counts()["overflow"] == 0 and not saved.advise("fp16")


def test_a_line_of_its_own_names_the_loss_scale_which_multiplies_gradients_and_no_other_derivatives():
    def backward(policy, scale):
        model = sf.nn.Sequential(sf.nn.Linear(3, 4, rng=0), sf.nn.Tanh(), sf.nn.Linear(4, 2, rng=1))
        with sf.simulate(policy, observer=(recorder := sf.Recorder(phase="backward"))):
            (model(np.full((8, 3), 0.125)) * (2.0**-28 * scale)).sum().backward()
        return recorder

    advice = backward("fp32", 1.0).advise(sf.FP16)
    # The gradient of the last bias is 8 * 2^-28, and 2^15 is a binade of FP16.
    line = "A loss scale of up to 2^40 takes no gradient of a layer or parameter beyond FP16."
    assert repr(advice).splitlines()[-1] == line and line in advice._repr_html_()
    assert "these results times up to 2^" in next(each.why for each in advice if each.operation == "linear")
    assert not any("up to" in each.why for each in advice if each.path == "1"), "1 - tanh(x)^2 is not scaled"
    for scale, overflows in ((2.0**40, 0), (2.0**41, 2)):
        assert backward("fp16-standard", scale).counts()["overflow"] == overflows


def test_additions_of_an_eps_come_last():
    recorder, x = sf.Recorder(), np.random.default_rng(0).standard_normal((8, 4))
    model = sf.nn.Sequential(sf.nn.Linear(4, 4, rng=0), sf.nn.LayerNorm(4))
    optimizer = sf.optim.AdamW(model.parameters(), lr=1e-4)
    with sf.simulate("bf16-standard", observer=recorder):
        model(x).square().sum().backward()
        optimizer.step()
    advice = recorder.advise()
    of_eps = [each.operation == "add" and (each.path == "1" or each.path.endswith(".update")) for each in advice]
    assert advice[0].operation == "update" and of_eps == sorted(of_eps) and sum(of_eps) == 5


def test_updates_known_to_be_lost_are_named_first():
    recorder = sf.Recorder(phase="update")
    w = sf.Parameter(np.ones(8, np.float32))
    w.name, w.grad = "w", np.full(8, 2.0**-12)
    with sf.simulate("bf16-standard", observer=recorder):
        sf.optim.SGD([w], lr=1.0).step()
    first = recorder.advise()[0]
    assert (first.path, first.operation, first.need, first.share) == ("w", "update", "more precision", 1.0)
    assert first.override == "policy.override('w', weights=sf.FP32)"


@pytest.mark.parametrize("ask, message", [
    (lambda r: r.advise("fp61"), "Unknown format 'fp61'"),
    (lambda r: r.advise(lost=2), "lost must be a share from 0 to 1, such as 0.01, got 2"),
    (lambda r: r.advise(overflow="1%"), "overflow must be a share from 0 to 1, such as 0.01, got '1%'"),
    (lambda r: r.advise(lost=float("nan")), "lost must be a share"),
    (lambda r: r.advise(lost=True), "lost must be a share"),
])  # fmt: skip
def test_limits_that_are_no_shares_are_refused(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(sf.Recorder())


@pytest.mark.parametrize("mask", [-1e4, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("policy", ["fp32", "bf16-fp32-weights"])
def test_a_mask_that_is_added_loses_nothing(policy, mask):
    scores, recorder = np.random.default_rng(0).standard_normal((8, 8)), sf.Recorder()
    with sf.simulate(policy, observer=recorder):
        sf.Tensor(scores) + sf.Tensor(np.triu(np.full((8, 8), mask, np.float32), 1))
    assert recorder.counts()["total"] == 64 and recorder.advise() == ()


def test_overflows_precede_the_rest_and_each_part_begins_with_the_largest_share():
    recorder = sf.Recorder()
    for path, few in (("less", MANY + MANY), ("more", MANY)):
        sf.round(few + HUGE, sf.FP16, observer=(seen := sf.Recorder()))
        recorder.observe(seen.entries()[0][1], "round", path)
        sf.add(few, TINY[0], sf.FP16, observer=(seen := sf.Recorder()))
        recorder.observe(seen.entries()[0][1], "add", path)
        sf.round(few + TINY, sf.FP16, observer=(seen := sf.Recorder()))
        recorder.observe(seen.entries()[0][1], "cast_input", path)
    places = [(each.path, each.operation) for each in recorder.advise()]
    assert places[:2] == [("more", "round"), ("less", "round")]
    assert places[2:] == [("less", "add"), ("more", "add"), ("more", "cast_input"), ("less", "cast_input")]


def test_exponentials_that_are_lost_beside_the_largest_of_a_softmax_need_nothing():
    # Without the subtraction of the largest number, a softmax may lose all of its terms.
    for shift, needs in ((0.0, []), (10.0, ["exp"])):
        x, recorder = sf.Tensor(np.array([[0.0, -30.0, -1.0]]) - shift), sf.Recorder()
        with sf.simulate("fp16-standard", observer=recorder):
            (x.softmax() if not shift else x.exp()).sum()
        assert recorder.counts(operation="exp")["underflow"] == 1
        assert [each.operation for each in recorder.advise() if each.operation == "exp"] == needs


def test_an_addend_that_is_lost_next_to_numbers_of_all_sizes_needs_more_precision():
    recorder = sf.Recorder()
    sf.add(2.0 ** np.arange(20), 2.0**-4, sf.BF16, observer=recorder)
    assert [each.need for each in recorder.advise()] == ["more precision"]


@pytest.mark.parametrize("format, binades", [
    (sf.FP16, (-24, -14, 15)), (sf.E4M3, (-9, -6, 8)), (sf.E8M0, (-127, -127, 127)),
    (sf.FP64, (-1074, -1022, 1023)), (sf.Format(5, 10, subnormals=False), (-14, -14, 15)),
], ids=str)  # fmt: skip
def test_the_binades_of_a_format_begin_at_its_smallest_number(format, binades):
    assert format_binades(format) == Binades(*binades)


def test_zeros_are_neither_kept_nor_lost():
    histogram = {-25: 1, -24: 2, 0: 4, 15: 8, 16: 16, "zero": 1000}
    assert count_in_range(histogram, format_binades(sf.FP16)) == RangeCounts(below=1, within=14, beyond=16)
    assert count_in_range({"zero": 3}, format_binades(sf.FP16)).share == 1
    counted = {np.int64(key) if key != "zero" else key: number for key, number in histogram.items()}
    assert count_in_range(counted, format_binades(sf.FP16)) == count_in_range(histogram, format_binades(sf.FP16)), (
        "NumPy's integers are exponents too"
    )


@pytest.mark.parametrize("k", [-20, 0, 3, 15])
def test_a_scale_keeps_what_rounding_the_scaled_values_keeps(k, rng):
    # Significands of 1 lie on no border within their binade: rounding agrees with the histogram exactly.
    x = 2.0 ** rng.integers(-60, 30, 4000)
    recorder = sf.Recorder()
    sf.round(x, sf.FP64, observer=recorder)
    y = sf.round(x * 2.0**k, sf.FP16)
    within = int((np.isfinite(y) & (y != 0)).sum())
    assert count_in_range(recorder.histogram(), format_binades(sf.FP16).shift(k)).within == within


RNG = np.random.default_rng(5)
X, LABELS = RNG.standard_normal((16, 4)), np.arange(16) % 3


def trained(policy, scale=1.0, steps=6):
    recorder, model = sf.Recorder(), sf.nn.MLP([4, 8, 3], rng=0)
    optimizer = sf.optim.Adam(model.parameters(), lr=1e-2, eps=1e-4)
    with sf.simulate(policy, observer=recorder):
        for _ in range(steps):
            optimizer.zero_grad()
            (sf.nn.cross_entropy(model(X), LABELS) * scale).backward()
            optimizer.step()
    return recorder


@pytest.mark.parametrize("name, scale", [("bf16-standard", 1.0), ("fp16-standard", 2.0**-10)])
def test_with_all_overrides_nothing_is_left_to_advise(name, scale):
    policy = sf.policies[name]
    found = trained(policy, scale).advise()
    roles = {each.override.partition(", ")[2].partition("=")[0] for each in found}
    assert roles >= {"weights", "optimizer_state"} and len(found) > 5
    for call in dict.fromkeys(each.override for each in found):
        policy = eval(call, {"policy": policy, "sf": sf})
    left = trained(policy, scale).advise()
    assert {(each.path, each.operation, each.phase) for each in found}.isdisjoint(each[:3] for each in left), left


SEEN = [
    Key("head", "linear", "forward"), Key("head", "linear", "backward"), Key("head.weight", "linear", "backward"),
    Key("head.weight", "update", "update"),
]  # fmt: skip


@pytest.mark.parametrize("key, call", [
    (("head", "linear", "forward"), "'head', activations"),
    (("head", "cast_input", "forward"), "'head', compute"),
    (("head", "cast_weight", "forward"), "'head', compute_weights"),
    (("head", "cast_gradient", "backward"), "'head', compute_gradients"),
    (("head", "linear", "backward"), "'head', activation_gradients"),
    (("head.weight", "linear", "backward"), "'head.weight', weight_gradients"),
    (("head.weight", "update", "update"), "'head.weight', weights"),
    (("head.weight.update", "divide", "update"), "'head.weight', weights"),
    (("head.weight.unscale", "multiply", "update"), "'head.weight', weights"),
    (("clip", "multiply", "update"), "'*', weights"),
    (("head.weight.exp_avg_sq", "moment", "update"), "'head.weight', optimizer_state"),
    (("", "add", "forward"), "operation='add', activations"),
    (("", "add", "backward"), "operation='add', activation_gradients"),
])  # fmt: skip
def test_each_place_has_the_role_that_rounds_it(key, call):
    assert str(remedy(Key(*key), SEEN, is_fp32=False)) == f"policy.override({call}=sf.FP32)"
    assert str(remedy(Key(*key), SEEN[:3], is_fp32=True)) == f"policy.override({call}=sf.FP64)"


@pytest.mark.parametrize(
    "operation, phase, role",
    [("linear", "forward", "accumulate"), ("linear", "backward", "accumulate_gradients"), ("sum", "forward", "reduce")],
)
def test_sums_that_overflow_need_an_accumulator(operation, phase, role):
    assert str(remedy(Key("head", operation, phase), SEEN, is_fp32=False, sums=True)).endswith(f", {role}=sf.FP32)")


def test_results_outside_of_policies_have_no_override():
    recorder = sf.Recorder()
    sf.round([1e9], "fp16", observer=recorder)
    assert recorder.advise()[0].override == ""


@pytest.mark.parametrize("format, better", [("bf16", "FP32"), ("fp32", "FP64"), ("tf32", "FP32")])
def test_sums_need_more_than_the_precision_that_they_have(format, better):
    recorder = sf.Recorder()
    sf.add([1.0], [2.0**-60], format, observer=recorder)
    assert recorder.advise()[0].override.endswith(f"activations=sf.{better})")


@pytest.mark.parametrize("format, better", [("fp16", "FP32"), ("bf16", "FP64"), ("fp32", "FP64")])
def test_results_beyond_a_format_need_more_than_its_range(format, better):
    recorder = sf.Recorder()
    sf.multiply([1e38, 1e30], [1e38, 1e-30], format, observer=recorder)
    assert recorder.advise()[0].override.endswith(f"activations=sf.{better})")
