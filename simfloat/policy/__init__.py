"""Policies: the formats in which each layer computes."""

from simfloat.policy.flash_attention import attention_kernels, flash_attention
from simfloat.policy.policy import Policy
from simfloat.policy.presets import policies
from simfloat.policy.roles import Recipe

__all__ = ["Policy", "Recipe", "attention_kernels", "flash_attention", "policies"]
