"""Simulation: the policy, the random streams and the observer of a `simulate` block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple, Protocol
from weakref import ref

from simfloat.arithmetic import BitStream, GivenBits, Observer
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.arithmetic.target import WithPath, check_observer, set_observer_finder, wants
from simfloat.common import did_you_mean, is_integer
from simfloat.kernels.rounding.events import wants_optional_counts
from simfloat.policy import Policy
from simfloat.policy.overrides import check_tied
from simfloat.policy.policy import as_policy, delays_scales, draws_bits, takes_formats
from simfloat.simulation.arithmetic import WorkMeter
from simfloat.simulation.context import (
    TREES,
    Names,
    changed_context,
    close_block,
    context_in_block,
    current_context,
    open_block,
)
from simfloat.simulation.place import ActivePolicy, Place
from simfloat.simulation.streams import RepeatedDraws, Streams, TorchModuleInNumpyBlock
from simfloat.simulation.switching import Histories, Switch, Switches, SwitchingRule, read_log, read_state
from simfloat.uninterrupted import uninterrupted


class StreamPositions(NamedTuple):
    """The positions of the random streams and of the delayed scalings of a simulation at one time."""

    calls: dict[Any, int]
    histories: dict[Any, AmaxHistory]


class HasPath(Protocol):
    """A parameter, which has a path through its first owner."""

    @property
    def path(self) -> str:
        """The names from the outermost module to the parameter, joined by dots."""

    @property
    def _outermost(self) -> Any:
        """The module at which the path begins; None if no module owns the parameter."""


class KnownParameter(NamedTuple):
    """A parameter that was used, and its path in the model at that time."""

    parameter: ref[Any]
    path: str
    state: object  # the state of the module trees for which the path is valid
    outermost: ref[Any] | None  # the module at which the path begins
    renew: Callable[[], Names | None] | None  # returns the current names of the root that ran then

    @property
    def is_current(self) -> bool:
        """True if the parameter still has this path."""
        part = None if self.outermost is None else self.outermost()
        for name in self.path.split("."):
            part = None if part is None else vars(part).get(name)
        return part is not None and part is self.parameter()


class Simulation:
    """A policy in force, with random streams, the state of casts, and an observer; created by :func:`simulate`.

    A simulation can be entered several times, also nested; its streams and casts continue. `state` contains
    everything that `load_state` needs to continue with the same bits. Copies and pickles are independent simulations
    in the same state.

    Parameters:
        policy: the policy, or its name.
        seed: the seed of the random streams.
        observer: receives the events of every rounding; None for none.
        draws: given random bits for stochastic updates, by path of the parameter; see :func:`simulate`.

    Raises:
        ValueError: if the policy is unknown, if the observer is not an observer, or if `draws` are given and the policy
            is not stochastic.

    Examples:
        >>> sim = sf.simulate("bf16-stochastic", seed=7)
        >>> with sim:
        ...     y = sf.Tensor(1.0) + 2.0**-10
        >>> state = sim.state  # JSON-able: with it, another simulation continues with the same bits
    """

    def __init__(
        self,
        policy: Policy | str,
        seed: int = 0,
        observer: Observer | None = None,
        draws: Mapping[str, GivenBits] | None = None,
    ) -> None:
        policy = as_policy(policy, "Simulation")
        check_observer(observer)
        self.observer = observer
        self.streams = Streams(seed, draws)
        if self.streams.given_draws and not draws_bits(policy):
            raise ValueError("draws= are for stochastic updates, and nothing is stochastic under this policy.")
        self.is_plain = False  # True if it is only for tensors of simfloat
        self._torch_module_check: TorchModuleInNumpyBlock | None = None  # while such a block is open
        self.repeated_draws = RepeatedDraws(self.streams)
        self.histories = Histories()
        self._switches = Switches(policy)
        self._meter: WorkMeter | None = None
        self._activate(policy)
        self.known_paths: dict[str, None] = {}  # everything that ran, in order
        self._operations: dict[str, None] = {}
        self._parameters: dict[int, KnownParameter] = {}

    def _activate(self, policy: Policy) -> None:
        """Use the policy for all operations from now on; recorded operations keep theirs."""
        streams = self.streams if draws_bits(policy) else None
        self._active_policy = ActivePolicy(
            policy, streams, self.observer, self.histories, takes_formats(policy), self._meter
        )
        self._places: dict[tuple[str, str, tuple[str, ...]], Place] = {}
        self.bound_operations: dict[Any, Any] = {}  # of the front end, by its own keys
        follow = getattr(self.observer, "follow_policy", None)  # an observer need not inherit from Observer
        if follow is not None:
            follow(policy)

    @property
    def meter(self) -> WorkMeter | None:
        """The meter that counts the work of operations; assign it before the first block. It becomes the observer."""
        return self._meter

    @meter.setter
    def meter(self, meter: WorkMeter) -> None:
        self.observer = self._meter = meter
        self._activate(self.policy)

    @property
    def policy(self) -> Policy:
        """The policy in force; assign a Policy or a name between steps to switch it. `switches` is the log of
        changes.

        Random streams and the state of casts continue. Recorded operations keep their policy in the backward pass;
        parameters are used as rounded to the new `weights`. Raises ValueError while a module runs, and if an override
        of the old policy matched nothing.
        """
        return self._switches.policy

    @policy.setter
    def policy(self, policy: Policy | str) -> None:
        self._switch(as_policy(policy, "A simulation"), None)

    @property
    def first_policy(self) -> Policy:
        """The policy at the start of the simulation."""
        return self._switches.first

    @property
    def switches(self) -> tuple[Switch, ...]:
        """The changes of policy so far, each with the step after which it happened, if known."""
        return self._switches.log

    def follow(self, rule: SwitchingRule, step: int) -> None:
        """Apply a rule after step number `step`: switch to the policy that it returns for the next step.

        `rule` is a `simfloat.Switching`, or a function of the step and the observer that returns a policy or a name.
        Raises ValueError if the step is not an integer or the rule is not callable.
        """
        if not is_integer(step):
            raise ValueError(f"follow takes the number of the last step, an integer, got {step!r}.")
        self._switch(self._switches.ask_rule(rule, int(step), self.observer), int(step))

    def begin_following(self, rule: SwitchingRule) -> None:
        """Before the first step of a rule, make it ignore the counts of the observer so far."""
        self._switches.begin(rule, self.observer)

    def _switch(self, policy: Policy, step: int | None) -> None:
        if policy == self.policy:
            return
        now = current_context()
        if now.simulation is self and (now.names is not None or now.composites):
            raise ValueError(f"Switch a policy between steps, not while the module {now.path!r} runs.")
        self._check_matched()
        self._switches.log += (Switch(step, policy),)
        for place in self._places.values():
            self.known_paths.update(dict.fromkeys(place.recipes))
        self._activate(policy)

    @property
    def seed(self) -> int:
        """The seed of the random streams."""
        return self.streams.seed

    def __enter__(self) -> Simulation:
        open_block(self, "simulation", self)
        if self.is_plain and self._torch_module_check is None:
            self._torch_module_check = TorchModuleInNumpyBlock(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with uninterrupted():
            is_outermost = close_block(self, kind)
            if is_outermost and self._torch_module_check is not None:
                foreign, self._torch_module_check = self._torch_module_check, None
                foreign.end(kind is not None or bool(self.known_paths))
        if is_outermost and kind is None:
            self._check_matched()
            self.repeated_draws.end()

    @contextmanager
    def aside(self) -> Iterator[Simulation]:
        """Return a ``with`` block for an evaluation in the middle of a training, which does not change the bits of
        the training.

        Inside, a copy of the simulation is in force, with the same policy and the current random streams. The random
        streams and amax histories of the original do not change, and its observer receives nothing. The block yields
        the copy; an override that matches nothing inside is not an error. Call `model.eval()` as for any evaluation: in
        training mode batch norm writes to its buffers. `no_grad` saves memory.

        Examples:
            >>> layer, sim = sf.nn.Dropout(), sf.simulate("fp32")
            >>> with sim:
            ...     with sim.aside():
            ...         first = layer(np.ones(4))
            ...     second = layer(np.ones(4))
            >>> bool((first == second).all())
            True
        """
        copy = Simulation(self.policy, self.seed, draws=deepcopy(self.streams.given_draws))
        copy.load_state(self.state)
        try:
            open_block(copy, "simulation", copy)
            with changed_context(path="", composites=(), names=None):
                yield copy
            close_block(copy, None)
        except BaseException as error:
            close_block(copy, type(error))
            raise

    @contextmanager
    def trial_run(self) -> Iterator[None]:
        """Return a block that continues from here and restores everything at its end; the observer receives nothing."""
        before = self._active_policy, self._places, self.bound_operations, self.observer
        try:
            self.observer = None
            self._activate(self.policy)
            with self.replay_from(self.stream_positions()):
                yield
        finally:
            self._active_policy, self._places, self.bound_operations, self.observer = before

    def _check_matched(self) -> None:
        """Raise ValueError if an override matched nothing, or only another name of a tied parameter; also for
        `draws`.
        """
        parameters = (path for place in list(self._places.values()) for path in place.recipes)
        paths = dict.fromkeys((*self.known_paths, *parameters))
        self.policy.check_matched(paths, list(self._operations))
        tied = {name: path for place in self.places() for name, path in place.tied.items()}
        check_tied(self.policy.overrides, tied)
        for path in self.streams.given_draws:
            if path in tied:
                raise ValueError(f"draws= names {path!r}, a parameter that is tied and stored once, as {tied[path]!r}.")
            if paths and path not in paths:
                raise ValueError(f"draws= names {path!r}, which was not used.{did_you_mean(path, paths)}")

    def place(self, operation: str, path: str | None = None, composites: tuple[str, ...] = ()) -> Place:
        """Return the place of an operation at `path`, inside of `composites`; by default in the running module."""
        if path is None:
            now = current_context()
            path, composites = now.path, now.composites
        return self.place_at(operation, path, composites)

    def sibling(self, place: Place, operation: str, path: str, composites: tuple[str, ...] = ()) -> Place:
        """Return the place of an operation at a path under the policy of `place`, also after a switch of the policy.

        `composites` are the names of the composites around the operation.
        """
        untyped = place.untyped
        find = self.place_at if untyped.active_policy is self._active_policy else untyped.sibling
        other = find(operation, path, composites)
        return other if place is untyped else other.in_type(place.type)

    def places(self) -> list[Place]:
        """Return every place that was used under the policy in force, in order of first use."""
        return list(self._places.values())

    def place_at(self, operation: str, path: str, composites: tuple[str, ...]) -> Place:
        """Return the place of an operation at this path, inside of these composites."""
        return self._places.get((operation, path, composites)) or self._new_place(operation, path, composites)

    def _new_place(self, operation: str, path: str, composites: tuple[str, ...]) -> Place:
        place = Place(self._active_policy, path, (*composites, operation))
        self.note_path(path)
        if operation != "update":
            self._operations.update(dict.fromkeys(place.operations))
        return self._places.setdefault((operation, path, composites), place)

    def update_place(self, parameter: HasPath) -> Place:
        """Return the place of the updates of a parameter."""
        entry = self._parameters.get(id(parameter))
        is_current = entry is not None and entry.state is TREES.state and entry.parameter() is parameter
        path = entry.path if entry is not None and is_current else self.path_of(parameter)
        return self._places.get(("update", path, ())) or self._new_place("update", path, ())

    def stream(self, operation: str) -> BitStream:
        """Return the random stream of a forward operation that uses random bits itself, in the running module."""
        return self.streams.stream_at(current_context().path, "forward", operation)

    def note_path(self, path: str) -> None:
        """Add the path to the paths that occurred."""
        self.known_paths[path] = None

    def path_of(self, parameter: HasPath) -> str:
        """Return the path of a parameter in this simulation.

        It is the path of its first use, as named by the running root module or, outside of one, by its owner. A
        parameter that has moved within the model has its new path; one that left the model is named again.
        """
        entry = self._parameters.get(id(parameter))
        if entry is None or entry.parameter() is not parameter:
            return self._determine_path(parameter, current_context().names)
        state = TREES.state
        if entry.state is state:
            return entry.path
        if entry.is_current:
            self._parameters[id(parameter)] = entry._replace(state=state)
            return entry.path
        names = None if entry.renew is None else entry.renew()
        is_part = names is not None and id(parameter) in names.parameters
        return self._determine_path(parameter, names if is_part else current_context().names)

    def _determine_path(self, parameter: HasPath, names: Names | None) -> str:
        """Return the path of a parameter by these names, or by its owner if they do not contain it."""
        state = TREES.state
        if names is not None and names.state is not state:
            names = names.renew()
        if names is not None and id(parameter) in names.parameters:
            entry = KnownParameter(ref(parameter), names.parameters[id(parameter)], state, names.outermost, names.renew)
        else:
            owner = parameter._outermost
            entry = KnownParameter(ref(parameter), parameter.path, state, None if owner is None else ref(owner), None)
        self._parameters[id(parameter)] = entry
        self.note_path(entry.path)
        return entry.path

    def stream_positions(self) -> StreamPositions:
        """Return the current positions of random streams and delayed scalings, for `replay_from`."""
        return StreamPositions(self.streams.calls, self.histories.copies)

    @contextmanager
    def replay_from(self, positions: StreamPositions) -> Iterator[None]:
        """Return a block with the random bits and the scales that followed `positions`; at its end the streams are
        unchanged.
        """
        now = self.stream_positions()
        try:
            self._rewind(positions)
            yield
        finally:
            with uninterrupted():
                self._rewind(now)

    def _rewind(self, positions: StreamPositions) -> None:
        self.streams.rewind(positions.calls)
        self.histories.load_state(positions.histories)

    @property
    def state(self) -> dict[str, Any]:
        """The state that `load_state` needs to continue with the same bits, in this or another process; JSON-able.

        The key `casts` (the state of delayed scalings) is present if there is any; so are `switches` (the log of
        changes of policy) and `rule` (the state of the rule that makes them).
        """
        casts = self.histories.state
        return self.streams.state | ({"casts": casts} if casts else {}) | self._switches.state

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`; ValueError names an error in it, and then nothing is changed."""
        streams_state = dict(state) if isinstance(state, dict) else {}
        casts, log, rule = (streams_state.pop(key, None) for key in ("casts", "switches", "rule"))
        histories = {} if casts is None else read_state(casts)
        switches = () if log is None else read_log(log)
        # After a switch of policy, scales may remain from an earlier policy, and a rule may switch to any policy.
        if histories and log is rule is None and not delays_scales(self.first_policy):
            raise ValueError(
                f"The state has {len(histories)} scales of delayed scaling, and the policy "
                f"{self.first_policy.name or self.first_policy!r} has no cast with sf.delayed(); simulate the policy "
                "that the state was saved under, or continue without the state."
            )
        self.streams.load_state(streams_state if isinstance(state, dict) else state)
        self.histories.load_state(histories)
        before = self.policy
        self._switches.load(switches, rule)
        if self.policy != before:
            self._activate(self.policy)
        self.repeated_draws.is_silenced = True  # it repeats random bits on purpose

    def __reduce__(self) -> tuple[Callable[..., Simulation], tuple[Any, ...]]:
        return _restored, (self._switches.first, self.observer, deepcopy(self.streams.given_draws), self.state)

    def __repr__(self) -> str:
        # Show the type of the observer: a Recorder with counts prints as a table.
        observed = f", observer={type(self.observer).__name__}()" if self.observer is not None else ""
        return f"simulate({self.policy.name or self.policy!r}, seed={self.seed}{observed})"


def _restored(
    policy: Policy, observer: Observer | None, draws: dict[str, GivenBits], state: dict[str, Any]
) -> Simulation:
    """Return a simulation in the state of another one."""
    simulation = Simulation(policy, state["seed"], observer, draws)
    simulation.load_state(state)
    return simulation


def simulate(
    policy: Policy | str,
    seed: int = 0,
    observer: Observer | None = None,
    *,
    draws: Mapping[str, GivenBits] | None = None,
) -> Simulation:
    """Create a ``with`` block in which every Tensor operation is carried out under `policy`.

    Blocks can be nested. Each operation remembers the simulation in force, so its backward pass follows the same
    policy. Keep the simulation and enter it again, ``with simulation:``, to continue its random streams. The block
    does not affect PyTorch tensors and models: use `simfloat.torch.simulate` for them.

    Two simulations with the same seed use the same random bits, which is useful to compare runs. simfloat warns in
    two cases where this is probably a mistake: the second simulation continues with tensors or trained parameters of
    the first; or twenty simulations in a row under the same policy start with the same operation on the same values
    and train nothing. It also warns if a PyTorch model was called in the block and no operation of simfloat ran.

    Parameters:
        policy: a Policy, or the name of one in `simfloat.policies`.
        seed: the seed of the random streams; every place has its own stream.
        observer: receives the events of every rounding, for example a Recorder; None for none.
        draws: given random bits for stochastic updates, such as the output of an LFSR, as `GivenBits` by path of the
            parameter. The final addition uses one integer per element, in C order, step after step.

    Returns:
        A `Simulation`, to be entered with ``with``.

    Raises:
        ValueError: if the policy is unknown, or a model is given instead of a policy.
        ValueError: at the end of the block, if an override or a path of `draws` matched nothing.

    Examples:
        >>> y = sf.Tensor(1.0)
        >>> with sf.simulate("bf16-standard"):
        ...     for _ in range(64):
        ...         y = y - 2**-6 * y
        >>> y  # Euler's method for y' = -y, in BF16
        Tensor(array(0.37109375, dtype=float32))
    """
    _check_is_no_model(policy)
    simulation = Simulation(as_policy(policy, "simulate"), seed, observer, draws)
    simulation.is_plain = True
    return simulation


def _check_is_no_model(value: object) -> None:
    """Raise ValueError if a model is given instead of a policy."""
    if any(one.__module__.partition(".")[0] == "torch" for one in type(value).__mro__):
        raise ValueError(
            "simulate takes a simfloat.Policy or its name, and simulates only tensors of simfloat; got a "
            f"{type(value).__name__} of PyTorch: write simfloat.torch.simulate(model, policy)."
        )
    if callable(value):
        raise ValueError(
            f"simulate takes a simfloat.Policy or its name, got the model or function {type(value).__name__}: write "
            "`with simfloat.simulate(policy):` and call it inside."
        )


def current() -> Simulation:
    """Return the innermost `simulate` block; ValueError outside of any."""
    simulation: Simulation = context_in_block().simulation
    return simulation


def _observer_here() -> Observer | None:
    """Return the observer for operations that follow no policy, namely of `simfloat.array`."""
    now = current_context()
    observer = None if now.simulation is None else now.simulation.observer
    if observer is None or not wants(observer, now.path, "forward"):
        return None
    return WithPath(observer, now.path, "forward", wants_optional_counts(observer))


set_observer_finder(_observer_here)
