"""Operations of PyTorch's as one call each, with their way back, where nobody looks at operations: ReLUs, and the two
operations of cross-entropy.

PyTorch makes an operation of each and one of its way back, and others to keep results and to find them again, each of
which comes to Python. Bits are those of the operations, to which all is left where hooks of the program's keep what the
way back reads, as a checkpoint's do: what these compute is simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch

from simfloat.environment import in_usual_environment
from simfloat.formulas import exponentials
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.torch.open_run import active_run, without_dispatch
from simfloat.torch.phases import Backward
from simfloat.torch.recurrent_steps import gradient_of
from simfloat.torch.rules.aten_losses import nll_loss, nll_loss_slope
from simfloat.torch.rules.aten_pointwise import relu, threshold_backward
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import Tag, put_tag, tag_of
from simfloat.torch.tensor_arrays import match_layout, numbers_of, tensor_of
from simfloat.torch.unwatched import has_saved_tensor_hooks, is_plain, is_unwatched

Tensor = torch.Tensor
aten = torch.ops.aten

#: The axis of classes.
CLASSES = 1


class FormulaCall(NamedTuple):
    """An operation, and that of its way back, by their formulas: (arithmetic, *arguments) -> numbers.

    The way back takes the gradient, the result or else the operand, labels, further arguments, and what the formula
    gives beside the result.
    """

    name: str  # in policies
    operation: Any
    formula: Callable[..., Any]
    way_back: Any
    slope: Callable[..., Any]
    reads_result: bool = True
    is_composite: bool = True  # whose steps have places of their own


RELU = FormulaCall(
    "relu", aten.relu.default, relu, aten.threshold_backward.default, threshold_backward, is_composite=False
)
LOG_SOFTMAX = FormulaCall(
    "log_softmax",
    aten._log_softmax.default,
    lambda u, x: exponentials.log_softmax(u, x, (CLASSES,)),
    aten._log_softmax_backward_data.default,
    lambda u, g, y, *_: exponentials.log_softmax_slope(u, g, y, (CLASSES,)),
)
NLL_LOSS = FormulaCall(
    "cross_entropy", aten.nll_loss_forward.default, nll_loss, aten.nll_loss_backward.default, nll_loss_slope,
    reads_result=False,
)  # fmt: skip


def relu_layer(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of PyTorch's function of a ReLU."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        run: Any = active_run()
        # Calls by keyword, and calls that do not fit, are left to PyTorch's function, which knows the names and the
        # errors.
        if run is None or options or len(args) != 1 or has_saved_tensor_hooks() or not is_unwatched(run, RELU.name):
            return function(*args, **options)
        if not _is_operand(args[0]):
            return function(*args)
        with without_dispatch():
            return apply_formula(run, RELU, args[0], (), (), (0,))

    return call


def class_loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper of PyTorch's function of the cross-entropy."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Tensor:
        run: Any = active_run()
        # F.cross_entropy hands all six on by position: input, target, weight, reduction, ignore_index and
        # label_smoothing (torch 2.13).
        if run is None or options or len(args) != 6 or has_saved_tensor_hooks() or not _are_classes(*args):
            return function(*args, **options)
        if not (_is_served(run, LOG_SOFTMAX) and _is_served(run, NLL_LOSS)):
            return function(*args)
        x, target, *others, _ = args
        with without_dispatch():
            # Two nodes, as PyTorch has them: log_softmax and nll_loss have places of their own, and roundings of their
            # own. With ReLUs, cross-entropies and complete gradients in one call each PyTorch hands over 4 calls of an
            # MLP's step (65 by single operations), which takes 3.7 times as long as torch float32 on Zen 4 (5.0
            # before).
            logarithms = apply_formula(run, LOG_SOFTMAX, x, (), (), (CLASSES, x.dtype))
            return apply_formula(run, NLL_LOSS, logarithms, (target,), others, others)

    return call


def _are_classes(x: Any, target: Any, weight: Any, reduction: int, ignored: int, smoothing: float) -> bool:
    """Whether rows of numbers come with a class each, all of one weight."""
    if weight is not None or smoothing or not _is_operand(x) or x.ndim != 2:
        return False
    return type(target) is Tensor and target.dtype == torch.int64 and target.shape == x.shape[:1]


def _is_served(run: RunContext, call: FormulaCall) -> bool:
    """Whether nobody looks at the operation, and it is no fused composite, whose result is rounded once more."""
    return is_unwatched(run, call.name) and not run.simulation.place(call.name, run.path).recipe.fused


def _is_operand(x: Any) -> bool:
    """Whether it is a tensor of a forward pass that lies in one piece, and no parameter."""
    # Results of a formula lie in C order. For any other layout the single operations imitate PyTorch's.
    if not is_plain(x) or not x.is_contiguous():
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
        """The result."""
        # The table of the run lists the operation as if PyTorch had handed it over.
        run.count_operation(call.operation, "decomposition" if call.is_composite else "rule")
        place = run.simulation.place(call.name, run.path)
        note = run.notes.begin(place, (x,))
        u: Any = CompositeArithmetic.forward(run.simulation, place, ()) if call.is_composite else place.forward
        outputs = call.formula(u, numbers_of(x), *[label.numpy() for label in labels], *others)
        result, *saved = outputs if isinstance(outputs, tuple) else (outputs,)
        tensor, *saved = [_put_format(place, tensor_of(array, x.dtype)) for array in (result, *saved)]
        if note is not None:
            note.format, note.is_one_call = place.forward.format, True
        # Without this autograd makes a tensor of zeros for a result without a gradient, and a formula would round
        # zeros.
        context.set_materialize_grads(False)
        context.run, context.call, context.note = run, call, note
        context.labels, context.further = len(labels), further
        # Dispatch is off here, so that saving and unpacking make no operation: of its own results autograd saves a
        # detached alias, which would come to Python for each.
        context.save_for_backward(tensor if call.reads_result else x, *labels, *saved)
        return tensor

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Any, ...]:
        """The gradient of x."""
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


#: Of a function of autograd, without its search for the transforms of torch.func, of which there are none.
apply_formula: Callable[..., Tensor] = super(torch.autograd.Function, FormulaNode).apply


def _put_format(place: Place, made: Tensor) -> Tensor:
    """A result of the forward pass, of which its format is known."""
    put_tag(made, Tag(place.forward.format))
    return made
