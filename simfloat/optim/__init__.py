"""Optimizers whose every operation is rounded as the policy says, and the scaling of losses.

A step is, for example::

    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()

Roles: moments are rounded to `optimizer_state`, all else to `weights`; the last addition follows `update`. Each may
differ by parameter, ``policy.override("*.weight", update="kahan")``. `weight_decay` meets the parameter as `weights`
stores it, so with ``weights=simfloat.FP32`` the master copy. A regularizer that is to be computed in the formats of the
model instead is a term of the loss, as in ``loss + 0.5 * decay * (weight * weight).sum()``: its gradient, decay *
weight, is then rounded to `weight_gradients`, where it may underflow.
"""

import typing as _typing

from simfloat.autodiff.torch_hints import missing as _missing
from simfloat.optim.adadelta import Adadelta
from simfloat.optim.adafactor import Adafactor
from simfloat.optim.adagrad import Adagrad
from simfloat.optim.adam import Adam, AdamW
from simfloat.optim.adamax import Adamax
from simfloat.optim.clipping import clip_grad_norm_, clip_grad_value_
from simfloat.optim.cyclic_schedule import CyclicLR
from simfloat.optim.decaying_schedules import ConstantLR, ExponentialLR, MultiStepLR, PolynomialLR
from simfloat.optim.dynamic_loss_scale import DynamicLossScale
from simfloat.optim.layerwise_loss_scale import LayerwiseLossScale
from simfloat.optim.lion import Lion
from simfloat.optim.log_normal_loss_scale import LogNormalLossScale
from simfloat.optim.loss_scale import LossScale, StaticLossScale
from simfloat.optim.muon import Muon
from simfloat.optim.nadam import NAdam
from simfloat.optim.one_cycle import OneCycleLR
from simfloat.optim.optimizer import Optimizer
from simfloat.optim.plateau import ReduceLROnPlateau
from simfloat.optim.radam import RAdam
from simfloat.optim.rmsprop import RMSprop
from simfloat.optim.scheduler import LRScheduler
from simfloat.optim.schedules import CosineAnnealingLR, LambdaLR, LinearLR, StepLR
from simfloat.optim.sequential_schedule import SequentialLR
from simfloat.optim.sgd import SGD
from simfloat.optim.step import Step
from simfloat.optim.warm_restarts import CosineAnnealingWarmRestarts

__all__ = [
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "DynamicLossScale",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "LayerwiseLossScale",
    "Lion",
    "LogNormalLossScale",
    "LossScale",
    "MultiStepLR",
    "Muon",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "PolynomialLR",
    "RAdam",
    "RMSprop",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StaticLossScale",
    "Step",
    "StepLR",
    "clip_grad_norm_",
    "clip_grad_value_",
]

if not _typing.TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _missing("optim", name)
