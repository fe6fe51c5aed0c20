"""How many bits numbers take in memory: operands with the scales of their blocks, and the state of parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

from simfloat.arithmetic._cast import Cast, as_cast
from simfloat.arithmetic.block_scaling import Block
from simfloat.formats import Format
from simfloat.policy import Policy


def value_bits(value: Format | Cast) -> float:
    """The bits of a number of the format, or of one that a cast made, with its share of the scale of its block."""
    cast = as_cast(value)
    if not isinstance(cast.scale, Block):
        return cast.format.bits
    size = cast.scale.size
    elements = size[0] * size[1] if isinstance(size, tuple) else size
    return cast.format.bits + cast.scale.format.bits / elements


class ParameterState(NamedTuple):
    """The bits that each element of a parameter takes while it is trained.

    copy: what contractions read, where that is narrower than the weight; compensation: what Kahan's update keeps.
    """

    path: str
    elements: int
    weight: float
    copy: float
    gradient: float
    moments: float
    compensation: float

    @property
    def bits(self) -> float:
        """All of them together, an element."""
        return self.weight + self.copy + self.gradient + self.moments + self.compensation


def parameter_state(policy: Policy, path: str, elements: int, moments: int) -> ParameterState:
    """Return the bits that an element of a parameter takes under a policy, with so many moments of an optimizer."""
    recipe: Any = policy.recipe(path, "update")
    weight, read = recipe.weights.bits, value_bits(recipe.compute_weights)
    gradient = recipe.weight_gradients
    return ParameterState(
        path,
        elements,
        weight,
        read if read < weight else 0,
        gradient.bits if isinstance(gradient, Format) else min(read, weight),  # "widest": as the copy
        moments * recipe.optimizer_state.bits,
        weight if recipe.update == "kahan" else 0,
    )
