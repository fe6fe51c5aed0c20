"""Which layer computes in which formats."""

from simfloat.policy.policy import Policy
from simfloat.policy.presets import policies
from simfloat.policy.roles import Recipe

__all__ = ["Policy", "Recipe", "policies"]
