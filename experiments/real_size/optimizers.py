"""The optimizer of all problems but that of clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import simfloat as sf


def adam(rate: float) -> Callable[[Iterable[sf.Parameter]], sf.optim.Optimizer]:
    """AdamW whose second moments decay in BF16, and whose epsilon is no smaller than what FP16 loses.

    In FP16 the square of a gradient below 2^-12.5 is zero, whatever keeps the weights, and then epsilon alone divides.
    """
    return partial(sf.optim.AdamW, lr=rate, betas=(0.9, 0.95), eps=1e-4, weight_decay=0.01)
