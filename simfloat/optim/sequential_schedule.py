"""A learning-rate schedule of several schedules, one after another."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any

from simfloat.checks import is_integer
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader
from simfloat.optim.plateau import ReduceLROnPlateau
from simfloat.optim.scheduler import LRScheduler, last_epochs


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
        for number, schedule in enumerate(self._schedulers):
            arguments[str(number)] = type(schedule).__name__
            arguments |= {f"{number}.{name}": value for name, value in schedule.arguments().items()}
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
