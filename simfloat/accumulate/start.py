"""What sums start from, where that is not zero: the C of D = A B + C."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simfloat.accumulate.accumulator import Accumulator
from simfloat.accumulate.operand_bounds import first_stranger


def start_for(accumulator: Accumulator, initial: NDArray, shape: tuple[int, ...]) -> NDArray:
    """The addend in the shape of the result; ValueError where the accumulator has no sum that could start from it."""
    if not accumulator.takes_initial:
        raise ValueError(f"{accumulator} has no running sum that could start from initial=; add it to the result.")
    if accumulator.result is not None:
        place = first_stranger(initial, accumulator.result)
        if place is not None:
            raise ValueError(
                f"initial= must hold numbers of {accumulator.result}, the format of the running sum of {accumulator}; "
                f"initial{list(place) if place else ''} = {float(initial[place])!r} is none. Round it first."
            )
    try:
        return np.broadcast_to(initial, shape)
    except ValueError:
        raise ValueError(
            f"initial= must broadcast to the result without enlarging it: it has shape {initial.shape}, the result "
            f"{shape}."
        ) from None
