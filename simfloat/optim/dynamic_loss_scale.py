"""The dynamic loss scale: it grows until gradients overflow, and then backs off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from simfloat.checks import check_count
from simfloat.optim.loss_scale import SMALLEST, LossScale, as_scale
from simfloat.optim.optimizer_options import number


class DynamicLossScale(LossScale):
    """S * growth_factor after growth_interval finite steps, S * backoff_factor after one that was not.

    The rule and its defaults are torch.amp.GradScaler's; a growth to infinity is not carried out. S stays between
    min_scale and max_scale where they are given. With hysteresis h the first h - 1 steps that are not finite, since the
    last one that was, only start the count for growth again; the later ones lower S (Megatron-LM). The settings of Apex
    and Megatron-LM are `DynamicLossScale.apex()` and `DynamicLossScale.megatron()`.

    Raises ValueError unless growth_factor > 1, 0 < backoff_factor < 1, growth_interval and hysteresis are at least 1,
    and min_scale <= init_scale <= max_scale.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.DynamicLossScale(init_scale=2.0**20)
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> scaler.get_scale()
        524288.0
    """

    state_names = {
        "growth_factor": False,
        "backoff_factor": False,
        "growth_interval": False,
        "_growth_tracker": False,
        "min_scale": True,
        "max_scale": True,
        "hysteresis": True,
        "_hysteresis_tracker": True,
    }

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        *,
        min_scale: float | None = None,
        max_scale: float | None = None,
        hysteresis: int = 1,
    ) -> None:
        super().__init__(as_scale("init_scale", init_scale))
        _check_factors(growth_factor, backoff_factor)
        check_count("growth_interval", growth_interval)
        check_count("hysteresis", hysteresis)
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval, self.hysteresis = int(growth_interval), int(hysteresis)
        self.min_scale = None if min_scale is None else as_scale("min_scale", min_scale)
        self.max_scale = None if max_scale is None else as_scale("max_scale", max_scale)
        if not (self.min_scale or 0) <= self._scale <= (self.max_scale or np.inf):
            raise ValueError(f"init_scale must lie between min_scale and max_scale, got {init_scale!r}.")
        self._growth_tracker, self._hysteresis_tracker = 0, self.hysteresis

    @classmethod
    def apex(cls) -> Self:
        """The rule of NVIDIA Apex: as torch's, but at most 2^24."""
        return cls(max_scale=2.0**24)

    @classmethod
    def megatron(cls) -> Self:
        """The defaults of Megatron-LM: from 2^32, at least 1, growth after 1000 steps, hysteresis 2."""
        return cls(2.0**32, growth_interval=1000, min_scale=1.0, hysteresis=2)

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step whose gradients were all finite or not."""
        if not is_finite:
            self._growth_tracker = 0
            self._hysteresis_tracker = max(self._hysteresis_tracker - 1, 0)
            if not self._hysteresis_tracker:
                self._scale = max(_float32(self._scale * self.backoff_factor), self.min_scale or SMALLEST)
            return
        self._growth_tracker += 1
        self._hysteresis_tracker = self.hysteresis
        if self._growth_tracker >= self.growth_interval:
            grown = min(_float32(self._scale * self.growth_factor), self.max_scale or np.inf)
            self._scale = grown if np.isfinite(grown) else self._scale
            self._growth_tracker = 0

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """A scaler in this state, which names everything; ValueError for a value that it cannot have."""
        options = {name: value for name, value in state.items() if not name.startswith("_") and name != "scale"}
        fresh = type(self)(state["scale"], **options)
        for name in ("_growth_tracker", "_hysteresis_tracker"):
            check_count(name, state[name], 0)
            setattr(fresh, name, int(state[name]))
        return fresh


def _check_factors(growth: Any, backoff: Any) -> None:
    number("growth_factor", growth)
    number("backoff_factor", backoff)
    if not growth > 1:
        raise ValueError(f"growth_factor must be greater than 1, got {growth!r}.")
    if not 0 < backoff < 1:
        raise ValueError(f"backoff_factor must lie between 0 and 1, got {backoff!r}.")


def _float32(x: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(x))
