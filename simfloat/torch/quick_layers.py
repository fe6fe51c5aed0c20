"""Run linear layers and convolutions as one call each, forward and backward, if nothing needs the single operations.

PyTorch has up to four operations for a linear layer and nine for its backward pass, and more to save and find results;
each of them calls Python. The results have the same bits as with these operations. An observer, random bits or an
override that distinguish the operations require the single operations.

Autograd has the same nodes as with these operations, except the node of the product, so that gradients are added in the
same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.policy.roles import MOVEMENT
from simfloat.simulation.arithmetic import Arithmetic, PendingEvents
from simfloat.simulation.formulas.convolution import Inputs
from simfloat.simulation.place import Place
from simfloat.torch.formula_rows import PRODUCT
from simfloat.torch.forward_log import LoggedOperation, Operand, rerun_number
from simfloat.torch.narrowing import linear_of_matrix
from simfloat.torch.open_run import active_run, without_dispatch
from simfloat.torch.phases import Backward
from simfloat.torch.quick_formulas import (
    are_plain,
    gradient_arithmetic,
    gradient_tensor,
    needed_gradients,
    run_formula,
    store_gradient,
    unwatched_place,
)
from simfloat.torch.rules.contractions import convolution_of
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import Tag, numbers_of, tag_of, tagged_tensor

Tensor = torch.Tensor
aten = torch.ops.aten


def linear_layer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap PyTorch's function of a linear layer."""
    by_operations = linear_of_matrix(function)

    @wraps(function)
    def call(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        run: Any = active_run()
        # With one call per linear layer and per update, a step of an MLP has 26 calls from PyTorch to Python instead of
        # 65. It takes 5.5 to 6.1 instead of 7.2 to 7.6 times as long as torch float32 on the Xeon of
        # benchmarks/history/intel-xeon.md.
        place = None if run is None else unwatched_place(run, "linear")
        if place is None:
            return by_operations(input, weight, bias)
        # Every single operation starts with this: it notices a change of policy, and new memory of a parameter.
        if run.parameters.is_outdated:
            run.parameters.arguments_as_read(aten.t.default, (weight, bias), {})
        tags = _parameter_tags(input, weight, bias)
        if tags is None or input.ndim not in (2, 3) or weight.ndim != 2 or input.shape[-1] != weight.shape[1]:
            return by_operations(input, weight, bias)
        if bias is not None and bias.shape != weight.shape[:1]:
            return by_operations(input, weight, bias)
        if input.ndim == 3 and not input.is_contiguous():
            # PyTorch copies the rows, and adds the bias in a separate operation.
            if not weight.requires_grad:
                return by_operations(input, weight, bias)
            product = call(input.reshape(-1, input.shape[-1]), weight).view(*input.shape[:-1], -1)
            return product if bias is None else product + bias
        layer = _layer_of(run, place, *tags)
        rows = input
        if input.ndim != 2:
            rows = _view_with_note(run, aten.view.default, place, input, tags[0], -1, input.shape[-1])
        # The transposition is a separate node, as in PyTorch. Then shares of the weight's gradient meet in the same
        # node, and are added in the same order, as in the single operations.
        weight = _view_with_note(run, aten.t.default, place, weight, tags[1])
        run.operation_counts.begin(aten.mm.default if bias is None else aten.addmm.default, "rule", place.path)
        product = apply_layer(layer, tags, MatrixFormula, (), rows, weight, bias)
        if input.ndim == 2:
            return product
        return _view_with_note(run, aten.view.default, place, product, layer.tag, *input.shape[:-1], product.shape[1])

    return call


def convolution_kernel(original: Any) -> Callable[..., Tensor]:
    """Return a kernel that runs a convolution in one call if possible, otherwise the original kernel."""

    def kernel(keys: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any) -> Any:
        run: Any = active_run()
        is_transposed = options[3]
        place = None if run is None else unwatched_place(run, "conv_transpose2d" if is_transposed else "conv2d")
        if place is not None and run.parameters.is_outdated:
            run.parameters.arguments_as_read(aten.convolution.default, (weight, bias), {})
        tags = None if place is None else _parameter_tags(x, weight, bias)
        if place is None or tags is None:
            return original.call_boxed(keys, x, weight, bias, *options)
        run.operation_counts.begin(aten.convolution.default, "rule", place.path)
        formula = convolution_of(x, weight, *options)
        return apply_layer(_layer_of(run, place, *tags), tags, formula, options, x, weight, bias)

    return kernel


class MatrixFormula:
    """The products of a linear layer: of rows and a transposed weight (k, n)."""

    @staticmethod
    def result(u: Arithmetic, x: NDArray, w: NDArray, inputs: Inputs) -> NDArray:
        """Return the product."""
        return u.matmul(x, w, *inputs)

    @staticmethod
    def to_x(u: Arithmetic, g: NDArray, w: NDArray, shape: Any, inputs: Inputs) -> NDArray:
        """Return the gradient of the rows."""
        return u.matmul(g, w.T, *inputs)

    @staticmethod
    def to_kernels(u: Arithmetic, g: NDArray, x: NDArray, shape: Any, inputs: Inputs) -> NDArray:
        """Return the gradient of the weight (n, k), which is not transposed."""
        return u.matmul(g.T, x, *inputs)


class Layer:
    """The arithmetic of a layer at its place, determined at the first call with these parameters."""

    def __init__(self, run: RunContext, place: Place, x_path: str | None, weight: Tag, bias: Tag | None) -> None:
        self.run, self.place, self.x_path, self.weight, self.bias = run, place, x_path, weight, bias
        self.products, self.inputs = place.forward, (place.input(x_path), place.input(weight.owner))
        self.addition = place if bias is None else run.simulation.sibling(place, "add", place.path, ())
        self.tag = Tag(self.addition.forward.format)

    def enter(self, g: Tensor, note: LoggedOperation, number: int) -> NDArray:
        """Return a gradient in the format of the gradients of the result, as the node of this number reads it."""
        tag = tag_of(g)
        if self.bias is not None and tag.is_gradient and tag.node != number and tag.format != self._result_gradients:
            own_note = LoggedOperation(self.place, note.operands, note.format)
            g = Backward(own_note, self.run.simulation, None).in_result_format(g)
        return numbers_of(g)

    @cached_property
    def without_observer(self) -> Layer:
        """This layer without an observer."""
        return Layer(self.run, self.place.without_observer, self.x_path, self.weight, self.bias)

    def observed_once(self) -> Layer:
        """Return this layer; without its observer while a part of a forward pass runs again."""
        return self if rerun_number() is None else self.without_observer

    def forget_events(self) -> None:
        """Forget the events of a backward pass that raised an error."""
        for arithmetic in (vars(self).get("to_weight"), vars(self).get("to_bias")):
            if arithmetic is not None and isinstance(arithmetic.target.observer, PendingEvents):
                arithmetic.target.observer.pending.clear()

    @cached_property
    def _result_gradients(self) -> Format:
        return self.addition.to_activation(0, self.tag.format).format

    def to_x(self, x: Operand) -> Arithmetic:
        """Return the arithmetic of the gradient of this operand."""
        if x.path is None:
            return self.place.to_activation(0, x.format)
        return gradient_arithmetic(self.place, x.path, 0, x.format)

    @cached_property
    def to_weight(self) -> Arithmetic:
        """The arithmetic of the gradient of the weight."""
        return gradient_arithmetic(self.place, str(self.weight.owner), 1, self.weight.format)

    @cached_property
    def to_bias(self) -> Arithmetic:
        """The arithmetic of the gradient of the bias."""
        # The gradient of a bias is a sum, so `roles_used` must include the role `reduce` for this place.
        self.addition.has_summed = True
        return gradient_arithmetic(self.addition, str(self.bias and self.bias.owner), 1, self.tag.format)


def _parameter_tags(x: Any, *parameters: Any) -> tuple[Tag, ...] | None:
    """Return the tags of x and of parameters, each if it is given; None for other tensors, and for a gradient."""
    operands = [x, *[each for each in parameters if each is not None]]
    if not are_plain(*operands):
        return None
    tags = tuple([tag_of(operand) for operand in operands])
    return None if tags[0].is_gradient or not all([tag.is_weight for tag in tags[1:]]) else tags


def _layer_of(run: RunContext, place: Place, x: Tag, weight: Tag, bias: Tag | None = None) -> Layer:
    """Return the arithmetic of a layer for operands with these tags."""
    # A change of policy replaces all places, so no layer outlives the policy that it was determined for. Layers are
    # stored here and not in modules, because modules are copied, pickled and moved.
    key = x.owner if x.is_weight else None, weight.owner, bias and bias.owner
    layer: Layer | None = place.bound_layers.get(key)
    if layer is None:
        layer = place.bound_layers[key] = Layer(run, place, key[0], weight, bias)
    return layer


def _view_with_note(run: RunContext, operation: Any, beside: Place, x: Tensor, tag: Tag, *shape: int) -> Tensor:
    """Return a view of a tensor with this tag, with the autograd node and the note of an operation beside a place."""
    run.operation_counts.begin(operation, "movement", beside.path)
    with without_dispatch():
        # Autograd creates its node in any case; only the call of Python is left out.
        view = x.view(shape) if shape else x.t()
    if torch.is_grad_enabled():
        note = run.notes.begin(run.simulation.place_at(MOVEMENT, beside.path, beside.operations[:-1]), [x], [tag])
        if note is not None:
            note.format, note.weight = tag.format, tag.owner if tag.is_weight else None
    return view


class LayerProduct(torch.autograd.Function):
    """(layer, tags of the operands, formula, options, x, weight, bias or None) -> their contraction, plus the bias.

    A convolution has options, which are those of PyTorch's operation.
    """

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, layer: Layer, tags: tuple[Tag, ...], formula: Any, options: tuple[Any, ...], x: Tensor,
        weight: Tensor, bias: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """Return the result."""
        note = layer.run.notes.begin(layer.place, (x, weight) if bias is None else (x, weight, bias), tags)
        # Otherwise autograd creates zeros for a missing gradient.
        context.set_materialize_grads(False)
        context.layer, context.note, context.formula, context.options = layer, note, formula, options
        context.are_turned = x.stride() == (1, x.shape[0]), weight.stride() == (1, weight.shape[0])
        # As in PyTorch, a linear layer saves only the operands that the needed gradients read.
        of_x, of_weight = context.needs_input_grad[4:6]
        context.save_for_backward(x if of_weight or options else None, weight if of_x or options else None)
        with without_dispatch():
            observed = layer if layer.place.observer is None else layer.observed_once()
            values, weights, biases = layer.run.parameters.arrays((x, weight, bias))
            result = formula.result(observed.products, values, weights, observed.inputs)
            if bias is not None:
                result = observed.addition.forward.add(result, biases.reshape(-1, *[1] * (x.ndim - 2)))
            product = tagged_tensor(result, layer.tag)
        if note is not None:
            note.format, note.is_one_call = layer.tag.format, True
        return product

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of x, weight and bias."""
        if g is None:
            return (None,) * 7
        layer, (x, weight) = context.layer, context.saved_tensors
        needed = needed_gradients(layer.run, context.needs_input_grad[4:], (True, True, layer.bias is not None))
        if torch.is_grad_enabled():
            gradients = _recorded_gradients(context, g, x, weight, needed)
        else:
            with without_dispatch():
                gradients = _array_gradients(context, g, x, weight, needed)
        return None, None, None, None, *gradients


#: `apply` of the autograd function, without its check for transforms of torch.func, which are inactive.
apply_layer: Callable[..., Tensor] = super(torch.autograd.Function, LayerProduct).apply


def _recorded_gradients(
    context: Any, g: Tensor, x: Tensor | None, weight: Tensor | None, needed: Sequence[bool]
) -> Sequence[Tensor | None]:
    """Compute the gradients by the operations of PyTorch's formula, for gradients of gradients."""
    if context.options:
        gradients: Sequence[Tensor] = aten.convolution_backward(g, x, weight, [g.shape[1]], *context.options, needed)
        return gradients
    of_x = of_weight = None
    # If the columns of an operand are contiguous, PyTorch's formula of mm computes its gradient as a transposed matrix.
    # This sets the memory layout for later operations.
    if weight is not None and needed[0]:
        of_x = weight.mm(g.t()).t() if context.are_turned[0] else g.mm(weight.t())
    if x is not None and needed[1]:
        of_weight = g.t().mm(x).t() if context.are_turned[1] else x.t().mm(g)
    return [of_x, of_weight, g if needed[2] else None]  # autograd itself sums the gradient of the bias


def _array_gradients(
    context: Any, g: Tensor, x: Tensor | None, weight: Tensor | None, needed: Sequence[bool]
) -> list[Tensor | None]:
    """Compute the gradients."""
    layer: Layer = context.layer
    if layer.place.observer is not None:
        layer = layer.observed_once()
        layer.forget_events()
    note, formula = context.note, context.formula
    rows, kernels = layer.run.parameters.arrays((x, weight))
    number, is_convolution = torch._C._current_autograd_node()._sequence_nr(), bool(context.options)
    values, gradients = layer.enter(g, note, number), list[Tensor | None]([None] * 3)
    if weight is not None and needed[0]:
        u, shape = layer.to_x(note.operands[0]), None if x is None else x.shape
        array = formula.to_x(u, values, kernels, shape, (layer.place.gradient, layer.inputs[1]))
        gradients[0] = gradient_tensor(array, u, number)
    # In the order of autograd, in which an observer receives the events.
    for i in (1, 2) if is_convolution else (2, 1):
        if i == 1 and x is not None and needed[1]:
            u, shape = layer.to_weight, None if weight is None else weight.shape
            array = formula.to_kernels(u, values, rows, shape, (layer.place.gradient, layer.inputs[0]))
            view = None if is_convolution else aten.t.default
            gradient = store_gradient(layer.run, layer.place, note.operands[1], 1, array, u, number, view)
            gradients[1] = gradient if gradient is None or is_convolution else gradient.t()
        elif i == 2 and needed[2] and layer.bias is not None:
            u = layer.to_bias
            array = u.sum(numbers_of(g), (0, *range(2, g.ndim)))  # the gradient as it arrives
            gradients[2] = store_gradient(layer.run, layer.addition, note.operands[2], 1, array, u, number)
    return gradients


def run_product(run: RunContext, place: Place, a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two batches of matrices that are not parameters."""
    # Each factor is a separate node, as its view with one axis for the batch is in PyTorch. Then shares of its
    # gradient, which gradients of gradients have, are added in the same order. Without these nodes the gradients of
    # gradients of queries and keys had other bits.
    a, b = (_view_with_note(run, aten.view.default, place, x, tag_of(x), *x.shape) for x in (a, b))
    return run_formula(run, PRODUCT, place, (a, b, place))
