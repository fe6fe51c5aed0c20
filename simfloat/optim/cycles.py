"""Schedules that rise and fall: repeated cycles between two learning rates, and a single cycle.

They can also change a momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, floor, pi
from types import FunctionType
from typing import Any, Literal

from simfloat.environment import in_callers_environment
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.options import count_from_one, decay, number, number_above_zero, number_from_zero, share, word
from simfloat.optim.scheduler import LRScheduler, last_epochs
from simfloat.options import InitVar, Reader, anything, flag, option, with_options


class CycledMomentum(LRScheduler):
    """The common base of schedules that can also set `momentum` or the first of `betas` in every group.

    With cycle_momentum, an optimizer that has neither raises ValueError.
    """

    cycle_momentum: bool
    use_beta1: bool

    def following_momentum(self, group: int) -> float:
        """Return the momentum of a group at `last_epoch`."""
        raise ValueError(f"{type(self).__name__} has no method following_momentum; define one.")

    def one_each(self, name: str, value: Any) -> list[float]:
        """Return a list with one number for each group, from a number for all groups or a list.

        Raises ValueError if the list has another length.
        """
        count = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(values) != count:
            raise ValueError(f"{name} must be a number or a list of {count}, one for each group, got {value!r}.")
        return [number(name, each) for each in values]

    def momenta(self, optimizer: Optimizer, base: Any, largest: Any, begins: bool) -> tuple[list[float], list[float]]:
        """Return the smallest and the largest momentum of each group; set the largest if the schedule begins."""
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


MODES = ("triangular", "triangular2", "exp_range")


@with_options
class CyclicLR(CycledMomentum):
    """Repeated cycles: lr rises linearly from base_lr to max_lr, and falls linearly to base_lr.

    The height above base_lr is multiplied by a factor:

    * mode "triangular": 1;
    * mode "triangular2": 1, 1/2, 1/4, ... in the first, second, third cycle, ...;
    * mode "exp_range": gamma^step;
    * scale_fn, if it is given: its value at the number of the cycle, or at the step with ``scale_mode="iterations"``.

    With cycle_momentum, `momentum` or the first of `betas` falls from max_momentum to base_momentum while lr rises, and
    rises while lr falls.

    Parameters:
        optimizer: the optimizer.
        base_lr, max_lr: the bounds of lr; each is a number or a list with one for each group.
        step_size_up: the number of steps of the rise.
        step_size_down: the number of steps of the fall; by default step_size_up.
        mode: "triangular", "triangular2" or "exp_range".
        gamma: the base of "exp_range".
        scale_fn: a function of one number that replaces `mode`. The state omits a function, but contains the attributes
            of any other callable.
        scale_mode: "cycle" or "iterations", the argument of scale_fn.
        cycle_momentum: True to change the momentum.
        base_momentum, max_momentum: the bounds of the momentum; each is a number or a list with one for each group.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if an option is invalid; with cycle_momentum, if the optimizer has neither `momentum` nor `betas`.

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

    base_lr: InitVar[float | list[float]] = option(anything)
    max_lr: InitVar[float | list[float]] = option(anything)
    step_size_up: InitVar[int] = option(count_from_one, default=2000)
    step_size_down: InitVar[int | None] = option(count_from_one, default=None)
    mode: Literal["triangular", "triangular2", "exp_range"] = option(word(*MODES), default="triangular")
    gamma: float = option(number, default=1.0)
    custom: InitVar[Callable[[float], float] | None] = option(anything, default=None, alias="scale_fn")
    scale_mode: Literal["cycle", "iterations"] = option(word("cycle", "iterations"), default="cycle")
    cycle_momentum: bool = option(flag, default=True)
    base_momentum: InitVar[float | list[float]] = option(anything, default=0.8)
    max_momentum: InitVar[float | list[float]] = option(anything, default=0.9)
    last_epoch: int = option(last_epochs, default=-1)

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments together, and return the values of `options`."""
        mode, scale_mode, scale_fn = (arguments[name] for name in ("mode", "scale_mode", "scale_fn"))
        if mode not in MODES or scale_mode not in ("cycle", "iterations"):
            raise ValueError(
                f"mode must be one of {', '.join(map(repr, MODES))} and scale_mode 'cycle' or 'iterations', got "
                f"{mode!r} and {scale_mode!r}."
            )
        if scale_fn is not None and not callable(scale_fn):
            raise ValueError(f"scale_fn must be a function of a number, got {scale_fn!r}.")
        self._scale_fn_custom = scale_fn
        self._told = tuple(arguments[name] for name in ("base_lr", "max_lr", "base_momentum", "max_momentum"))
        up, down = count_from_one("step_size_up", arguments["step_size_up"]), arguments["step_size_down"]
        down = up if down is None else count_from_one("step_size_down", down)
        self.total_size = float(up + down)
        self.step_ratio = up / self.total_size
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        return {**arguments, "scale_mode": scale_mode}

    def begin(self) -> None:
        """Set the lr of the first epoch."""
        super().begin()
        self.base_lrs = self._lower_lrs()  # as in PyTorch, base_lr has priority over another schedule's `initial_lr`

    def give_groups(self) -> None:
        """Set the lower lr of each group when a schedule begins, and the momenta."""
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
        """Return the lr of a group at `last_epoch`."""
        height, factor = self._height()
        return base + (self.max_lrs[group] - base) * height * factor

    def following_momentum(self, group: int) -> float:
        """Return the momentum of a group at `last_epoch`."""
        height, factor = self._height()
        most = self.max_momentums[group]
        return most - (most - self.base_momentums[group]) * height * factor

    def _height(self) -> tuple[float, float]:
        """Return the height in a cycle, from 0 to 1, and its factor."""
        cycle = floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        return height, self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)

    def scale_fn(self, x: float) -> float:
        """Return the factor of heights for the number of the cycle, from 1, or for the step."""
        if self._scale_fn_custom is not None:
            return number(f"scale_fn({x})", in_callers_environment(self._scale_fn_custom, x))
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the schedule except the optimizer, by name."""
        lower, upper, base_momentum, max_momentum = self._told
        momenta = {"base_momentum": base_momentum, "max_momentum": max_momentum} if self.cycle_momentum else {}
        sizes = {"total_size": self.total_size, "step_ratio": self.step_ratio, "scale_fn": self._scale_fn_custom}
        return {"base_lr": lower, "max_lr": upper, **sizes, **super().arguments(), **momenta}

    def state_dict(self) -> dict[str, Any]:
        """Return the arguments and the progress of the schedule under PyTorch's names."""
        scale = self._scale_fn_custom
        attributes = None if scale is None or isinstance(scale, FunctionType) else dict(getattr(scale, "__dict__", {}))
        return {**super().state_dict(), "_scale_fn_custom": attributes}

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        sizes: dict[str, Reader[Any]] = {"max_lrs": self._lrs, "total_size": number, "step_ratio": number}
        momenta = {"use_beta1": flag, "base_momentums": self._lrs, "max_momentums": self._lrs}
        return {**super().readers(), **sizes, **(momenta if self.cycle_momentum else {}), "_scale_fn_custom": anything}

    def take(self, values: dict[str, Any]) -> None:
        """Continue from values that `read` returned."""
        attributes = values.pop("_scale_fn_custom")
        if attributes:
            vars(self._scale_fn_custom).update(attributes)
        super().take(values)


#: Keys of a phase: the names of the group entries with the lr and the momentum at its start and at its end.
NAMES = ("start_lr", "end_lr", "start_momentum", "end_momentum")
UP = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
DOWN = ("max_lr", "initial_lr", "base_momentum", "max_momentum")
FAR_DOWN = ("initial_lr", "min_lr", "max_momentum", "max_momentum")
STRAIGHT_DOWN = ("max_lr", "min_lr", "base_momentum", "max_momentum")


@with_options
class OneCycleLR(CycledMomentum):
    """A single cycle: lr rises from max_lr / div_factor to max_lr, and falls to max_lr / div_factor / final_div_factor.

    The rise takes the share pct_start of all steps. Both follow half a cosine, or a line with
    ``anneal_strategy="linear"``. With three_phase, lr falls to its start value in as many steps as it rose, and to its
    final value in the remaining steps. With cycle_momentum, `momentum` or the first of `betas` falls from max_momentum
    to base_momentum while lr rises, and rises again while lr falls. If the rise is a single step, lr begins at
    max_lr; torch.optim.lr_scheduler.OneCycleLR fails in this case.

    Parameters:
        optimizer: the optimizer.
        max_lr: the largest lr, a number or a list with one for each group.
        total_steps: the number of steps; one more step raises ValueError.
        epochs, steps_per_epoch: two numbers, used as total_steps = epochs * steps_per_epoch if total_steps is None.
        pct_start: the share of steps of the rise, from 0 to 1.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: True to change the momentum.
        base_momentum, max_momentum: the bounds of the momentum; each is a number or a list with one for each group.
        div_factor: the quotient of max_lr and the first lr.
        final_div_factor: the quotient of the first and the last lr.
        three_phase: True for the two phases of the fall.
        last_epoch: -1 for a new schedule; otherwise the epoch from which to continue.

    Raises:
        ValueError: if an option is invalid; if the number of steps is missing; with cycle_momentum, if the optimizer
            has neither `momentum` nor `betas`.

    Source: Smith and Topin, arXiv 1708.07120.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.OneCycleLR(
        ...     optimizer, max_lr=1.0, total_steps=5, pct_start=0.4, anneal_strategy="linear", div_factor=4.0,
        ...     cycle_momentum=False,
        ... )
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for _ in range(3):
        ...         rates.append(optimizer.param_groups[0]["lr"])
        ...         optimizer.step()
        ...         schedule.step()
        >>> rates
        [0.25, 1.0, 0.666675]
    """

    options = {"total_steps": count_from_one, "_anneal_func_type": word("cos", "linear"), "cycle_momentum": flag}

    total_steps: int
    _anneal_func_type: str

    max_lr: InitVar[float | list[float]] = option(anything)
    number_of_steps: InitVar[int | None] = option(count_from_one, default=None, alias="total_steps")
    epochs: InitVar[int | None] = option(count_from_one, default=None)
    steps_per_epoch: InitVar[int | None] = option(count_from_one, default=None)
    pct_start: InitVar[float] = option(share, default=0.3)
    anneal_strategy: InitVar[Literal["cos", "linear"]] = option(word("cos", "linear"), default="cos")
    cycle_momentum: bool = option(flag, default=True)
    base_momentum: InitVar[float | list[float]] = option(anything, default=0.85)
    max_momentum: InitVar[float | list[float]] = option(anything, default=0.95)
    div_factor: InitVar[float] = option(number_above_zero, default=25.0)
    final_div_factor: InitVar[float] = option(number_above_zero, default=1e4)
    three_phase: InitVar[bool] = option(flag, default=False)
    last_epoch: int = option(last_epochs, default=-1)

    def prepare(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments together, plan the phases, and return the values of `options`."""
        total_steps, pct_start, strategy = (arguments[x] for x in ("total_steps", "pct_start", "anneal_strategy"))
        if total_steps is None:
            epochs, steps_per_epoch = arguments["epochs"], arguments["steps_per_epoch"]
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch.")
            total_steps = count_from_one("epochs", epochs) * count_from_one("steps_per_epoch", steps_per_epoch)
        if strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {strategy!r}.")
        rise = share("pct_start", pct_start) * count_from_one("total_steps", total_steps)
        ends = [(float(rise) - 1, UP), (total_steps - 1, STRAIGHT_DOWN)]
        if flag("three_phase", arguments["three_phase"]):
            ends = [ends[0], (float(2 * pct_start * total_steps) - 2, DOWN), (total_steps - 1, FAR_DOWN)]
        self._schedule_phases: list[dict[str, Any]] = [
            {"end_step": end, **dict(zip(NAMES, names, strict=True))} for end, names in ends
        ]
        bounds: dict[str, Reader[Any]] = {
            "max_lr": anything, "div_factor": number_above_zero, "final_div_factor": number_above_zero,
            "base_momentum": anything, "max_momentum": anything,
        }  # fmt: skip
        self._told = {name: read(name, arguments[name]) for name, read in bounds.items()}
        return {**arguments, "total_steps": total_steps, "_anneal_func_type": strategy}

    def first_lrs(self) -> list[float]:
        """Return the first lr of each group; when a schedule begins, store all bounds in the groups first."""
        begins, groups, arguments = self.last_epoch == -1, self.optimizer.param_groups, self._told
        largest = [number_from_zero("max_lr", lr) for lr in self.one_each("max_lr", arguments["max_lr"])]
        if begins:
            for lr, group in zip(largest, groups, strict=True):
                first = lr / arguments["div_factor"]
                group.update(initial_lr=first, max_lr=lr, min_lr=first / arguments["final_div_factor"])
        if self.cycle_momentum:
            self.momenta(self.optimizer, arguments["base_momentum"], arguments["max_momentum"], begins)
        self._check_knowing()
        return super().first_lrs()

    def following(self, group: int, lr: float, base: float, is_first: bool) -> float:
        """Return the lr of a group at `last_epoch`; raise ValueError after the last step."""
        if self.last_epoch > self.total_steps:
            raise ValueError(f"The schedule has {self.total_steps} steps; this would be number {self.last_epoch}.")
        return max(self._between(group, "lr"), 0.0)

    def following_momentum(self, group: int) -> float:
        """Return the momentum of a group at `last_epoch`."""
        return self._between(group, "momentum")

    def _between(self, group: int, what: str) -> float:
        """Return the lr or momentum between the start and the end of the current phase."""
        start = 0.0
        for phase in self._schedule_phases[:-1]:
            if self.last_epoch <= phase["end_step"]:
                break
            start = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        end, its_options = phase["end_step"], self.optimizer.param_groups[group]
        part = (self.last_epoch - start) / (end - start) if end != start else 1.0
        first, last = its_options[phase[f"start_{what}"]], its_options[phase[f"end_{what}"]]
        if self._anneal_func_type == "linear":
            return (last - first) * part + first
        return last + (first - last) / 2.0 * (cos(pi * part) + 1)

    def _check_knowing(self) -> None:
        """Raise ValueError if a group has no value that a continued schedule needs."""
        names = ("max_lr", "min_lr", *(("base_momentum", "max_momentum") if self.cycle_momentum else ()))
        for i, group in enumerate(self.optimizer.param_groups):
            missing = [name for name in names if name not in group]
            if missing:
                raise ValueError(
                    f"last_epoch={self.last_epoch} continues a schedule, but param_groups[{i}] has no "
                    f"{missing[0]!r}: load the optimizer's state first, or start with last_epoch=-1."
                )

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the schedule except the optimizer, by name."""
        phases = [phase["end_step"] for phase in self._schedule_phases]
        return {**super().arguments(), **self._told, "phases": phases}

    def readers(self) -> dict[str, Reader[Any]]:
        """Return the reader of each value in a state, by name."""
        phases: dict[str, Reader[Any]] = {"_schedule_phases": self._same}
        return {**super().readers(), **phases, **({"use_beta1": flag} if self.cycle_momentum else {})}

    def _same(self, name: str, value: Any) -> list[dict[str, Any]]:
        if value != self._schedule_phases:
            raise ValueError(
                f"{name} of the state must be those of the schedule, {self._schedule_phases}, got {value!r}."
            )
        return self._schedule_phases
