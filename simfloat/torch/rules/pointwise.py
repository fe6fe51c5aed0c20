"""Pointwise operations: a table of what each is in operations that are rounded once.

In a row, `u` is the call, whose every operation is rounded as the policy says; `a`, `b`, `c` are arrays of the
operands, and `g` is a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.torch.handlers import Ruled
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.rules.quotients import quotients, remainders
from simfloat.torch.tensor_arrays import numbers_of


def power(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """a to the power b."""
    return u.apply("power", a, b)


def divide(u: RuleCall, a: NDArray, b: NDArray, *, rounding_mode: str | None = None) -> NDArray:
    """a / b, the exact quotient rounded once; to an integer first where that is asked for."""
    return u.divide(a, b) if rounding_mode is None else u.add(*quotients(a, b, is_floor=rounding_mode == "floor"))


def modulo(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """What is left of a behind b times the largest integer that is not above a / b: of b's sign."""
    left = remainders(a, b)
    # Adding zero would lose the sign of a zero, but for a zero of its own sign.
    return u.add(left, np.where((left != 0) & ((left < 0) != (b < 0)), b, np.copysign(0.0, left)))


def mixed(u: RuleCall, a: NDArray, b: NDArray, weight: NDArray) -> NDArray:
    """a + weight * (b - a); where weight is 1/2 or more b - (1 - weight) * (b - a), as PyTorch computes it."""
    difference = u.subtract(b, a)
    if weight.ndim == 0:
        if abs(weight) < 0.5:
            return u.total(a, u.multiply(weight, difference))
        return u.total(b, -u.multiply(1.0 - weight, difference))
    low = np.abs(weight) < 0.5
    share = u.multiply(np.where(low, weight, np.asarray(weight, np.float64) - 1.0), difference)
    return u.total(np.where(low, a, b), share)


def gelu_slope(u: RuleCall, g: NDArray, a: NDArray) -> NDArray:
    """g * (1/2 * (1 + erf(a * sqrt 1/2)) + a * (1 / sqrt(2 pi) * exp(a * a * -1/2)))."""
    probability = u.multiply(0.5, u.add(1.0, u.apply("erf", u.multiply(a, 0.5**0.5))))
    density = u.multiply((2 * np.pi) ** -0.5, u.apply("exp", u.multiply(u.multiply(a, a), -0.5)))
    return u.multiply(g, u.add(probability, u.multiply(a, density)))


def gelu(u: RuleCall, a: NDArray, *, approximate: str = "none") -> NDArray:
    """a times the probability of a normal number below it; by the hyperbolic tangent where that is asked for."""
    if approximate == "none":
        return u.apply("gelu", a)
    return u.multiply(u.multiply(a, 0.5), u.add(1.0, u.apply("tanh", _bend(u, a))))


def gelu_backward(u: RuleCall, g: NDArray, a: NDArray, *, approximate: str = "none") -> NDArray:
    """g times the derivative of gelu."""
    if approximate == "none":
        return gelu_slope(u, g, a)
    t = u.apply("tanh", _bend(u, a))
    bent = u.multiply((2 / np.pi) ** 0.5, u.add(1.0, u.multiply(3 * 0.044715, u.multiply(a, a))))
    rise = u.multiply(u.multiply(a, 0.5), u.multiply(u.subtract(1.0, u.multiply(t, t)), bent))
    return u.multiply(g, u.add(u.multiply(0.5, u.add(1.0, t)), rise))


def _bend(u: RuleCall, a: NDArray) -> NDArray:
    """sqrt(2 / pi) * (a + 0.044715 * a^3)."""
    cubed = u.multiply(u.multiply(a, a), a)
    return u.multiply((2 / np.pi) ** 0.5, u.add(a, u.multiply(0.044715, cubed)))


def silu_slope(u: RuleCall, g: NDArray, a: NDArray) -> NDArray:
    """g * (s * (1 + a * (1 - s))) with s = sigmoid(a)."""
    s = u.apply("sigmoid", a)
    return u.multiply(g, u.multiply(s, u.add(1.0, u.multiply(a, u.subtract(1.0, s)))))


def leaky(u: RuleCall, a: NDArray, slope: NDArray | float = 0.01) -> NDArray:
    """a where it is positive, else slope * a."""
    return u.multiply(a, np.where(a > 0, 1.0, slope))


def leaky_slope(u: RuleCall, g: NDArray, a: NDArray, slope: NDArray, is_result: bool) -> NDArray:
    """g where a is positive, else slope * g."""
    return u.multiply(g, np.where(a > 0, 1.0, slope))


def above(u: RuleCall, g: NDArray, a: NDArray, threshold: NDArray) -> NDArray:
    """g where a is above the threshold, or NaN; else 0."""
    # The image times 0 or 1: np.where takes a branch for every element, which no processor can guess.
    image = g.view(np.uint32 if g.dtype == np.float32 else np.uint64)
    return u.round(np.asarray(image * ~(a <= threshold)).view(g.dtype))


def inside(u: RuleCall, g: NDArray, a: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """g where a is between the bounds, else 0."""
    return u.round(np.where((a <= low) | (a >= high), g.dtype.type(0), g))


#: By PyTorch's name: the operation's name in a policy, and what it is.
TABLE: dict[str, tuple[str, Callable[..., NDArray]]] = {
    "add": ("add", lambda u, a, b, alpha=1: u.total(a, u.times(float(alpha), b))),
    "sub": ("subtract", lambda u, a, b, alpha=1: u.difference(a, u.times(float(alpha), b))),
    "rsub": ("subtract", lambda u, a, b, alpha=1: u.difference(b, u.times(float(alpha), a))),
    "mul": ("multiply", lambda u, a, b: u.multiply(a, b)),
    "div": ("divide", divide),
    "addcmul": ("fma", lambda u, a, b, c, value=1: u.total(a, u.multiply(u.times(float(value), b), c))),
    "addcdiv": ("fma", lambda u, a, b, c, value=1: u.total(a, u.divide(u.times(float(value), b), c))),
    "lerp": ("fma", mixed),
    "floor_divide": ("divide", lambda u, a, b: divide(u, a, b, rounding_mode="floor")),
    "fmod": ("clip", lambda u, a, b: u.round(remainders(a, b))),
    "remainder": ("clip", modulo),
    "pow": ("power", power),
    "exp2": ("exp2", lambda u, a: u.apply("power", np.array(2.0), a)),
    "square": ("multiply", lambda u, a: u.multiply(a, a)),
    **{
        name: (name, lambda u, a, name=name: u.apply(name, a))
        for name in ("exp", "log", "log2", "tanh", "sin", "cos", "erf", "sigmoid", "reciprocal", "rsqrt", "sqrt")
    },
    "gelu": ("gelu", gelu),
    "gelu_backward": ("gelu", gelu_backward),
    "silu": ("multiply", lambda u, a: u.multiply(a, u.apply("sigmoid", a))),
    "silu_backward": ("multiply", silu_slope),
    "relu": ("relu", lambda u, a: above(u, a, a, np.array(0.0))),
    "threshold_backward": ("relu", above),
    "hardtanh_backward": ("clip", inside),
    "leaky_relu": ("leaky_relu", leaky),
    "leaky_relu_backward": ("leaky_relu", leaky_slope),
    "sigmoid_backward": ("sigmoid", lambda u, g, y: u.multiply(g, u.multiply(y, u.subtract(1.0, y)))),
    "tanh_backward": ("tanh", lambda u, g, y: u.multiply(g, u.subtract(1.0, u.multiply(y, y)))),
}


#: Operations whose result is an operand's number, or its size or sign, which PyTorch finds and a rounding finishes.
CHOSEN: dict[str, str] = {
    "abs": "abs", "neg": "negative", "sgn": "abs", "sign": "abs", "floor": "clip", "ceil": "clip", "trunc": "clip",
    "round": "clip", "maximum": "maximum", "minimum": "minimum", "fmax": "maximum", "fmin": "minimum",
    "clamp": "clip", "clamp_min": "maximum", "clamp_max": "minimum", "hardtanh": "clip", "threshold": "maximum",
    "nan_to_num": "clip", "frac": "clip", "copysign": "abs",
    "max.other": "maximum", "min.other": "minimum",
}  # fmt: skip


#: What an operand of an elementwise operation may be; other arguments are options.
NUMBERS = (torch.Tensor, int, float)


def common_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which these are broadcast."""
    if not shapes:
        return ()
    return shapes[0] if shapes.count(shapes[0]) == len(shapes) else np.broadcast_shapes(*shapes)


class Pointwise(Ruled):
    """A row of the table on tensors, arrays and numbers, broadcast."""

    def __init__(self, operation: str, function: Callable[..., NDArray]) -> None:
        super().__init__(operation, self.computed)
        self.function = function

    def computed(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The result, laid out in memory as the operands are."""
        arrays = [numbers_of(x) if isinstance(x, NUMBERS) else x for x in args]
        call.begin(common_shape([x.shape for x in arrays if isinstance(x, np.ndarray) and x.ndim]))
        return call.laid_out(call.tensor(self.function(call, *arrays, **options)))


class Chosen(Ruled):
    """What PyTorch finds among the operands' numbers, rounded."""

    def __init__(self, operation: str, function: Any) -> None:
        super().__init__(operation, self.computed)
        self.function = function

    def computed(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The result."""
        found = self.function(*args, **options)
        call.begin(found.shape)
        return call.tensor(call.round(found))
