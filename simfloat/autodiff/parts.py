"""Gradients that are put together from those of parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.autodiff.variable import Part, Variable
from simfloat.simulation.arithmetic import Arithmetic


class Gathered:
    """The gradients, in one backward pass, of variables that were parted.

    The parts that one operation made are put side by side, for they share no element; what else contributes to the
    gradient is added. So a sequence that is parted into its n steps costs n small arrays, not n large ones.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[NDArray, Any]] = {}  # an array that is ours to write to, and what parted it

    def with_part(self, parent: Variable, before: NDArray | None, part: Part, arithmetic: Arithmetic) -> NDArray:
        """The gradient of `parent`, `before` if there is one so far, with that of a part."""
        array, by = self._held.get(id(parent), (None, None))
        if before is None:
            array, by = np.zeros(parent.shape, part.numbers.dtype, like=part.numbers), part.by
        elif array is not before:
            array, by = before.copy(), None
        elif by is not part.by:
            by = None
        array[part.key] = part.numbers if by is part.by else arithmetic.add(array[part.key], part.numbers)
        self._held[id(parent)] = array, by
        return array
