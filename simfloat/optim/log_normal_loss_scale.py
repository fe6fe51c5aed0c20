"""The log-normal loss scale, which follows the distribution of the largest gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from simfloat.checks import check_count
from simfloat.optim.loss_scale import LossScale, as_scale
from simfloat.optim.optimizer_options import number, number_from_zero

OPTIONS = ("log_max", "beta1", "beta2", "deviations", "min_scale", "max_scale", "overflow")
COUNTERS = ("iteration", "mean", "center", "variance")


class LogNormalLossScale(LossScale):
    """S = 2^(log_max - (mean + deviations * sigma)), between min_scale and max_scale, from 1 on.

    x = log2(max|g|) of the unscaled gradients of a step is taken for normally distributed. `mean` is its moving average
    with weight beta1, sigma^2 its moving variance with weight beta2, both without the bias of their start. The defaults
    leave one step in a thousand to exceed 2^log_max: 3.09 is the 0.999 quantile of the normal distribution. A step
    whose gradients are all zero does not count. One that is not finite counts as x = `overflow`.

    Source: OpenSeq2Seq, LogMax scaling ("log-normal" in its documentation). There `overflow` is 2.0**16, which seems to
    be meant as log2 of it: a single overflow then holds S at 1 for about 12 000 steps.

    Raises ValueError for options that are no finite numbers, for betas outside of 0 to 1, and unless min_scale <= 1 <=
    max_scale.

    Examples:
        >>> model, scaler = sf.nn.Linear(2, 1, rng=0), sf.optim.LogNormalLossScale()
        >>> optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        >>> with sf.simulate("fp16-master"):
        ...     scaler.scale(sf.nn.mse_loss(model(np.ones((4, 2))), np.ones((4, 1)))).backward()
        ...     step = scaler.step(optimizer)
        ...     scaler.update()
        >>> scaler.get_scale()
        16384.0
    """

    state_names = dict.fromkeys((*OPTIONS, *COUNTERS), False)

    def __init__(
        self,
        *,
        log_max: float = 16.0,
        beta1: float = 0.99,
        beta2: float = 0.999,
        deviations: float = 3.09,
        min_scale: float = 1.0,
        max_scale: float = 2.0**14,
        overflow: float = 16.0,
    ) -> None:
        super().__init__(1.0)
        number("log_max", log_max)
        number("overflow", overflow)
        number_from_zero("deviations", deviations)
        for name, beta in (("beta1", beta1), ("beta2", beta2)):
            number_from_zero(name, beta)
            if beta >= 1:
                raise ValueError(f"{name} must be less than 1, got {beta!r}.")
        self.min_scale, self.max_scale = as_scale("min_scale", min_scale), as_scale("max_scale", max_scale)
        if not self.min_scale <= 1 <= self.max_scale:
            raise ValueError(f"S starts at 1, between min_scale and max_scale; got {min_scale!r} and {max_scale!r}.")
        self.log_max, self.overflow, self.deviations = float(log_max), float(overflow), float(deviations)
        self.beta1, self.beta2 = float(beta1), float(beta2)
        self.iteration = 0
        self.mean = 0.0  # of x, with beta1
        self.center = self.variance = 0.0  # of x, with beta2

    def adapt(self, is_finite: bool, largest: float) -> None:
        """Change S after a step whose gradients were all finite or not, and at most `largest` when unscaled."""
        if is_finite and largest == 0:
            return
        self._count(math.log2(largest) if is_finite else self.overflow)
        exponent = self.log_max - (self.mean + self.deviations * math.sqrt(self.variance))
        lowest, highest = math.log2(self.min_scale), math.log2(self.max_scale)
        self._scale = float(np.float32(2.0 ** min(max(exponent, lowest), highest)))

    def _count(self, x: float) -> None:
        """Take x into the averages.

        An average without the bias of its start gives the t-th value the share (1 - beta) / (1 - beta^t). The variance
        is that of the mean square less the squared mean, in the form of West 1979, which does not cancel.
        """
        self.iteration += 1
        share1 = (1 - self.beta1) / (1 - self.beta1**self.iteration)
        share2 = (1 - self.beta2) / (1 - self.beta2**self.iteration)
        self.mean += share1 * (x - self.mean)
        away = x - self.center
        self.center += share2 * away
        self.variance = (1 - share2) * (self.variance + share2 * away * away)

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """A scaler in this state, which names everything; ValueError for a value that it cannot have."""
        fresh = type(self)(**{name: state[name] for name in OPTIONS})
        check_count("iteration", state["iteration"], 0)
        fresh.iteration = int(state["iteration"])
        fresh.mean, fresh.center = number("mean", state["mean"]), number("center", state["center"])
        fresh.variance = number_from_zero("variance", state["variance"])
        fresh._scale = as_scale("scale", state["scale"])
        return fresh
