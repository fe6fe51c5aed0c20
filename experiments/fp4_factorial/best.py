"""The best rate of each arm on the seeds that choose, as an exponent of half octaves above the first rate."""

from __future__ import annotations

BEST = {
    "FP32": 3,
    "MXFP4": 3,
    "MXFP4, rotated": 3,
    "MXFP4, stochastic": 3,
    "MXFP4, stochastic, rotated": 3,
    "NVFP4": 3,
    "NVFP4, rotated": 3,
    "NVFP4, stochastic": 3,
    "NVFP4, stochastic, rotated": 3,
    "MXFP4, gradients alone": 3,
    "MXFP4, forward alone": 3,
    "NVFP4, gradients alone": 3,
    "NVFP4, forward alone": 3,
}
