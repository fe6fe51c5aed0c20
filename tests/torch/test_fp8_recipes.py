"""Compare FP8 recipes that are written as programs, run as written, with the presets of the same names.

A preset divides a sum by both scales and rounds once. A program rounds an operand times its scale to FP32 before it
rounds it to float8, multiplies the sum by the FP32 reciprocals of the scales, and rounds to FP32 and then to BF16.
Codes therefore agree unless the first rounding created a tie. Results agree if the scales are powers of two.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import simfloat as sf
from tests.bits import assert_bits
from tests.torch.fp8_recipes import E4M3, E5M2, Float8Linear, current_scale, to_float8

LIMITS = {E4M3: (sf.E4M3, 448.0), E5M2: (sf.E5M2, 57344.0)}


def operands(powers):
    """The input, a weight, and a gradient; with scales that are powers of two, or any scales."""
    random = torch.Generator().manual_seed(1)
    shapes, most = [(16, 32), (48, 32), (16, 48)], [448.0, 448.0, 57344.0]
    made = [torch.randn(shape, generator=random) for shape in shapes]
    for x, largest in zip(made, most, strict=True):
        if powers:
            x[0, 0] = largest / 64  # the largest magnitude, for a scale of 64
    x, w, g = made
    return x.bfloat16(), w, g.bfloat16()


def as_program(layer, x, w, g, steps=1):
    with torch.no_grad():
        layer.weight.copy_(w)
    with sf.torch.simulate(layer, "as-written") as run:
        for step in range(steps):
            given, layer.weight.grad = (x * 2.0**-step).requires_grad_(), None
            y = layer(given)
            y.backward(g)
    assert not [row for row in run.table().rows if row[1] == "refused"]
    return y.float(), given.grad.float(), layer.weight.grad


def by_preset(policy, x, w, g, steps=1, **roles):
    layer = nn.Linear(w.shape[1], w.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(w)
    with sf.torch.simulate(layer, replace(sf.policies[policy], weight_gradients=sf.BF16, **roles)):
        for step in range(steps):
            given, layer.weight.grad = (x.float() * 2.0**-step).requires_grad_(), None
            y = layer(given)
            y.backward(g.float())
    return y.detach(), given.grad, layer.weight.grad


@pytest.mark.parametrize("policy, is_delayed, steps", [("fp8-hybrid", False, 1), ("fp8-delayed", True, 3)])
def test_a_program_and_its_preset_have_the_same_bits_where_scales_are_powers_of_two(policy, is_delayed, steps):
    x, w, g = operands(powers=True)
    found = as_program(Float8Linear(32, 48, is_delayed), x, w, g, steps)
    for ours, theirs in zip(by_preset(policy, x, w, g, steps), found, strict=True):
        assert_bits(ours.numpy(), theirs.detach().numpy())


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_with_any_scale_the_codes_are_those_of_a_cast_with_one_scale(dtype):
    format, _ = LIMITS[dtype]
    for x in operands(powers=False):
        with sf.torch.simulate(nn.Identity(), "as-written"):
            scale = current_scale(x, dtype)
            codes = to_float8(x, scale, dtype)
        numbers = x.float().numpy()
        ours = sf.round(numbers.astype(np.float64) * float(scale), format, sf.nearest_even.saturating())
        assert float(scale) == np.float32(format.max) / np.abs(numbers).max()
        assert np.array_equal(codes.float().numpy(), ours)
