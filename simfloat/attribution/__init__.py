"""Which operation, layer and role costs a gradient how much."""

from simfloat.attribution.measure import attribute
from simfloat.attribution.result import Attribution, Cost

__all__ = ["Attribution", "Cost", "attribute"]
