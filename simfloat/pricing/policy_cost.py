"""The cost of a policy: multiply-adds, numbers, bits and bytes, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from simfloat.policy import Policy
from simfloat.pricing.storage_bits import ParameterState, value_bits
from simfloat.table import Table, table

#: What of the model runs in no layer.
OUTSIDE_LAYERS = "(model)"


class MultiplyAdds(NamedTuple):
    """How many multiply-adds a layer makes in a phase, of operands rounded so, through this accumulator."""

    layer: str
    phase: str
    a: Any
    b: Any
    accumulate: Any
    amount: int


class Numbers(NamedTuple):
    """How many numbers of a layer concern a role, and what that is there."""

    layer: str
    role: str
    value: Any
    amount: int


@dataclass(frozen=True, repr=False)
class PolicyCost:
    """What `cost` found, of one forward and backward pass.

    `products`, `sums` and `numbers` have an entry for each layer and each way in which something is rounded there,
    `moved` the bits by layer, `state` what is kept of each parameter. Printed, it is three tables: multiply-adds by
    formats, numbers by role, and all of it by layer.
    """

    policy: Policy
    products: tuple[MultiplyAdds, ...]
    sums: tuple[Numbers, ...]
    numbers: tuple[Numbers, ...]
    moved: Mapping[str, float]
    state: tuple[ParameterState, ...]

    @property
    def multiply_adds(self) -> int:
        """How many multiply-adds there are."""
        return sum(entry.amount for entry in self.products)

    @property
    def bit_operations(self) -> float:
        """Multiply-adds, each times the widths of both operands in bits: what multipliers take of a chip, about.

        Source: Baskin et al., UNIQ, arXiv 1804.10969, without the adders.
        """
        return sum(entry.amount * value_bits(entry.a) * value_bits(entry.b) for entry in self.products)

    @property
    def bits_moved(self) -> float:
        """The bits that are read and written."""
        return sum(self.moved.values())

    @property
    def state_bytes(self) -> float:
        """The bytes of all parameters with what is kept beside them."""
        return sum(entry.elements * entry.bits for entry in self.state) / 8

    @property
    def bytes_per_parameter(self) -> float:
        """The bytes of `state_bytes` divided by the number of elements of all parameters."""
        return self.state_bytes / max(sum(entry.elements for entry in self.state), 1)

    def by_formats(self) -> Table:
        """The multiply-adds by phase, formats of operands and accumulator, and the additions of other sums."""
        amounts: Counter[tuple[str, str, str]] = Counter()
        for product in self.products:
            amounts[product.phase, f"{product.a} x {product.b}", str(product.accumulate)] += product.amount
        for entry in self.sums:
            amounts["both", "other sums", str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("phase", "operands", "accumulated by", "multiply-adds"), *rows], number_columns=1)

    def by_role(self) -> Table:
        """The numbers that are rounded, by role and format."""
        amounts: Counter[tuple[str, str]] = Counter()
        for entry in self.numbers:
            amounts[entry.role, str(entry.value)] += entry.amount
        rows = [(*names, f"{count:,}") for names, count in amounts.items()]
        return table([("role", "rounded to", "numbers"), *rows], number_columns=1)

    def by_layer(self) -> Table:
        """A row for each layer, and one for all: multiply-adds, numbers, bits moved, bytes of state a parameter."""
        layers = list(dict.fromkeys(self.moved))
        homes = {entry.path: _layer_of_parameter(entry.path, layers) for entry in self.state}
        layers += [home for home in dict.fromkeys(homes.values()) if home not in layers]
        rows: list[tuple[str, ...]] = [("layer", "multiply-adds", "numbers", "bits moved", "parameters", "bytes each")]
        for layer in layers:
            state = [entry for entry in self.state if homes[entry.path] == layer]
            rows.append((layer or OUTSIDE_LAYERS, *self._cells([layer], state)))
        rows.append(("total", *self._cells(layers, self.state)))
        return table(rows, number_columns=5)

    def _cells(self, layers: Sequence[str], state: Sequence[ParameterState]) -> tuple[str, ...]:
        multiply_adds = sum(entry.amount for entry in self.products if entry.layer in layers)
        numbers = sum(entry.amount for entry in self.numbers if entry.layer in layers)
        moved = sum(self.moved.get(layer, 0.0) for layer in layers)
        elements, bits = sum(s.elements for s in state), sum(s.elements * s.bits for s in state)
        each = f"{bits / elements / 8:.4g}" if elements else ""
        return f"{multiply_adds:,}", f"{numbers:,}", f"{moved:,.0f}", f"{elements:,}", each

    def __repr__(self) -> str:
        return f"{self.by_formats()}\n\n{self.by_role()}\n\n{self.by_layer()}"

    def _repr_html_(self) -> str:
        tables = (self.by_formats(), self.by_role(), self.by_layer())
        return f"<b>{escape(self.policy.name or 'Policy')}</b>" + "".join(each._repr_html_() for each in tables)


def _layer_of_parameter(parameter: str, layers: Iterable[str]) -> str:
    """The layer that a parameter is shown with: the innermost one that runs around it, or its own module."""
    around = [layer for layer in layers if parameter.startswith(f"{layer}.")]
    return max(around, key=len) if around else parameter.rpartition(".")[0]
