"""A cosine that starts again and again."""

from __future__ import annotations

from math import cos, floor, pi
from typing import Any

from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader, count_from_one, number, number_from_zero
from simfloat.optim.scheduler import LRScheduler


class CosineAnnealingWarmRestarts(LRScheduler):
    """lr goes down to eta_min in T_0 epochs, along half a cosine, and starts again, each time T_mult times longer.

    `step` may be told a part of an epoch, as ``schedule.step(epoch + batch / batches)``. T_cur are the epochs since the
    latest restart, T_i how many there are until the next one. See torch.optim.lr_scheduler.CosineAnnealingWarmRestarts,
    which finds by logarithms where an epoch that it is told lies, and at some restarts is one cycle behind.

    Raises ValueError unless T_0 and T_mult are positive integers. Source: Loshchilov and Hutter, arXiv 1608.03983.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.5, 1.0, 0.5]
    """

    options = {"T_0": count_from_one, "T_mult": count_from_one, "eta_min": number}

    T_0: int
    T_mult: int
    eta_min: float
    T_cur: float
    T_i: int

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, last_epoch, T_0=T_0, T_mult=T_mult, eta_min=eta_min)

    def begin(self) -> None:
        """Set the lr of the first epoch."""
        self._go_to(self.last_epoch + 1)
        super().begin()

    def begin_later(self) -> None:
        """Set the lr of epoch 0, when other schedules have come before."""
        self._go_to(0)
        super().begin_later()

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to this one, and set its lr. Raises ValueError for a negative epoch."""
        if epoch is None:
            self._go_on()
            super().step()
            return
        self._go_to(number_from_zero("epoch", epoch))
        self.last_epoch = floor(epoch) - 1
        super().step()

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `T_cur`, from its first one."""
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.T_cur / self.T_i)) / 2

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names, JSON-able."""
        return {**super().state_dict(), "T_cur": self.T_cur, "T_i": self.T_i}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {**super().readers(), "T_cur": number_from_zero, "T_i": count_from_one}

    def _go_on(self) -> None:
        """One epoch further."""
        self.T_cur += 1
        if self.T_cur >= self.T_i:
            self.T_cur %= self.T_i
            self.T_i *= self.T_mult

    def _go_to(self, epoch: float) -> None:
        """To an epoch, which may have passed."""
        self.T_cur, self.T_i = epoch, self.T_0
        if self.T_mult == 1:
            self.T_cur %= self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
