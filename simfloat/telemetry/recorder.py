"""The Recorder: counts of rounding events by path, operation and phase."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.target import AddingObserver
from simfloat.common import Table, check_flags, matches
from simfloat.environment import in_usual_environment
from simfloat.formats import FP64, Format
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.kernels.rounding.events import NAN, OPTIONAL_COUNTS, OVERFLOW, SIZE
from simfloat.policy import Policy
from simfloat.telemetry.advice import AdviceList, FirstNaN, Limits, list_advice
from simfloat.telemetry.entries import (
    COUNT_NAMES,
    NOT_COUNTED,
    Key,
    Query,
    Scalars,
    Series,
    cause_of_nan,
    check_kind,
    check_pattern,
    check_phase,
    comma_separated,
    count_difference,
    count_table,
    count_zeros,
    counts_by_name,
    exponent_counts,
    json_lines,
    more_counts,
    resize_events,
    write_atomically,
    write_tensorboard,
)
from simfloat.train.step import as_number

#: Keys of the state of a recorder: its options, and by key the events at the places that occurred.
STATE = ("counts", "keys", "places", "events", "series", "scalars", "first_nan")


@in_usual_environment
class Recorder(AddingObserver):
    """An observer that counts the events of every rounding by path, operation and phase.

    Pass it as ``observer=`` to `simulate` or to any function that rounds. It counts results, not the steps inside an
    accumulator: a sum that became infinite in a narrow accumulator is not an overflow.

    * total: all results; nan: results that are NaN;
    * overflow: a finite exact result was rounded beyond the largest number of the format, clamped or not;
    * underflow: a nonzero exact result became zero;
    * subnormal: a nonzero result is below the smallest normal number of the format;
    * unchanged: a sum, including `fma`, lost a nonzero addend: the result equals the other, finite, addend.

    The rounding of operands before a product is counted as the operation ``cast_input``, ``cast_weight`` or
    ``cast_gradient`` at the path of the layer.

    The phases are ``forward``, ``backward`` and ``update``. At the path of a parameter you find its gradient
    (backward, each element once) and its update; the other results of an optimizer are at paths below it. Calls
    outside of any model have the path ``""``.

    In an update w + u, only a lost u counts as unchanged. The meaning depends on the role `update` of the policy. With
    ``nearest`` the update is lost. With ``stochastic`` it was left out this time; the mean over many steps is still
    correct. With ``kahan`` the compensation keeps it for the next step.

    A moment of an optimizer has its name below the path of the parameter (``hidden.0.weight.exp_avg_sq``, operation
    ``moment``). Each element of a moment counts once per step. It counts as unchanged if it keeps its value although
    the gradient is not zero.

    If a training loop calls `step` at the end of each step, as `simfloat.train.fit` does, `series` returns the counts
    of every step, and `scalars` the other values of the steps. Checkpoints of `fit` contain all counts, and
    `simfloat.save` and `simfloat.load` accept a recorder.

    Several threads may share a recorder. A pickle or a copy continues from the counts at that time.

    Parameters:
        path: a shell pattern; only matching paths are counted, and the rest runs at full speed. None for all.
        phase: the only phase that is counted; None for all.
        more: True also counts saturated results (the exact result is beyond the largest number or infinite, and the
            result is the largest number) and inexact results (NaN excluded). The table shows both. Counting takes
            about twice as long, and operations in FP64 raise ValueError, because exactness is unknown there.

    Raises:
        ValueError: if the phase is unknown, or the path is not text.

    Examples:
        >>> recorder = sf.Recorder()
        >>> x = sf.round([1e5, 1e-9, 0.1], sf.FP16, observer=recorder)
        >>> recorder.counts()
        {'total': 3, 'overflow': 1, 'underflow': 1, 'subnormal': 0, 'nan': 0, 'unchanged': 0}
    """

    # An attribute of the class, because recorders that earlier versions have pickled lack it.
    _storage: Format = FP64

    def __init__(self, path: str | None = None, phase: str | None = None, *, more: bool = False) -> None:
        check_pattern("path", path)
        check_phase(phase)
        check_flags(more=more)
        super().__init__(SIZE + (len(OPTIONAL_COUNTS) if more else 0), path is None is phase)
        self._path, self._phase, self.more = path, phase, more
        self._series, self._scalars = Series(), Scalars()
        self._first_nan: FirstNaN | None = None
        self._goes_on = False
        self._policy: Policy | None = None

    def follow_policy(self, policy: Policy) -> None:
        """Set the policy of the following results; `advise` proposes overrides of it."""
        self._policy = policy

    def follow_storage(self, widest: Format) -> None:
        """Set the widest format that tensors of the model can represent; `advise` proposes no wider one."""
        self._storage = widest

    def observe(self, events: NDArray[np.int64], operation: str, path: str = "", phase: str = "forward") -> None:
        """Add the events of one call; the array `events` is neither kept nor changed."""
        if not (self._wants_all or self.wants(path, phase)):
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
        """True if events of this path and phase are counted."""
        return self._phase in (None, phase) and matches(self._path, path)

    def counts(
        self, path: str | None = None, phase: str | None = None, *, operation: str | None = None, more: bool = False
    ) -> dict[str, int]:
        """Return the counts by kind, summed over all calls that match.

        If `path` and `operation` match results, but no result matches both, all counts are 0, and a warning says so.

        Parameters:
            path: a shell pattern of paths; None for all.
            phase: a phase; None for all.
            operation: a shell pattern of operations; None for all.
            more: True includes saturated and inexact results.

        Returns:
            A dictionary with the keys total, overflow, underflow, subnormal, nan and unchanged; zeros if nothing was
            counted.

        Raises:
            ValueError: if the phase is unknown.
            ValueError: if a pattern matches nothing although other results were counted.
            ValueError: if `more` is True for a recorder without ``more=True``.
        """
        if more and not self.more:
            raise ValueError(NOT_COUNTED)
        events = self._sum(Query(path, phase, operation))
        return counts_by_name(events) | (more_counts(events) if more else {})

    def lost_updates(self, path: str | None = None) -> float:
        """Return the share of the final additions to parameters that left a weight unchanged.

        Only the final addition of each update counts, not the other operations of the optimizer: the share is
        ``unchanged / total`` of ``counts(path, operation="update")``. Such an update is lost if the role `update` of
        the policy is ``"nearest"``. It is not lost with ``"stochastic"`` or ``"kahan"``, although the share is as
        large.

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
        """Return the number of finite nonzero results with each exponent, floor(log2|result|).

        The exponents ascend, and the number of zeros follows under the key "zero": ``zeros = histogram.pop("zero")``
        leaves only exponents, to sort or to plot. `simfloat.plots.exponents` plots both.

        The path of a parameter has its gradient in the phase ``backward``. The path of a layer has the gradient of its
        output as ``operation="cast_gradient"``. Each product that reads this gradient rounds it as an operand. So a
        linear layer counts it twice, for the gradients of its weight and of its input, and the first layer once. The
        gradient of the input is the result of the layer's operation, such as ``operation="linear"``.

        Parameters:
            path: a shell pattern of paths; None for all.
            phase: a phase; None for all.
            operation: a shell pattern of operations; None for all.

        Returns:
            A dictionary from exponent to count.

        Raises:
            ValueError: in the same cases as `counts`.
        """
        events = self._sum(Query(path, phase, operation))
        return exponent_counts(events) | {"zero": count_zeros(events)}

    def step(self, /, **values: float) -> None:
        """End a step: the counts since the last step become a row of `series`, and `values` a row of `scalars`.

        For example::

            recorder.step(loss=loss.item(), scale=scaler.get_scale())

        `simfloat.train.fit` calls it with the values of its history. For each step the recorder keeps the counts (48
        bytes per path, operation and phase), but no histogram. Raises ValueError if a value is not a number.
        """
        step_values = {name: as_number(name, value) for name, value in values.items()}
        with self._lock:
            first = self._first_nan
            if first is not None and first.step == self._series.steps and step_values.get("skipped") == 1:
                self._first_nan = None
            self._add_waiting()
            self._scalars.end_step(self._series.steps, step_values)
            self._series.end_step((Key(*key), events) for key, events in self._events.items())

    def series(
        self, path: str | None = None, phase: str | None = None, *, operation: str | None = None
    ) -> dict[str, NDArray[np.int64]]:
        """Return the counts of each step that `step` ended.

        The share of lost updates in each step::

            lost = recorder.series("*.weight", operation="update")
            lost["unchanged"] / lost["total"]

        Parameters:
            path: a shell pattern of paths; None for all.
            phase: a phase; None for all.
            operation: a shell pattern of operations; None for all.

        Returns:
            A dictionary from kind to an array (steps,), with zeros for steps without a match.

        Raises:
            ValueError: in the same cases as `counts`.
        """
        query = Query(path, phase, operation)
        keys = [key for key, _ in self.entries()]
        query.check(keys)
        query.warn_if_apart(keys)
        with self._lock:
            total = np.zeros((self._series.steps, len(COUNT_NAMES)), np.int64)
            for key, counts in self._series:
                if query.is_match(key):
                    total += counts
        return dict(zip(COUNT_NAMES, total.T.copy(), strict=True))

    def scalars(self) -> dict[str, NDArray[np.float64]]:
        """Return the values that were passed to `step`, by name: arrays (steps,), NaN for missing values.

        After `simfloat.train.fit` they are the columns of its history: ``loss``, ``lr``, ``scale``, ``skipped`` (1
        for a step that the loss scale skipped), and ``scaled_norm`` and ``norm``, the norm of all gradients before
        and after unscaling.
        """
        with self._lock:
            return self._scalars.columns(self._series.steps)

    @property
    def first_nan(self) -> FirstNaN | None:
        """The place of the first NaN, and its operands; None if there was no NaN.

        A step that was skipped, as a dynamic loss scale does if gradients are not finite, removes its NaN. The
        operands are words, such as ``"0 / 0"``. ``"a NaN operand"`` means that NaN came from unrecorded values: data,
        parameters, or results that were not rounded.
        """
        return self._first_nan

    @property
    @in_usual_environment
    def success_rate(self) -> float:
        """The share of steps that were not skipped; 1 before the first step."""
        skipped = self.scalars().get("skipped", np.zeros(0))
        return 1.0 - np.count_nonzero(skipped == 1) / max(len(skipped), 1)

    def reset(self) -> None:
        """Delete all counts and all steps."""
        with self._lock:
            self._add_waiting()
            self._events = {}  # a new dictionary, so that bound counts notice it
            self._series, self._scalars, self._first_nan = Series(), Scalars(), None
            self._goes_on = False

    def state_dict(self) -> dict[str, Any]:
        """Return the options and all counts as numbers, text and arrays, for files."""
        entries = self.entries()
        events = np.array([events for _, events in entries]).reshape(-1, self._size)
        places = np.flatnonzero(events.any(axis=0))  # few: most exponents never occur
        with self._lock:
            series, scalars, first = self._series.state, self._scalars.state, list(self._first_nan or ())
        keys = [list(key) for key, _ in entries]
        values = self._options(), keys, places, events[:, places], series, scalars, first
        return dict(zip(STATE, values, strict=True))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace all counts by `state_dict`, a result of the method `state_dict`, and continue from them.

        Raises ValueError if the argument is not such a state, or is the state of a recorder with other options.
        """
        takes = "load_state_dict takes a result of Recorder.state_dict"
        is_state = isinstance(state_dict, Mapping) and set(state_dict) == set(STATE)
        if not (is_state and isinstance(state_dict["counts"], Mapping)):
            raise ValueError(f"{takes}, got {state_dict!r}.")
        if (options := state_dict["counts"]) != self._options():
            raise ValueError(f"The state belongs to {_call(options)}, but this is {_call(self._options())}.")
        try:
            keys = [Key(*key) for key in state_dict["keys"]]
            events = np.zeros((len(keys), self._size), np.int64)
            events[:, state_dict["places"]] = state_dict["events"]
            series, scalars = Series.from_state(state_dict["series"]), Scalars.from_state(state_dict["scalars"])
            first = FirstNaN(*state_dict["first_nan"]) if len(state_dict["first_nan"]) else None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(f"{takes}, and this one is damaged: {error}.") from error
        with self._lock:
            self._add_waiting()
            self._events = {(*key,): row for key, row in zip(keys, events, strict=True)}
            self._series, self._scalars, self._first_nan, self._goes_on = series, scalars, first, True

    @property
    def goes_on(self) -> bool:
        """True if the recorder continues the counts of another one, because a state was loaded or it is a copy."""
        return self._goes_on

    def _options(self) -> dict[str, Any]:
        """Return the options of the constructor."""
        return {"path": self._path, "phase": self._phase, "more": self.more}

    def entries(self) -> list[tuple[Key, NDArray[np.int64]]]:
        """Return path, operation and phase, with a copy of their events, in the order of first occurrence."""
        with self._lock:
            self._add_waiting()
            return [(Key(*key), np.array(events)) for key, events in self._events.items()]

    def table(
        self,
        path: str | None = None,
        phase: str | None = None,
        *,
        operation: str | None = None,
        kind: str | None = None,
    ) -> Table:
        """Return the counts as a table, with a line for each path, operation and phase in the order of first
        occurrence.

        Parameters:
            path: a shell pattern of paths; None for all.
            phase: a phase; None for all.
            operation: a shell pattern of operations; None for all.
            kind: a kind of event, such as "overflow"; only lines with at least one such event. None for all.

        Returns:
            A table with the columns path, operation and phase, and a column for each kind of event.

        Raises:
            ValueError: in the same cases as `counts`; if the kind is unknown.
            ValueError: if path, phase and operation match no line together; the message names the lines that each of
                them matches.

        Examples:
            >>> recorder = sf.Recorder()
            >>> x = sf.round([1e5, 0.1], sf.FP16, observer=recorder)
            >>> y = sf.add(x, 1.0, sf.BF16, observer=recorder)
            >>> recorder.table(kind="overflow")
            path  operation  phase    total  overflow  underflow  subnormal  nan  unchanged
            -     round      forward      2         1          0          0    0          0
        """
        check_kind(kind, self.more)
        query, entries = Query(path, phase, operation), self.entries()
        query.check(key for key, _ in entries)
        return count_table(query.select(entries), kind)

    def diff(self, other: Recorder) -> Table:
        """Compare the counts with another recorder.

        Parameters:
            other: the other recorder.

        Returns:
            A table with a row for each place and kind of event with different shares of the results. A row has both
            counts, and both shares of all results there. The largest difference comes first.

        Raises:
            ValueError: if `other` is not a Recorder.
        """
        if not isinstance(other, Recorder):
            raise ValueError(f"diff takes another Recorder, got a {type(other).__name__}.")
        return count_difference(self.entries(), other.entries())

    def advise(self, format: FormatLike | None = None, *, lost: float = 0.01, overflow: float = 0.0) -> AdviceList:
        """Find results that need a wider format, more precision or a scale.

        Each advice contains the numbers that justify it and the override of the policy that gives the result a better
        format. The first advice is about `first_nan`, if there is one: its step (0 is the first), its place, its
        operands, and the results that underflowed or overflowed before it. Then every path, operation and phase is
        judged separately by these rules, and overflows come before the rest:

        * **more precision**: more than `lost` of the results are sums that lost an addend (unchanged). The addition
          of a mask, such as -1e9 or the smallest number, does not count: it is meant to lose the addend. For an
          update, the remedy is a master copy of the weights in FP32 or, in the same format, ``update="kahan"`` or
          ``"stochastic"``. Under these two, no update is lost permanently, although it counts here. An eps that is
          lost when it is added to a root or a variance also counts, although this does no harm. Therefore the advice
          about additions comes last if the same path has a square root in the same phase.
        * **a scale** or **a wider format**: of the results that are not exactly zero, more than `lost` underflow, or
          more than `overflow` overflow. The advice is a scale if it would help. In updates it is always the format.
          Exponentials that underflow in a softmax do not count, because they are lost beside the largest one.
        * With `format`, results outside of its range also count, and the advice names the scale of these results: the
          largest 2^k that takes none of them beyond the range. It helps unless more than `lost` of the results would
          still be below the range. The size of results that underflowed to zero is unknown. The advice assumes that a
          scale above 1 saves them, and that a scale of 1/2 or less saves results that overflowed.
        * With `format`, a line below the table names the largest loss scale that takes no gradient of a layer or
          parameter beyond the range. The loss scale does not multiply other results of the backward pass, such as
          1 - tanh(x)^2.
        * Without `format`, a scale helps if only one of the two shares is above its limit and, if that is overflow,
          at most `lost` of the results are subnormal.

        For a PyTorch model in float32, no override proposes FP64, which its tensors cannot represent. The override is
        then ``update="kahan"`` for lost updates, and otherwise empty.

        Under a policy that follows the dtypes of a program, such as ``"as-written"``, no role widens a result. The
        override is then ``update="kahan"`` for lost updates, an accumulator for sums, and otherwise empty; `why`
        names a change of the program, such as an upcast. Overflows in steps that a loss scale skipped do not count.

        Parameters:
            format: the format to which results are rounded, or (after a run in a wider format) will be rounded; None
                if unknown.
            lost: the tolerated share of underflows and of lost addends, from 0 to 1.
            overflow: the tolerated share of overflows, from 0 to 1.

        Returns:
            A tuple of advice, which prints as a table.

        Raises:
            ValueError: if the format is unknown, or a limit is not from 0 to 1.
        """
        for name, limit in (("lost", lost), ("overflow", overflow)):
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, such as 0.01, got {limit!r}.")
        chosen, entries = None if format is None else as_format(format), self.entries()
        skipped = self.scalars().get("skipped", np.zeros(self._series.steps)) == 1
        in_skipped = self._series.total_of("overflow", skipped) if skipped.any() else {}
        for key, events in entries:
            events[OVERFLOW] -= in_skipped.get(key, 0)
        return list_advice(entries, chosen, Limits(lost, overflow), self._first_nan, self._policy, self._storage)

    def to_jsonl(self, path: str | Path) -> None:
        """Write the counts and the histogram of each path, operation and phase as one JSON object per line.

        The file is UTF-8 and written atomically. Raises ValueError if `path` is not a path, and OSError if the file
        cannot be written.
        """
        write_atomically(_as_path(path, "to_jsonl"), json_lines(self.entries()))

    def to_csv(self, path: str | Path, *, by_step: bool = False) -> None:
        """Write a header and a line for each path, operation and phase: the counts, and the number of zeros.

        With `by_step`, the file has a line for each of them and each step, counted from 0, in which anything was
        counted. The first column is then ``step``, and the number of zeros is left out. The file is UTF-8 and written
        atomically. Raises ValueError if `path` is not a path, and OSError if the file cannot be written.
        """
        check_flags(by_step=by_step)
        file = _as_path(path, "to_csv")
        with self._lock:
            steps = list(self._series) if by_step else None
        write_atomically(file, comma_separated(self.entries(), steps))

    def to_tensorboard(self, folder: str | Path) -> None:
        """Write an event file for TensorBoard into a folder, which is created if necessary.

        For every step, the scalars are the values of `scalars`, such as ``training/loss``, and for each path and
        phase the share of results with an event, such as ``underflow/backward/hidden.0.weight``. The exponents of
        results are histograms, such as ``exponents/backward/hidden.0.weight``. Values that are not finite are left
        out. If `step` was not called, the whole run is one step.

        Raises ValueError if `folder` is not a path, ImportError if tensorboardX is missing (the extra
        ``tensorboard``), and OSError if nothing can be written.
        """
        path = _as_path(folder, "to_tensorboard")
        with self._lock:
            steps = list(self._series)
        write_tensorboard(path, self.entries(), steps, self.scalars())

    def _sum(self, query: Query) -> NDArray[np.int64]:
        entries = self.entries()
        query.check(key for key, _ in entries)
        total = np.zeros(self._size, np.int64)
        query.warn_if_apart([key for key, _ in entries])
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
        state = {**vars(self), **copies, "_lock": None}
        for derived in ("_wants_all", "_waiting", "bound"):
            del state[derived]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _goes_on=True, _lock=Lock(), _waiting=[], bound={})
        self._wants_all = self._path is None is self._phase


def _call(options: Mapping[str, Any]) -> str:
    """Return the call that creates a recorder with these options."""
    return (
        f"Recorder({', '.join(f'{name}={value!r}' for name, value in options.items() if value not in (None, False))})"
    )


def _as_path(path: str | Path, method: str) -> Path:
    if not isinstance(path, str | Path):
        raise ValueError(f"{method} takes a path, text or a pathlib.Path, got {path!r}.")
    return Path(path)
