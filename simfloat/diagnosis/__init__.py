"""What goes wrong first in a training under a policy, and what cures it, verified by running again."""

from simfloat.diagnosis.diagnose import diagnose

__all__ = ["diagnose"]
