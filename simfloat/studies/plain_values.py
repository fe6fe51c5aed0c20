"""Formats, accumulators, policies and numbers as plain values that travel to processes and to disk, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from simfloat.policy import Policy
from simfloat.policy.serialization import parse

#: The keys of a value that is no plain one itself: a policy as a dictionary, anything else as the text that makes it.
POLICY_KEY, TEXT_KEY = "policy", "made"


def as_plain(value: Any) -> Any:
    """The value as JSON has it: a number, a text or None as it is, anything else as what makes it.

    Raises ValueError for a value that nothing makes.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Policy):
        return {POLICY_KEY: value.to_dict()}
    return {TEXT_KEY: _parseable_text(value)}


def from_plain(plain: Any) -> Any:
    """Return the value that `as_plain` converted."""
    if not isinstance(plain, dict):
        return plain
    return Policy.from_dict(plain[POLICY_KEY]) if POLICY_KEY in plain else parse(plain[TEXT_KEY])


def label_of(value: Any) -> str | int | float | None:
    """How a table has the value: a number or a text as it is, a policy by its name, anything else as a text."""
    plain = as_plain(value)
    if not isinstance(plain, dict):
        return plain
    return value.name or repr(value) if isinstance(value, Policy) else plain[TEXT_KEY]


def as_label(value: Any) -> Any:
    """Return the label of a value, or the value itself where it has none."""
    try:
        return label_of(value)
    except ValueError:
        return value


def _parseable_text(value: Any) -> str:
    """The shortest text that is read back as the value."""
    for write in (str, repr):
        try:
            if parse(text := write(value)) == value:
                return text
        except (ValueError, RecursionError):
            continue
    raise ValueError(
        f"A study takes formats, accumulators, roundings, policies, numbers and texts, got {value!r} of type "
        f"{type(value).__name__}."
    )
