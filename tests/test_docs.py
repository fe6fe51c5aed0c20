"""The reference names every file that defines something public, once."""

import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import simfloat as sf

PAGES = "\n".join(page.read_text() for page in sorted((Path(__file__).parents[1] / "docs" / "reference").glob("*.rst")))

#: Names that stand in sentences of the reference: constants, other spellings, and rooms with names of their own.
MENTIONED = {word for found in re.findall(r"``([^`]+)``", PAGES) for word in found.split()}


def files():
    """How often the reference names each file, as room.file."""
    found = re.findall(r"^\.\. names:: (\S+)\n(?:   :inherited: \w+\n)?\n((?:   \S+\n)+)", PAGES + "\n", re.MULTILINE)
    return Counter(f"{room}.{file}" for room, listed in found for file in listed.split())


def test_no_file_is_named_twice():
    assert [file for file, count in files().items() if count > 1] == []


@pytest.mark.parametrize("room", ["simfloat", "simfloat.nn", "simfloat.optim", "simfloat.train", "simfloat.torch"])
def test_the_reference_names_everything_that_is_public(room):
    described, module = files(), import_module(room)
    missing = [
        name
        for name in module.__all__
        if name not in MENTIONED and name not in sf.CATALOG and not inspect.ismodule(value := getattr(module, name))
        if not (inspect.isclass(value) or inspect.isfunction(value)) or value.__module__ not in described
    ]
    assert missing == []
