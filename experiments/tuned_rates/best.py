"""The best rate of each policy on the seeds that choose, as an exponent of half octaves."""

from __future__ import annotations

_MIDDLE = {"fp32": -2, "bf16-standard": -2, "bf16-stochastic": -2, "bf16-kahan": -2, "bf16-fp32-weights": -2}

BEST = {
    ("MLP", "constant"): _MIDDLE,
    ("MLP", "cosine"): _MIDDLE,
    ("CNN", "constant"): _MIDDLE,
    ("GPT", "constant"): _MIDDLE,
}
