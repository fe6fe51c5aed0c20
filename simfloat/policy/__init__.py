"""Which layer computes in which formats."""

from simfloat.policy.policy import Policy
from simfloat.policy.presets import as_policy, policies
from simfloat.policy.roles import Recipe

__all__ = ["Policy", "Recipe", "as_policy", "policies"]
