"""The cost of each operation, layer and role to a gradient; a model's loss and gradient under many policies."""

from simfloat.analysis.attribution.measure import attribute
from simfloat.analysis.attribution.policy_comparison import compare

__all__ = ["attribute", "compare"]
