"""Results that are looked up: of functions of 16-bit numbers, which have 65,536 operands.

A number's place in the table is its image in 16 bits: the upper half of float32's for BF16, the hardware's conversion
for FP16 (see `processor.CONVERTS_FP16`). Both loops give up at the first block that holds another number.
"""

from __future__ import annotations

import numpy as np

from simfloat.kernels import halves
from simfloat.kernels.jit import kernel

#: Elements that are looked at together: of these as many are looked up in vain at most.
BLOCK = 1024


@kernel
def look_up_bfloat16(x, table, out):
    """Look up results of float32 numbers; False, and `out` undefined, if one of them is not a number of BF16."""
    images = x.view(np.uint32)
    for start in range(0, out.size, BLOCK):
        block, results = images[start : start + BLOCK], out[start : start + BLOCK]
        lower = np.uint32(0)
        for i in range(block.size):
            lower = np.uint32(lower | block[i])  # an int64 would take half the lanes
        if lower & np.uint32(0xFFFF):
            return False
        for i in range(block.size):
            results[i] = table[block[i] >> np.uint32(16)]
    return True


@kernel
def look_up_float16(x, table, out):
    """Look up results of float32 numbers; False, and `out` undefined, if one is no number of FP16. A NaN is one."""
    for start in range(0, out.size, BLOCK):
        block, results = x[start : start + BLOCK], out[start : start + BLOCK]
        others = np.int64(0)
        for i in range(block.size):
            number = halves.number(halves.image(block[i]))
            others += np.int64(number != block[i] and block[i] == block[i])
        if others:
            return False
        for i in range(block.size):
            results[i] = table[halves.image(block[i])]
    return True
