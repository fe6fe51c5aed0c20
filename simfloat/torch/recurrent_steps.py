"""The steps of a recurrent layer in one direction as one operation of autograd, with the bits of its single ones.

Each gets a tensor of its own for the weights, by `StepWeights`, as each has a node of its own for them, so that shares
of gradients are added in the same order. What a recorded way back reads are results, through whose gradients autograd
comes back here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.formulas.recurrent_cells import Cell, add_gradients
from simfloat.torch.open_run import without_dispatch
from simfloat.torch.phases import current_number
from simfloat.torch.recurrent_arithmetic import RecordedGradients, RecurrentArithmetic, RecurrentGradients
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import Tag, put_tag, stored_format
from simfloat.torch.tensor_arrays import numbers_of, tensor_of

Tensor = torch.Tensor


class RecurrentLayer(NamedTuple):
    """A layer in one direction."""

    run: RunContext
    name: str  # of PyTorch's function
    path: str
    cell: Cell
    is_reversed: bool
    parameters: tuple[str, ...]  # paths of the weight and the bias of the hidden state
    states: int
    steps: int
    has_saved_tensor_hooks: (
        bool  # whether hooks of the program's keep what the way back reads, and may run the layer again for it
    )

    def without_run(self) -> AbstractContextManager[Any]:
        """A block in which the run does not hear of tensors that are kept."""
        return nullcontext() if self.has_saved_tensor_hooks else without_dispatch()

    def order(self) -> range:
        """The steps in their order."""
        return range(self.steps - 1, -1, -1) if self.is_reversed else range(self.steps)


class StepWeights(torch.autograd.Function):
    """(layer, path, *a parameter, once for every step, the last one first) -> as many tensors of it transposed."""

    @staticmethod
    @in_usual_environment
    def forward(context: Any, layer: RecurrentLayer, path: str, *parameters: Tensor) -> tuple[Tensor, ...]:
        """The tensors."""
        run, parameter = layer.run, parameters[0]
        context.set_materialize_grads(False)
        context.layer, context.path = layer, path
        context.save_for_backward(parameter)
        note = run.notes.begin(run.simulation.place("movement", layer.path), parameters)
        tag = Tag(stored_format(parameter), owner=path, is_weight=True)
        if note is not None:
            note.format, note.weight = tag.format, path
        array = numbers_of(run.parameters.read(parameter)).T
        # All on one memory, which is only read. Each step has its tensor because each has a node of its own in PyTorch,
        # and autograd adds the shares of the weight's gradient in the order of these nodes.
        transposed = [torch.from_numpy(array) for _ in parameters]
        for x in transposed:
            put_tag(x, tag)
        return tuple(transposed)

    @staticmethod
    @in_usual_environment
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """The gradients; their sum where nothing else is computed with the parameter."""
        layer, path, (parameter,) = context.layer, context.path, context.saved_tensors
        shares, (leaf, _) = [g for g in gradients if g is not None], context.next_functions[0]
        # Where the leaf has exactly as many shares as there are steps nothing else reads the parameter, and the engine
        # would add these shares, in this order, each addition coming to Python.
        if torch.is_grad_enabled() or len(shares) < 2 or layer.run.backward_nodes.share_count(leaf) != layer.steps:
            return None, None, *(None if g is None else g.t() for g in gradients)
        u = RecurrentGradients(layer.run.simulation, layer.path)
        with without_dispatch():
            total = u.total([numbers_of(g) for g in shares], path)
            total_gradient = gradient_of(total.T, u.products.to_weight(path, 1).format, parameter.dtype)
        return None, None, total_gradient, *[None] * (layer.steps - 1)


class RecurrentSteps(torch.autograd.Function):
    """(layer, given, *state, *weights of steps) -> for each step its state, and what the way back reads.

    given is (L, N, gates * size): what the input makes of the gates.
    """

    @staticmethod
    @in_usual_environment
    def forward(context: Any, layer: RecurrentLayer, input_gates: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        """The results, step by step."""
        run = layer.run
        context.set_materialize_grads(False)
        context.layer = layer
        note = run.notes.begin(run.simulation.place(layer.name, layer.path), (input_gates, *operands))
        u = RecurrentArithmetic(run.simulation, layer.path)
        arrays = [numbers_of(x) for x in operands]
        state, results = tuple(arrays[: layer.states]), []
        weight, *biases = arrays[layer.states :: layer.steps]
        inputs = numbers_of(input_gates)
        for t in layer.order():
            hidden = u.hidden_gates(state[0], weight, layer.parameters[0], biases[0] if biases else None)
            state, saved = layer.cell.step(u, inputs[t], hidden, state)
            results += [tensor_of(x, input_gates.dtype) for x in (*state, *saved)]
        tag = Tag(u.products.forward.format)
        for x in results:
            put_tag(x, tag)
        if note is not None:
            note.format = tag.format
        # Results, too, and not only what the formula reads: a recorded way back has to find them as results of this
        # node, so that gradients of gradients are added in the same order.
        context.save_for_backward(*operands, *results)
        return tuple(results)

    @staticmethod
    @in_usual_environment
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """The gradients of given, the state, and the weights."""
        layer: RecurrentLayer = context.layer
        with layer.without_run():
            tensors, needed = context.saved_tensors, context.needs_input_grad[1:]
        if torch.is_grad_enabled():
            way = layer.run.backward_nodes.at_node(torch._C._current_autograd_node())
            if way is not None:
                # The prehook began to defer, since the operands have different roles. This node names them all itself.
                way.deferred = None  # each gradient is computed once, and named
            return None, *backward_steps(layer, RecordedGradients(), tensors, gradients, needed, torch.stack)
        u = RecurrentGradients(layer.run.simulation, layer.path)
        with without_dispatch():
            arrays = [numbers_of(x) for x in tensors]
            result_gradients = [None if g is None else numbers_of(g) for g in gradients]
            step_gradients = backward_steps(layer, u, arrays, result_gradients, needed, np.stack)
            format, dtype = u.place("multiply").to_activation().format, tensors[0].dtype
            of_weights = 1 + layer.states
            gradient_tensors = [
                None if g is None else gradient_of(g, format, dtype) for g in step_gradients[:of_weights]
            ]
            for number, g in enumerate(step_gradients[of_weights:]):
                path = layer.parameters[number // layer.steps]
                format = u.products.to_weight(path, 1).format
                gradient_tensors.append(None if g is None else gradient_of(g, format, dtype))
        return None, *gradient_tensors


def gradient_of(array: NDArray, format: Format, dtype: torch.dtype, owner: str | None = None) -> Tensor:
    """A gradient as a tensor of which its format is known, and whose it is if it is a parameter's complete one."""
    tensor = tensor_of(array, dtype)
    put_tag(tensor, Tag(format, True, owner, node=current_number()))
    return tensor


def backward_steps(
    layer: RecurrentLayer, u: Any, tensors: Sequence[Any], gradients: Sequence[Any], needed: Sequence[bool],
    stack: Callable[[list[Any]], Any],
) -> list[Any]:  # fmt: skip
    """The gradients of given, of the state before the first step, and of weights, those of the last step first.

    `needed` says of all of these whether they are asked for.
    """
    cell, states, steps, paths = layer.cell, layer.states, layer.steps, layer.parameters
    count, width = states + len(paths) * steps, states + cell.saved_count
    operands, results = tensors[:count], tensors[count:]
    operand_gradients: list[Any] = [None] * (1 + count)
    of_gates: list[Any] = [None] * steps
    later: list[list[Any]] = [[] for _ in range(states)]  # what comes to each state from the step after it
    for place, t in enumerate(reversed(layer.order())):
        first = (steps - 1 - place) * width
        after, saved = results[first : first + states], results[first + states : first + width]
        before = operands[:states] if place == steps - 1 else results[first - width : first - width + states]
        to_state = [
            add_gradients(u, g, *more) for g, more in zip(gradients[first : first + states], later, strict=True)
        ]
        further = gradients[first + states : first + width]
        of_input_gates, hidden, of_state = cell.slopes(u, to_state, further, saved, before, after)
        of_gates[t], later = of_input_gates, [[g] for g in of_state]
        # No gradient reaches the gates of this step, so its weights get none either.
        if hidden is None:
            continue
        at = 1 + states + place
        wanted = [at] * needed[at] + [0] * (place < steps - 1 or needed[1])
        for number in wanted[:: -1 if len(paths) > 1 else 1]:  # in the order of PyTorch's addmm, and of its mm
            if number:
                operand_gradients[at] = u.to_weight(hidden, before[0], paths[0], at)
            else:
                later[0].append(u.to_state(hidden, operands[at - 1], paths[0]))
        if len(paths) > 1 and needed[at + steps]:
            operand_gradients[at + steps] = u.to_bias(hidden, paths[1], at + steps)
    like = next((g for g in of_gates if g is not None), None)
    if needed[0] and like is not None:
        operand_gradients[0] = stack([like * 0 if g is None else g for g in of_gates])
    operand_gradients[1 : 1 + states] = [
        add_gradients(u, *more) if wanted else None for more, wanted in zip(later, needed[1:], strict=False)
    ]
    return operand_gradients
