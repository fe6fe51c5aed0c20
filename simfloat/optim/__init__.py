"""Optimizers whose every operation is rounded as the policy says."""

from simfloat.optim.optimizer import Optimizer
from simfloat.optim.sgd import SGD

__all__ = ["SGD", "Optimizer"]
