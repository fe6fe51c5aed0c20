"""Speech: short utterances of several speakers."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.installed import check_part, installed_file

#: The number of frames of the longest utterance.
LONGEST = 29


class Utterances(NamedTuple):
    """Utterances as frames of 12 LPC cepstra (N, 29, 12), zero after their end; their lengths; the speakers, 0 to 8."""

    frames: NDArray[np.float64]
    lengths: NDArray[np.int64]
    speakers: NDArray[np.int64]


@cache
def japanese_vowels(part: str = "train") -> Utterances:
    """Return 270 utterances of the vowels /ae/ by nine men, or 370 for ``"test"`` (Kudo, Toyama and Shimbo 1999).

    The data of the UCI archive come with the package sktime.
    """
    name = f"JapaneseVowels_{check_part(part).upper()}.ts"
    path = installed_file("sktime", "datasets", "data", "JapaneseVowels", name)
    lines = path.read_text(encoding="utf-8").split("@data\n", 1)[1].split()
    frames = np.zeros((len(lines), LONGEST, 12))
    lengths, speakers = np.zeros(len(lines), np.int64), np.zeros(len(lines), np.int64)
    for row, line in enumerate(lines):
        *dimensions, speaker = line.split(":")
        series = np.array([dimension.split(",") for dimension in dimensions], np.float64).T
        frames[row, : len(series)], lengths[row], speakers[row] = series, len(series), int(speaker) - 1
    return Utterances(frames, lengths, speakers)
