"""The events of a parameter's gradient: an observer receives them at the parameter's path, once it is complete."""

from __future__ import annotations

from simfloat.arithmetic.observer import wants
from simfloat.kernels.events import wants_optional_counts
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents, WithPath
from simfloat.simulation.place import Place


def pending_events_at(place: Place, path: str) -> PendingEvents | None:
    """Return a store for the events of the gradient of the parameter at `path`; None if no observer wants them."""
    observer = place.observer
    if observer is None:
        return None
    is_wanted = wants(observer, path, "backward") or wants(observer, place.path, "backward")
    return PendingEvents(observer, place.path) if is_wanted else None


def observed_at(path: str, place: Place, arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with an observer that receives its events at `path`, if it wants events of that path."""
    observer = place.observer
    if observer is None or not wants(observer, path, "backward"):
        return arithmetic.with_observer(None)
    return arithmetic.with_observer(WithPath(observer, path, "backward", wants_optional_counts(observer)))
