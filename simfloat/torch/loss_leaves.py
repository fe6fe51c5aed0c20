"""The parameters that a loss was computed from."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def parameters_of(loss: torch.Tensor) -> Iterator[torch.nn.Parameter]:
    """The parameters on which a loss depends, by autograd's graph."""
    seen, stack = set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # of a node that accumulates a gradient
        if isinstance(leaf, torch.nn.Parameter):
            yield leaf
        stack += [function for function, _ in node.next_functions]
