"""The optimizer of all problems except clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import simfloat as sf


def adam(rate: float) -> Callable[[Iterable[sf.Parameter]], sf.optim.Optimizer]:
    """Return AdamW with second moments that decay in BF16, and an epsilon that is large enough for FP16.

    In FP16, the square of a gradient below 2^-12.5 is zero, whatever the format of the weights. Then the update is
    divided only by epsilon.
    """
    return partial(sf.optim.AdamW, lr=rate, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.01)
