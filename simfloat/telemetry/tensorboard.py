"""The counts of a recorder as an event file that TensorBoard shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.telemetry.entries import COUNT_NAMES, exponent_counts
from simfloat.telemetry.exports import Entries
from simfloat.telemetry.series import COUNT_PLACES

#: A phase and a path.
Place = tuple[str, str]


def write_tensorboard(folder: Path, entries: Entries, steps: Entries, scalars: Mapping[str, NDArray]) -> None:
    """Write an event file: scalars (steps,) by name, counts (steps, kinds), and the histograms of all steps."""
    summary_writer = _writer_class()
    folder.mkdir(parents=True, exist_ok=True)
    by_step = steps or [(key, events[np.newaxis, COUNT_PLACES]) for key, events in entries]
    with summary_writer(logdir=str(folder)) as writer:
        for name, column in scalars.items():
            _write_column(writer, f"training/{name}", column)
        for (phase, path), counts in _by_place(by_step).items():
            total = counts[:, COUNT_NAMES.index("total")]
            for kind, column in zip(COUNT_NAMES, counts.T, strict=True):
                if kind != "total" and column.any():
                    share = np.divide(column, total, out=np.full(len(total), np.nan), where=total > 0)
                    _write_column(writer, f"{kind}/{phase}/{path}", share)
        last = max((len(counts) for _, counts in by_step), default=1) - 1
        for (phase, path), events in _by_place(entries).items():
            _write_exponents(writer, f"exponents/{phase}/{path}", exponent_counts(events), last)


def _writer_class() -> Any:
    """The class of writers; ImportError that names the extra without tensorboardX."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        message = "Event files for TensorBoard are written by tensorboardX: pip install 'simfloat[tensorboard]'."
        raise ImportError(message) from None
    return SummaryWriter


def _by_place(entries: Entries) -> dict[Place, NDArray[np.int64]]:
    """The sums over the operations of each phase and path."""
    places: dict[Place, NDArray[np.int64]] = {}
    for key, counts in entries:
        place = key.phase, key.path or "-"
        places[place] = places[place] + counts if place in places else counts
    return places


def _write_column(writer: Any, tag: str, column: NDArray) -> None:
    """A scalar for each step in which there is a finite one."""
    for step in np.flatnonzero(np.isfinite(column)).tolist():
        writer.add_scalar(tag, float(column[step]), step)


def _write_exponents(writer: Any, tag: str, histogram: Mapping[int | str, int], step: int) -> None:
    """A histogram whose buckets are binades: [e, e + 1) for each exponent e."""
    if not histogram:
        return
    numbers = {int(exponent): number for exponent, number in histogram.items()}
    first, last = min(numbers), max(numbers)
    binades = range(first, last + 1)
    counts = [0, *(numbers.get(exponent, 0) for exponent in binades)]  # the first bucket ends where the binades begin
    total = sum(exponent * number for exponent, number in numbers.items())
    squares = sum(exponent**2 * number for exponent, number in numbers.items())
    writer.add_histogram_raw(
        tag, min=first, max=last + 1, num=sum(counts), sum=total, sum_squares=squares,
        bucket_limits=[first, *(exponent + 1 for exponent in binades)], bucket_counts=counts, global_step=step,
    )  # fmt: skip
