"""One operation, one rounding, on arrays."""

from simfloat.arithmetic.blocks import BlockScaled, block_quantize
from simfloat.arithmetic.codes import decode, encode
from simfloat.arithmetic.functions import exp, log, sigmoid, tanh
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.operations import add, divide, fma, multiply, sqrt, subtract
from simfloat.arithmetic.round import round
from simfloat.arithmetic.stream import BitStream
from simfloat.arithmetic.threads import get_threads, set_threads

__all__ = [
    "BitStream",
    "BlockScaled",
    "Observer",
    "add",
    "block_quantize",
    "decode",
    "divide",
    "encode",
    "exp",
    "fma",
    "get_threads",
    "log",
    "multiply",
    "round",
    "set_threads",
    "sigmoid",
    "sqrt",
    "subtract",
    "tanh",
]
