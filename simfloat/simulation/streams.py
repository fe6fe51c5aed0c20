"""Random streams, one for each place: a path, a phase, an operation, and the operand of a gradient."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from simfloat.arithmetic.bit_stream import BitStream, GivenBits
from simfloat.checks import is_integer

#: (path, phase, operation, number of the operand whose gradient is computed or None)
Key = tuple[str, str, str, int | None]

FIELDS = ("path", "phase", "operation", "operand", "calls")


def seed_of(seed: int, key: Key) -> int:
    """The seed of a place's stream.

    It is the blake2b digest of 8 bytes, little end first, of the JSON text of the list of the simulation's seed and the
    parts of the key: ``[0, "head", "forward", "linear", null]``.
    """
    return int.from_bytes(blake2b(json.dumps([seed, *key]).encode(), digest_size=8).digest(), "little")


class Streams:
    """The streams of a simulation: one for every path, phase and operation, and operand in the backward pass.

    A place's bits depend on nothing but the seed, these names, and how many stochastic calls the place has made. Adding
    a layer, an observer or a rounding elsewhere changes none of them.

    `given` are the user's own draws for the last additions of updates, by the parameters' paths.
    """

    def __init__(self, seed: int, given_draws: Mapping[str, GivenBits] | None = None) -> None:
        self.seed = BitStream(seed).seed
        self.given_draws = _check_draws(given_draws or {})
        self._streams: dict[Key, BitStream] = {}
        self.was_warned = False  # whether a warning said that they repeat others

    def stream_at(self, path: str, phase: str, operation: str, operand: int | None = None) -> BitStream:
        """The stream of a place."""
        key = (path, phase, operation, operand)
        stream = self._streams.get(key)
        if stream is None:
            # Where two threads come here at once, the stream of one of them stays.
            stream = self._streams.setdefault(key, BitStream(seed_of(self.seed, key)))
        return stream

    @property
    def calls(self) -> dict[Key, int]:
        """How many calls each stream has made."""
        return {key: stream.calls for key, stream in list(self._streams.items())}

    def rewind(self, calls: dict[Key, int]) -> None:
        """Go back to when the streams had made these calls, or ahead to it."""
        for key, stream in list(self._streams.items()):
            stream.calls = calls.get(key, 0)

    @property
    def calls_so_far(self) -> dict[Key, int]:
        """How many calls each stream that was drawn from has made."""
        return {key: stream.calls for key, stream in list(self._streams.items()) if stream.calls}

    @property
    def state(self) -> dict[str, Any]:
        """The seed, how many calls each stream that was drawn from has made, and, where draws are given, how many of
        them served; JSON-able."""
        streams = [dict(zip(FIELDS, (*key, calls), strict=True)) for key, calls in self.calls_so_far.items()]
        draw_counts = {path: draws.taken for path, draws in self.given_draws.items()}
        return {"seed": self.seed, "streams": streams} | ({"draws": draw_counts} if draw_counts else {})

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave. Raises ValueError naming what is wrong with it, and then changes nothing."""
        if not isinstance(state, dict) or set(state) - {"draws"} != {"seed", "streams"}:
            got = sorted(map(str, state)) if isinstance(state, dict) else state
            raise ValueError(f"A simulation's state has the keys 'seed' and 'streams', got {got!r}.")
        if not isinstance(state["streams"], list):
            raise ValueError(f"The streams of a simulation's state are a list, got {state['streams']!r}.")
        seed = BitStream(state["seed"]).seed
        calls: dict[Key, int] = {}
        for entry in state["streams"]:
            key, count = _entry(entry)
            if key in calls:
                raise ValueError(f"A simulation's state names every stream once, got a second entry {entry!r}.")
            calls[key] = count
        draw_counts = state.get("draws", {})
        if (
            not isinstance(draw_counts, dict)
            or set(draw_counts) != set(self.given_draws)
            or not all(map(is_integer, draw_counts.values()))
        ):
            raise ValueError(
                f"A simulation with draws={{...}} for {list(self.given_draws)} goes on from the state of one with such "
                f"draws; this one's are {draw_counts!r}."
            )
        for path, count in draw_counts.items():
            self.given_draws[path].taken = count
        # Places keep their streams, so these are changed, not replaced.
        self.seed = seed
        for key in {**self._streams, **calls}:
            stream = self.stream_at(*key)
            stream.seed, stream.calls = seed_of(seed, key), calls.get(key, 0)


def _check_draws(given_draws: Mapping[str, GivenBits]) -> dict[str, GivenBits]:
    """The draws that users give, by path."""
    if not isinstance(given_draws, Mapping) or not all(
        isinstance(path, str) and isinstance(draws, GivenBits) for path, draws in given_draws.items()
    ):
        raise ValueError(
            "draws are simfloat.GivenBits by the paths of parameters, as in "
            f"{{'head.weight': simfloat.GivenBits(integers)}}; got {given_draws!r}."
        )
    return dict(given_draws)


def _entry(entry: Any) -> tuple[Key, int]:
    """A stream's key and number of calls, read from its entry in a state."""
    if not isinstance(entry, dict) or set(entry) != set(FIELDS):
        raise ValueError(f"A stream in a simulation's state has the keys {', '.join(FIELDS)}; got {entry!r}.")
    path, phase, operation, operand, calls = (entry[field] for field in FIELDS)
    names = all(isinstance(name, str) for name in (path, phase, operation))
    if not names or not (operand is None or type(operand) is int):
        raise ValueError(
            f"A stream's path, phase and operation are texts, its operand an integer or null; got {entry!r}."
        )
    return (path, phase, operation, operand), BitStream.from_state({"seed": 0, "calls": calls}).calls
