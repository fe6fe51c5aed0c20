"""Rules of matrix products, of convolutions, and of their gradients.

Operands are rounded by their role, and sums use the `accumulate` of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.arithmetic.target import carrier_of
from simfloat.formats import FP32
from simfloat.simulation.arithmetic import Arithmetic
from simfloat.simulation.formulas.convolution import ConvolutionFormula
from simfloat.simulation.place import widest_format
from simfloat.sums.geometry import as_images, geometry_of, transposed_geometry
from simfloat.sums.scales import Scales
from simfloat.torch.arguments import Arguments
from simfloat.torch.handlers import Handler, Rule
from simfloat.torch.phases import Backward, Forward
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.tensors import numbers_of, weight_path


def at_least_fp32(arithmetic: Arithmetic) -> Arithmetic:
    """Return the arithmetic with results in FP32, or in its own format if that is wider."""
    format = widest_format((FP32, arithmetic.format))
    if format == arithmetic.format:
        return arithmetic
    return arithmetic.with_target(arithmetic.target._replace(format=format, dtype=carrier_of(format)))


def product(
    call: RuleCall, a: torch.Tensor, b: torch.Tensor, axes: int = 2, scales: Scales | None = None, *,
    is_wide: bool = False,
) -> NDArray:  # fmt: skip
    """Multiply a (m, k) by b (k, n), or (batch, m, k) by (batch, k, n) with three axes; blocks may have scales.

    With `is_wide` the sums are rounded at least to FP32, for further steps before the rounding of the result.

    Raises ValueError if shapes do not match, because a rule runs before PyTorch has checked them.
    """
    if (a.ndim, b.ndim) != (axes, axes) or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        needed = "(m, k) by (k, n)" if axes == 2 else "(batch, m, k) by (batch, k, n)"
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{call.phase.place.where}: {call.name} multiplies {needed}, got shapes {shapes}.")
    # A kernel multiplies the sum by alpha before its only rounding to the dtype of the result. Rounded sums would be
    # rounded twice.
    arithmetic = at_least_fp32(call.begin()) if is_wide else call.begin()
    return arithmetic.matmul(numbers_of(a), numbers_of(b), *call.inputs(a, b), scales)


def mm(call: RuleCall, a: torch.Tensor, b: torch.Tensor, *, axes: int = 2) -> torch.Tensor:
    """Return the product of matrices, or of a batch of them."""
    return call.tensor(product(call, a, b, axes))


def mv(call: RuleCall, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the product of a matrix and a vector, or of two vectors."""
    rows = a if a.ndim > 1 else a.unsqueeze(0)
    result = product(call, rows, b.unsqueeze(-1))
    return call.tensor(result[..., 0] if a.ndim > 1 else result[0, 0])


def addmm(
    call: RuleCall,
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
    axes: int = 2,
) -> torch.Tensor:
    """Return beta * c + alpha * a @ b; if both factors are 1, the product is rounded, and then the sum.

    Other factors multiply in at least FP32, the format of the sums of products, before the only rounding.
    """
    alpha, beta = float(alpha), float(beta)
    is_scaled = alpha != 1 or beta not in (0, 1)
    result = product(call, a, b, axes, is_wide=is_scaled)
    steps = at_least_fp32(call.arithmetic)
    result = result if alpha == 1 else steps.multiply(numbers_of(alpha), result)
    if c.ndim > axes or any(n not in (1, m) for n, m in zip(c.shape[::-1], result.shape[::-1], strict=False)):
        raise ValueError(f"{call.name} adds to a product of shape {result.shape}, got shape {tuple(c.shape)}.")
    if beta == 0:
        return call.tensor(call.round(result) if is_scaled else result)
    share = numbers_of(c) if beta in (0, 1) else steps.multiply(numbers_of(beta), numbers_of(c))
    # The addition is another operation of a policy, with its own rounding, override and random bits.
    call.phase = call.phase.sibling("add", call.format)
    call.begin()
    return call.tensor(call.add(result, share))


def addmv(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * a @ b for a matrix a and vectors b and c."""
    return addmm(call, c.unsqueeze(-1), a, b.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)


def addbmm(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * the sum of a[i] @ b[i] over a batch, as one sum over all products in order."""
    if (a.ndim, b.ndim) != (3, 3) or (a.shape[0], a.shape[2]) != b.shape[:2]:
        shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise ValueError(f"{call.name} multiplies (batch, m, k) by (batch, k, n), got shapes {shapes}.")
    rows = a.transpose(0, 1).reshape(a.shape[1], -1)
    return addmm(call, c, rows, b.reshape(-1, b.shape[-1]), beta=beta, alpha=alpha)


def addr(
    call: RuleCall, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Return beta * c + alpha * a b^T for vectors a and b."""
    return addmm(call, c, a.unsqueeze(-1), b.unsqueeze(0), beta=beta, alpha=alpha)


class SameTypeRule(Rule):
    """A product or a convolution of operands of one dtype: PyTorch does not promote them."""

    def type_of(self, phase: Forward, operands: list[torch.Tensor], args: Arguments) -> torch.dtype:
        """Return the dtype of the operands; raise ValueError if there are several, or integers."""
        first, *others = dict.fromkeys(x.dtype for x in args if isinstance(x, torch.Tensor))
        if others:
            raise ValueError(
                f"{phase.place.where} takes operands of one type, as in PyTorch, got {first} and {others[0]}; convert "
                f"one of them, for example by x.to({operands[-1].dtype})."
            )
        return first


class Contraction(SameTypeRule):
    """A product of two consecutive operands, starting with number `first`; with a parameter it is a linear layer."""

    def __init__(self, rule: Any, first: int = 0) -> None:
        super().__init__("matmul", rule)
        self.first, self.is_primitive = first, not first

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Return "linear" if an operand is a parameter, otherwise "matmul"."""
        # Overrides name a product of two activations, as in attention, differently from the product of a layer.
        factors = args[self.first : self.first + 2]
        return "linear" if any([weight_path(x) is not None for x in factors]) else "matmul"

    def in_policy_order(self, operands: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the factors first, then the operand that is added."""
        return operands[self.first :] + operands[: self.first]


class Outer(Contraction):
    """The product of a column and a row; PyTorch promotes their dtypes."""

    type_of = Rule.type_of


#: By PyTorch's name; overloads with a given dtype of the result, for example of mm, have no rule.
TABLE: dict[str, Handler] = {
    "mm.default": Contraction(mm),
    "bmm.default": Contraction(partial(mm, axes=3)),
    "mv": Contraction(mv),
    "dot": Contraction(mv),
    "vdot": Contraction(mv),
    "addr": Outer(addr, 1),
    "addmm.default": Contraction(addmm, 1),
    "addmv": Contraction(addmv, 1),
    "addbmm": Contraction(addbmm, 1),
    "baddbmm.default": Contraction(partial(addmm, axes=3), 1),
}


Sizes = Sequence[int]


def convolution_of(
    x: torch.Tensor, w: torch.Tensor, stride: Sizes, padding: Sizes, dilation: Sizes, transposed: bool, more: Sizes,
    groups: int,
) -> ConvolutionFormula:  # fmt: skip
    """Return the convolution, or the transposed one with output padding `more`, of sequences, images or volumes."""
    images, kernels = as_images(numbers_of(x)), as_images(numbers_of(w))
    axes = x.ndim - 2
    steps, gaps = along_axes(stride, axes, 1), along_axes(dilation, axes, 1)
    border, extra = along_axes(padding, axes, 0), along_axes(more, axes, 0)
    if not transposed:
        return ConvolutionFormula(
            geometry_of(images, kernels, steps, border, gaps, groups, max(axes, 2)), images.shape[2:]
        )
    sizes = images.shape[2:], kernels.shape[2:], steps, border, gaps, extra
    return ConvolutionFormula(*transposed_geometry(*sizes, groups), is_transposed=True)


def along_axes(option: Sizes, axes: int, row: int) -> tuple[int, ...]:
    """Return an option for each axis, which may be one number for all; sequences are images of one row."""
    sizes = option if len(option) == axes else [*option] * axes
    return (row, *sizes) if axes == 1 else tuple(sizes)


def convolution(
    call: RuleCall, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int,
) -> torch.Tensor:  # fmt: skip
    """Return the convolution, or the transposed one; the addition of the bias is a second rounding."""
    contraction = convolution_of(x, w, stride, padding, dilation, transposed, output_padding, groups)
    result = contraction.result(call.begin(), numbers_of(x), numbers_of(w), call.inputs(x, w))
    if bias is not None:
        call.phase = call.phase.sibling("add", call.format)
        call.begin()
        result = call.add(result, numbers_of(bias).reshape(-1, *[1] * (x.ndim - 2)))
    return call.tensor(result)


def convolution_backward(
    call: RuleCall, g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, bias_sizes: Any, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int, mask: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """Return the gradients of images, kernels and bias that are needed.

    The gradient that the addition of the bias passes to the product is rounded. The sum for the bias adds the unrounded
    gradient.
    """
    if not isinstance(call.phase, Backward):
        raise ValueError("aten.convolution_backward is simulated only in a backward pass.")
    way, came = call.phase, g
    # The addition of the bias follows the product, and its backward pass rounds the gradient: so the product reads the
    # rounded gradient, and the bias reads the unrounded one.
    g = way.in_result_format(came) if way.may_narrow and (mask[0] or mask[1]) else came
    contraction = convolution_of(x, w, stride, padding, dilation, transposed, output_padding, groups)
    gradient = numbers_of(g)
    gradients: list[torch.Tensor | None] = [None, None, None]
    if mask[0]:
        call.phase = way.to_operand(0)
        u = call.begin()
        gradients[0] = call.tensor(contraction.to_x(u, gradient, numbers_of(w), tuple(x.shape), call.inputs(g, w)))
    if mask[1]:
        call.phase = way.to_operand(1)
        u = call.begin()
        gradients[1] = call.tensor(
            contraction.to_kernels(u, gradient, numbers_of(x), tuple(w.shape), call.inputs(g, x))
        )
    if mask[2]:
        call.phase = bias = way.of_bias()
        came = bias.in_result_format(came) if bias.may_narrow else came
        call.begin()
        gradients[2] = call.tensor(call.sum(numbers_of(came), (0, *range(2, came.ndim))))
    return tuple(gradients)


class ConvolutionBackward(SameTypeRule):
    """The backward pass of a convolution, which passes the gradient to the product and to the bias."""

    is_entered = False


class Convolution(SameTypeRule):
    """A convolution or a transposed convolution of sequences, images or volumes.

    In policies their names are `conv2d` and `conv_transpose2d`, for any number of axes.
    """

    def operation_for(self, args: tuple[Any, ...]) -> str:
        """Return the name of the operation."""
        is_transposed = len(args) > 6 and isinstance(args[6], bool) and args[6]
        return "conv_transpose2d" if is_transposed else "conv2d"


#: Rules, by PyTorch's name.
TABLE |= {
    "convolution": Convolution("conv2d", convolution),
    "convolution_backward": ConvolutionBackward("conv2d", convolution_backward),
}
