"""Sums made by others: in which order a function adds, and which accumulator of ours gives its bits."""

from simfloat.blackbox.revealed import Revealed, reveal
from simfloat.blackbox.tree import Tree

__all__ = ["Revealed", "Tree", "reveal"]
