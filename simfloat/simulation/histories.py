"""The amax histories of delayed scalings, one for each operand of each contraction at a place."""

from __future__ import annotations

import math
from typing import Any

from simfloat.arithmetic.scaling import AmaxHistory

#: (path, phase, operation, number of the operand whose gradient is computed or None, which factor of the product)
Key = tuple[str, str, str, int | None, int]

FIELDS = ("path", "phase", "operation", "operand", "factor")
AMAXES, GREATEST = "amaxes", "greatest"


class Histories:
    """The histories of a simulation: one for each factor of a contraction at a place."""

    def __init__(self) -> None:
        self._histories: dict[Key, AmaxHistory] = {}

    def histories_at(
        self, path: str, phase: str, operation: str, operand: int | None
    ) -> tuple[AmaxHistory, AmaxHistory]:
        """Those of the left and of the right factor of the contraction at a place."""
        return self._history_at((path, phase, operation, operand, 0)), self._history_at(
            (path, phase, operation, operand, 1)
        )

    def _history_at(self, key: Key) -> AmaxHistory:
        history = self._histories.get(key)
        # Where two threads come here at once, the history of one of them stays.
        return self._histories.setdefault(key, AmaxHistory()) if history is None else history

    @property
    def copies(self) -> dict[Key, AmaxHistory]:
        """A copy of each history that holds any magnitude, for `load_state`."""
        return {key: history.copy() for key, history in list(self._histories.items()) if history.amaxes}

    @property
    def state(self) -> list[dict[str, Any]]:
        """The magnitudes that each history holds, of those that hold any; JSON-able."""
        return [
            {**dict(zip(FIELDS, key, strict=True)), AMAXES: list(history.amaxes), GREATEST: history.greatest}
            for key, history in list(self._histories.items())
            if history.amaxes
        ]

    def load_state(self, histories: dict[Key, AmaxHistory]) -> None:
        """Go on from what :func:`read_state` read."""
        # Places keep their histories, so these are changed, not replaced.
        for key in {**self._histories, **histories}:
            history, loaded = self._history_at(key), histories.get(key, AmaxHistory())
            history.amaxes, history.greatest = list(loaded.amaxes), loaded.greatest


def read_state(state: Any) -> dict[Key, AmaxHistory]:
    """The histories in a state; ValueError for what cannot be one."""
    if not isinstance(state, list):
        raise ValueError(f"The casts of a simulation's state are a list, got {state!r}.")
    histories: dict[Key, AmaxHistory] = {}
    for entry in state:
        key, history = _entry(entry)
        if key in histories:
            raise ValueError(f"A simulation's state names every cast once, got a second entry {entry!r}.")
        histories[key] = history
    return histories


def _entry(entry: Any) -> tuple[Key, AmaxHistory]:
    names = (*FIELDS, AMAXES, GREATEST)
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise ValueError(f"A cast in a simulation's state has the keys {', '.join(names)}; got {entry!r}.")
    path, phase, operation, operand, factor, amaxes, greatest = (entry[name] for name in names)
    texts = all(isinstance(name, str) for name in (path, phase, operation))
    if not texts or not (operand is None or type(operand) is int) or type(factor) is not int or factor not in (0, 1):
        raise ValueError(
            "A cast's path, phase and operation are texts, its operand an integer or null, its factor 0 or 1; got "
            f"{entry!r}."
        )
    if not isinstance(amaxes, list) or not all(map(_is_magnitude, [*amaxes, greatest])) or greatest == 0:
        raise ValueError(
            f"A cast's amaxes are a list of numbers of at least zero or null, its greatest a positive number or null; "
            f"got {entry!r}."
        )
    history = AmaxHistory()
    history.amaxes, history.greatest = list(amaxes), greatest
    return (path, phase, operation, operand, factor), history


def _is_magnitude(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value) and value >= 0)
