"""The arguments of an operation: which tensors it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from simfloat.torch.paths import tensors_in

Tensor = torch.Tensor


@cache
def is_view(function: Any) -> bool:
    """Whether an operation gives other views of the memory of an operand."""
    schema = getattr(function, "_schema", None)  # a program as an operation has none
    aliases = (x.alias_info for x in schema.arguments) if schema is not None else ()
    return any(x is not None and not x.is_write for x in aliases)


def written_by(function: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operation writes to."""
    for number, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(arguments[number] if number < len(arguments) else options.get(argument.name))


def read_by(function: Any, arguments: tuple[Any, ...], read: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
    """The arguments, each but those that are written to as `read` has it."""
    kinds = [x.alias_info for x in function._schema.arguments]
    return tuple(
        value if alias is not None and alias.is_write else replaced(value, read)
        for value, alias in zip(arguments, kinds, strict=False)
    )


def replaced(value: Any, real: Callable[[Tensor], Tensor]) -> Any:
    """An argument, or several, with other tensors."""
    if isinstance(value, Tensor):
        return real(value)
    if isinstance(value, dict):
        return {key: replaced(x, real) for key, x in value.items()}
    return type(value)(replaced(x, real) for x in value) if type(value) in (list, tuple) else value
