"""What one layer uses, role by role, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from simfloat.accumulate import Accumulator
from simfloat.formats import Format, Rounding

UPDATES = ("nearest", "stochastic", "kahan")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The roles of one operation in one layer; see Policy for what they mean."""

    compute: Format
    compute_gradients: Format
    weights: Format
    activations: Format
    activation_gradients: Format
    weight_gradients: Format
    gradients: Format
    optimizer_state: Format
    accumulate: Accumulator
    rounding: Rounding
    update: str

    @classmethod
    def with_defaults(
        cls,
        *,
        compute: Format,
        compute_gradients: Format | None,
        weights: Format | None,
        activations: Format | None,
        activation_gradients: Format | None,
        weight_gradients: Format | None,
        gradients: Format | None,
        optimizer_state: Format | None,
        accumulate: Accumulator,
        rounding: Rounding,
        update: str,
    ) -> Recipe:
        """The recipe in which a role that is None takes its default."""
        activations = activations or compute
        gradients = gradients or activations
        weights = weights or compute
        return cls(
            compute=compute,
            compute_gradients=compute_gradients or compute,
            weights=weights,
            activations=activations,
            activation_gradients=activation_gradients or gradients,
            weight_gradients=weight_gradients or gradients,
            gradients=gradients,
            optimizer_state=optimizer_state or weights,
            accumulate=accumulate,
            rounding=rounding,
            update=update,
        )
