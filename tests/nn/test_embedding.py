"""Embedding and EmbeddingBag."""

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits
from tests.nn.against_torch import compare

RNG = np.random.default_rng(3)
PLACES = RNG.integers(0, 7, (4, 5))
FACTORS = RNG.standard_normal((4, 5))


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_an_embedding_equals_torchs(padding):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")
    compare(sf.nn.Embedding(7, 3, padding), torch.nn.Embedding(7, 3, padding), PLACES)


def test_an_embedding_starts_normal_with_zeros_for_padding_and_moves_numbers_only():
    layer = sf.nn.Embedding(500, 40, padding_idx=-500, rng=1)
    assert layer.padding_idx == 0 and not layer.weight.data[0].any()
    assert abs(layer.weight.data[1:].std() - 1) < 0.02, "20000 draws: a standard error of 0.005"
    with sf.simulate("bf16-standard"):
        out = layer(np.array([[0, 3]], np.uint8))
    assert out.format == sf.BF16 and out.shape == (1, 2, 40)
    assert_bits(out.data[0], sf.round(layer.weight.data[[0, 3]], sf.BF16))
    assert repr(layer).startswith("Embedding(500, 40, padding_idx=0)")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags_equal_torchs(mode, padding):
    torch = pytest.importorskip("torch", reason="needs torch as an oracle")

    def layers():
        return (
            sf.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding),
            torch.nn.EmbeddingBag(7, 3, mode=mode, padding_idx=padding),
        )

    compare(*layers(), PLACES)
    for offsets in ([0, 3, 3, 4, 17], [0, 0, 20], [0]):
        compare(*layers(), PLACES.reshape(-1), np.array(offsets))
    if mode == "sum":
        compare(*layers(), PLACES, FACTORS, run=lambda layer, x: layer(x[0], per_sample_weights=x[1]))
        ragged = np.array([0, 3, 4, 17])
        compare(*layers(), PLACES.reshape(-1), ragged, FACTORS.reshape(-1))


def test_the_last_offset_may_be_the_end_of_the_input():
    layer = sf.nn.EmbeddingBag(7, 3, mode="sum", include_last_offset=True)
    other = sf.nn.EmbeddingBag(7, 3, mode="sum")
    other.weight = layer.weight
    with sf.simulate("fp32"):
        assert_bits(layer([1, 2, 3, 4], [0, 1, 4]).data, other([1, 2, 3, 4], [0, 1]).data)
        assert layer([], [0]).shape == (0, 3) and layer([], [0, 0]).data.tolist() == [[0, 0, 0]]


def test_a_bag_is_summed_through_reduce_and_rounded_once():
    layer = sf.nn.EmbeddingBag(9, 4, mode="sum", rng=0)
    policy = sf.Policy(compute=sf.BF16, reduce=sf.Format(8, 10))
    with sf.simulate(policy):
        out = layer([8, 1, 1, 5, 0], [0, 1])
    rows = sf.round(layer.weight.data, sf.BF16)
    want = [rows[8], sf.sum(rows[[1, 1, 5, 0]], 0, accumulate=sf.Format(8, 10), output=sf.BF16)]
    assert_bits(out.data, want)
    assert out.format == sf.BF16
    assert repr(layer).startswith("EmbeddingBag(9, 4, mode='sum')")
