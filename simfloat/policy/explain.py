"""A policy as a table: what runs where."""

from __future__ import annotations

from simfloat.policy.policy import Layered, Policy
from simfloat.policy.recipe import Recipe

COLUMNS = ("weights", "compute", "compute_gradients", "activations", "activation_gradients", "weight_gradients")
LAST = ("optimizer_state", "accumulate", "rounding", "update")


def explain(policy: Policy, model: Layered) -> str:
    """See Policy.explain."""
    layers = [(path, type(module).__name__) for path, module in model.named_modules() if module.is_layer]
    policy.check_paths(path for path, _ in model.named_modules())
    rows = [(path or "(model)", kind, policy.recipe(path)) for path, kind in layers]
    for override in policy.overrides:
        if override.operation is not None:
            where = f"{override.path or 'everywhere'}"
            rows.append((where, override.operation, policy.recipe(override.path or "", override.operation)))
    table = [("layer", "kind", *COLUMNS, *LAST), *((path, kind, *_cells(recipe)) for path, kind, recipe in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def _cells(recipe: Recipe) -> tuple[str, ...]:
    return tuple(str(getattr(recipe, role)) for role in (*COLUMNS, *LAST))
