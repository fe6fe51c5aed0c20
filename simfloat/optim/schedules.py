"""Learning-rate schedules with the formulas of PyTorch.

They are StepLR, LinearLR, CosineAnnealingLR, LambdaLR, ExponentialLR, MultiStepLR, PolynomialLR, ConstantLR and
CosineAnnealingWarmRestarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import cos, floor, pi
from types import FunctionType
from typing import Any, cast

from simfloat.common import is_integer
from simfloat.environment import in_callers_environment
from simfloat.optim.options import count_from_one, number, number_from_zero, number_that, share
from simfloat.optim.scheduler import LRScheduler, last_epochs
from simfloat.options import InitVar, Reader, anything, option, with_options


@with_options
class StepLR(LRScheduler):
    """lr is multiplied by gamma every step_size epochs.

    Parameters:
        optimizer: the optimizer.
        step_size: the number of epochs between two reductions, a positive integer.
        gamma: the factor.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if step_size is not a positive integer; if gamma is not a finite number.

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

    step_size: int = option(count_from_one)
    gamma: float = option(number, default=0.1)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        return lr * self.gamma if self.last_epoch and self.last_epoch % self.step_size == 0 else lr


@with_options
class LinearLR(LRScheduler):
    """lr moves linearly from start_factor times the first lr to end_factor times the first lr, in total_iters epochs.

    Example of a warm-up: ``LinearLR(optimizer, start_factor=0.01, total_iters=500)``. With an end_factor of 0, the
    final lr is 0; torch.optim.lr_scheduler.LinearLR often leaves about 1e-17, above or below zero.

    Parameters:
        optimizer: the optimizer.
        start_factor: the factor at epoch 0, above 0 and at most 1.
        end_factor: the factor from epoch total_iters, from 0 to 1.
        total_iters: the number of epochs, a positive integer.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if a factor is outside its range.

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

    start_factor: float = option(number_that(lambda x: 0 < x <= 1, "be above 0 and at most 1"), default=1.0 / 3)
    end_factor: float = option(share, default=1.0)
    total_iters: int = option(count_from_one, default=5)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        if self.last_epoch == 0:
            return lr * self.start_factor
        if is_first or self.last_epoch > self.total_iters:
            return lr
        if self.last_epoch == self.total_iters and self.end_factor == 0:
            return 0.0
        rise = self.end_factor - self.start_factor
        factor = 1.0 + rise / (self.total_iters * self.start_factor + (self.last_epoch - 1) * rise)
        return lr * max(factor, 0.0)  # with a tiny end_factor, a rounding error can make it negative


@with_options
class CosineAnnealingLR(LRScheduler):
    """lr falls to eta_min in T_max epochs, along half a cosine, and rises again in the next T_max epochs.

    Rounding errors never make lr negative, unlike in torch.optim.lr_scheduler.CosineAnnealingLR.

    Parameters:
        optimizer: the optimizer.
        T_max: the number of epochs of the fall, a positive integer.
        eta_min: the smallest lr.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if T_max is not a positive integer; if eta_min is not a finite number.

    Source: Loshchilov and Hutter, arXiv 1608.03983, without restarts.

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

    T_max: int = option(count_from_one)
    eta_min: float = option(number, default=0.0)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        if is_first:
            return lr
        period, epoch = self.T_max, self.last_epoch
        if (epoch - 1 - period) % (2 * period) == 0:  # the ratio below would be 0 / 0
            return lr + (base - self.eta_min) * (1 - cos(pi / period)) / 2
        ratio = (1 + cos(pi * epoch / period)) / (1 + cos(pi * (epoch - 1) / period))
        following = ratio * (lr - self.eta_min) + self.eta_min
        return max(following, 0.0) if self.eta_min >= 0 else following  # a rounding error can make it negative

    def at_zero(self, group: int, base: float) -> float:
        """Return the lr of a group at epoch 0 of a schedule that begins after another one."""
        return self.eta_min + (base - self.eta_min)


@with_options
class LambdaLR(LRScheduler):
    """lr is the first lr times lr_lambda(epoch).

    The state omits functions, but contains the attributes of other callables.

    Parameters:
        optimizer: the optimizer.
        lr_lambda: a function of the epoch, or a list with one function for each group.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if lr_lambda cannot be called or does not return a finite number; if the list has another length
            than the groups.

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

    lr_lambda: InitVar[Callable[[int], float] | list[Callable[[int], float]]] = option(anything)
    last_epoch: int = option(last_epochs, default=-1)

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Store the function of every group; no argument is an option of the state."""
        lr_lambda, groups = arguments["lr_lambda"], len(self.optimizer.param_groups)
        self.lr_lambdas: list[Callable[[int], float]] = (
            list(lr_lambda) if isinstance(lr_lambda, list | tuple) else [lr_lambda] * groups
        )
        if len(self.lr_lambdas) != groups or not all(map(callable, self.lr_lambdas)):
            raise ValueError(f"lr_lambda must be a function of the epoch or a list of {groups}, got {lr_lambda!r}.")
        return {}

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from its first lr."""
        return base * number(
            f"lr_lambda({self.last_epoch})", in_callers_environment(self.lr_lambdas[group], self.last_epoch)
        )

    def arguments(self) -> dict[str, Any]:
        """Return the function of every group."""
        return {"lr_lambda": self.lr_lambdas}

    def state_dict(self) -> dict[str, Any]:
        """Return the progress of the schedule, and the attributes of callables that are not functions."""
        callables = [None if isinstance(f, FunctionType) else f for f in self.lr_lambdas]
        attributes = [dict(vars(f)) if hasattr(f, "__dict__") else None for f in callables]
        return {**super().state_dict(), "lr_lambdas": attributes}

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        return {**super().readers(), "lr_lambdas": self._attributes}

    def take(self, values: dict[str, Any]) -> None:
        """Continue from values that `read` returned."""
        for function, attributes in zip(self.lr_lambdas, values.pop("lr_lambdas"), strict=True):
            if attributes:
                vars(function).update(attributes)
        super().take(values)

    def _attributes(self, name: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(self.lr_lambdas):
            raise ValueError(f"{name} must be a list of {len(self.lr_lambdas)}, one for each group, got {value!r}.")
        if not all(entry is None or isinstance(entry, Mapping) for entry in value):
            raise ValueError(f"{name} must contain attributes by name, or None for a function, got {value!r}.")
        return list(value)


@with_options
class ExponentialLR(LRScheduler):
    """lr is multiplied by gamma every epoch.

    Parameters:
        optimizer: the optimizer.
        gamma: the factor, a finite number.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if gamma is not a finite number.

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

    gamma: float = option(number)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        return lr if is_first else lr * self.gamma


def milestones_of(name: str, value: Any) -> Counter[int]:
    """Return the count of each epoch, from a list, or from a mapping of epochs (as text after JSON) to counts."""
    if isinstance(value, Mapping):
        value = [epoch for key, count in value.items() for epoch in [_epoch(key)] * (count if is_integer(count) else 1)]
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise ValueError(f"{name} must be a list of epochs, got {value!r}.")
    epochs = list(value)
    if not all(is_integer(epoch, 0) for epoch in epochs):
        raise ValueError(f"{name} must be a list of integers from 0, got {epochs!r}.")
    return Counter(sorted(map(int, epochs)))


def _epoch(key: Any) -> Any:
    """Return an epoch that may be given as text."""
    return int(key) if isinstance(key, str) and key.isdecimal() else key


@with_options
class MultiStepLR(LRScheduler):
    """lr is multiplied by gamma at each milestone, and by gamma^n at a milestone that occurs n times.

    Parameters:
        optimizer: the optimizer.
        milestones: epochs, integers from 0.
        gamma: the factor.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if a milestone is not an integer from 0.

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

    milestones: Iterable[int] = option(milestones_of)
    gamma: float = option(number, default=0.1)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        count = cast("Counter[int]", self.milestones)[self.last_epoch]
        return lr * self.gamma**count if count else lr

    def arguments(self) -> dict[str, Any]:
        """Return the milestones in order, and gamma."""
        return {"milestones": list(cast("Counter[int]", self.milestones).elements()), "gamma": self.gamma}


@with_options
class PolynomialLR(LRScheduler):
    """lr is the first lr times (1 - epoch / total_iters)^power; after total_iters epochs it remains zero.

    Parameters:
        optimizer: the optimizer.
        total_iters: the number of epochs, a positive integer.
        power: the exponent, a number from 0.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if total_iters is not a positive integer; if power is negative.

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

    total_iters: int = option(count_from_one, default=5)
    power: float = option(number_from_zero, default=1.0)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        epoch, total = self.last_epoch, self.total_iters
        if is_first or epoch > total:
            return lr
        return lr * ((1.0 - epoch / total) / (1.0 - (epoch - 1) / total)) ** self.power


@with_options
class ConstantLR(LRScheduler):
    """lr is factor times the first lr for total_iters epochs, and then the first lr.

    With a factor of 0, the first lr also follows; torch.optim.lr_scheduler.ConstantLR ends with an error there.

    Parameters:
        optimizer: the optimizer.
        factor: the factor, from 0 to 1.
        total_iters: the number of epochs, a positive integer.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if factor is not from 0 to 1; if total_iters is not a positive integer.

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

    factor: float = option(share, default=1.0 / 3)
    total_iters: int = option(count_from_one, default=5)
    last_epoch: int = option(last_epochs, default=-1)

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`, from the previous lr."""
        if self.last_epoch == 0:
            return lr * self.factor
        if self.last_epoch != self.total_iters:
            return lr
        return lr * (1.0 / self.factor) if self.factor else base


@with_options
class CosineAnnealingWarmRestarts(LRScheduler):
    """lr falls to eta_min in T_0 epochs, along half a cosine, and restarts; each cycle is T_mult times as long.

    `step` also accepts a fractional epoch, as in ``schedule.step(epoch + batch / batches)``. T_cur is the number of
    epochs since the last restart, and T_i the length of the current cycle. For such an epoch,
    torch.optim.lr_scheduler.CosineAnnealingWarmRestarts computes the cycle by logarithms, and is one cycle behind at
    some restarts.

    Parameters:
        optimizer: the optimizer.
        T_0: the length of the first cycle in epochs, a positive integer.
        T_mult: the factor of the length of the next cycle, a positive integer.
        eta_min: the smallest lr.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if T_0 or T_mult is not a positive integer.

    Source: Loshchilov and Hutter, arXiv 1608.03983.

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

    T_0: int = option(count_from_one)
    T_mult: int = option(count_from_one, default=1)
    eta_min: float = option(number, default=0.0)
    last_epoch: int = option(last_epochs, default=-1)

    def begin(self) -> None:
        """Set the lr of the first epoch."""
        self._go_to(self.last_epoch + 1)
        super().begin()

    def begin_later(self) -> None:
        """Set the lr of epoch 0 when the schedule begins after another one."""
        self._go_to(0)
        super().begin_later()

    def step(self, epoch: float | None = None) -> None:
        """Go to the next epoch, or to `epoch`, and set its lr; raise ValueError for a negative epoch."""
        if epoch is None:
            self._advance_one_epoch()
            super().step()
            return
        self._go_to(number_from_zero("epoch", epoch))
        self.last_epoch = floor(epoch) - 1
        super().step()

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `T_cur`, from its first lr."""
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * self.T_cur / self.T_i)) / 2

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        return {**super().readers(), "T_cur": number_from_zero, "T_i": count_from_one}

    def _advance_one_epoch(self) -> None:
        """Advance T_cur by one epoch."""
        self.T_cur += 1
        if self.T_cur >= self.T_i:
            self.T_cur %= self.T_i
            self.T_i *= self.T_mult

    def _go_to(self, epoch: float) -> None:
        """Set T_cur and T_i for an epoch, which may be an earlier one."""
        self.T_cur, self.T_i = epoch, self.T_0
        if self.T_mult == 1:
            self.T_cur %= self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
