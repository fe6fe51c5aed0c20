"""Layers and losses, written with the operations of tensors: a policy reaches all of them."""

from simfloat.autodiff import Parameter
from simfloat.nn import init
from simfloat.nn.activations import GELU, LeakyReLU, ReLU, Softmax, Tanh
from simfloat.nn.attention import scaled_dot_product_attention
from simfloat.nn.classification import cross_entropy, nll_loss
from simfloat.nn.containers import MLP, ModuleList, ReLULinear, Sequential
from simfloat.nn.convolution_layers import Conv2d, ConvTranspose2d
from simfloat.nn.ctc import ctc_loss
from simfloat.nn.dropout import Dropout
from simfloat.nn.embedding import Embedding, EmbeddingBag
from simfloat.nn.layer_norm import LayerNorm
from simfloat.nn.linear import Linear
from simfloat.nn.loss_modules import BCEWithLogitsLoss, CrossEntropyLoss, CTCLoss, MSELoss, NLLLoss, SmoothL1Loss
from simfloat.nn.losses import binary_cross_entropy_with_logits, mse_loss, smooth_l1_loss
from simfloat.nn.module import Module
from simfloat.nn.multi_head_attention import MultiHeadAttention, MultiheadAttention
from simfloat.nn.normalization import BatchNorm1d, BatchNorm2d
from simfloat.nn.pooling_layers import AdaptiveAvgPool2d, AvgPool2d, Flatten, MaxPool2d
from simfloat.nn.recurrent import GRU, LSTM, RNN
from simfloat.nn.seeds import seed
from simfloat.nn.transformer import TransformerEncoderLayer

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "MLP",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "CTCLoss",
    "Conv2d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "Flatten",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "MultiHeadAttention",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "RNN",
    "ReLU",
    "ReLULinear",
    "Sequential",
    "SmoothL1Loss",
    "Softmax",
    "Tanh",
    "TransformerEncoderLayer",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "ctc_loss",
    "init",
    "mse_loss",
    "nll_loss",
    "scaled_dot_product_attention",
    "seed",
    "smooth_l1_loss",
]
