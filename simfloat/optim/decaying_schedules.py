"""Schedules that change the lr by factors, by PyTorch's formulas: exponential, by milestones, polynomial, constant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from simfloat.checks import is_integer
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import count_from_one, number, number_from_zero, share
from simfloat.optim.scheduler import LRScheduler


class ExponentialLR(LRScheduler):
    """lr is multiplied by gamma every epoch; see torch.optim.lr_scheduler.ExponentialLR.

    Raises ValueError unless gamma is a finite number.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.ExponentialLR(optimizer, gamma=0.5)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.5, 0.25, 0.125]
    """

    options = {"gamma": number}

    gamma: float

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch, gamma=gamma)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        return lr if is_first else lr * self.gamma


def milestones_of(name: str, value: Any) -> Counter[int]:
    """How often each epoch is named; given as a list, or by epoch, which JSON makes text."""
    if isinstance(value, Mapping):
        value = [epoch for key, count in value.items() for epoch in [_epoch(key)] * (count if is_integer(count) else 1)]
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise ValueError(f"{name} must be a list of epochs, got {value!r}.")
    epochs = list(value)
    if not all(is_integer(epoch, 0) for epoch in epochs):
        raise ValueError(f"{name} must be a list of integers from 0, got {epochs!r}.")
    return Counter(sorted(map(int, epochs)))


def _epoch(key: Any) -> Any:
    """An epoch that may be given as text."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


class MultiStepLR(LRScheduler):
    """lr is multiplied by gamma at each of the milestones, which are epochs; by its square at one that is named twice.

    See torch.optim.lr_scheduler.MultiStepLR. Raises ValueError unless milestones are integers from 0.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.5, 0.5, 0.25]
    """

    options = {"milestones": milestones_of, "gamma": number}

    milestones: Counter[int]
    gamma: float

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, last_epoch, milestones=milestones, gamma=gamma)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        if self.last_epoch not in self.milestones:
            return lr
        return lr * self.gamma ** self.milestones[self.last_epoch]

    def arguments(self) -> dict[str, Any]:
        """The milestones in their order, and gamma."""
        return {"milestones": list(self.milestones.elements()), "gamma": self.gamma}


class PolynomialLR(LRScheduler):
    """lr goes to zero in total_iters epochs: the first lr times (1 - epoch / total_iters)^power, and stays there.

    See torch.optim.lr_scheduler.PolynomialLR. Raises ValueError unless total_iters is a positive integer and power a
    number that is not negative.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.PolynomialLR(optimizer, total_iters=4, power=2.0)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(5):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.5625, 0.25, 0.0625, 0.0]
    """

    options = {"total_iters": count_from_one, "power": number_from_zero}

    total_iters: int
    power: float

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch, total_iters=total_iters, power=power)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        epoch, total = self.last_epoch, self.total_iters
        if is_first or epoch > total:
            return lr
        return lr * ((1.0 - epoch / total) / (1.0 - (epoch - 1) / total)) ** self.power


class ConstantLR(LRScheduler):
    """lr is factor times the first lr for total_iters epochs, and the first lr from then on.

    See torch.optim.lr_scheduler.ConstantLR, which at a factor of 0 ends with an error; here the first lr follows.

    Raises ValueError unless factor is from 0 to 1 and total_iters a positive integer.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.ConstantLR(optimizer, factor=0.25, total_iters=2)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [0.25, 0.25, 1.0, 1.0]
    """

    options = {"factor": share, "total_iters": count_from_one}

    factor: float
    total_iters: int

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        super().__init__(optimizer, last_epoch, factor=factor, total_iters=total_iters)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        if self.last_epoch == 0:
            return lr * self.factor
        if self.last_epoch != self.total_iters:
            return lr
        return lr * (1.0 / self.factor) if self.factor else base
