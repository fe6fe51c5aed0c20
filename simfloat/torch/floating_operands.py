"""The numbers that an operation of PyTorch takes, and what is said of those that have no rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from simfloat.torch.run_context import RunContext

Arguments = tuple[Any, ...]
Options = dict[str, Any]

#: As what PyTorch gives several tensors.
LISTS = (list, tuple)

#: What there is to do about numbers that have no rules.
COMPLEX = "complex numbers have no rules; write the module in real numbers."
SPARSE = "sparse tensors have no rules; make the layer dense, as by nn.Embedding(sparse=False)."


def floating_tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors of floating or complex numbers among arguments, in their order."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dtype.is_floating_point or value.dtype.is_complex:
                tensors.append(value)
        elif isinstance(value, LISTS):
            tensors += floating_tensors_in(value)
    return tensors


def operands_of(run: RunContext, func: Any, args: Arguments, options: Options) -> list[torch.Tensor]:
    """The tensors of floating numbers among an operation's arguments; ValueError for complex and sparse ones."""
    # This runs for every operation, and most have no options: then no tuple is built.
    operands = floating_tensors_in((*args, *options.values()) if options else args)
    for x in operands:
        if x.dtype.is_complex:
            raise refusal(run, func, COMPLEX)
        if x.layout is not torch.strided:
            raise refusal(run, func, SPARSE)
    return operands


def integer_result(func: Any, args: Arguments, options: Options) -> tuple[Any, list[torch.Tensor]]:
    """Return PyTorch's result for arguments without floating numbers, and the floating tensors in it.

    These are quotients and the like, which a policy rounds; what is made of no tensor is data, and not among them.
    """
    result = func(*args, **options)
    # arange or full of integers makes numbers of no tensor. These are data, as an input is, and are not rounded.
    is_of_tensors = any(isinstance(x, torch.Tensor) for x in args)
    return result, floating_tensors_in(result if isinstance(result, LISTS) else (result,)) if is_of_tensors else []


def refusal(run: RunContext, func: Any, remedy: str) -> ValueError:
    """Return the error for an operation that cannot be carried out."""
    where = f"in layer {run.path!r}" if run.path else "outside of any layer"
    return ValueError(f"{func} {where} cannot be simulated: {remedy}")
