"""Sweeps: a function at every combination of values, with one table of all results, and no point computed twice.

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
    arrow_table,
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

#: The number of rows that are printed from the beginning and from the end of a long table.
SHOWN_ROWS = 15


class StudyTable(Sequence[Row]):
    """The table of a study: ``table["loss"]`` is a column, and ``table[0]`` a row.

    A value that a row does not have is None in the column. `where` selects rows; `to_csv` and `to_parquet` write files
    from which every value can be read back exactly.

    Parameters:
        rows: the rows, dictionaries by the names of columns.
        axes: the names of the columns that identify a point; they are printed first.

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
        """Return the rows with these values; a format, an accumulator or a policy matches its label, NaN matches NaN.

        Raises:
            ValueError: if a column is unknown.
        """
        chosen = self.rows
        for name, value in values.items():
            self[name]
            wanted = as_label(value)
            chosen = [row for row in chosen if _is_same(row.get(name), wanted)]
        return StudyTable(chosen, self.axes)

    def to_csv(self, path: str | Path) -> None:
        """Write the rows below a header to the file `path`; numbers can be read back exactly."""
        write_csv(self.rows, _target_path(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write the rows to the Parquet file `path`, with one type for each column."""
        write_parquet(self, _target_path(path))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as an Arrow stream: pandas, polars and DuckDB read it, as in ``polars.DataFrame(table)``."""
        return arrow_table(self).__arrow_c_stream__(requested_schema)

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
    """Return the path of a file to write; raise OSError, naming the folder, if the folder does not exist."""
    file = file_path(path)
    check_parent(file)
    return file


def _is_same(value: Any, wanted: Any) -> bool:
    """True if the values are equal, or both NaN."""
    return bool(value == wanted) or (value != value and wanted != wanted)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


#: The files of a sweep, and the folder of its finished points, which is kept so that no point is computed twice.
SWEEP_FILES = (CSV, PARQUET, SWEEP)
SWEEP_HIDDEN = ".simfloat-sweep"

#: The number of attempts for a job if its process dies.
ATTEMPTS = 3

#: The largest number of points; more points are probably a mistake.
MOST_POINTS = 100_000

#: The column of a function that returns a single number.
VALUE_COLUMN = "value"

Progress = Callable[[int, int], None]


class SweepPlan(NamedTuple):
    """The plan of a sweep.

    Parameters:
        run: the function of a job.
        jobs: a job for each row of the table.
        points: the values of the axes for each row.
        measures: a function of a result that returns the measured values of the row.
        summary: a description of the request.
    """

    run: Callable[[Job], Result]
    jobs: list[Job]
    points: list[Row]  # the values of the axes for each row
    measures: Callable[[Result], Row]
    summary: dict[str, Any]

    def table(self, results: Sequence[Result]) -> StudyTable:
        """Return a table with a row for each point: the values of the axes, then the measured values."""
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
    """Call a function at every combination of values, and return a table of its results; the last axis varies fastest.

    With a `folder`, every finished point is stored there. The same call continues after any interruption, even kill -9,
    and a call with more values computes only the new points. A stored point is reused only for the same code and the
    same state:

    * simfloat, the sources of the function's module or package, and the versions of installed packages;
    * the function with its defaults and attributes, and your functions, classes and modules that it uses, in their
      present state in memory;
    * the values of all names that it uses: numbers, arrays, random generators, models, optimizers and other objects by
      their content, as in pickle.

    The comparison ignores lists, dictionaries and sets that the function only appends to or fills, and numbers that it
    only increments. It does not read files, environment variables, or shared random generators such as that of
    ``np.random.rand``: if a result depends on these, add an argument and an axis for it. An object that cannot be read,
    such as an open file, raises ValueError, and so does a call of `eval`.

    The folder also receives the table as sweep.csv and sweep.parquet, and the request with all versions as sweep.json.
    `report` makes a page of them. Files of another function in the folder are not overwritten; they raise ValueError.

    Parameters:
        function: a function that is called as ``function(format=..., seed=...)``. It returns a number, which becomes
            the column ``value``, or a dictionary of numbers and texts, one column each.
        axes: names of the function's arguments with lists of values (formats, accumulators, roundings, policies,
            numbers, texts), or with dictionaries of such values by the labels for the table.
        folder: a folder for finished points and results; None for no folder.
        workers: the number of processes, each with one thread; None to compute in this process.
        scheduler: the address of a Dask scheduler, such as ``"tcp://node:8786"``, instead of `workers` (``pip install
            'simfloat[sweep]'``). The table is the same.

    Returns:
        A `StudyTable` with a row for each combination.

    Raises:
        ValueError: if an axis is not an argument of the function; if values are missing, given twice or of an
            unsupported kind.
        ValueError: with a folder, if another run is writing to it, or if the function uses an object that cannot be
            read.
        JobError: if the function fails at a point.

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
    """Run the jobs of a sweep that are not finished, and write its files.

    Parameters:
        plan: the plan of the sweep.
        workspace: the open workspace.
        executor: the executor of the jobs.
        progress: a function that is called with the number of finished jobs and the number of all jobs.

    Returns:
        The table, and the paths of the files.
    """
    table = plan.table(run_jobs(plan.run, plan.jobs, workspace, executor, progress))
    text = as_json(plan.summary, indent=1) + "\n"
    return table, [
        workspace.write(CSV, partial(write_csv, table.rows)),
        workspace.write(PARQUET, partial(write_parquet, table)),
        workspace.write(SWEEP, lambda path: path.write_text(text, encoding="utf-8")),
    ]


def combinations(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of values.

    Parameters:
        axes: lists of values by name.

    Returns:
        Dictionaries of one value for each name. The last axis varies fastest.
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def check_count(axes: Mapping[str, Collection[Any]]) -> None:
    """Check that axes do not have too many combinations.

    Parameters:
        axes: collections of values by name.

    Raises:
        ValueError: if there are more than MOST_POINTS combinations.
    """
    if (count := math.prod(map(len, axes.values()))) > MOST_POINTS:
        raise ValueError(f"The sweep has {count} points, more than {MOST_POINTS}; give fewer values.")


def plan_sweep(function: Callable[..., Any], axes: Mapping[str, Iterable[Any]], *, is_kept: bool = True) -> SweepPlan:
    """Return the plan of a sweep; raise ValueError, before any work, if the request is invalid.

    If results are stored, a digest of the function identifies them.
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
    """Return the values of each axis by their labels; raise ValueError if an axis is invalid."""
    if not isinstance(axes, Mapping) or not axes or not all(isinstance(name, str) for name in axes):
        raise ValueError(f'axes must be a dictionary such as {{"format": [sf.BF16], "seed": range(5)}}, got {axes!r}.')
    return {name: _levels(name, values) for name, values in axes.items()}


def _levels(name: str, values: Any) -> dict[Any, Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"The axis {name} must be a list of values, got {values!r}; use [{values!r}].")
    pairs = values.items() if isinstance(values, Mapping) else ((label_of(value), value) for value in values)
    values_by_label: dict[Any, Any] = {}
    for label, value in pairs:
        if label in values_by_label:
            raise ValueError(
                f"The axis {name} has two values that are called {label!r}; give each once, or a dictionary of values "
                "by different labels."
            )
        values_by_label[label] = value
    if not values_by_label:
        raise ValueError(f"The axis {name} has no values.")
    return values_by_label


def check_arguments(function: Callable[..., Any], axes: Iterable[str]) -> None:
    """Raise ValueError if the function cannot be called with the axes as its arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled functions may have no signature
        return
    try:
        signature.bind(**dict.fromkeys(axes))
    except TypeError as error:
        raise ValueError(f"{function_name(function)}{signature} cannot be called with the axes: {error}.") from None


def choose_executor(
    function: Callable[..., Any], workers: int | None, scheduler: str | None, as_sent: Callable[[Job], Result]
) -> Executor:
    """Return the executor for a user's function: in this process, or elsewhere by `as_sent`.

    Jobs for other processes contain the function. Raises ValueError for invalid workers or an invalid scheduler.
    """
    if scheduler is not None and not (isinstance(scheduler, str) and scheduler):
        raise ValueError(
            f"scheduler must be the address of a Dask scheduler, such as 'tcp://node:8786', got {scheduler!r}."
        )
    if scheduler is not None and workers is not None:
        raise ValueError(
            "Pass either workers, for processes on this computer, or scheduler, which has its own workers; got both."
        )
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers must be a number of processes, 1 or more, got {workers!r}.")
    if workers is None and scheduler is None:
        return one_by_one
    carry_out: Executor = (
        partial(in_processes, workers=workers, attempts=ATTEMPTS) if scheduler is None else on_scheduler(scheduler)
    )
    sent = function_reference(function)
    return lambda _, jobs: carry_out(as_sent, [{**job, "function": sent} for job in jobs])


def run_sent_job(job: Job) -> Result:
    """Run a job in a process that received the function."""
    return run_job(resolve_function(job["function"]), job)


def run_job(function: Callable[..., Any], job: Job) -> Result:
    """Call the function at the job's point; return its results as a row."""
    return checked_result(function(**{name: from_plain(plain) for name, plain in job["point"].items()}), job)


def checked_result(returned: Any, job: Job) -> Result:
    """Return the result of a function as a row; raise ValueError if a value does not fit into a table."""
    if returned is None:
        raise ValueError("The function must return a number, or a dictionary of them; got None: add a return.")
    row = returned if isinstance(returned, dict) else {VALUE_COLUMN: returned}
    measured = {name: _number(value) for name, value in row.items()}
    for name, value in measured.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, bool | int | float | str)):
            raise ValueError(
                f"The function must return a number, or a dictionary of numbers and texts; got {returned!r}."
            )
        if name in job["point"]:
            raise ValueError(f"The function returns {name!r}, which is an axis; use another name.")
    return measured


def _number(value: Any) -> Any:
    """Return a NumPy number, or a tensor of one element, as a Python number; anything else unchanged."""
    try:
        return value.item()
    except (AttributeError, ValueError, RuntimeError):
        return value
