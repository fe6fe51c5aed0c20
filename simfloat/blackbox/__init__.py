"""Black boxes: in which order an unknown function adds, and which accumulator of ours gives its bits."""

from simfloat.blackbox.revealed import reveal

__all__ = ["reveal"]
