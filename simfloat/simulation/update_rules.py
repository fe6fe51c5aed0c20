"""How the update of a parameter is rounded under a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simfloat.formats import Format, Rounding, nearest_even, stochastic
from simfloat.policy import Recipe


@dataclass(frozen=True, eq=False)
class UpdateRules:
    """How the operations of an update are rounded: one object for all parameters that are updated alike."""

    weights: Format
    rounding: Rounding
    optimizer_state: Format
    last: Rounding  # of the last addition
    is_compensated: bool
    is_observed: bool


_rules = lru_cache(maxsize=1 << 10)(UpdateRules)


def update_rules_of(recipe: Recipe, is_observed: bool) -> UpdateRules:
    """The rules of a recipe's updates."""
    modes = recipe.rounding, recipe.optimizer_state, mode_of_update(recipe)
    return _rules(recipe.weights, *modes, recipe.update == "kahan", is_observed)


def mode_of_update(recipe: Recipe) -> Rounding:
    """How the last addition of an optimizer is rounded."""
    if isinstance(recipe.update, Rounding):
        return recipe.update
    if recipe.update != "stochastic":
        return nearest_even
    return recipe.rounding if recipe.rounding.is_stochastic else stochastic()
