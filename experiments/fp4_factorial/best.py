"""The best rate of FP32 and the bare formats on the seed that chooses, as an exponent of half octaves."""

from __future__ import annotations

BEST = {"FP32": 3, "MXFP4": 3, "NVFP4": 3}
