"""Activations with a bend, forward and backward, by the formulas of `simfloat.formulas.bent_activations`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.formulas import activation_formulas, bent_activations
from simfloat.formulas.loss_formulas import log_sigmoid
from simfloat.formulas.rounded import Rounded, number
from simfloat.torch.floating_operands import Arguments, Options
from simfloat.torch.formula import CompositeGradients, Formula, GradientRule
from simfloat.torch.handlers import Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.aten_pointwise import PointwiseRule, leaky_relu
from simfloat.torch.run_context import RunContext
from simfloat.torch.tags import NOTHING, Tag

Tensor = torch.Tensor

_aten = torch.ops.aten


def log_sigmoid_forward(u: Rounded, x: NDArray) -> tuple[NDArray, NDArray]:
    """The result; and nothing for the way back."""
    return log_sigmoid(u, x), np.empty(0, x.dtype)


def log_sigmoid_backward(u: Rounded, g: NDArray, x: NDArray, nothing: NDArray) -> NDArray:
    """The gradient of x."""
    return bent_activations.log_sigmoid_slope(u, g, x)


def celu(u: Rounded, x: NDArray, alpha: float = 1.0) -> NDArray:
    """x where it is positive, else expm1(x / alpha) * alpha."""
    return bent_activations.elu(u, x, alpha, 1.0, 1 / alpha)


def elu_backward(
    u: Rounded, g: NDArray, alpha: float, scale: float, input_scale: float, is_result: bool, x: NDArray
) -> NDArray:
    """The gradient of x, or the same by the result, where that took the place of x."""
    slope = bent_activations.elu_slope_of_result if is_result else bent_activations.elu_slope
    return slope(u, g, x, alpha, scale, input_scale)


#: Slopes that lie nearer to each other than this are one slope: PyTorch draws none.
# The bound is that of PyTorch's rrelu_with_noise_backward.
EQUAL_WITHIN = 1e-6


def noisy_leaky_relu(
    call: RuleCall, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, generator: Any = None
) -> Tensor:
    """x where it is positive, else x times a factor that PyTorch draws, and rounds for the way back only."""
    call.begin()
    factors = torch.empty_like(noise, dtype=torch.promote_types(noise.dtype, torch.float32))
    _aten.rrelu_with_noise(x.to(factors.dtype), factors, lower, upper, training, generator)
    # PyTorch's own kernel draws, so that its generator goes on as it would. The result takes the factors as they were
    # drawn; only the way back reads the noise, which is of the tensor's type.
    noise.copy_(factors)
    return call.match_operand_layout(call.tensor(call.multiply(x, factors)))


class RandomSlopes(Rule):
    """A rule for slopes that are drawn, and that of leaky_relu with their mean where none is: when nothing is trained.

    So many operands come before the noise, behind which stand the slopes' bounds; going back, those may be one slope.
    """

    def __init__(self, random_rule: Rule, mean_rule: Rule, leaky_relu: Any, operands: int) -> None:
        super().__init__(random_rule.operation, random_rule.rule)
        self.random_rule, self.mean_rule, self.leaky_relu, self.operands = random_rule, mean_rule, leaky_relu, operands

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The result of the one that is asked for."""
        slope_arguments = args[self.operands + 1 :]
        lower, upper, training = [*slope_arguments, *(1 / 8, 1 / 3, False)[len(slope_arguments) :]][:3]
        if training and (self.operands == 1 or upper - lower > EQUAL_WITHIN):
            return self.random_rule(run, func, args, options, into)
        return self.mean_rule(run, self.leaky_relu, (*args[: self.operands], (lower + upper) / 2), {}, into)


class FormulaInOwnType(Formula):
    """A formula that PyTorch's kernels give Python's numbers in the program's own type, where others take float32."""

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> Any:
        """The results."""
        if call.phase.place.is_written:
            # The bits of PyTorch's CPU at every 16-bit number, for thresholds of hardshrink and the gradients of both
            # shrinks.
            args = tuple(float(torch.tensor(x, dtype=call.dtype)) if isinstance(x, float) else x for x in args)
        return super().compute(call, *args, **options)


def silu_backward(u: Rounded, g: NDArray, x: NDArray) -> NDArray:
    """The gradient of x."""
    return activation_formulas.silu_slope(u, g, None, x)


#: By PyTorch's name.
TABLE: dict[str, Rule] = {
    "rrelu_with_noise": RandomSlopes(
        Rule("rrelu", noisy_leaky_relu), PointwiseRule("rrelu", leaky_relu), _aten.leaky_relu.default, 1
    ),
    "rrelu_with_noise_backward": RandomSlopes(
        GradientRule("rrelu", lambda u, g, x, noise, *_: u.multiply(g, noise)),
        GradientRule(
            "rrelu", lambda u, g, x, slope: activation_formulas.leaky_relu_slope(u, g, None, x, number(slope))
        ),
        _aten.leaky_relu_backward.default,
        2,
    ),
    "silu": Formula("silu", activation_formulas.silu),
    "silu_backward": Formula("silu", silu_backward),
    "softplus": Formula("softplus", bent_activations.softplus),
    "softplus_backward": Formula("softplus", bent_activations.softplus_slope),
    "celu": Formula("elu", celu),
    "elu": Formula("elu", bent_activations.elu),
    "elu_backward": Formula("elu", elu_backward),
    "_prelu_kernel": Formula("prelu", bent_activations.prelu),
    "_prelu_kernel_backward": CompositeGradients("prelu", bent_activations.prelu_to_x, bent_activations.prelu_to_slope),
    "hardsigmoid": Formula("hardsigmoid", bent_activations.hardsigmoid),
    "hardsigmoid_backward": Formula("hardsigmoid", bent_activations.hardsigmoid_slope),
    "hardswish": Formula("hardswish", bent_activations.hardswish),
    "hardswish_backward": Formula("hardswish", bent_activations.hardswish_slope),
    "mish": Formula("mish", bent_activations.mish),
    "mish_backward": Formula("mish", bent_activations.mish_slope),
    "log_sigmoid_forward": Formula("log_sigmoid", log_sigmoid_forward),
    "log_sigmoid_backward": Formula("log_sigmoid", log_sigmoid_backward),
    "softshrink": Formula("softshrink", bent_activations.softshrink),
    "softshrink_backward": FormulaInOwnType("softshrink", bent_activations.shrink_slope),
    "hardshrink": FormulaInOwnType("hardshrink", bent_activations.hardshrink),
    "hardshrink_backward": FormulaInOwnType("hardshrink", bent_activations.shrink_slope),
    "glu": Formula("glu", bent_activations.glu),
    "glu_backward": Formula("glu", bent_activations.glu_slope),
}
