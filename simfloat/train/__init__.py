"""Training: the training loop, its history, and states on disk."""

from simfloat.train.checkpoints import manifest
from simfloat.train.data import Batches
from simfloat.train.fit import fit
from simfloat.train.history import History
from simfloat.train.states import load, save
from simfloat.train.training import EarlyStop

__all__ = ["Batches", "EarlyStop", "History", "fit", "load", "manifest", "save"]
