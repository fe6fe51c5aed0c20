"""Sweeps: a function at every combination of values, one table of all, and no point computed twice.

The table of a study has a row for each of its points.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

from simfloat.common import Table, check_parent, did_you_mean, file_path
from simfloat.common import table as aligned
from simfloat.policy import Policy
from simfloat.studies.executors import Executor, Job, Result, in_processes, one_by_one
from simfloat.studies.report import (
    CSV,
    PARQUET,
    SWEEP,
    function_digest,
    function_name,
    function_reference,
    home_module,
    resolve_function,
)
from simfloat.studies.stored import (
    Row,
    as_json,
    as_label,
    as_plain,
    column_names,
    from_plain,
    label_of,
    write_csv,
    write_parquet,
)
from simfloat.studies.workspace import Study, Workspace, code_digest, on_scheduler, run_jobs, versions

#: Rows that are printed of a longer table: so many from its beginning, and as many from its end.
SHOWN_ROWS = 15


class StudyTable(Sequence[Row]):
    """Rows by the names of their columns, those of `axes` first; ``table["loss"]`` is a column, ``table[0]`` a row.

    A column that a row lacks is None there. `where` selects rows, `to_csv` and `to_parquet` write files that are read
    back to the last bit.

    Examples:
        >>> table = sf.studies.StudyTable([{"seed": 0, "loss": 0.5}, {"seed": 1, "loss": 0.25}], axes=["seed"])
        >>> table["loss"], table.where(seed=1)[0]
        ([0.5, 0.25], {'seed': 1, 'loss': 0.25})
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]], axes: Sequence[str] = ()) -> None:
        self.rows = [dict(row) for row in rows]
        self.axes = tuple(axes)
        self.columns = tuple(column_names(self.rows)) or self.axes

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> StudyTable: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            if key not in self.columns:
                raise ValueError(
                    f"The table has no column {key!r}. Columns: {', '.join(self.columns)}."
                    f"{did_you_mean(key, self.columns)}"
                )
            return [row.get(key) for row in self.rows]
        return StudyTable(self.rows[key], self.axes) if isinstance(key, slice) else self.rows[key]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __eq__(self, other: object) -> bool:
        return self.rows == other.rows if isinstance(other, StudyTable) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def where(self, **values: Any) -> StudyTable:
        """The rows that have these values: a format, an accumulator or a policy stands for its label, NaN for NaN.

        Raises ValueError for a column that there is not.
        """
        chosen = self.rows
        for name, value in values.items():
            self[name]
            wanted = as_label(value)
            chosen = [row for row in chosen if _is_same(row.get(name), wanted)]
        return StudyTable(chosen, self.axes)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows below a header; numbers are read back as they are."""
        write_csv(self.rows, _target_path(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the same as Parquet, each column of one type."""
        write_parquet(self, _target_path(path))

    def _printed_table(self) -> Table:
        cells = [tuple(_cell(row.get(name)) for name in self.columns) for row in self.rows]
        if len(cells) > 2 * SHOWN_ROWS:
            cells = [*cells[:SHOWN_ROWS], ("...",) * len(self.columns), *cells[-SHOWN_ROWS:]]
        return aligned([self.columns, *cells], number_columns=max(0, len(self.columns) - len(self.axes)))

    def __repr__(self) -> str:
        return str(self._printed_table()) if self.columns else "StudyTable([])"

    def _repr_html_(self) -> str:
        return self._printed_table()._repr_html_() if self.columns else repr(self)


def _target_path(path: str | Path) -> Path:
    """Return the path of a file to write; raise OSError, naming the folder, where the folder does not exist."""
    file = file_path(path)
    check_parent(file)
    return file


def _is_same(value: Any, wanted: Any) -> bool:
    """Whether they are equal, or both NaN."""
    return bool(value == wanted) or (value != value and wanted != wanted)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


#: The files that a sweep leaves, and the folder of its finished points: these stay, so that none is computed twice.
SWEEP_FILES = (CSV, PARQUET, SWEEP)
SWEEP_HIDDEN = ".simfloat-sweep"

#: How often a job is begun whose process dies.
ATTEMPTS = 3

#: Enough for any machine room over a night; more is a slip of the hand.
MOST_POINTS = 100_000

#: The column of a function that returns a single number.
VALUE_COLUMN = "value"

Progress = Callable[[int, int], None]


class SweepPlan(NamedTuple):
    """The plan of a sweep: a job for each row of the table, and the summary of the request."""

    run: Callable[[Job], Result]
    jobs: list[Job]
    points: list[Row]  # the place of each row on the axes
    measures: Callable[[Result], Row]
    summary: dict[str, Any]

    def table(self, results: Sequence[Result]) -> StudyTable:
        """A row for each point: its place, then what was measured there."""
        rows = [point | self.measures(result) for point, result in zip(self.points, results, strict=True)]
        return StudyTable(rows, tuple(self.points[0]) if self.points else ())


def sweep(
    function: Callable[..., Any],
    axes: Mapping[str, Iterable[Any]],
    *,
    folder: str | Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> StudyTable:
    """The table of a function's results at every combination of values, the last axis varying fastest.

    `axes` maps names of the function's arguments to lists of values: formats, accumulators, roundings, policies,
    numbers, texts; or to a dictionary of such values by the labels that the table is to have. The function is called as
    ``function(format=..., seed=...)`` and returns a number, which is the column ``value``, or a dictionary of numbers
    and texts, a column each.

    With a `folder` every finished point is kept there, and the same call goes on from there after any end, kill -9
    among them; a call with more values computes the new points only. A point counts as finished only for the same code
    and the same state. Code and state are:

    * simfloat, the sources of the function's module or package, and the versions of installed packages;
    * the function with its defaults and attributes, and the functions, classes and modules of yours that it uses, as
      they are now in memory;
    * the values of all names that it uses: numbers, arrays, random generators, models, optimizers and other objects by
      their content, as pickle takes it.

    Lists, dictionaries and sets that the function only appends to or fills, and numbers that it only counts up, do not
    count. An object that cannot be read, such as an open file, is refused by name, and so is a call of `eval`. The
    contents of files and environment variables are not read, nor are random generators that all share, such as that of
    ``np.random.rand``: give the function an argument that tells these apart, and an axis for it. Where files of another
    function stand in the folder, it is refused, and nothing is written over.

    The table is then also sweep.csv and sweep.parquet, and sweep.json says what was asked, with which versions;
    `report` makes a page of them.

    Points are computed here, one by one; by so many processes with `workers`, each with one thread; or by the workers
    of a Dask scheduler, ``scheduler="tcp://node:8786"`` (``pip install 'simfloat[sweep]'``). The table is the same.

    Raises ValueError for axes that are not the function's, for values that are empty, given twice or of other kinds,
    for a folder to which another run is writing, and with a folder for a function that uses an object that cannot be
    read; JobError for a point at which the function failed.

    Examples:
        >>> def error(format, seed):
        ...     x = np.random.default_rng(seed).standard_normal(100)
        ...     return float(np.abs(sf.round(x, format) - x).max())
        >>> sf.studies.sweep(error, {"format": [sf.BF16, sf.FP16], "seed": range(2)})
        format  seed        value
        BF16    0      0.00648151
        BF16    1      0.00773242
        FP16    0     0.000953957
        FP16    1     0.000967165
    """
    plan = plan_sweep(function, axes, is_kept=folder is not None)
    executor = choose_executor(function, workers, scheduler, run_sent_job)
    if folder is None:
        results: dict[int, Result] = {}
        with closing(executor(plan.run, plan.jobs)) as finished:
            results.update(finished)
        return plan.table([results[place] for place in range(len(plan.jobs))])
    study = Study(SWEEP, function_name(function))
    with Workspace(file_path(folder), home_module(function), SWEEP_FILES, SWEEP_HIDDEN, study) as workspace:
        return conduct_sweep(plan, workspace, executor)[0]


def conduct_sweep(
    plan: SweepPlan, workspace: Workspace, executor: Executor, progress: Progress = lambda done, jobs: None
) -> tuple[StudyTable, list[Path]]:
    """Carry out the jobs that are not finished, tell `progress` how many of how many are, and write the table."""
    table = plan.table(run_jobs(plan.run, plan.jobs, workspace, executor, progress))
    text = as_json(plan.summary, indent=1) + "\n"
    return table, [
        workspace.write(CSV, partial(write_csv, table.rows)),
        workspace.write(PARQUET, partial(write_parquet, table)),
        workspace.write(SWEEP, lambda path: path.write_text(text, encoding="utf-8")),
    ]


def combinations(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a value on each axis, the last axis varying fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def check_count(axes: Mapping[str, Collection[Any]]) -> None:
    """Raise ValueError where axes have more than MOST_POINTS combinations."""
    if (count := math.prod(map(len, axes.values()))) > MOST_POINTS:
        raise ValueError(f"The sweep has {count} points, more than {MOST_POINTS}; give fewer values.")


def plan_sweep(function: Callable[..., Any], axes: Mapping[str, Iterable[Any]], *, is_kept: bool = True) -> SweepPlan:
    """The sweep that is meant. Raises ValueError, before any work, for what cannot be one.

    Results that are kept are told apart by a digest of the function.
    """
    if not callable(function):
        raise ValueError(f"sweep takes a function, which it calls at every point; got a {type(function).__name__}.")
    levels = checked_axes(axes)
    check_arguments(function, levels)
    check_count(levels)
    places = combinations({name: list(values) for name, values in levels.items()})
    digest = function_digest(function) if is_kept else ""
    jobs = [
        {
            "label": f"{function_name(function)}({', '.join(f'{name}={label}' for name, label in place.items())})",
            "code": digest,
            "point": {name: as_plain(levels[name][label]) for name, label in place.items()},
        }
        for place in places
    ]
    return SweepPlan(partial(run_job, function), jobs, places, lambda result: result, summary(function, levels))


def summary(function: Any, levels: Mapping[str, Mapping[Any, Any]]) -> dict[str, Any]:
    """Summarize the request and the versions that compute it."""
    policies = [value for values in levels.values() for value in values.values() if isinstance(value, Policy)]
    return {
        "experiment": function_name(function),
        "question": (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " "),
        "config": {
            "axes": {name: list(values) for name, values in levels.items()},
            "policies": {label_of(policy): policy.to_dict() for policy in policies},
        },
        "points": math.prod(map(len, levels.values())),
        "versions": versions(),
        "code": code_digest(home_module(function)),
    }


def checked_axes(axes: Any) -> dict[str, dict[Any, Any]]:
    """The values of each axis by their labels. Raises ValueError for what is no axis."""
    if not isinstance(axes, Mapping) or not axes or not all(isinstance(name, str) for name in axes):
        raise ValueError(f'The axes are a dictionary such as {{"format": [sf.BF16], "seed": range(5)}}, got {axes!r}.')
    return {name: _levels(name, values) for name, values in axes.items()}


def _levels(name: str, values: Any) -> dict[Any, Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"The axis {name} takes a list of values, got {values!r}; give [{values!r}].")
    pairs = values.items() if isinstance(values, Mapping) else ((label_of(value), value) for value in values)
    values_by_label: dict[Any, Any] = {}
    for label, value in pairs:
        if label in values_by_label:
            raise ValueError(
                f"The axis {name} has two values that are called {label!r}; give each once, or a dictionary of values "
                "by labels of their own."
            )
        values_by_label[label] = value
    if not values_by_label:
        raise ValueError(f"The axis {name} has no values.")
    return values_by_label


def check_arguments(function: Callable[..., Any], axes: Iterable[str]) -> None:
    """Raise ValueError where a function cannot be called with the axes as its arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # what is not written in Python may have none
        return
    try:
        signature.bind(**dict.fromkeys(axes))
    except TypeError as error:
        raise ValueError(f"{function_name(function)}{signature} cannot be called with the axes: {error}.") from None


def choose_executor(
    function: Callable[..., Any], workers: int | None, scheduler: str | None, as_sent: Callable[[Job], Result]
) -> Executor:
    """What carries out jobs of a function of the user's: here, or elsewhere by `as_sent`, whose jobs have the function.

    Raises ValueError for what cannot.
    """
    if scheduler is not None and not (isinstance(scheduler, str) and scheduler):
        raise ValueError(f"scheduler is the address of a Dask scheduler, such as 'tcp://node:8786', got {scheduler!r}.")
    if scheduler is not None and workers is not None:
        raise ValueError("workers is for processes of this machine: a scheduler has its own. Leave out one.")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers is a number of processes, 1 or more, got {workers!r}.")
    if workers is None and scheduler is None:
        return one_by_one
    carry_out: Executor = (
        partial(in_processes, workers=workers, attempts=ATTEMPTS) if scheduler is None else on_scheduler(scheduler)
    )
    sent = function_reference(function)
    return lambda _, jobs: carry_out(as_sent, [{**job, "function": sent} for job in jobs])


def run_sent_job(job: Job) -> Result:
    """Run a job, in a process that the function was sent to."""
    return run_job(resolve_function(job["function"]), job)


def run_job(function: Callable[..., Any], job: Job) -> Result:
    """Call the function at the job's point; return its results as a row."""
    return checked_result(function(**{name: from_plain(plain) for name, plain in job["point"].items()}), job)


def checked_result(returned: Any, job: Job) -> Result:
    """The row that a function returned. Raises ValueError for one of values that a table does not take."""
    if returned is None:
        raise ValueError("A function that is swept returns a number, or a dictionary of them; got None: add a return.")
    row = returned if isinstance(returned, dict) else {VALUE_COLUMN: returned}
    measured = {name: _number(value) for name, value in row.items()}
    for name, value in measured.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, bool | int | float | str)):
            raise ValueError(
                f"A function that is swept returns a number, or a dictionary of numbers and texts; got {returned!r}."
            )
        if name in job["point"]:
            raise ValueError(f"The function returns {name!r}, which is an axis; call it something else.")
    return measured


def _number(value: Any) -> Any:
    """A number of NumPy's, or a tensor of one number, as Python's; anything else as it is."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        return value
