"""Operations on arrays, each of which rounds its exact result once."""

from simfloat.arithmetic.bit_stream import BitStream, GivenBits
from simfloat.arithmetic.blocks import BlockScaled, block, block_quantize
from simfloat.arithmetic.casts import cast, scaled
from simfloat.arithmetic.catalog import FUNCTIONS as _FUNCTIONS
from simfloat.arithmetic.catalog import REPRESENTABLE as _REPRESENTABLE
from simfloat.arithmetic.codes import decode, encode, to_hex
from simfloat.arithmetic.functions import *  # noqa: F403 (one for each row of the catalog)
from simfloat.arithmetic.memory_images import pack, readmemb, readmemh, unpack, writememb, writememh
from simfloat.arithmetic.operations import round
from simfloat.arithmetic.scaling import delayed, hadamard, per_tensor
from simfloat.arithmetic.spacing import nextafter, ulp
from simfloat.arithmetic.target import Observer
from simfloat.arithmetic.threads import get_threads, set_threads
from simfloat.terminal import progress

__all__ = [
    "BitStream",
    "BlockScaled",
    "GivenBits",
    "Observer",
    "block",
    "block_quantize",
    "cast",
    "decode",
    "delayed",
    "encode",
    "get_threads",
    "hadamard",
    "nextafter",
    "pack",
    "per_tensor",
    "progress",
    "readmemb",
    "readmemh",
    "round",
    "scaled",
    "set_threads",
    "to_hex",
    "ulp",
    "unpack",
    "writememb",
    "writememh",
    *_FUNCTIONS,
    *_REPRESENTABLE,
]
