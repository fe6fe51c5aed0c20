"""Training: states on disk."""

from simfloat.train.parts import load, save

__all__ = ["load", "save"]
