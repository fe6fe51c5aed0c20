"""The base class of learning-rate schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simfloat.environment import InUsualEnvironment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader, integer, number

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
