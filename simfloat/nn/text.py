"""Models as text: the tree of their modules, with the number of parameters in each."""

from __future__ import annotations

from simfloat.nn.module import Module


def describe(module: Module) -> str:
    """The module as a tree in the manner of torch; a comment counts the parameters at and below each line."""
    head, tail = f"{type(module).__name__}({module.extra_repr()}", ")"
    if module._modules:
        parts = [f"({name}): {describe(child)}".replace("\n", "\n  ") for name, child in module._modules.items()]
        head, tail = "\n  ".join([head, *parts]), "\n)"
    count = sum(parameter.size for parameter in module.parameters())
    return f"{head}{tail}  # {count} parameters" if count else head + tail
