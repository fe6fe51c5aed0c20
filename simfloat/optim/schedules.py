"""Learning-rate schedules by PyTorch's formulas.

They are StepLR, LinearLR, CosineAnnealingLR and LambdaLR; schedules by factors, exponential, by milestones, polynomial,
constant; and a cosine that starts again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import cos, floor, pi
from types import FunctionType
from typing import Any

from simfloat.common import is_integer
from simfloat.environment import in_callers_environment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import Reader, count_from_one, number, number_from_zero, share
from simfloat.optim.scheduler import LRScheduler


class StepLR(LRScheduler):
    """lr is multiplied by gamma every step_size epochs; see torch.optim.lr_scheduler.StepLR.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.StepLR(optimizer, step_size=2, gamma=0.5)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 1.0, 0.5, 0.5]
    """

    options = {"step_size": count_from_one, "gamma": number}

    step_size: int
    gamma: float

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch, step_size=step_size, gamma=gamma)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        return lr * self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else lr


class LinearLR(LRScheduler):
    """lr goes in total_iters epochs from start_factor times the first lr to end_factor times it, in equal steps.

    For a warm-up: ``LinearLR(optimizer, start_factor=0.01, total_iters=500)``. See torch.optim.lr_scheduler.LinearLR,
    which at an end_factor of 0 often leaves an lr of about 1e-17, above or below zero; here it is 0.

    Raises ValueError unless start_factor is above 0 and both are at most 1 and not negative.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.LinearLR(optimizer, start_factor=0.25, total_iters=3)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [0.25, 0.5, 0.75, 1.0]
    """

    options = {"start_factor": number, "end_factor": number, "total_iters": count_from_one}

    start_factor: float
    end_factor: float
    total_iters: int

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < number("start_factor", start_factor) <= 1:
            raise ValueError(f"start_factor must be above 0 and at most 1, got {start_factor!r}.")
        if not 0 <= number("end_factor", end_factor) <= 1:
            raise ValueError(f"end_factor must be from 0 to 1, got {end_factor!r}.")
        super().__init__(
            optimizer, last_epoch, start_factor=start_factor, end_factor=end_factor, total_iters=total_iters
        )

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        if self.last_epoch == 0:
            return lr * self.start_factor
        if is_first or self.last_epoch > self.total_iters:
            return lr
        if self.last_epoch == self.total_iters and self.end_factor == 0:
            return 0.0
        rise = self.end_factor - self.start_factor
        factor = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return lr * max(factor, 0.0)  # below zero by a rounding error where end_factor is tiny


class CosineAnnealingLR(LRScheduler):
    """lr goes down to eta_min in T_max epochs, along half a cosine, and up again in as many.

    See torch.optim.lr_scheduler.CosineAnnealingLR, whose rounding errors here never take an lr below zero. Source:
    Loshchilov and Hutter, arXiv 1608.03983, without restarts.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.CosineAnnealingLR(optimizer, T_max=4)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.8535533905932737, 0.5, 0.14644660940672627]
    """

    options = {"T_max": count_from_one, "eta_min": number}

    T_max: int
    eta_min: float

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch, T_max=T_max, eta_min=eta_min)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from that before it."""
        if is_first:
            return lr
        period, epoch = self.T_max, self.last_epoch
        if (epoch - 1 - period) % (2 * period) == 0:  # where the ratio below would be 0 / 0
            return lr + (base - self.eta_min) * (1 - cos(pi / period)) / 2
        ratio = (1 + cos(pi * epoch / period)) / (1 + cos(pi * (epoch - 1) / period))
        following = ratio * (lr - self.eta_min) + self.eta_min
        return max(following, 0.0) if self.eta_min >= 0 else following  # below by a rounding error where base is 0

    def at_zero(self, group: int, base: float) -> float:
        """The lr of a group at epoch 0 of a schedule that begins after another one."""
        return self.eta_min + (base - self.eta_min)


class LambdaLR(LRScheduler):
    """lr is the first lr times lr_lambda(epoch); one function for all groups, or a list of one for each.

    Functions are no part of the state; of other callables their attributes are. See torch.optim.lr_scheduler.LambdaLR.

    Raises ValueError for what cannot be called, for what gives no finite number, and for another number of functions
    than there are groups.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(4):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [1.0, 0.5, 0.3333333333333333, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(getattr(optimizer, "param_groups", "?"))  # what is no optimizer is refused below
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups or not all(map(callable, self.lr_lambdas)):
            raise ValueError(f"lr_lambda must be a function of the epoch or a list of {groups}, got {lr_lambda!r}.")
        super().__init__(optimizer, last_epoch)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`, from its first one."""
        return base * number(
            f"lr_lambda({self.last_epoch})", in_callers_environment(self.lr_lambdas[group], self.last_epoch)
        )

    def arguments(self) -> dict[str, Any]:
        """The function of every group."""
        return {"lr_lambda": self.lr_lambdas}

    def state_dict(self) -> dict[str, Any]:
        """How far the schedule has come, and the attributes of callables that are no functions."""
        callables = [None if isinstance(f, FunctionType) else f for f in self.lr_lambdas]
        attributes = [dict(vars(f)) if hasattr(f, "__dict__") else None for f in callables]
        return {**super().state_dict(), "lr_lambdas": attributes}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {**super().readers(), "lr_lambdas": self._attributes}

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        for function, attributes in zip(self.lr_lambdas, values.pop("lr_lambdas"), strict=True):
            if attributes:
                vars(function).update(attributes)
        super().take(values)

    def _attributes(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self.lr_lambdas):
            raise ValueError(f"{name} must be a list of {len(self.lr_lambdas)}, one for each group, got {value!r}.")
        if not all(entry is None or isinstance(entry, Mapping) for entry in value):
            raise ValueError(f"{name} must hold attributes by name, or None for a function, got {value!r}.")
        return list(value)


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
