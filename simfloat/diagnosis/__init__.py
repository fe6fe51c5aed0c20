"""The first faults of a training under a policy, and their remedies, verified by running again."""

from simfloat.diagnosis.diagnose import diagnose

__all__ = ["diagnose"]
