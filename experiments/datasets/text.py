"""Text: Python's own documentation, and Shakespeare by download."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from experiments.datasets.downloads import Download, fetch

TINY_SHAKESPEARE = Download(
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    "tiny-shakespeare.txt",
)


@cache
def python_topics() -> dict[str, str]:
    """Topics of Python's language reference as ``help`` shows them, by name: some 465 000 characters of English.

    They come with CPython, and differ a little from version to version.
    """
    from pydoc_data.topics import topics

    return dict(sorted(topics.items()))


def tiny_shakespeare(folder: Path | None = None) -> str:
    """1 115 394 characters of Shakespeare's plays (Karpathy 2015).

    Downloaded once (1 MB) to `folder`, by default the user's cache folder.
    """
    return fetch(TINY_SHAKESPEARE, folder).read_text(encoding="utf-8")
