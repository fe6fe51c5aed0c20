"""What roundings did, counted while they happen."""

from simfloat.telemetry.recorder import Recorder

__all__ = ["Recorder"]
