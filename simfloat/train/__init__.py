"""Training: the loop, its history, and states on disk."""

from simfloat.train.batches import Batches
from simfloat.train.checkpoints import manifest
from simfloat.train.early_stop import EarlyStop
from simfloat.train.fit import fit
from simfloat.train.history import History
from simfloat.train.saving import load, save

__all__ = ["Batches", "EarlyStop", "History", "fit", "load", "manifest", "save"]
