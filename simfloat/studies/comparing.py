"""The comparison of measured values in pairs, with the words of verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.common import Table
from simfloat.common import table as aligned
from simfloat.environment import in_usual_environment
from simfloat.studies.statistics import Discoveries, discoveries, mean_and_error
from simfloat.studies.stored import as_label, read_parquet
from simfloat.studies.sweeping import StudyTable
from simfloat.studies.verdicts import MATCH, comparison_of, exponential, interval_of

#: The kinds of comparison.
RATIO, DIFFERENCE = "ratio", "difference"


class Compared(NamedTuple):
    """The comparison of one value of a column with the reference.

    Parameters:
        label: the value of the column.
        among: the names and values of all other axes.
        mean: the geometric mean of ratios, or the mean of differences; the median if a run diverged, or if
            some ratios or differences are infinite.
        low, high: the 95 % interval of the mean (Student's t); or, if the mean is replaced by the median, its
            interval (sign test, with an error probability of 5 % on each side).
        pairs: the number of pairs.
        word: the verdict.
        p: the p value, the level at which the verdict would just be undecided: two-sided for a mean, one-sided for a
            median; None if all pairs differ equally, as they have no spread.
        diverged: the number of pairs in which at least one run diverged.
        infinite: the number of pairs in which no run diverged, but the ratio is 0 or infinite, or the difference is
            infinite.
    """

    label: Any
    among: tuple[tuple[str, Any], ...]
    mean: float
    low: float
    high: float
    pairs: int
    word: str
    p: float | None
    diverged: int = 0
    infinite: int = 0


class PairedComparison(Sequence[Compared]):
    """The result of `compare`: a row for each value; it prints as a table.

    ``comparison["bf16-standard"]`` is the row of a value. If the values are numbers, such as bits, ``comparison[8]`` is
    the row of the value 8, and ``.rows[0]`` the first row.

    Parameters:
        rows: the rows, each a `Compared`.
        by: the column of the values that are compared.
        value: the column of the measured values.
        reference: the label of the reference.
        kind: "ratio" or "difference".
    """

    def __init__(self, rows: Iterable[Compared], by: str, value: str, reference: Any, kind: str) -> None:
        self.rows, self.by, self.value, self.reference, self.kind = tuple(rows), by, value, reference, kind

    def __getitem__(self, key: Any) -> Any:
        labels_are_numbers = any(isinstance(row.label, int | float) for row in self.rows)
        if isinstance(key, slice) or (isinstance(key, int) and not labels_are_numbers):
            return self.rows[key]
        matching_rows = [row for row in self.rows if row.label == key or row.label == as_label(key)]
        if not matching_rows:
            labels = ", ".join(dict.fromkeys(str(row.label) for row in self.rows))
            raise ValueError(f"{self.by} {key!r} was not compared. There are: {labels}.")
        return matching_rows[0] if len(matching_rows) == 1 else tuple(matching_rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __reversed__(self) -> Iterator[Compared]:
        return reversed(self.rows)

    @property
    def discoveries(self) -> Discoveries:
        """The number of decided comparisons, and the false discovery rate of these decisions."""
        return discoveries(row.p for row in self.rows)

    def table(self) -> Table:
        """Return the rows as a table."""
        among = [name for name, _ in self.rows[0].among] if self.rows else []
        head = [*among, self.by, "verdict", f"{self.kind} of {self.value}", "95 %", "pairs"]
        lines = [self._line(row) for row in self.rows]
        counts = self._counts
        head.extend(counts)
        lines = [[*line, *(str(getattr(row, name)) for name in counts)] for line, row in zip(lines, self, strict=True)]
        return aligned([head, *lines], number_columns=3 + len(counts))

    @property
    def _counts(self) -> dict[str, str]:
        """The columns of counts that are not 0 in every row, with their meanings."""
        infinite = "ratios of 0 or infinity" if self.kind == RATIO else "infinite differences"
        counts = {"diverged": "diverged runs", "infinite": infinite}
        return {name: text for name, text in counts.items() if any(getattr(row, name) for row in self.rows)}

    def _line(self, row: Compared) -> list[str]:
        mean, low, high = (self._number(value) for value in (row.mean, row.low, row.high))
        texts = mean, f"{low} to {high}", str(row.pairs)
        return [*(str(value) for _, value in row.among), str(row.label), row.word, *texts]

    def _number(self, value: float) -> str:
        """Return a number with four digits; a ratio near 1 with two digits of its distance from 1."""
        distance = abs(value - 1) if self.kind == RATIO else 1.0
        digits = 2 - math.floor(math.log10(distance)) if 0 < distance < 0.005 else 4
        return f"{value:.{min(digits, 15)}g}"

    @property
    def _remarks(self) -> str:
        text = f"compared with {self.reference}. {self.discoveries}"
        if not (counts := " or ".join(self._counts.values())):
            return text
        method = "the sign test (5 % on each side), whose p is one-sided"
        return f"{text} Rows with {counts} have the median, with its interval by {method}."

    def __repr__(self) -> str:
        return f"{self.table()}\n{self._remarks}"

    def _repr_html_(self) -> str:
        return f"{self.table()._repr_html_()}<p>{self._remarks}</p>"


@in_usual_environment
def compare(
    table: Any,
    value: str = "loss",
    by: str = "policy",
    reference: Any = "fp32",
    pairs: str | Sequence[str] = "seed",
    *,
    kind: str = RATIO,
    margin: float | None = None,
    higher_is_better: bool = False,
) -> PairedComparison:
    """Compare the results for each value of a column, such as the policy, with those for a reference, in pairs.

    Two rows are a pair if they agree in the columns `pairs`, such as the seed, and in all other axes of the table. The
    result has a row for each combination of these other axes. With ``kind="ratio"`` each pair gives the logarithm of
    its ratio, otherwise its difference. The 95 % interval of the mean decides:

    * "better": all of it is better than the reference;
    * "worse": all of it is worse, and it reaches beyond the margin;
    * "worse within the margin": all of it is worse, and it is inside the margin;
    * "equal": it contains the ratio 1, or the difference 0, and is inside the margin;
    * "inconclusive": otherwise.

    A run with NaN, or with an infinite loss, diverged. It is worse than every run that did not diverge, but by no
    finite amount, so a mean has no interval. Then the interval of the median decides, by the sign test with an error
    probability of 5 % on each side. It needs five pairs: one diverged run of five decides nothing, and five of five are
    "worse". The verdicts "equal" and "worse within the margin" are impossible then. If the median decides nothing,
    McNemar's exact test decides by the pairs in which only one of the two runs diverged; it needs six such pairs.

    If exactly one value of a pair is 0, such as an accuracy of 0, no run diverged, but the logarithm of their ratio is
    infinite. The same rules apply to such pairs. With ``kind="difference"``, 0 is a number as any other.

    This function judges existing results. `simfloat.compare` runs a model itself, on one batch, and returns the errors
    of its loss and gradient under each policy.

    Parameters:
        table: the result of `sweep`, a sequence of rows as dictionaries, a dictionary of columns, a data frame, or the
            path of a sweep's Parquet file.
        value: the column of the measured values.
        by: the column of the values that are compared.
        reference: the value of that column with which all others are compared.
        pairs: the column, or columns, that identify a pair.
        kind: "ratio" or "difference".
        margin: the largest change that does not matter: a factor above 1 for ratios (default 1.05), or a number above 0
            for differences (no default).
        higher_is_better: True if larger values are better, as for accuracies.

    Returns:
        A `PairedComparison`.

    Raises:
        ValueError: if a column or the reference is missing; if a row has no partner or several; for ratios of negative
            numbers.

    Examples:
        >>> rows = [{"policy": policy, "seed": seed, "loss": loss + seed / 10}
        ...         for policy, loss in (("fp32", 1.0), ("bf16", 1.001), ("fp8", 1.2)) for seed in range(5)]
        >>> print(sf.studies.compare(rows).table())
        policy  verdict                  ratio of loss            95 %  pairs
        bf16    worse within the margin          1.001  1.001 to 1.001      5
        fp8     worse                            1.168    1.144 to 1.193      5
    """
    results = as_table(table)
    limit = _checked_margin(kind, margin)
    with_pairs = list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str) else [pairs]
    for name in (value, by, *with_pairs):
        if not isinstance(name, str):
            raise ValueError(f"value, by and pairs must be names of columns, got {name!r}.")
        results[name]
    label = _reference_label(results[by], by, reference)
    among = [name for name in results.axes if name not in (by, value, *with_pairs)]
    groups: dict[tuple[Any, ...], dict[Any, dict[tuple[Any, ...], float]]] = {}
    for number, row in enumerate(results):
        members = groups.setdefault(tuple(row.get(name) for name in among), {}).setdefault(row.get(by), {})
        pair = tuple(row.get(name) for name in with_pairs)
        if pair in members:
            raise ValueError(
                f"Two rows have {by}={row.get(by)!r} and {_values_text(with_pairs, pair)}; name all columns that "
                "distinguish runs in pairs=[...]."
            )
        members[pair] = _as_number(value, row.get(value))
        if kind == RATIO and members[pair] < 0:
            labels = (by, *with_pairs, *among)
            columns = _values_text(labels, [row.get(name) for name in labels])
            raise ValueError(
                f"{value} is {members[pair]!r} in row {number} ({columns}), but ratios need numbers of at least 0: "
                "pass kind='difference' and a margin."
            )
    rows = [
        _comparison_row(
            other, tuple(zip(among, group, strict=True)), (values, members.get(label, {})), (kind, limit), sign
        )
        for sign in [-1 if higher_is_better else 1]
        for group, members in groups.items()
        for other, values in members.items()
        if other != label
    ]
    if not rows:
        raise ValueError(f"The column {by} has no value except the reference {label!r}.")
    return PairedComparison(rows, by, value, label, kind)


def as_table(table: Any) -> StudyTable:
    """Return rows of any supported kind as a table; raise ValueError for other objects."""
    if isinstance(table, StudyTable):
        return table
    if isinstance(table, str | Path):
        return StudyTable(*read_parquet(Path(table)))
    if hasattr(table, "to_dict") and hasattr(table, "columns"):  # a data frame
        table = {name: list(table[name]) for name in table.columns}
    if isinstance(table, Mapping):
        if not all(isinstance(values, Sized) and isinstance(values, Iterable) for values in table.values()):
            raise ValueError(f"The columns of a table must be lists of values, got {table!r}.")
        lengths = {name: len(values) for name, values in table.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"All columns must have the same number of values, got {lengths}.")
        return StudyTable(dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True))
    rows = list(table) if isinstance(table, Iterable) else [table]
    if all(isinstance(row, Mapping) for row in rows):
        return StudyTable(rows)
    raise ValueError(f"table must be rows as dictionaries, or a dictionary of columns; got a {type(table).__name__}.")


def _comparison_row(
    label: Any,
    among: tuple[tuple[str, Any], ...],
    values: tuple[dict[tuple[Any, ...], float], dict[tuple[Any, ...], float]],
    how: tuple[str, float],
    sign: int,
) -> Compared:
    """Return the row of a value, from its values and the reference's by pair; `sign` is -1 if larger is better."""
    measured, reference = values
    if alone := sorted(set(measured) ^ set(reference), key=str):
        where = "".join(f", {name}={value!r}" for name, value in among)
        raise ValueError(f"{label!r}{where} and the reference need the same pairs; one has no {alone[0]!r}.")
    kind, limit = how
    ours, theirs = np.array([measured[pair] for pair in measured]), np.array([reference[pair] for pair in measured])
    samples, lost = _samples(ours, theirs, kind, sign)
    diverged, infinite = int(lost.sum()), int((np.isinf(samples) & ~lost).sum())
    word, p = comparison_of(sign * samples, limit, diverged > 0)
    low, high = sorted(sign * end for end in interval_of(sign * samples, diverged > 0)[:2])
    mean = mean_and_error(samples)[0] if np.isfinite(samples).all() else _median(samples)
    if kind == RATIO:
        mean, low, high = map(exponential, (mean, low, high))
    return Compared(label, among, mean, low, high, len(measured), word, p, diverged, infinite)


def _samples(ours: NDArray, theirs: NDArray, kind: str, sign: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logarithms of ratios or the differences, and for each pair, whether a run diverged.

    A diverged run differs infinitely from one that did not; if both diverged, their difference is NaN.
    """
    worst = sign * math.inf if kind == DIFFERENCE or sign > 0 else 0.0
    diverged = [np.isnan(values) | (values == sign * math.inf) for values in (ours, theirs)]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mine, other = (np.where(each, worst, values) for each, values in zip(diverged, (ours, theirs), strict=True))
        samples = np.log(mine) - np.log(other) if kind == RATIO else mine - other
    return samples, diverged[0] | diverged[1]


def _median(samples: NDArray[np.float64]) -> float:
    """Return the median; NaN if a sample is NaN, or between infinities of both signs."""
    with np.errstate(invalid="ignore"):
        return float(np.median(samples))


def _checked_margin(kind: str, margin: float | None) -> float:
    if kind not in (RATIO, DIFFERENCE):
        raise ValueError(f"kind must be {RATIO!r} or {DIFFERENCE!r}, got {kind!r}.")
    margin = MATCH if margin is None and kind == RATIO else margin
    if margin is None:
        raise ValueError("A comparison by differences needs margin=: the largest difference that does not matter.")
    least = 1 if kind == RATIO else 0
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not least < margin < math.inf:
        raise ValueError(f"margin must be a number above {least}, for a {kind}; got {margin!r}.")
    return math.log(margin) if kind == RATIO else float(margin)


def _reference_label(labels: list[Any], by: str, reference: Any) -> Any:
    """Return the label of the reference; upper and lower case do not matter."""
    wanted = as_label(reference)
    if wanted in labels:
        return wanted
    for label in labels:
        if str(label).lower() == str(wanted).lower():
            return label
    available = ", ".join(dict.fromkeys(map(str, labels)))
    raise ValueError(f"The reference {reference!r} is not in the column {by}, which has: {available}.")


def _as_number(name: str, value: Any) -> float:
    try:
        if not isinstance(value, str):
            return float(value)
    except TypeError:
        pass
    raise ValueError(f"The column {name} must contain numbers, got {value!r}.")


def _values_text(names: Sequence[str], values: Sequence[Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, values, strict=True))
