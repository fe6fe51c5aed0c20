"""The rows of operations that run in one call: functions, norms, losses, powers and products.

Most rows use the formulas in the tables of `rules/`. `ROWS` are the operations that are one call wherever the program
calls them. Attention consists of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.simulation.formulas import activations as activations_of_both
from simfloat.simulation.formulas import slopes
from simfloat.simulation.place import Place
from simfloat.torch.formula import CompositeGradients, Formula
from simfloat.torch.open_run import active_run
from simfloat.torch.phases import target_operand
from simfloat.torch.quick_formulas import Arguments, FormulaCall
from simfloat.torch.rules import activations, losses, norms, pointwise
from simfloat.torch.tensors import array_on, tensor_on

Tensor = torch.Tensor
aten = torch.ops.aten


def _of_result(g: Any, arguments: Sequence[Any], outputs: Sequence[Any], mask: list[bool]) -> Arguments:
    return g, outputs[0]


def _of_softmax(g: Any, arguments: Sequence[Any], outputs: Sequence[Any], mask: list[bool]) -> Arguments:
    return g, outputs[0], arguments[1], torch.float32


def _row(operation: Any, way_back: Any, **options: Any) -> FormulaCall:
    """Return the row of an operation with the formulas in the tables of rules."""
    forward, back = (_TABLES[each.overloadpacket.__name__.removesuffix("_")] for each in (operation, way_back))
    slopes = [each.function for each in back.formulas] if isinstance(back, CompositeGradients) else [back.function]
    is_composite = isinstance(forward, Formula)
    return FormulaCall(
        forward.operation, operation, forward.function, way_back, tuple(slopes), is_composite=is_composite, **options
    )


_TABLES: dict[str, Any] = {
    **{name: pointwise.PointwiseRule(*row) for name, row in pointwise.POINTWISE_FORMULAS.items()},
    **pointwise.FORMULAS, **activations.TABLE, **losses.TABLE, **norms.TABLE,
}  # fmt: skip


def _same_shape(x: Any, y: Any, *_: Any) -> bool:
    return isinstance(y, Tensor) and x.shape == y.shape


def _silu_recorded(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient by the operations of PyTorch, which has no second derivative of silu_backward."""
    if not torch.is_grad_enabled():
        return aten.silu_backward(g, x)
    # PyTorch's formulas in C++ compute the right operand first, and third derivatives add their terms in this order.
    sigmoid = x.sigmoid()
    further = 1.0 + x * (1.0 - sigmoid)
    return g * sigmoid * further


def _hardtanh(u: Any, x: NDArray, low: float, high: float) -> NDArray:
    # clamp selects the values, as in the rule of hardtanh; torch's hardtanh would call this row again.
    return u.round(array_on(torch.clamp(tensor_on(x), low, high)))


def _hardtanh_slope(u: Any, g: NDArray, x: NDArray, low: float, high: float) -> NDArray:
    return activations_of_both.hardtanh_to_x(u, g, None, x, *pointwise.in_type_of(x, low, high))


def _square_slope(u: Any, g: NDArray, x: NDArray, exponent: float) -> NDArray:
    return u.multiply(g, u.multiply(u.apply("power", x, np.array(exponent - 1.0)), np.array(float(exponent))))


def _without_weights(x: Any, y: Any, weight: Any, pos_weight: Any, reduction: int) -> bool:
    return weight is None is pos_weight and _same_shape(x, y)


def _logistic_slope(u: Any, g: NDArray, x: NDArray, y: NDArray, *options: Any) -> NDArray:
    slope = u.multiply(u.subtract(u.apply("sigmoid", x), y), g)
    return u.divide(slope, np.array(float(x.size))) if options[-1] == losses.MEAN else slope


def _logistic_recorded(g: Tensor, x: Tensor, y: Tensor, *options: Any) -> Tensor:
    slope = (x.sigmoid() - y) * g
    return slope / x.numel() if options[-1] == losses.MEAN else slope


def _group_norm_gradients(
    g: Tensor | None, x: Tensor, mean: Tensor, factor: Tensor, weight: Tensor | None, shape: tuple[int, ...],
    mask: Sequence[bool], of_statistics: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    """Compute the gradients by the operations of PyTorch's formula; means and factors may also have gradients."""
    if torch.is_grad_enabled() or active_run() is None:
        return _parts_of_group_norm(g, x, mean, factor, weight, shape, mask, of_statistics)
    # All operations for the gradient of an operand are rounded in the role of this operand.
    gradients = list[Tensor | None]()
    for number, is_needed in enumerate(mask):
        mask_of_one = [is_needed and i == number for i in range(3)]
        with target_operand(1 if number == 2 and weight is None else number):
            parts = _parts_of_group_norm(g, x, mean, factor, weight, shape, mask_of_one, of_statistics)
        gradients.append(parts[number])
    return gradients


def _parts_of_group_norm(
    g: Tensor | None, x: Tensor, mean: Tensor, factor: Tensor, weight: Tensor | None, shape: tuple[int, ...],
    mask: Sequence[bool], of_statistics: Sequence[Tensor | None],
) -> list[Tensor | None]:  # fmt: skip
    n, groups, channels, size = shape
    share, (of_mean, of_factor) = 1.0 / (channels * size), of_statistics or (None, None)
    rows, means, factors = x.view(shape), mean.view(n, groups, 1, 1), factor.view(n, groups, 1, 1)
    parts = list[Tensor | None]([None] * 3)
    if g is not None:
        g = g.reshape(shape)
        products, sums = (g * rows).sum(3).unsqueeze(-1), g.sum(3).unsqueeze(-1)
    if mask[0]:
        weights = None if weight is None else weight.view(1, groups, channels, 1)
        cube = factors * factors * factors
        slope = None
        if g is not None:
            scale = factors if weights is None else factors * weights
            b, c = ((y if weights is None else y * weights).sum(2).unsqueeze(-2) for y in (products, sums))
            b = aten.mul.Scalar((c * means - b) * cube, share)
            further = aten.mul.Scalar(c * factors, share)
            c = -b * means - further
            of_rows = b * rows
            slope = scale * g + of_rows + c
        if of_mean is not None and of_factor is not None:
            of_variance = aten.mul.Scalar(cube, -0.5) * of_factor.view(n, groups, 1, 1)
            deviations = rows - rows.mean([2, 3], True)
            further = aten.mul.Scalar(of_variance, 2 * share) * deviations
            further = further + of_mean.view(n, groups, 1, 1).expand(shape) / (channels * size)
            slope = further if slope is None else slope + further
        parts[0] = None if slope is None else slope.reshape(x.shape)
    if g is not None and mask[1]:
        parts[1] = ((products - sums * means) * factors).sum(0).reshape(-1)
    if g is not None and mask[2]:
        parts[2] = sums.sum(0).reshape(-1)
    return parts


def _recorded_products(g: Tensor, a: Tensor, b: Tensor, place: Place, mask: Sequence[bool]) -> list[Tensor | None]:
    g = g.view(g.shape)  # one node for both products: shares of its gradient meet there, as in PyTorch
    of_a = g @ b.transpose(-2, -1) if mask[0] else None
    return [of_a, a.transpose(-2, -1) @ g if mask[1] else None]


SAFE_SOFTMAX = _row(
    aten._safe_softmax.default, aten._softmax_backward_data.default, arguments_back=_of_softmax, outputs=(0,)
)
SCALING = FormulaCall(
    "multiply", aten.mul.Scalar, lambda u, x, factor: u.multiply(x, np.array(factor)), aten.mul.Scalar,
    (lambda u, g, _, factor: u.multiply(g, np.array(factor)),), is_composite=False,
    recorded=lambda g, _, factor: aten.mul.Scalar(g, factor),
)  # fmt: skip
MASKING = FormulaCall("add", aten.add.Tensor, lambda u, x, mask: u.add(x, mask), None, (None,), is_composite=False)
#: A product of two batches of matrices at a place, which is the last argument.
PRODUCT = FormulaCall(
    "matmul", aten.bmm.default, lambda u, a, b, place: u.matmul(a, b, place.input(), place.input()), aten.bmm.default,
    (
        lambda u, g, a, b, place, _: u.matmul(g, b.swapaxes(-2, -1), place.gradient, place.input()),
        lambda u, g, a, b, place, _: u.matmul(a.swapaxes(-2, -1), g, place.input(), place.gradient),
    ),
    lambda g, arguments, outputs, mask: (g, *arguments, mask), operands=(0, 1), reads=(0, 1), is_composite=False,
    recorded=_recorded_products, is_product=True, has_own_layout=True,
)  # fmt: skip

#: The operations that are one call wherever the program calls them.
ROWS = (
    _row(
        aten.relu.default, aten.threshold_backward.default, outputs=(0,),
        arguments_back=lambda g, arguments, outputs, mask: (g, outputs[0], 0),
    ),
    _row(
        aten.relu_.default, aten.threshold_backward.default, outputs=(0,), is_in_place=True,
        arguments_back=lambda g, arguments, outputs, mask: (g, outputs[0], 0),
    ),
    FormulaCall(
        "clip", aten.hardtanh.default, _hardtanh, aten.hardtanh_backward.default, (_hardtanh_slope,), reads=(0,),
        is_composite=False,
    ),
    _row(aten.tanh.default, aten.tanh_backward.default, arguments_back=_of_result, outputs=(0,)),
    _row(aten.sigmoid.default, aten.sigmoid_backward.default, arguments_back=_of_result, outputs=(0,)),
    FormulaCall(
        "gelu", aten.gelu.default, lambda u, x, _: u.apply("gelu", x), aten.gelu_backward.default,
        (lambda u, g, x, _: slopes.gelu(u, g, None, x),), reads=(0,), is_composite=False,
        serves=lambda x, approximate: approximate == "none", recorded=lambda g, x, _: aten.gelu_backward(g, x),
    ),
    _row(aten.silu.default, aten.silu_backward.default, reads=(0,), recorded=_silu_recorded),
    _row(aten.softplus.default, aten.softplus_backward.default, reads=(0,)),
    _row(aten.hardswish.default, aten.hardswish_backward.default, reads=(0,)),
    _row(aten.hardsigmoid.default, aten.hardsigmoid_backward.default, reads=(0,)),
    _row(
        aten.leaky_relu.default, aten.leaky_relu_backward.default, reads=(0,),
        arguments_back=lambda g, arguments, outputs, mask: (g, *arguments, False),
    ),
    _row(
        aten.elu.default, aten.elu_backward.default, reads=(0,),
        arguments_back=lambda g, arguments, outputs, mask: (g, *arguments[1:], False, arguments[0]),
    ),
    _row(aten._softmax.default, aten._softmax_backward_data.default, arguments_back=_of_softmax, outputs=(0,)),
    _row(aten._log_softmax.default, aten._log_softmax_backward_data.default, arguments_back=_of_softmax, outputs=(0,)),
    _row(
        aten.nll_loss_forward.default, aten.nll_loss_backward.default, reads=(0, 1, 2), outputs=(1,),
        arguments_back=lambda g, arguments, outputs, mask: (g, *arguments, outputs[1]),
    ),
    FormulaCall(
        "binary_cross_entropy_with_logits", aten.binary_cross_entropy_with_logits.default, losses.logistic_loss,
        aten.sigmoid.default, (_logistic_slope,), reads=(0, 1), serves=_without_weights, recorded=_logistic_recorded,
    ),
    _row(aten.mse_loss.default, aten.mse_loss_backward.default, reads=(0, 1), serves=_same_shape),
    _row(aten.smooth_l1_loss.default, aten.smooth_l1_loss_backward.default, reads=(0, 1), serves=_same_shape),
    _row(aten.huber_loss.default, aten.huber_loss_backward.default, reads=(0, 1), serves=_same_shape),
    _row(
        aten.native_layer_norm.default, aten.native_layer_norm_backward.default, operands=(0, 2, 3), reads=(0, 2, 3),
        arguments_back=lambda g, arguments, outputs, mask: (g, *arguments[:2], *outputs[1:], *arguments[2:4], mask),
        outputs=(1, 2),
    ),
    FormulaCall(
        "batch_norm", aten.native_batch_norm.default, norms.batch_norm, aten.native_batch_norm_backward.default,
        (norms.batch_to_x, norms.batch_to_weight, norms.batch_to_bias), operands=(0, 1, 2), reads=(0, 1, 3, 4),
        arguments_back=lambda g, arguments, outputs, mask: (
            g, *arguments[:2], *arguments[3:5], *outputs[1:], arguments[5], arguments[7], mask
        ),
        outputs=(1, 2), writes=lambda *arguments: (3, 4) if arguments[5] else (),
    ),
    _row(
        aten.native_group_norm.default, aten.native_group_norm_backward.default, operands=(0, 1, 2), reads=(0, 1),
        arguments_back=lambda g, arguments, outputs, mask: (
            g, arguments[0], *outputs[1:], arguments[1], *arguments[3:7], mask
        ),
        outputs=(1, 2), are_differentiable=True,
        recorded=lambda g, x, mean, factor, weight, n, c, hxw, groups, mask, *of_statistics: _group_norm_gradients(
            g, x, mean, factor, weight, (n, groups, c // groups, hxw), mask, of_statistics
        ),
    ),
    FormulaCall(
        "power", aten.pow.Tensor_Scalar, lambda u, x, exponent: u.apply("power", x, np.array(float(exponent))),
        aten.pow.Tensor_Scalar, (_square_slope,), reads=(0,), is_composite=False,
        serves=lambda x, exponent: exponent == 2, recorded=lambda g, x, exponent: g * (exponent * x.pow(exponent - 1)),
    ),
)  # fmt: skip
