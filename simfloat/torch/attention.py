"""PyTorch's scaled dot product attention as one composite: where a policy fuses it, as its fused kernels compute it.

Its operations are PyTorch's, each at a place inside of the composite, so that autograd differentiates them, twice where
that is asked for. Where the composite is fused they have the format of `reduce`, and numbers are rounded where they
enter and leave: the result going forward, the gradients of queries, keys and values on the way back.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from simfloat.formats import Format
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas.norms import weighted_values
from simfloat.simulation.place import Place
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.forward_log import is_recomputing
from simfloat.torch.handlers import Handler
from simfloat.torch.narrowing import StraightThroughRounding
from simfloat.torch.open_run import active_run, is_transformed, without_dispatch
from simfloat.torch.phases import Backward, Forward, target_operand
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NARROW, NOTHING, Tag, match_layout, numbers_of, put_tag, tag_of, tensor_of

Tensor = torch.Tensor

#: What policies call it.
ATTENTION = "scaled_dot_product_attention"

#: The overload of PyTorch's operation.
OPERATION = torch.ops.aten.scaled_dot_product_attention.default


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What PyTorch's operation of attention does in a block; inside of torch.func's transforms every step is rounded.

    It stands above autograd in the place of PyTorch's own kernel, so that no name by which a program calls the
    operation passes it by.
    """
    run: Any = active_run()
    arguments = query, key, value, attn_mask, dropout_p, is_causal
    if run is None or is_transformed():
        return OPERATION.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
    # PyTorch's own composite kernel, above autograd: it is made of operations that come to dispatch one by one, within
    # this composite, and autograd records each of them.
    with run.part_of(ATTENTION) as place:
        if not (place.recipe.fused and _is_served(*arguments)):
            return OPERATION.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
        return _fused(run, place, *arguments, scale, enable_gqa)


class Attention(Handler):
    """Attention where it comes to dispatch as one operation, as in inference mode."""

    how = "decomposition"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The result of its operations, which are simulated."""
        with run.redispatch:
            return attention(*args, **options)


def _is_served(q: Any, k: Any, v: Any, mask: Any, dropout_p: Any, is_causal: bool) -> bool:
    """Whether PyTorch takes these operands: it refuses others itself, and has integers none of."""
    tensors = [q, k, v] if mask is None else [q, k, v, mask]
    if not all(isinstance(x, Tensor) for x in tensors) or not all(x.is_floating_point() for x in (q, k, v)):
        return False
    return q.dtype == k.dtype == v.dtype and min(x.ndim for x in (q, k, v)) > 1 and not (is_causal and mask is not None)


def _fused(
    run: RunContext, place: Place, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Tensor:  # fmt: skip
    """The result: softmax(q k^T * scale + mask) v, with dropout of the probabilities."""
    run.count_operation(OPERATION, "decomposition")
    place = place.without_observer if is_recomputing() else place
    dtype, operands = q.dtype, (q, k, v)
    if dtype in NARROW:
        # PyTorch's fused kernels read and write 16-bit numbers and hold scores and probabilities in FP32.
        q, k, v = q.float(), k.float(), v.float()
    q, k, v = (AttentionInput.apply(x, run, place) for x in (q, k, v))
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask
    # Rows that the mask excludes as a whole become zeros, where the ordinary softmax has NaN.
    weights = torch.ops.aten._safe_softmax(scores, -1)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    shape = torch.broadcast_shapes(weights.shape[:-2], v.shape[:-2])
    weights, v = (x.expand(*shape, *x.shape[-2:]) for x in (weights, v))
    result = AttentionOutput.apply(WeightedValues.apply(weights, v, run), run, place, operands)
    return result.to(dtype) if dtype in NARROW else result


class AttentionInput(torch.autograd.Function):
    """(x, run, place) -> x inside of a fused composite, whose gradient is rounded where it leaves it."""

    @staticmethod
    def forward(context: Any, x: Tensor, run: RunContext, place: Place) -> Tensor:
        """The numbers."""
        with without_dispatch():
            # A copy, since what is known of numbers belongs to their memory, and inside of the composite something else
            # is known.
            copy = run.parameters.read(x).clone(memory_format=torch.preserve_format)
        return _put_note(context, run, place, (x,), copy, tag_of(x).format)

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, None, None]:
        """The gradient, rounded."""
        if g is None:
            return None, None, None
        way = Backward(context.note, context.run.simulation, None).to_operand(0)
        arithmetic = way.arithmetic(())
        if torch.is_grad_enabled():
            return StraightThroughRounding.apply(g, arithmetic), None, None
        rounded = _round_tensor(g, arithmetic)
        put_tag(rounded, way.tag(arithmetic.format, ()))
        return rounded, None, None


class WeightedValues(torch.autograd.Function):
    """(weights, values, run) -> their product, by the formula of fused attention; gradients are those of a product."""

    @staticmethod
    def forward(context: Any, weights: Tensor, values: Tensor, run: RunContext) -> Tensor:
        """The product."""
        place = run.simulation.place("matmul", run.path, run.composites)
        place = place.without_observer if is_recomputing() else place
        phase = Forward(place, run.simulation)
        arithmetic, inputs = phase.arithmetic((weights, values)), phase.inputs(weights, values)
        with without_dispatch():
            product = tensor_of(
                weighted_values(arithmetic, numbers_of(weights), numbers_of(values), inputs), weights.dtype
            )
        context.save_for_backward(weights, values)
        return _put_note(context, run, place, (weights, values), product, arithmetic.format)

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        """The gradients of weights and values."""
        if g is None:
            return None, None, None
        weights, values = context.saved_tensors
        # By operations of PyTorch, so that a backward pass can be recorded. One node has both gradients: each product
        # is named as that of its operand, before anything is returned.
        of_weights = of_values = None
        if context.needs_input_grad[0]:
            with target_operand(0):
                of_weights = g @ values.transpose(-2, -1)
        if context.needs_input_grad[1]:
            with target_operand(1):
                of_values = weights.transpose(-2, -1) @ g
        return of_weights, of_values, None


class AttentionOutput(torch.autograd.Function):
    """(x, run, place, operands) -> x rounded as the result of a fused composite of these operands."""

    @staticmethod
    def forward(context: Any, x: Tensor, run: RunContext, place: Place, operands: tuple[Tensor, ...]) -> Tensor:
        """The result."""
        arithmetic = Forward(place, run.simulation).arithmetic(operands)
        if run.shown is not None:
            run.shown[str(OPERATION), place] = None
        return _put_note(context, run, place, (x,), _round_tensor(x, arithmetic), arithmetic.format)

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        """The gradient, in the format of the result's."""
        if g is None:
            return None, None, None, None
        note = context.note
        way = Backward(note, context.run.simulation, None)
        if torch.is_grad_enabled():
            # Recorded: the rounding has to be a node as well, which passes gradients of gradients on.
            return (
                StraightThroughRounding.apply(g, note.place.to_activation(0, note.format)) if way.may_narrow else g,
                None,
                None,
                None,
            )
        return way.in_result_format(g), None, None, None


def _put_note(
    context: Any, run: RunContext, place: Place, operands: tuple[Tensor, ...], made: Tensor, format: Format | None
) -> Tensor:
    """The result of a function of autograd, of which its format is known, and its node where the operation ran."""
    context.set_materialize_grads(False)
    context.run, context.note = run, run.notes.begin(place, operands)
    put_tag(made, Tag(format))
    if context.note is not None:
        context.note.format, context.note.is_one_call = format, True
    return made


def _round_tensor(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    with without_dispatch():
        return match_layout(tensor_of(arithmetic.round(numbers_of(x)), x.dtype), x)
