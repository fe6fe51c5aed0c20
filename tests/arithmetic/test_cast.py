"""Casts: the rounding of operands to a format."""

import pickle

import numpy as np

import simfloat as sf
from simfloat.arithmetic.bit_stream import Draw
from simfloat.arithmetic.casts import as_cast
from tests.bits import assert_bits
from tests.checks import assert_refused


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
