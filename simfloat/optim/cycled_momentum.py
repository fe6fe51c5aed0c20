"""Schedules that change a momentum beside the lr."""

from __future__ import annotations

from typing import Any

from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader, decay, number
from simfloat.optim.scheduler import LRScheduler


class CycledMomentum(LRScheduler):
    """A schedule that, with cycle_momentum, sets `momentum`, or the first of `betas`, in every group too.

    Raises ValueError with cycle_momentum for an optimizer that has neither.
    """

    cycle_momentum: bool
    use_beta1: bool

    def following_momentum(self, group: int) -> float:
        """The momentum of a group at `last_epoch`."""
        raise ValueError(f"{type(self).__name__} has no method following_momentum; define one.")

    def _own_readers(self) -> dict[str, Reader[Any]]:
        """How what only this schedule keeps is read, by its name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names, JSON-able."""
        return {**super().state_dict(), **{name: getattr(self, name) for name in self._own_readers()}}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {**super().readers(), **self._own_readers()}

    def one_each(self, name: str, value: Any) -> list[float]:
        """A number for each group, of one for all or a list; ValueError for another number of them."""
        count = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(values) != count:
            raise ValueError(f"{name} must be a number or a list of {count}, one for each group, got {value!r}.")
        return [number(name, each) for each in values]

    def momenta(self, optimizer: Optimizer, base: Any, largest: Any, begins: bool) -> tuple[list[float], list[float]]:
        """The smallest and the largest momentum of each group; a schedule that begins sets the largest."""
        has_momentum_option = "betas" in optimizer.options, "momentum" in optimizer.options
        if not any(has_momentum_option):
            raise ValueError(
                f"cycle_momentum needs an optimizer with momentum or betas, {type(optimizer).__name__} has neither; "
                "pass cycle_momentum=False."
            )
        self.use_beta1 = has_momentum_option[0]
        smallest, most = self.one_each("base_momentum", base), self.one_each("max_momentum", largest)
        for name, momenta in (("base_momentum", smallest), ("max_momentum", most)):
            for momentum in momenta:
                decay(name, momentum)
        if begins:
            for group, lower, upper in zip(optimizer.param_groups, smallest, most, strict=True):
                group["max_momentum"], group["base_momentum"] = upper, lower
                self._set_momentum(group, upper)
        return smallest, most

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum

    def _set(self, lrs: list[float]) -> None:
        super()._set(lrs)
        if self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                self._set_momentum(group, self.following_momentum(i))
