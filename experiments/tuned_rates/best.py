"""The best rate of each policy on the seeds that choose, as an exponent of half octaves."""

from __future__ import annotations

BEST = {
    ("MLP", "constant"): {
        "fp32": -1,
        "bf16-standard": -1,
        "bf16-stochastic": -1,
        "bf16-kahan": 0,
        "bf16-fp32-weights": -1,
    },
    ("MLP", "cosine"): {
        "fp32": -1,
        "bf16-standard": -1,
        "bf16-stochastic": -1,
        "bf16-kahan": -1,
        "bf16-fp32-weights": -1,
    },
    ("GPT", "constant"): {"fp32": -14, "bf16-standard": -14, "bf16-stochastic": -14},
    ("RNN", "constant"): {"fp32": -12, "bf16-standard": -10, "bf16-stochastic": -10},
    ("DLRM", "constant"): {"fp32": -1, "bf16-standard": -1, "bf16-stochastic": -1},
    ("BERT", "constant"): {
        "fp32": -18,
        "bf16-standard": -18,
        "bf16-stochastic": -19,
        "bf16-kahan": -18,
        "bf16-fp32-weights": -19,
    },
    ("CNN", "constant"): {"fp32": -10, "bf16-standard": -9, "bf16-stochastic": -9},
    ("CNN", "cosine"): {"fp32": -7, "bf16-standard": -7, "bf16-stochastic": -7},
}
