"""Random streams, one for each place, and warnings of two slips.

Random streams, one for each place: a path, a phase, an operation, and the operand of a gradient.

Slips that a simulation warns of: random bits that are drawn again, and PyTorch's models in a block of our own.

A simulation draws the random bits again that another one of its seed drew. That is meant where what is compared starts
alike, as two models, two policies or two trials do, and where a run is made twice to see that it gives the same bits.
It is a slip where something goes on, as a training does in a new `simulate` block for every step, or where runs are
meant to differ. So a warning is given where a draw of a simulation repeats one of another simulation of the seed, at
the same path, phase and operation, and

* a parameter is updated that was updated in the other one, and not assigned or loaded since; or
* a number that the other one computed, under a policy that draws, enters an operation; or
* it is one of `SAMPLES` simulations in a row that begin with the same operation on the same numbers under the same
  policy, draw as often at the same places, and update no parameter.

What goes on from simulation to simulation is warned of once.

A block for tensors of our own has no part in what a PyTorch model computes; so one is warned of that was called there,
in a block without any operation of ours.
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

    `given_draws` are the user's own draws for the last additions of updates, by the parameters' paths.
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


#: An operation's numbers are known by so many of the first ones of each operand.
KNOWN = 1024

#: So many runs alike are no comparison any more, but samples that were meant to differ.
SAMPLES = 20


class Beginning(NamedTuple):
    """The first operation of a simulation."""

    policy: Policy
    where: tuple[str, str]  # path and operation
    numbers: tuple[tuple[tuple[int, ...], bytes], ...]  # shape and first numbers of each operand


class RepeatedDraws:
    """The streams of other simulations on which one goes on that draws from the same seed."""

    same_run: tuple[Any, int] = (None, 0)  # how the latest simulation ran, and how many in a row ran so

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._others: dict[int, Streams] = {}
        self._beginning: Beginning | None = None
        self.has_begun = False
        self.is_silenced = False  # warned of, or meant: a simulation that was restored repeats its own bits

    def begin(self, policy: Policy, path: str, operation: str, operands: Sequence[NDArray]) -> None:
        """Note the first operation."""
        self.has_begun = True
        first_numbers = tuple((x.shape, on_cpu(x.reshape(-1)[:KNOWN]).tobytes()) for x in operands)
        self._beginning = Beginning(policy, (path, operation), first_numbers)

    def continue_from(self, other: Streams) -> None:
        """Note that what was made with other streams goes on here."""
        if other is not self._streams and other.seed == self._streams.seed:
            self._others[id(other)] = other

    def update(self, other: Streams | None) -> None:
        """Note that a parameter is updated, which was last updated with these streams; warn if draws of it repeat."""
        self._beginning = None
        if other is not None and (other is not self._streams or self._others):
            self.continue_from(other)
            self.warn_of_draws()

    def warn_of_draws(self) -> None:
        """Warn of the first draw that repeats another one with whose results this goes on, unless it was done."""
        if self.is_silenced or not self._others:
            return
        calls = self._streams.calls_so_far
        again = [key for other in self._others.values() for key in other.calls_so_far if key in calls]
        if again:
            self.is_silenced = True
            if not any(other.was_warned for other in self._others.values()):
                self._warn(again[0], "another simulation", ", and goes on with its results")
            self._streams.was_warned = True

    def end(self) -> None:
        """Warn, at the end of a block, of draws that repeat others, unless it was done."""
        self.warn_of_draws()
        calls, beginning = self._streams.calls_so_far, self._beginning
        if self.is_silenced or beginning is None or not calls:
            return
        self._beginning = None  # a simulation counts once
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
            f"{where} draws the random bits again that {whose} of seed {self._streams.seed} drew there{why}. Keep one "
            "simulation, `sim = simfloat.simulate(...)`, and enter it for every step, `with sim:`; or give each a seed "
            "of its own, or go on with sim.load_state(state)."
        )


class TorchModuleInNumpyBlock:
    """Whether a torch.nn.Module was called while a simulation was the innermost one; PyTorch is not imported for it."""

    def __init__(self, simulation: object) -> None:
        # Weakly, so that the hook of a block that never ends, as in a generator that is left, goes with the simulation.
        self._simulation, self._was_called = ref(simulation), False
        module = sys.modules.get("torch.nn.modules.module")
        hook = None if module is None else module.register_module_forward_pre_hook(self._note_call)
        self._remove_hook = finalize(simulation, hook.remove) if hook is not None else lambda: None

    def _note_call(self, *_: Any) -> None:
        if current_context().simulation is self._simulation():
            self._was_called = True
            self._remove_hook()

    def end(self, has_met: bool) -> None:
        """Remove the hook; warn if a model was called, and the block met no operation of ours."""
        self._remove_hook()
        if self._was_called and not has_met:
            warn(
                "A PyTorch model was called in a block of simfloat.simulate, which ended without having met an "
                "operation: nothing was rounded. PyTorch's models run under simfloat.torch.simulate(model, policy)."
            )
