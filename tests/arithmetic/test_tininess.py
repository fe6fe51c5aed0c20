"""Formats without subnormals: tiny results by the definition, by neighbours, and by the processor."""

import math
import platform
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.formats.format import TININESS
from simfloat.tools.selftest.definitions import round_quotient
from tests.bits import DETERMINISTIC, assert_bits

#: One significand bit and several, with and without a sign, -0 and infinities.
SMALL = (
    *({"mantissa_bits": bits, "special": "fn"} for bits in (0, 1, 2)),
    {"mantissa_bits": 3, "special": "ieee"},
    {"mantissa_bits": 2, "special": "fnuz"},
    {"mantissa_bits": 1, "special": "finite"},
    {"mantissa_bits": 2, "special": "fn", "signed": False},
)
FORMATS = [sf.Format(3, **shape, subnormals=False, tininess=way) for shape in SMALL for way in TININESS]
DRAWN = [sf.stochastic(2, variant) for variant in "ABC"]


def around_the_smallest(format):
    """Numbers to beyond twice the smallest normal one, with four bits more than the format's."""
    steps = 32 << format.mantissa_bits
    magnitudes = np.arange(2 * steps + 9) * (format.smallest_normal / steps)
    return np.concatenate([magnitudes, -magnitudes]) if format.signed else magnitudes


#: Modes with draws.
ROUNDINGS = [*((mode, 0) for mode in DETERMINISTIC), *product(DRAWN, range(4))]


def test_every_mode_and_draw_follows_the_definition_which_rounds_without_a_lower_bound_and_then_flushes():
    for format in FORMATS:
        # The bias is greater by an even number, which keeps the parity of codes: ties of one bit go to the even code.
        wide = sf.Format(5, format.mantissa_bits, bias=format.bias + 8, special="finite", signed=format.signed)
        x = around_the_smallest(format)
        magnitudes, negative = np.abs(x), np.signbit(x)
        tiny_before = (magnitudes < format.smallest_normal) & (format.tininess == "before_rounding")
        zeros = np.where(negative & format.has_negative_zero, -0.0, 0.0)
        for rounding, draw in ROUNDINGS:
            defined = [round_value(v, format, rounding, draw) for v in x.tolist()]
            assert_bits(sf.round(x, format, rounding, stream=sf.GivenBits(np.full(x.size, draw))), defined, x)
            if rounding.is_stochastic:
                unbounded = np.array([round_value(v, wide, rounding, draw) for v in x.tolist()])
            else:
                unbounded = round_quotient(magnitudes, np.ones_like(x), negative, wide, rounding)
            flushed = np.where(tiny_before | (np.abs(unbounded) < format.smallest_normal), zeros, unbounded)
            assert_bits(defined, flushed, x)


def test_products_near_the_smallest_are_those_of_a_processor_that_flushes(rng):
    torch = pytest.importorskip("torch", reason="needs PyTorch, which can let the processor flush")
    significands = rng.integers(2**23, 2**24, (2, 50_000)).astype(np.float32) * np.float32(2.0**-23)
    significands[1, ::2] = np.float32(1) / significands[0, ::2]  # products just below 1, 2 and 4 among them
    a, b = significands * np.float32(2.0**-63)
    a *= rng.choice(np.array([-1, 1, 2], np.float32), a.size)
    before = torch.tensor([2.0**-149]).item() == 0
    assert torch.set_flush_denormal(True), "this processor cannot flush"
    try:
        want = (torch.from_numpy(a) * torch.from_numpy(b)).numpy()
    finally:
        torch.set_flush_denormal(before)
    way = "after_rounding" if platform.machine() in ("x86_64", "AMD64") else "before_rounding"
    got = {way: sf.multiply(a, b, sf.Format(8, 23, subnormals=False, tininess=way)) for way in TININESS}
    assert_bits(got[way], want, a, b)
    differ = got["after_rounding"] != got["before_rounding"]
    assert differ.any() and (np.abs(got["after_rounding"][differ]) == 2.0**-126).all()


def test_operands_are_flushed_only_if_they_are_rounded():
    flushing = sf.Format(8, 23, subnormals=False, tininess="before_rounding")
    assert sf.multiply(2.0**-130, 2.0**100, flushing) == 2.0**-30
    assert sf.multiply(sf.round(2.0**-130, flushing), 2.0**100, flushing) == 0.0
    assert sf.dot([2.0**-130], [2.0**100], inputs=flushing, accumulate=flushing) == 0.0
    assert float(sf.array(2.0**-130, flushing) * 2.0**100) == 0.0


def test_sums_flush_every_step():
    smallest, eps = 2.0**-14, 2.0**-10
    for way, last in zip(TININESS, (smallest, 0.0), strict=True):
        half = sf.Format(5, 10, subnormals=False, tininess=way)
        # Halfway between the last number that 11 bits have below the smallest normal one, and that.
        x = [2 * smallest, -smallest, -smallest * eps / 4]
        assert sf.sum(x, accumulate=half) == last
        assert sf.sum(x, accumulate=sf.exact, output=half) == last
        assert sf.sum([smallest, -smallest * (1 + eps)], accumulate=half) == 0.0


def test_a_scale_format_has_no_tiny_results():
    for way in TININESS:
        scale = sf.Format(8, 0, bias=127, special="scale", subnormals=False, signed=False, tininess=way)
        for rounding in DETERMINISTIC:
            assert_bits(sf.round([2.0**-127, 2.0**-128, 2.0**-200], scale, rounding), [2.0**-127] * 3)
        assert_bits(sf.multiply(1e-300, 1e-300, scale, sf.toward_zero), 2.0**-127)


def test_tininess_is_a_field_like_others():
    after, before = (sf.Format(5, 10, subnormals=False, tininess=way) for way in TININESS)
    assert after == sf.Format(5, 10, subnormals=False) != before and len({after, before}) == 2
    assert repr(before) == "Format(5, 10, subnormals=False, tininess='before_rounding')"
    assert sf.as_format(str(before)) == before and sf.as_format(str(after)) == after
    assert sf.Format(5, 10, tininess="before_rounding") != sf.FP16
    assert "tiny before rounding become zero" in str(before._repr_html_())
    for wrong in ("after", None, True, ["after_rounding"]):
        with pytest.raises(ValueError, match="tininess must be one of after_rounding, before_rounding; got"):
            sf.Format(5, 10, tininess=wrong)


def test_subnormals_leave_tininess_nothing_to_decide(rng):
    x = rng.standard_normal(500) * 2.0 ** rng.integers(-26, -12, 500)
    for rounding in DETERMINISTIC:
        assert_bits(sf.round(x, sf.Format(5, 10, tininess="before_rounding"), rounding), sf.round(x, sf.FP16, rounding))
    assert math.copysign(1, sf.round(-1e-9, sf.Format(5, 10, subnormals=False))) == -1
