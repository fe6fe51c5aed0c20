"""The tensors among arguments: of operations, those that are read and written; of the call of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch

Tensor = torch.Tensor


def tensors_in(result: Any) -> Iterator[Tensor]:
    """The tensors of what a module gives: one, or several in a list, a tuple or a dictionary."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping | list | tuple):
        for value in result.values() if isinstance(result, Mapping) else result:
            yield from tensors_in(value)


@cache
def is_view(function: Any) -> bool:
    """Whether an operation gives other views of the memory of an operand."""
    # The schema marks aliases: `Tensor(a)` is a view, `Tensor(a!)` is written to.
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
    return tuple(
        [
            value if is_written else read(value) if isinstance(value, Tensor) else replace_tensors(value, read)
            for value, is_written in zip(arguments, _are_written(function), strict=False)
        ]
    )


@cache
def _are_written(function: Any) -> tuple[bool, ...]:
    """Of each argument of an operation whether it is written to."""
    aliases = [x.alias_info for x in function._schema.arguments]
    return tuple([alias is not None and alias.is_write for alias in aliases])


def replace_tensors(value: Any, real: Callable[[Tensor], Tensor]) -> Any:
    """An argument, or several, with other tensors."""
    if isinstance(value, Tensor):
        return real(value)
    if isinstance(value, dict):
        return {key: replace_tensors(x, real) for key, x in value.items()}
    # Exactly these types: a NamedTuple takes its fields one by one, and no generator.
    return type(value)(replace_tensors(x, real) for x in value) if type(value) in (list, tuple) else value


def call_model(model: torch.nn.Module, *arguments: Any, **named: Any) -> Any:
    """Call a model. Raise ValueError with what was passed, and what to pass, where PyTorch raises TypeError."""
    try:
        return model(*arguments, **named)
    except TypeError as error:
        kinds = ", ".join(type(argument).__name__ for argument in (*arguments, *named.values()))
        raise ValueError(
            f"{type(model).__name__} cannot be called with what was given ({kinds}): {error} Pass what it is called "
            "with, as tensors: torch.as_tensor(x) makes one of an array."
        ) from error
