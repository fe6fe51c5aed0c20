"""Differences between a checkpoint's training and the resuming one are rejected, or allowed by name."""

import re
from functools import partial

import numpy as np
import pytest

import simfloat as sf
from tests.train import toy
from tests.train.resumed import WARM_UP, calm, fit, parts, sequential
from tests.train.test_saving import assert_same


def other_loss(output, y):
    return sf.nn.cross_entropy(output, y) * 2.0


HEAD = "not given, now path=head, compute=FP16"
OTHER_WIDE = sf.policies["bf16-standard"].override("head", compute=sf.FP16)
TWICE = partial(sf.optim.SGD, lr=0.5, momentum=0.5)

#: What changes, how it is told, and the name that allows it.
CHANGES = {
    "preset": (
        dict(policy=sf.policies["bf16-standard"]),
        ["policy: fp8-hybrid, now bf16-standard", "policy.compute: .*E4M3.*, now BF16"], "policy",
    ),
    "override": (
        dict(policy=sf.policies["fp8-hybrid"].override("head", compute=sf.FP16)),
        [f"policy.overrides.0: {HEAD}"], "policy",
    ),
    "seed": (dict(seed=7), ["seed: 3, now 7"], "seed"),
    "layers": (
        dict(model=lambda: sf.nn.MLP([3, 6, 2])),
        [r"model: \(0\): ReLULinear\(3, 5\) .*, now \(0\): ReLULinear\(3, 6\)"], "model",
    ),
    "loss": (dict(loss_fn=other_loss), ["loss_fn: cross_entropy, now other_loss"], "loss_fn"),
    "lr": (dict(optimizer=TWICE), ["optimizer.lr: 0.25, now 0.5"], "lr"),
    "momentum": (dict(optimizer=partial(sf.optim.SGD, lr=0.25)), ["optimizer.momentum: 0.5, now 0.0"], "momentum"),
    "optimizer": (dict(optimizer=partial(sf.optim.Adam, lr=0.25)), ["optimizer: SGD, now Adam"], "optimizer"),
    "no scaler": (dict(scaler=None), ["scaler: DynamicLossScale, now None"], "scaler"),
    "scaler": (dict(scaler=sf.optim.StaticLossScale(8.0)), ["scaler: DynamicLossScale, now StaticLossScale"], "scaler"),
    "scale": (dict(scaler=sf.optim.DynamicLossScale(16.0)), ["scaler.init_scale: 8.0, now 16.0"], "init_scale"),
    "growth": (
        dict(scaler=sf.optim.DynamicLossScale(8.0, growth_interval=5)),
        ["scaler.growth_interval: 2000, now 5"], "growth_interval",
    ),
    "schedule": (dict(schedule=WARM_UP), ["schedule: StepLR, now LinearLR"], "schedule"),
    "no schedule": (dict(schedule=None), ["schedule: StepLR, now None"], "schedule"),
    "step size": (
        dict(schedule=partial(sf.optim.StepLR, step_size=3)), ["schedule.step_size: 2, now 3"], "schedule",
    ),
    "rule": (
        dict(switching=sf.Switching("fp8-hybrid", "bf16-standard", calm, above=2.0)),
        [r"switching: Switching\(.*, calm, above=1.0.*, now Switching.*above=2.0"], "switching",
    ),
    "policy of the rule": (
        dict(switching=sf.Switching("fp8-hybrid", OTHER_WIDE, calm, above=1.0)),
        [f"switching.wide.overrides.0: {HEAD}"], "switching",
    ),
    "clip": (dict(clip=2.0), ["clip: 1.0, now 2.0"], "clip"),
    "accumulation": (dict(accumulation=3), ["accumulation: 2, now 3"], "accumulation"),
    "batch size": (
        dict(batches=[(x[:2], y[:2]) for x, y in toy.batches(12)]), ["batch_size: 4, now 2"], "batch_size",
    ),
    "order": (dict(batches=list(toy.batches(13, start=1))), ["data: batch 0 has other values"], "data"),
    "a later batch": (
        dict(batches=[*toy.batches(3), *toy.batches(13, start=4)]), ["data: batch 3 has other values"], "data",
    ),
    "several": (
        dict(seed=7, optimizer=TWICE, clip=None),
        ["seed: 3, now 7", "optimizer.lr: 0.25, now 0.5", "clip: 1.0, now None"], "seed', 'lr', 'clip",
    ),
}  # fmt: skip


@pytest.mark.parametrize("change, lines, allowed", CHANGES.values(), ids=CHANGES)
def test_a_difference_is_refused_with_both_values_and_nothing_is_restored(change, lines, allowed, tmp_path):
    fit(3, parts(), checkpoint=tmp_path)
    model = change.get("model", parts()["model"])()
    before = model.state_dict()
    with pytest.raises(ValueError, match="step-3.states belongs to another training:") as refused:
        fit(6, {**parts(), **change, "model": lambda: model}, resume=tmp_path)
    _, *found, last = str(refused.value).split("\n")
    for line in lines:
        assert any(re.search(line, one) for one in found), found
    assert f"by allow=['{allowed}']." in last
    assert_same(model.state_dict(), before)


@pytest.mark.parametrize("name", [name for name in CHANGES if name not in ("layers", "several")])
def test_an_allowed_difference_takes_its_new_value_and_the_manifest_reports_it(name, tmp_path):
    change, _, allowed = CHANGES[name]
    given = {**parts(), **change}
    fit(3, parts(), checkpoint=tmp_path)
    begun = sf.train.manifest(tmp_path)["begun"]
    model, optimizer, simulation, history = fit(5, given, resume=tmp_path, checkpoint=tmp_path, allow=[allowed])
    assert history.steps == 5 and simulation.policy.name in ("fp8-hybrid", "bf16-standard")
    assert simulation.seed == given["seed"] and type(optimizer) is type(given["optimizer"](model.parameters()))
    manifest = sf.train.manifest(tmp_path)
    assert manifest["begun"] == begun and {change["step"] for change in manifest["changes"]} == {3}
    model, _, _, again = fit(7, given, resume=tmp_path, checkpoint=tmp_path)
    assert again.steps <= 7 and sf.train.manifest(tmp_path)["changes"] == manifest["changes"]


def test_why_there_are_fewer_batches_is_said_before_that_there_are(tmp_path):
    fit(3, parts(), checkpoint=tmp_path)
    larger = [(np.concatenate([x, x]), np.concatenate([y, y])) for x, y in toy.batches(3)]
    for given, lines in (
        (
            dict(batches=larger, seed=7, optimizer=TWICE),
            ["seed: 3, now 7", "lr: 0.25, now 0.5", "batch_size: 4, now 8"],
        ),
        (dict(batches=list(toy.batches(2, start=1))), ["data: batch 0 has other values"]),
    ):
        with pytest.raises(ValueError, match="belongs to another training") as refused:
            fit(6, parts() | given, resume=tmp_path)
        assert all(line in str(refused.value) for line in lines)
    for count in (0, 3, 5):
        with pytest.raises(ValueError, match=f"6 batches were taken before the checkpoint; the iterable gives {count}"):
            fit(6, parts() | {"batches": list(toy.batches(count))}, resume=tmp_path)


def test_lambdas_are_not_distinguished_and_other_functions_are_by_their_names(tmp_path):
    loss = parts()["loss_fn"]
    for given in (loss, lambda x, y: loss(x, y), partial(lambda x, y, by: loss(x, y) * by, by=1.0), loss):
        fit(3, parts() | {"loss_fn": given}, checkpoint=tmp_path, resume=tmp_path)
    with pytest.raises(ValueError, match="loss_fn: cross_entropy, now other_loss"):
        fit(4, parts() | {"loss_fn": other_loss}, resume=tmp_path)


def test_an_allowed_policy_is_in_force_and_the_state_continues(tmp_path):
    first, options = parts() | {"switching": None}, dict(checkpoint=tmp_path, resume=tmp_path)
    fit(3, first, **options)
    model, _, simulation, _ = fit(4, first | {"policy": sf.policies["bf16-standard"]}, allow="policy", **options)
    assert simulation.policy == sf.policies["bf16-standard"]
    by_hand, optimizer, simulation, history = fit(3, first)
    scaler = first["scaler"]
    with sf.simulate("bf16-standard", seed=3):
        by_hand.zero_grad()
        for x, y in first["batches"][6:8]:
            scaler.scale(first["loss_fn"](by_hand(x), y) / 2).backward()
        scaler.unscale_(optimizer)
        sf.optim.clip_grad_norm_(by_hand.parameters(), 1.0)
        scaler.step(optimizer)
    assert_same(model.state_dict(), by_hand.state_dict())


def test_an_allowed_seed_begins_other_streams(tmp_path):
    def state(seed, allow=()):
        given = parts() | {"policy": "bf16-stochastic", "switching": None, "seed": seed}
        options = dict(checkpoint=tmp_path, resume=tmp_path, allow=allow)
        return fit(3 if seed == 1 else 6, given, **options)[2].state

    before, after = state(1), state(2, "seed")
    assert (before["seed"], after["seed"]) == (1, 2)
    assert [2 * one["calls"] for one in before["streams"]] == [one["calls"] for one in after["streams"]]


@pytest.mark.parametrize("change", [
    dict(optimizer=TWICE), dict(schedule=partial(sf.optim.StepLR, step_size=3)),
    dict(schedule=sequential), dict(schedule=partial(sequential, step_size=1)),
    dict(schedule=WARM_UP, optimizer=partial(sf.optim.Adam, lr=0.125)),
])  # fmt: skip
def test_an_allowed_lr_or_schedule_has_the_rates_as_if_it_had_been_there_from_the_start(change, tmp_path):
    given = parts() | {"batches": list(toy.batches(14))}
    fit(4, given, checkpoint=tmp_path)
    resumed = fit(7, given | change, resume=tmp_path, allow=["optimizer", "schedule"])[3]
    assert resumed["lr"][4:] == fit(7, given | change)[3]["lr"][4:]


def test_an_allowed_new_schedule_begins(tmp_path):
    given = parts() | {"schedule": None}
    fit(2, given, checkpoint=tmp_path)
    history = fit(6, given | {"schedule": WARM_UP}, resume=tmp_path, allow=["schedule"])[3]
    np.testing.assert_allclose(history["lr"], [0.25, 0.25, 0.25 / 3, 0.25 * 5 / 9, 0.25 * 7 / 9, 0.25])


def test_an_allowed_option_of_the_scaler_counts_from_then_on_and_the_scale_continues(tmp_path):
    given = parts() | {"scaler": sf.optim.DynamicLossScale(8.0, growth_interval=2)}
    fit(3, given, checkpoint=tmp_path)
    slower = sf.optim.DynamicLossScale(8.0, growth_interval=3)
    history = fit(6, given | {"scaler": slower}, resume=tmp_path, allow=["scaler"])[3]
    assert history["scale"] == [8.0, 8.0, 16.0, 16.0, 16.0, 32.0]
    larger = sf.optim.DynamicLossScale(4.0, growth_interval=2)
    assert fit(4, given | {"scaler": larger}, resume=tmp_path, allow=["init_scale"])[3]["scale"][3] == 4.0


def test_options_that_change_no_bit_may_differ(tmp_path):
    longer = parts() | {"batches": list(toy.batches(16))}
    whole = fit(8, longer)[0].state_dict()
    fit(3, parts(), checkpoint=tmp_path, every=2)
    evaluate = dict(evaluate=lambda model: {"one": 1.0}, evaluate_every=1)
    model, *_ = fit(8, longer, resume=tmp_path, every=1, stop=lambda history: False, device="cpu", **evaluate)
    assert_same(model.state_dict(), whole)


def test_two_policies_of_one_set_of_roles_are_one(tmp_path):
    roles = sf.policies["bf16-kahan"].to_dict()
    twin = sf.Policy.from_dict({**roles, "name": "mine", "source": None})
    toy.fit("bf16-kahan", 2, checkpoint=tmp_path)
    assert_same(toy.fit(twin, 4, resume=tmp_path)[0], toy.fit("bf16-kahan", 4)[0])


def test_the_same_parts_continue_in_one_process_though_lr_scale_and_policy_have_moved(tmp_path):
    given = parts()
    sf.nn.seed(1)
    model = given["model"]()
    optimizer = given["optimizer"](model.parameters())
    schedule, scaler = given["schedule"](optimizer), sf.optim.DynamicLossScale(8.0, growth_interval=1)
    rule = sf.Switching("fp8-hybrid", "bf16-standard", lambda: 1.0, above=0.5, hold=99)
    with sf.simulate("fp8-hybrid", seed=3) as simulation:
        for steps in (3, 6):
            sf.train.fit(
                model, given["loss_fn"], given["batches"], optimizer, scaler=scaler, schedule=schedule, steps=steps,
                switching=rule, checkpoint=tmp_path, resume=tmp_path,
            )  # fmt: skip
    assert scaler.get_scale() == 8.0 * 2**6 and optimizer.lr < 0.25 and simulation.policy.name == "bf16-standard"


def test_a_policy_that_was_assigned_before_stays_in_force(tmp_path):
    def trained(steps):
        model, optimizer, _ = toy.parts()
        simulation = sf.simulate("fp8-hybrid")
        simulation.policy = "bf16-standard"
        with simulation:
            sf.train.fit(
                model, sf.nn.cross_entropy, toy.batches(steps), optimizer, checkpoint=tmp_path, resume=tmp_path
            )
        return model.state_dict(), simulation.policy.name

    trained(2)
    assert trained(5)[1] == "bf16-standard"
