"""Compare FP8 recipes that are written as programs, run as written, with the presets of the same names.

A preset divides a sum by both scales and rounds once. A program rounds an operand times its scale to FP32 before it
rounds it to float8, multiplies the sum by the FP32 reciprocals of the scales, and rounds to FP32 and then to BF16.
Codes therefore agree unless the first rounding created a tie. Results agree if the scales are powers of two.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import simfloat as sf
import simfloat.torch
from simfloat.arithmetic.bit_stream import Draw, random_words
from simfloat.simulation.streams import seed_of
from tests.bits import assert_bits
from tests.torch import nvfp4_recipe
from tests.torch.fp8_recipes import E4M3, E5M2, Float8Linear, current_scale, to_float8
from tests.torch.nvfp4_recipe import LEVELS, model, product, quantized

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


SEED = 7
UNIT = sf.tensor_core("blackwell", scales=(16, sf.E4M3))
AS_WRITTEN = sf.policies["as-written"].override(operation="scaled_mm", accumulate=UNIT)
PRESET = replace(sf.policies["nvfp4"], weight_gradients=sf.BF16)

#: The preset for the program's model: its last layer is in BF16, its loss in FP32.
MODELS = PRESET.override(
    "4", compute=sf.BF16, compute_gradients=sf.BF16, compute_weights=sf.BF16, accumulate=sf.FP32, rotation=None
).deny("cross_entropy", "log_softmax")

#: The signs of the simulation's Hadamard transform.
SIGNS = torch.from_numpy(np.sign(sf.hadamard(16).matrix(seed_of(SEED, ("", "backward", "hadamard", None)))[:, 0]))

RANDOM = torch.Generator().manual_seed(1)
X, W, G = (2 * torch.rand(shape, generator=RANDOM) - 1 for shape in ((32, 48), (64, 48), (32, 64)))


def uniform(shape, call, seed, stage=0):
    """The draws of a stochastic rounding, as numbers that lie below the share of what is rounded away from zero."""
    words = random_words(Draw(call, seed, stage), 0, math.prod(shape)).astype(np.float64)
    return torch.from_numpy((2.0**32 - 1 - words) / 2.0**32).reshape(shape)


class DrawsOfPreset:
    """The draws of a layer's backward pass, product by product: of its input's gradient, then of its weights'."""

    def __init__(self, path):
        self.seeds, self.calls = [seed_of(SEED, (path, "backward", "linear", operand)) for operand in (0, 1)], 0

    def __call__(self, shape):
        call, operand = divmod(self.calls, 2)
        self.calls += 1
        return uniform(shape, call, self.seeds[operand], stage=255)


def squares(x):
    """Squares of 16 by 16 as rows."""
    return x.unflatten(0, (-1, 16)).unflatten(-1, (-1, 16)).transpose(1, 2).flatten(-2).flatten(0, 1)


@pytest.mark.parametrize("way", ["rows", "squares", "drawn"])
def test_elements_and_both_scales_are_those_of_block_quantize(way):
    x = W * torch.logspace(-4, 0, len(W)).unsqueeze(1)
    x[:16, :16] = 0
    numbers, options = x, dict(block=16)
    if way == "squares":
        numbers, options = squares(x), dict(block=256)
    elif way == "drawn":
        options |= dict(rounding=sf.stochastic(), stream=sf.BitStream(3))
    with sf.torch.simulate(nn.Identity(), "as-written"):
        draw = (lambda shape: uniform(shape, 0, 3)) if way == "drawn" else None
        found = quantized(x, way == "squares", draw)
        elements = torch.where(found.codes > 7, -1.0, 1.0) * LEVELS[(found.codes & 7).int()]
    ours = sf.block_quantize(numbers.numpy(), sf.E2M1, scale=sf.E4M3, **options)
    assert_bits((squares(elements) if way == "squares" else elements).numpy(), ours.elements)
    assert_bits(found.scales.float().flatten().numpy(), ours.scales.flatten())
    assert float(found.whole) == ours.tensor_scale


def divided_once(a, b):
    """A product whose sums are divided by both operands' scales, and rounded to 8 bits by Veltkamp's splitting.

    A cast from FP64 to BF16 goes by way of FP32 in PyTorch.
    """
    one = torch.tensor(1.0)
    sums = product(a._replace(whole=one), b._replace(whole=one), torch.float32)
    quotient = sums.double() / (a.whole.double() * b.whole.double())
    multiple = quotient * (2.0**45 + 1)
    return (multiple - (multiple - quotient)).bfloat16()


@pytest.mark.parametrize("optimizer, seed, way", [
    (partial(torch.optim.SGD, momentum=0.9), 1, product), (torch.optim.AdamW, 3, divided_once),
], ids=["SGD", "AdamW"])  # fmt: skip
def test_a_training_has_the_bits_of_the_presets_if_sums_are_divided_once_or_bf16_does_not_show_it(
    optimizer, seed, way, monkeypatch
):
    monkeypatch.setattr(nvfp4_recipe, "product", way)
    torch.manual_seed(seed)  # with the weights of 3 BF16 shows PyTorch's factor
    program = model(SIGNS)
    program[0].draw, program[2].draw = DrawsOfPreset("0"), DrawsOfPreset("2")
    layers = [nn.Linear(*sizes, bias=False) for sizes in ((32, 64), (64, 48), (48, 10))]
    preset = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    preset.load_state_dict({name: x for name, x in program.state_dict().items() if name in preset.state_dict()})
    found = [trained(program, optimizer, AS_WRITTEN, torch.bfloat16), trained(preset, optimizer, MODELS, torch.float32)]
    for theirs, ours in zip(*found, strict=True):
        assert_bits(theirs.detach().float().numpy(), ours.detach().numpy())


def trained(model, optimizer, policy, dtype):
    """Losses, results, gradients, weights and moments of two steps; the loss is in FP32."""
    random, found = torch.Generator().manual_seed(5), []
    steps = optimizer(model.parameters(), lr=0.01)
    with sf.torch.simulate(model, policy, seed=SEED) as run:
        for _ in range(2):
            x = torch.rand(32, 32, generator=random).sub(0.5).bfloat16().to(dtype).requires_grad_()
            steps.zero_grad()
            y = model(x)
            loss = F.cross_entropy(y.float(), torch.arange(32) % 10)
            loss.backward()
            steps.step()
            found += [loss, y, x.grad, *(p.grad for p in model.parameters()), *(p.clone() for p in model.parameters())]
    assert not [row for row in run.table().rows if row[1] == "refused"]
    return found + [x for state in steps.state.values() for x in state.values()]
