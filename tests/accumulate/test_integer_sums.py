"""Sums of matrix units in 32-bit lanes have the same bits as sums in float64, for all operands."""

from itertools import product

import numpy as np

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw
from simfloat.kernels.compile import processor
from simfloat.sums.fused import FusedEngine
from simfloat.sums.integers import IntegerEngine
from simfloat.sums.operands import Problem, operand_bounds
from simfloat.sums.tiles import TURNED, UPRIGHT
from tests.bits import assert_bits

E8M13 = sf.Format(8, 13)
FLUSHED, FLUSHED_BEFORE = (
    sf.Format(5, 10, subnormals=False, tininess=when) for when in ("after_rounding", "before_rounding")
)
FORMATS = (sf.FP16, sf.BF16, sf.TF32, sf.E4M3, sf.E5M2, sf.E2M1, sf.E3M2, sf.E4M3FNUZ)

#: Units whose chunks are one pass and many, whose totals take one integer, nearly two, and more than float32 has bits;
#: which draw, flush what is tiny, stop at the largest number, and do not round.
UNITS = [
    *(sf.tensor_core(arch, sf.FP16).unit for arch in ("volta", "ampere", "hopper")),
    *(sf.tensor_core(arch, sf.FP16, sf.FP16).unit for arch in ("volta", "hopper")),
    *(sf.tensor_core(arch, sf.E4M3).unit for arch in ("hopper", "blackwell")), sf.fused(1, 24),
    sf.fused(7, 23, zero_exponent=-126), sf.fused(8, 26), sf.fused(56, 24), sf.fused(19, 13, sf.FP16),
    sf.fused(10, 20, E8M13), sf.fused(127, 14, E8M13),
    sf.fused(1, 24, sf.FP16, rounding=sf.stochastic(7), align=sf.nearest_even),
    sf.fused(3, 23, rounding=sf.stochastic()),
    sf.fused(16, 26, sf.BF16, rounding=sf.stochastic(13, "B").saturating(), align=sf.to_odd),
    sf.fused(4, 12, FLUSHED, rounding=sf.stochastic(8, "A")),
    sf.fused(16, 26, FLUSHED_BEFORE, rounding=sf.stochastic(), align=sf.nearest_even),
    sf.fused(4, 24, sf.Format(8, 23, subnormals=False)),
    sf.fused(4, 14, FLUSHED, rounding=sf.toward_positive, align=sf.to_odd),
    sf.fused(5, 14, FLUSHED_BEFORE, rounding=sf.to_odd.saturating()),
    sf.fused(7, 23, sf.FP16, rounding=sf.nearest_even.saturating()), sf.fused(8, 24, sf.FP64),
    sf.fused(16, 26, sf.FP64, align=sf.to_odd), sf.fused(3, 13, sf.FP64, align=sf.nearest_even),
    sf.fused(16, 26, sf.FP64, align=sf.toward_negative), sf.fused(56, 24, align=sf.toward_negative),
    sf.fused(7, 23, sf.BF16, rounding=sf.nearest_even, align=sf.toward_negative),
]  # fmt: skip


def operands(rng, format, kind, shape):
    """Numbers of a format that cancel, are far apart, subnormal, the largest, special, or few."""
    x = rng.standard_normal(shape)
    if kind == "far apart":
        x *= 2.0 ** rng.integers(-25, 25, shape)
    if kind == "equal magnitudes":
        x = np.sign(x) * rng.choice([1.0, 1.5, 2 - 2.0 ** (1 - format.precision)], shape)
    if kind == "subnormal":
        x *= format.smallest_normal
    if kind == "largest":
        x = np.sign(x) * format.max * rng.choice([1.0, 0.75, 2.0**-12], shape)
    if kind == "anywhere":
        x *= 2.0 ** rng.integers(format.emin - 8, format.emax, shape)
    x = sf.round(x, format, sf.nearest_even.saturating())
    if kind == "special":
        specials = [np.inf, -np.inf] * format.has_infinity + [np.nan] * format.has_nan or [0.0]
        x = np.where(rng.random(shape) < 0.02, rng.choice(specials, shape), x)
    x[rng.random(shape) < (0.7 if kind == "few" else 0.05)] = 0.0
    return x.astype(np.float32)


KINDS = ("near", "far apart", "equal magnitudes", "subnormal", "largest", "anywhere", "special", "few")


def starts(rng, engine, shape, high=130):
    """Initial values of sums: zeros of both signs, numbers of any size, infinities and NaN."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-160, high, shape)
    near = rng.random(shape) < 0.6
    x[near] = rng.standard_normal(near.sum())
    # The unit of FP8 gives 14 bits, and takes an initial value in FP32.
    unit = getattr(engine.engine_in_float64, "fused", None)
    x = sf.round(x, unit.output if unit and unit != sf.tensor_core("hopper", sf.E4M3).unit else sf.FP32)
    which = rng.random(shape)
    return np.select([which < 0.1, which < 0.15, which < 0.2, which < 0.22], [0.0, -0.0, np.inf, np.nan], x)


def compare(rng, pair, *ways):
    """Sums of operands of every kind in both formats, in 32-bit lanes and in float64."""
    for kinds in [(kind, kind) for kind in KINDS] + [tuple(rng.choice(KINDS, 2)) for _ in range(4)]:
        m, k, n = rng.integers(1, 9), rng.integers(1, 80), rng.choice([1, 5, 16, 47, 270])
        a, b = (operands(rng, *which) for which in zip(pair, kinds, ((m, k), (k, n)), strict=True))
        small = np.nan_to_num(starts(rng, ways[0][1], (m, n), 90), posinf=-0.0, neginf=0.0)
        for start in (np.zeros((m, n)), small, starts(rng, ways[0][1], (m, n))):
            for region, engine in ways:
                want, got = start.copy(), start.astype(engine.carrier)
                engine.engine_in_float64.run(np.float64(a), np.float64(b), want, region)
                engine.run(a.astype(engine.carrier), b.astype(engine.carrier), got, region)
                assert_bits(got, np.where(np.isnan(want), np.nan, want).astype(engine.carrier))


CDNA3 = [(format, format) for format in (sf.FP16, sf.BF16, sf.TF32, sf.E5M2FNUZ)] + [(sf.E4M3FNUZ, sf.E5M2FNUZ)]


def test_sums_in_32_bits_are_those_in_float64(rng):
    for unit in UNITS:
        pairs = [pair for pair in product(FORMATS, FORMATS) if isinstance(unit.engine_for_all(*pair), IntegerEngine)]
        assert len(pairs) >= 25
        draw = Draw(3, 11) if unit.mode.is_stochastic else None
        upright, turned = (
            region._replace(first=5, row_step=300, column_step=7, draw=draw) for region in (UPRIGHT, TURNED)
        )
        for pair in rng.permutation(np.array(pairs, object))[:2]:
            compare(rng, pair, (upright, unit.engine_for_all(*pair)), (turned, unit.engine_for_all(*pair[::-1])))
    for pair in CDNA3:
        a, b = (operand_bounds(np.ones((1, 1), np.float32), format) for format in pair)
        compare(rng, pair, (UPRIGHT, sf.matrix_core("cdna3", pair).engine(Problem(a, b, 1, sf.FP32))))


def test_units_of_few_bits_add_to_anchors_where_float32_is_rounded_toward_zero():
    units = sf.tensor_core("hopper", sf.E4M3).unit, sf.fused(127, 14, E8M13), sf.fused(128, 14, E8M13)
    anchored = [unit.engine_for_all(sf.FP16, sf.FP16).loop == "anchored" for unit in units]
    assert anchored == [processor.ROUNDS_LANES, processor.ROUNDS_LANES, False]


def test_the_largest_products_do_not_overflow_an_integer():
    for format in FORMATS:
        for terms, bits in ((15, 25), (16, 25), (31, 24), (32, 25), (7, 26), (2, 28), (1, 29), (127, 14)):
            unit, least = sf.fused(terms, bits, sf.FP32 if bits > 22 else E8M13), (format.emin, format.emin)
            engine = unit.engine_for_all(format, format)
            x = np.full((2, 3 * terms), (2 - 2.0 ** (1 - format.precision)) * 2.0, np.float32)
            a, b = x * np.float32([[1], [-1]]), np.ascontiguousarray(x.T)
            got, want = np.zeros((2, 2), engine.carrier), np.zeros((2, 2))
            engine.run(a.astype(engine.carrier), b.astype(engine.carrier), got, UPRIGHT)
            FusedEngine(unit, least).run(np.float64(a), np.float64(b), want, UPRIGHT)
            assert_bits(got.astype(np.float64), want)


def test_units_without_room_keep_float64():
    assert isinstance(sf.fused(8, 24).engine_for_all(sf.FP16, sf.FP16), IntegerEngine)
    for unit, format in [
        (sf.fused(8, 40), sf.FP16), (sf.fused(64, 26), sf.FP16), (sf.fused(8, 20), sf.FP16),
        (sf.fused(8, 24, zero_exponent=0), sf.FP16), (sf.fused(8, 24), sf.Format(8, 12)),
        (sf.fused(8, 24), sf.Format(9, 3)), (sf.fused(8, 24, sf.FP64, rounding=sf.toward_zero.saturating()), sf.FP16),
        (sf.fused(8, 24, sf.Format(8, 0, special="fn", subnormals=False)), sf.FP16),
    ]:  # fmt: skip
        assert isinstance(unit.engine_for_all(format, format), FusedEngine)
