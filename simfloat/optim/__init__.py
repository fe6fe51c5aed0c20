"""Optimizers whose every operation is rounded as the policy says, and the scaling of losses."""

from simfloat.optim.adafactor import Adafactor
from simfloat.optim.adagrad import Adagrad
from simfloat.optim.adam import Adam, AdamW
from simfloat.optim.dynamic_loss_scale import DynamicLossScale
from simfloat.optim.lion import Lion
from simfloat.optim.log_normal_loss_scale import LogNormalLossScale
from simfloat.optim.loss_scale import LossScale, StaticLossScale
from simfloat.optim.muon import Muon
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.schedule import LRScheduler
from simfloat.optim.schedules import CosineAnnealingLR, LambdaLR, LinearLR, StepLR
from simfloat.optim.sequential_schedule import SequentialLR
from simfloat.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "CosineAnnealingLR",
    "DynamicLossScale",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "Lion",
    "LogNormalLossScale",
    "LossScale",
    "Muon",
    "Optimizer",
    "SequentialLR",
    "StaticLossScale",
    "StepLR",
]
