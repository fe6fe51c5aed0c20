"""Run PyTorch's scaled dot product attention as one composite; a policy can round it once, like a fused kernel.

Otherwise it consists of operations of PyTorch, each at a place inside the composite.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from simfloat.simulation.place import Place
from simfloat.torch.arguments import Arguments, Options
from simfloat.torch.formula_rows import MASKING, SAFE_SOFTMAX, SCALING
from simfloat.torch.fused_attention import ATTENTION, OPERATION, AttentionCall, fused_attention
from simfloat.torch.handlers import Handler
from simfloat.torch.open_run import active_run, is_transformed
from simfloat.torch.quick_formulas import are_plain, has_saved_tensor_hooks, run_formula, unwatched_place
from simfloat.torch.quick_layers import run_product
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, tag_of

Tensor = torch.Tensor


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
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p is a probability, a number from 0 to 1, got {dropout_p!r}.")
    # PyTorch's own composite kernel, above autograd. Its operations are dispatched one by one within this composite,
    # and autograd records each of them.
    # Before the composite begins: inside it, operations have other places.
    is_unwatched = unwatched_place(run, ATTENTION) is not None and not has_saved_tensor_hooks()
    with run.part_of(ATTENTION) as place:
        if is_unwatched and not place.is_fused and _is_plain(*arguments, scale, enable_gqa):
            return _by_formulas(run, place, *arguments, scale)
        if not (place.is_fused and _is_served(*arguments, enable_gqa)):
            return OPERATION.decompose(*arguments, scale=scale, enable_gqa=enable_gqa)
        call = AttentionCall(*arguments[3:], scale, enable_gqa)
        return fused_attention(run, place, query, key, value, call)


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
    if any((tag := tag_of(x)).is_gradient or tag.is_weight or tag.narrow is not None for x in (q, k, v)):
        return False
    if mask is None:
        return True
    if is_causal or type(mask) is not Tensor or mask.requires_grad or tag_of(mask).is_gradient or tag_of(mask).narrow:
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
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
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


def _is_served(q: Any, k: Any, v: Any, mask: Any, dropout_p: Any, is_causal: bool, enable_gqa: bool) -> bool:
    """True if PyTorch accepts these operands; for other operands, and for integers, it raises its own errors."""
    tensors = [q, k, v] if mask is None else [q, k, v, mask]
    if not all(isinstance(x, Tensor) for x in tensors) or not all(x.is_floating_point() for x in (q, k, v)):
        return False
    if not q.dtype == k.dtype == v.dtype or min(x.ndim for x in (q, k, v)) < 2 or (is_causal and mask is not None):
        return False
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        return False
    if enable_gqa and not (q.ndim == k.ndim == v.ndim > 2 and k.shape[-3] == v.shape[-3] > 0):
        return False
    sizes = () if mask is None else zip(mask.shape[::-1], (k.shape[-2], q.shape[-2]), strict=False)
    return all(m in (1, n) for m, n in sizes) and not (enable_gqa and q.shape[-3] % k.shape[-3])
