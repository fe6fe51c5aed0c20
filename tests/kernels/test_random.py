"""The random words: known answers of Random123, and the statistics that stochastic rounding relies on."""

import numpy as np
import pytest

import simfloat as sf
from simfloat.kernels.rounding.random import fill_words, philox, words_at
from simfloat.tools.selftest.definitions import PHILOX
from tests.bits import assert_bits


def words(text):
    return [np.uint64(int(word, 16)) for word in text.split()]


def test_philox_gives_the_known_answers():
    for counter, key, answer in PHILOX:
        assert [int(w) for w in philox(*words(counter), *words(key))] == [int(w) for w in words(answer)]


def test_fill_words_gives_each_element_its_own_word():
    out = np.empty(64, np.uint32)
    fill_words(out, 128, 5, 0, np.uint64(2**63 + 7))
    u = np.uint64
    want = [words_at(u((128 + i) // 4), u(0), u(5), u(0), u(2**63 + 7))[i % 4] for i in range(64)]
    assert out.tolist() == [int(w) for w in want]


def test_a_short_draw_is_a_byte_and_four_share_a_word(rng):
    out, x = np.empty(16, np.uint32), rng.standard_normal(64)
    fill_words(out, 0, 0, 0, np.uint64(7))
    octets = [int(word) >> shift & 255 for word in out for shift in (0, 8, 16, 24)]
    for rounding in map(sf.stochastic, (1, 3, 8)):
        given = sf.GivenBits([octet >> (8 - rounding.bits) for octet in octets])
        drawn = sf.round(x, sf.BF16, rounding, stream=sf.BitStream(7))
        assert_bits(drawn, sf.round(x, sf.BF16, rounding, stream=given))


@pytest.mark.parametrize("bits", [8, 9])
def test_steps_of_a_sum_draw_as_elements_do(bits):
    # Three eighths of a spacing are added to 1: every step draws, with the word or the byte of its number.
    rounding, steps = sf.stochastic(bits, "A"), 70
    words = [words_at(*map(np.uint64, (0, 4 * i, 0, 1, 3)))[j] for i in range(18) for j in range(4)]
    octets = [int(word) >> shift & 255 for word in words for shift in (0, 8, 16, 24)]
    draws = [octets[k] if bits == 8 else int(words[k]) >> 32 - bits for k in range(steps)]
    want = sum(draw >= 2**bits - int(0.375 * 2**bits) for draw in draws)
    format = sf.Format(8, 6)
    accumulate, terms = sf.sequential(format, rounding=rounding), np.full(steps, 0.375 * 2.0**-6)
    got = sf.dot(terms, np.ones(steps), accumulate=accumulate, initial=1.0, stream=sf.BitStream(3))
    assert got == 1 + want * 2.0**-6


def test_every_part_of_the_counter_matters():
    base = dict(element=3, step=0, call=1, stage=0, seed=9)
    values = {"step": (2**20, 2**33 + 4), "stage": (1, 255)}
    counters = [base, *({**base, key: value} for key in base for value in values.get(key, (2**20, 2**33)))]
    seen = {tuple(int(w) for w in words_at(*map(np.uint64, counter.values()))) for counter in counters}
    assert len(seen) == 11


def test_words_are_uniform_and_uncorrelated():
    count = 1 << 20
    out = np.empty(count, np.uint32)
    fill_words(out, 0, 0, 0, np.uint64(1))
    x = out / 2.0**32
    # Mean of n uniforms: 1/2 with standard deviation 1/sqrt(12 n); the bound is six of them.
    assert abs(x.mean() - 0.5) < 6 / np.sqrt(12 * count)
    for lag in (1, 2, 3, 4, 64):
        correlation = np.mean((x[lag:] - 0.5) * (x[:-lag] - 0.5)) * 12
        assert abs(correlation) < 6 / np.sqrt(count), lag
    ones = [int(((out >> np.uint32(bit)) & np.uint32(1)).sum()) for bit in range(32)]
    assert max(abs(n - count / 2) for n in ones) < 6 * np.sqrt(count) / 2
    # Chi-square over 256 bins of the upper byte: mean 255, variance 510.
    bins = np.bincount(out >> np.uint32(24), minlength=256)
    assert abs(((bins - count / 256) ** 2 / (count / 256)).sum() - 255) < 6 * np.sqrt(510)
