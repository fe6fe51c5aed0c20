"""A schedule that lowers the lr where a measure gets no better."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any, Literal

from simfloat.optim.optimizer import Optimizer
from simfloat.optim.optimizer_options import Reader, count_from_zero, decay, number_from_zero, optional, word
from simfloat.optim.scheduler import LRScheduler, last_epochs

#: What the best measure is before there is any, by `mode`.
WORST = {"min": inf, "max": -inf}


def as_measure(name: str, value: Any) -> float:
    """A measure as a number, which may be infinite or NaN."""
    if isinstance(value, bool | str) or not (isinstance(value, Real) or hasattr(value, "__float__")):
        raise ValueError(f"{name} must be a number, such as the loss of an evaluation, got {value!r}.")
    return float(value)


class ReduceLROnPlateau(LRScheduler):
    """lr is multiplied by factor when the measure that `step` is told was no better than the best for long.

    That is for more than patience calls, those within cooldown calls after the latest reduction left out. Better is
    less in the mode "min", and more in "max": than best * (1 - threshold) or best * (1 + threshold) in the
    threshold_mode "rel", than best - threshold or best + threshold in "abs". NaN is never better. lr does not fall
    below min_lr, a number, or a list of one for each group; changes of at most eps are left out. See
    torch.optim.lr_scheduler.ReduceLROnPlateau.

    Raises ValueError for options out of these ranges, and unless factor is below 1.

    Examples:
        >>> optimizer = sf.optim.SGD([sf.Parameter([1.0])], lr=1.0)
        >>> schedule = sf.optim.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> rates = []
        >>> with sf.simulate("fp32"):
        ...     for loss in (3.0, 2.0, 2.0, 2.0, 2.0):
        ...         optimizer.step()
        ...         schedule.step(loss)
        ...         rates.append(optimizer.param_groups[0]["lr"])
        >>> rates
        [1.0, 1.0, 1.0, 0.5, 0.5]
    """

    options = {
        "mode": word("min", "max"),
        "factor": decay,
        "patience": count_from_zero,
        "threshold": number_from_zero,
        "threshold_mode": word("rel", "abs"),
        "cooldown": count_from_zero,
        "eps": number_from_zero,
    }

    mode: Literal["min", "max"]
    factor: float
    patience: int
    threshold: float
    threshold_mode: Literal["rel", "abs"]
    cooldown: int
    eps: float
    default_min_lr: float | None

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in WORST or threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"mode must be 'min' or 'max' and threshold_mode 'rel' or 'abs', got {mode!r} and {threshold_mode!r}."
            )
        self._min_lr = min_lr
        super().__init__(
            optimizer, mode=mode, factor=factor, patience=patience, threshold=threshold, threshold_mode=threshold_mode,
            cooldown=cooldown, eps=eps,
        )  # fmt: skip

    def begin(self) -> None:
        """Leave the lr of the groups as it is, and know of no measure yet."""
        min_lr = self._min_lr
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else number_from_zero("min_lr", min_lr)
        least = self._lrs("min_lr", [min_lr] * len(self.base_lrs) if self.default_min_lr is not None else min_lr)
        self.min_lrs = [number_from_zero("min_lr", lr) for lr in least]
        self.last_epoch, self.best, self.cooldown_counter, self.num_bad_epochs = 0, WORST[self.mode], 0, 0
        self._last_lr = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self) -> bool:
        """Whether the latest reduction is so recent that no measure counts as bad."""
        return self.cooldown_counter > 0

    def step(self, metrics: float) -> None:  # type: ignore[override]
        """Compare a measure, such as the loss of an evaluation, with the best one, and lower the lr if it is time."""
        self._check_groups()
        current = as_measure("metrics", metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        lrs = [float(group["lr"]) for group in self.optimizer.param_groups]
        if self.num_bad_epochs > self.patience:
            lrs = [self._reduce_lr(lr, least) for lr, least in zip(lrs, self.min_lrs, strict=True)]
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._set(lrs)

    def _reduce_lr(self, lr: float, least: float) -> float:
        lower = max(lr * self.factor, least)
        return lower if lr - lower > self.eps else lr

    def _is_better(self, measure: float) -> bool:
        step = self.threshold
        if self.mode == "min":
            return measure < (self.best * (1.0 - step) if self.threshold_mode == "rel" else self.best - step)
        return measure > (self.best * (step + 1.0) if self.threshold_mode == "rel" else self.best + step)

    def state_dict(self) -> dict[str, Any]:
        """What the schedule was told, and how far it has come; under PyTorch's names."""
        names = [name for name in self.readers() if name != "mode_worse"]
        return {**{name: getattr(self, name) for name in names}, "mode_worse": WORST[self.mode]}

    def readers(self) -> dict[str, Reader[Any]]:
        """How each value of a state is read, by its name."""
        return {
            **self.options,
            "min_lrs": self._lrs,
            "default_min_lr": optional(number_from_zero),
            "last_epoch": last_epochs,
            "_last_lr": self._lrs,
            "best": as_measure,
            "cooldown_counter": count_from_zero,
            "num_bad_epochs": count_from_zero,
            "mode_worse": as_measure,
        }

    def take(self, values: dict[str, Any]) -> None:
        """Go on from values that `read` gave."""
        values.pop("mode_worse")
        super().take(values)

    def arguments(self) -> dict[str, Any]:
        """What the schedule was told beside the optimizer, by name."""
        return {**super().arguments(), "min_lr": list(self.min_lrs)}

    def __repr__(self) -> str:
        arguments = [f"{name}={value!r}" for name, value in self.arguments().items()]
        return f"{type(self).__name__}({', '.join(arguments)})"
