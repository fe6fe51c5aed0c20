"""Which operation, layer and role costs a gradient how much."""

from simfloat.attribution.measure import attribute

__all__ = ["attribute"]
