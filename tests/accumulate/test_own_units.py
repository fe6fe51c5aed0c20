"""Compare custom fused sums, of any output format, mode and alignment, with their definition."""

import itertools
import math

import numpy as np
import pytest

import simfloat as sf
from simfloat.tools.selftest.orders import fused_dot
from tests.accumulate.definition import check
from tests.bits import assert_bits
from tests.checks import assert_refused

ALIGNMENTS = (sf.toward_zero, sf.nearest_even, sf.to_odd, sf.toward_negative)
DETERMINISTIC = (
    *(sf.nearest_even, sf.nearest_away, sf.toward_zero, sf.toward_positive, sf.toward_negative, sf.to_odd),
    *(sf.nearest_even.saturating(), sf.toward_positive.saturating()),
)
RANDOM = (sf.stochastic(), sf.stochastic(5, "A"), sf.stochastic(13, "B"))
OUTPUTS = (
    *(sf.FP32, sf.FP16, sf.BF16, sf.E4M3, sf.E5M2FNUZ, sf.FP64, sf.E2M1, sf.p3109(8, 3), sf.fixed(12, 3)),
    *(sf.Format(8, 12), sf.Format(5, 4, subnormals=False), sf.Format(6, 0, special="fn"), sf.Format(11, 30)),
)


def operands(rng, inputs, depth=27):
    """Numbers of which chunks have products of very different sizes, ties and cancellation among them."""
    a = rng.integers(-15, 16, (3, depth)) * 2.0 ** rng.integers(-8, 3, (3, depth))
    b = rng.integers(-7, 8, (depth, 3)) * 2.0 ** rng.integers(-5, 3, (depth, 3))
    a[1, 1::2], b[1::2, 1] = -a[1, :-1:2], b[:-1:2, 1]
    a[2, 9:] = 0.0
    return (sf.round(x, inputs, sf.nearest_even.saturating()) for x in (a, b))


@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_any_output_in_any_mode_follows_the_definition(output, rng):
    # In FP16, sums of narrow operands are computed in 32-bit lanes, and other sums in float64. Each output is tested in
    # every mode with one alignment, and each mode with every alignment for some outputs.
    for place, rounding in enumerate((None, *DETERMINISTIC, *RANDOM)):
        inputs, align = (sf.E4M3, sf.Format(8, 18))[place % 2], ALIGNMENTS[(place - OUTPUTS.index(output)) % 4]
        check(sf.fused(4, 9, output, rounding=rounding, align=align), *operands(rng, inputs), inputs=inputs, seed=7)


def test_sums_start_from_any_number_of_the_output(rng):
    starts = itertools.product((sf.FP32, sf.BF16, sf.FP64), (None, sf.to_odd, sf.stochastic(7)))
    inputs_and_alignments = [*itertools.product((sf.FP16, sf.Format(8, 18)), ALIGNMENTS)]
    for place, (output, rounding) in enumerate(starts):
        scales = ((-120, -10, 30), (-40, 0, 110))[place % 2]
        for scale, (inputs, align) in itertools.product(scales, inputs_and_alignments):
            c = sf.round(rng.standard_normal((3, 3)) * 2.0**scale, output)
            unit = sf.fused(4, 24, output, rounding=rounding, align=align)
            check(unit, *operands(rng, inputs, 13), inputs=inputs, initial=c)
    # A sum so far that float32 calls subnormal is read whole.
    c, output = [13 * 2.0**-130, -9 * 2.0**-129, 3 * 2.0**-130], sf.Format(8, 3, bias=128, special="fn")
    for align in ALIGNMENTS:
        unit = sf.fused(4, 20, output, align=align)
        assert_bits(sf.matmul([[0.0]], [[1.0] * 3], inputs=sf.E4M3, accumulate=unit, initial=c), np.float32([c]))


def test_numbers_far_from_one_are_refused():
    far = r"output must have numbers between 2\^-800 and 2\^800; those of Format"
    assert_refused(
        (lambda: sf.dot([1.0], [1.0], accumulate=sf.fused(4, 9, sf.FP64), initial=1e-250),
         "initial= of a fused sum must hold numbers within"),
        (lambda: sf.fused(4, 9, sf.Format(2, 3, bias=1023, special="finite")), far),
        (lambda: sf.fused(4, 9, sf.Format(2, 3, bias=-900)), far),
        (lambda: sf.dot([np.nan, 1.0, 1.0], [1.0] * 3, accumulate=sf.fused(2, 9, sf.E2M1)), "E2M1 has no NaN"),
    )  # fmt: skip
    assert sf.dot([2.0**700, 1.0], [1.0, 1.0], accumulate=sf.fused(4, 9, sf.FP64)) == 2.0**700


def test_running_sums_are_those_after_each_chunk(rng):
    a, b = (x.ravel()[:23] for x in operands(rng, sf.FP16))
    for rounding in (None, sf.toward_positive, sf.stochastic(4)):
        unit = sf.fused(5, 7, sf.BF16, rounding=rounding, align=sf.nearest_even)
        got = sf.partial_sums(a, b, inputs=sf.FP16, accumulate=unit, stream=sf.BitStream(7))
        emins = (sf.FP16.emin, sf.FP16.emin)
        assert_bits(got, [fused_dot(unit, a[:k], b[:k], emins, seed=7) for k in (5, 10, 15, 20, 23)])


def test_chunks_of_runs_and_lanes_draw_at_places_of_their_own(rng):
    a, b = operands(rng, sf.E4M3)
    random = sf.fused(3, 8, sf.BF16, rounding=sf.stochastic(9), align=sf.to_odd)
    for unit in (
        sf.blocked(7, random, sf.FP32),
        sf.blocked(7, sf.BF16, random),
        sf.lanes(4, random, random),
        sf.blocked(14, sf.lanes(2, random, sf.sequential(sf.BF16, rounding=sf.stochastic())), random),
    ):
        check(unit, a, b, inputs=sf.E4M3)


def test_infinities_and_nan_are_converted_to_the_output_format():
    inf, nan, large = np.inf, np.nan, 2.0**127
    clamping = sf.fused(2, 9, sf.E4M3, rounding=sf.nearest_even.saturating())
    toward_zero = sf.fused(2, 9, sf.BF16, rounding=sf.toward_zero, align=sf.nearest_even)
    for terms, unit, total in (
        ([inf, 1.0, 1.0], toward_zero, inf), ([inf, 1.0, -inf], toward_zero, nan), ([nan, 1.0, 1.0], toward_zero, nan),
        ([inf, 1.0, 1.0], sf.fused(2, 9, sf.E2M1), 6.0), ([inf, 1.0, 1.0], sf.fused(2, 9, sf.E4M3), nan),
        ([-inf, 1.0, 440.0], clamping, -8.0),
        # Beyond the largest number: hardware's own truncation becomes infinite, the mode toward zero stops.
        ([large, large], sf.fused(2, 23), inf),
        ([large, large], sf.fused(2, 23, rounding=sf.toward_zero), sf.FP32.max),
        # A unit has one zero.
        *(([1.0, -1.0], sf.fused(2, 9, sf.BF16, rounding=mode), 0.0) for mode in (None, sf.toward_negative, sf.to_odd)),
    ):  # fmt: skip
        assert_bits(sf.dot(terms, np.ones(len(terms)), accumulate=unit), total, of=f"{terms} {unit}")


def test_a_sticky_bit_is_the_last_bit_that_is_kept():
    ones, x = np.ones(3), [1.0, 2.0**-9, -(2.0**-30)]
    assert sf.dot(x, ones, accumulate=sf.fused(4, 8, sf.FP64)) == 1
    assert sf.dot(x, ones, accumulate=sf.fused(4, 8, sf.FP64, align=sf.nearest_even)) == 1
    assert sf.dot(x, ones, accumulate=sf.fused(4, 8, sf.FP64, align=sf.to_odd)) == 1 + 2.0**-8 - 2.0**-8
    assert sf.dot(x[:2], ones[:2], accumulate=sf.fused(4, 8, sf.FP64, align=sf.to_odd)) == 1 + 2.0**-8
    # Three halves of a unit: toward zero one, to nearest even two, and the odd one.
    for align, units in ((sf.toward_zero, 1), (sf.nearest_even, 2), (sf.to_odd, 1), (sf.toward_negative, 1)):
        got = sf.dot([1.0, 3 * 2.0**-9], [1.0, 1.0], accumulate=sf.fused(2, 8, sf.FP64, align=align))
        assert got == 1 + units * 2.0**-8


def test_terms_are_shifted_as_twos_complement_numbers():
    # Python shifts integers in two's complement. All terms are multiples of 2^-last. The sum so far has every size, and
    # one term is far below the last bit that is kept.
    numbers, last = sf.decode(np.arange(32), sf.Format(3, 1)), 80
    x, y, c = (z.ravel() for z in np.meshgrid(*[numbers[np.isfinite(numbers)]] * 3))
    tiny = np.where(x > y, -(2.0**-60), 2.0**-60)
    for bits, output in ((1, sf.FP64), (3, sf.FP64), (5, sf.FP32), (7, sf.BF16)):
        want = []
        for terms in zip(x.tolist(), y.tolist(), tiny.tolist(), c.tolist(), strict=True):
            exponents = [math.frexp(t)[1] - 1 for t in terms if t]
            shift = last + max(exponents) - bits
            want.append(sum(int(t * 2**last) >> shift for t in terms) * 2.0 ** (shift - last))
        a, b = np.stack([x, y, np.sign(tiny) * 2.0**-50], axis=1), np.ones((3, 1))
        b[2] = 2.0**-10
        unit = sf.fused(3, bits, output, align=sf.toward_negative)
        got = sf.matmul(a, b, accumulate=unit, initial=c[:, np.newaxis])[:, 0]
        assert_bits(got, sf.round(np.array(want) + 0.0, output, unit.mode))


def test_scaled_blocks_are_divided_and_added_in_the_units_mode(rng):
    from simfloat.tools.selftest.orders import product

    a, b = rng.standard_normal((3, 11)), rng.standard_normal((11, 4))
    casts = (sf.scaled(sf.E4M3, sf.block(4, sf.FP32)), sf.scaled(sf.E5M2, sf.block(4, sf.FP32)))
    for rounding in (None, sf.toward_negative):
        unit = sf.fused(3, 9, sf.BF16, rounding=rounding, align=sf.to_odd)
        got = sf.matmul(a, b, inputs=casts, accumulate=unit, output=sf.FP32)
        assert_bits(got, product(a, b, casts, unit, sf.FP32))


def test_a_policy_of_ones_own_unit_is_printed_written_and_trained_with(rng):
    unit = sf.fused(8, 12, sf.BF16, rounding=sf.stochastic(4), align=sf.to_odd, zero_exponent=-20)
    assert repr(sf.fused(8, 12, "bf16", rounding="to_odd", align="nearest_even")) == (
        "fused(8, 12, Format(8, 7, name='BF16'), rounding=to_odd, align=nearest_even)"
    )
    assert eval(repr(unit), vars(sf)) == unit
    policy = sf.Policy(compute=sf.E4M3, activations=sf.BF16, weights=sf.FP32, accumulate=unit)
    assert sf.Policy.from_toml(policy.to_toml()) == policy
    gradients, x = [], rng.standard_normal((6, 5))
    for _ in range(2):
        layer = sf.nn.Linear(5, 4, bias=False, rng=0)
        with sf.simulate(policy, seed=1):
            layer(x).sum().backward()
        gradients.append(layer.weight.grad)
    assert_bits(*gradients)
