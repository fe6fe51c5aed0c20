"""Run recurrent layers with all steps of a layer in one call, if nothing needs the single operations.

The steps use the arithmetic of the single operations, on arrays and on recorded tensors.

The steps of a layer in one direction are one operation of autograd, with the bits of the single operations.
`StepWeights` gives each step its own tensor of the weights, because each step has its own node for them in PyTorch;
then contributions to gradients are added in the same order. A recorded backward pass reads results, and their gradients
lead autograd back to this node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format
from simfloat.simulation import Simulation
from simfloat.simulation.arithmetic import Arithmetic, Elementwise, PendingEvents
from simfloat.simulation.formulas import slopes
from simfloat.simulation.formulas.recurrent import CELLS, Cell, add_gradients
from simfloat.simulation.place import Place
from simfloat.torch.forward_log import place_observed_once
from simfloat.torch.open_run import active_run, without_dispatch
from simfloat.torch.phases import current_number, target_operand
from simfloat.torch.quick_formulas import (
    are_plain,
    gradient_arithmetic,
    has_saved_tensor_hooks,
    needed_gradients,
    unwatched_place,
)
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import Tag, numbers_of, put_tag, stored_format, tag_of, tensor_of, tensor_on, weight_path


class RecurrentArithmetic(Elementwise):
    """The arithmetic of the steps of a layer in the forward pass: every operation at its own place."""

    def __init__(self, simulation: Simulation, path: str) -> None:
        self._simulation, self._path = simulation, path
        self._arithmetics: dict[str, Arithmetic] = {}
        self.products = self.place("linear")

    def place(self, operation: str) -> Place:
        """Return the place of an operation."""
        return place_observed_once(self._simulation.place(operation, self._path))

    def apply(self, operation: str, *operands: NDArray) -> NDArray:
        """Return the result of an operation of the catalog."""
        arithmetic = self._arithmetics.get(operation)
        return (self._at(operation) if arithmetic is None else arithmetic).apply(operation, *operands)

    def _at(self, operation: str) -> Arithmetic:
        # A step uses an arithmetic about ten times, and a layer has many steps, so each place is looked up once per
        # call of the layer.
        arithmetic = self._arithmetics.get(operation)
        if arithmetic is None:
            arithmetic = self._arithmetics[operation] = self._arithmetic_of(self.place(operation))
        return arithmetic

    def _arithmetic_of(self, place: Place) -> Arithmetic:
        return place.forward

    def relu(self, x: NDArray) -> NDArray:
        """Return x if it is above 0, otherwise 0."""
        return slopes.positive_part(self._at("relu"), x)

    def split(self, x: NDArray, sizes: list[int]) -> list[NDArray]:
        """Return parts of these sizes along the last axis."""
        return np.split(x, np.cumsum(sizes[:-1]).tolist(), -1)

    def hidden_gates(self, h: NDArray, weight: NDArray, path: str, bias: NDArray | None) -> NDArray:
        """Return the contribution of the hidden state to the gates, by the weight at a path."""
        place = self.products
        product = place.forward.matmul(h, weight, place.input(), place.input(path))
        return product if bias is None else self.add(product, bias)


class RecurrentGradients(RecurrentArithmetic):
    """The arithmetic of the backward pass through the steps of a layer."""

    def __init__(self, simulation: Simulation, path: str) -> None:
        super().__init__(simulation, path)
        self._derivatives: dict[int, NDArray] = {}  # of functions, by the identity of the result
        #: The events of gradients of parameters, by the number of the operand; their path is not known yet.
        self.events: dict[int, PendingEvents | None] = {}
        self.padded_gates: list[NDArray] = []  # gradients of gates in which missing parts are zeros

    def derive(self, cell: Cell, results: Sequence[NDArray]) -> None:
        """Compute the derivatives of functions for their results in all steps."""
        # The derivatives do not depend on gradients, so they are two operations instead of two for each step. A step
        # of nn.LSTM (2 layers of 64, 25 steps) takes 0.9 times as long.
        # An observer counts the derivatives only of the results that a gradient reaches.
        if self.products.observer is not None:
            return
        for function, derivative in (("sigmoid", slopes.sigmoid_derivative), ("tanh", slopes.tanh_derivative)):
            chosen = [x for x, name in zip(results, cycle(cell.functions), strict=False) if name == function]
            if chosen:
                derivatives = derivative(self._at(function), np.stack(chosen))
                self._derivatives.update(zip(map(id, chosen), derivatives, strict=True))

    def _arithmetic_of(self, place: Place) -> Arithmetic:
        return place.to_activation()

    def negative(self, g: NDArray) -> NDArray:
        """Return -g, the gradient of the second operand of a subtraction."""
        return self._at("subtract").round(-g)

    def sigmoid(self, g: NDArray, y: NDArray) -> NDArray:
        """Return the gradient through a sigmoid."""
        derivative, u = self._derivatives.get(id(y)), self._at("sigmoid")
        return slopes.sigmoid(u, g, y) if derivative is None else u.multiply(g, derivative)

    def tanh(self, g: NDArray, y: NDArray) -> NDArray:
        """Return the gradient through a tanh."""
        derivative, u = self._derivatives.get(id(y)), self._at("tanh")
        return slopes.tanh(u, g, y) if derivative is None else u.multiply(g, derivative)

    def relu_slope(self, g: NDArray, y: NDArray) -> NDArray:
        """Return the gradient through a ReLU."""
        return slopes.relu(self._at("relu"), g, y)

    def concatenate(self, parts: Sequence[NDArray | None]) -> NDArray | None:
        """Concatenate gradients; a missing one is zero."""
        like = next((x for x in parts if x is not None), None)
        if like is None:
            return None
        gates = np.concatenate([np.zeros_like(like) if x is None else x for x in parts], 1)
        if any(x is None for x in parts):
            self.padded_gates.append(gates)
        return gates

    def enter_addition(self, g: NDArray) -> NDArray:
        """Return the gradient of the gates before the bias was added; if it is padded, an observer counts it."""
        # PyTorch's zeros have the format FP32, so the addition rounds the gradient that contains them.
        is_padded = self.products.observer is not None and any(g is x for x in self.padded_gates)
        return self._at("add").round(g) if is_padded and self._at("add").format != FP32 else g

    def stack(self, gradients: Sequence[NDArray | None], like: NDArray) -> NDArray:
        """Stack gradients of steps; a missing one is zero."""
        if any(g is None for g in gradients):
            self.padded_gates.append(like)
        return np.stack([np.zeros_like(like) if g is None else g for g in gradients])

    def to_state(self, g: NDArray, weight: NDArray, path: str) -> NDArray:
        """Return the gradient of the hidden state."""
        place = self.products
        return self._at("linear").matmul(g, weight.T, place.gradient, place.input(path))

    def to_weight(self, g: NDArray, h: NDArray, path: str, number: int) -> NDArray:
        """Return the gradient of the weight at a path."""
        place, u = self.products, gradient_arithmetic(self.products, path, 1, None)
        gradient = u.matmul(g.T, h, place.gradient, place.input()).T
        self.events[number] = _detached_events(u)
        return gradient

    def to_bias(self, g: NDArray, path: str, number: int) -> NDArray:
        """Return the gradient of the bias at a path."""
        u = gradient_arithmetic(self.place("add"), path, 1, None)
        gradient = u.sum(g, (0,))
        self.events[number] = _detached_events(u)
        return gradient

    def total(self, shares: Sequence[NDArray], path: str) -> tuple[NDArray, PendingEvents | None]:
        """Return the sum of shares in the gradient of a parameter, in their order, and the events of the last one."""
        (total, *others), u, events = shares, gradient_arithmetic(self.products, path, 1, None), None
        for x in others:
            if events is not None:
                events.release()
            total = u.add(total, x)
            events = _detached_events(u)
        return total, events


def _detached_events(u: Arithmetic) -> PendingEvents | None:
    """Return the events that the arithmetic of the gradient of a parameter has stored; None without an observer."""
    observer = u.target.observer
    return observer.detach() if isinstance(observer, PendingEvents) else None


class RecordedGradients:
    """The derivatives of `RecurrentGradients` as operations that autograd records, for gradients of gradients."""

    add, multiply = staticmethod(torch.add), staticmethod(torch.mul)
    sigmoid = staticmethod(torch.ops.aten.sigmoid_backward)
    tanh = staticmethod(torch.ops.aten.tanh_backward)

    @staticmethod
    def negative(g: torch.Tensor) -> torch.Tensor:
        """Return -g, the gradient of the second operand of a subtraction."""
        with target_operand(0, "subtract"):
            return -g

    @staticmethod
    def relu_slope(g: torch.Tensor, y: torch.Tensor) -> Any:
        """Return the gradient through a ReLU."""
        with target_operand(0, "relu"):
            return torch.ops.aten.threshold_backward(g, y, 0)

    @staticmethod
    def concatenate(parts: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        """Concatenate gradients; a missing one is zero."""
        like = next((x for x in parts if x is not None), None)
        return None if like is None else torch.cat([torch.zeros(like.shape) if x is None else x for x in parts], 1)

    @staticmethod
    def enter_addition(g: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the gates before the bias was added; if it is padded, an observer counts it."""
        run: Any = active_run()
        node = run and run.backward_nodes.current()
        if node is None or node.note is None or node.note.place.observer is None:
            return g
        u = RecurrentGradients(run.simulation, node.note.place.path)._at("add")
        if tag_of(g).format not in (None, u.format):
            with without_dispatch():
                u.round(numbers_of(g))
        return g

    @staticmethod
    def stack(gradients: Sequence[torch.Tensor | None], like: torch.Tensor) -> torch.Tensor:
        """Stack gradients of steps; a missing one is zero."""
        return torch.stack([torch.zeros(like.shape) if g is None else g for g in gradients])

    @staticmethod
    def to_state(g: torch.Tensor, weight: torch.Tensor, path: str) -> torch.Tensor:
        """Return the gradient of the hidden state."""
        return g.mm(weight.t())

    @staticmethod
    def to_weight(g: torch.Tensor, h: torch.Tensor, path: str, number: int) -> torch.Tensor:
        """Return the gradient of the weight, the operand of this number."""
        with target_operand(number):
            return g.t().mm(h).t()

    @staticmethod
    def to_bias(g: torch.Tensor, path: str, number: int) -> torch.Tensor:
        """Return the gradient of the bias, the operand of this number."""
        with target_operand(number, "add"):
            return g.sum(0)


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
        bool  # True if hooks of the program save values for the backward pass, and may run the layer again
    )

    @property
    def operand_count(self) -> int:
        """The number of states, and of the weights of all steps."""
        return self.states + len(self.parameters) * self.steps

    def without_run(self) -> AbstractContextManager[Any]:
        """Return a block in which the run does not receive the tensors that are saved."""
        return nullcontext() if self.has_saved_tensor_hooks else without_dispatch()

    def order(self) -> range:
        """Return the steps in their order."""
        return range(self.steps - 1, -1, -1) if self.is_reversed else range(self.steps)


class StepWeights(torch.autograd.Function):
    """A transposed parameter of a layer, as a separate tensor for every step; the first one belongs to the last step.

    The arguments are the layer, the path of the parameter, and the parameter once for every step.
    """

    @staticmethod
    @in_usual_environment
    def forward(context: Any, layer: RecurrentLayer, path: str, *parameters: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors."""
        run, parameter = layer.run, parameters[0]
        context.set_materialize_grads(False)
        context.layer, context.path = layer, path
        context.save_for_backward(parameter)
        note = run.notes.begin(run.simulation.place("movement", layer.path), parameters)
        tag = Tag(stored_format(parameter), owner=path, is_weight=True)
        if note is not None:
            note.format, note.weight = tag.format, path
        array = numbers_of(run.parameters.read(parameter)).T
        # All of these tensors share one memory, which is only read. Each step has its own tensor, because each has its
        # own node in PyTorch, and autograd adds the shares of the weight's gradient in the order of these nodes.
        transposed = [tensor_on(array) for _ in parameters]
        for x in transposed:
            put_tag(x, tag)
        return tuple(transposed)

    @staticmethod
    @in_usual_environment
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients, or their sum if nothing else is computed with the parameter."""
        layer, path, (parameter,) = context.layer, context.path, context.saved_tensors
        shares, (leaf, _) = [g for g in gradients if g is not None], context.next_functions[0]
        # If the leaf has exactly as many shares as there are steps, nothing else reads the parameter. The engine would
        # add these shares in this order, and each addition would call Python.
        if torch.is_grad_enabled() or len(shares) < 2 or layer.run.backward_nodes.share_count(leaf) != layer.steps:
            return None, None, *(None if g is None else g.t() for g in gradients)
        u = RecurrentGradients(layer.run.simulation, layer.path)
        with without_dispatch():
            for events in [tag_of(g).events for g in shares]:
                if events is not None:
                    events.release()
            total, last = u.total([numbers_of(g) for g in shares], path)
            total_gradient = gradient_of(total.T, u.products.to_weight(path, 1).format, parameter.dtype, last)
        return None, None, total_gradient, *[None] * (layer.steps - 1)


class RecurrentSteps(torch.autograd.Function):
    """(layer, input_gates, *state, *weights of steps) -> for each step its state, and the values for the backward pass.

    `input_gates` has the shape (L, N, gates * size): the contribution of the input to the gates. A GRU reads its state
    in two operations, so its first state is passed again, as the last operand. Autograd adds both gradients.
    """

    @staticmethod
    @in_usual_environment
    def forward(context: Any, layer: RecurrentLayer, input_gates: Tensor, *operands: Tensor) -> tuple[Tensor, ...]:
        """Return the results, step by step."""
        run = layer.run
        context.set_materialize_grads(False)
        context.layer = layer
        note = run.notes.begin(run.simulation.place("linear", layer.path), (input_gates, *operands))
        operands = operands[: layer.operand_count]
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
            note.format, note.is_composite = tag.format, True
        # Results are also saved, not only the values that the formula reads: a recorded backward pass must find them as
        # results of this node, so that gradients of gradients are added in the same order.
        context.save_for_backward(*operands, *results)
        return tuple(results)

    @staticmethod
    @in_usual_environment
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of `input_gates`, the state, and the weights."""
        layer: RecurrentLayer = context.layer
        with layer.without_run():
            tensors, needed = context.saved_tensors, context.needs_input_grad[1:]
        needed = needed_gradients(layer.run, needed, [True] * len(needed))
        if torch.is_grad_enabled():
            node = layer.run.backward_nodes.current()
            if node is not None and node.way is not None:
                # The prehook began to defer, because the operands have different roles. This node assigns all gradients
                # itself.
                node.way.deferred = None  # each gradient is computed once, and assigned
            return None, *backward_steps(layer, RecordedGradients(), tensors, gradients, needed)
        u = RecurrentGradients(layer.run.simulation, layer.path)
        with without_dispatch():
            arrays = [numbers_of(x) for x in tensors]
            result_gradients = [None if g is None else numbers_of(g) for g in gradients]
            u.derive(layer.cell, arrays[layer.operand_count :])
            step_gradients = backward_steps(layer, u, arrays, result_gradients, needed)
            format, dtype = u.place("multiply").to_activation().format, tensors[0].dtype
            of_weights = 1 + layer.states
            formats = {0: FP32 if u.padded_gates else format}
            for number, path in enumerate(layer.parameters):
                begin, of_path = of_weights + number * layer.steps, u.products.to_weight(path, 1).format
                formats.update(dict.fromkeys(range(begin, begin + layer.steps), of_path))
            gradient_tensors = [
                None if g is None else gradient_of(g, formats.get(number, format), dtype, u.events.get(number))
                for number, g in enumerate(step_gradients)
            ]
        return None, *gradient_tensors


def gradient_of(array: NDArray, format: Format, dtype: torch.dtype, events: PendingEvents | None = None) -> Tensor:
    """Convert a gradient to a tensor; its tag has the format, and the events whose path is not known yet."""
    tensor = tensor_of(array, dtype)
    put_tag(tensor, Tag(format, True, node=current_number(), events=events))
    return tensor


def backward_steps(
    layer: RecurrentLayer, u: Any, tensors: Sequence[Any], gradients: Sequence[Any], needed: Sequence[bool]
) -> list[Any]:
    """Return the gradients of `input_gates`, of the state before the first step, and of weights, the last step first.

    `needed` states for each of these if it is required. If it has one element more, the state before the first step
    is also the last operand. The gradient of this operand is the share through the product with the weight.
    """
    cell, states, steps, paths = layer.cell, layer.states, layer.steps, layer.parameters
    count, width = layer.operand_count, len(cell.functions)
    operands, results = tensors[:count], tensors[count:]
    operand_gradients: list[Any] = [None] * (1 + count)
    of_gates: list[Any] = [None] * steps
    later: list[list[Any]] = [[] for _ in range(states)]  # the gradients of each state from the following step
    for place, t in enumerate(reversed(layer.order())):
        first = (steps - 1 - place) * width
        after, saved = results[first : first + states], results[first + states : first + width]
        before = operands[:states] if place == steps - 1 else results[first - width : first - width + states]
        to_state = [
            add_gradients(u, g, *more) for g, more in zip(gradients[first : first + states], later, strict=True)
        ]
        further = gradients[first + states : first + width]
        at, needed_parts = 1 + states + place, (True,) * (states + 1)
        if place == steps - 1:  # the state before the first step may need no gradient
            of_hidden = needed[1] or any(needed[number] for number in range(at, len(needed), steps))
            needed_parts = *needed[1 : 1 + states], of_hidden
        of_input_gates, hidden, of_state = cell.slopes(u, to_state, further, saved, before, after, needed_parts)
        of_gates[t], later = of_input_gates, [[g] for g in of_state]
        # No gradient reaches the gates of this step, so its weights get none.
        if hidden is None:
            continue
        if len(paths) > 1:
            hidden = u.enter_addition(hidden)
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
        operand_gradients[0] = u.stack(of_gates, like)
    if len(needed) > 1 + count:
        operand_gradients += [later[0].pop() if len(later[0]) > 1 else None]
    operand_gradients[1 : 1 + states] = [
        add_gradients(u, *more) if wanted else None for more, wanted in zip(later, needed[1:], strict=False)
    ]
    return operand_gradients


def layer_in_one_call(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that wraps PyTorch's function of this name."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            run: Any = active_run()
            place = None if run is None or options or len(args) != 9 else unwatched_place(run, "linear")
            if place is None or not are_parameters(name, args):
                return function(*args, **options)
            # A step consists of many operations, each of which an override may name.
            if any(each.operation is not None for each in place.active_policy.policy.overrides):
                return function(*args, **options)
            # For gradients of gradients of a GRU by its inputs alone, one call computes products that PyTorch omits.
            if name == "gru" and place.observer is not None:
                return function(*args, **options)
            # With single operations, PyTorch calls Python 2,477 times in a step of nn.LSTM (2 layers of 64, 25 steps),
            # with 392,000 calls of Python functions, and it took 444 to 530 ms. With one call per layer, there are 110
            # calls; it takes 124 to 133 ms.
            run.count_operation(getattr(torch.ops.aten, name).input, "loop")
            return layers(run, name, *args)

        return call

    return wrapper


def are_parameters(name: str, arguments: Sequence[Any]) -> bool:
    """True for layers in float32 whose weights are parameters of the model, with states that are ordinary values."""
    x, states, parameters, has_biases, count, *_, batch_first = arguments
    initial_states = states if isinstance(states, tuple | list) else (states,)
    tensors, each = (x, *initial_states, *parameters), 4 if has_biases else 2
    if not are_plain(*tensors) or x.ndim != 3 or len(parameters) not in (count * each, 2 * count * each):
        return False
    rows, size = parameters[1].shape[0], parameters[1].shape[-1]
    shape = (len(parameters) // each, x.shape[0 if batch_first else 1], size)
    if rows != CELLS[name].gates * size or any(state.shape != shape for state in initial_states):
        return False
    # A parameter as the first state has the role of a parameter in products, and so has its gradient.
    if any((tag := tag_of(x)).is_weight or tag.is_gradient or tag.narrow is not None for x in initial_states):
        return False
    return all(weight_path(p) is not None for p in parameters)


def layers(
    run: RunContext, name: str, x: Tensor, states: Any, parameters: Sequence[Tensor], has_biases: bool, count: int,
    dropout: float, training: bool, is_bidirectional: bool, batch_first: bool, steps: Callable[..., Any] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the outputs and the last states, by PyTorch's operations; `steps` computes all steps of a layer."""
    steps = steps or steps_in_one_call
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
            # Between layers as in PyTorch: equally many random numbers, in the same order, from the same generator.
            x = torch.dropout(x, dropout, True)
    ends = [torch.stack(ends, 0) for ends in zip(*after, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *ends)


def steps_in_one_call(
    run: RunContext,
    name: str,
    input_gates: Tensor,
    before: tuple[Tensor, ...],
    hidden: Sequence[Tensor],
    is_reversed: bool,
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Return the outputs of one layer in one direction, in the order of time, and its last state."""
    count, cell = input_gates.shape[0], CELLS[name]
    paths = tuple(str(weight_path(p)) for p in hidden)
    layer = RecurrentLayer(run, name, run.path, cell, is_reversed, paths, len(before), count, has_saved_tensor_hooks())
    # Otherwise each tensor that autograd saves and unpacks would call Python.
    with layer.without_run():
        weights = [
            w for p, path in zip(hidden, paths, strict=True) for w in StepWeights.apply(layer, path, *[p] * count)
        ]
        # With create_graph=True, an operation of the backward pass also reads the first state. PyTorch adds its
        # gradient first, and then the gradients of the two operations of the forward pass.
        again = before if name == "gru" and before[0].requires_grad else ()
        results = RecurrentSteps.apply(layer, input_gates, *before, *weights, *again)
    width = len(cell.functions)
    outputs = list(results[::width])
    last = results[len(results) - width :][: len(before)]
    return outputs[::-1] if is_reversed else outputs, tuple(last)
