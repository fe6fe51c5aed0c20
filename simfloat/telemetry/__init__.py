"""Counts of rounding events, taken while they happen."""

from simfloat.telemetry.recorder import Recorder

__all__ = ["Recorder"]
