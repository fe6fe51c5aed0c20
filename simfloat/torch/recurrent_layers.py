"""PyTorch's recurrent layers with the steps of each layer in one call, where nobody looks at single operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch

from simfloat.formulas.recurrent_cells import CELLS
from simfloat.torch.open_run import active_run
from simfloat.torch.recurrent_steps import RecurrentLayer, RecurrentSteps, StepWeights
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import weight_path
from simfloat.torch.unwatched import has_saved_tensor_hooks, is_plain, is_unwatched

Tensor = torch.Tensor


def in_one_call(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper of PyTorch's function of this name."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            run: Any = active_run()
            if run is None or options or len(args) != 9 or not (is_unwatched(run) and are_parameters(name, args)):
                return function(*args, **options)
            # A step of nn.LSTM (2 layers of 64, 25 steps) by single operations is 2,477 calls that PyTorch hands over,
            # 392,000 calls of Python functions, and took 444 to 530 ms. In one call a layer 110 are handed over; it
            # takes 124 to 133 ms.
            run.count_operation(getattr(torch.ops.aten, name).input, "loop")
            return layers(run, name, *args)

        return call

    return wrapper


def are_parameters(name: str, arguments: Sequence[Any]) -> bool:
    """Whether the operands are those of layers in float32 whose weights are parameters of the model."""
    x, states, parameters, has_biases, count, *_, batch_first = arguments
    initial_states = states if isinstance(states, tuple | list) else (states,)
    tensors, each = (x, *initial_states, *parameters), 4 if has_biases else 2
    if not all(map(is_plain, tensors)) or x.ndim != 3 or len(parameters) not in (count * each, 2 * count * each):
        return False
    rows, size = parameters[1].shape[0], parameters[1].shape[-1]
    shape = (len(parameters) // each, x.shape[0 if batch_first else 1], size)
    if rows != CELLS[name].gates * size or any(state.shape != shape for state in initial_states):
        return False
    return all(weight_path(p) is not None for p in parameters)


def layers(
    run: RunContext, name: str, x: Tensor, states: Any, parameters: Sequence[Tensor], has_biases: bool, count: int,
    dropout: float, training: bool, is_bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the outputs and the last states, by PyTorch's operations except those of the steps."""
    each, directions = 4 if has_biases else 2, 1 + is_bidirectional
    state = tuple(states) if isinstance(states, tuple | list) else (states,)
    before = list(zip(*(s.unbind(0) for s in state), strict=True))
    x = x.transpose(0, 1) if batch_first else x
    after: list[tuple[Tensor, ...]] = []
    for number in range(count):
        sides = []
        for direction in range(directions):
            layer_parameters = parameters[len(after) * each : (len(after) + 1) * each]
            input_gates = torch._C._nn.linear(x, layer_parameters[0], layer_parameters[2] if has_biases else None)
            outputs, last = steps(run, name, input_gates, before[len(after)], layer_parameters[1::2], direction == 1)
            sides.append(torch.stack(outputs, 0))
            after.append(last)
        x = sides[0] if len(sides) == 1 else torch.cat(sides, sides[0].ndim - 1)
        if dropout and training and number < count - 1:
            # Between layers as PyTorch has it: as many random numbers, in the same order, from the same generator.
            x = torch.dropout(x, dropout, True)
    ends = [torch.stack(ends, 0) for ends in zip(*after, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *ends)


def steps(
    run: RunContext,
    name: str,
    input_gates: Tensor,
    before: tuple[Tensor, ...],
    hidden: Sequence[Tensor],
    is_reversed: bool,
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """The outputs of one layer in one direction, in the order of time, and its last state."""
    count, cell = input_gates.shape[0], CELLS[name]
    paths = tuple(str(weight_path(p)) for p in hidden)
    layer = RecurrentLayer(run, name, run.path, cell, is_reversed, paths, len(before), count, has_saved_tensor_hooks())
    # Tensors that autograd saves and unpacks would come to Python one by one.
    with layer.without_run():
        weights = [
            w for p, path in zip(hidden, paths, strict=True) for w in StepWeights.apply(layer, path, *[p] * count)
        ]
        results = RecurrentSteps.apply(layer, input_gates, *before, *weights)
    width = len(before) + cell.saved_count
    outputs = list(results[::width])
    last = results[len(results) - width :][: len(before)]
    return outputs[::-1] if is_reversed else outputs, tuple(last)
