"""Layers and losses, composed of tensor operations, so that a policy applies to every step."""

import typing as _typing

from simfloat.autodiff import Parameter
from simfloat.autodiff.tensor import missing as _missing
from simfloat.nn import init
from simfloat.nn.activations import (
    GELU,
    Hardshrink,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
    Softshrink,
    Tanh,
)
from simfloat.nn.arguments import seed
from simfloat.nn.attention import (
    MultiHeadAttention,
    MultiheadAttention,
    TransformerEncoderLayer,
    scaled_dot_product_attention,
)
from simfloat.nn.class_losses import cross_entropy, ctc_loss, nll_loss
from simfloat.nn.containers import MLP, Flatten, Identity, ModuleList, ReLULinear, Sequential, Unflatten
from simfloat.nn.convolution import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, Conv2d, ConvTranspose2d, MaxPool2d
from simfloat.nn.dropout import Dropout, Dropout1d, Dropout2d
from simfloat.nn.linear import Embedding, EmbeddingBag, Linear
from simfloat.nn.loss_modules import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    CTCLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from simfloat.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from simfloat.nn.module import Module
from simfloat.nn.norms import BatchNorm1d, BatchNorm2d, GroupNorm, InstanceNorm1d, InstanceNorm2d, LayerNorm, RMSNorm
from simfloat.nn.recurrent import GRU, LSTM, RNN
from simfloat.nn.sequences import AdaptiveAvgPool1d, AdaptiveMaxPool1d, AvgPool1d, Conv1d, ConvTranspose1d, MaxPool1d
from simfloat.nn.smooth_activations import CELU, ELU, GLU, SELU, LogSigmoid, Mish, PReLU, SiLU, Softplus
from simfloat.nn.volumes import (
    AdaptiveAvgPool3d,
    AdaptiveMaxPool3d,
    AvgPool3d,
    Conv3d,
    ConvTranspose3d,
    MaxPool3d,
)

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "GRU",
    "LSTM",
    "MLP",
    "RNN",
    "SELU",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "CTCLoss",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CrossEntropyLoss",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HuberLoss",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "KLDivLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Mish",
    "Module",
    "ModuleList",
    "MultiHeadAttention",
    "MultiheadAttention",
    "NLLLoss",
    "PReLU",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "ReLULinear",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Tanh",
    "TransformerEncoderLayer",
    "Unflatten",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "ctc_loss",
    "huber_loss",
    "init",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "scaled_dot_product_attention",
    "seed",
    "smooth_l1_loss",
]

if not _typing.TYPE_CHECKING:  # hidden from type checkers, so that they report unknown names

    def __getattr__(name: str) -> object:
        raise _missing("nn", name)
