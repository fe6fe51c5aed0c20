"""Attention rows: rows with the conditions of the bias are counted, and the bias is that of constructed rows."""

import numpy as np

import simfloat as sf
from experiments.attention_rows.findings import findings
from experiments.attention_rows.jobs import FACTORS
from experiments.attention_rows.rows import FIRST, causal_scores, heads, measure
from experiments.models import GPT
from simfloat.studies.verdicts import NOT_REPRODUCED, REPRODUCED


def test_two_equal_maxima_and_little_else_meet_both_conditions_and_are_biased():
    rng = np.random.default_rng(0)
    scores = np.full((256, 64), -14.0)
    scores[:, :2] = 0
    values = sf.round(-np.exp(0.3 * rng.standard_normal((64, 64))), sf.BF16)
    found = measure(scores, values)
    assert found["ones"] == found["small"] == found["both"] == 1 and found["bias"] > 0.2
    scores[:, 1] = -14
    assert measure(scores, values)["ones"] == 0


def test_scores_are_causal_and_in_an_even_row_all_weights_are_one():
    scores = causal_scores(np.zeros((20, 4)), np.zeros((20, 4)), 1.0)
    assert scores.shape == (20 - FIRST, 20) and np.isinf(scores[0]).sum() == 20 - FIRST - 1
    found = measure(scores, np.ones((20, 2)))
    assert found["ones"] == found["both"] == 1 and found["least"] == 0, "nothing is left beside the weights of 1"


def test_heads_are_those_of_the_model():
    model, tokens = GPT(5, 20, 8, layers=1, heads=2, seed=0), np.arange(20)[np.newaxis] % 5
    query, key, value = heads(model, tokens)[0]
    with sf.simulate("fp32"), sf.no_grad():
        x = model.blocks[0].norm1(model.token(tokens) + model.position(np.arange(20)))
        wanted = model.blocks[0].self_attn(x, x, x, is_causal=True, need_weights=False)[0].data
    scores = np.where(np.tri(20, dtype=bool), query @ key.swapaxes(-1, -2) / 2, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    projection = model.blocks[0].self_attn.out_proj
    mixed = (weights @ value).swapaxes(1, 2).reshape(1, 20, 8)
    np.testing.assert_allclose(mixed @ projection.weight.data.T + projection.bias.data, wanted, atol=1e-4)


def artificial(bias):
    """Results of eight seeds with this bias."""
    row = {"loss": 1.0, "small": 0.1, "both": 0.0, "rest": 0.5}
    return [
        {
            "seed": seed,
            "rows": [
                {"step": step, "factor": factor, **row, "bias": bias + seed % 2 / 1e3, "output": seed % 2 / 1e3}
                | {"ones": 0.01 + seed % 3 / 1e3, "least": 0.5 + seed % 2 / 10}
                for step in (0, 4)
                for factor in FACTORS
            ],
        }
        for seed in range(8)
    ]


def test_a_bias_like_that_of_repeated_maxima_is_told_from_none():
    biased, none = ([found.verdict for found in findings(artificial(bias))] for bias in (0.28, -5e-4))
    assert biased[0] == NOT_REPRODUCED and biased[1:4] == [REPRODUCED, REPRODUCED, NOT_REPRODUCED]
    assert none[2] != REPRODUCED and none[3] == none[5] == none[6] == REPRODUCED
