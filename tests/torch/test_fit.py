"""`fit` trains PyTorch models with the bits of a handwritten loop, also after an interruption."""

from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
from simfloat.train.states import encode
from tests.torch import compared
from tests.torch.compared import Perceptron, step, twins
from tests.train.test_saving import assert_same
from tests.train.toy import batches

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAMW = partial(torch.optim.AdamW, lr=0.05)


def perceptron(seed=0):
    return compared.perceptron(nn.Dropout(0.2), sizes=(3, 5, 2), seed=seed)


def tensors(count):
    return [(torch.tensor(x, dtype=torch.float32), torch.tensor(y)) for x, y in batches(count)]


def stored(*parts):
    """The states, with the arrays of all tensors."""
    arrays = []
    return [encode([part.state_dict() for part in parts], arrays, "parts"), arrays]


def by_hand(model, optimizer, run, scaler, schedule, given, accumulation, clip):
    losses = []
    for start in range(0, len(given), accumulation):
        group = given[start : start + accumulation]
        model.zero_grad()
        of_step = []
        for x, y in group:
            loss = F.cross_entropy(model(x), y)
            of_step.append(loss.item())
            scaler.scale(loss / len(group) if len(group) > 1 else loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        losses.append(sum(of_step) / len(of_step))
    return losses


@pytest.mark.parametrize("make, policy", [(SGD, "fp16-master"), (ADAMW, "bf16-stochastic")])
def test_a_training_has_the_bits_of_the_equivalent_loop(make, policy):
    found = []
    for fits in (True, False):
        model, recorder = perceptron(), sf.Recorder()
        optimizer, scaler = make(model.parameters()), torch.amp.GradScaler("cpu", init_scale=2.0**15)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
            if fits:
                history = sf.train.fit(
                    model, F.cross_entropy, batches(6), optimizer, scaler=scaler, schedule=schedule, clip=1.0,
                    accumulation=2, progress=False, metrics={"right": lambda out, y: (out.argmax(1) == y).sum()},
                )  # fmt: skip
                losses = history["loss"]
            else:
                losses = by_hand(model, optimizer, run, scaler, schedule, tensors(6), 2, 1.0)
        found.append([losses, stored(model, optimizer, scaler), run.state, recorder.counts(phase="update")])
    assert_same(*found)


def resumed(policy, make, steps, seed=0, rule=None, **options):
    """The states after so many steps, from the start or from a checkpoint."""
    model, recorder = perceptron(seed), sf.Recorder()
    optimizer, scaler = make(model.parameters()), torch.amp.GradScaler("cpu", growth_interval=2)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [decay, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)], [2]
    )
    with sf.torch.simulate(model, policy, seed=3, observer=recorder) as run:
        history = sf.train.fit(
            model, F.cross_entropy, batches(steps), optimizer, scaler=scaler, schedule=schedule, clip=1.0,
            progress=False, every=2, evaluate=lambda model: {"sum": model(torch.ones(1, 3)).sum()}, evaluate_every=2,
            switching=rule and rule(), **options,
        )  # fmt: skip
    rows = [dict(history), history.evaluations]
    return [rows, stored(model, optimizer, scaler, schedule), run.state, recorder.state_dict(), torch.rand(2)]


@pytest.mark.parametrize("policy, make", [("bf16-stochastic", ADAMW), ("bf16-kahan", SGD), ("fp8-hybrid", ADAMW)])
def test_a_training_resumed_after_any_step_has_the_bits_of_one_that_never_stopped(policy, make, tmp_path):
    whole = resumed(policy, make, 4)
    for stop in range(1, 5):
        last = resumed(policy, make, stop, seed=stop > 1 and 7, checkpoint=tmp_path, resume=tmp_path)
    assert_same(last, whole)


def test_a_policy_that_a_rule_switches_continues_too(tmp_path):
    def rule():
        return sf.Switching("fp8-hybrid", "bf16-standard", lambda: 1.0, above=0.5, hold=3)

    whole = resumed("fp8-hybrid", SGD, 6, rule=rule)
    assert "switches" in whole[2]
    for stop in (2, 3, 6):
        last = resumed("fp8-hybrid", SGD, stop, seed=stop > 2 and 7, rule=rule, checkpoint=tmp_path, resume=tmp_path)
    assert_same(last, whole)


def test_the_same_parts_continue_after_an_error_in_a_step_and_as_written_ones_too(tmp_path):
    def trained(ending=()):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).bfloat16()
        optimizer, scaler = ADAMW(model.parameters()), torch.amp.GradScaler("cpu", growth_interval=2)
        folder = tmp_path if ending else None
        with sf.torch.simulate(model, "as-written"):
            for end in (*ending, None):
                left = iter(range(end or 9))

                def loss_fn(out, y, left=left):
                    if next(left, None) is None:
                        raise KeyboardInterrupt
                    return F.cross_entropy(out, y)

                with nullcontext() if end is None else pytest.raises(KeyboardInterrupt):
                    history = sf.train.fit(
                        model, loss_fn, batches(5), optimizer, scaler=scaler, checkpoint=folder, resume=folder, every=1,
                        evaluate=lambda model: {"sum": model[2].bias.sum()}, evaluate_every=1, progress=False,
                    )  # fmt: skip
        return [dict(history), history.evaluations, stored(model, optimizer, scaler)]

    assert_same(trained(ending=(1, 2)), trained())


def test_a_manifest_identifies_a_pytorch_training_and_another_one_is_refused(tmp_path):
    resumed("fp32", SGD, 2, checkpoint=tmp_path)
    manifest = sf.train.manifest(tmp_path)
    assert manifest["optimizer"] == "SGD" and manifest["optimizer.momentum"] == 0.9 and manifest["optimizer.lr"] == 0.1
    assert manifest["scaler.growth_interval"] == 2 and manifest["schedule.0"] == "ExponentialLR"
    assert manifest["schedule.1.T_max"] == 4 and manifest["torch"] == torch.__version__
    with pytest.raises(ValueError, match=r"belongs to another training:\n  optimizer\.momentum: 0\.9, now 0\.5"):
        resumed("fp32", partial(torch.optim.SGD, lr=0.1, momentum=0.5), 3, resume=tmp_path)
    faster = partial(torch.optim.SGD, lr=0.2, momentum=0.5)
    (history, _), *_ = resumed("fp32", faster, 3, resume=tmp_path, allow=("momentum", "lr"))
    assert history["lr"] == [0.1, 0.1 * 0.9, 0.2]


@pytest.mark.parametrize("policy", ["fp16-master", "amp-fp16", "apex-o2", "fp8-delayed"])
def test_the_history_of_a_perceptron_is_that_of_its_twin_in_our_layers(policy):
    theirs, ours = twins(Perceptron, 3, 5, 2)
    given = [(x.astype(np.float32), y) for x, y in batches(5)]
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    with sf.torch.simulate(theirs, policy):
        history = sf.train.fit(theirs, F.cross_entropy, given, optimizer, clip=0.5, accumulation=2, progress=False)
    optimizer = sf.optim.SGD(ours.parameters(), lr=0.1)
    with sf.simulate(policy):
        twin = sf.train.fit(ours, sf.nn.cross_entropy, given, optimizer, clip=0.5, accumulation=2, progress=False)
    assert_same(dict(history), dict(twin))


def test_states_of_pytorchs_parts_are_saved_in_all_types_and_restored_or_left_as_they_were(tmp_path):
    model = nn.ParameterList([torch.ones(2, dtype=t) / 3 for t in (torch.bfloat16, torch.float16, torch.float64)])
    before = [parameter.detach().clone() for parameter in model]
    sf.save(tmp_path / "model.states", model=model, narrow=torch.ones(2).to(torch.float8_e4m3fn))
    with torch.no_grad():
        for parameter in model:
            parameter.zero_()
    states = sf.load(tmp_path / "model.states", model=model)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(model, before, strict=True))
    assert states["narrow"].dtype == torch.float8_e4m3fn and states["narrow"].float().tolist() == [1.0, 1.0]
    other = nn.Linear(2, 1)
    kept = other.weight.detach().clone()
    with pytest.raises(ValueError, match="model in .* does not fit"):
        sf.load(tmp_path / "model.states", model=other)
    assert torch.equal(other.weight, kept)


def test_a_training_with_dropout_continues_with_equal_bits_if_pytorchs_random_state_is_saved_by_a_name(tmp_path):
    def parts_of(seed):
        model = perceptron()
        return {"model": model, "optimizer": SGD(model.parameters()), "run": sf.torch.simulate(model, *seed)}

    def train(model, optimizer, run):
        with run:
            step(model, optimizer, torch.ones(6, 3))

    whole = parts_of(("bf16-stochastic", 3))
    train(**whole)
    sf.save(tmp_path / "run.states", **whole, random=torch.get_rng_state())
    train(**whole)
    for restored in (True, False):
        again = parts_of(("bf16-stochastic", 4))
        states = sf.load(tmp_path / "run.states", **again)
        if restored:
            torch.set_rng_state(states["random"])
        train(**again)
        assert all(map(torch.equal, whole["model"].parameters(), again["model"].parameters())) == restored


#: What is passed instead, of the model, and what is said.
WRONG = [
    (lambda m: {"optimizer": sf.optim.SGD([sf.Parameter([1.0])], lr=0.1)}, "torch.optim, got a simfloat.*SGD"),
    (lambda m: {"optimizer": torch.optim.LBFGS(m.parameters())}, "LBFGS calls a closure, which fit does not have"),
    (lambda m: {"optimizer": SGD(perceptron().parameters())}, "to the model: create it with model.parameters"),
    (lambda m: {"scaler": sf.optim.StaticLossScale(8.0)}, "is a torch.amp.GradScaler, got a simfloat.*StaticLossScale"),
    (lambda m: {"schedule": torch.optim.lr_scheduler.StepLR(SGD(m.parameters()), 1)}, "belongs to another optimizer"),
    (lambda m: {"schedule": "plateau"}, "fit passes no measure to its schedule"),
    (lambda m: {"replicas": 3}, r"split into replicas=3 parts of one size along its first axis; got "),
    (lambda m: {"device": "cpu"}, "device is supported only for models of simfloat.nn"),
    (lambda m: {"loss_fn": lambda out, y: out}, r"must give a tensor of one number .*, got one of shape \(4, 2\)"),
    (lambda m: {"loss_fn": lambda out, y: 1.0}, "got a float"),
    (lambda m: {"loss_fn": lambda out, y: out.sum().detach()}, r"got one of shape \(\) without a gradient"),
    (lambda m: {"loss_fn": lambda out, y: (out * nn.Parameter(torch.ones(2))).sum()},
     r"depends on a parameter of shape \(2,\), which does not belong to the model"),
    (lambda m: {"model": perceptron()}, "a Sequential with parameters that are not those of the model which this"),
    (lambda m: {"batches": [(np.array(["a"]), 1)]}, "got an array of <U1"),
]  # fmt: skip


def test_arguments_that_do_not_fit_and_a_model_outside_of_its_block_are_refused():
    for wrong, message in WRONG:
        model = perceptron()
        given = {"model": model, "loss_fn": F.cross_entropy, "batches": tensors(1)} | wrong(model)
        given.setdefault("optimizer", SGD(given["model"].parameters()))
        if given.get("schedule") == "plateau":
            given["schedule"] = torch.optim.lr_scheduler.ReduceLROnPlateau(given["optimizer"])
        with sf.torch.simulate(model, "fp32"), pytest.raises(ValueError, match=message):
            sf.train.fit(**given)
    call = partial(sf.train.fit, model, F.cross_entropy, tensors(1), SGD(model.parameters()))
    with pytest.raises(ValueError, match="inside of `with simfloat.torch.simulate.* there is no such block here"):
        call()
    with sf.simulate("fp32"), pytest.raises(ValueError, match="there is no such block here"):
        sf.Tensor([1.0]) + 1.0
        call()
    with sf.torch.simulate(model, "fp32") as run, run.paused(), pytest.raises(ValueError, match="run is paused here"):
        call()
