"""Sums made by others: in which order a function adds, and which accumulator of ours gives its bits."""

from simfloat.blackbox.revealed import reveal

__all__ = ["reveal"]
