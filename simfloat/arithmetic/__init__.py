"""One operation, one rounding, on arrays."""

from simfloat.arithmetic._cast import cast, scaled
from simfloat.arithmetic._round import round
from simfloat.arithmetic.bit_stream import BitStream, GivenBits
from simfloat.arithmetic.block_scaling import block
from simfloat.arithmetic.blocks import BlockScaled, block_quantize
from simfloat.arithmetic.catalog import FUNCTIONS as _FUNCTIONS
from simfloat.arithmetic.codes import decode, encode, to_hex
from simfloat.arithmetic.functions import *  # noqa: F403 (one for each row of the catalog)
from simfloat.arithmetic.hadamard import hadamard
from simfloat.arithmetic.memory_images import readmemh, writememh
from simfloat.arithmetic.observer import Observer
from simfloat.arithmetic.scaling import delayed, per_tensor
from simfloat.arithmetic.spacing import nextafter, ulp
from simfloat.arithmetic.testfloat import read_vectors, write_vectors
from simfloat.arithmetic.threads import get_threads, set_threads
from simfloat.status_line import progress

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
    "per_tensor",
    "progress",
    "read_vectors",
    "readmemh",
    "round",
    "scaled",
    "set_threads",
    "to_hex",
    "ulp",
    "write_vectors",
    "writememh",
    *_FUNCTIONS,
]
