"""Events of moments: each has its own name, each element counts once per step, and stalled elements are counted."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.optim.kinds import KINDS


def steps(kind, gradients, policy="bf16-standard", start=None, **options):
    """A recorder of steps with these gradients, and the optimizer."""
    w = sf.Parameter(np.ones(np.shape(gradients[0]), np.float32))
    w.name = "w"
    optimizer, recorder = getattr(sf.optim, kind)([w], **options), sf.Recorder()
    if start is not None:
        optimizer.state[0].update({name: np.array(value, np.float32) for name, value in start.items()})
    with sf.simulate(policy, observer=recorder):
        for gradient in gradients:
            w.grad = np.array(gradient, np.float32)
            optimizer.step()
    return recorder, optimizer


@pytest.mark.parametrize("kind, names", [
    ("SGD", ["momentum_buffer"]), ("Adam", ["exp_avg", "exp_avg_sq"]), ("AdamW", ["exp_avg", "exp_avg_sq"]),
    ("RMSprop", ["square_avg"]), ("NAdam", ["exp_avg", "exp_avg_sq"]), ("RAdam", ["exp_avg", "exp_avg_sq"]),
    ("Adamax", ["exp_avg", "exp_inf"]), ("Adadelta", ["square_avg", "acc_delta"]),
    ("Adagrad", ["sum"]), ("Adafactor", ["row_var", "col_var"]), ("Lion", ["exp_avg"]), ("Muon", ["momentum_buffer"]),
])  # fmt: skip
def test_every_moment_is_observed_at_its_name_below_the_parameters_path(kind, names):
    options = {"momentum": 0.5} if kind == "SGD" else {}
    recorder, optimizer = steps(kind, [np.ones((2, 3)), np.ones((2, 3))], **options)
    paths = {key.path for key, _ in recorder.entries() if key.operation == "moment"}
    assert paths == {f"w.{name}" for name in names}
    for name in names:
        size = optimizer.state[0][name].size
        assert recorder.counts(f"*.{name}", phase="update")["total"] == 2 * size, "each element once a step"


# In BF16 0.999 v rounds to v for these v, and so does 0.997 v between 1 and 1.3.
@pytest.mark.parametrize("beta, v, stalls", [
    (0.999, [1.0, 1.5, 1.9921875, 2.0**-20], [1, 1, 1, 1]),
    (0.997, [1.0078125, 1.25, 1.5, 1.75], [1, 1, 0, 0]),
    (1 - 2.0**-8, [1.0, 1.25, 1.5, 1.9921875], [0, 0, 0, 0]),
])  # fmt: skip
def test_a_decay_that_is_rounded_away_is_a_stalled_moment(beta, v, stalls):
    start = {"exp_avg": np.zeros(4), "exp_avg_sq": v, "step": 1.0}
    recorder, optimizer = steps("Adam", [np.full(4, 2.0**-40)], betas=(0.9, beta), start=start)
    assert (optimizer.state[0]["exp_avg_sq"] == np.float32(v)).tolist() == [bool(s) for s in stalls]
    assert recorder.counts("*.exp_avg_sq")["unchanged"] == sum(stalls)
    assert recorder.counts("*.exp_avg")["unchanged"] == 0
    recorder, optimizer = steps("Adam", [np.zeros(4)], betas=(0.9, beta), start=start)
    assert recorder.counts("*.exp_avg*")["unchanged"] == 0, "without a gradient nothing counts"


def test_a_first_value_that_underflows_leaves_the_moment_at_zero():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.FP16)
    for kind, options in (("SGD", {"momentum": 0.9}), ("Adam", {})):
        recorder, _ = steps(kind, [[1e-9, 1.0, 0.0]], policy, **options)
        assert recorder.counts("*momentum_buffer" if options else "*exp_avg")["unchanged"] == 1


def test_a_contribution_that_is_rounded_away_is_a_stalled_moment():
    # Sums of squares of ones: BF16 counts to 256.
    recorder, optimizer = steps("Adagrad", [np.ones(3)] * 4, start={"sum": [255.0, 254.0, 1.0], "step": 1.0})
    assert optimizer.state[0]["sum"].tolist() == [256.0, 256.0, 5.0]
    assert recorder.counts("w.sum")["unchanged"] == 3 + 2


def test_what_the_decay_takes_and_the_gradient_gives_back_leaves_a_moment_unchanged():
    # 1 and 1 + 2^-7 are neighbours.
    recorder, optimizer = steps("Lion", [[1 + 2.0**-7]], betas=(0.5, 0.9), start={"exp_avg": [1.0]})
    assert optimizer.state[0]["exp_avg"].tolist() == [1.0]
    assert recorder.counts("w.exp_avg")["unchanged"] == 1


def test_a_moment_stalls_in_its_own_format():
    policy = sf.Policy(compute=sf.BF16, weights=sf.FP32, optimizer_state=sf.E5M2)
    start = {"momentum_buffer": [1.0, 1.0]}
    recorder, optimizer = steps("SGD", [[0.125, 0.3]], policy, momentum=1.0, start=start)
    assert optimizer.state[0]["momentum_buffer"].tolist() == [1.0, 1.25]
    assert recorder.counts("w.momentum_buffer")["unchanged"] == 1


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_moments_that_are_lost_to_infinity_or_nan_are_not_called_stalled(value):
    recorder, _ = steps("Adam", [[value], [value]])
    assert recorder.counts("*.exp_avg*")["unchanged"] == 0


@pytest.mark.parametrize("policy", ["fp16-standard", "bf16-kahan"])
@pytest.mark.parametrize("kind, options", [
    ("SGD", {"momentum": 0.9}), ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {}), ("Adam", {"amsgrad": True}), ("Lion", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}), ("NAdam", {}), ("RAdam", {}), ("Adadelta", {}),
])  # fmt: skip
def test_what_no_gradient_moves_is_not_unchanged(kind, options, policy):
    recorder, _ = steps(kind, [[0.0, -0.0, 0.0]] * 3, policy, **options)
    moved = [key.path for key, _ in recorder.entries() if key.path != "w.update"]  # where eps may be lost
    assert len(moved) > 1 and not any(recorder.counts(path)["unchanged"] for path in moved)


def quantized(x, scaling):
    """Numbers of E4M3 with scales along the last axis, read back: by the functions of block formats."""
    if isinstance(scaling, str):  # one scale of the whole moment
        s = np.float32(sf.E4M3.max) / np.abs(x).max()
        return np.float32(sf.multiply(x, s, sf.E4M3, sf.nearest_even.saturating()) / s)
    if scaling.format == sf.E8M0:
        return np.float32(sf.block_quantize(x, sf.E4M3, block=scaling.size, rule="rceil").values())
    runs = [x[:, i : i + scaling.size] for i in range(0, x.shape[1], scaling.size)]
    s = [np.float32(sf.E4M3.max) / np.abs(run).max(1, keepdims=True) for run in runs]
    q = [sf.multiply(run, scale, sf.E4M3, sf.nearest_even.saturating()) for run, scale in zip(runs, s, strict=True)]
    return np.concatenate([np.float32(run / scale) for run, scale in zip(q, s, strict=True)], 1)


@pytest.mark.parametrize("scaling", ["per_tensor", sf.block(4, sf.FP32), sf.block(4, sf.E8M0)], ids=str)
def test_a_moment_with_scales_is_cast_once_when_it_is_stored_and_the_step_uses_it_before(scaling):
    gradients = np.random.default_rng(1).standard_normal((3, 2, 6)).astype(np.float32)
    cast = sf.scaled(sf.E4M3, sf.per_tensor() if scaling == "per_tensor" else scaling)
    recorder, optimizer = steps(
        "SGD", gradients, sf.Policy(compute=sf.FP32, optimizer_state=cast), momentum=0.5, lr=0.5
    )
    w, stored = np.ones((2, 6), np.float32), None
    for g in gradients:
        m = g if stored is None else np.float32(0.5) * stored + g
        w, stored = w - np.float32(0.5) * m, quantized(m, scaling)
    assert_bits(optimizer.state[0]["momentum_buffer"], stored)
    assert_bits(optimizer.params[0].data, w)
    assert recorder.counts("w.momentum_buffer")["total"] == 3 * 12


def test_a_stochastic_moment_is_the_exact_sum_rounded_once():
    policy = sf.Policy(compute=sf.FP32, optimizer_state=sf.cast(sf.BF16, sf.stochastic(bits=8)))
    _, optimizer = steps("SGD", [np.ones(2000), np.full(2000, 2.0**-10)], policy, momentum=1.0)
    m = optimizer.state[0]["momentum_buffer"]
    assert {*m.tolist()} == {1.0, 1.0 + 2.0**-7}, "neighbours of 1 + 2^-10 in BF16"
    assert abs((m > 1).mean() - 1 / 8) < 5 * (7 / 64 / 2000) ** 0.5


CASTS = [sf.cast(sf.BF16, sf.stochastic()), sf.scaled(sf.E4M3, sf.block(4, sf.FP32)), sf.scaled(sf.E4M3, sf.delayed())]


@pytest.mark.parametrize("cast", CASTS, ids=str)
@pytest.mark.parametrize("kind", ["AdamW", "Muon", "Lion", "Adagrad", "Adafactor"])
def test_a_training_with_cast_moments_resumes_with_equal_bits_and_an_observer_changes_none(kind, cast):
    rng, policy = np.random.default_rng(0), sf.Policy(compute=sf.FP32, optimizer_state=cast)
    gradients = rng.standard_normal((4, 3, 6)).astype(np.float32)

    def run(recorder, *parts):
        w = sf.Parameter(np.ones((3, 6), np.float32))
        w.name, optimizer = "w", getattr(sf.optim, kind)([w], **KINDS[kind])
        sim = sf.simulate(policy, 3, recorder)
        for part in parts:
            with sim:
                for g in part:
                    w.grad = g.copy()
                    optimizer.step()
            data, states = w.data, (optimizer.state_dict(), sim.state)
            w = sf.Parameter(data.copy())
            w.name, optimizer = "w", getattr(sf.optim, kind)([w], **KINDS[kind])
            sim = sf.simulate(policy, 3, recorder)
            optimizer.load_state_dict(states[0])
            sim.load_state(states[1])
        return w.data, optimizer.state[0]

    (whole, state), (resumed, again) = run(None, gradients), run(sf.Recorder(), gradients[:2], gradients[2:])
    assert_bits(whole, resumed)
    assert state.keys() == again.keys() and all(np.array_equal(state[name], again[name]) for name in state)
