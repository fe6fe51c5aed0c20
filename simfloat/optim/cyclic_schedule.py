"""A schedule between two lrs, up and down."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from types import FunctionType
from typing import Any, Literal

from simfloat.environment import in_callers_environment
from simfloat.optim.cycled_momentum import CycledMomentum
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader, count_from_one, flag, number, number_from_zero, word

MODES = ("triangular", "triangular2", "exp_range")


class CyclicLR(CycledMomentum):
    """lr goes from base_lr to max_lr in step_size_up steps, and back in step_size_down, in straight lines, and again.

    Each height above base_lr is multiplied by a factor: 1 in the mode "triangular", 1, 1/2, 1/4, ... from cycle to
    cycle in "triangular2", gamma^step in "exp_range"; or scale_fn of the cycle's number, or of the step with
    ``scale_mode="iterations"``. With cycle_momentum `momentum`, or the first of `betas`, goes from max_momentum to
    base_momentum where lr goes up. Numbers may be lists of one for each group. See
    torch.optim.lr_scheduler.CyclicLR. `scale_fn` is no part of the state if it is a function; of other callables their
    attributes are.

    Raises ValueError for options that are no such numbers, and with cycle_momentum for an optimizer without momentum.
    Source: Smith, arXiv 1506.01186.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.CyclicLR(optimizer, 0.25, 1.25, step_size_up=2, cycle_momentum=False)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(5):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [0.25, 0.75, 1.25, 0.75, 0.25]
    """

    options = {"mode": word(*MODES), "gamma": number, "scale_mode": word("cycle", "iterations"), "cycle_momentum": flag}

    mode: str | None
    gamma: float
    scale_mode: str

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in MODES or scale_mode not in ("cycle", "iterations"):
            raise ValueError(
                f"mode must be one of {', '.join(map(repr, MODES))} and scale_mode 'cycle' or 'iterations', got "
                f"{mode!r} and {scale_mode!r}."
            )
        if scale_fn is not None and not callable(scale_fn):
            raise ValueError(f"scale_fn must be a function of a number, got {scale_fn!r}.")
        self._scale_fn_custom = scale_fn
        self._told = base_lr, max_lr, base_momentum, max_momentum
        up = count_from_one("step_size_up", step_size_up)
        down = up if step_size_down is None else count_from_one("step_size_down", step_size_down)
        self.total_size = float(up + down)
        self.step_ratio = up / self.total_size
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        super().__init__(
            optimizer, last_epoch, mode=mode, gamma=gamma, scale_mode=scale_mode, cycle_momentum=cycle_momentum
        )
        self.base_lrs = self._lower_lrs()  # as in PyTorch, the first lr is above the `initial_lr` of another schedule

    def give_groups(self) -> None:
        """The lower lr of each group, which a schedule that begins sets, and momenta."""
        _, upper, base_momentum, max_momentum = self._told
        lower, begins = self._lower_lrs(), self.last_epoch == -1
        self.max_lrs = [number_from_zero("max_lr", lr) for lr in self.one_each("max_lr", upper)]
        if begins:
            for lr, group in zip(lower, self.optimizer.param_groups, strict=True):
                group["lr"] = lr
        if self.cycle_momentum:
            momenta = self.momenta(self.optimizer, base_momentum, max_momentum, begins)
            self.base_momentums, self.max_momentums = momenta

    def _lower_lrs(self) -> list[float]:
        return [number_from_zero("base_lr", lr) for lr in self.one_each("base_lr", self._told[0])]

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """The lr of a group at `last_epoch`."""
        height, factor = self._height()
        return base + (self.max_lrs[group] - base) * height * factor

    def following_momentum(self, group: int) -> float:
        """The momentum of a group at `last_epoch`."""
        height, factor = self._height()
        most = self.max_momentums[group]
        return most - (most - self.base_momentums[group]) * height * factor

    def _height(self) -> tuple[float, float]:
        """How far from the base a cycle is, from 0 to 1, and the factor of this height."""
        cycle = floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        return height, self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

    def scale_fn(self, x: float) -> float:
        """The factor of heights, of the cycle's number from 1 on or of the step."""
        if self._scale_fn_custom is not None:
            return number(f"scale_fn({x})", in_callers_environment(self._scale_fn_custom, x))
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def arguments(self) -> dict[str, Any]:
        """What the schedule was told beside the optimizer, by name."""
        lower, upper, base_momentum, max_momentum = self._told
        momenta = {"base_momentum": base_momentum, "max_momentum": max_momentum} if self.cycle_momentum else {}
        sizes = {"total_size": self.total_size, "step_ratio": self.step_ratio, "scale_fn": self._scale_fn_custom}
        return {"base_lr": lower, "max_lr": upper, **sizes, **super().arguments(), **momenta}

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names."""
        scale = self._scale_fn_custom
        attributes = None if scale is None or isinstance(scale, FunctionType) else dict(getattr(scale, "__dict__", {}))
        return {**super().state_dict(), "_scale_fn_custom": attributes}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {**super().readers(), "_scale_fn_custom": lambda name, value: value}

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        attributes = values.pop("_scale_fn_custom")
        if attributes:
            vars(self._scale_fn_custom).update(attributes)
        super().take(values)

    def _own_readers(self) -> dict[str, Reader[Any]]:
        """How what only this schedule keeps is read, by its name."""
        momenta = {"use_beta1": flag, "base_momentums": self._lrs, "max_momentums": self._lrs}
        readers: dict[str, Reader[Any]] = {"max_lrs": self._lrs, "total_size": number, "step_ratio": number}
        return {**readers, **momenta} if self.cycle_momentum else readers
