"""Run linear layers, ReLUs and cross-entropy as one call each, forward and backward, if no operation is observed.

PyTorch has up to four operations for a linear layer and nine for its backward pass, and more to save and find results;
each of them calls Python. The results have the same bits as with these operations. An observer, random bits or an
override that distinguish the operations require the single operations. So do hooks of the program that save values for
the backward pass, as a checkpoint's do, because the operations of the hooks are simulated.

Autograd has the same nodes as with these operations, except the node of the product, so that gradients are added in the
same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, wraps
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, Format
from simfloat.policy.roles import MOVEMENT
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import slopes
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.torch.forward_log import LoggedOperation, Operand
from simfloat.torch.narrowing import linear_of_matrix
from simfloat.torch.open_run import active_run, without_dispatch
from simfloat.torch.phases import Backward
from simfloat.torch.quick_recurrent import gradient_of
from simfloat.torch.rules.losses import nll_loss, nll_loss_slope
from simfloat.torch.rules.pointwise import threshold_backward
from simfloat.torch.run_context import RunContext
from simfloat.torch.single_calls import are_plain, has_saved_tensor_hooks, unwatched_place
from simfloat.torch.tensors import Tag, match_layout, numbers_of, put_tag, tag_of, tensor_of

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
        tags = _tags_of(input, weight, bias)
        if tags is None:
            return by_operations(input, weight, bias)
        layer = _layer_of(run, place, *tags)
        rows, path = input, place.path
        if input.ndim != 2:
            rows = _view_with_note(run, aten.view.default, path, input, tags[0], -1, input.shape[-1])
        # The transposition is a separate node, as in PyTorch. Then shares of the weight's gradient meet in the same
        # node, and are added in the same order, as in the single operations.
        weight = _view_with_note(run, aten.t.default, path, weight, tags[1])
        run.operation_counts.begin(aten.mm.default if bias is None else aten.addmm.default, "rule", path)
        product = apply_linear(layer, tags, rows, weight, bias)
        if input.ndim == 2:
            return product
        return _view_with_note(run, aten.view.default, path, product, layer.tag, *input.shape[:-1], product.shape[1])

    return call


class LinearLayer:
    """The arithmetic of a linear layer at its place, determined at the first call with these parameters."""

    def __init__(self, run: RunContext, place: Place, x_path: str | None, weight: Tag, bias: Tag | None) -> None:
        self.run, self.place, self.weight, self.bias = run, place, weight, bias
        self.products, self.inputs = place.forward, (place.input(x_path), place.input(weight.owner))
        self.addition = place if bias is None else run.simulation.sibling(place, "add", place.path, ())
        self.tag = Tag(self.addition.forward.format)

    def enter(self, g: Tensor, note: LoggedOperation, number: int) -> NDArray:
        """Return a gradient in the format of the gradients of the result, as the node of this number reads it."""
        tag = tag_of(g)
        if self.bias is not None and tag.is_gradient and tag.node != number and tag.format != self._entered:
            g = Backward(note, self.run.simulation, None).in_result_format(g)
        return numbers_of(g)

    @cached_property
    def _entered(self) -> Format:
        return self.addition.to_activation(0, self.tag.format).format

    def to_x(self, x: Operand) -> Arithmetic:
        """Return the arithmetic of the gradient of this operand."""
        if x.path is None:
            return self.place.to_activation(0, x.format)
        return self.place.to_weight(x.path, 0, x.format)

    @cached_property
    def to_weight(self) -> Arithmetic:
        """The arithmetic of the gradient of the weight."""
        return self.place.to_weight(str(self.weight.owner), 1, self.weight.format)

    @cached_property
    def to_bias(self) -> Arithmetic:
        """The arithmetic of the gradient of the bias."""
        # The gradient of a bias is a sum, so `roles_used` must include the role `reduce` for this place.
        self.addition.has_summed = True
        return self.addition.to_weight(str(self.bias and self.bias.owner), 1, self.tag.format)

    def store(self, parameter: Tag, at: Place, array: NDArray, format: Format, number: int) -> Tensor | None:
        """Return a parameter's gradient for autograd; None if it is complete and was stored as `.grad`, or added to it.

        Autograd would do the same, but by up to three operations that each call Python.
        """
        path = str(parameter.owner)
        leaf = self.run.backward_nodes.completed_parameter(path)
        if leaf is None or leaf.grad is None:
            gradient = tensor_of(array, torch.float32)
            put_tag(gradient, Tag(format, True, None if leaf is None else path, node=number))
            if leaf is None:
                return gradient
            leaf.grad = gradient
            return None
        if parameter is self.weight:
            self.run.count_operation(aten.t.default, "movement")
        self.run.operation_counts.begin(aten.add_.Tensor, "rule", self.run.paths.path or "")
        arithmetic = at.to_stored(path, 1, parameter.format or FP32)
        leaf.grad.copy_(torch.from_numpy(arithmetic.add(leaf.grad.numpy(), array)))
        put_tag(leaf.grad, tag_of(leaf.grad)._replace(format=arithmetic.format))
        return None


def _tags_of(x: Any, weight: Any, bias: Any) -> tuple[Tag, ...] | None:
    """Return the tags of the operands; None unless they are float32 rows and parameters of the model.

    The rows are one matrix, or several that are contiguous in memory.
    """
    operands = (x, weight) if bias is None else (x, weight, bias)
    if not are_plain(*operands) or x.ndim not in (2, 3) or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        return None
    if (x.ndim == 3 and not x.is_contiguous()) or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    tags = tuple([tag_of(operand) for operand in operands])
    return None if tags[0].is_gradient or not all([tag.is_weight for tag in tags[1:]]) else tags


def _layer_of(run: RunContext, place: Place, x: Tag, weight: Tag, bias: Tag | None = None) -> LinearLayer:
    """Return the arithmetic of a layer for operands with these tags."""
    key = x.owner if x.is_weight else None, weight.owner, bias and bias.owner
    layer: LinearLayer | None = place.bound_layers.get(key)
    if layer is None:
        layer = place.bound_layers[key] = LinearLayer(run, place, key[0], weight, bias)
    return layer


def _view_with_note(run: RunContext, operation: Any, path: str, x: Tensor, tag: Tag, *shape: int) -> Tensor:
    """Return a view of a tensor with this tag, with the autograd node and the note of the operation."""
    run.operation_counts.begin(operation, "movement", path)
    with without_dispatch():
        # Autograd creates its node in any case; only the call of Python is left out.
        view = x.view(shape) if shape else x.t()
    if torch.is_grad_enabled():
        note = run.notes.begin(run.simulation.place_at(MOVEMENT, path, ()), [x], [tag])
        if note is not None:
            note.format, note.weight = tag.format, tag.owner if tag.is_weight else None
    return view


class LayerProduct(torch.autograd.Function):
    """(layer, tags of the operands, x, weight, bias or None) -> x (m, k) times weight (k, n), plus bias (n)."""

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, layer: LinearLayer, tags: tuple[Tag, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Return the result."""
        note = layer.run.notes.begin(layer.place, (x, weight) if bias is None else (x, weight, bias), tags)
        # Otherwise autograd creates zeros for a missing gradient.
        context.set_materialize_grads(False)
        context.layer, context.note = layer, note
        context.are_turned = x.stride() == (1, x.shape[0]), weight.stride() == (1, weight.shape[0])
        # As in PyTorch, only the operands that the needed gradients read are saved.
        _, _, of_x, of_weight, _ = context.needs_input_grad
        context.save_for_backward(x if of_weight else None, weight if of_x else None)
        with without_dispatch():
            read = layer.run.parameters.read
            result = layer.products.matmul(numbers_of(read(x)), numbers_of(read(weight)), *layer.inputs)
            if bias is not None:
                result = layer.addition.forward.add(result, numbers_of(read(bias)))
            product = tensor_of(result, x.dtype)
        put_tag(product, layer.tag)
        if note is not None:
            note.format, note.is_one_call = layer.tag.format, True
        return product

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of x, weight and bias."""
        if g is None:
            return (None,) * 5
        needed, (x, weight) = context.needs_input_grad[2:], context.saved_tensors
        if torch.is_grad_enabled():
            return None, None, *_recorded_gradients(g, x, weight, needed, context.are_turned)
        with without_dispatch():
            return None, None, *_array_gradients(context.layer, context.note, g, x, weight, needed)


#: `apply` of the autograd function, without its check for transforms of torch.func, which are inactive.
apply_linear: Callable[..., Tensor] = super(torch.autograd.Function, LayerProduct).apply


def _recorded_gradients(
    g: Tensor, x: Tensor | None, weight: Tensor | None, needed: Sequence[bool], are_turned: Sequence[bool]
) -> list[Any]:
    """Compute the gradients by the operations of PyTorch's formula, for gradients of gradients.

    Autograd itself sums the gradient of the bias.
    """
    of_x = of_weight = None
    # If the columns of an operand are contiguous, PyTorch's formula of mm computes its gradient as a transposed matrix.
    # This sets the memory layout for later operations.
    if weight is not None and needed[0]:
        of_x = weight.mm(g.t()).t() if are_turned[0] else g.mm(weight.t())
    if x is not None and needed[1]:
        of_weight = g.t().mm(x).t() if are_turned[1] else x.t().mm(g)
    return [of_x, of_weight, g if needed[2] else None]


def _array_gradients(
    layer: LinearLayer, note: LoggedOperation, g: Tensor, x: Tensor | None, weight: Tensor | None,
    needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Compute the gradients."""
    place, read, number = layer.place, layer.run.parameters.read, torch._C._current_autograd_node()._sequence_nr()
    values, gradients = layer.enter(g, note, number), list[Tensor | None]([None] * 3)
    if weight is not None and needed[0]:
        to_x = layer.to_x(note.operands[0])
        product = to_x.matmul(values, numbers_of(read(weight)).T, place.gradient, layer.inputs[1])
        gradients[0] = tensor_of(product, g.dtype)
        put_tag(gradients[0], Tag(to_x.target.format, True, node=number))
    if x is not None and needed[1]:
        to_weight = layer.to_weight
        product = to_weight.matmul(values.T, numbers_of(read(x)), place.gradient, layer.inputs[0])
        gradient = layer.store(layer.weight, place, product, to_weight.target.format, number)
        gradients[1] = None if gradient is None else gradient.t()
    if needed[2] and layer.bias is not None:
        to_bias = layer.to_bias
        array, format = to_bias.sum(values, (0,)), to_bias.target.format
        gradients[2] = layer.store(layer.bias, layer.addition, array, format, number)
    return gradients


#: The axis of classes.
CLASSES = 1


class FormulaCall(NamedTuple):
    """An operation and the operation of its backward pass, by their formulas: (arithmetic, *arguments) -> values.

    The backward pass has these arguments: the gradient, the result (or the operand if `reads_result` is False), labels,
    further arguments, and the additional outputs of the formula.
    """

    name: str  # in policies
    operation: Any
    formula: Callable[..., Any]
    way_back: Any
    slope: Callable[..., Any]
    reads_result: bool = True
    is_composite: bool = True  # its steps have their own places


RELU = FormulaCall(
    "relu",
    aten.relu.default,
    slopes.positive_part,
    aten.threshold_backward.default,
    threshold_backward,
    is_composite=False,
)
LOG_SOFTMAX = FormulaCall(
    "log_softmax",
    aten._log_softmax.default,
    lambda u, x: slopes.log_softmax(u, x, (CLASSES,)),
    aten._log_softmax_backward_data.default,
    lambda u, g, y, *_: slopes.log_softmax_slope(u, g, y, (CLASSES,)),
)
NLL_LOSS = FormulaCall(
    "cross_entropy", aten.nll_loss_forward.default, nll_loss, aten.nll_loss_backward.default, nll_loss_slope,
    reads_result=False,
)  # fmt: skip


def relu_layer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap PyTorch's function of a ReLU."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        run: Any = active_run()
        # Keyword calls and invalid calls go to PyTorch's function, which has the names and the errors.
        if run is None or options or len(args) != 1 or has_saved_tensor_hooks() or not unwatched_place(run, RELU.name):
            return function(*args, **options)
        if not _is_operand(args[0]):
            return function(*args)
        with without_dispatch():
            return apply_formula(run, RELU, args[0], (), (), (0,))

    return call


def class_loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap PyTorch's function of the cross-entropy."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        run: Any = active_run()
        # F.cross_entropy passes all six by position: input, target, weight, reduction, ignore_index and label_smoothing
        # (torch 2.13).
        if run is None or options or len(args) != 6 or has_saved_tensor_hooks() or not _are_classes(*args):
            return function(*args, **options)
        if not (_is_served(run, LOG_SOFTMAX) and _is_served(run, NLL_LOSS)):
            return function(*args)
        x, target, *others, _ = args
        with without_dispatch():
            # Two nodes, as in PyTorch: log_softmax and nll_loss have their own places and their own roundings. With
            # ReLUs, cross-entropies and complete gradients in one call each, PyTorch calls Python 4 times in a step of
            # an MLP (65 times with single operations). The step takes 3.7 times as long as torch float32 on Zen 4 (5.0
            # before).
            logarithms = apply_formula(run, LOG_SOFTMAX, x, (), (), (CLASSES, x.dtype))
            return apply_formula(run, NLL_LOSS, logarithms, (target,), others, others)

    return call


def _are_classes(x: Any, target: Any, weight: Any, reduction: int, ignored: int, smoothing: float) -> bool:
    """True if the operands are rows of values with one class each, without class weights."""
    if weight is not None or smoothing or not _is_operand(x) or x.ndim != 2:
        return False
    return type(target) is Tensor and target.dtype == torch.int64 and target.shape == x.shape[:1]


def _is_served(run: RunContext, call: FormulaCall) -> bool:
    """True if the operation is not observed, and is not a composite that is rounded once."""
    return (place := unwatched_place(run, call.name)) is not None and not place.recipe.fused


def _is_operand(x: Any) -> bool:
    """True if x is a contiguous tensor of a forward pass and not a parameter."""
    # Results of a formula are in C order. For any other layout the single operations reproduce PyTorch's layout.
    if not are_plain(x) or not x.is_contiguous():
        return False
    tag = tag_of(x)
    return not (tag.is_gradient or tag.is_weight)


class FormulaNode(torch.autograd.Function):
    """(run, call, x, labels, others, further) -> the call's formula of x, labels and others."""

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, run: RunContext, call: FormulaCall, x: Tensor, labels: Any, others: Any, further: Any
    ) -> Tensor:
        """Return the result."""
        # The table of the run lists the operation as if PyTorch had dispatched it.
        run.count_operation(call.operation, "decomposition" if call.is_composite else "rule")
        place = run.simulation.place(call.name, run.path)
        note = run.notes.begin(place, (x,))
        u: Any = CompositeArithmetic.forward(run.simulation, place, ()) if call.is_composite else place.forward
        outputs = call.formula(u, numbers_of(x), *[label.numpy() for label in labels], *others)
        result, *saved = outputs if isinstance(outputs, tuple) else (outputs,)
        tensor, *saved = [_put_format(place, tensor_of(array, x.dtype)) for array in (result, *saved)]
        if note is not None:
            note.format, note.is_one_call = place.forward.format, True
        # Otherwise autograd creates a tensor of zeros for a result without a gradient, and a formula would round zeros.
        context.set_materialize_grads(False)
        context.run, context.call, context.note = run, call, note
        context.labels, context.further = len(labels), further
        # Dispatch is off, so saving and unpacking call no operations. Autograd saves a detached alias of each of its
        # own results, and each alias would call Python.
        context.save_for_backward(tensor if call.reads_result else x, *labels, *saved)
        return tensor

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Any, ...]:
        """Return the gradient of x."""
        if g is None:
            return (None,) * 6
        with without_dispatch():
            call, saved = context.call, context.saved_tensors
        read, labels, saved_outputs = saved[0], saved[1 : 1 + context.labels], saved[1 + context.labels :]
        if torch.is_grad_enabled():
            # With create_graph=True the backward pass itself is recorded, and autograd needs PyTorch's operation for
            # the node.
            gradient = call.way_back(g, read, *labels, *context.further, *saved_outputs)
        else:
            with without_dispatch():
                arrays = [numbers_of(g), numbers_of(read), *[label.numpy() for label in labels]]
                arithmetic = Backward(context.note, context.run.simulation, None).to_operand(0).arithmetic(())
                slope = call.slope(arithmetic, *arrays, *context.further, *map(numbers_of, saved_outputs))
                tensor = gradient_of(slope, arithmetic.format, g.dtype)
                gradient = match_layout(tensor, g)
                put_tag(gradient, tag_of(tensor))
        return None, None, gradient, None, None, None


#: `apply` of the autograd function, without its check for transforms of torch.func, which are inactive.
apply_formula: Callable[..., Tensor] = super(torch.autograd.Function, FormulaNode).apply


def _put_format(place: Place, made: Tensor) -> Tensor:
    """Tag a result of the forward pass with its format, and return it."""
    put_tag(made, Tag(place.forward.format))
    return made
