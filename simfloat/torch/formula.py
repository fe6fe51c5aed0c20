"""Create rules from the formulas of `simfloat.simulation.formulas`, which do not use PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.handlers import Rule
from simfloat.torch.phases import target_operand
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, array_on, numbers_of

#: (arithmetic, *arguments of the operation, tensors as arrays) -> its result, or a tuple of results
Function = Callable[..., Any]


def array_of(x: Any) -> Any:
    """Convert a tensor to an array; integers and booleans stay unchanged. Return anything else unchanged."""
    if not isinstance(x, torch.Tensor):
        return x
    return numbers_of(x) if x.is_floating_point() else array_on(x)


class Formula(Rule):
    """A composite, computed by its formula. In the forward pass every step has its own place.

    In the backward pass all steps have the place of the composite. The first `results` values that the function returns
    are results; they are rounded once if the policy requires it. The other values are saved for the backward pass.
    """

    how = "decomposition"

    def __init__(self, operation: str, function: Function, results: int = 1) -> None:
        super().__init__(operation, self.compute)
        self.function, self.results = function, results

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> Any:
        """Return the results, with the memory layout of the operands."""
        # Formulas use only NumPy arrays, so that one text serves both front ends. Integers stay integers: they are
        # class indices, sizes or masks, not operands.
        arrays = [array_of(x) for x in args]
        u = call.begin_composite([array for array, x in zip(arrays, args, strict=True) if is_operand(x)])
        outputs = self.function(u, *arrays, **options)
        if not isinstance(outputs, tuple):
            return call.result(u, outputs)
        results, saved = outputs[: self.results], outputs[self.results :]
        return (*(call.result(u, x) for x in results), *(call.saved_for_backward(u, x) for x in saved))


class GradientRule(Rule):
    """The gradient of an operand of an operation that is not a composite; all its steps have one place."""

    def __init__(self, operation: str, function: Function) -> None:
        super().__init__(operation, self.compute)
        self.function = function

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the gradient, with the memory layout of the operands."""
        u = call.begin()
        return call.result(u, self.function(u, *map(array_of, args), **options))


class CompositeGradients(Rule):
    """The gradients of several operands of a composite, in their order, with a function for each.

    `are_wanted` returns, for the arguments of the operation, which gradients are needed; by default all are.
    """

    how = "decomposition"

    def __init__(
        self, operation: str, *functions: Function, are_wanted: Callable[..., Sequence[bool]] | None = None
    ) -> None:
        self.formulas, self.wanted = [Formula(operation, function) for function in functions], are_wanted
        super().__init__(operation, self.formulas[0].compute)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the gradients; None for one that is not needed."""
        are_wanted = [True] * len(self.formulas) if self.wanted is None else self.wanted(*args, **options)
        gradients: list[Any] = []
        for number, slope in enumerate(self.formulas):
            # Each formula gets its own copy of the options, because a rule takes the dtype out of them.
            with target_operand(self.operand_number(number, args)):
                gradients.append(slope(run, func, args, dict(options), into) if are_wanted[number] else None)
        return tuple(gradients)

    def operand_number(self, number: int, args: Arguments) -> int:
        """Return the number of the forward operand that the gradient of this number belongs to."""
        return number


def is_operand(x: Any) -> bool:
    """True if an argument is a floating-point tensor, which is rounded."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()
