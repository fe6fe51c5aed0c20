"""Rules by the formulas of `simfloat.simulation.formulas`, which have no PyTorch in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.handlers import Rule
from simfloat.torch.phases import target_operand
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, numbers_of

#: (arithmetic, *arguments of the operation, tensors as arrays) -> its result, or a tuple of results
Function = Callable[..., Any]


def array_of(x: Any) -> Any:
    """A tensor as an array, integers and truth values as they are; anything else itself."""
    if not isinstance(x, torch.Tensor):
        return x
    return numbers_of(x) if x.is_floating_point() else x.numpy()


class Formula(Rule):
    """A composite by its formula: forward every step has a place of its own, backward all have the composite's.

    Of what the function gives, so many are results, which are rounded once where the composite is fused; what follows
    is kept for the backward pass.
    """

    how = "decomposition"

    def __init__(self, operation: str, function: Function, results: int = 1) -> None:
        super().__init__(operation, self.compute)
        self.function, self.results = function, results

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> Any:
        """The results, laid out in memory as the operands are."""
        # Formulas know NumPy's arrays only, so that one text serves both front ends. Integers stay integers: they are
        # class numbers, sizes or masks, and no operands.
        arrays = [array_of(x) for x in args]
        u = call.begin_composite([array for array, x in zip(arrays, args, strict=True) if is_operand(x)])
        outputs = self.function(u, *arrays, **options)
        if not isinstance(outputs, tuple):
            return call.result(u, outputs)
        results, saved = outputs[: self.results], outputs[self.results :]
        return (*(call.result(u, x) for x in results), *(call.saved_for_backward(u, x) for x in saved))


class GradientRule(Rule):
    """The gradient of an operand, all of whose steps have one place: that of an operation which is no composite."""

    def __init__(self, operation: str, function: Function) -> None:
        super().__init__(operation, self.compute)
        self.function = function

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The gradient, laid out in memory as the operands are."""
        u = call.begin()
        return call.result(u, self.function(u, *map(array_of, args), **options))


class CompositeGradients(Rule):
    """The gradients of several operands of a composite, in their order: a function for each.

    `wanted` says of the operation's arguments which of them are asked for; by default all are.
    """

    how = "decomposition"

    def __init__(
        self, operation: str, *functions: Function, are_wanted: Callable[..., Sequence[bool]] | None = None
    ) -> None:
        self.formulas, self.wanted = [Formula(operation, function) for function in functions], are_wanted
        super().__init__(operation, self.formulas[0].compute)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The gradients, None for one that is not wanted."""
        are_wanted = [True] * len(self.formulas) if self.wanted is None else self.wanted(*args, **options)
        gradients: list[Any] = []
        for number, slope in enumerate(self.formulas):
            # Each formula gets its own copy of the options, because a rule takes the dtype out of them.
            with target_operand(self.operand_number(number, args)):
                gradients.append(slope(run, func, args, dict(options), into) if are_wanted[number] else None)
        return tuple(gradients)

    def operand_number(self, number: int, args: Arguments) -> int:
        """Which operand of the forward operation the gradient of this number is that of."""
        return number


def is_operand(x: Any) -> bool:
    """Whether an argument is a tensor of numbers that are rounded."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()
