"""What is in force: the policy, the random streams and the observer of a `simulate` block."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol
from weakref import ref

from simfloat.arithmetic import Observer
from simfloat.arithmetic.observer import check_observer
from simfloat.policy import Policy, policies
from simfloat.simulation.context import Names, close_block, open_block, running, under_way
from simfloat.simulation.histories import Histories, read_state
from simfloat.simulation.place import InForce, Place, draws
from simfloat.simulation.streams import Streams

_numbers = count()


class Part(Protocol):
    """A module or a parameter: what has a path, by way of its first owner."""

    @property
    def path(self) -> str:
        """The names from the outermost module down to this, joined by dots."""


class Root(Part, Protocol):
    """A module that can name what is inside."""

    def names(self) -> Names:
        """The paths of itself, of all modules and of all parameters inside, by identity."""


class Simulation:
    """A policy in force, with random streams, the state of casts, and an observer: see :func:`simulate`.

    It may be entered again and again, nested too; its streams and its casts go on. `state` is what `load_state` needs
    to continue with the same bits. Copies and pickles are simulations of their own in the same state.
    """

    def __init__(self, policy: Policy, seed: int = 0, observer: Observer | None = None) -> None:
        check_observer(observer)
        self.policy = policy
        self.observer = observer
        self.streams = Streams(seed)
        self.number = next(_numbers)  # tells it from other simulations of the same seed
        self.is_restored = False  # whether it goes on from a state
        self._has_warned = False
        self.histories = Histories()
        self._in_force = InForce(policy, self.streams if draws(policy) else None, observer, self.histories)
        self._places: dict[tuple[str, str, tuple[str, ...]], Place] = {}
        self._paths: dict[str, None] = {}  # everything that ran, in order
        self._operations: dict[str, None] = {}
        self._parameters: dict[int, tuple[ref[Any], str]] = {}

    @property
    def seed(self) -> int:
        """The seed from which the streams are derived."""
        return self.streams.seed

    def __enter__(self) -> Simulation:
        open_block(self, "simulation", self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_outermost = close_block(self, kind)
        if is_outermost and kind is None:
            parameters = (path for place in list(self._places.values()) for path in place.recipes)
            self.policy.check_matched(dict.fromkeys((*self._paths, *parameters)), list(self._operations))

    def place(self, operation: str, path: str | None = None) -> Place:
        """Where an operation runs: at `path`, by default in the running module and its composites."""
        if path is None:
            now = under_way()
            key = (operation, now.path, now.composites)
        else:
            key = (operation, path, ())
        place = self._places.get(key)
        if place is None:
            place = self._places.setdefault(key, Place(self._in_force, key[1], (*key[2], operation)))
            self.note_path(key[1])
            if operation != "update":
                self._operations.update(dict.fromkeys(place.operations))
        return place

    def warn_once(self) -> bool:
        """Whether nothing was warned of yet."""
        first, self._has_warned = not self._has_warned, True
        return first

    def note_path(self, path: str) -> None:
        """Count the path among those that were seen."""
        self._paths[path] = None

    def path_of(self, parameter: Part) -> str:
        """The path of a parameter here: that under which it was first met, by the running root or by its owner."""
        known = self._parameters.get(id(parameter))
        if known is not None and known[0]() is parameter:
            return known[1]
        names = under_way().names
        path = names.parameters.get(id(parameter), parameter.path) if names else parameter.path
        self._parameters[id(parameter)] = (ref(parameter), path)
        self.note_path(path)
        return path

    @property
    def state(self) -> dict[str, Any]:
        """What `load_state` needs to go on with the same bits, in this or another process; JSON-able.

        Its key `casts`, what delayed scalings met, is there if they met anything.
        """
        casts = self.histories.state
        return self.streams.state | ({"casts": casts} if casts else {})

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave. Raises ValueError naming what is wrong with it, and then changes nothing."""
        histories = read_state(state["casts"]) if isinstance(state, dict) and "casts" in state else {}
        rest = {key: value for key, value in state.items() if key != "casts"} if isinstance(state, dict) else state
        self.streams.load_state(rest)
        self.histories.load_state(histories)
        self.is_restored = True

    def __reduce__(self) -> tuple[Callable[..., Simulation], tuple[Any, ...]]:
        return _restored, (self.policy, self.observer, self.state)

    def __repr__(self) -> str:
        observed = f", observer={self.observer!r}" if self.observer is not None else ""
        return f"simulate({self.policy.name or self.policy!r}, seed={self.seed}{observed})"


def _restored(policy: Policy, observer: Observer | None, state: dict[str, Any]) -> Simulation:
    """A simulation in a state that another one had."""
    simulation = Simulation(policy, state["seed"], observer)
    simulation.load_state(state)
    return simulation


def simulate(policy: Policy | str, seed: int = 0, observer: Observer | None = None) -> Simulation:
    """A ``with`` block in which every Tensor operation is carried out under `policy`.

    policy is a Policy or the name of one in `simfloat.policies`. `seed` is that of the random streams, one for each
    place; `observer`, for example a Recorder, receives the events of every rounding. Blocks nest; each operation
    remembers what was in force, so that its backward pass follows the same policy. Keep the simulation and enter it
    again, ``with simulation:``, to go on with its streams; another one of the same seed draws the same bits again.

    Raises ValueError for an unknown policy, and at the end of the block if an override matched nothing that it saw.
    """
    if isinstance(policy, str):
        if policy not in policies:
            raise ValueError(f"Unknown policy {policy!r}. Policies: {', '.join(policies)}.")
        policy = policies[policy]
    if not isinstance(policy, Policy):
        raise ValueError(f"simulate takes a simfloat.Policy or its name, got {policy!r}.")
    return Simulation(policy, seed, observer)


def current() -> Simulation:
    """The innermost `simulate` block; ValueError outside of any."""
    simulation = under_way().simulation
    if simulation is None:
        raise ValueError("A Tensor operation needs a policy in force: put it inside `with simfloat.simulate(policy):`.")
    return simulation


def module_running(module: Root) -> running:
    """A ``with`` block in which `module` runs, at the path that the running root gives it.

    A module that the root does not name becomes a root of its own, with the path that its first owner gives it.
    """
    simulation, now = current(), under_way()
    if now.names is not None and id(module) in now.names.modules:
        names, path = now.names, now.names.modules[id(module)]
    else:
        names = module.names()
        path = names.modules[id(module)]
    simulation.note_path(path)
    return running(path=path, names=names)
