"""Measure the error that each operation, layer and role causes in a gradient; compare many policies."""

from simfloat.analysis.attribution.measure import attribute
from simfloat.analysis.attribution.policy_comparison import compare

__all__ = ["attribute", "compare"]
