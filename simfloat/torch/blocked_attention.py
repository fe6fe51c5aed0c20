"""Attention by blocks of keys, as a kernel computes it: one operation with one node of autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from simfloat.autodiff.record import sum_to_shape
from simfloat.environment import in_usual_environment
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas.attention import AttentionOptions, Parts, attend, gradients
from simfloat.simulation.inside import CompositeArithmetic
from simfloat.simulation.place import Place
from simfloat.torch.forward_log import Operand, is_recomputing
from simfloat.torch.open_run import active_run, outside_block, without_dispatch
from simfloat.torch.phases import Backward, Forward
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import FORMAT_OF, Tag, match_layout, numbers_of, put_tag, tensor_of

Tensor = torch.Tensor

#: Attention by operations of PyTorch, (run, call, q, k, v) -> result, for what the kernels do not compute.
ByOperations = Callable[[RunContext, Any, Tensor, Tensor, Tensor], Tensor]

OPERATION = torch.ops.aten.scaled_dot_product_attention.default


def attention_in_blocks(
    run: RunContext, place: Place, call: Any, q: Tensor, k: Tensor, v: Tensor, by_operations: ByOperations
) -> Tensor:
    """Return attention by blocks of keys for a `call` of PyTorch's operation."""
    run.count_operation(OPERATION, "decomposition")
    place = place.in_type(FORMAT_OF[q.dtype]) if place.is_written else place
    place = place.without_observer if is_recomputing() else place
    with without_dispatch():
        if call.dropout_p > 0:
            axes = -3 if call.enable_gqa else -2
            leading = torch.broadcast_shapes(q.shape[:axes], k.shape[:axes])
            ones = torch.ones(*leading, *q.shape[axes:-1], k.shape[-2])
            call = call._replace(kept=torch.dropout(ones, call.dropout_p, True) != 0)
        options = _options(place, call, q, k)
    addend = None if call.mask is None or call.mask.dtype == torch.bool else call.mask
    result: Tensor = BlockedAttention.apply(q, k, v, addend, run, place, call, options, by_operations)
    return result


def _options(place: Place, call: Any, q: Tensor, k: Tensor) -> AttentionOptions:
    """Return the options of the formula for a call."""
    allowed, addends, mask = None, (), call.mask
    if call.is_causal:
        allowed = np.tril(np.ones((q.shape[-2], k.shape[-2]), bool))
    elif mask is not None and mask.dtype == torch.bool:
        allowed = mask.numpy()
    elif mask is not None:
        numbers = numbers_of(mask)
        # A key with the addend -inf takes no part, even if the format has no infinities.
        allowed = numbers != -np.inf
        addends = (np.where(allowed, numbers, numbers.dtype.type(0)),)
    kept = None if call.kept is None else call.kept.numpy()
    scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
    options = AttentionOptions(place.recipe.fused, scale, allowed, addends, kept, 1 - call.dropout_p)
    return options.with_groups(q.shape[-3], k.shape[-3]) if call.enable_gqa else options


class BlockedAttention(torch.autograd.Function):
    """(q, k, v, mask, run, place, call, options, by_operations) -> attention; the mask contains numbers."""

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, run: RunContext, place: Place,
        call: Any, options: AttentionOptions, by_operations: ByOperations,
    ) -> Tensor:  # fmt: skip
        """Return the result."""
        operands = (q, k, v) if mask is None else (q, k, v, mask)
        context.set_materialize_grads(False)
        context.note = run.notes.begin(place, operands)
        inside = CompositeArithmetic(run.simulation, place)
        arithmetic = Forward(place, run.simulation).arithmetic((q, k, v))
        with without_dispatch():
            arrays = [numbers_of(run.parameters.read(x)) for x in (q, k, v)]
            output, context.attended = attend(Parts(inside, options.kernel, "forward"), *arrays, options)
            result = tensor_of(arithmetic.round(output), q.dtype)
        put_tag(result, Tag(arithmetic.format))
        if context.note is not None:
            context.note.format, context.note.is_one_call = arithmetic.format, True
        if run.shown is not None:
            run.shown |= dict.fromkeys((str(OPERATION), each) for each in (place, *inside.places))
        context.save_for_backward(*operands, result)
        context.run, context.call, context.options, context.by_operations = run, call, options, by_operations
        return result

    @staticmethod
    @in_usual_environment
    def backward(context: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of the operands that need one."""
        if g is None:
            return (None,) * 9
        *operands, result = context.saved_tensors
        active = active_run()
        if active is not None and active is not context.run:
            raise outside_block("scaled_dot_product_attention")
        if active is None or torch.is_grad_enabled():
            # After the block, a backward pass is PyTorch's own. With create_graph=True the pass itself is recorded,
            # which the kernels do not support.
            return *_recorded_gradients(context, g, operands), *(None,) * (9 - len(operands))
        way = Backward(context.note, context.run.simulation, None)
        with without_dispatch():
            arrays = [numbers_of(context.run.parameters.read(x)) for x in operands]
            from_result = numbers_of(way.in_result_format(g)), numbers_of(result)
        found: list[Tensor | None] = [None] * 9
        for number, x in enumerate(operands):
            if context.needs_input_grad[number]:
                to_operand = way.to_operand(number)
                arithmetic = to_operand.arithmetic(())
                inside = _inside(context, context.note.operands[number])
                parts = Parts(inside, context.options.kernel, "backward")
                slope = gradients(parts, number, *from_result, context.attended, *arrays[:3], context.options)
                array = arithmetic.round(sum_to_shape(inside, slope, arrays[number].shape))
                with without_dispatch():
                    gradient = found[number] = match_layout(tensor_of(array, x.dtype), x)
                put_tag(gradient, to_operand.tag(arithmetic.format, ()))
        context.attended.shared.clear()
        return tuple(found)


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
        result = context.by_operations(context.run, call, *operands[:3])
        made = iter(torch.autograd.grad(result, wanted, g, create_graph=is_recorded))
    return [next(made) if is_needed else None for _, is_needed in zip(operands, context.needs_input_grad, strict=False)]
