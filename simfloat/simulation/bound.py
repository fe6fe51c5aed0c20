"""Bound operations: the properties of an operation at its place that do not depend on the values of its operands.

A front end binds an operation once, and a simulation keeps the result until its policy changes.
"""

from __future__ import annotations

from functools import cached_property

from simfloat.formats import Format
from simfloat.simulation.arithmetic import Arithmetic, Input
from simfloat.simulation.place import Place


class BoundOperation:
    """An operation at its place, on operands that are parameters at certain paths, or activations.

    `paths` are the paths of the operands that are parameters, moved or not. `border` is the place of the outermost
    fused composite around the operation, if there is one.
    """

    def __init__(self, place: Place, paths: tuple[str | None, ...], border: Place | None) -> None:
        self.place, self.paths, self.border = place, paths, border
        self.is_observed = tuple([place.observer is not None and path is not None for path in paths])
        # The arithmetic of the backward pass to each operand, from its first use on, if it does not depend on a format.
        self.to_operands: list[Arithmetic | None] = [None] * len(paths)
        self._forward_inputs: dict[int, tuple[Format, Input]] = {}

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The rounding of each operand of a contraction, in the backward pass and, for activations, in both."""
        return tuple([self.place.input(path) for path in self.paths])

    def forward_input(self, number: int, format: Format | None) -> Input:
        """Return the rounding of an operand of a contraction in the forward pass, when the format of a parameter is
        known.

        Before the backward pass, the parameter may be written to, so `inputs` assume no format.
        """
        if format is None:
            return self.inputs[number]
        last_format, last_input = self._forward_inputs.get(number, (None, None))
        if last_format is not format or last_input is None:
            last_input = self.place.input(self.paths[number], format)
            self._forward_inputs[number] = format, last_input
        return last_input

    def backward(self, number: int, format: Format | None = None) -> Arithmetic:
        """Return the arithmetic of the backward pass to an operand; `format` is its format, if gradients take it."""
        path, place = self.paths[number], self.place
        arithmetic = place.to_activation(number, format) if path is None else place.to_weight(path, number, format)
        if format is None:
            self.to_operands[number] = arithmetic
        return arithmetic
