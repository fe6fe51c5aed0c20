"""A schedule of one cycle: up, and far down."""

from __future__ import annotations

from math import cos, pi
from typing import Any, Literal

from simfloat.optim.cycled_momentum import CycledMomentum
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import (
    Reader,
    count_from_one,
    flag,
    number_above_zero,
    number_from_zero,
    share,
    word,
)

#: Of a phase, what says the lr and the momentum at its start and at its end.
NAMES = ("start_lr", "end_lr", "start_momentum", "end_momentum")
UP = ("initial_lr", "max_lr", "max_momentum", "base_momentum")
DOWN = ("max_lr", "initial_lr", "base_momentum", "max_momentum")
FAR_DOWN = ("initial_lr", "min_lr", "max_momentum", "max_momentum")
STRAIGHT_DOWN = ("max_lr", "min_lr", "base_momentum", "max_momentum")


class OneCycleLR(CycledMomentum):
    """lr goes from max_lr / div_factor up to max_lr in pct_start of all steps, and down to final_div_factor times less.

    It goes along half a cosine, or in straight lines with ``anneal_strategy="linear"``. With three_phase it goes down
    to where it began in as many steps as it went up, and down to the end in those that are left. With cycle_momentum
    `momentum`, or the first of `betas`, goes from max_momentum to base_momentum where lr goes up, and back where it
    goes down. There are total_steps, or epochs times steps_per_epoch; one more step is an error. Numbers may be lists
    of one for each group. See torch.optim.lr_scheduler.OneCycleLR; of a first phase of one step, which there fails, lr
    begins at max_lr.

    Raises ValueError for options that are no such numbers, without a number of steps, and with cycle_momentum for an
    optimizer without momentum. Source: Smith and Topin, arXiv 1708.07120.

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

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch.")
            total_steps = count_from_one("epochs", epochs) * count_from_one("steps_per_epoch", steps_per_epoch)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}.")
        rise = share("pct_start", pct_start) * count_from_one("total_steps", total_steps)
        ends = [(float(rise) - 1, UP), (total_steps - 1, STRAIGHT_DOWN)]
        if flag("three_phase", three_phase):
            ends = [ends[0], (float(2 * pct_start * total_steps) - 2, DOWN), (total_steps - 1, FAR_DOWN)]
        self._schedule_phases: list[dict[str, Any]] = [
            {"end_step": end, **dict(zip(NAMES, names, strict=True))} for end, names in ends
        ]
        self._told: dict[str, Any] = {
            "max_lr": max_lr, "div_factor": number_above_zero("div_factor", div_factor),
            "final_div_factor": number_above_zero("final_div_factor", final_div_factor),
            "base_momentum": base_momentum, "max_momentum": max_momentum,
        }  # fmt: skip
        super().__init__(
            optimizer, last_epoch, total_steps=total_steps, _anneal_func_type=anneal_strategy,
            cycle_momentum=cycle_momentum,
        )  # fmt: skip

    def first_lrs(self) -> list[float]:
        """The lr of each group from which it goes up; a schedule that begins gives it, and others, to the group."""
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
        """The lr of a group at `last_epoch`; ValueError behind the last step."""
        if self.last_epoch > self.total_steps:
            raise ValueError(f"The schedule has {self.total_steps} steps; this would be number {self.last_epoch}.")
        return max(self._between(group, "lr"), 0.0)

    def following_momentum(self, group: int) -> float:
        """The momentum of a group at `last_epoch`."""
        return self._between(group, "momentum")

    def _between(self, group: int, what: str) -> float:
        """The lr or momentum between the start and the end of the phase that runs."""
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
        """Raise ValueError unless each group has what a schedule that goes on needs."""
        names = ("max_lr", "min_lr", *(("base_momentum", "max_momentum") if self.cycle_momentum else ()))
        for i, group in enumerate(self.optimizer.param_groups):
            missing = [name for name in names if name not in group]
            if missing:
                raise ValueError(
                    f"last_epoch={self.last_epoch} goes on with a schedule, but param_groups[{i}] has no "
                    f"{missing[0]!r}: load the optimizer's state first, or start with last_epoch=-1."
                )

    def arguments(self) -> dict[str, Any]:
        """What the schedule was told beside the optimizer, by name."""
        phases = [phase["end_step"] for phase in self._schedule_phases]
        return {**super().arguments(), **self._told, "phases": phases}

    def _own_readers(self) -> dict[str, Reader[Any]]:
        """How what only this schedule keeps is read, by its name."""
        readers: dict[str, Reader[Any]] = {"_schedule_phases": self._same}
        return {**readers, "use_beta1": flag} if self.cycle_momentum else readers

    def _same(self, name: str, value: Any) -> list[dict[str, Any]]:
        if value != self._schedule_phases:
            raise ValueError(
                f"{name} of the state must be those of the schedule, {self._schedule_phases}, got {value!r}."
            )
        return self._schedule_phases
