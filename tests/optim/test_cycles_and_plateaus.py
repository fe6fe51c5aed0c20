"""Schedules with momenta, restarts or a measure: PyTorch's values, bit for bit."""

import json

import numpy as np
import pytest

import simfloat as sf

torch = pytest.importorskip("torch", reason="needs torch as an oracle")
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

LIBRARIES = (sf.optim, torch.optim.lr_scheduler)


def optimizers(kind="SGD", lrs=(0.1, 0.37), **options):
    """One of ours and one of torch's, with a group for each lr."""
    mine = [{"params": sf.Parameter(np.ones(1, np.float32)), "lr": lr} for lr in lrs]
    theirs = [{"params": torch.ones(1, requires_grad=True), "lr": lr} for lr in lrs]
    return getattr(sf.optim, kind)(mine, **options), getattr(torch.optim, kind)(theirs, **options)


@pytest.mark.parametrize("kind, name", [("SGD", "momentum"), ("AdamW", "betas"), ("RMSprop", "momentum")])
@pytest.mark.parametrize("make", [
    lambda lib, o: lib.OneCycleLR(o, 0.3, 30, base_momentum=[0.6, 0.7]),
    lambda lib, o: lib.CyclicLR(o, 0.01, 0.2, 4, 3, mode="triangular2", max_momentum=0.95),
])  # fmt: skip
def test_a_cycle_sets_the_momentum_that_the_optimizer_has(make, kind, name):
    pair = optimizers(kind)
    schedules = [make(lib, optimizer) for lib, optimizer in zip(LIBRARIES, pair, strict=True)]
    for _ in range(30):
        mine, theirs = ([(g["lr"], g[name], g["max_momentum"]) for g in each.param_groups] for each in pair)
        assert mine == theirs
        for schedule in schedules:
            schedule.step()


@pytest.mark.parametrize("T_mult", [1, 2, 3])
def test_restarts_may_be_told_where_in_an_epoch_they_are(T_mult):
    pair = optimizers()
    schedules = [lib.CosineAnnealingWarmRestarts(o, 10, T_mult, 0.01) for lib, o in zip(LIBRARIES, pair, strict=True)]
    for epoch in (0, 0.25, 3.5, 9.875, 10, 12.3, 39.9, 40.25, 75, 3.125):
        for schedule in schedules:
            schedule.step(epoch)
        assert schedules[0].get_last_lr() == schedules[1].get_last_lr()
        assert (schedules[0].last_epoch, schedules[0].T_cur, schedules[0].T_i) == (
            schedules[1].last_epoch, schedules[1].T_cur, schedules[1].T_i,
        )  # fmt: skip
    for _ in range(5):
        for schedule in schedules:
            schedule.step()
        assert schedules[0].get_last_lr() == schedules[1].get_last_lr()
    with pytest.raises(ValueError, match="epoch must not be negative, got -1"):
        schedules[0].step(-1)


def test_a_restart_is_one_also_where_logarithms_miss_it():
    optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
    schedule = sf.optim.CosineAnnealingWarmRestarts(optimizer, 10, T_mult=3)
    stepped = []
    for epoch in range(1300):
        if schedule.T_cur == 0:
            stepped.append(epoch)
        schedule.step()
    assert stepped == [0, 10, 40, 130, 400, 1210]
    for epoch in stepped:
        schedule.step(epoch)
        assert schedule.T_cur == 0 and schedule.get_last_lr() == [1.0]


MEASURES = np.random.default_rng(3).choice(
    [1.0, 0.999, 0.9, 1.1, 0.5, -1.0, -1.00001, np.nan, 0.0, 3.0], 150
).tolist()  # fmt: skip

PLATEAUS = [
    {},
    dict(mode="max", factor=0.5, patience=2),
    dict(factor=0.7, patience=0, cooldown=3, threshold=0.05, threshold_mode="abs"),
    dict(mode="max", threshold=0.2, threshold_mode="abs", patience=1, min_lr=[0.01, 0.2]),
    dict(factor=0.9, patience=1, min_lr=0.05, eps=0.02),
]


@pytest.mark.parametrize("options", PLATEAUS)
def test_a_plateau_lowers_the_lr_as_torchs_does(options):
    pair = optimizers()
    mine, theirs = (lib.ReduceLROnPlateau(o, **options) for lib, o in zip(LIBRARIES, pair, strict=True))
    for i, measure in enumerate(MEASURES):
        assert mine.get_last_lr() == theirs.get_last_lr() == [group["lr"] for group in pair[0].param_groups]
        assert (mine.num_bad_epochs, mine.cooldown_counter) == (theirs.num_bad_epochs, theirs.cooldown_counter)
        mine.step(np.float32(measure) if i % 2 else measure)
        theirs.step(np.float32(measure) if i % 2 else measure)
    assert max(mine.get_last_lr()) < 0.37


@pytest.mark.parametrize("options", PLATEAUS)
def test_a_plateau_continues_from_its_state_and_from_torchs(options):
    pair = optimizers()
    mine, theirs = (lib.ReduceLROnPlateau(o, **options) for lib, o in zip(LIBRARIES, pair, strict=True))
    for measure in MEASURES[:40]:
        mine.step(measure)
        theirs.step(measure)
    assert set(mine.state_dict()) == set(theirs.state_dict())
    for state in (json.loads(json.dumps(mine.state_dict())), theirs.state_dict()):
        again = optimizers()[0]
        schedule = sf.optim.ReduceLROnPlateau(again)
        schedule.load_state_dict(state)
        for group, known in zip(again.param_groups, theirs.optimizer.param_groups, strict=True):
            group["lr"] = known["lr"]
        assert schedule.state_dict() == mine.state_dict()


def test_measures_may_be_tensors_and_arrays_and_nothing_else():
    schedule = sf.optim.ReduceLROnPlateau(optimizers()[0])
    for measure in (1, np.float32(0.5), np.array(0.25), sf.Tensor(0.125), torch.tensor(0.0625)):
        schedule.step(measure)
    assert schedule.best == 0.0625 and schedule.last_epoch == 5
    for wrong in ("0.5", None, True, [1.0]):
        with pytest.raises(ValueError, match="metrics must be a number, such as the loss of an evaluation"):
            schedule.step(wrong)


def one_cycle(optimizer=None, **options):
    return sf.optim.OneCycleLR(optimizer or optimizers()[0], 0.1, **{"total_steps": 10, **options})


def test_there_are_as_many_steps_as_there_were_said_to_be():
    schedule = one_cycle()
    for _ in range(10):
        schedule.step()
    with pytest.raises(ValueError, match="The schedule has 10 steps; this would be number 11"):
        schedule.step()


def test_a_warm_up_of_one_step_begins_at_the_largest_lr():
    assert one_cycle(pct_start=0.1).get_last_lr() == [0.1, 0.1]


def test_no_rounding_error_takes_a_cycle_below_zero():
    for total in range(2, 40):
        schedule = one_cycle(total_steps=total, anneal_strategy="linear", final_div_factor=1e300)
        for _ in range(total - 1):
            schedule.step()
            assert min(schedule.get_last_lr()) >= 0.0


def test_a_cycle_that_continues_needs_what_its_beginning_gave_the_groups():
    mine, theirs = optimizers()
    schedules = [lib.OneCycleLR(o, 0.3, 20) for lib, o in zip(LIBRARIES, (mine, theirs), strict=True)]
    for schedule in schedules:
        for _ in range(7):
            schedule.step()
    again, others = optimizers()
    again.load_state_dict(theirs.state_dict())
    others.load_state_dict(theirs.state_dict())
    rates = []
    for lib, optimizer in zip(LIBRARIES, (again, others), strict=True):
        schedule = lib.OneCycleLR(optimizer, 0.3, 20, last_epoch=7)
        rates.append([schedule.get_last_lr()])
        for _ in range(5):
            schedule.step()
            rates[-1].append(schedule.get_last_lr())
    assert rates[0] == rates[1]
    fresh = optimizers()[0]
    for group in fresh.param_groups:
        group["initial_lr"] = 0.1
    with pytest.raises(ValueError, match=r"param_groups\[0\] has no 'max_lr': load the optimizer's state first"):
        sf.optim.OneCycleLR(fresh, 0.3, 20, last_epoch=7)


@pytest.mark.parametrize("make, message", [
    (lambda o: sf.optim.MultiStepLR(o, 5), "milestones must be a list of epochs, got 5"),
    (lambda o: sf.optim.MultiStepLR(o, [1.5]), r"milestones must be a list of integers from 0, got \[1.5\]"),
    (lambda o: sf.optim.PolynomialLR(o, power=-1.0), "power must not be negative, got -1.0"),
    (lambda o: sf.optim.ConstantLR(o, 1.5), "factor must be from 0 to 1, got 1.5"),
    (lambda o: sf.optim.CosineAnnealingWarmRestarts(o, 0), "T_0 must be an integer from 1"),
    (lambda o: sf.optim.ReduceLROnPlateau(o, "least"), "mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs'"),
    (lambda o: sf.optim.ReduceLROnPlateau(o, factor=1.0), "factor must be from 0 below 1, got 1.0"),
    (lambda o: sf.optim.ReduceLROnPlateau(o, min_lr=[0.1]), "min_lr must be a list of 2 numbers, one for each group"),
    (lambda o: sf.optim.SequentialLR(o, [sf.optim.ReduceLROnPlateau(o)], []), "SequentialLR passes no measure"),
    (lambda o: sf.optim.CyclicLR(o, 0.1, 0.2, 0), "step_size_up must be an integer from 1"),
    (lambda o: sf.optim.CyclicLR(o, 0.1, [0.2]), "max_lr must be a number or a list of 2, one for each group"),
    (lambda o: sf.optim.CyclicLR(o, 0.1, 0.2, mode="square"), "mode must be one of 'triangular', 'triangular2'"),
    (lambda o: sf.optim.CyclicLR(o, 0.1, 0.2, scale_fn=3), "scale_fn must be a function of a number, got 3"),
    (lambda o: sf.optim.CyclicLR(o, 0.1, 0.2, max_momentum=1.0), "max_momentum must be from 0 below 1, got 1.0"),
    (lambda o: sf.optim.OneCycleLR(o, 0.1), "OneCycleLR needs total_steps, or epochs and steps_per_epoch"),
    (lambda o: one_cycle(o, pct_start=1.5), "pct_start must be from 0 to 1, got 1.5"),
    (lambda o: one_cycle(o, anneal_strategy="exp"), "anneal_strategy must be 'cos' or 'linear', got 'exp'"),
    (lambda o: one_cycle(o, div_factor=0.0), "div_factor must be above 0, got 0.0"),
    (
        lambda o: one_cycle(sf.optim.Adagrad([sf.Parameter([1.0])])),
        "needs an optimizer with momentum or betas, Adagrad has neither; pass cycle_momentum=False",
    ),
])  # fmt: skip
def test_options_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(optimizers()[0])


def test_a_constant_of_zero_is_followed_by_the_first_lr():
    optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=0.3)
    schedule = sf.optim.ConstantLR(optimizer, 0.0, 2)
    rates = [schedule.get_last_lr()[0]]
    for _ in range(3):
        schedule.step()
        rates += schedule.get_last_lr()
    assert rates == [0.0, 0.0, 0.3, 0.3]


def test_a_factor_of_ones_own_keeps_its_attributes_in_the_state():
    class Halved:
        def __init__(self):
            self.factor = 0.5

        def __call__(self, cycle):
            return self.factor**cycle

    schedule = sf.optim.CyclicLR(optimizers()[0], 0.1, 0.2, 3, scale_fn=Halved())
    state = schedule.state_dict()
    assert state["_scale_fn_custom"] == {"factor": 0.5}
    schedule.load_state_dict({**state, "_scale_fn_custom": {"factor": 0.25}})
    assert schedule.scale_fn(2) == 0.0625
    bad = sf.optim.CyclicLR
    with pytest.raises(ValueError, match=r"scale_fn\(1\) must be a real number, got None"):
        bad(optimizers()[0], 0.1, 0.2, scale_fn=lambda cycle: None)
