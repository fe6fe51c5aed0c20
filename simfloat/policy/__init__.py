"""Which layer computes in which formats."""

from simfloat.policy.policy import Policy, as_policy
from simfloat.policy.presets import policies
from simfloat.policy.roles import Recipe

__all__ = ["Policy", "Recipe", "as_policy", "policies"]
