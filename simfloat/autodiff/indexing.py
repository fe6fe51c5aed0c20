"""Elements of tensors by their places: integers, slices, arrays of integers, masks.

Results are not rounded, and keep their format. Elements that are named several times have the sum of their gradients,
through the policy's `reduce`, in the row-major order of the result; other gradients are rounded, to their role.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.elements import elements
from simfloat.arithmetic.machines import as_array, is_on_gpu, on_device_of
from simfloat.autodiff.movement import viewable_numbers
from simfloat.autodiff.record import Operations, Result, begin, copy_if_recorded, finish
from simfloat.checks import is_integer
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.rows import add_rows


@in_usual_environment
class Indexing(Operations[Result]):
    """The elements of a tensor."""

    def __getitem__(self, key: Any) -> Result:
        """Elements by integers, slices, None, `...`, arrays of integers and boolean masks, as NumPy has it.

        Raises ValueError for other keys, and for places that the tensor does not have.
        """
        parts = tuple(_checked_index(part, key, self.numbers) for part in (key if isinstance(key, tuple) else (key,)))
        started, before = begin("index", self), self.shape
        used = started.operands[0]
        parts = tuple(
            copy_if_recorded(started, part) if hasattr(part, "dtype") and part.ndim else part for part in parts
        )
        try:
            chosen = as_array(elements(viewable_numbers(used), parts))
        except IndexError as error:
            raise ValueError(f"A tensor of shape {before} has nothing at {key!r}: {error}.") from None

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            full = np.zeros(before, g.dtype, like=g)
            full[parts] = g
            return u.round(full)

        def derivative_of_rows(u: Arithmetic, g: NDArray) -> NDArray:
            named = parts[0].astype(np.intp)
            places = np.where(named < 0, named + before[0], named).reshape(-1)
            return add_rows(u, g, places, (before[0], math.prod(before[1:]))).reshape(before)

        def derivative_of_elements(u: Arithmetic, g: NDArray) -> NDArray:
            count = math.prod(before)
            places = np.arange(count, like=used.numbers).reshape(before)[parts]
            return add_rows(u, g, places.reshape(-1), (count, 1)).reshape(before)

        arrays = [part for part in parts if isinstance(part, np.ndarray) or is_on_gpu(part)]
        if len(parts) == 1 and arrays and arrays[0].dtype != bool:
            return self.from_result(finish(started, chosen, used.format, derivative_of_rows))
        return self.from_result(
            finish(
                started,
                chosen,
                used.format,
                derivative_of_elements if arrays else derivative,
                is_view=not arrays,
            )
        )

    def embedding(self, places: NDArray[np.integer], padding: int | None = None) -> Result:
        """The rows of this table (rows, width) that `places` (...) name; the row `padding` gets no gradient."""
        started, (count, width) = begin("embedding", self), self.shape
        table, places = started.operands[0], copy_if_recorded(started, places)

        def derivative(u: Arithmetic, g: NDArray) -> NDArray:
            rows, names = g.reshape(places.size, width), places.reshape(-1).astype(np.intp)
            if padding is not None:
                rows, names = rows[names != padding], names[names != padding]
            return add_rows(u, rows, names, (count, width))

        return self.from_result(finish(started, table.numbers[places], table.format, derivative))


def _checked_index(part: Any, key: Any, numbers: NDArray) -> Any:
    """One index of a key: as it is, or as an array of integers or truth values, where the numbers are."""
    if is_integer(part) or isinstance(part, slice) or part is None or part is Ellipsis:
        return part
    if isinstance(part, list | np.ndarray) or is_on_gpu(part):
        array = on_device_of(as_array(part), numbers)
        if array.dtype.kind in "iub":
            return array
        if not array.size:
            return array.astype(np.intp)
    raise ValueError(
        f"Tensors are indexed by integers, slices, None, ..., and arrays of integers or truth values; got {key!r}."
    )
