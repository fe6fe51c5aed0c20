"""The reference names everything that is public, once."""

import re
from collections import Counter
from pathlib import Path

import pytest

import simfloat as sf

PAGES = sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.rst"))

#: Names that stand in sentences of the reference: constants, other spellings, and rooms with names of their own.
MENTIONED = re.compile(r"``([^`]+)``")


def documented():
    """How often the reference describes each name, as room.name; all names of a room that a page takes as a whole."""
    names, room = Counter(), None
    for line in "\n".join(page.read_text() for page in PAGES).splitlines():
        if found := re.match(r"\.\. (currentmodule|automodule|autofunction|autoclass):: (\S+)", line):
            kind, name = found.groups()
            if kind == "currentmodule":
                room = name
            elif kind == "automodule":
                names[f"{name}.*"] += 1
            else:
                names[f"{room}.{name}"] += 1
    return names


def test_nothing_is_described_twice():
    assert [name for name, count in documented().items() if count > 1] == []


@pytest.mark.parametrize("room", ["simfloat", "simfloat.nn", "simfloat.optim", "simfloat.train", "simfloat.torch"])
def test_the_reference_names_everything_that_is_public(room):
    described = documented()
    mentioned = set(" ".join(MENTIONED.findall("\n".join(page.read_text() for page in PAGES))).split())
    module = sf if room == "simfloat" else getattr(sf, room.partition(".")[2])
    rooms = {name for name in module.__all__ if isinstance(getattr(module, name), type(sf))}
    missing = {name for name in module.__all__ if f"{room}.{name}" not in described} - rooms - mentioned
    assert missing == set()
