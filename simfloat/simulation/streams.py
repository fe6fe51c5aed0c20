"""Random streams, one for each place, and warnings about two mistakes.

The place of a stream is a path, a phase, an operation, and the operand of a gradient.

The mistakes are: using the same random bits again by accident, and calling PyTorch models in a `simulate` block for
tensors of simfloat.

Two simulations with the same seed use the same random bits. This is intended if both start from the same state, for
example to compare two models, policies or trials, or to check that a run is reproducible. It is a mistake if the
second one continues the first, as a training does with a new `simulate` block for every step, or if runs are meant to
be different samples. A warning is therefore given if a simulation uses the random bits of another one with the same
seed, at the same path, phase and operation, and

* a parameter is updated that the other simulation updated, and that was not assigned or loaded since; or
* an operation reads a value that the other simulation computed under a stochastic policy; or
* it is one of `SAMPLES` simulations in a row that start with the same operation on the same values under the same
  policy, use random bits equally often at the same places, and update no parameter.

A mistake that continues from simulation to simulation is warned about once.

A block for tensors of simfloat does not affect a PyTorch model. A warning is given if a PyTorch model is called in a
block without any operation of simfloat.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from weakref import finalize, ref

from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import BitStream, GivenBits
from simfloat.arithmetic.machines import on_cpu
from simfloat.common import is_integer, warn
from simfloat.policy import Policy
from simfloat.simulation.context import current_context

#: (path, phase, operation, index of the operand of a gradient or None)
Key = tuple[str, str, str, int | None]

FIELDS = ("path", "phase", "operation", "operand", "calls")


def seed_of(seed: int, key: Key) -> int:
    """Return the seed of the stream of a place.

    It is the blake2b digest of 8 bytes, in little-endian order, of the JSON text of a list: the seed of the
    simulation, followed by the parts of the key: ``[0, "head", "forward", "linear", null]``.
    """
    return int.from_bytes(blake2b(json.dumps([seed, *key]).encode(), digest_size=8).digest(), "little")


class Streams:
    """The streams of a simulation: one for every path, phase and operation, and for every operand in the backward
    pass.

    The random bits of a place depend only on the seed, these names, and the number of stochastic calls at the place.
    Adding a layer, an observer or a rounding elsewhere does not change them.

    `given_draws` are given random bits for the final additions of updates, by path of the parameter.
    """

    def __init__(self, seed: int, given_draws: Mapping[str, GivenBits] | None = None) -> None:
        self.seed = BitStream(seed).seed
        self.given_draws = _check_draws({} if given_draws is None else given_draws)
        self._streams: dict[Key, BitStream] = {}
        self.was_warned = False  # True if a warning about repeated random bits was given

    def stream_at(self, path: str, phase: str, operation: str, operand: int | None = None) -> BitStream:
        """Return the stream of a place."""
        key = (path, phase, operation, operand)
        stream = self._streams.get(key)
        if stream is None:
            # If two threads arrive at the same time, one of the new streams is kept.
            stream = self._streams.setdefault(key, BitStream(seed_of(self.seed, key)))
        return stream

    @property
    def calls(self) -> dict[Key, int]:
        """The number of calls of each stream."""
        return {key: stream.calls for key, stream in list(self._streams.items())}

    def rewind(self, calls: dict[Key, int]) -> None:
        """Move the streams back, or forward, to these numbers of calls."""
        for key, stream in list(self._streams.items()):
            stream.calls = calls.get(key, 0)

    @property
    def calls_so_far(self) -> dict[Key, int]:
        """The number of calls of each stream that was used."""
        return {key: stream.calls for key, stream in list(self._streams.items()) if stream.calls}

    @property
    def state(self) -> dict[str, Any]:
        """The seed, the number of calls of each stream that was used, and the number of given random bits used;
        JSON-able.
        """
        streams = [dict(zip(FIELDS, (*key, calls), strict=True)) for key, calls in self.calls_so_far.items()]
        draw_counts = {path: draws.taken for path, draws in self.given_draws.items()}
        return {"seed": self.seed, "streams": streams} | ({"draws": draw_counts} if draw_counts else {})

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`; ValueError names an error in it, and then nothing is changed."""
        if not isinstance(state, dict) or set(state) - {"draws"} != {"seed", "streams"}:
            got = sorted(map(str, state)) if isinstance(state, dict) else state
            raise ValueError(f"The state of a simulation must have the keys 'seed' and 'streams', got {got!r}.")
        if not isinstance(state["streams"], list):
            raise ValueError(f"The streams in the state of a simulation must be a list, got {state['streams']!r}.")
        seed = BitStream(state["seed"]).seed
        calls: dict[Key, int] = {}
        for entry in state["streams"]:
            key, count = _entry(entry)
            if key in calls:
                raise ValueError(f"The state of a simulation contains two entries for one stream, {entry!r}.")
            calls[key] = count
        draw_counts = state.get("draws", {})
        if (
            not isinstance(draw_counts, dict)
            or set(draw_counts) != set(self.given_draws)
            or not all(map(is_integer, draw_counts.values()))
        ):
            raise ValueError(
                f"A simulation with draws={{...}} for {list(self.given_draws)} needs a state with the same draws; "
                f"this state has {draw_counts!r}."
            )
        for path, count in draw_counts.items():
            self.given_draws[path].taken = count
        # Places keep references to their streams, so change them in place.
        self.seed = seed
        for key in {**self._streams, **calls}:
            stream = self.stream_at(*key)
            stream.seed, stream.calls = seed_of(seed, key), calls.get(key, 0)


def _check_draws(given_draws: Mapping[str, GivenBits]) -> dict[str, GivenBits]:
    """Return the given random bits by path; ValueError if they are invalid."""
    if not isinstance(given_draws, Mapping) or not all(
        isinstance(path, str) and isinstance(draws, GivenBits) for path, draws in given_draws.items()
    ):
        raise ValueError(
            "draws must be a dictionary from paths of parameters to simfloat.GivenBits, such as "
            f"{{'head.weight': simfloat.GivenBits(integers)}}; got {given_draws!r}."
        )
    return dict(given_draws)


def _entry(entry: Any) -> tuple[Key, int]:
    """Return the key and the number of calls of a stream from its entry in a state."""
    if not isinstance(entry, dict) or set(entry) != set(FIELDS):
        raise ValueError(f"A stream in a simulation's state has the keys {', '.join(FIELDS)}; got {entry!r}.")
    path, phase, operation, operand, calls = (entry[field] for field in FIELDS)
    names = all(isinstance(name, str) for name in (path, phase, operation))
    if not names or not (operand is None or type(operand) is int):
        raise ValueError(
            f"A stream's path, phase and operation are texts, its operand an integer or null; got {entry!r}."
        )
    return (path, phase, operation, operand), BitStream.from_state({"seed": 0, "calls": calls}).calls


#: Number of elements of each operand by which the values of an operation are compared.
KNOWN = 1024

#: From this number of identical runs, assume that they were meant to be independent samples, and warn.
SAMPLES = 20


class Beginning(NamedTuple):
    """The first operation of a simulation."""

    policy: Policy
    where: tuple[str, str]  # path and operation
    numbers: tuple[tuple[tuple[int, ...], bytes], ...]  # shape and first elements of each operand


class RepeatedDraws:
    """The streams of other simulations with the same seed that a simulation continues."""

    same_run: tuple[Any, int] = (None, 0)  # the latest run, and the number of equal runs in a row

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._others: dict[int, Streams] = {}
        self._beginning: Beginning | None = None
        self.has_begun = False
        self.is_silenced = False  # already warned, or intended: a restored simulation repeats its own bits

    def begin(self, policy: Policy, path: str, operation: str, operands: Sequence[NDArray]) -> None:
        """Record the first operation."""
        self.has_begun = True
        first_numbers = tuple((x.shape, on_cpu(x.reshape(-1)[:KNOWN]).tobytes()) for x in operands)
        self._beginning = Beginning(policy, (path, operation), first_numbers)

    def continue_from(self, other: Streams) -> None:
        """Record that a result of other streams is used here."""
        if other is not self._streams and other.seed == self._streams.seed:
            self._others[id(other)] = other

    def update(self, other: Streams | None) -> None:
        """Record an update of a parameter that was last updated with `other`; warn if random bits repeat."""
        self._beginning = None
        if other is not None and (other is not self._streams or self._others):
            self.continue_from(other)
            self.warn_of_draws()

    def warn_of_draws(self) -> None:
        """Warn once about repeated random bits if this simulation continues the results of another one."""
        if self.is_silenced or not self._others:
            return
        calls = self._streams.calls_so_far
        again = [key for other in self._others.values() for key in other.calls_so_far if key in calls]
        if again:
            self.is_silenced = True
            if not any(other.was_warned for other in self._others.values()):
                self._warn(again[0], "another simulation", ", and continues with its results")
            self._streams.was_warned = True

    def end(self) -> None:
        """At the end of a block, warn once about repeated random bits."""
        self.warn_of_draws()
        calls, beginning = self._streams.calls_so_far, self._beginning
        if self.is_silenced or beginning is None or not calls:
            return
        self._beginning = None  # count each simulation once
        last_run, count = RepeatedDraws.same_run
        ran = self._streams.seed, beginning, calls
        RepeatedDraws.same_run = ran, count + 1 if ran == last_run else 1
        if RepeatedDraws.same_run[1] == SAMPLES:
            self._warn(
                next(iter(calls)),
                f"each of the {SAMPLES - 1} simulations before",
                ", for the same operation on the same numbers",
            )

    def _warn(self, key: Key, whose: str, why: str) -> None:
        path, phase, operation, _ = key
        where = f"{operation} ({phase})" + (f" at {path!r}" if path else "")
        warn(
            f"{where} draws the same random bits as {whose} of seed {self._streams.seed}{why}. Keep one "
            "simulation, `sim = simfloat.simulate(...)`, and enter it for every step, `with sim:`; or use a different "
            "seed for each, or continue with sim.load_state(state)."
        )


class TorchModuleInNumpyBlock:
    """Detects calls of a torch.nn.Module while a simulation is the innermost one, without importing PyTorch."""

    def __init__(self, simulation: object) -> None:
        # A weak reference: if a block never ends, as in an abandoned generator, its hook is removed with the
        # simulation.
        self._simulation, self._was_called = ref(simulation), False
        module = sys.modules.get("torch.nn.modules.module")
        hook = None if module is None else module.register_module_forward_pre_hook(self._note_call)
        self._remove_hook = finalize(simulation, hook.remove) if hook is not None else lambda: None

    def _note_call(self, *_: Any) -> None:
        if current_context().simulation is self._simulation():
            self._was_called = True
            self._remove_hook()

    def end(self, has_met: bool) -> None:
        """Remove the hook; warn if a model was called and no operation of simfloat ran in the block."""
        self._remove_hook()
        if self._was_called and not has_met:
            warn(
                "A PyTorch model was called in a block of simfloat.simulate, in which no operation of simfloat ran: "
                "nothing was rounded. PyTorch models run under simfloat.torch.simulate(model, policy)."
            )
