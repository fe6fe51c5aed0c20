"""Fused attention, by blocks of keys as a kernel computes it: one operation with one node of autograd.

A backward pass that is recorded, for gradients of gradients, runs the operations of PyTorch as one composite. They have
the format of `reduce`. Values are rounded only where they enter and leave the composite.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from simfloat.arithmetic.machines import on_device_of
from simfloat.environment import in_usual_environment
from simfloat.formats import Format
from simfloat.policy.flash_attention import kernel_of
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas import sum_to_shape
from simfloat.simulation.formulas.attention import AttentionOptions, Parts, attend, causal_mask, gradients, split_masks
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.torch.forward_log import Operand, is_recomputing, recomputing
from simfloat.torch.narrowing import StraightThroughRounding
from simfloat.torch.open_run import active_run, outside_block, without_dispatch
from simfloat.torch.phases import Backward, Forward
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import (
    FORMAT_OF,
    NARROW,
    Tag,
    array_on,
    match_layout,
    numbers_of,
    put_tag,
    tag_of,
    tensor_of,
)

Tensor = torch.Tensor

#: The name of the operation in policies.
ATTENTION = "scaled_dot_product_attention"

#: The overload of PyTorch's operation.
OPERATION = torch.ops.aten.scaled_dot_product_attention.default


class AttentionCall(NamedTuple):
    """The arguments of a call, other than queries, keys and values."""

    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    passes: Tensor | None = None  # True for probabilities that dropout keeps

    def factor(self, q: Tensor) -> float:
        """Return the factor of the scores."""
        return 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale

    def by_operations(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return softmax(q k^T * scale + mask) v, with dropout, by operations of PyTorch."""
        mask = self.mask
        if self.enable_gqa:
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        scores = (q @ k.transpose(-2, -1)) * self.factor(q)
        if self.is_causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask
        # Rows that the mask excludes completely become zeros; the ordinary softmax would return NaN.
        weights = torch.ops.aten._safe_softmax(scores, -1)
        if self.passes is not None:
            weights = weights * (self.passes * (1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0.0))
        return weights @ v


def fused_attention(run: RunContext, place: Place, q: Tensor, k: Tensor, v: Tensor, call: AttentionCall) -> Tensor:
    """Return attention by blocks of keys for a `call` of PyTorch's operation."""
    run.count_operation(OPERATION, "decomposition")
    place = place.in_type(FORMAT_OF[q.dtype]) if place.is_written else place
    place = place.without_observer if is_recomputing() else place
    with without_dispatch():
        if call.dropout_p > 0:
            axes = -3 if call.enable_gqa else -2
            leading = torch.broadcast_shapes(q.shape[:axes], k.shape[:axes])
            ones = torch.ones(*leading, *q.shape[axes:-1], k.shape[-2], device=q.device)
            call = call._replace(passes=torch.dropout(ones, call.dropout_p, True) != 0)
        options = _options(place, call, q, k)
    addend = None if call.mask is None or call.mask.dtype == torch.bool else call.mask
    result: Tensor = BlockedAttention.apply(q, k, v, addend, run, place, call, options)
    return result


def _options(place: Place, call: AttentionCall, q: Tensor, k: Tensor) -> AttentionOptions:
    """Return the options of the formula for a call."""
    masks = [on_device_of(causal_mask(q.shape[-2], k.shape[-2]), numbers_of(q))] if call.is_causal else []
    if call.mask is not None:
        masks.append(array_on(call.mask) if call.mask.dtype == torch.bool else numbers_of(call.mask))
    passes = None if call.passes is None else array_on(call.passes)
    kernel = kernel_of(place.recipe.fused)
    assert kernel is not None
    options = AttentionOptions(kernel, call.factor(q), *split_masks(masks), passes, 1 - call.dropout_p)
    return options.with_groups(q.shape[-3], k.shape[-3]) if call.enable_gqa else options


class BlockedAttention(torch.autograd.Function):
    """(q, k, v, mask, run, place, call, options) -> attention; the mask contains numbers."""

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, run: RunContext, place: Place,
        call: AttentionCall, options: AttentionOptions,
    ) -> Tensor:  # fmt: skip
        """Return the result."""
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        context.set_materialize_grads(False)
        context.note = run.notes.begin(place, operands)
        inside = CompositeArithmetic(run.simulation, place)
        arithmetic = Forward(place, run.simulation).arithmetic((q, k, v))
        with without_dispatch():
            arrays = [numbers_of(run.parameters.read(x)) for x in (q, k, v)]
            output, context.attended = attend(Parts(inside, options.kernel, "forward"), arrays, options)
            result = tensor_of(arithmetic.round(output), q.dtype)
        put_tag(result, Tag(arithmetic.format))
        if context.note is not None:
            context.note.format, context.note.is_one_call = arithmetic.format, True
        if run.shown is not None:
            run.shown |= dict.fromkeys((str(OPERATION), each) for each in (place, *inside.places))
        context.save_for_backward(*operands, result)
        context.run, context.call, context.options = run, call, options
        return result

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the operands that need one."""
        if g is None:
            return (None,) * 8
        *operands, result = context.saved_tensors
        active = active_run()
        if active is not None and active is not context.run:
            raise outside_block(ATTENTION)
        if active is None or torch.is_grad_enabled():
            # After the block, a backward pass is PyTorch's own. With create_graph=True the pass itself is recorded,
            # which the kernels do not support.
            return *_recorded_gradients(context, g, operands), *(None,) * (8 - len(operands))
        way = Backward(context.note, context.run.simulation, None)
        with without_dispatch():
            arrays = [numbers_of(context.run.parameters.read(x)) for x in operands]
            from_result = numbers_of(way.in_result_format(g)), numbers_of(result)
        results: list[Tensor | None] = [None] * 8
        for number, x in enumerate(operands):
            if context.needs_input_grad[number]:
                to_operand = way.to_operand(number)
                arithmetic = to_operand.arithmetic(())
                inside = _inside(context, context.note.operands[number])
                parts = Parts(inside, context.options.kernel, "backward")
                slope = gradients(parts, number, *from_result, context.attended, arrays[:3], context.options)
                array = arithmetic.round(sum_to_shape(inside, slope, arrays[number].shape))
                with without_dispatch():
                    gradient = results[number] = match_layout(tensor_of(array, x.dtype), x)
                put_tag(gradient, to_operand.tag(arithmetic.format, ()))
        context.attended.shared.clear()
        return tuple(results)


def _inside(context: Any, operand: Operand) -> CompositeArithmetic:
    """Return the arithmetic of the steps of the gradient of an operand."""

    def rounds(step: Place, _: Any) -> Arithmetic:
        return step.to_operand(operand.path, operand.number, operand.format if step.takes_formats else None)

    return CompositeArithmetic(context.run.simulation, context.note.place, rounds)


def _recorded_gradients(context: Any, g: Tensor, operands: list[Tensor]) -> list[Tensor | None]:
    """Return the gradients by operations of PyTorch, which autograd can record."""
    is_recorded = torch.is_grad_enabled()
    call = context.call._replace(mask=operands[3]) if len(operands) > 3 else context.call
    wanted = [x for x, is_needed in zip(operands, context.needs_input_grad, strict=False) if is_needed]
    with torch.enable_grad():
        result = _by_operations(context.run, call, *operands[:3])
        made = iter(torch.autograd.grad(result, wanted, g, create_graph=is_recorded))
    return [next(made) if is_needed else None for _, is_needed in zip(operands, context.needs_input_grad, strict=False)]


def _by_operations(run: RunContext, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention as operations of PyTorch: inside the block as a composite that is rounded once, outside as
    PyTorch's own.
    """
    if active_run() is None:
        return call.by_operations(q, k, v)
    with recomputing(), run.part_of(ATTENTION) as place:
        place = place.without_observer
        dtype, operands = q.dtype, (q, k, v)
        if dtype in NARROW:
            q, k, v = q.float(), k.float(), v.float()
        result = call.by_operations(*(AttentionInput.apply(x, run, place) for x in (q, k, v)))
        result = AttentionOutput.apply(result, run, place, operands)
        return result.to(dtype) if dtype in NARROW else result


class AttentionInput(torch.autograd.Function):
    """(x, run, place) -> x inside a composite that is rounded once; its gradient is rounded where it leaves."""

    @staticmethod
    def forward(context: Any, x: Tensor, run: RunContext, place: Place) -> Tensor:
        """Return the values."""
        with without_dispatch():
            # A copy is needed, because tags belong to memory, and the copy has another tag inside the composite.
            copy = run.parameters.read(x).clone(memory_format=torch.preserve_format)
        return _put_note(context, run, place, (x,), copy, tag_of(x).format)

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, None, None]:
        """Return the gradient, rounded."""
        if g is None:
            return None, None, None
        way = Backward(context.note, context.run.simulation, None).to_operand(0)
        arithmetic = way.arithmetic(())
        if torch.is_grad_enabled():
            return StraightThroughRounding.apply(g, arithmetic), None, None
        rounded = _round_tensor(g, arithmetic)
        put_tag(rounded, way.tag(arithmetic.format, ()))
        return rounded, None, None


class AttentionOutput(torch.autograd.Function):
    """(x, run, place, operands) -> x rounded as the result of a composite that is rounded once."""

    @staticmethod
    def forward(context: Any, x: Tensor, run: RunContext, place: Place, operands: tuple[Tensor, ...]) -> Tensor:
        """Return the result."""
        arithmetic = Forward(place, run.simulation).arithmetic(operands)
        if run.shown is not None:
            run.shown[str(OPERATION), place] = None
        return _put_note(context, run, place, (x,), _round_tensor(x, arithmetic), arithmetic.format)

    @staticmethod
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        """Return the gradient, in the format of the result."""
        if g is None:
            return None, None, None, None
        note = context.note
        way = Backward(note, context.run.simulation, None)
        if torch.is_grad_enabled():
            # In a recorded backward pass the rounding must be a node as well, which passes on gradients of gradients.
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
    """Tag the result of a function of autograd with its format, and note the operation at its node."""
    context.set_materialize_grads(False)
    context.run, context.note = run, run.notes.begin(place, operands)
    put_tag(made, Tag(format))
    if context.note is not None:
        context.note.format, context.note.is_one_call = format, True
    return made


def _round_tensor(x: Tensor, arithmetic: Arithmetic) -> Tensor:
    with without_dispatch():
        return match_layout(tensor_of(arithmetic.round(numbers_of(x)), x.dtype), x)
