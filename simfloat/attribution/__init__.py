"""Which operation, layer and role costs a gradient how much; a model's loss and gradient under many policies."""

from simfloat.attribution.measure import attribute
from simfloat.attribution.policy_comparison import compare

__all__ = ["attribute", "compare"]
