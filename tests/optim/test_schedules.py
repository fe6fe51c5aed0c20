"""Schedules of the learning rate: PyTorch's learning rates, bit for bit."""

import inspect
import json
import math

import numpy as np
import pytest

import simfloat as sf

torch = pytest.importorskip("torch", reason="needs torch as an oracle")
pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")

EPOCHS = 60


def ours():
    params = [sf.Parameter(np.ones(1, np.float32)) for _ in range(2)]
    return sf.optim, sf.optim.SGD([{"params": params[0], "lr": 0.1}, {"params": params[1], "lr": 0.37}])


def torchs():
    params = [torch.ones(1, requires_grad=True) for _ in range(2)]
    return torch.optim.lr_scheduler, torch.optim.SGD(
        [{"params": params[0], "lr": 0.1}, {"params": params[1], "lr": 0.37}]
    )


def warm_up_then(make):
    def both(lib, optimizer):
        warm_up = lib.LinearLR(optimizer, start_factor=0.01, total_iters=7)
        return lib.SequentialLR(optimizer, [warm_up, make(lib, optimizer)], milestones=[7])

    return both


def squared(epoch):
    return 0.9**epoch + 1 / (1 + epoch) ** 2


def shrunk(x):
    return 1 / (1 + x / 10)


SCHEDULES = {
    "step": lambda lib, o: lib.StepLR(o, step_size=7),
    "step, every epoch": lambda lib, o: lib.StepLR(o, 1, gamma=0.99),
    "linear": lambda lib, o: lib.LinearLR(o),
    "linear, down to nothing": lambda lib, o: lib.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=30),
    "linear, warm-up": lambda lib, o: lib.LinearLR(o, 1e-3, total_iters=20),
    "cosine": lambda lib, o: lib.CosineAnnealingLR(o, T_max=13),
    "cosine, above zero": lambda lib, o: lib.CosineAnnealingLR(o, 50, eta_min=0.05),
    "cosine, of one epoch": lambda lib, o: lib.CosineAnnealingLR(o, 1),
    "function": lambda lib, o: lib.LambdaLR(o, squared),
    "functions": lambda lib, o: lib.LambdaLR(o, [squared, lambda epoch: 1 / (epoch + 3)]),
    "warm-up, cosine": warm_up_then(lambda lib, o: lib.CosineAnnealingLR(o, T_max=40, eta_min=0.01)),
    "warm-up, steps": warm_up_then(lambda lib, o: lib.StepLR(o, 5, gamma=0.5)),
    "warm-up, function": warm_up_then(lambda lib, o: lib.LambdaLR(o, squared)),
    "cosine, linear, steps": lambda lib, o: lib.SequentialLR(
        o, [lib.CosineAnnealingLR(o, 9, 0.01), lib.LinearLR(o, 0.5, 0.25), lib.StepLR(o, 2)], milestones=[10, 25]
    ),
    "the second from the start": lambda lib, o: lib.SequentialLR(
        o, [lib.LinearLR(o, 0.5), lib.StepLR(o, 3)], milestones=[0]
    ),
    "exponential": lambda lib, o: lib.ExponentialLR(o, 0.93),
    "milestones": lambda lib, o: lib.MultiStepLR(o, [30, 5, 17, 17], gamma=0.3),
    "milestones, from the start": lambda lib, o: lib.MultiStepLR(o, (0, 2)),
    "polynomial": lambda lib, o: lib.PolynomialLR(o, 40, power=0.9),
    "polynomial, in short": lambda lib, o: lib.PolynomialLR(o),
    "constant": lambda lib, o: lib.ConstantLR(o, total_iters=9),
    "restarts": lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 7),
    "restarts, longer and longer": lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 3, T_mult=2, eta_min=0.01),
    "cyclic": lambda lib, o: lib.CyclicLR(o, 0.01, 0.1, step_size_up=7),
    "cyclic, halved": lambda lib, o: lib.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 5, 11, mode="triangular2"),
    "cyclic, shrinking": lambda lib, o: lib.CyclicLR(o, 0.01, 0.1, 6, 3, "exp_range", 0.98, base_momentum=[0.5, 0.6]),
    "cyclic, by a function": lambda lib, o: lib.CyclicLR(
        o, 0.01, 0.1, 6, scale_fn=shrunk, scale_mode="iterations", cycle_momentum=False
    ),
    "one cycle": lambda lib, o: lib.OneCycleLR(o, 0.3, 60),
    "one cycle, in three phases": lambda lib, o: lib.OneCycleLR(
        o, [0.3, 0.5], epochs=6, steps_per_epoch=10, pct_start=0.4, three_phase=True, max_momentum=[0.9, 0.95]
    ),
    "one cycle, in lines": lambda lib, o: lib.OneCycleLR(
        o, 0.3, 80, pct_start=0.25, anneal_strategy="linear", cycle_momentum=False, div_factor=3.0, final_div_factor=7
    ),
    "one cycle, of few steps": lambda lib, o: lib.OneCycleLR(o, 0.3, 61, pct_start=1.0),
    "warm-up, exponential": warm_up_then(lambda lib, o: lib.ExponentialLR(o, 0.9)),
    "warm-up, milestones": warm_up_then(lambda lib, o: lib.MultiStepLR(o, [0, 10])),
    "warm-up, polynomial": warm_up_then(lambda lib, o: lib.PolynomialLR(o, 20, 2.0)),
    "warm-up, constant": warm_up_then(lambda lib, o: lib.ConstantLR(o, 0.5, 8)),
    "warm-up, restarts": warm_up_then(lambda lib, o: lib.CosineAnnealingWarmRestarts(o, 5, 3)),
    "cyclic, whose lower lr is the first for what comes then": lambda lib, o: lib.SequentialLR(
        o, [lib.CyclicLR(o, 0.01, 0.1, 4), lib.ExponentialLR(o, 0.9), lib.OneCycleLR(o, 0.3, 60)], milestones=[10, 20]
    ),
    "cyclic, upon another": lambda lib, o: (lib.StepLR(o, 5, 0.5), lib.CyclicLR(o, 0.01, 0.1, 4))[1],
    "one upon the other": lambda lib, o: (lib.StepLR(o, 5, 0.5), lib.CosineAnnealingLR(o, 30))[1],
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
def test_learning_rates_are_torchs_bit_for_bit_and_a_restored_schedule_continues(name):
    (lib, mine), (oracle_lib, theirs) = ours(), torchs()
    schedule, oracle = SCHEDULES[name](lib, mine), SCHEDULES[name](oracle_lib, theirs)
    for epoch in range(EPOCHS):
        if epoch == 11:
            states = json.loads(json.dumps([schedule.state_dict(), mine.state_dict()]))
            lib, mine = ours()
            schedule = SCHEDULES[name](lib, mine)
            schedule.load_state_dict(states[0])
            mine.load_state_dict(states[1])
        got, want = ([group["lr"] for group in optimizer.param_groups] for optimizer in (mine, theirs))
        assert got == want == schedule.get_last_lr() == oracle.get_last_lr()
        momenta = [[group["momentum"] for group in optimizer.param_groups] for optimizer in (mine, theirs)]
        assert momenta[0] == momenta[1]
        assert schedule.last_epoch == oracle.last_epoch
        schedule.step()
        oracle.step()


def rates(make, lr, epochs):
    """The lrs of a schedule of ours, and those of torch's, made by one function of the library and the optimizer."""
    mine = sf.optim.SGD([sf.Parameter([1.0])], lr=lr)
    theirs = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=lr)
    for schedule in (make(sf.optim, mine), make(torch.optim.lr_scheduler, theirs)):
        found = []
        for _ in range(epochs):
            found += schedule.get_last_lr()
            schedule.step()
        yield found


@pytest.mark.parametrize("start", [1 / 3, 0.1, 0.7, 1.0])
def test_a_linear_schedule_to_zero_has_torchs_lrs_and_ends_at_zero(start):
    for total in range(1, 201):
        mine, theirs = rates(lambda lib, o, n=total: lib.LinearLR(o, start, 0.0, n), 0.1, total + 3)
        assert mine[:total] == theirs[:total] and mine[total:] == [0.0] * 3
        assert max(map(abs, theirs[total:])) < 1e-15


@pytest.mark.parametrize("make", [
    lambda lib, o, n: lib.LinearLR(o, 1 / 3, 1e-20, n),
    lambda lib, o, n: lib.LinearLR(o, 0.01, 1e-300, n),
    lambda lib, o, n: lib.CosineAnnealingLR(o, n),
    lambda lib, o, n: lib.CosineAnnealingLR(o, n, eta_min=0.1),
    lambda lib, o, n: lib.SequentialLR(o, [lib.LinearLR(o, 0.1, 0.0, n), lib.CosineAnnealingLR(o, n)], [n]),
])  # fmt: skip
@pytest.mark.parametrize("lr", [0.0, 0.37])
def test_no_rounding_error_takes_an_lr_below_zero_and_all_others_are_torchs(make, lr):
    for total in range(1, 60):
        mine, theirs = rates(lambda lib, o, n=total: make(lib, o, n), lr, 4 * total + 2)
        assert min(mine) >= 0.0
        first = next((i for i, rate in enumerate(theirs) if rate < 0 or rate < 1e-17 * lr), len(theirs))
        assert mine[:first] == theirs[:first]


@pytest.mark.parametrize("name", [
    "step", "linear", "cosine", "function", "warm-up, cosine", "exponential", "milestones", "polynomial", "constant",
    "restarts, longer and longer", "cyclic", "cyclic, by a function", "one cycle", "one cycle, in lines",
])  # fmt: skip
def test_states_have_torchs_names_and_torchs_states_can_be_loaded(name):
    (lib, mine), (oracle_lib, theirs) = ours(), torchs()
    schedule, oracle = SCHEDULES[name](lib, mine), SCHEDULES[name](oracle_lib, theirs)
    for _ in range(9):
        oracle.step()
    state = oracle.state_dict()
    flags = {"_step_count", "_is_initial", "_get_lr_called_within_step"}
    assert set(schedule.state_dict()) == set(state) - flags
    schedule.load_state_dict(state)
    assert schedule.get_last_lr() == oracle.get_last_lr() and schedule.last_epoch == 9


@pytest.mark.parametrize("kind, first", [
    ("StepLR", (4,)), ("LinearLR", ()), ("CosineAnnealingLR", (13,)), ("LambdaLR", (squared,)),
    ("ExponentialLR", (0.9,)), ("MultiStepLR", ([3, 9],)), ("PolynomialLR", (20,)), ("ConstantLR", (0.5, 9)),
    ("CosineAnnealingWarmRestarts", (4,)),
])  # fmt: skip
def test_last_epoch_continues_with_groups_that_have_an_initial_lr(kind, first):
    lrs = []
    for lib, optimizer in (ours(), torchs()):
        with pytest.raises((KeyError, ValueError), match="initial_lr"):
            getattr(lib, kind)(optimizer, *first, last_epoch=6)
        for group in optimizer.param_groups:
            group["initial_lr"] = 2 * group["lr"]
        schedule = getattr(lib, kind)(optimizer, *first, last_epoch=6)
        for _ in range(5):
            schedule.step()
            lrs.append(schedule.get_last_lr())
    assert lrs[:5] == lrs[5:]


@pytest.mark.parametrize("kind", [
    "StepLR", "LinearLR", "CosineAnnealingLR", "LambdaLR", "SequentialLR", "ExponentialLR", "MultiStepLR",
    "PolynomialLR", "ConstantLR", "CosineAnnealingWarmRestarts", "ReduceLROnPlateau", "CyclicLR", "OneCycleLR",
])  # fmt: skip
def test_arguments_are_torchs(kind):
    mine, theirs = (inspect.signature(getattr(lib, kind)) for lib in (sf.optim, torch.optim.lr_scheduler))
    assert [(p.name, p.default) for p in mine.parameters.values()] == [
        (p.name, p.default) for p in theirs.parameters.values()
    ]


def test_the_lr_that_is_set_is_that_of_the_update():
    p = sf.Parameter(np.zeros(1, np.float32))
    optimizer = sf.optim.SGD([p], lr=1.0)
    schedule = sf.optim.StepLR(optimizer, 1, gamma=0.5)
    with sf.simulate("fp32"):
        for want in (-1.0, -1.5, -1.75):
            p.grad = np.ones(1)
            optimizer.step()
            schedule.step()
            assert p.data.tolist() == [want]
    assert optimizer.lr == 0.125


def test_schedules_nest():
    lib, optimizer = ours()
    inner = lib.SequentialLR(optimizer, [lib.LinearLR(optimizer, 0.5, total_iters=2), lib.StepLR(optimizer, 1)], [2])
    outer = lib.SequentialLR(optimizer, [lib.LambdaLR(optimizer, lambda epoch: 2.0), inner], [3])
    seen = []
    for _ in range(7):
        seen.append(outer.get_last_lr()[0])
        outer.step()
    np.testing.assert_allclose(seen, [0.2, 0.2, 0.2, 0.05, 0.075, 0.1, 0.01])


def test_a_schedule_of_schedules_has_in_another_the_rates_that_torch_gives_it_alone():
    def parts(lib, optimizer):
        return lib.SequentialLR(optimizer, [lib.LinearLR(optimizer, 0.5, total_iters=2), lib.StepLR(optimizer, 1)], [2])

    def rates(lib, optimizer, make, epochs):
        schedule = make(lib, optimizer)
        for _ in range(epochs):
            yield schedule.get_last_lr()
            schedule.step()

    def first(lib, optimizer):
        return lib.SequentialLR(optimizer, [parts(lib, optimizer), lib.LambdaLR(optimizer, squared)], [4])

    def second(lib, optimizer):
        return lib.SequentialLR(optimizer, [lib.LambdaLR(optimizer, squared), parts(lib, optimizer)], [4])

    alone = list(rates(*torchs(), parts, 4))
    assert list(rates(*ours(), first, 8))[:4] == alone
    later = list(rates(*ours(), second, 8))[4:]
    np.testing.assert_allclose(later, alone, rtol=1e-15)  # epoch 0 after others is in closed form


def test_callables_that_are_no_functions_keep_their_attributes():
    class Counting:
        def __init__(self):
            self.calls = 0

        def __call__(self, epoch):
            self.calls += 1
            return 1.0

    lib, optimizer = ours()
    schedule = lib.LambdaLR(optimizer, [Counting(), squared])
    state = schedule.state_dict()
    assert state["lr_lambdas"] == [{"calls": 1}, None]
    schedule.step()
    schedule.load_state_dict(state)
    assert schedule.lr_lambdas[0].calls == 1
    with pytest.raises(ValueError, match="lr_lambdas must contain attributes by name, or None for a function"):
        schedule.load_state_dict({**state, "lr_lambdas": [{"calls": 5}, 3]})
    assert schedule.lr_lambdas[0].calls == 1


def scheduled(**options):
    return sf.optim.StepLR(ours()[1], **{"step_size": 2, **options})


@pytest.mark.parametrize("make, message", [
    (lambda: sf.optim.StepLR(torchs()[1], 2), "takes an optimizer of simfloat.optim, got a SGD"),
    (lambda: sf.optim.LambdaLR(None, squared), "takes an optimizer of simfloat.optim, got a NoneType"),
    (lambda: scheduled(step_size=0), "step_size must be an integer from 1"),
    (lambda: scheduled(step_size=2.0), "step_size must be an integer from 1"),
    (lambda: scheduled(gamma="0.1"), "gamma must be a real number"),
    (lambda: scheduled(last_epoch=-2), "last_epoch must be an integer from -1"),
    (lambda: sf.optim.LinearLR(ours()[1], start_factor=0), "start_factor must be above 0 and at most 1, got 0"),
    (lambda: sf.optim.LinearLR(ours()[1], end_factor=1.5), "end_factor must be from 0 to 1, got 1.5"),
    (lambda: sf.optim.CosineAnnealingLR(ours()[1], 0), "T_max must be an integer from 1"),
    (lambda: sf.optim.LambdaLR(ours()[1], [squared]), "a function of the epoch or a list of 2"),
    (lambda: sf.optim.LambdaLR(ours()[1], 0.5), "a function of the epoch or a list of 2, got 0.5"),
    (lambda: sf.optim.LambdaLR(ours()[1], lambda epoch: None), r"lr_lambda\(0\) must be a real number, got None"),
    (lambda: sf.optim.LambdaLR(ours()[1], lambda epoch: math.nan), r"lr_lambda\(0\) must be a finite number"),
    (lambda: sf.optim.SequentialLR(ours()[1], None, []), "schedulers must be a list, got None"),
    (lambda: sf.optim.SequentialLR(ours()[1], [scheduled()], 5), "milestones must be a list, got 5"),
    (lambda: sf.optim.SequentialLR(ours()[1], [], []), "takes a list of schedules"),
    (lambda: sf.optim.SequentialLR(ours()[1], [scheduled()], []), "schedules of its own optimizer"),
    (lambda: sf.optim.LRScheduler(ours()[1]), "LRScheduler has no method following"),
])  # fmt: skip
def test_schedules_that_cannot_be_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("count", "milestones"), [
    (2, []), (2, [1, 2]), (2, [3.0]), (2, [-1]), (2, [True]), (3, [2, 2]), (3, [2, 1]),
])  # fmt: skip
def test_milestones_are_one_less_than_schedules_and_ascend(count, milestones):
    lib, optimizer = ours()
    schedules = [lib.StepLR(optimizer, 2) for _ in range(count)]
    with pytest.raises(
        ValueError, match=f"milestones must be {count - 1} ascending integers for {count} schedules, got"
    ):
        lib.SequentialLR(optimizer, schedules, milestones)


@pytest.mark.parametrize("change, message", [
    ({"step_size": 0}, "step_size must be an integer"),
    ({"base_lrs": [0.1]}, "base_lrs must be a list of 2 numbers, one for each group"),
    ({"_last_lr": [0.1, "a"]}, r"_last_lr\[1\] must be a real number"),
    ({"T_max": 3}, r"not StepLR's: missing \[\], unknown \['T_max'\]"),
])  # fmt: skip
def test_a_state_that_is_not_the_schedules_is_refused_whole(change, message):
    schedule = scheduled()
    before = schedule.state_dict()
    with pytest.raises(ValueError, match=message):
        schedule.load_state_dict({**before, "last_epoch": 5, **change})
    with pytest.raises(ValueError, match="takes a result of StepLR.state_dict"):
        schedule.load_state_dict(None)
    assert schedule.state_dict() == before


def test_a_state_of_several_schedules_is_taken_whole_or_not_at_all():
    lib, optimizer = ours()
    schedule = SCHEDULES["warm-up, function"](lib, optimizer)
    for _ in range(9):
        schedule.step()
    state = schedule.state_dict()
    first, second = state["_schedulers"]
    for change, message in (
        ({"_schedulers": [first, {**second, "lr_lambdas": []}]}, "lr_lambdas must be a list of 2, one for each group"),
        ({"_schedulers": [{**first, "base_lrs": []}, second]}, "base_lrs must be a list of 2 numbers"),
        ({"_schedulers": [second, first]}, "not LinearLR's: missing"),
        ({"_schedulers": [first]}, "must be 2 states"),
        ({"_milestones": [8]}, r"must be those of the schedule, \[7\], got \[8\]"),
        ({"last_epoch": 1.5}, "last_epoch must be an integer"),
    ):
        fresh = SCHEDULES["warm-up, function"](*ours())
        before = fresh.state_dict()
        with pytest.raises(ValueError, match=message):
            fresh.load_state_dict({**state, **change})
        assert fresh.state_dict() == before


def test_a_group_that_comes_later_needs_a_new_schedule():
    schedule = scheduled()
    schedule.optimizer.add_param_group({"params": sf.Parameter([1.0])})
    with pytest.raises(ValueError, match="has 3 groups, the schedule was created for 2; create a new one"):
        schedule.step()
