"""Check the adder with cocotb: every sum is compared with simfloat.add."""

import cocotb
import numpy as np
from cocotb.triggers import Timer

import simfloat as sf


@cocotb.test()
async def sums_are_rounded_to_nearest_even(adder):
    a, b = np.random.default_rng(0).integers(0, 2**16, (2, 1000))
    expected = sf.encode(sf.add(sf.decode(a, sf.FP16), sf.decode(b, sf.FP16), sf.FP16), sf.FP16)
    for x, y, total in zip(a.tolist(), b.tolist(), expected.tolist(), strict=True):
        adder.a.value, adder.b.value = x, y
        await Timer(1)
        assert int(adder.result.value) == total, f"{x:04x} + {y:04x}: {int(adder.result.value):04x}, not {total:04x}"
