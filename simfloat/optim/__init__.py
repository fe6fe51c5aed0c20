"""Optimizers whose every operation is rounded as the policy says, loss scaling, clipping and schedules.

A training step is, for example::

    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    schedule.step()

Moments are rounded to `optimizer_state`, and everything else to `weights`; the last addition follows `update`. Each of
these roles may differ by parameter, ``policy.override("*.weight", update="kahan")``.

`weight_decay` is multiplied by the parameter as stored in `weights`, so with ``weights=simfloat.FP32`` by the master
copy. To compute a regularizer in the formats of the model instead, add it to the loss, as in ``loss + 0.5 * decay *
(weight * weight).sum()``: its gradient, decay * weight, is then rounded to `weight_gradients`, where it may underflow.
"""

import typing as _typing

from simfloat.autodiff.tensor import missing as _missing
from simfloat.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from simfloat.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from simfloat.optim.adaptive_loss_scales import LayerwiseLossScale, LogNormalLossScale
from simfloat.optim.clipping import clip_grad_norm_, clip_grad_value_
from simfloat.optim.cycles import CyclicLR, OneCycleLR
from simfloat.optim.loss_scale import DynamicLossScale, LossScale, StaticLossScale
from simfloat.optim.optimizer import Optimizer, Step
from simfloat.optim.scheduler import LRScheduler, ReduceLROnPlateau, SequentialLR
from simfloat.optim.schedules import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from simfloat.optim.sgd import SGD, Lion, Muon

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

if not _typing.TYPE_CHECKING:  # hidden from type checkers, so that they report unknown names

    def __getattr__(name: str) -> object:
        raise _missing("optim", name)
