"""Compare block formats with their definitions, in fractions and in float32 scalars."""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import floor_log2, round_value
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import draws

ELEMENTS = (sf.E5M2, sf.E4M3, sf.E3M2, sf.E2M3, sf.E2M1)
RULES = ("floor", "ceil", "rceil", "even")


def exponent_of(amax, format, rule):
    """The exponent of a block's scale, without bounds."""
    low = floor_log2(amax)
    if rule == "rceil":
        ratio = amax / Fraction(format.max)
        return floor_log2(ratio) + (Fraction(2) ** floor_log2(ratio) != ratio)
    if rule == "ceil":
        low += Fraction(2) ** low != amax
    elif rule == "even":
        spacing = Fraction(2) ** (low - format.mantissa_bits)
        low = floor_log2(round(amax / spacing) * spacing)  # Python rounds ties to even
    return low - format.emax


def by_definition(values, format, rule, rounding, random):
    """(elements, scale) of one block of OCP MX."""
    if not all(math.isfinite(v) for v in values):
        return [math.nan if format.has_nan else 0.0] * len(values), math.nan
    amax = max(abs(Fraction(v)) for v in values)
    exponent = max(exponent_of(amax, format, rule), -127) if amax else -127
    if exponent > 127:
        return [math.nan if format.has_nan else 0.0] * len(values), math.nan
    scaled = [Fraction(v) / Fraction(2) ** exponent if v else v for v in values]
    elements = [round_value(s, format, rounding.saturating(), r) for s, r in zip(scaled, random, strict=True)]
    return elements, 2.0**exponent


def check(x, format, *, block=32, rule="floor", rounding=sf.nearest_even, seed=0):
    """Compare the rows of a matrix with the definition."""
    got = sf.block_quantize(x, format, block=block, rule=rule, rounding=rounding, stream=sf.BitStream(seed))
    random = draws(x.size, rounding, seed) if rounding.is_stochastic else [0] * x.size
    numbers = np.reshape(random, x.shape)
    for row, drawn, elements, scales in zip(x, numbers, *got, strict=True):
        for i, start in enumerate(range(0, len(row), block)):
            part = slice(start, start + block)
            want, scale = by_definition([float(v) for v in row[part]], format, rule, rounding, drawn[part].tolist())
            assert_bits(scales[i], scale)
            assert_bits(elements[part], want, row[part])
    return got


def edges(format):
    """Largest magnitudes at which some rule's exponent changes, and their neighbours."""
    places = [1.0, format.max, 2.0 ** (format.emax + 1), 2.0 - format.eps / 2, 2.0 - format.eps, 1.5]
    scales = [2.0**e for e in (-130, -20, 0, 3, 100)]
    numbers = [place * scale for place, scale in itertools.product(places, scales)]
    return [near for v in numbers for near in (math.nextafter(v, 0), v, math.nextafter(v, math.inf))]


def test_scales_at_the_edges_of_the_rules(rng):
    for format, rule in itertools.product(ELEMENTS, RULES):
        largest = np.array(edges(format))
        x = rng.uniform(-1, 1, (largest.size, 4)) * largest[:, None]
        x[:, 2] = -largest
        check(x, format, block=4, rule=rule)
    tiny, huge = 2.0**-127, 2.0**127
    x = np.array([[0.0, 5e-324, tiny, tiny * 448, -3 * tiny, 1.5 * tiny, huge, huge * 448, huge * 512, -1e308]]).T
    for format, rule in itertools.product(ELEMENTS, RULES):
        check(x, format, block=1, rule=rule)
    assert np.isnan(sf.block_quantize([huge * 512], sf.E4M3).scales), "beyond E8M0"
    assert sf.block_quantize([huge * 448], sf.E4M3).scales == huge


def test_random_blocks_follow_the_definition(rng):
    for format, rule in itertools.product((*ELEMENTS, sf.BF16, sf.E4M3FNUZ, sf.p3109(8, 4), sf.E3M4), RULES):
        x = rng.standard_normal((6, 70)) * 2.0 ** rng.integers(-8, 8, (6, 70)) * 2.0 ** rng.integers(-40, 40, (6, 1))
        assert check(x, format, rule=rule).scales.shape == (6, 3), "the last block is short"
        single = check(np.float32(x), format, rule=rule)
        assert single.elements.dtype == single.scales.dtype == np.float32


def test_other_modes_round_the_elements_only(rng):
    x = rng.standard_normal((3, 40)) * 2.0 ** rng.integers(-6, 6, (3, 40))
    x[0, 3], x[1, 5] = 1e-310, -5e-324  # dividing these by the scale in float64 would round them
    x[0, 0] = 1e38
    for rounding in (*DETERMINISTIC, sf.stochastic(), sf.stochastic(3, "A")):
        for format in (sf.E4M3, sf.E2M1):
            check(x, format, rounding=rounding, seed=9)


def test_blocks_with_infinities_and_nan_have_no_scale():
    x = np.array([1.0, np.nan, 2.0, np.inf, 6.0, -np.inf, -3.0, 1.5])
    for format, scale in itertools.product(ELEMENTS, (sf.E8M0, sf.E4M3)):
        got = sf.block_quantize(x, format, block=2, scale=scale)
        assert_bits(np.isnan(got.scales), [True, True, True, False])
        assert_bits(got.elements[:6], [np.nan if format.has_nan else 0.0] * 6)
        assert np.isnan(got.values()[:6]).all() and np.isfinite(got.values()[6:]).all()
        if scale == sf.E4M3:
            assert got.tensor_scale == np.float32(448 * format.max) / np.float32(3), "of what is finite"


def test_zeros():
    x = np.array([0.0, -0.0, 0.0, 1.0])
    got = sf.block_quantize(x, sf.E2M1, block=2)
    assert_bits(got.scales, [2.0**-127, 0.25])
    assert_bits(got.elements, [0.0, -0.0, 0.0, 4.0])
    assert_bits(got.values(), x)
    none = sf.block_quantize(np.zeros(20), sf.E2M1, scale=sf.E4M3)
    assert none.tensor_scale == 1.0
    assert_bits(none.scales, [0.0, 0.0])
    assert_bits(none.elements, np.zeros(20))


def test_any_axis_is_cut_into_blocks(rng):
    x = rng.standard_normal((6, 7, 40))
    for scale, axis, block in itertools.product((sf.E8M0, sf.E4M3), range(-3, 3), (1, 4, 7, 100)):
        got = sf.block_quantize(x, sf.E4M3, block=block, axis=axis, scale=scale)
        last = sf.block_quantize(np.moveaxis(x, axis, -1), sf.E4M3, block=block, scale=scale)
        assert got.scales.shape[axis] == -(-x.shape[axis] // block) and got.axis == axis % 3
        for one, other in ((got.elements, last.elements), (got.scales, last.scales), (got.values(), last.values())):
            assert_bits(one, np.moveaxis(other, -1, axis))


def test_layouts_and_empty_arrays(rng):
    x = rng.standard_normal((8, 48))
    want = sf.block_quantize(x, sf.E2M1, rounding=sf.stochastic(), stream=sf.BitStream(1))
    for layout in (np.asfortranarray(x), x[::-1].copy()[::-1]):
        got = sf.block_quantize(layout, sf.E2M1, rounding=sf.stochastic(), stream=sf.BitStream(1))
        assert_bits(got.elements, want.elements)
    for shape, scale in itertools.product([(0,), (3, 0), (0, 3)], (sf.E8M0, sf.E4M3)):
        got = sf.block_quantize(np.zeros(shape), sf.E2M1, scale=scale)
        assert got.elements.shape == got.values().shape == shape
        assert got.scales.shape == (*shape[:-1], -(-shape[-1] // 16))


def test_values_are_exact_products(rng):
    x = rng.standard_normal((4, 64)) * 2.0 ** rng.integers(-120, 120, (4, 1))
    got = sf.block_quantize(np.float32(x), sf.E4M3)
    assert got.values().dtype == np.float64 and got.block == 32 and got.axis == 1 and got.tensor_scale == 1.0
    assert_bits(np.asarray(got), got.values())
    with pytest.raises(ValueError, match="leave out copy=False"):
        np.array(got, copy=False)
    want = [[Fraction(float(e)) * Fraction(float(s[i // 32])) for i, e in enumerate(row)] for row, s in zip(*got)]  # noqa: B905
    assert got.values().tolist() == [[float(v) for v in row] for row in want]
    assert sf.encode(got.elements, sf.E4M3).dtype == sf.encode(got.scales, sf.E8M0).dtype == np.uint8


# --- NVFP4 ---------------------------------------------------------------------------------------


def two_levels(row, largest, format, block):
    """(elements, scales, tensor_scale) of one row, each step a float32 operation."""

    def rounded(x, format):
        return round_value(Fraction(float(x)) if x else float(x), format, sf.nearest_even, 0)

    single, most = np.float32, np.float32(format.max)
    with np.errstate(all="ignore"):
        tensor = min(single(448) * most / largest, np.finfo(single).max) if largest else single(1)
        elements, scales = [], []
        for start in range(0, len(row), block):
            part = row[start : start + block]
            scale = max(abs(v) for v in part) * (tensor / most)
            scale = single(rounded(min(max(scale, single(-448)), single(448)), sf.E4M3))
            factor = min(single(1) / (scale * (single(1) / tensor)), np.finfo(single).max)
            elements += [rounded(min(max(v * factor, -most), most), format) for v in part]
            scales.append(scale)
    return elements, scales, tensor


@pytest.mark.parametrize("format", ELEMENTS, ids=str)
def test_two_level_scaling_follows_the_reference(format, rng):
    spreads = (0, 0, 3, 3, 20, 20, 60, 60)
    cases = [rng.standard_normal((3, 50)) * 2.0 ** rng.integers(-e, e + 1, (3, 50)) for e in spreads]
    cases += [scale * np.array([[1.0, 0.5, -0.25, 0.01]]) for scale in (1e-45, 1e-38, 1e-30, 1e30, 3e38)]
    for x in cases:
        x = x.astype(np.float32)
        x[1:2, :16] = 0
        got = sf.block_quantize(x, format, scale=sf.E4M3)
        assert got.block == 16 and got.scales.shape == (len(x), -(-x.shape[1] // 16))
        for i, row in enumerate(x):
            elements, scales, tensor = two_levels(row, np.abs(x).max(), format, 16)
            assert_bits(got.scales[i], scales)
            assert_bits(got.elements[i], elements, row)
            assert got.tensor_scale == tensor


def test_two_level_scaling_to_tiny_numbers_has_no_infinite_steps():
    # 448 max / amax lies below float32's numbers, and its reciprocal above them: both stop at the last one.
    tiny = sf.Format(4, 3, bias=128)
    got = sf.block_quantize(np.float32([[1e35, -2e35], [0.0, -0.0]]), tiny, scale=sf.E4M3, block=2)
    assert got.tensor_scale == 2.0**-149
    assert_bits(got.scales, [[448.0], [0.0]])
    assert_bits(got.elements, [[0.0, -0.0], [0.0, -0.0]])


def test_the_worked_example_of_two_levels():
    x = np.array([10.0] * 16 + [1.0] * 16)
    got = sf.block_quantize(x, sf.E2M1, scale=sf.E4M3)
    assert got.tensor_scale == np.float32(268.8)
    assert_bits(got.scales, [448.0, 44.0])
    assert (got.elements == 6.0).all()
    assert got.values()[16] == 6 * 44 / float(np.float32(268.8)) == pytest.approx(0.98214, abs=5e-6)


def test_elements_of_two_levels_round_in_the_given_mode(rng):
    x = rng.standard_normal((2, 64)).astype(np.float32)
    up, down = (
        sf.block_quantize(x, sf.E2M1, scale="e4m3", rounding=mode) for mode in (sf.toward_positive, sf.toward_negative)
    )
    drawn = sf.block_quantize(x, sf.E2M1, scale="e4m3", rounding=sf.stochastic(), stream=sf.BitStream(3))
    assert_bits(up.scales, down.scales)
    assert ((drawn.elements == up.elements) | (drawn.elements == down.elements)).all()
    assert (drawn.elements != up.elements).any() and (drawn.elements != down.elements).any()


# --- oracle and refusals -------------------------------------------------------------------------


def test_floor_agrees_with_gfloat(rng, gfloat):
    from gfloat import block

    x = rng.standard_normal((8, 32)) * 2.0 ** rng.integers(-20, 20, (8, 1))
    for format in ELEMENTS:
        info = getattr(gfloat.formats, f"format_info_mxfp{format.bits}_{str(format).lower()}")
        for row, values in zip(x, sf.block_quantize(x, format).values(), strict=True):
            assert_bits(values, block.quantize_block(info, row, block.compute_scale_amax))


def test_bad_input_is_refused():
    for options, message in (
        (dict(rule=["floor"]), r"rule must be one of floor, ceil, rceil, even; got \['floor'\]"),
        (dict(rule="round"), "rule must be one of floor, ceil, rceil, even; got 'round'"),
        (dict(rule="ceil", scale=sf.E4M3), "rule='ceil' chooses among powers of two: it needs scale=E8M0, got E4M3"),
        (dict(block=0), "block must be a positive integer, .* got 0"),
        (dict(block=2.0), "block must be a positive integer, .* got 2.0"),
        (dict(block=True), "block must be a positive integer, .* got True"),
        (dict(scale="e9m1"), "in a format that float32 can represent, got e9m1"),
        (dict(axis=1), "axis must be an integer from -1 to 0, got 1"),
        (dict(axis=None), "axis must be .* got None"),
        (dict(axis=True), "axis must be .* got True"),
        (dict(x=1.0), "an array with an axis"),
        (dict(format=sf.FP64), "Elements scaled by E8M0 are float32 numbers .* FP64 has others"),
        (dict(format=sf.BF16, scale=sf.E4M3), "Elements scaled by E4M3 are float32 numbers of at most 7.59"),
        (dict(rounding=sf.stochastic()), "pass stream="),
        (dict(rounding=sf.stochastic(), scale=sf.E4M3), "pass stream="),
        (dict(rounding="nearest"), "rounding must be"),
        (dict(format="e9"), "Unknown format"),
    ):
        with pytest.raises(ValueError, match=message):
            sf.block_quantize(**dict(x=np.ones(40), format=sf.E4M3) | options)


def test_an_axis_is_counted_from_the_first_one_also_in_a_pickle_of_an_older_version():
    scaled = sf.BlockScaled(np.ones((2, 4)), np.ones((2, 2)), 2, -1)
    want = scaled.axis, *scaled.values().shape
    object.__setattr__(scaled, "axis", -1)
    read = pickle.loads(pickle.dumps(scaled))
    assert want == (read.axis, *read.values().shape) == (1, 2, 4)
    for axis in (-3, 2, 1.0):
        with pytest.raises(ValueError, match=f"axis must be an integer from -2 to 1, got {axis}"):
            sf.BlockScaled(np.ones((2, 4)), np.ones((2, 2)), 2, axis)


def test_numbers_with_a_tensor_scale_do_not_unpack_as_two():
    scaled = sf.block_quantize(np.float32([1e-6, 2e-6]), sf.E2M1, scale=sf.E4M3)
    with pytest.raises(ValueError, match="which unpacking into elements and scales would lose"):
        _, _ = scaled
    elements, scales = sf.block_quantize(np.zeros(16), sf.E2M1, scale=sf.E4M3)
    assert not elements.any() and scales.shape == (1,)
