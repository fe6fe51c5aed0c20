"""Layers and losses, written with the operations of tensors: a policy reaches all of them."""

import typing as _typing

from simfloat.autodiff import Parameter
from simfloat.autodiff.torch_hints import missing as _missing
from simfloat.nn import init
from simfloat.nn.activations import GELU, LeakyReLU, LogSoftmax, ReLU, Sigmoid, Softmax, Tanh
from simfloat.nn.attention import scaled_dot_product_attention
from simfloat.nn.bounded_activations import Hardshrink, Hardsigmoid, Hardswish, Hardtanh, ReLU6, Softshrink
from simfloat.nn.classification import cross_entropy, nll_loss
from simfloat.nn.containers import MLP, ModuleList, ReLULinear, Sequential
from simfloat.nn.convolution_layers import Conv2d, ConvTranspose2d
from simfloat.nn.ctc import ctc_loss
from simfloat.nn.divergence import kl_div
from simfloat.nn.dropout import Dropout, Dropout1d, Dropout2d
from simfloat.nn.embedding import Embedding, EmbeddingBag
from simfloat.nn.group_norm import GroupNorm, RMSNorm
from simfloat.nn.instance_norm import InstanceNorm1d, InstanceNorm2d
from simfloat.nn.layer_norm import LayerNorm
from simfloat.nn.linear import Linear
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
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from simfloat.nn.module import Module
from simfloat.nn.multi_head_attention import MultiHeadAttention, MultiheadAttention
from simfloat.nn.normalization import BatchNorm1d, BatchNorm2d
from simfloat.nn.pooling_layers import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from simfloat.nn.recurrent import GRU, LSTM, RNN
from simfloat.nn.reshaping_layers import Flatten, Identity, Unflatten
from simfloat.nn.seeds import seed
from simfloat.nn.sequence_layers import AdaptiveAvgPool1d, AvgPool1d, Conv1d, ConvTranspose1d, MaxPool1d
from simfloat.nn.smooth_activations import CELU, ELU, GLU, SELU, LogSigmoid, Mish, PReLU, SiLU, Softplus
from simfloat.nn.transformer import TransformerEncoderLayer

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
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "CTCLoss",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
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

if not _typing.TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _missing("nn", name)
