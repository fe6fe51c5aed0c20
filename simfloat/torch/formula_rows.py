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
    sigmoid = x.sigmoid()
    return g * sigmoid * (1.0 + x * (1.0 - sigmoid))


def _hardtanh(u: Any, x: NDArray, low: float, high: float) -> NDArray:
    # clamp selects the values, as in the rule of hardtanh; torch's hardtanh would call this row again.
    return u.round(array_on(torch.clamp(tensor_on(x), low, high)))


def _hardtanh_slope(u: Any, g: NDArray, x: NDArray, low: float, high: float) -> NDArray:
    return activations_of_both.hardtanh_to_x(u, g, None, x, *pointwise.in_type_of(x, low, high))


def _square_slope(u: Any, g: NDArray, x: NDArray, exponent: float) -> NDArray:
    return u.multiply(g, u.multiply(u.apply("power", x, np.array(exponent - 1.0)), np.array(float(exponent))))


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
    FormulaCall(
        "power", aten.pow.Tensor_Scalar, lambda u, x, exponent: u.apply("power", x, np.array(float(exponent))),
        aten.pow.Tensor_Scalar, (_square_slope,), reads=(0,), is_composite=False,
        serves=lambda x, exponent: exponent == 2, recorded=lambda g, x, exponent: g * (exponent * x.pow(exponent - 1)),
    ),
)  # fmt: skip
