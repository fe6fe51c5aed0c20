"""Products of float8 and float4 numbers with block scales, as in programs for a GPU."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import simfloat as sf
import simfloat.torch
from tests.bits import assert_bits
from tests.torch import compared

AS_WRITTEN = sf.policies["as-written"]
simulated = partial(compared.simulated, policy=AS_WRITTEN)
KIND, LAYOUT = F.ScalingType, F.SwizzleType
TWO_LEVELS = [KIND.BlockWise1x16, KIND.TensorWise], [LAYOUT.SWIZZLE_32_4_4, LAYOUT.NO_SWIZZLE]

#: 130 rows and 5 blocks of 16 fill neither rows nor columns of the tiles in which scales lie.
ROWS, COLUMNS, DEPTH = 130, 16, 80


def operand(rows, depth=DEPTH, block=16, seed=0):
    """Blocks of unlike magnitudes; the scale of all is 1024, as 2688 / 2.625 is."""
    random = np.random.default_rng([rows, seed])
    x = random.uniform(-1, 1, (rows, depth)) * np.repeat(
        2.0 ** random.integers(-7, 2, (rows, depth // block)), block, 1
    )
    x[0, 0] = 2.625
    return sf.round(x, sf.BF16)


def tensors(x, elements, scale, block, rule=None):
    """What block_quantize gives, as tensors: elements, two to a byte if they have 4 bits, and scales in tiles."""
    given = sf.block_quantize(x, elements, block=block, scale=scale, rule=rule)
    codes = torch.from_numpy(sf.encode(given.elements, elements))
    if elements == sf.E2M1:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    types = {sf.E2M1: torch.float4_e2m1fn_x2, sf.E4M3: torch.float8_e4m3fn, sf.E8M0: torch.float8_e8m0fnu}
    rows, blocks = given.scales.shape
    across = -(-blocks // 4)
    tiles = np.zeros(-(-rows // 128) * across * 512, np.uint8)
    for (i, j), code in np.ndenumerate(sf.encode(given.scales, scale)):
        tiles[(i // 128 * across + j // 4) * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4] = code
    return codes.view(types[elements]), torch.from_numpy(tiles).view(types[scale]), torch.tensor(1 / given.tensor_scale)


@pytest.mark.parametrize("unit", [None, "blackwell"])
def test_float4_numbers_with_two_levels_of_scales_have_the_bits_of_nvfp4s_cast(unit):
    x, w, accumulate = operand(ROWS), operand(COLUMNS), sf.FP32
    (a, a_scales, a_whole), (b, b_scales, b_whole) = (tensors(each, sf.E2M1, sf.E4M3, 16) for each in (x, w))
    kinds, layouts = TWO_LEVELS
    policy = AS_WRITTEN
    if unit:
        accumulate = sf.tensor_core(unit, scales=(16, sf.E4M3))
        policy = AS_WRITTEN.override(operation="scaled_mm", accumulate=accumulate)
    both = [a_scales, a_whole], kinds, [b_scales, b_whole], kinds, layouts, layouts
    found = simulated(lambda: F.scaled_mm(a, b.t(), *both, output_dtype=torch.float32), policy=policy)
    cast = sf.scaled(sf.E2M1, sf.block(16, sf.E4M3))
    wanted = sf.matmul(x, w.T, inputs=cast, accumulate=accumulate, output=sf.FP32)
    assert_bits(found.numpy(), wanted)
    one_level = simulated(
        lambda: torch._scaled_mm(a, b.t(), a_scales, b_scales, out_dtype=torch.float32), policy=policy
    )
    assert_bits(one_level.numpy(), np.float32(2**20) * wanted)
    bias = torch.linspace(-1, 1, COLUMNS).bfloat16()
    biased = simulated(lambda: F.scaled_mm(a, b.t(), *both, bias=bias), policy=policy)
    assert_bits(biased.double().numpy(), sf.round(sf.add(wanted, bias.double().numpy(), sf.FP32), sf.BF16))


def test_scales_of_the_whole_are_multiplied_with_each_other_before_they_multiply_sums():
    (a, a_scales, _), (b, b_scales, _) = (tensors(operand(n), sf.E2M1, sf.E4M3, 16) for n in (ROWS, COLUMNS))
    kinds, layouts = TWO_LEVELS
    first, second = np.float32(1 / 3), np.float32(1 / 7)

    def product(*wholes):
        scales = ([each, torch.tensor(whole)] for each, whole in zip((a_scales, b_scales), wholes, strict=True))
        return F.scaled_mm(
            a, b.t(), next(scales), kinds, next(scales), kinds, layouts, layouts, output_dtype=torch.float32
        )

    sums, found = (
        simulated(lambda wholes=wholes: product(*wholes)).numpy() for wholes in ((1.0, 1.0), (first, second))
    )
    assert_bits(found, sf.multiply(sums, first * second, sf.FP32))
    assert np.mean(found != sf.multiply(sf.multiply(sums, first, sf.FP32), second, sf.FP32)) > 0.1


@pytest.mark.parametrize("elements", [sf.E4M3, sf.E2M1], ids=str)
@pytest.mark.parametrize("unit", [None, "blackwell"])
def test_numbers_with_powers_of_two_as_scales_have_the_bits_of_mxs_cast(elements, unit):
    x, w = (operand(rows, 160, 32) for rows in (ROWS, COLUMNS))
    (a, a_scales, _), (b, b_scales, _) = (tensors(each, elements, sf.E8M0, 32, "rceil") for each in (x, w))
    accumulate = sf.tensor_core(unit, scales=(32, sf.E8M0)) if unit else sf.FP32
    policy, kinds = replace(AS_WRITTEN, accumulate=accumulate), (KIND.BlockWise1x32, LAYOUT.SWIZZLE_32_4_4)
    found = simulated(
        lambda: F.scaled_mm(a, b.t(), a_scales, kinds[0], b_scales, kinds[0], kinds[1], kinds[1]), policy=policy
    )
    cast = sf.scaled(elements, sf.block(32, sf.E8M0))
    assert_bits(found.float().numpy(), sf.matmul(x, w.T, inputs=cast, accumulate=accumulate, output=sf.BF16))
    again = simulated(lambda: torch._scaled_mm(a, b.t(), a_scales, b_scales, out_dtype=torch.bfloat16), policy=policy)
    assert torch.equal(again, found)


def test_scaled_mm_with_scales_of_wholes_and_rows_is_the_older_function():
    a, b = (torch.from_numpy(operand(n)).to(torch.float8_e4m3fn) for n in (32, 16))
    for kind, scales in (
        (KIND.TensorWise, (torch.tensor(1 / 3), torch.tensor(0.7))),
        (KIND.RowWise, (torch.rand(32, 1), torch.rand(1, 16))),
    ):
        new = simulated(lambda s=scales, kind=kind: F.scaled_mm(a, b.t(), s[0], kind, s[1], kind))
        old = simulated(lambda s=scales: torch._scaled_mm(a, b.t(), *s, out_dtype=torch.bfloat16))
        assert torch.equal(new, old)


#: Arguments of a product of a, its transpose b and scales s, and what is said.
WRONG = [
    (lambda a, b, s: (a, b, [s], [2], [1], [s], [3], [1]), "a has BlockWise1x16, b BlockWise1x32. For other scales"),
    (lambda a, b, s: (a, b, [s], [4], [0], [s], [5], [0]), "a has BlockWise1x128, b BlockWise128x128"),
    (lambda a, b, s: (a, b, [s], [2], [0], [s], [2], [0]), "SWIZZLE_32_4_4, .* got 512 of .*, NO_SWIZZLE"),
    (lambda a, b, s: (a, b, [s[:5]], [2], [1], [s], [2], [1]), "of 16 by 2 blocks as 512 numbers .* got 5 of torch"),
    (lambda a, b, s: (a, b, [s.float()], [2], [1], [s], [2], [1]), "got 512 of torch.float32"),
    (lambda a, b, s: (a, b, [torch.ones(())], [0], [], [torch.ones(())], [0], []), "float4_e2m1fn_x2 with TensorWise"),
    (lambda a, b, s: (a.view(torch.float8_e4m3fn), b, [s], [2], [1], [s], [2], [1]), "float4 values only in both"),
    (lambda a, b, s: (a, a.t().contiguous(), [s], [2], [1], [s], [2], [1]), "in pairs along k"),
]


def test_scales_that_pytorch_does_not_take_have_no_rule_or_join_those_of_a_policy_are_refused():
    a, scales, _ = tensors(operand(16, 32), sf.E2M1, sf.E4M3, 16)
    for change, message in WRONG:
        given = change(a, a.t(), scales)
        with pytest.raises(ValueError, match=message):
            simulated(lambda given=given: torch._scaled_mm_v2(*given, None, torch.bfloat16))
    policy = AS_WRITTEN.override(operation="scaled_mm", compute=sf.scaled(sf.E2M1, sf.block(16, sf.E4M3)))
    with pytest.raises(ValueError, match="scaled_mm: The operands have scales already"):
        simulated(lambda: torch._scaled_mm(a, a.t(), scales, scales, out_dtype=torch.bfloat16), policy=policy)
