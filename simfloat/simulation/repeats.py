"""Random bits that are drawn again: a simulation of the same seed repeats those of another one.

That is meant where what is compared starts alike, as two models or two policies do. It is a slip where something goes
on, as a training does in a new `simulate` block for every step. So it is told, once a simulation, where a draw of it
repeats one of another simulation of the seed, at the same path, phase and operation, and

* a parameter is updated that was updated in the other one; or
* a number that the other one computed, under a policy that draws, enters an operation; or
* the same model runs under the same policy.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

from simfloat.hints import warn
from simfloat.policy import Policy
from simfloat.simulation.streams import Streams

#: Under which policy, and with which streams, a model ran last.
_RUNS: dict[int, tuple[ref[Any], Policy, Streams]] = {}


class Repeats:
    """The streams of other simulations on which one goes on that draws from the same seed."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._others: dict[int, Streams] = {}
        self.is_told = False  # or meant: a simulation that was restored goes on with bits of its own

    def go_on(self, other: Streams) -> None:
        """Note that what was made with other streams goes on here."""
        if other is not self._streams and other.seed == self._streams.seed:
            self._others[id(other)] = other

    def run(self, model: Any, policy: Policy) -> None:
        """Note that a model runs."""
        if self.is_told:
            return
        key, known = id(model), _RUNS.get(id(model))
        if known is not None and known[0]() is model:
            if known[2] is self._streams:
                return
            if known[1] == policy:
                self.go_on(known[2])
        _RUNS[key] = ref(model, lambda _: _RUNS.pop(key, None)), policy, self._streams

    def tell(self) -> None:
        """Warn of the first draw that repeats another one, unless it was done."""
        if self.is_told or not self._others:
            return
        drawn = self._streams.drawn
        again = [key for other in self._others.values() for key in other.drawn if key in drawn]
        if again:
            self.is_told = True
            path, phase, operation, _ = again[0]
            where = f"{operation} ({phase})" + (f" at {path!r}" if path else "")
            warn(
                f"{where} draws the random bits again that another simulation of seed {self._streams.seed} drew there, "
                "and goes on with its results. Keep one simulation, `sim = simfloat.simulate(...)`, and enter it for "
                "every step, `with sim:`; or give each a seed of its own, or go on with sim.load_state(state)."
            )
