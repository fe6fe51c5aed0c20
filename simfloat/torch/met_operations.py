"""Which operations a run met: how each was carried out, in which layer, and how often."""

from __future__ import annotations

from collections import Counter
from typing import Any

#: How the table says that PyTorch itself computed a result.
BY_PYTORCH = "PyTorch"


class OperationCounts:
    """The operations so far; they are told apart by identity, since PyTorch's own comparison takes longer."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str, str], int] = {}
        self._functions: dict[int, Any] = {}
        self._last: tuple[int, str, str] = (0, "", "")

    def begin(self, function: Any, how: str, path: str) -> None:
        """Count an operation that is about to be carried out in this way."""
        # `OpOverload.__hash__` is a function in Python (torch 2.13), which a lookup by the operation itself would call
        # each time. `_functions` holds every operation, so that no id is given to another one.
        self._last = key = id(function), how, path
        if key in self._counts:
            self._counts[key] += 1
        else:
            self._counts[key], self._functions[key[0]] = 1, function

    def exclude(self) -> None:
        """Know that PyTorch carries out itself what was begun last."""
        before = self._last
        self._counts[before] -= 1
        if not self._counts[before]:
            del self._counts[before]
        self.begin(self._functions[before[0]], BY_PYTORCH, before[2])

    def counts(self) -> Counter[tuple[Any, str, str]]:
        """How often each was met, by the operation, how it was carried out, and the path of its layer."""
        return Counter({(self._functions[key[0]], *key[1:]): count for key, count in self._counts.items()})
