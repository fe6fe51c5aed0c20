"""Repetitions of a computation with stochastic rounding, on all cores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

import simfloat as sf
from simfloat.common import check_count, is_integer
from simfloat.environment import in_usual_environment
from simfloat.studies.executors import Executor, Job, Result, in_processes, one_by_one
from simfloat.studies.report import function_reference, resolve_function
from simfloat.studies.statistics import Interval, mean_interval

#: Number of runs in a job. A run may take less time than a message between two processes.
RUNS_AT_ONCE = 100


@dataclass(frozen=True, repr=False)
class Repetitions:
    """The results of all runs, (runs, ...), and their statistics over the runs.

    NumPy's functions read the results: ``np.var(repetitions, 0)``. It prints in one line, as the mean, its standard
    error and the number of runs.

    Parameters:
        results: a float64 array; run i is ``results[i]``.
    """

    results: NDArray[np.float64]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.results, dtype) if copy else np.asarray(self.results, dtype)

    @property
    @in_usual_environment
    def mean(self) -> NDArray[np.float64]:
        """The mean of the runs."""
        return np.asarray(self.results.mean(0))

    @property
    @in_usual_environment
    def variance(self) -> NDArray[np.float64]:
        """The variance of the runs, with the divisor runs - 1; NaN for a single run."""
        runs = len(self.results)
        return np.asarray(self.results.var(0, ddof=1) if runs > 1 else np.full(self.results.shape[1:], np.nan))

    @property
    @in_usual_environment
    def standard_error(self) -> NDArray[np.float64]:
        """The standard error of the mean."""
        return np.asarray(np.sqrt(self.variance / len(self.results)))

    def __repr__(self) -> str:
        mean, error = (_in_one_line(numbers) for numbers in (self.mean, self.standard_error))
        return f"<Repetitions: mean {mean}, standard error {error}, {len(self.results)} runs>"

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return a confidence interval for the mean of runs with one number each.

        Parameters:
            confidence: the level, between 0 and 1.

        Returns:
            A `simfloat.studies.Interval` with the fields `low`, `high`, and `cases`, which is the number of runs.

        Raises:
            ValueError: if a run has more than one number, or there are too few runs.

        Examples:
            >>> runs = sf.studies.Repetitions(np.array([9.5, 10.0, 10.5]))
            >>> low, high, cases = runs.interval()
            >>> round(low, 2), round(high, 2), cases
            (8.76, 11.24, 3)
        """
        if self.results.ndim != 1:
            raise ValueError(
                f"interval needs one number for each run, got results of shape {self.results.shape}. Choose one, "
                "such as simfloat.studies.Repetitions(runs.results[:, 0]).interval() for runs with one axis."
            )
        return mean_interval(self.results, confidence)

    def quantile(self, share: Any) -> NDArray[np.float64]:
        """Return the quantiles of the runs, as ``np.quantile`` along the first axis."""
        return np.asarray(np.quantile(self.results, share, axis=0))


@in_usual_environment
def repeat(
    function: Callable[[sf.BitStream], Any], runs: int = 10_000, *, seed: int = 0, workers: int | None = None
) -> Repetitions:
    """Call a function with stochastic rounding many times, each with another random stream, on all cores.

    Run i receives ``sf.BitStream(seed + i)``. Results do not depend on the number of processes.

    Parameters:
        function: a function that is called as ``function(stream)``, and returns a number or an array of numbers.
            The shape is the same in every run.
        runs: the number of runs.
        seed: the seed of the first run.
        workers: the number of processes, each with one thread; by default `simfloat.get_threads()`. With 1 the runs are
            computed in this process.

    Returns:
        A `Repetitions` with `results`, `mean`, `variance`, `standard_error`, `interval()` and
        `quantile(share)`.

    Raises:
        ValueError: if an argument is invalid, or if the function cannot be sent to another process.
        JobError: if the function fails, or does not return numbers of one shape.

    Examples:
        >>> x = np.full(100, 0.1)
        >>> def total(stream):
        ...     return sf.sum(x, accumulate=sf.sequential(sf.BF16, sf.stochastic()), inputs=sf.FP32, stream=stream)
        >>> sums = sf.studies.repeat(total, 1000, workers=1)
        >>> bool(abs(sums.mean - 10) < 4 * sums.standard_error), float(sf.sum(x, accumulate=sf.BF16))
        (True, 9.75)
    """
    check_count("runs", runs)
    if workers is not None:
        check_count("workers", workers)
    if not is_integer(seed, 0, 2**64 - int(runs)):
        raise ValueError(f"seed must be an integer from 0 to 2**64 less the runs, got {seed!r}.")
    here = workers == 1
    reference = {} if here else function_reference(function)
    jobs = [
        {"kind": "a run", "function": reference, "seed": first, "runs": min(RUNS_AT_ONCE, seed + runs - first)}
        for first in range(int(seed), int(seed + runs), RUNS_AT_ONCE)
    ]
    executor: Executor = one_by_one if here else lambda run, jobs: in_processes(run, jobs, workers=workers)
    results: dict[int, Result] = {}
    with closing(executor((lambda job: _results_of(function, job)) if here else compute_runs, jobs)) as finished:
        results.update(finished)
    # Jobs end in any order. The results have the order of the seeds.
    parts = [np.array(results[place]["results"], np.float64) for place in range(len(jobs))]
    if len({part.shape[1:] for part in parts}) > 1:
        raise ValueError(f"Results have shapes {', '.join(sorted({str(part.shape[1:]) for part in parts}))}, not one.")
    return Repetitions(np.concatenate(parts))


def _in_one_line(numbers: NDArray[np.float64]) -> str:
    """Return a number, or an array with its middle left out, in six digits."""
    if numbers.ndim == 0:
        return f"{float(numbers):.6g}"
    text = np.array2string(numbers, precision=6, threshold=6, edgeitems=1)
    return " ".join(text.split()).replace("[ ", "[")


def compute_runs(job: Job) -> Result:
    """Compute the runs of a job with the function that the job describes."""
    return _results_of(resolve_function(job["function"]), job)


def _results_of(function: Callable[[sf.BitStream], Any], job: Job) -> Result:
    """Return the results of the runs of a job."""
    seeds = range(job["seed"], job["seed"] + job["runs"])
    return {"results": np.stack([_as_numbers(function(sf.BitStream(seed)), seed) for seed in seeds]).tolist()}


def _as_numbers(result: Any, seed: int) -> NDArray[np.float64]:
    """Return the result of a run as numbers; ValueError for anything else, such as None, which NumPy reads as NaN."""
    array = np.asarray(result)
    is_missing = array.dtype.hasobject and any(x is None for x in array.reshape(-1).tolist())
    if array.dtype.kind not in "cUSMm" and not is_missing:
        try:
            return array.astype(np.float64)
        except TypeError:  # objects that are no numbers
            pass
    question = " Does it end with a return statement?" if is_missing else ""
    raise ValueError(
        f"The function must return a number or an array of numbers; with simfloat.BitStream({seed}) it returned "
        f"{result!r}.{question}"
    )
