"""What is in force: the policy, the random bits and the observer of a `simulate` block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any

from simfloat.arithmetic import BitStream, Observer
from simfloat.autodiff.place import Place
from simfloat.policy import Policy, policies

_current: ContextVar[Simulation | None] = ContextVar("simulation", default=None)
_recording: ContextVar[bool] = ContextVar("recording", default=True)


class Simulation:
    """A `simulate` block: see :func:`simulate`."""

    def __init__(self, policy: Policy, seed: int, observer: Observer | None) -> None:
        self.policy = policy
        self.stream = BitStream(seed)
        self.observer = observer
        self.layers: dict[str, None] = {}  # paths of the modules that ran, in order
        self._paths: list[str] = [""]
        self._composites: list[str] = []
        self._places: dict[tuple[str, ...], Place] = {}
        self._token: Token | None = None

    def __enter__(self) -> Simulation:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if kind is None:
            self.policy.check_matched(self.layers)

    @property
    def path(self) -> str:
        """The path of the module that is running, empty outside of any."""
        return self._paths[-1]

    def place(self, operation: str, path: str | None = None) -> Place:
        """Where an operation runs: at `path`, by default in the running module and its composites."""
        key = (self.path, *self._composites, operation) if path is None else (path, operation)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place(self, key[0], key[1:])
        return place

    def enter_layer(self, path: str) -> None:
        """Note that the module at `path` runs from now on."""
        self.layers[path] = None
        self._paths.append(path)

    def leave_layer(self) -> None:
        """Note that the module that was entered last is done."""
        self._paths.pop()

    def enter_composite(self, name: str) -> None:
        """Note that operations belong to the composite `name` from now on."""
        self._composites.append(name)

    def leave_composite(self) -> None:
        """Note that the composite that was entered last is done."""
        self._composites.pop()


def simulate(policy: Policy | str, seed: int = 0, observer: Observer | None = None) -> Simulation:
    """A ``with`` block in which every Tensor operation is carried out under `policy`.

    policy is a Policy or the name of one in `simfloat.policies`. `seed` starts the block's random bits; `observer`,
    for example a Recorder, receives the events of every rounding. Blocks nest; each operation remembers what was in
    force, so that its backward pass follows the same policy.

    Raises ValueError for an unknown policy, and at the end of the block if an override's path matched no module.
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
    simulation = _current.get()
    if simulation is None:
        raise ValueError("A Tensor operation needs a policy in force: put it inside `with simfloat.simulate(policy):`.")
    return simulation


class no_grad:
    """A ``with`` block in which operations are not recorded for backward."""

    def __enter__(self) -> None:
        self._token = _recording.set(False)

    def __exit__(self, *_: Any) -> None:
        _recording.reset(self._token)


def is_recording() -> bool:
    """Whether operations are recorded for backward."""
    return _recording.get()
