"""The first NaN: planted faults are reported by step, place, operation and operands, and the override fixes them."""

import numpy as np
import pytest

import simfloat as sf

X = np.random.default_rng(0).standard_normal((8, 4))
LABELS = np.arange(8) % 2
FP16 = sf.policies["fp16-standard"]


def trained(policy, make, batches, scaler=None, loss_fn=sf.nn.mse_loss):
    """The record of a training, and its history."""
    recorder, model = sf.Recorder(), sf.nn.MLP([4, 6, 2], rng=0)
    with sf.simulate(policy, observer=recorder):
        history = sf.train.fit(model, loss_fn, batches, make(model.parameters()), scaler=scaler)
    return recorder, history


def called(policy, function):
    """The record of a function of a tensor."""
    recorder = sf.Recorder()
    with sf.simulate(policy, observer=recorder):
        function(sf.Tensor(X))
    return recorder


def adamw(policy):
    batches = [(X, X[:, :2])] * 2 + [(1e-3 * X, 1e-3 * X[:, :2])] * 3
    return trained(policy, lambda ps: sf.optim.AdamW(ps, betas=(0.0, 0.0)), batches)[0]


def softmax_by_hand(policy):
    return called(policy, lambda x: (x * 20.0).exp() / (x * 20.0).exp().sum(axis=1).reshape(8, 1))


def difference_of_squares(policy):
    return called(policy, lambda x: (x * 300.0) ** 2 - (x * -300.0) ** 2)


def weighted(policy):
    return called(policy, lambda x: (x * 20.0).exp() * sf.Tensor(np.zeros((8, 4))))


def unscaled(policy):
    recorder, model = sf.Recorder(), sf.nn.MLP([4, 6, 2], rng=0)
    with sf.simulate(policy, observer=recorder):
        model(300 * X)
    return recorder


def narrow_sums(policy):
    recorder, model = sf.Recorder(), sf.nn.Sequential(sf.nn.Linear(4, 2, rng=0))
    model.load_state_dict({"0.weight": np.full((2, 4), 200.0), "0.bias": np.zeros(2)})
    with sf.simulate(policy, observer=recorder):
        model(np.array([[400.0, 400.0, -400.0, -400.0]]))
    return recorder


def constant_rows(policy):
    recorder, model = sf.Recorder(), sf.nn.Sequential(sf.nn.LayerNorm(4, eps=1e-12))
    with sf.simulate(policy, observer=recorder):
        model(np.ones((2, 4)))
    return recorder


E4M3 = sf.Policy(compute=sf.E4M3, weights=sf.FP32, activations=sf.FP32)
PAIRS = sf.Policy(compute=sf.FP16, accumulate=sf.pairwise(sf.FP16))


@pytest.mark.parametrize("run, policy, first, role", [
    (adamw, FP16, (2, "hidden.0.weight.update", "divide", "update", "0 / 0"), "'*', weights"),
    (softmax_by_hand, FP16, (0, "", "divide", "forward", "inf / inf"), "operation='exp', activations"),
    (difference_of_squares, FP16, (0, "", "subtract", "forward", "inf - inf"), "operation='power', activations"),
    (weighted, FP16, (0, "", "multiply", "forward", "0 * inf"), "operation='exp', activations"),
    (
        unscaled,
        E4M3,
        (0, "hidden.0", "cast_input", "forward", "beyond max in a format without infinities"),
        "'hidden.0', compute",
    ),
    (constant_rows, FP16, (0, "0", "multiply", "forward", "0 * inf"), "'0', activations"),
    (narrow_sums, PAIRS, (0, "0", "linear", "forward", "an overflow inside a sum"), "'0', accumulate"),
])  # fmt: skip
def test_a_planted_fault_is_named_and_its_override_fixes_it(run, policy, first, role):
    recorder = run(policy)
    advice = recorder.advise()[0]
    assert recorder.first_nan == first and (advice.path, advice.operation, advice.phase) == first[1:4]
    assert advice.need == "a wider format" and advice.why.startswith(f"in step {first[0]}: {first[4]}")
    assert advice.override == f"policy.override({role}=sf.FP32)"
    mended = eval(advice.override, {"policy": policy, "sf": sf})
    assert run(mended).first_nan is None


def test_earlier_underflow_and_overflow_are_named():
    assert adamw(FP16).advise()[0].why.endswith("multiply, add at hidden.0.weight.update (update) underflowed")
    assert constant_rows(FP16).advise()[0].why.endswith("; add at 0 (forward) underflowed")
    assert softmax_by_hand(FP16).advise()[0].why.endswith("; exp (forward) overflowed")


@pytest.mark.parametrize("value, operands, need", [
    (np.nan, "a NaN operand", "data without NaN"), (np.inf, "an infinite operand in a sum", "finite data"),
])  # fmt: skip
def test_nan_in_data_is_distinguished_from_nan_of_arithmetic(value, operands, need):
    recorder, x, model = sf.Recorder(), X.copy(), sf.nn.MLP([4, 6, 2], rng=0)
    x[3, 1] = value
    with sf.simulate("fp32", observer=recorder):
        sf.nn.mse_loss(model(x) - model(x), X[:, :2])
    advice = recorder.advise()[0]
    assert (recorder.first_nan.operands, advice.need, advice.override) == (operands, need, "")


def test_a_function_outside_its_domain_needs_other_operands():
    recorder = called("fp32", lambda x: x.sqrt())
    advice = recorder.advise()[0]
    assert recorder.first_nan[1:] == ("", "sqrt", "forward", "an operand outside the domain")
    assert (advice.need, advice.override, advice.share) == ("operands in the domain", "", (X < 0).mean())


@pytest.mark.parametrize("policy", ["fp32", "bf16-standard"])
def test_a_training_that_diverges_needs_no_wider_format(policy):
    recorder, _ = trained(policy, lambda ps: sf.optim.SGD(ps, lr=1e3), [(X, X[:, :2])] * 12)
    assert recorder.first_nan.step > 1
    assert (recorder.advise()[0].need, recorder.advise()[0].override) == ("smaller numbers", "")


@pytest.mark.parametrize("policy, scaler", [("fp32", None), ("amp-bf16", None), ("amp-fp16", 2.0**24)])
def test_healthy_trainings_raise_no_alarm_nor_do_steps_that_a_loss_scale_skips(policy, scaler):
    scaler = sf.optim.DynamicLossScale(scaler) if scaler else None
    recorder, history = trained(policy, lambda ps: sf.optim.SGD(ps, lr=0.05), [(X, X[:, :2])] * 12, scaler)
    assert recorder.first_nan is None and not recorder.advise()
    assert (recorder.counts()["overflow"] > 0) == (sum(history["skipped"]) > 0) == (scaler is not None)


def test_infinite_masks_of_attention_raise_no_alarm():
    recorder, layer = sf.Recorder(), sf.nn.MultiHeadAttention(4, 2, rng=0)
    x, mask = X[:, None], np.triu(np.full((8, 8), -np.inf), 1)
    with sf.simulate("fp32", observer=recorder):
        layer(x, x, x, attn_mask=mask)[0].sum().backward()
    assert recorder.first_nan is None and recorder.advise() == ()


def test_a_skipped_step_keeps_no_nan_and_counts_as_a_step():
    recorder = sf.Recorder()
    for number in range(3):
        sf.divide([0.0, 1.0], [float(number), 1.0], "fp16", observer=recorder)
        sf.subtract([np.inf], [np.inf], "fp16", observer=recorder)
        recorder.step(skipped=number < 2)
    assert recorder.first_nan == (2, "", "subtract", "forward", "inf - inf")
    twin = sf.Recorder()
    twin.load_state_dict(recorder.state_dict())
    assert twin.first_nan == recorder.first_nan
    recorder.reset()
    assert recorder.first_nan is None and sf.Recorder().first_nan is None


CASES = [
    (sf.add, [[np.inf, -np.inf, np.nan, 1.0], [-np.inf, -np.inf, 1.0, 1.0]], {"inf - inf": 1, "a NaN operand": 1}),
    (sf.subtract, [[np.inf, 1.0], [np.inf, np.inf]], {"inf - inf": 1}),
    (sf.multiply, [[0.0, np.inf, 2.0], [np.inf, -0.0, np.inf]], {"0 * inf": 2}),
    (sf.divide, [[0.0, np.inf, 2.0], [-0.0, np.inf, 0.0]], {"0 / 0": 1, "inf / inf": 1}),
    (sf.fma, [[np.inf, 0.0, 2.0], [1.0, np.inf, 1.0], [-np.inf, np.inf, np.inf]], {"inf - inf": 1, "0 * inf": 1}),
    (sf.log, [[-1.0, 0.0, np.nan]], {"an operand outside the domain": 1, "a NaN operand": 1}),
    (sf.exp, [[9.0, 1.0]], {}),
]  # fmt: skip


@pytest.mark.parametrize("format", [sf.FP16, sf.FP32, sf.FP64, sf.Format(8, 16)], ids=str)
@pytest.mark.parametrize("function, operands, causes", CASES, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("copies", [1, 40_000])
def test_every_nan_has_one_cause(function, operands, causes, format, copies):
    recorder, data = sf.Recorder(), [np.tile(x, copies) for x in operands]
    out = function(*data, format, observer=recorder)
    ((_, events),) = recorder.entries()
    counts = dict(zip(sf.kernels.events.CAUSES, events[sf.kernels.events.FIRST_CAUSE :], strict=False))
    assert {cause: number for cause, number in counts.items() if number} == {c: copies * n for c, n in causes.items()}
    assert np.isnan(out).sum() == copies * sum(causes.values()) == recorder.counts()["nan"]
