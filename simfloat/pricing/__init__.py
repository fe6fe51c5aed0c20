"""The cost of a training step under a policy: multiply-adds, numbers, bits moved, bytes of state."""

from simfloat.pricing.counted_work import cost, count_work

__all__ = ["cost", "count_work"]
