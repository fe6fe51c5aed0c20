"""State that changes during training: the rule that switches the policy, and the amax histories of delayed scaling.

A rule changes the policy while a model trains, depending on measurements. Each operand of each contraction at a place
has one amax history.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from simfloat.arithmetic import Observer
from simfloat.arithmetic.machines import on_cpu
from simfloat.arithmetic.scaling import AmaxHistory
from simfloat.common import is_integer, one_number
from simfloat.policy import Policy
from simfloat.policy.policy import as_policy

#: Counts of a Recorder that a rule can measure, each as a share of all results.
MEASURES = ("overflow", "underflow", "subnormal", "nan", "unchanged")

#: A function of the number of the last step and of the observer that returns the policy of the next step.
SwitchingRule = Callable[[int, Observer | None], Policy | str]


class Switch(NamedTuple):
    """A change of policy: the step after which it happened (None if unknown), and the new policy."""

    step: int | None
    policy: Policy


class Switches:
    """The log of policy changes of a simulation, and the rule that it follows."""

    def __init__(self, first: Policy) -> None:
        self.first = first
        self.log: tuple[Switch, ...] = ()
        self._rule: Any = None
        self._loaded: Any = None  # the state for a rule that will be followed later

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.log[-1].policy if self.log else self.first

    def ask_rule(self, rule: SwitchingRule, step: int, observer: Observer | None) -> Policy:
        """Return the policy that a rule chooses; the rule becomes the current one."""
        if not callable(rule):
            raise ValueError(
                f"A rule must be a simfloat.Switching or a function of the step and the observer, got {rule!r}."
            )
        if self._loaded is not None and hasattr(rule, "load_state"):
            rule.load_state(self._loaded)
        self._rule, self._loaded = rule, None
        return as_policy(rule(step, observer), "A rule for switching")

    def begin(self, rule: SwitchingRule, observer: Observer | None) -> None:
        """Make a rule ignore the counts before its first step, unless a state will be loaded into it."""
        if self._loaded is None and hasattr(rule, "begin"):
            rule.begin(observer)

    @property
    def state(self) -> dict[str, Any]:
        """The log and the state of the rule, if there are any; JSON-able."""
        log = [{"step": step, "policy": policy.to_dict()} for step, policy in self.log]
        rule = getattr(self._rule, "state", None) if self._loaded is None else self._loaded
        return ({"switches": log} if log else {}) | ({"rule": rule} if rule is not None else {})

    def load(self, log: tuple[Switch, ...], rule: Any) -> None:
        """Continue from a log that :func:`read_log` returned; `rule` is the state for the next rule."""
        self.log, self._rule, self._loaded = log, None, rule


def read_log(state: Any) -> tuple[Switch, ...]:
    """Return the switches in a state; ValueError if it is invalid."""
    if not isinstance(state, list):
        raise ValueError(f"The switches in the state of a simulation must be a list, got {state!r}.")
    return tuple(map(_switch, state))


def _switch(entry: Any) -> Switch:
    if not isinstance(entry, dict) or set(entry) != {"step", "policy"}:
        raise ValueError(f"A switch in a simulation's state has the keys step and policy; got {entry!r}.")
    if entry["step"] is not None and not is_integer(entry["step"]):
        raise ValueError(f"A switch's step is an integer or null, got {entry['step']!r}.")
    return Switch(entry["step"], Policy.from_dict(entry["policy"]))


class Switching:
    """A rule that switches from `narrow` to `wide` while a measure is too high, and then back.

    `simfloat.train.fit` applies it after every step; in your own loop, call ``simulation.follow(rule, step)``. After
    each `window` steps, the measure of these steps is computed. If it is above `above` or NaN, `wide` comes into
    force. If it is at or below `below`, and `wide` was in force for at least `hold` steps, `narrow` returns. Use
    `hold` because few overflows in wide formats say nothing about narrow ones. To switch only some layers, derive
    `wide` from `narrow` by overrides::

        wide = narrow.override("head", compute=sf.FP16)
        by_rate = sf.Switching(narrow, wide, "overflow", above=1e-3, path="head", window=100, hold=1000)
        by_variance = sf.Switching(narrow, wide, lambda: model.head.weight.grad.var(), above=1e-4)

    For a rule on lost updates, use the measure "unchanged" with ``operation="update"``: it is then the share that
    ``recorder.lost_updates(path)`` returns, restricted to these steps. Without the operation, all other matching
    results also count.

    `fit` ignores the counts before its first step; in your own loop, call ``rule.begin(sim.observer)``. The state of
    the rule is part of the state of the simulation, so a resumed run switches at the same steps.

    Parameters:
        narrow, wide: policies or their names.
        measure: "overflow", "underflow", "subnormal", "nan" or "unchanged", the share of results with this event in
            the Recorder of the simulation; or a function without arguments that returns a number.
        above: the limit above which `wide` comes into force.
        below: the limit at or below which `narrow` returns; by default `above`.
        window: the number of steps of each measurement.
        hold: the smallest number of steps under `wide`.
        path, operation: shell patterns of the results that are counted; None for all.
        phase: the phase that is counted; None for all.

    Raises:
        ValueError: if a policy, the measure or a number is invalid.

    Examples:
        >>> rule = sf.Switching("fp8-delayed", "fp16-master", "overflow", above=1e-4, window=5, hold=20)
        >>> rule.narrow.name, rule.wide.name
        ('fp8-delayed', 'fp16-master')
    """

    def __init__(
        self,
        narrow: Policy | str,
        wide: Policy | str,
        measure: str | Callable[[], float] = "overflow",
        *,
        above: float,
        below: float | None = None,
        window: int = 1,
        hold: int = 0,
        path: str | None = None,
        phase: str | None = None,
        operation: str | None = None,
    ) -> None:
        if measure not in MEASURES and not callable(measure):
            raise ValueError(
                f"measure must be one of {', '.join(MEASURES)}, or a function without arguments; got {measure!r}."
            )
        if not is_integer(window, 1) or not is_integer(hold, 0):
            raise ValueError(
                f"window must be an integer of at least 1, hold one of at least 0; got {window!r}, {hold!r}."
            )
        below = above if below is None else below
        if not (_is_number(above) and _is_number(below) and below <= above):
            raise ValueError(f"above and below are numbers, below at most above; got {above!r} and {below!r}.")
        self.narrow, self.wide = as_policy(narrow, "Switching"), as_policy(wide, "Switching")
        self.measure, self.above, self.below, self.window, self.hold = measure, above, below, window, hold
        self._seen_where = {"path": path, "phase": phase, "operation": operation}
        self._state = {"steps": 0, "since": -1, "met": 0, "of": 0, "seen_met": 0, "seen_of": 0}
        self._before: tuple[Observer | None, int, int] = (None, 0, 0)  # the observer and its counts
        self._is_loaded = False  # True if nothing was counted since a state was loaded

    def __call__(self, step: int, observer: Observer | None) -> Policy:
        """Return the policy for the step after `step`."""
        now = self._state
        now["steps"] += 1
        if isinstance(self.measure, str):
            self._count(self.measure, observer)
        if now["steps"] % self.window == 0:
            self._decide(self._measured_value(), now)
            now["met"] = now["of"] = 0
        return self.narrow if now["since"] < 0 else self.wide

    def _decide(self, value: float, now: dict[str, int]) -> None:
        is_wide = now["since"] >= 0
        if not is_wide and not value <= self.above:
            now["since"] = now["steps"]
        elif is_wide and value <= self.below and now["steps"] - now["since"] >= self.hold:
            now["since"] = -1

    def _measured_value(self) -> float:
        if callable(self.measure):
            measured = on_cpu(self.measure())
            value = one_number(measured)
            if value is None:
                raise ValueError(f"The function measure of Switching must return a number, got {measured!r}.")
            return value
        return self._state["met"] / self._state["of"] if self._state["of"] else 0.0

    def begin(self, observer: Any) -> None:
        """Ignore the counts of the observer so far, for example the counts of an evaluation before the training.

        `simfloat.train.fit` calls it before its first step. In your own loop, call it if the observer counted
        anything before the first step; otherwise the first window includes these counts.
        """
        if isinstance(self.measure, str) and hasattr(observer, "counts") and not self._is_loaded:
            counts = observer.counts(**self._seen_where)
            self._before = observer, counts[self.measure], counts["total"]

    def _count(self, event: str, observer: Any) -> None:
        """Add the counts of the observer since the last call or `begin`; without either, all its counts."""
        if not hasattr(observer, "counts"):
            raise ValueError(
                f"Switching by {event} needs a simulation whose observer counts, such as "
                f"simulate(policy, observer=simfloat.Recorder()); got {observer!r}."
            )
        counts, now = observer.counts(**self._seen_where), self._state
        last_observer, met, of = self._before
        if self._is_loaded and getattr(observer, "goes_on", False):
            last_observer, met, of = observer, now["seen_met"], now["seen_of"]
        if last_observer is not observer or counts["total"] < of or counts[event] < met:
            met = of = 0
        now["met"] += counts[event] - met
        now["of"] += counts["total"] - of
        now["seen_met"], now["seen_of"] = counts[event], counts["total"]
        self._before, self._is_loaded = (observer, counts[event], counts["total"]), False

    @property
    def state(self) -> dict[str, int]:
        """The state that `load_state` needs to continue: steps, the step since which `wide` is in force or -1, and
        counts.

        The counts are the events and results of the window, and the totals of the observer at the last measurement.
        """
        return dict(self._state)

    def load_state(self, state: Any) -> None:
        """Continue from `state`; an observer without a true `goes_on` attribute is assumed to have counted from zero.

        Raises ValueError for any other value, and then changes nothing.
        """
        if not isinstance(state, dict) or set(state) != set(self._state) or not all(map(is_integer, state.values())):
            raise ValueError(f"The state of Switching has the integers {', '.join(self._state)}; got {state!r}.")
        self._state, self._is_loaded = dict(state), True

    def __repr__(self) -> str:
        conditions = {key: value for key, value in self._seen_where.items() if value is not None}
        options = {"above": self.above, "below": self.below, "window": self.window, "hold": self.hold} | conditions
        policies = ", ".join(repr(policy.name or policy) for policy in (self.narrow, self.wide))
        return f"Switching({policies}, {self.measure!r}, {', '.join(f'{k}={v!r}' for k, v in options.items())})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


#: (path, phase, operation, index of the operand of a gradient or None, factor of the product: 0 or 1)
Key = tuple[str, str, str, int | None, int]

FIELDS = ("path", "phase", "operation", "operand", "factor")
AMAXES, GREATEST = "amaxes", "greatest"


class Histories:
    """The amax histories of a simulation: one for each factor of a contraction at a place."""

    def __init__(self) -> None:
        self._histories: dict[Key, AmaxHistory] = {}

    def histories_at(
        self, path: str, phase: str, operation: str, operand: int | None
    ) -> tuple[AmaxHistory, AmaxHistory]:
        """Return the histories of the left and of the right factor of the contraction at a place."""
        return self._history_at((path, phase, operation, operand, 0)), self._history_at(
            (path, phase, operation, operand, 1)
        )

    def _history_at(self, key: Key) -> AmaxHistory:
        history = self._histories.get(key)
        # If two threads arrive at the same time, one of the new histories is kept.
        return self._histories.setdefault(key, AmaxHistory()) if history is None else history

    @property
    def copies(self) -> dict[Key, AmaxHistory]:
        """A copy of each history that contains magnitudes, for `load_state`."""
        return {key: history.copy() for key, history in list(self._histories.items()) if history.amaxes}

    @property
    def state(self) -> list[dict[str, Any]]:
        """The magnitudes of each history that is not empty; JSON-able."""
        return [
            {**dict(zip(FIELDS, key, strict=True)), AMAXES: list(history.amaxes), GREATEST: history.greatest}
            for key, history in list(self._histories.items())
            if history.amaxes
        ]

    def load_state(self, histories: dict[Key, AmaxHistory]) -> None:
        """Continue from the result of :func:`read_state`."""
        # Places keep references to their histories, so change them in place.
        for key in {**self._histories, **histories}:
            history, loaded = self._history_at(key), histories.get(key, AmaxHistory())
            history.amaxes, history.greatest = list(loaded.amaxes), loaded.greatest


def read_state(state: Any) -> dict[Key, AmaxHistory]:
    """Return the histories in a state; ValueError if it is invalid."""
    if not isinstance(state, list):
        raise ValueError(f"The casts in the state of a simulation must be a list, got {state!r}.")
    histories: dict[Key, AmaxHistory] = {}
    for entry in state:
        key, history = _entry(entry)
        if key in histories:
            raise ValueError(f"The state of a simulation contains two entries for one cast, {entry!r}.")
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
            f"amaxes must be a list of numbers of at least zero or null, and greatest a positive number or null; "
            f"got {entry!r}."
        )
    history = AmaxHistory()
    history.amaxes, history.greatest = list(amaxes), greatest
    return (path, phase, operation, operand, factor), history


def _is_magnitude(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value) and value >= 0)
