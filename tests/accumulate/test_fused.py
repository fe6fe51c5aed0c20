"""Compare fused sums with their definition, and with worked examples of matrix units."""

import re
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import simfloat as sf
from simfloat.sums.units import AMD_UNITS, NVIDIA_UNITS
from tests.accumulate.definition import check
from tests.bits import assert_bits
from tests.checks import assert_refused

E8M13, CLAMPED = sf.Format(8, 13), sf.nearest_even.saturating()


@pytest.mark.parametrize(
    "terms, fraction_bits, zero_exponent", [(4, 23, -131), (16, 25, -21), (5, 13, None), (1, 8, 3)]
)
def test_fused_sums_follow_the_definition(terms, fraction_bits, zero_exponent, rng):
    pairs = (sf.FP16, sf.FP16), (sf.BF16, sf.BF16), (sf.E4M3, sf.E4M3), (sf.E5M2, sf.E2M1)
    for inputs, output in product(pairs, (sf.FP32, sf.FP16, E8M13)):
        a = rng.standard_normal((4, 37)) * 2.0 ** rng.integers(-12, 3, (4, 37))
        b = rng.standard_normal((37, 5)) * 2.0 ** rng.integers(-6, 3, (37, 5))
        a[rng.random(a.shape) < 0.1], a[3, 10:] = 0.0, 0.0
        a, b = (sf.round(x, f, CLAMPED).astype(float) for x, f in zip((a, b), inputs, strict=True))
        unit = sf.fused(terms, fraction_bits, output, zero_exponent=zero_exponent)
        check(unit, a, b, inputs=inputs)
        check(unit, b.T, a.T, inputs=inputs[::-1])


def test_operands_that_are_not_rounded_have_the_exponents_of_their_array(rng):
    # A subnormal FP16 number reads as 2^-14, so its square is cut at 2^(-28 - 8); as a float64 number it is not cut.
    accumulate = sf.fused(4, 8)
    assert sf.dot([2.0**-20], [2.0**-20], accumulate=accumulate) == 2.0**-40
    assert sf.dot([2.0**-20], [2.0**-20], inputs=sf.FP16, accumulate=accumulate) == 0
    with pytest.raises(ValueError, match="exact products of at most 53 bits"):
        sf.dot(rng.standard_normal(4), rng.standard_normal(4), accumulate=accumulate)


def test_any_numbers_of_float64_have_a_fused_sum(rng):
    x = rng.standard_normal((3, 30)) * 2.0 ** rng.integers(-40, 3, (3, 30))
    for align in (sf.toward_zero, sf.nearest_even, sf.to_odd):
        check(sf.fused(4, 20, sf.BF16, align=align), x, np.ones((30, 1)))


def after(start, a, b, accumulate, terms):
    """The sum of products onto a sum so far of start[0] * start[1], which a chunk of its own makes."""
    x, y = np.zeros(terms + len(a)), np.zeros(terms + len(a))
    x[0], y[0], x[terms:], y[terms:] = *start, a, b
    return float(sf.dot(x, y, accumulate=accumulate))


@pytest.mark.parametrize(
    "architecture, inputs, variant, want",
    [("cdna2", sf.BF16, "1k", 0.0), ("cdna2", sf.FP32, None, -0.875), ("cdna3", sf.FP64, None, -0.875)],
    ids=str,
)
def test_the_vector_of_the_mma_sim_paper_on_matrix_cores(architecture, inputs, variant, want):
    # The self-test has the results of all other units.
    unit = sf.matrix_core(architecture, inputs, variant=variant)
    a, b = [-(2.0**13), -0.5, -0.25, -0.125], [2.0**10, 1.0, 1.0, 1.0]
    assert after((2.0**12, 2.0**11), a, b, unit, 16) == want


def test_sums_are_cut_not_rounded():
    a, b = [-(2.0**-12), -(2.0**-12)], [2.0**-12, 2.0**-13]  # together -3 * 2^-25, in one product of FP16 numbers
    small = ([-3 * 2.0**-13], [2.0**-12])
    assert after((1.0, 1.0), *small, sf.tensor_core("ampere", sf.FP16), 8) == 1 - 2.0**-24
    assert after((1.0, 1.0), *small, sf.tensor_core("hopper", sf.FP16), 16) == 1 - 2.0**-23
    assert after((1.0, 1.0), [3 * 2.0**-13], [2.0**-12], sf.tensor_core("hopper", sf.FP16), 16) == 1.0
    assert after((1.0, 1.0), a, b, sf.tensor_core("volta", sf.FP16), 4) == 1.0


def test_fp8_sums_on_hopper_have_fourteen_bits():
    hopper, blackwell = sf.tensor_core("hopper", sf.E4M3), sf.tensor_core("blackwell", sf.E4M3)
    ones = np.ones(32)
    assert after((64.0, 128.0), 0.5 * ones, ones, hopper, 32) == 8192
    assert after((64.0, 128.0), 1.5 * ones, ones, hopper, 32) == 8224
    assert after((64.0, 128.0), 1.5 * ones, ones, blackwell, 32) == 8240
    assert sf.sum(np.ones(65536, np.float32), accumulate=hopper) == 16384
    assert sf.sum(np.ones(65536, np.float32), accumulate=blackwell) == 65536
    long = np.ones(2**20, np.float32)
    assert sf.dot(0.75 * long, long, accumulate=hopper) == 8200
    assert sf.dot(0.75 * long, long, accumulate=blackwell) == 0.75 * 2**20
    promoted = sf.blocked(128, inner=hopper, outer=sf.FP32)
    assert sf.dot(0.75 * long, long, accumulate=promoted) == 0.75 * 2**20


def test_fp64_units_are_chains_of_fused_multiply_adds(rng):
    a, b = rng.standard_normal((2, 9, 9))
    want = sf.matmul(a, b, accumulate=sf.FP64)
    for unit in (sf.tensor_core("hopper", sf.FP64), sf.matrix_core("cdna2", sf.FP64)):
        assert_bits(sf.matmul(a, b, accumulate=unit), want)
    x, y = a.astype(np.float32), b.astype(np.float32)
    assert_bits(sf.matmul(x, y, accumulate=sf.matrix_core("cdna1", sf.FP32)), sf.matmul(x, y, accumulate=sf.FP32))


def test_tf32_units_cut_float32_operands():
    unit = sf.tensor_core("hopper", sf.TF32)
    assert sf.dot(np.float32([1 + 2.0**-10 + 2.0**-11]), np.float32([1]), accumulate=unit) == 1 + 2.0**-10
    with pytest.raises(ValueError, match=r"takes FP32 operands, and a\[0, 0\] = 0.1 is not one. Pass inputs=FP32"):
        sf.dot([0.1], [1.0], accumulate=unit)


def test_missing_options_of_a_unit_are_refused_with_the_available_ones():
    assert_refused(
        (lambda: sf.tensor_core("kepler", sf.FP16), "supports volta, turing, ampere, ada, hopper, blackwell; got"),
        (lambda: sf.tensor_core("volta", sf.BF16), "no unit for BF16 x BF16 -> FP32 without scales. It has FP16 ->"),
        (lambda: sf.tensor_core("ampere", sf.BF16, sf.FP16), "BF16 -> FP32; TF32 -> FP32"),
        (lambda: sf.tensor_core("hopper", sf.E2M1), "E4M3 or E5M2 with E4M3 or E5M2 -> FP32 or FP16"),
        (lambda: sf.tensor_core("hopper", sf.E4M3, scales=(32, sf.E8M0)), r"under scales=\(32, E8M0\)"),
        (lambda: sf.tensor_core("blackwell", sf.E4M3, scales=(16, sf.E8M0)), r"under scales=\(32, E8M0\)"),
        (lambda: sf.tensor_core("blackwell", sf.E2M1, scales=32), "scales must be a pair of the products per block"),
        (lambda: sf.tensor_core("hopper", (sf.FP16, sf.BF16)), "no unit for FP16 x BF16"),
        (lambda: sf.tensor_core("hopper", (sf.FP16,)), "a pair of formats for a and b; got 1"),
        (lambda: sf.matrix_core("cdna4", sf.FP16), "matrix_core supports cdna1, cdna2, cdna3; got 'cdna4'"),
        (lambda: sf.matrix_core("cdna1", sf.E4M3FNUZ), "cdna1 has no unit for E4M3FNUZ x E4M3FNUZ"),
        (lambda: sf.matrix_core("cdna3", sf.BF16, variant="1k"), 'The only variant is "1k", of BF16 on cdna2'),
        (lambda: sf.fused(0, 24), "terms must be an integer from 1 to 1024, got 0"),
        (lambda: sf.fused(8, 60), "fraction_bits must be an integer from 1 to 40, got 60"),
        (lambda: sf.fused(8, 24, align=sf.nearest_away), "align must be toward_zero, nearest_even or to_odd"),
        (lambda: sf.fused(8, 24, align=sf.to_odd.saturating()), "align must be toward_zero, nearest_even or to_odd"),
        (lambda: sf.fused(8, 24, align="truncate"), "align must be a simfloat.Rounding .* got 'truncate'"),
        (lambda: sf.tensor_core("hoper"), "Did you mean 'hopper'"),
        (lambda: sf.fused(8, 24, "posit8"), "posit"),
        (lambda: sf.fused(8, 24, zero_exponent=0.5), "zero_exponent must be an integer from -800 to 800"),
    )


def test_a_gpu_is_answered_with_its_architecture():
    page = (Path(__file__).parents[2] / "docs" / "units.md").read_text("utf-8")
    text = " ".join(" ".join(re.findall(r"^(?:V100|MI100) is (?:.+\n)+", page, re.MULTILINE)).split())
    gpus = {"sm_90": "hopper", "sm_90a": "hopper", "NVIDIA H100": "hopper", "sm_100": "blackwell", "gfx942": "cdna3"}
    gpus |= {"mi300x": "cdna3", "AMD Instinct MI250X": "cdna2"}
    for names, architecture in re.findall(r'([^."`]+) `"(\w+)"`', text):
        gpus |= dict.fromkeys(re.findall(r"(?:RTX )?[A-Z]+\d\w*|RTX \d+", names), architecture)
    assert set(gpus.values()) == {*NVIDIA_UNITS, *AMD_UNITS} and len(gpus) == 19, gpus
    for name, architecture in gpus.items():
        for unit, table in ((sf.tensor_core, NVIDIA_UNITS), (sf.matrix_core, AMD_UNITS)):
            hint = f" Did you mean '{architecture}'\\?" if architecture in table else ""
            assert_refused((partial(unit, name, sf.FP16), f"got '{name}'\\.{hint}$"))


def test_operands_outside_the_unit_are_refused():
    with pytest.raises(ValueError, match=r"takes E4M3 operands, and b\[1, 0\] = 0.3 is not one. Pass inputs=E4M3"):
        sf.matmul(np.ones((1, 2)), [[1.0], [0.3]], accumulate=sf.tensor_core("hopper", sf.E4M3))
    with pytest.raises(ValueError, match=r"a\[0, 0\] = inf is not one"):
        sf.dot([np.inf], [1.0], accumulate=sf.tensor_core("hopper", sf.E4M3))
    with pytest.raises(ValueError, match=r"a\[0, 0\] = nan is not one"):
        sf.dot([np.nan], [1.0], accumulate=sf.tensor_core("blackwell", sf.E2M1))
