"""The base class of learning-rate schedules, and two schedules that it does not compute by a formula.

One lowers the lr where a measure gets no better, the other runs several schedules one after another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from numbers import Real
from typing import Any, ClassVar, Literal

from simfloat.common import is_integer
from simfloat.environment import InUsualEnvironment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import Reader, count_from_zero, decay, integer, number, number_from_zero, optional, word

#: What PyTorch's states of schedules hold for its warnings.
WARNINGS = {"_step_count", "_is_initial", "_get_lr_called_within_step"}

last_epochs = integer(-1, 2**53)


class LRScheduler(InUsualEnvironment):
    """A schedule: `step()`, once after each epoch, or each step, of the optimizer, sets the `lr` of every group.

    Learning rates are exact operands of updates, so they are computed in float64 and not rounded by any policy; each
    follows from the one before by PyTorch's formula, and has its bits. What else changes a group's lr in between is
    kept, as a factor. The lr that the group had at first is its `initial_lr`; with last_epoch above -1, a schedule goes
    on from there with groups that have one.

    Raises ValueError for what is no optimizer, and for a group without `initial_lr` where one is needed.
    """

    #: The arguments of the schedule beside the optimizer, by name; they are attributes, and part of the state.
    options: ClassVar[Mapping[str, Reader[Any]]] = {}

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1, **options: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"A schedule takes an optimizer of simfloat.optim, got a {type(optimizer).__name__}.")
        self.optimizer = optimizer
        self.last_epoch = self._before = last_epochs("last_epoch", last_epoch)
        vars(self).update({name: read(name, options[name]) for name, read in self.options.items()})
        self.give_groups()
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(
                    f"last_epoch={last_epoch} goes on with a schedule, but param_groups[{i}] has no 'initial_lr': load "
                    "the optimizer's state first, or start with last_epoch=-1."
                )
        self.base_lrs = self.first_lrs()
        self.begin()

    def give_groups(self) -> None:
        """Give the groups what a schedule that begins sets in them before their `initial_lr` is kept."""

    def first_lrs(self) -> list[float]:
        """The lr that each group had at first."""
        return [float(group["initial_lr"]) for group in self.optimizer.param_groups]

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it and the one that the group had at first.

        `is_first` says that the schedule only begins, at any epoch.
        """
        raise ValueError(f"{type(self).__name__} has no method following; define one.")

    def at_zero(self, group: int, base: float) -> float:
        """The lr of a group at epoch 0 of a schedule that begins after another one."""
        return self.following(group, base, base, True)

    def begin(self) -> None:
        """Set the lr of the first epoch."""
        self.last_epoch += 1
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self._set([self.following(i, lrs[i], base, True) for i, base in enumerate(self.base_lrs)])

    def begin_later(self) -> None:
        """Set the lr of epoch 0, when other schedules have come before."""
        self.last_epoch = 0
        self._set([self.at_zero(i, base) for i, base in enumerate(self.base_lrs)])

    def undo(self) -> None:
        """Take back that the schedule has begun; the lr stays."""
        self.last_epoch = self._before

    def step(self) -> None:
        """Go to the next epoch, and set its lr."""
        self._check_groups()
        self.last_epoch += 1
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self._set([self.following(i, lrs[i], base, False) for i, base in enumerate(self.base_lrs)])

    def get_last_lr(self) -> list[float]:
        """The lr of every group, as the schedule set it."""
        return list(self._last_lr)

    def arguments(self) -> dict[str, Any]:
        """What the schedule was told beside the optimizer, by name."""
        return {name: getattr(self, name) for name in self.options}

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names, JSON-able."""
        arguments = {name: getattr(self, name) for name in self.options}
        return {
            **arguments,
            "base_lrs": list(self.base_lrs),
            "last_epoch": self.last_epoch,
            "_last_lr": self.get_last_lr(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, all of it or nothing; the lr itself is in the optimizer's state.

        Raises ValueError for the state of another kind of schedule, or of another number of groups.
        """
        self.take(self.read(state_dict))

    def read(self, state: Any) -> dict[str, Any]:
        """The values of a state, each checked; ValueError for a state that is not this schedule's."""
        kind, readers = type(self).__name__, self.readers()
        if not isinstance(state, Mapping):
            raise ValueError(f"load_state_dict takes what {kind}.state_dict gives, got a {type(state).__name__}.")
        missing = [name for name in readers if name not in state]
        unknown = [name for name in state if name not in readers and name not in WARNINGS]
        if missing or unknown:
            raise ValueError(f"The state is not {kind}'s: missing {missing}, unknown {unknown}.")
        return {name: read(name, state[name]) for name, read in readers.items()}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {**self.options, "base_lrs": self._lrs, "last_epoch": last_epochs, "_last_lr": self._lrs}

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        vars(self).update(values)

    def _lrs(self, name: str, value: Any) -> list[float]:
        count = len(self.optimizer.param_groups)
        if not isinstance(value, list | tuple) or len(value) != count:
            raise ValueError(f"{name} must be a list of {count} numbers, one for each group, got {value!r}.")
        return [number(f"{name}[{i}]", lr) for i, lr in enumerate(value)]

    def _set(self, lrs: list[float]) -> None:
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr
        self._last_lr = lrs

    def _check_groups(self) -> None:
        has, knows = len(self.optimizer.param_groups), len(self.base_lrs)
        if has != knows:
            raise ValueError(f"The optimizer has {has} groups, the schedule was made for {knows}; make a new one.")

    def __repr__(self) -> str:
        arguments = [f"{name}={getattr(self, name)!r}" for name in self.options]
        return f"{type(self).__name__}({', '.join([*arguments, f'last_epoch={self.last_epoch}'])})"


#: What the best measure is before there is any, by `mode`.
WORST = {"min": inf, "max": -inf}


def as_measure(name: str, value: Any) -> float:
    """A measure as a number, which may be infinite or NaN."""
    if isinstance(value, bool | str) or not (isinstance(value, Real) or hasattr(value, "__float__")):
        raise ValueError(f"{name} must be a number, such as the loss of an evaluation, got {value!r}.")
    return float(value)


class ReduceLROnPlateau(LRScheduler):
    """lr is multiplied by factor when the measure that `step` is told was no better than the best for long.

    That is for more than patience calls, those within cooldown calls after the latest reduction left out. Better is
    less in the mode "min", and more in "max": than best * (1 - threshold) or best * (1 + threshold) in the
    threshold_mode "rel", than best - threshold or best + threshold in "abs". NaN is never better. lr does not fall
    below min_lr, a number, or a list of one for each group; changes of at most eps are left out. See
    torch.optim.lr_scheduler.ReduceLROnPlateau.

    Raises ValueError for options out of these ranges, and unless factor is below 1.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for loss in (3.0, 2.0, 2.0, 2.0, 2.0):
        ...         optimizer.step()
        ...         schedule.step(loss)
        ...         rates.append(optimizer.param_groups[0]["lr"])
        >>> rates
        [1.0, 1.0, 1.0, 0.5, 0.5]
    """

    options = {
        "mode": word("min", "max"),
        "factor": decay,
        "patience": count_from_zero,
        "threshold": number_from_zero,
        "threshold_mode": word("rel", "abs"),
        "cooldown": count_from_zero,
        "eps": number_from_zero,
    }

    mode: Literal["min", "max"]
    factor: float
    patience: int
    threshold: float
    threshold_mode: Literal["rel", "abs"]
    cooldown: int
    eps: float
    default_min_lr: float | None

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in WORST or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and {threshold_mode!r}."
            )
        self._min_lr = min_lr
        super().__init__(
            optimizer, mode=mode, factor=factor, patience=patience, threshold=threshold, threshold_mode=threshold_mode,
            cooldown=cooldown, eps=eps,
        )  # fmt: skip

    def begin(self) -> None:
        """Leave the lr of the groups as it is, and know of no measure yet."""
        min_lr = self._min_lr
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else number_from_zero("min_lr", min_lr)
        least = self._lrs("min_lr", [min_lr] * len(self.base_lrs) if self.default_min_lr is not None else min_lr)
        self.min_lrs = [number_from_zero("min_lr", lr) for lr in least]
        self.last_epoch, self.best, self.cooldown_counter, self.num_bad_epochs = 0, WORST[self.mode], 0, 0
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether the latest reduction is so recent that no measure counts as bad."""
        return self.cooldown_counter > 0

    def step(self, metrics: float) -> None:  # type: ignore[override]
        """Compare a measure, such as the loss of an evaluation, with the best one, and lower the lr if it is time."""
        self._check_groups()
        current = as_measure("metrics", metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        if self.num_bad_epochs > self.patience:
            lrs = [self._reduce_lr(lr, least) for lr, least in zip(lrs, self.min_lrs, strict=True)]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._set(lrs)

    def _reduce_lr(self, lr: float, least: float) -> float:
        lower = max(lr * self.factor, least)
        return lower if lr - lower > self.eps else lr

    def _is_better(self, measure: float) -> bool:
        step = self.threshold
        if self.mode == "min":
            return measure < (self.best * (1.0 - step) if self.threshold_mode == "rel" else self.best - step)
        return measure > (self.best * (step + 1.0) if self.threshold_mode == "rel" else self.best + step)

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names."""
        names = [name for name in self.readers() if name != "mode_worse"]
        return {**{name: getattr(self, name) for name in names}, "mode_worse": WORST[self.mode]}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {
            **self.options,
            "min_lrs": self._lrs,
            "default_min_lr": optional(number_from_zero),
            "last_epoch": last_epochs,
            "_last_lr": self._lrs,
            "best": as_measure,
            "cooldown_counter": count_from_zero,
            "num_bad_epochs": count_from_zero,
            "mode_worse": as_measure,
        }

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        values.pop("mode_worse")
        super().take(values)

    def arguments(self) -> dict[str, Any]:
        """What the schedule was told beside the optimizer, by name."""
        return {**super().arguments(), "min_lr": list(self.min_lrs)}

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r}" for name, value in self.arguments().items()]
        return f"{type(self).__name__}({', '.join(arguments)})"


class SequentialLR(LRScheduler):
    """One schedule until the first of the milestones, the next one from it on, and so forth.

    A warm-up and then a cosine::

        warm_up = LinearLR(optimizer, start_factor=0.01, total_iters=500)
        SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, T_max=9500)], milestones=[500])

    See torch.optim.lr_scheduler.SequentialLR. One among the schedules of another has the rates that it has alone; in
    torch it skips an epoch as the first of them, and cannot be a later one.

    Raises ValueError for schedules of another optimizer, and unless milestones ascend and are one less than these.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> warm_up, decay = sf.optim.LinearLR(optimizer, 0.5, total_iters=2), sf.optim.StepLR(optimizer, step_size=1)
        >>> schedule = sf.optim.SequentialLR(optimizer, [warm_up, decay], milestones=[2])
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [0.5, 0.75, 1.0, 0.1]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        for name, argument in (("schedulers", schedulers), ("milestones", milestones)):
            if not isinstance(argument, list | tuple):
                raise ValueError(f"{name} must be a list, got {argument!r}.")
        self._schedulers, self._milestones = list(schedulers), list(milestones)
        if not self._schedulers or not all(isinstance(schedule, LRScheduler) for schedule in self._schedulers):
            raise ValueError(f"SequentialLR takes a list of schedules, got {schedulers!r}.")
        if any(isinstance(schedule, ReduceLROnPlateau) for schedule in self._schedulers):
            raise ValueError("SequentialLR tells no measure; call the step of ReduceLROnPlateau beside it.")
        if any(schedule.optimizer is not optimizer for schedule in self._schedulers):
            raise ValueError("SequentialLR takes schedules of its own optimizer; one of them has another.")
        ascend = all(is_integer(epoch, 0) for epoch in milestones) and all(a < b for a, b in pairwise(milestones))
        if not ascend or len(self._milestones) != len(self._schedulers) - 1:
            raise ValueError(
                f"milestones must be {len(self._schedulers) - 1} ascending integers for {len(self._schedulers)} "
                f"schedules, got {milestones!r}."
            )
        super().__init__(optimizer, last_epoch)

    def begin(self) -> None:
        """Set the lr of the first epoch, that of the schedule of epoch 0, as if no other had begun."""
        for group in self.optimizer.param_groups:
            group["lr"] = float(group["initial_lr"])
        for schedule in self._schedulers:
            schedule.undo()
        self.last_epoch += 1
        self._running(0).begin()

    def begin_later(self) -> None:
        """Set the lr of epoch 0, when other schedules have come before."""
        self.last_epoch = 0
        self._running(0).begin_later()

    def undo(self) -> None:
        """Take back that the schedules have begun; the lr stays."""
        super().undo()
        for schedule in self._schedulers:
            schedule.undo()

    def step(self) -> None:
        """Go to the next epoch, and set its lr."""
        self.last_epoch += 1
        schedule = self._running(self.last_epoch)
        if self.last_epoch in self._milestones:
            schedule.begin_later()
        else:
            schedule.step()

    def get_last_lr(self) -> list[float]:
        """The lr of every group, as the running schedule set it."""
        return self._running(max(self.last_epoch, 0)).get_last_lr()

    def arguments(self) -> dict[str, Any]:
        """The milestones, and under its number the kind of each schedule, with what it was told below."""
        arguments: dict[str, Any] = {"milestones": list(self._milestones)}
        for place, schedule in enumerate(self._schedulers):
            arguments[str(place)] = type(schedule).__name__
            arguments |= {f"{place}.{name}": value for name, value in schedule.arguments().items()}
        return arguments

    def state_dict(self) -> dict[str, Any]:
        """How far the schedules have come, and the states of all of them; under PyTorch's names."""
        states = [schedule.state_dict() for schedule in self._schedulers]
        return {
            "_milestones": list(self._milestones),
            "last_epoch": self.last_epoch,
            "_last_lr": self.get_last_lr(),
            "_schedulers": states,
        }

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        readers: dict[str, Reader[Any]] = {"_milestones": self._same, "_schedulers": self._each}
        return {**readers, "last_epoch": last_epochs, "_last_lr": self._lrs}

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        for schedule, inner in zip(self._schedulers, values["_schedulers"], strict=True):
            schedule.take(inner)
        self.last_epoch = values["last_epoch"]

    def _same(self, name: str, value: Any) -> list[int]:
        if not isinstance(value, list | tuple) or list(value) != self._milestones:
            raise ValueError(f"{name} of the state must be those of the schedule, {self._milestones}, got {value!r}.")
        return list(value)

    def _each(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self._schedulers):
            raise ValueError(f"{name} of the state must be {len(self._schedulers)} states, got {value!r}.")
        return [schedule.read(inner) for schedule, inner in zip(self._schedulers, value, strict=True)]

    def _running(self, epoch: int) -> LRScheduler:
        return self._schedulers[bisect_right(self._milestones, epoch)]

    def __repr__(self) -> str:
        return f"SequentialLR({self._schedulers!r}, milestones={self._milestones}, last_epoch={self.last_epoch})"
