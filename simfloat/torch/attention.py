"""Run PyTorch's scaled dot product attention as one composite; a policy can round it once, like a fused kernel.

It consists of operations of PyTorch, each at a place inside the composite, so that autograd can differentiate them,
also twice. If the policy rounds the composite once, the operations have the format of `reduce`. Values are rounded only
where they enter and leave: the result in the forward pass, and the gradients of queries, keys and values in the
backward pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from simfloat.formats import Format
from simfloat.policy.flash_attention import FlashAttention
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas.norms import weighted_values
from simfloat.simulation.place import Place
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.blocked_attention import attention_in_blocks
from simfloat.torch.formula_rows import MASKING, SAFE_SOFTMAX, SCALING
from simfloat.torch.forward_log import is_recomputing, recomputing
from simfloat.torch.handlers import Handler
from simfloat.torch.narrowing import StraightThroughRounding
from simfloat.torch.open_run import active_run, is_transformed, without_dispatch
from simfloat.torch.phases import Backward, Forward, target_operand
from simfloat.torch.quick_formulas import are_plain, has_saved_tensor_hooks, run_formula, unwatched_place
from simfloat.torch.quick_layers import run_product
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NARROW, NOTHING, Tag, match_layout, numbers_of, put_tag, tag_of, tensor_of

Tensor = torch.Tensor

#: The name of the operation in policies.
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
    """Compute attention as PyTorch's operation does inside a block; torch.func's transforms round every step.

    It replaces PyTorch's own kernel above autograd, so that it also receives calls of the operation by other names.
    """
    run: Any = active_run()
    arguments = query, key, value, attn_mask, dropout_p, is_causal
    if run is None or is_transformed():
        return OPERATION.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
    # PyTorch's own composite kernel, above autograd. Its operations are dispatched one by one within this composite,
    # and autograd records each of them.
    # Before the composite begins: inside it, operations have other places.
    is_unwatched = unwatched_place(run, ATTENTION) is not None and not has_saved_tensor_hooks()
    with run.part_of(ATTENTION) as place:
        if is_unwatched and not place.is_fused and _is_plain(*arguments, scale, enable_gqa):
            return _by_formulas(run, place, *arguments, scale)
        if not (place.is_fused and _is_served(*arguments)):
            return OPERATION.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
        call = AttentionCall(*arguments[3:], scale, enable_gqa)
        if isinstance(place.recipe.fused, FlashAttention):
            return attention_in_blocks(run, place, call, query, key, value, _by_operations)
        return _fused(run, place, query, key, value, call)


def _is_plain(
    q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None, enable_gqa: bool
) -> bool:
    """True for matrices of one batch in float32, and a mask without gradient, as PyTorch accepts them."""
    if not are_plain(q, k, v) or (scale is not None and scale <= 0) or q.ndim not in (3, 4):
        return False
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1]:
        return False
    # With enable_gqa, several heads of queries have one head of keys and values.
    is_grouped = enable_gqa and q.ndim == 4 and len(q) == len(k) and q.shape[1] % k.shape[1] == 0
    if q.shape[:-2] != k.shape[:-2] and not is_grouped:
        return False
    if any((tag := tag_of(x)).is_gradient or tag.is_weight for x in (q, k, v)):
        return False
    if mask is None:
        return True
    if is_causal or type(mask) is not Tensor or mask.requires_grad or tag_of(mask).is_gradient:
        return False
    shape = (*q.shape[:-1], k.shape[-2])
    is_known = mask.dtype == torch.bool or are_plain(mask)
    fits = mask.ndim <= len(shape) and all(m in (1, n) for m, n in zip(mask.shape[::-1], shape[::-1], strict=False))
    return is_known and fits


def _by_formulas(
    run: RunContext, place: Place, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None,
) -> Tensor:  # fmt: skip
    """Return softmax(q k^T * scale + mask) v, with the steps of PyTorch's kernel as one call each."""

    def place_of(operation: str) -> Place:
        return run.simulation.place_at(operation, place.path, (ATTENTION,))

    # As in PyTorch's kernel, each factor is multiplied by the root of the scale. With its single operations, attention
    # of 4 heads has 26 calls from PyTorch to Python, and 24 in the backward pass.
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -torch.inf)
    factor = place_of("multiply")
    q = run_formula(run, SCALING, factor, (q, root))
    if q.shape[-3] != k.shape[-3]:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    k = run_formula(run, SCALING, factor, (k.transpose(-2, -1), root))
    scores = run_product(run, place_of("matmul"), q, k)
    if mask is not None:
        scores = run_formula(run, MASKING, place_of("add"), (scores, mask))
    weights = run_formula(run, SAFE_SOFTMAX, place_of("softmax"), (scores, -1))
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    return run_product(run, place_of("matmul"), weights, v)


class Attention(Handler):
    """Attention when it is dispatched as one operation, as in inference mode."""

    how = "decomposition"

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of its operations, which are simulated."""
        with run.redispatch:
            return attention(*args, **options)


def _is_served(q: Any, k: Any, v: Any, mask: Any, dropout_p: Any, is_causal: bool) -> bool:
    """True if PyTorch accepts these operands; for other operands, and for integers, it raises its own errors."""
    tensors = [q, k, v] if mask is None else [q, k, v, mask]
    if not all(isinstance(x, Tensor) for x in tensors) or not all(x.is_floating_point() for x in (q, k, v)):
        return False
    return q.dtype == k.dtype == v.dtype and min(x.ndim for x in (q, k, v)) > 1 and not (is_causal and mask is not None)


class AttentionCall(NamedTuple):
    """The arguments of a call, other than queries, keys and values."""

    mask: Tensor | None
    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    kept: Tensor | None = None  # the probabilities that dropout kept in an earlier pass

    def weights_and_values(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return softmax(q k^T * scale + mask), with dropout, and the values, both for all heads."""
        mask = self.mask
        if self.enable_gqa:
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        scores = (q @ k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale)
        if self.is_causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf) if mask.dtype == torch.bool else scores + mask
        # Rows that the mask excludes completely become zeros; the ordinary softmax would return NaN.
        weights = torch.ops.aten._safe_softmax(scores, -1)
        if self.kept is not None:
            weights = weights * (self.kept * (1 / (1 - self.dropout_p) if self.dropout_p < 1 else 0.0))
        elif self.dropout_p > 0:
            weights = torch.dropout(weights, self.dropout_p, True)
        shape = torch.broadcast_shapes(weights.shape[:-2], v.shape[:-2])
        weights, v = (x.expand(*shape, *x.shape[-2:]) for x in (weights, v))
        return weights, v


def _fused(run: RunContext, place: Place, q: Tensor, k: Tensor, v: Tensor, call: AttentionCall) -> Tensor:
    """Return attention as operations of PyTorch, rounded where it begins and ends."""
    run.count_operation(OPERATION, "decomposition")
    place = place.without_observer if is_recomputing() else place
    dtype, operands = q.dtype, (q, k, v)
    if dtype in NARROW:
        # PyTorch's fused kernels read and write 16-bit values and keep scores and probabilities in FP32.
        q, k, v = q.float(), k.float(), v.float()
    q, k, v = (AttentionInput.apply(x, run, place) for x in (q, k, v))
    weights, v = call.weights_and_values(q, k, v)
    result = AttentionOutput.apply(WeightedValues.apply(weights, v, run), run, place, operands)
    return result.to(dtype) if dtype in NARROW else result


def _by_operations(run: RunContext, call: AttentionCall, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention as operations of PyTorch: inside the block as one composite, outside as PyTorch's own."""
    if active_run() is None:
        weights, v = call.weights_and_values(q, k, v)
        return weights @ v
    with recomputing(), run.part_of(ATTENTION) as place:
        return _fused(run, place, q, k, v, call)


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


class WeightedValues(torch.autograd.Function):
    """(weights, values, run) -> their product, by the formula of fused attention; gradients as for a product."""

    @staticmethod
    def forward(context: Any, weights: Tensor, values: Tensor, run: RunContext) -> Tensor:
        """Return the product."""
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
        """Return the gradients of weights and values."""
        if g is None:
            return None, None, None
        weights, values = context.saved_tensors
        # The gradients are computed by operations of PyTorch, so that a backward pass can be recorded. One node
        # computes both gradients: each product is marked with its operand before anything is returned.
        of_weights = of_values = None
        if context.needs_input_grad[0]:
            with target_operand(0):
                of_weights = g @ values.transpose(-2, -1)
        if context.needs_input_grad[1]:
            with target_operand(1):
                of_values = weights.transpose(-2, -1) @ g
        return of_weights, of_values, None


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
