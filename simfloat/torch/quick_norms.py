"""Run the normalization by root mean squares (RMSNorm) as one call, forward and backward, if nothing is watched.

In PyTorch it consists of six operations, and its backward pass of 17; each of them calls Python. The results here have
the same bits. Two intermediate results are outputs of the autograd node, and only its backward pass reads them. With
these outputs, gradients of gradients are added in the same order as with a node for each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from simfloat.environment import in_usual_environment
from simfloat.simulation.place import Place
from simfloat.torch.open_run import active_run, is_transformed, outside_block, without_dispatch
from simfloat.torch.phases import target_operand
from simfloat.torch.quick_formulas import (
    are_plain,
    current_node,
    gradient_arithmetic,
    gradient_tensor,
    has_saved_tensor_hooks,
    needed_gradients,
    store_gradient,
    unwatched_place,
)
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import Tag, numbers_of, put_tag, tag_of, tensor_of

Tensor = torch.Tensor
aten = torch.ops.aten

#: The name of the operation above autograd.
RMS_NORM = "rms_norm"

#: The operations of both passes, for the table of the run; a weight adds one product to the forward pass.
FORWARD = aten.pow.Tensor_Scalar, aten.mean.dim, aten.add_.Scalar, aten.rsqrt.default, aten.mul.Tensor
BACKWARD = aten.mul.Tensor, aten.sum.dim_IntList, aten.pow.Tensor_Scalar, aten.mul.Scalar, aten.div.Scalar


def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Compute PyTorch's rms_norm in one call if possible, otherwise by its single operations."""
    run: Any = active_run()
    place = None if run is None or is_transformed() or has_saved_tensor_hooks() else unwatched_place(run, "multiply")
    # An observer and a meter need each operation at its own place.
    if place is None or place.observer is not None or place.active_policy.meter is not None:
        return aten.rms_norm.default.decompose(x, shape, weight, eps)
    if run.parameters.is_outdated:
        run.parameters.arguments_as_read(aten.mul.Tensor, (x, weight), {})
    if not _is_served(x, shape, weight):
        return aten.rms_norm.default.decompose(x, shape, weight, eps)
    for operation in FORWARD if weight is None else (*FORWARD, aten.mul.Tensor):
        run.operation_counts.begin(operation, "rule", place.path)
    with without_dispatch():
        results: Any = _apply(run, place, len(shape), torch.finfo(x.dtype).eps if eps is None else eps, x, x, weight)
        result: Tensor = results[0]
        return result


def _is_served(x: Any, shape: Sequence[int], weight: Any) -> bool:
    """True for contiguous tensors of a forward pass, unless an axis has one element: PyTorch omits sums over it."""
    if not are_plain(x, *([] if weight is None else [weight])) or not x.is_contiguous() or not shape or 1 in shape:
        return False
    if tuple(x.shape[-len(shape) :]) != tuple(shape) or (weight is not None and tuple(weight.shape) != tuple(shape)):
        return False
    tag = tag_of(x)
    if weight is not None and (not weight.is_contiguous() or tag_of(weight).is_gradient or tag_of(weight).narrow):
        return False
    return not (tag.is_gradient or tag.is_weight or tag.narrow is not None)


class RootMeanSquares(torch.autograd.Function):
    """(run, place, number of axes, eps, x, x, weight or None) -> (x * f * weight, f = rsqrt(mean(x^2) + eps), x * f).

    x is passed twice, so that autograd has an edge for each of its two gradients, and adds them to other gradients in
    this order.
    """

    @staticmethod
    @in_usual_environment
    def forward(
        context: Any, run: RunContext, place: Place, count: int, eps: float, x: Tensor, _: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, ...]:
        """Return the result, and the intermediate results that the backward pass reads."""
        note = run.notes.begin(place, [x, x] if weight is None else [x, x, weight])
        power, mean, add, rsqrt = (
            run.simulation.place_at(name, place.path, ()) for name in ("power", "mean", "add", "rsqrt")
        )
        mean.has_summed = True
        values, axes = numbers_of(x), tuple(range(x.ndim - count, x.ndim))
        square = mean.forward.mean(power.forward.apply("power", values, np.array(2.0)), axes)
        factor = rsqrt.forward.apply("rsqrt", add.forward.add(square, np.array(eps)))
        factor = factor.reshape(*x.shape[:-count], *[1] * count)
        outputs = [factor, place.forward.multiply(values, factor)]
        if weight is not None:
            outputs.append(place.forward.multiply(outputs[1], numbers_of(run.parameters.read(weight))))
        tag = Tag(place.forward.format)
        tensors = [tensor_of(array, x.dtype) for array in outputs]
        for tensor in tensors:
            put_tag(tensor, tag)
        if note is not None:
            note.format, note.is_one_call = tag.format, True
        context.set_materialize_grads(False)
        context.run, context.note, context.count = run, note, count
        context.save_for_backward(x, weight, *(tensors[:2] if weight is not None else tensors[:1]))
        return tensors[-1], *tensors[:-1]

    @staticmethod
    @in_usual_environment
    def backward(
        context: Any, g: Tensor | None, to_factor: Tensor | None, to_normal: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        """Return both gradients of x, and the gradient of the weight."""
        run, needed = context.run, list(context.needs_input_grad[4:])
        if g is None and to_factor is None and to_normal is None:
            return (None,) * 7
        with without_dispatch():
            x, weight, factor, *normal = context.saved_tensors
        active = active_run()
        if active is not None and active is not run:
            raise outside_block(RMS_NORM)
        if active is not None:
            needed = needed_gradients(run, needed, (True, True, weight is not None))
        saved = x, weight, factor, normal[0] if normal else None
        if active is None or torch.is_grad_enabled() or to_factor is not None or to_normal is not None:
            gradients = _recorded_gradients(g, to_factor, to_normal, *saved, context.count, needed)
        else:
            assert g is not None
            with without_dispatch():
                gradients = _array_gradients(context, g, *saved, needed)
        return None, None, None, None, *gradients


#: `apply` of the autograd function, without its check for transforms of torch.func, which are inactive.
_apply: Callable[..., Any] = super(torch.autograd.Function, RootMeanSquares).apply


def _array_gradients(
    context: Any, g: Tensor, x: Tensor, weight: Tensor | None, factor: Tensor, normal: Tensor | None,
    needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Compute both gradients of x, and the gradient of the weight, with arrays."""
    run, note, count = context.run, context.note, context.count
    place, number, gradients = note.place, current_node()._sequence_nr(), list[Tensor | None]([None] * 3)
    for operation in BACKWARD:
        run.operation_counts.begin(operation, "rule", place.path)
    place.has_summed = True
    upstream, values, factors = numbers_of(g), numbers_of(x), numbers_of(factor)
    if weight is not None and normal is not None and needed[2]:
        operand = note.operands[2]
        u = gradient_arithmetic(place, operand.path, 2, operand.format)
        share = u.multiply(upstream, numbers_of(normal))
        share = u.sum(share, tuple(range(x.ndim - count))) if x.ndim > count else share
        if operand.path is None:
            gradients[2] = gradient_tensor(share, u, number)
        else:
            gradients[2] = store_gradient(run, place, operand, 2, share, u, number)
    if not needed[0]:
        return gradients
    u = place.to_activation(0, note.operands[0].format)
    if weight is not None:
        upstream = u.multiply(upstream, numbers_of(run.parameters.read(weight)))
    gradients[0] = gradient_tensor(u.multiply(upstream, factors), u, number)
    axes = tuple(range(x.ndim - count, x.ndim))
    slope = u.sum(u.multiply(upstream, values), axes).reshape(factors.shape)
    slope = u.multiply(u.multiply(slope, np.array(-0.5)), u.apply("power", factors, np.array(3.0)))
    slope = u.divide(slope, np.array(float(math.prod(x.shape[-count:]))))
    twice = u.multiply(u.apply("power", values, np.array(1.0)), np.array(2.0))
    gradients[1] = gradient_tensor(u.multiply(slope, twice), u, number)
    return gradients


def _recorded_gradients(
    g: Tensor | None, to_factor: Tensor | None, to_normal: Tensor | None, x: Tensor, weight: Tensor | None,
    factor: Tensor, normal: Tensor | None, count: int, needed: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Compute the gradients by the operations of PyTorch's nodes, for gradients of gradients."""
    gradients, axes = list[Tensor | None]([None] * 3), list(range(x.ndim - count, x.ndim))
    with target_operand(2):
        if g is not None and weight is not None and normal is not None and needed[2]:
            share, leading = g * normal, list(range(x.ndim - count))
            gradients[2] = share.sum(leading, keepdim=True).view(weight.shape) if leading else share
    if not needed[0]:
        return gradients
    with target_operand(0):
        if weight is None:
            to_normal = g
        elif g is not None:
            to_normal = g * weight if to_normal is None else to_normal + g * weight
        if to_normal is not None:
            gradients[0] = to_normal * factor
            slope = (to_normal * x).sum(axes, keepdim=True)
            to_factor = slope if to_factor is None else to_factor + slope
        if to_factor is not None:
            slope = aten.mul.Scalar(to_factor, -0.5) * factor.pow(3)
            slope = slope.expand(x.shape) / math.prod(x.shape[-count:])
            gradients[1] = slope * (2 * x.pow(1))
    return gradients
