"""Compare tensor cores, D = A B + C, with results that were recorded on eight NVIDIA GPUs."""

from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

ARCHITECTURES = {
    "V100": "volta", "A100": "ampere", "A2": "ampere", "Ada": "ada", "L40S": "ada", "H100": "hopper", "H200": "hopper",
    "B200": "blackwell",
}  # fmt: skip
RECORDS = dict(np.load(Path(__file__).parent / "recorded" / "tensor_cores.npz"))
SETS = sorted(key.split("_d_") for key in RECORDS if "_d_" in key)


def numbers(key):
    return RECORDS[key].view(np.float32)


def test_there_are_48_sets():
    assert len(SETS) == 48


@pytest.mark.parametrize("name, output", SETS)
def test_units_give_the_recorded_results(name, output):
    gpu, format = name.split("_")
    eight = format in ("E4M3", "E5M2")
    # On H100 and H200, C takes no part in the sets FP8 -> FP32, which are wgmma's; other FP8 sets there are mma's.
    alone = eight and ARCHITECTURES[gpu] == "hopper" and output == "fp32"
    instruction = "mma" if eight and not alone and ARCHITECTURES[gpu] in ("hopper", "blackwell") else None
    unit = sf.tensor_core(ARCHITECTURES[gpu], format, output, instruction=instruction)
    a, b, c = (numbers(f"{name}_{operand}") for operand in "abc")
    c = None if alone else sf.round(c, output)[:, np.newaxis, np.newaxis]
    got = sf.matmul(a[:, np.newaxis], b[:, :, np.newaxis], accumulate=unit, initial=c)
    assert_bits(got.ravel(), numbers(f"{name}_d_{output}"))
