"""One operation, one rounding, on arrays."""

from simfloat.arithmetic._round import round
from simfloat.arithmetic.blocks import BlockScaled, block_quantize
from simfloat.arithmetic.cast import Cast, as_cast, cast
from simfloat.arithmetic.codes import decode, encode, to_hex
from simfloat.arithmetic.functions import (
    add,
    cos,
    divide,
    erf,
    exp,
    fma,
    gelu,
    log,
    log2,
    multiply,
    power,
    reciprocal,
    rsqrt,
    sigmoid,
    sin,
    sqrt,
    subtract,
    tanh,
)
from simfloat.arithmetic.memory import readmemh, writememh
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.spacing import nextafter, ulp
from simfloat.arithmetic.stream import BitStream, GivenBits
from simfloat.arithmetic.threads import get_threads, set_threads

__all__ = [
    "BitStream",
    "BlockScaled",
    "Cast",
    "GivenBits",
    "Observer",
    "add",
    "as_cast",
    "block_quantize",
    "cast",
    "cos",
    "decode",
    "divide",
    "encode",
    "erf",
    "exp",
    "fma",
    "gelu",
    "get_threads",
    "log",
    "log2",
    "multiply",
    "nextafter",
    "power",
    "readmemh",
    "reciprocal",
    "round",
    "rsqrt",
    "set_threads",
    "sigmoid",
    "sin",
    "sqrt",
    "subtract",
    "tanh",
    "to_hex",
    "ulp",
    "writememh",
]
