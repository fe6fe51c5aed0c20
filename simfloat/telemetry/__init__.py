"""Counters of rounding events."""

from simfloat.telemetry.recorder import Recorder

__all__ = ["Recorder"]
