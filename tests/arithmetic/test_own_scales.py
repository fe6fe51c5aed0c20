"""Casts, and block scales in custom formats and by custom rules, number by number."""

import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.casts import as_cast
from simfloat.formats.definition import round_value
from simfloat.tools.selftest.definitions import operate
from simfloat.tools.selftest.orders import dot
from tests.bits import assert_bits
from tests.checks import assert_refused

CLAMPED = sf.nearest_even.saturating()
UE5M3 = sf.Format(5, 3, special="fn", signed=False)


def halved(amax, format):
    """A power of two that leaves room for a factor of two."""
    return 2.0 ** (np.floor(np.log2(amax / format.max)) + 2)


def scale_of(amax, format, scale):
    """amax / max rounded to nearest even, at least the smallest positive number; of zeros 1."""
    if not amax:
        return round_value(1.0, scale, CLAMPED)
    return max(round_value(Fraction(amax) / Fraction(format.max), scale, CLAMPED), scale.smallest_subnormal)


def test_scales_of_any_format_are_the_quotient_rounded_once(rng):
    scales = sf.FP32, sf.FP16, sf.BF16, UE5M3, sf.E5M2, sf.fixed(8, 4), sf.E2M1
    for format, scale, dtype in product((sf.E2M1, sf.E4M3, sf.fixed(8, 6)), scales, (np.float64, np.float32)):
        x = (rng.standard_normal((3, 11)) * 2.0 ** rng.integers(-12, 12, (3, 11))).astype(dtype)
        x[1, :4] = 0.0
        quantized = sf.block_quantize(x, format, block=4, scale=scale)
        for i, run in np.ndindex(3, 3):
            part = x[i, 4 * run : 4 * run + 4].tolist()
            s = scale_of(max(map(abs, part)), format, scale)
            assert quantized.scales[i, run] == s
            want = [operate("divide", format, CLAMPED, v, s) for v in part]
            assert_bits(quantized.elements[i, 4 * run : 4 * run + 4].astype(float), want)
        assert quantized.tensor_scale == 1


@pytest.mark.parametrize("scale", [sf.E8M0, sf.E4M3, sf.FP32, UE5M3], ids=str)
def test_a_rule_of_ones_own_is_asked_for_each_magnitude(scale, rng):
    asked = []

    def rule(amax, format):
        asked.append((amax, format))
        return 2.0 ** np.clip(np.ceil(np.log2(amax)), -3, 3)

    x = rng.integers(-9, 10, (4, 12)) / 4.0
    x[0, :3] = 0.0
    elements, scales = sf.block_quantize(x, sf.E2M1, block=3, scale=scale, rule=rule)
    amax = np.abs(x).reshape(4, 4, 3).max(2)
    assert set(asked) == {(float(v), sf.E2M1) for v in np.unique(amax[amax > 0])}
    want = np.where(amax > 0, 2.0 ** np.clip(np.ceil(np.log2(np.maximum(amax, 0.1))), -3, 3), 1.0)
    assert_bits(scales.astype(float), want)
    assert_bits(elements, sf.round(x / np.repeat(want, 3, 1), sf.E2M1, CLAMPED))
    along = sf.block_quantize(x.T, sf.E2M1, block=3, scale=scale, rule=rule, axis=0)
    assert_bits(along.elements.T, elements)


@pytest.mark.parametrize("scale", [sf.Format(3, 4, bias=0, subnormals=False), sf.Format(2, 0, bias=0, special="fnuz")])
def test_a_block_of_zeros_has_a_positive_scale_where_one_would_be_flushed(scale):
    x = [0.0, -0.0, 3.0, -448.0]
    elements, scales = sf.block_quantize(x, sf.E4M3, block=2, scale=scale)
    assert scales[0] == scale.smallest_subnormal > 1
    assert_bits(elements[:2], [0.0, -0.0])
    assert_bits(sf.block_quantize(x, sf.E2M1, block=2, scale=scale).elements[:2], [0.0, -0.0])


def test_blocks_that_are_not_finite_have_no_scale():
    x = [1.0, np.inf, 2.0, 3.0]
    quantized = sf.block_quantize(x, sf.E4M3, block=2, scale=sf.FP16)
    assert_bits(quantized.scales, np.array([np.nan, sf.round(3 / 448, sf.FP16)]))
    assert np.isnan(quantized.elements[:2]).all()
    with pytest.raises(ValueError, match="infinity or a NaN needs a NaN scale, and fixed.* has no NaN"):
        sf.block_quantize(x, sf.E4M3, block=2, scale=sf.fixed(8, 4))


def test_an_invalid_rule_or_scale_is_refused():
    narrow = "in a format that float32 can represent, got FP64"
    for call, message in (
        (lambda: sf.block_quantize([3.0], sf.E2M1, rule="round"),
         "rule must be one of floor, ceil, rceil, even; got .* It may also be a function"),
        (lambda: sf.block(16, sf.FP16, rule="even"),
         "rule='even' chooses among powers of two: it needs E8M0 scales, got FP16"),
        (lambda: sf.block(16, sf.FP64), narrow),
        (lambda: sf.block_quantize([3.0], sf.E2M1, scale=sf.FP64), narrow),
        *((lambda value=value: sf.block_quantize([3.0], sf.E2M1, block=1, scale=sf.E5M2, rule=lambda *_: value), words)
          for value, words in (
              (np.nan, "for amax = 3.0 and elements of E2M1 it returned nan"), (0.0, "it returned 0.0"),
              (-2.0, "it returned -2.0"), (np.inf, "it returned inf"), (None, "it returned None"),
              ("2", "it returned '2'"),
              (0.3, r"a positive number of E5M2.*it returned 0.3. Round the result to the format: simfloat.round\("))),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()


def test_sums_of_blocks_are_multiplied_with_such_scales(rng):
    scales = (UE5M3, None), (sf.FP16, None), (sf.BF16, halved), (sf.FP32, halved)
    for accumulate, (scale, rule) in product((sf.sequential(sf.FP32), sf.fused(4, 12, sf.BF16)), scales):
        a, b = rng.standard_normal((2, 11)), rng.standard_normal((11, 3))
        inputs = sf.scaled(sf.E2M1, sf.block(4, scale, rule=rule))
        left, right = (
            sf.block_quantize(x, sf.E2M1, block=4, scale=scale, rule=rule, axis=axis) for x, axis in ((a, 1), (b, 0))
        )
        got, ends = sf.matmul(a, b, inputs=inputs, accumulate=accumulate), (sf.E2M1.emin, sf.E2M1.emin)
        mode = getattr(accumulate, "rounding", None) or sf.nearest_even
        for i, j in np.ndindex(got.shape):
            total = 0.0
            for run in range(3):
                place = slice(4 * run, 4 * run + 4)
                part = dot(accumulate, left.elements[i, place].tolist(), right.elements[place, j].tolist(), ends)
                both = float(left.scales[i, run]) * float(right.scales[run, j])
                part = operate("multiply", accumulate.result, mode, part, both)
                total = operate("add", accumulate.result, mode, total, part)
            assert_bits(float(got[i, j]), total)
        left, right = (  # results of block_quantize are operands
            sf.block_quantize(x[:, :8] if axis else x[:8], sf.E2M1, block=4, scale=scale, rule=rule, axis=axis)
            for x, axis in ((a, 1), (b, 0))
        )
        want = sf.matmul(left.values(), right.values(), accumulate=sf.exact, output=sf.FP32)
        assert_bits(sf.matmul(left, right, accumulate=sf.exact, output=sf.FP32), want)


def test_policies_train_with_rules_of_ones_own_and_print_their_names():
    own = sf.Policy(compute=sf.scaled(sf.E2M1, sf.block(4, sf.BF16, rule=halved)), activations=sf.BF16)
    assert "block(4, BF16, rule=halved)" in str(own.compute)
    assert eval(repr(own.compute), {**vars(sf), "halved": halved}) == own.compute
    with pytest.raises(ValueError, match="its scales use a custom function. Create the policy in Python"):
        own.to_toml()
    named = sf.Policy(compute=sf.scaled(sf.E2M1, sf.block(4, UE5M3)), activations=sf.BF16)
    assert sf.Policy.from_toml(named.to_toml()) == named
    for policy in (own, named):
        model = sf.nn.MLP([5, 4, 2], rng=0)
        optimizer = sf.optim.SGD(model.parameters(), lr=0.1)
        with sf.simulate(policy, seed=1):
            for _ in range(2):
                optimizer.zero_grad()
                sf.nn.cross_entropy(model(np.ones((6, 5))), np.arange(6) % 2).backward()
                optimizer.step()
        assert np.isfinite(model.head.weight.data).all()


def test_a_cast_rounds_as_round_does(rng):
    x = rng.standard_normal(99).astype(np.float32) * 300
    for rounding in (sf.nearest_even, sf.toward_zero, sf.nearest_even.saturating()):
        q, scale = sf.cast(sf.E4M3, rounding).apply(x)
        assert scale is None and q.dtype == np.float32
        assert_bits(q, sf.round(x, sf.E4M3, rounding))
    q, _ = sf.cast(sf.E4M3, sf.stochastic()).apply(x, Draw(0, 7))
    assert_bits(q, sf.round(x, sf.E4M3, sf.stochastic(), stream=sf.BitStream(7)))


def test_stages_of_a_draw_have_bits_of_their_own():
    x = np.full(64, 1 + 2.0**-11)
    results = [sf.cast(sf.FP16, sf.stochastic()).apply(x, Draw(0, 7, stage))[0].tolist() for stage in (0, 254, 255)]
    assert results[0] != results[1] != results[2] != results[0]


SCALED = (
    sf.scaled("e4m3", sf.per_tensor()), sf.cast(sf.E5M2, sf.toward_zero, scale=sf.per_tensor()),
    sf.scaled(sf.E4M3, sf.delayed()), sf.scaled(sf.E4M3, sf.delayed(16, margin=1)),
    sf.scaled(sf.E4M3, sf.block(32, sf.E8M0)), sf.scaled(sf.E2M1, sf.block((16, 16), sf.E4M3)),
    sf.scaled(sf.E4M3, sf.block(128, "fp32")), sf.scaled(sf.E4M3, sf.block(32, sf.E8M0, rule="floor")),
)  # fmt: skip


def test_scaled_casts_show_their_scale():
    assert sf.scaled("e4m3", sf.per_tensor()) == sf.cast(sf.E4M3, scale=sf.per_tensor()) != sf.cast(sf.E4M3)
    assert [str(cast) for cast in SCALED] == [
        "cast(E4M3, scale=per_tensor())", "cast(E5M2, toward_zero, scale=per_tensor())",
        "cast(E4M3, scale=delayed())", "cast(E4M3, scale=delayed(history=16, margin=1))",
        "cast(E4M3, scale=block(32, E8M0))", "cast(E2M1, scale=block((16, 16), E4M3))",
        "cast(E4M3, scale=block(128, FP32))", "cast(E4M3, scale=block(32, E8M0, rule='floor'))",
    ]  # fmt: skip
    assert not SCALED[0].is_plain and SCALED[0].without_scale == sf.cast(sf.E4M3)


def test_casts_are_values_and_print_as_their_call():
    plain, clamped = sf.cast("e4m3"), sf.cast(sf.E4M3, sf.nearest_even.saturating())
    names = {**vars(sf), "Format": sf.Format}
    for cast in (plain, clamped, sf.cast(sf.Format(4, 4), sf.stochastic(8)), *SCALED):
        assert eval(repr(cast), names) == cast == pickle.loads(pickle.dumps(cast))
        assert hash(cast) == hash(pickle.loads(pickle.dumps(cast)))
    assert plain.is_plain and not clamped.is_plain
    assert str(plain) == "E4M3" and str(clamped) == "cast(E4M3, nearest_even.saturating())"


def test_a_format_or_its_name_means_its_plain_cast():
    assert as_cast("bf16") == as_cast(sf.BF16) == as_cast(sf.cast(sf.BF16)) == sf.cast("bf16")


def test_an_invalid_cast_is_refused():
    assert_refused(
        (lambda: sf.cast("e4m"), "Unknown format"),
        (lambda: sf.cast(sf.BF16, "up"), "rounding must be a simfloat.Rounding"),
    )
