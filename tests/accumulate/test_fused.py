"""Compare fused sums with their definition, and with worked examples of matrix units."""

import re
from functools import partial
from itertools import cycle, product
from pathlib import Path

import numpy as np

import simfloat as sf
from simfloat.sums.units import AMD_UNITS, NVIDIA_UNITS
from tests.accumulate.definition import check
from tests.bits import assert_bits
from tests.checks import assert_refused


def test_fused_sums_follow_the_definition(rng):
    pairs = (sf.FP16, sf.FP16), (sf.BF16, sf.BF16), (sf.E4M3, sf.E4M3), (sf.E5M2, sf.E2M1)
    units = (4, 23, -131), (16, 25, -21), (5, 13, None), (1, 8, 3)
    outputs = cycle([sf.FP32, sf.FP16, sf.Format(8, 13)])
    for ((terms, bits, zero), inputs), output in zip(product(units, pairs), outputs, strict=False):
        a = rng.standard_normal((3, 37)) * 2.0 ** rng.integers(-12, 3, (3, 37))
        b = rng.standard_normal((37, 4)) * 2.0 ** rng.integers(-6, 3, (37, 4))
        a[rng.random(a.shape) < 0.1], a[2, 10:] = 0.0, 0.0
        a, b = (sf.round(x, f, sf.nearest_even.saturating()).astype(float) for x, f in zip((a, b), inputs, strict=True))
        unit = sf.fused(terms, bits, output, zero_exponent=zero)
        check(unit, a, b, inputs=inputs)
        check(unit, b.T, a.T, inputs=inputs[::-1])


def test_operands_that_are_not_rounded_have_the_exponents_of_their_array():
    # A subnormal FP16 number reads as 2^-14, so its square is cut at 2^(-28 - 8); as a float64 number it is not cut.
    accumulate = sf.fused(4, 8)
    assert sf.dot([2.0**-20], [2.0**-20], accumulate=accumulate) == 2.0**-40
    assert sf.dot([2.0**-20], [2.0**-20], inputs=sf.FP16, accumulate=accumulate) == 0


def test_any_numbers_of_float64_have_a_fused_sum(rng):
    x = rng.standard_normal((3, 30)) * 2.0 ** rng.integers(-40, 3, (3, 30))
    for align in (sf.toward_zero, sf.nearest_even, sf.to_odd):
        check(sf.fused(4, 20, sf.BF16, align=align), x, np.ones((30, 1)))


def test_fp8_sums_on_hopper_have_fourteen_bits():
    hopper, blackwell = sf.tensor_core("hopper", sf.E4M3), sf.tensor_core("blackwell", sf.E4M3)
    ones, long = np.ones(65536, np.float32), np.full(2**20, 0.75, np.float32)
    for unit, sums in (
        (hopper, (16384, 8200)), (blackwell, (65536, 0.75 * 2**20)),
        (sf.blocked(128, inner=hopper, outer=sf.FP32), (65536, 0.75 * 2**20)),
    ):  # fmt: skip
        assert (sf.sum(ones, accumulate=unit), sf.dot(long, np.ones_like(long), accumulate=unit)) == sums


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
        (lambda: sf.fused(8, 24, align=sf.nearest_away), "toward_zero, nearest_even, toward_negative or to_odd"),
        (lambda: sf.fused(8, 24, align=sf.to_odd.saturating()), "toward_zero, nearest_even, toward_negative or to_odd"),
        (lambda: sf.fused(8, 24, align="truncate"), "align must be a simfloat.Rounding .* got 'truncate'"),
        (lambda: sf.tensor_core("hoper"), "Did you mean 'hopper'"),
        (lambda: sf.fused(8, 24, "posit8"), "posit"),
        (lambda: sf.fused(8, 24, zero_exponent=0.5), "zero_exponent must be an integer from -800 to 800"),
        (lambda: sf.dot([0.1, 0.3], [0.7, 0.9], accumulate=sf.fused(4, 8)), "exact products of at most 53 bits"),
        (lambda: sf.dot([0.1], [1.0], accumulate=sf.tensor_core("hopper", sf.TF32)),
         r"takes FP32 operands, and a\[0, 0\] = 0.1 is not one. Pass inputs=FP32"),
        (lambda: sf.matmul(np.ones((1, 2)), [[1.0], [0.3]], accumulate=sf.tensor_core("hopper", sf.E4M3)),
         r"takes E4M3 operands, and b\[1, 0\] = 0.3 is not one. Pass inputs=E4M3"),
        (lambda: sf.dot([np.inf], [1.0], accumulate=sf.tensor_core("hopper", sf.E4M3)), r"a\[0, 0\] = inf is not one"),
        (lambda: sf.dot([np.nan], [1.0], accumulate=sf.tensor_core("blackwell", sf.E2M1)), r"a\[0, 0\] = nan is not"),
    )  # fmt: skip


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
