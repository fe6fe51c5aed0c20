"""The result of an attribution: a table, and its numbers as a grid for a heat map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.table import Table, table

#: Rows of the table that is printed.
SHOWN_COSTS = 20

#: What a cost can be asked for by.
FIELDS = ("operation", "layer", "role")


class Cost(NamedTuple):
    """The relative error of the gradient when this alone runs under the policy; fields not asked for are empty.

    The operation of a parameter's storage is ``"(parameter)"``, the layer of what runs in none ``"(model)"``.
    """

    operation: str
    layer: str
    role: str
    error: float


class CostGrid(NamedTuple):
    """The costs of two fields: names of rows and columns, and the errors, zero where there is no such cost."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    errors: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Attribution:
    """What `attribute` found: the costs, in the program's order as `measured`, and the error under the whole policy.

    Printed, it is the table of the largest costs; `table` has all, and `grid` the numbers for a heat map.
    """

    measured: tuple[Cost, ...]
    total: float
    by: tuple[str, ...]

    @property
    def costs(self) -> tuple[Cost, ...]:
        """All costs, the largest first."""
        return tuple(sorted(self.measured, key=lambda cost: -cost.error))

    def table(self, most: int | None = None) -> Table:
        """The costs as a table, all of them or the `most` largest, below the error under the whole policy."""
        shown = self.costs if most is None else self.costs[:most]
        rows = [(*self.by, "error"), ("(whole policy)", *("" for _ in self.by[1:]), f"{self.total:.2e}")]
        rows += [(*(getattr(cost, field) for field in self.by), f"{cost.error:.2e}") for cost in shown]
        return table(rows, number_columns=1)

    def grid(self, rows: str = "layer", columns: str = "operation") -> CostGrid:
        """The costs by two of the fields that were asked for; several in one cell add up as independent errors do.

        That is the root of the sum of their squares. Names come in the order in which the model uses them.

        Raises ValueError for a field that the attribution is not by.
        """
        for field in (rows, columns):
            if field not in self.by:
                fields = f"grid(rows, columns) takes two of {', '.join(self.by)}"
                raise ValueError(f"{fields}, by which the attribution is; got {field!r}.")
        names = [tuple(dict.fromkeys(getattr(cost, field) for cost in self.measured)) for field in (rows, columns)]
        squares = np.zeros([len(each) for each in names])
        for cost in self.measured:
            cell = tuple(
                field_names.index(getattr(cost, field))
                for field_names, field in zip(names, (rows, columns), strict=True)
            )
            squares[cell] += cost.error**2
        return CostGrid(names[0], names[1], np.sqrt(squares))

    def __repr__(self) -> str:
        hidden = len(self.measured) - SHOWN_COSTS
        return f"{self.table(SHOWN_COSTS)}" + (f"\n... and {hidden} smaller ones" if hidden > 0 else "")

    def _repr_html_(self) -> str:
        return self.table(SHOWN_COSTS)._repr_html_()
