"""The base class of learning-rate schedules, and two schedules that do not follow a formula.

One lowers the learning rate when a measure stops improving; the other runs several schedules one after another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from math import inf
from numbers import Real
from typing import Any, Literal

from simfloat.common import is_integer
from simfloat.environment import InUsualEnvironment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import count_from_zero, decay, integer, number, number_from_zero, optional, word
from simfloat.options import InitVar, Reader, anything, option, options_of, stored_options, with_options

#: Keys that PyTorch's schedule states contain only for its warnings.
WARNINGS = {"_step_count", "_is_initial", "_get_lr_called_within_step"}

last_epochs = integer(-1, 2**53)


@with_options
class LRScheduler(InUsualEnvironment):
    """The base class of schedules, which set the learning rate of every group.

    Call `step()` after each epoch or each step of the optimizer; it sets the `lr` of every group. Learning rates are
    exact operands of updates: they are computed in float64 and never rounded by a policy. Each follows from the one
    before by the formula of PyTorch, with the same bits. If you change the lr of a group between two steps, the change
    remains as a factor. `initial_lr` is the first lr of a group.

    Parameters:
        optimizer: the optimizer.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue, for groups that have an
            `initial_lr`.
        options: the arguments of the schedule, by name.

    Raises:
        ValueError: if `optimizer` is not an Optimizer; if a group has no `initial_lr` although last_epoch is above -1.
    """

    optimizer: Optimizer = option(anything)

    @property
    def options(self) -> Mapping[str, Reader[Any]]:
        """The readers of the arguments that are stored as attributes and in the state, by name, without last_epoch."""
        declared, stored = options_of(type(self)), stored_options(type(self))
        return {name: declared[name].read for name in stored if name not in ("optimizer", "last_epoch")}

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1, **options: Any) -> None:
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"A schedule takes an optimizer of simfloat.optim, got a {type(optimizer).__name__}.")
        self.optimizer = optimizer
        self.last_epoch = self._before = last_epochs("last_epoch", last_epoch)
        options = self.prepare(options)
        vars(self).update({name: read(name, options[name]) for name, read in self.options.items()})
        self.give_groups()
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(
                    f"last_epoch={last_epoch} continues a schedule, but param_groups[{i}] has no 'initial_lr': load "
                    "the optimizer's state first, or start with last_epoch=-1."
                )
        self.base_lrs = self.first_lrs()
        self.begin()

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments together, and return the values of `options`."""
        return arguments

    def give_groups(self) -> None:
        """Set values in the groups when a schedule begins, before their `initial_lr` is stored."""

    def first_lrs(self) -> list[float]:
        """Return the first lr of each group."""
        return [float(group["initial_lr"]) for group in self.optimizer.param_groups]

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr and the first lr `base`.

        `is_first` is True if the schedule begins with this epoch, which need not be epoch 0.
        """
        raise ValueError(f"{type(self).__name__} has no method following; define one.")

    def at_zero(self, group: int, base: float) -> float:
        """Return the lr of a group at epoch 0 of a schedule that begins after another one."""
        return self.following(group, base, base, True)

    def begin(self) -> None:
        """Set the lr of the first epoch."""
        self.last_epoch += 1
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self._set([self.following(i, lrs[i], base, True) for i, base in enumerate(self.base_lrs)])

    def begin_later(self) -> None:
        """Set the lr of epoch 0 when the schedule begins after another one."""
        self.last_epoch = 0
        self._set([self.at_zero(i, base) for i, base in enumerate(self.base_lrs)])

    def undo(self) -> None:
        """Undo the start of the schedule; the lr remains."""
        self.last_epoch = self._before

    def step(self) -> None:
        """Go to the next epoch, and set its lr."""
        self._check_groups()
        self.last_epoch += 1
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        self._set([self.following(i, lrs[i], base, False) for i, base in enumerate(self.base_lrs)])

    def get_last_lr(self) -> list[float]:
        """Return the lr of every group, as set by the schedule."""
        return list(self._last_lr)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the schedule except the optimizer, by name."""
        return {name: getattr(self, name) for name in self.options}

    def state_dict(self) -> dict[str, Any]:
        """Return the values that `readers` names, with PyTorch's names and as JSON types: arguments and progress."""
        values = {name: getattr(self, name) for name in self.readers()}
        return {name: list(value) if isinstance(value, list) else value for name, value in values.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a state of `state_dict`; if a part does not fit, nothing changes.

        The state of the optimizer, not of the schedule, contains the lr.

        Raises:
            ValueError: if the state belongs to another kind of schedule, or to another number of groups.
        """
        self.take(self.read(state_dict))

    def read(self, state: Any) -> dict[str, Any]:
        """Return the values of a state, each checked; raise ValueError if the state does not fit this schedule."""
        kind, readers = type(self).__name__, self.readers()
        if not isinstance(state, Mapping):
            raise ValueError(f"load_state_dict takes a result of {kind}.state_dict, got a {type(state).__name__}.")
        missing = [name for name in readers if name not in state]
        unknown = [name for name in state if name not in readers and name not in WARNINGS]
        if missing or unknown:
            raise ValueError(f"The state is not {kind}'s: missing {missing}, unknown {unknown}.")
        return {name: read(name, state[name]) for name, read in readers.items()}

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        return {**self.options, "base_lrs": self._lrs, "last_epoch": last_epochs, "_last_lr": self._lrs}

    def take(self, values: dict[str, Any]) -> None:
        """Continue from values that `read` returned."""
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
            raise ValueError(f"The optimizer has {has} groups, the schedule was created for {knows}; create a new one.")

    def __repr__(self) -> str:
        arguments = [f"{name}={getattr(self, name)!r}" for name in self.options]
        return f"{type(self).__name__}({', '.join([*arguments, f'last_epoch={self.last_epoch}'])})"


#: The initial value of the best measure, by `mode`.
WORST = {"min": inf, "max": -inf}


def as_measure(name: str, value: Any) -> float:
    """Return a measure as a float, which may be infinite or NaN."""
    if isinstance(value, bool | str) or not (isinstance(value, Real) or hasattr(value, "__float__")):
        raise ValueError(f"{name} must be a number, such as the loss of an evaluation, got {value!r}.")
    return float(value)


@with_options
class ReduceLROnPlateau(LRScheduler):
    """lr is multiplied by `factor` after more than `patience` calls of `step` without a better measure.

    A measure is better if it is below the best one by `threshold` (mode "min"), or above it (mode "max"). With the
    threshold_mode "rel", the bound is best * (1 - threshold) or best * (1 + threshold); with "abs", best - threshold or
    best + threshold. NaN is never better.

    Parameters:
        optimizer: the optimizer.
        mode: "min" or "max".
        factor: the factor of lr, from 0 to below 1.
        patience: the number of calls without a better measure that are tolerated.
        threshold: the required improvement, from 0.
        threshold_mode: "rel" or "abs".
        cooldown: the number of calls after a reduction that do not count.
        min_lr: the smallest lr, a number or a list with one for each group.
        eps: smaller changes of lr are omitted.

    Raises:
        ValueError: if an option is outside its range.

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

    mode: Literal["min", "max"] = option(word("min", "max"), default="min")
    factor: float = option(decay, default=0.1)
    patience: int = option(count_from_zero, default=10)
    threshold: float = option(number_from_zero, default=1e-4)
    threshold_mode: Literal["rel", "abs"] = option(word("rel", "abs"), default="rel")
    cooldown: int = option(count_from_zero, default=0)
    min_lr: InitVar[list[float] | float] = option(anything, default=0)
    eps: float = option(number_from_zero, default=1e-8)

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments together, and return the values of `options`."""
        if (mode := arguments["mode"]) not in WORST or arguments["threshold_mode"] not in ("rel", "abs"):
            raise ValueError(
                f"mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and "
                f"{arguments['threshold_mode']!r}."
            )
        self._min_lr = arguments["min_lr"]
        return arguments

    def begin(self) -> None:
        """Leave the lr of the groups unchanged, and start without a measure."""
        min_lr = self._min_lr
        is_list = isinstance(min_lr, list | tuple)
        self.default_min_lr: float | None = None if is_list else number_from_zero("min_lr", min_lr)
        least = self._lrs("min_lr", min_lr if is_list else [min_lr] * len(self.base_lrs))
        self.min_lrs = [number_from_zero("min_lr", lr) for lr in least]
        self.last_epoch, self.best, self.cooldown_counter, self.num_bad_epochs = 0, WORST[self.mode], 0, 0
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """True if the last reduction is so recent that no measure counts as bad."""
        return self.cooldown_counter > 0

    def step(self, metrics: float) -> None:  # type: ignore[override]
        """Compare a measure, such as the loss of an evaluation, with the best one, and lower the lr if `patience` is
        exceeded."""
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

    @property
    def mode_worse(self) -> float:
        """The initial value of the best measure."""
        return WORST[self.mode]

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
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
        """Continue from values that `read` returned."""
        values.pop("mode_worse")
        super().take(values)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the schedule except the optimizer, by name."""
        return {**super().arguments(), "min_lr": list(self.min_lrs)}

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r}" for name, value in self.arguments().items()]
        return f"{type(self).__name__}({', '.join(arguments)})"


class SequentialLR(LRScheduler):
    """Several schedules one after another: each milestone is the epoch at which the next schedule begins.

    For a warm-up followed by a cosine::

        warm_up = LinearLR(optimizer, start_factor=0.01, total_iters=500)
        SequentialLR(optimizer, [warm_up, CosineAnnealingLR(optimizer, T_max=9500)], milestones=[500])

    A SequentialLR among the schedules of another one has the same rates as on its own. In torch, it skips an epoch if
    it is the first of them, and cannot be a later one.

    Parameters:
        optimizer: the optimizer of all schedules.
        schedulers: the schedules in order.
        milestones: the epochs at which the schedules after the first begin, ascending.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if a schedule has another optimizer; if the milestones do not ascend, or are not one fewer than the
            schedules.

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
            raise ValueError("SequentialLR passes no measure; call the step of ReduceLROnPlateau separately.")
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
        """Undo the starts of all schedules, and set the lr of the first epoch from the first schedule."""
        for group in self.optimizer.param_groups:
            group["lr"] = float(group["initial_lr"])
        for schedule in self._schedulers:
            schedule.undo()
        self.last_epoch += 1
        self._running(0).begin()

    def begin_later(self) -> None:
        """Set the lr of epoch 0 when the schedule begins after another one."""
        self.last_epoch = 0
        self._running(0).begin_later()

    def undo(self) -> None:
        """Undo the start of the schedules; the lr remains."""
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
        """Return the lr of every group, as set by the running schedule."""
        return self._running(max(self.last_epoch, 0)).get_last_lr()

    def arguments(self) -> dict[str, Any]:
        """Return the milestones, the kind of each schedule by its number, and its arguments by number and name."""
        arguments: dict[str, Any] = {"milestones": list(self._milestones)}
        for place, schedule in enumerate(self._schedulers):
            arguments[str(place)] = type(schedule).__name__
            arguments |= {f"{place}.{name}": value for name, value in schedule.arguments().items()}
        return arguments

    def state_dict(self) -> dict[str, Any]:
        """Return the progress and the states of all schedules under PyTorch's names."""
        states = [schedule.state_dict() for schedule in self._schedulers]
        return {
            "_milestones": list(self._milestones),
            "last_epoch": self.last_epoch,
            "_last_lr": self.get_last_lr(),
            "_schedulers": states,
        }

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        readers: dict[str, Reader[Any]] = {"_milestones": self._same, "_schedulers": self._each}
        return {**readers, "last_epoch": last_epochs, "_last_lr": self._lrs}

    def take(self, values: dict[str, Any]) -> None:
        """Continue from values that `read` returned."""
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
