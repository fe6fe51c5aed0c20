"""Counting what roundings do."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import Observer
from simfloat.common import Table, check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.kernels.rounding.events import NAN, OPTIONAL_COUNTS, OVERFLOW, SIZE
from simfloat.policy import Policy
from simfloat.telemetry.advice import AdviceList, FirstNaN, Limits, list_advice
from simfloat.telemetry.entries import (
    COUNT_NAMES,
    Key,
    Query,
    Scalars,
    Series,
    cause_of_nan,
    check_pattern,
    check_phase,
    comma_separated,
    count_difference,
    count_table,
    count_zeros,
    counts_by_name,
    exponent_counts,
    json_lines,
    matches,
    more_counts,
    resize_events,
    write_atomically,
    write_tensorboard,
)
from simfloat.train.step import as_number

#: What the state of a recorder holds: its options, and by key the events in those places where any were counted.
STATE = ("counts", "keys", "places", "events", "series", "scalars", "first_nan")


@in_usual_environment
class Recorder(Observer):
    """An observer that counts the events of every rounding by tensor path, operation and phase.

    Pass it as ``observer=`` to `simulate` or to any function that rounds. Counted are results, not the steps inside an
    accumulator, so a sum that a narrow accumulator made infinite is no overflow:

    * total: all of them; nan: those that are NaN;
    * overflow: a finite exact result was rounded beyond the format's max, clamped or not;
    * underflow: a nonzero exact result became zero;
    * subnormal: a nonzero result lies below the format's smallest normal number;
    * unchanged: a sum, that of `fma` too, lost an addend that was not zero: the result is the other, finite, addend.

    Operands that are rounded before a product count too, as operations ``cast_input``, ``cast_weight`` and
    ``cast_gradient`` at the path of their layer.

    Phases are ``forward``, ``backward`` and ``update``. A parameter's path holds its gradient (backward, each element
    once) and its update; what else an optimizer computes is found below the parameter's path. Calls outside of any
    model have the path ``""``.

    Of an update w + u only a lost u counts as unchanged. What that means depends on the policy's `update`: under
    ``nearest`` the update is gone; under ``stochastic`` it was left out this time, as it must be with a probability
    that makes the mean right; under ``kahan`` the compensation keeps it for the next step. A moment of an optimizer has
    its name below the parameter's path (``hidden.0.weight.exp_avg_sq``, operation ``moment``). Each of its elements
    counts once a step; it counts as unchanged if it stays as it was under a gradient other than zero.

    Where a training calls `step` at the end of each of its steps, as `simfloat.train.fit` does, `series` tells the
    counts of every step, and `scalars` what else is known of it. Checkpoints of `fit` hold all that was counted, and
    `simfloat.save` and `simfloat.load` take a recorder as they take a model.

    With `path` (a shell pattern) or `phase` it counts only what matches; the rest runs at full speed. Several threads
    may share one. A pickle or a copy goes on counting from where it was taken.

    With ``more=True`` it counts two things besides, for about twice the time, which the table shows too:

    * saturated: results that stopped at the largest number, though the exact ones lie beyond it or are infinite;
    * inexact: results other than the exact ones, NaN aside; operations in FP64, where that is unknown, are refused.

    Raises ValueError for an unknown phase and a path that is no text.

    Examples:
        >>> recorder = sf.Recorder()
        >>> x = sf.round([1e5, 1e-9, 0.1], sf.FP16, observer=recorder)
        >>> recorder.counts()
        {'total': 3, 'overflow': 1, 'underflow': 1, 'subnormal': 0, 'nan': 0, 'unchanged': 0}
    """

    def __init__(self, path: str | None = None, phase: str | None = None, *, more: bool = False) -> None:
        check_pattern("path", path)
        check_phase(phase)
        check_flags(more=more)
        self._path, self._phase, self.more = path, phase, more
        self._size = SIZE + (len(OPTIONAL_COUNTS) if more else 0)
        self._events: dict[tuple[str, str, str], NDArray[np.int64]] = {}  # keys that are quick to make
        self._series, self._scalars = Series(), Scalars()
        self._first_nan: FirstNaN | None = None
        self._goes_on = False
        self._policy: Policy | None = None
        self._lock = Lock()

    def follow_policy(self, policy: Policy) -> None:
        """Take the policy under which a simulation makes the results that follow; `advise` names overrides of it."""
        self._policy = policy

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call; the array itself is neither kept nor changed."""
        if not (self._path is None is self._phase or self.wants(path, phase)):
            return
        with self._lock:
            if events[NAN] and self._first_nan is None:
                self._first_nan = FirstNaN(
                    self._series.steps, path, operation, phase, cause_of_nan(resize_events(events, SIZE))
                )
            total = self._events.get((path, operation, phase))
            if total is None:
                self._events[path, operation, phase] = resize_events(events, self._size)
            elif total.size == events.size:
                total += events
            else:
                total += resize_events(events, self._size)

    def wants(self, path: str, phase: str) -> bool:
        """Whether events of this path and phase are counted."""
        return self._phase in (None, phase) and matches(self._path, path)

    def counts(
        self, path: str | None = None, phase: str | None = None, *, operation: str | None = None, more: bool = False
    ) -> dict[str, int]:
        """The counts of each kind over all calls whose path and operation (shell patterns) and phase match.

        With ``more=True`` saturated and inexact results are among them. Zeros where nothing was seen. Raises ValueError
        for an unknown phase, for a path or an operation that matches nothing while others were seen, and for more of a
        recorder that was made without it.
        """
        if more and not self.more:
            raise ValueError(f"{', '.join(OPTIONAL_COUNTS)} are counted by simfloat.Recorder(more=True) only.")
        events = self._sum(Query(path, phase, operation))
        return counts_by_name(events) | (more_counts(events) if more else {})

    def lost_updates(self, path: str | None = None) -> float:
        """Return the share of the final additions to parameters that left a weight as it was.

        Of each update only the addition to the parameter counts, whatever else the optimizer computes: the share is
        ``unchanged / total`` of ``counts(path, operation="update")``. Under the policy's update ``"nearest"`` such an
        update is lost. Under ``"stochastic"`` and ``"kahan"`` it is not, and the share is as large.

        Parameters:
            path: a shell pattern that selects parameters, such as ``"head.*"``; None for all.

        Returns:
            A share from 0 to 1; 0 if nothing was counted.

        Raises:
            ValueError: if the path matches nothing that was counted, or no update was counted.

        Examples:
            >>> model, recorder = sf.nn.Linear(2, 1, rng=0), sf.Recorder()
            >>> optimizer = sf.optim.SGD(model.parameters(), lr=1e-6)
            >>> with sf.simulate("bf16-standard", observer=recorder):
            ...     model(np.ones((1, 2))).sum().backward()
            ...     optimizer.step()
            >>> recorder.lost_updates("weight")
            1.0
        """
        counts = self.counts(path, operation="update")
        return counts["unchanged"] / max(counts["total"], 1)

    def histogram(
        self, path: str | None = None, phase: str | None = None, *, operation: str | None = None
    ) -> dict[int | str, int]:
        """How many finite nonzero results have which exponent, floor(log2|result|), and under "zero" how many zeros.

        Exponents ascend, and "zero" comes last: ``zeros = histogram.pop("zero")`` leaves numbers alone, to sort or
        to draw by hand. `simfloat.plots.exponents` draws both. What matches, and what is refused, is as in `counts`.
        """
        events = self._sum(Query(path, phase, operation))
        return exponent_counts(events) | {"zero": count_zeros(events)}

    def step(self, /, **values: float) -> None:
        """End a step: what was counted since the last one ended is a row of `series`, and `values` one of `scalars`.

            recorder.step(loss=loss.item(), scale=scaler.get_scale())

        `simfloat.train.fit` calls it, with the numbers of its history. Of a step the counts are kept, 48 bytes for each
        path, operation and phase, and no histogram. Raises ValueError for a value that is no number.
        """
        step_values = {name: as_number(name, value) for name, value in values.items()}
        with self._lock:
            first = self._first_nan
            if first is not None and first.step == self._series.steps and step_values.get("skipped") == 1:
                self._first_nan = None
            self._scalars.end_step(self._series.steps, step_values)
            self._series.end_step((Key(*key), events) for key, events in self._events.items())

    def series(
        self, path: str | None = None, phase: str | None = None, *, operation: str | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """The counts of each step that `step` ended, by kind: arrays (steps,), zeros where nothing was seen.

        What matches, and what is refused, is as in `counts`. The share of lost updates, step by step::

            lost = recorder.series("*.weight", operation="update")
            lost["unchanged"] / lost["total"]
        """
        query = Query(path, phase, operation)
        query.check(key for key, _ in self.entries())
        with self._lock:
            total = np.zeros((self._series.steps, len(COUNT_NAMES)), np.int64)
            for key, counts in self._series:
                if query.is_match(key):
                    total += counts
        return dict(zip(COUNT_NAMES, total.T.copy(), strict=True))

    def scalars(self) -> dict[str, NDArray[np.float64]]:
        """The numbers that `step` was given, by name: arrays (steps,), NaN where it was given none.

        After `simfloat.train.fit` they are the columns of its history: ``loss``, ``lr``, ``scale``, ``skipped`` (1 for
        a step that the loss scale skipped), and ``scaled_norm`` and ``norm``, the norm of all gradients before and
        after unscaling.
        """
        with self._lock:
            return self._scalars.columns(self._series.steps)

    @property
    def first_nan(self) -> FirstNaN | None:
        """Where the first NaN was counted, and what it was made of; None if there was none.

        A step that `step` says was skipped, as a dynamic loss scale does where gradients are not finite, takes its NaN
        with it. The operands are words, such as ``"0 / 0"``; ``"a NaN operand"`` where NaN came from outside of what is
        recorded: data, parameters, or results that nothing rounded.
        """
        return self._first_nan

    @property
    def success_rate(self) -> float:
        """The share of steps that were not skipped; 1 before the first."""
        skipped = self.scalars().get("skipped", np.zeros(0))
        return 1.0 - np.count_nonzero(skipped == 1) / max(len(skipped), 1)

    def reset(self) -> None:
        """Forget all counts, and all that is known of single steps."""
        with self._lock:
            self._events.clear()
            self._series, self._scalars, self._first_nan = Series(), Scalars(), None
            self._goes_on = False

    def state_dict(self) -> dict[str, Any]:
        """What it counts, and all that it has counted: numbers, text and arrays, for files."""
        entries = self.entries()
        events = np.array([events for _, events in entries]).reshape(-1, self._size)
        places = np.flatnonzero(events.any(axis=0))  # few: most exponents never occur
        with self._lock:
            series, scalars, first = self._series.state, self._scalars.state, list(self._first_nan or ())
        keys = [list(key) for key, _ in entries]
        values = self._options(), keys, places, events[:, places], series, scalars, first
        return dict(zip(STATE, values, strict=True))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave, of which it then has all counts and no others.

        Raises ValueError for anything else, and for the state of a recorder that counts something else.
        """
        takes = "load_state_dict takes what Recorder.state_dict gives"
        is_state = isinstance(state_dict, Mapping) and set(state_dict) == set(STATE)
        if not (is_state and isinstance(state_dict["counts"], Mapping)):
            raise ValueError(f"{takes}, got {state_dict!r}.")
        if (options := state_dict["counts"]) != self._options():
            raise ValueError(f"The state is of {_call(options)}, and this is {_call(self._options())}.")
        try:
            keys = [Key(*key) for key in state_dict["keys"]]
            events = np.zeros((len(keys), self._size), np.int64)
            events[:, state_dict["places"]] = state_dict["events"]
            series, scalars = Series.from_state(state_dict["series"]), Scalars.from_state(state_dict["scalars"])
            first = FirstNaN(*state_dict["first_nan"]) if len(state_dict["first_nan"]) else None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{takes}, and this is damaged: {error}.") from error
        with self._lock:
            self._events = {(*key,): row for key, row in zip(keys, events, strict=True)}
            self._series, self._scalars, self._first_nan, self._goes_on = series, scalars, first, True

    @property
    def goes_on(self) -> bool:
        """Whether its counts go on from those of another recorder, whose state it loaded or of which it is a copy."""
        return self._goes_on

    def _options(self) -> dict[str, Any]:
        """The options that it was made with."""
        return {"path": self._path, "phase": self._phase, "more": self.more}

    def entries(self) -> list[tuple[Key, NDArray[np.int64]]]:
        """Path, operation and phase with a copy of their events, in the order in which they were first seen."""
        with self._lock:
            return [(Key(*key), np.array(events)) for key, events in self._events.items()]

    def table(self) -> Table:
        """The counts, a line for each path, operation and phase in the order they were first seen."""
        return count_table(self.entries())

    def diff(self, other: Recorder) -> Table:
        """What another recorder counted otherwise: a row for each place and kind whose share of results differs.

        Each has the counts of both, and their shares of all results there; the largest difference comes first. Raises
        ValueError for what is no recorder.
        """
        if not isinstance(other, Recorder):
            raise ValueError(f"diff takes another Recorder, got a {type(other).__name__}.")
        return count_difference(self.entries(), other.entries())

    def advise(self, format: FormatLike | None = None, *, lost: float = 0.01, overflow: float = 0.0) -> AdviceList:
        """Which results need a wider format, more precision or a scale, with the numbers that say so, and the override
        of the policy that gives it; a table when printed.

        The first line is that of `first_nan`, if there is one: in which step (0 is the first) it was made, where and of
        which operands, and what had underflowed or overflowed before. Then each path, operation and phase is judged by
        itself, by these rules:

        * **more precision**: of more than `lost` of the results it is true that the sum lost its addend (unchanged).
          Where a mask, such as -1e9 or the smallest number, was added, the sum is to lose it.
          For an update that is a master copy of the weights in FP32, or, in the same format, ``update="kahan"`` or
          ``"stochastic"``: under those nothing is lost for good, though it counts here too. So does an eps that is
          lost beside a root or a variance, where it does no harm.
        * Of the results that are not exactly zero more than `lost` underflow, or more than `overflow` overflow:
          **a scale**, if it would help, else **a wider format**. In updates it is always the format.
        * With `format` (what results are rounded to, or shall be, after a run in a wider one) results outside of its
          range count as lost, and the scale is named: the largest 2^k that takes no result beyond the range. It helps
          unless more than `lost` would still lie below the range. How small those were that are zero already is not
          known: a scale above 1 is taken to save them, and one of 2^-1 or less to save those that overflowed.
        * Without `format` a scale helps where only one of the two is above its limit, and, if that is overflow, no more
          than `lost` of the results are subnormal.

        Under a policy that follows a program's own types, such as ``"as-written"``, no role widens a result: then
        `override` is ``update="kahan"`` for lost updates, an accumulator for sums, and otherwise empty, and `why` says
        what the program can do instead, such as an upcast.

        Overflows in steps that a loss scale skipped, as `step` noted them, do not count; `overflow` is the share of the
        others to put up with.

        Raises ValueError for an unknown format, and for limits that are no shares.
        """
        for name, limit in (("lost", lost), ("overflow", overflow)):
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, such as 0.01, got {limit!r}.")
        chosen, entries = None if format is None else as_format(format), self.entries()
        skipped = self.scalars().get("skipped", np.zeros(self._series.steps)) == 1
        in_skipped = self._series.total_of("overflow", skipped) if skipped.any() else {}
        for key, events in entries:
            events[OVERFLOW] -= in_skipped.get(key, 0)
        return list_advice(entries, chosen, Limits(lost, overflow), self._first_nan, self._policy)

    def to_jsonl(self, path: str | Path) -> None:
        """Write one JSON object a line for each path, operation and phase: its counts and its histogram.

        The file, in UTF-8, is there whole or stays as it was.

        Raises ValueError for what is no path, and OSError where the file cannot be written.
        """
        write_atomically(_as_path(path, "to_jsonl"), json_lines(self.entries()))

    def to_csv(self, path: str | Path, *, by_step: bool = False) -> None:
        """Write a head and a line for each path, operation and phase: its counts, and how many results are zero.

        With `by_step` there is a line for each of them and each step that `step` ended, from 0 on, in which it counted
        anything; a column ``step`` stands first, and none for zeros. The file, in UTF-8, is there whole or stays as it
        was. Raises as `to_jsonl` does.
        """
        check_flags(by_step=by_step)
        file = _as_path(path, "to_csv")
        with self._lock:
            steps = list(self._series) if by_step else None
        write_atomically(file, comma_separated(self.entries(), steps))

    def to_tensorboard(self, folder: str | Path) -> None:
        """Write an event file for TensorBoard into a folder, which is made if there is none.

        Scalars of every step are what `scalars` has, as ``training/loss``, and of each path and phase the share of
        results that had an event in any step, as ``underflow/backward/hidden.0.weight``. The exponents of results are
        histograms, as ``exponent_counts/backward/hidden.0.weight``. Numbers that are not finite leave a gap; where
        `step` was not called, all is one step.

        Raises ValueError for what is no path, ImportError without tensorboardX (the extra ``tensorboard``), and OSError
        where nothing can be written.
        """
        path = _as_path(folder, "to_tensorboard")
        with self._lock:
            steps = list(self._series)
        write_tensorboard(path, self.entries(), steps, self.scalars())

    def _sum(self, query: Query) -> NDArray[np.int64]:
        entries = self.entries()
        query.check(key for key, _ in entries)
        total = np.zeros(self._size, np.int64)
        for key, events in entries:
            if query.is_match(key):
                total += events
        return total

    def __repr__(self) -> str:
        return self.table() if self._events else _call(self._options())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_() if self._events else f"<code>{escape(repr(self))}</code>"

    def __getstate__(self) -> dict[str, Any]:
        copies = {"_events": dict(self.entries()), "_series": self._series.copy(), "_scalars": self._scalars.copy()}
        return {**vars(self), **copies, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _goes_on=True, _lock=Lock())


def _call(options: Mapping[str, Any]) -> str:
    """The call that makes a recorder with these options."""
    return (
        f"Recorder({', '.join(f'{name}={value!r}' for name, value in options.items() if value not in (None, False))})"
    )


def _as_path(path: str | Path, method: str) -> Path:
    if not isinstance(path, str | Path):
        raise ValueError(f"{method} takes a path, text or a pathlib.Path, got {path!r}.")
    return Path(path)
