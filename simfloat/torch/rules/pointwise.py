"""Rules of pointwise operations: tables of their formulas, in operations that are each rounded once.

Floor division and remainders are computed exactly. Some functions follow PyTorch's own formulas: every operation of the
formula is rounded.

In a row of the table, `u` is the call, which rounds every operation as the policy requires; `a`, `b`, `c` are arrays of
the operands, and `g` is a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simfloat.arithmetic.catalog import FUNCTIONS, Operation
from simfloat.arithmetic.machines import on_cpu, on_device_of
from simfloat.arithmetic.spacing import nextafter
from simfloat.simulation.formulas import Rounded, activations, number, slopes
from simfloat.torch.arguments import Arguments, Options, is_number
from simfloat.torch.formula import Formula, GradientRule
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, exact_tensor, numbers_of, result_type

#: For quotients of at least this size, the float64 quotient and the exact one may be on different sides of an integer.
LARGE = 2.0**51

Floats = NDArray[np.float64]


def remainders(a: NDArray, b: NDArray) -> Floats:
    """Return a - b * trunc(a / b), exactly, with the sign of a; NaN for b = 0 and for infinite a."""
    with np.errstate(invalid="ignore"):
        return np.fmod(np.asarray(on_cpu(a), np.float64), np.asarray(on_cpu(b), np.float64))


def quotients(a: NDArray, b: NDArray, *, is_floor: bool) -> tuple[Floats, Floats]:
    """Return trunc(a / b), or floor(a / b), as the exact sum of two numbers.

    The second number is nonzero only for integers that float64 cannot represent. A zero has the sign of the first
    number.
    """
    a, b = np.broadcast_arrays(np.asarray(on_cpu(a), np.float64), np.asarray(on_cpu(b), np.float64))
    left = remainders(a, b)
    with np.errstate(all="ignore"):
        quotient = a / b
        whole = np.rint((a - left) / b)
        if is_floor:
            whole = whole - ((left != 0) & ((left < 0) != (b < 0)))
        whole = np.where((b == 0) | (np.isinf(a) & (not is_floor)), quotient, whole)
    # The truncated quotient -1 / 3 is -0: it has the sign of the quotient before.
    whole = np.where(whole == 0, np.copysign(whole, quotient), whole)
    remainder = np.copysign(0.0, whole)
    for at in np.argwhere((np.abs(whole) >= LARGE) & np.isfinite(whole)):
        place = tuple(at)
        whole[place], remainder[place] = _parts(float(a[place]), float(b[place]), is_floor)
    return whole, remainder


def _parts(a: float, b: float, is_floor: bool) -> tuple[float, float]:
    """Return the integer quotient of two numbers in float64, and the rest that float64 cannot represent."""
    # Only quotients of 2^51 and more need this, which are rare.
    exact = Fraction(a) / Fraction(b)
    whole = math.floor(exact) if is_floor else math.trunc(exact)
    high = float(whole)
    return high, float(whole - int(high)) or math.copysign(0.0, high)


Tensor = torch.Tensor


def sinc(x: Tensor) -> Tensor:
    """Return sin(z) / z with z = pi * x, and 1 at 0."""
    z = x * math.pi
    # An observer would count 0 / 0 as NaN, although the result is 1.
    return torch.where(x == 0, torch.ones_like(x), z.sin() / torch.where(x == 0, torch.ones_like(z), z))


def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    """Return x * log1p(y), and 0 for x = 0."""
    x, y = (exact_tensor(value) for value in (x, y))
    is_zero, logarithms = (x == 0) & ~y.isnan(), y.log1p()
    return torch.where(is_zero, torch.zeros_like(y), x * torch.where(is_zero, torch.zeros_like(logarithms), logarithms))


def entropy(x: Tensor) -> Tensor:
    """Return -x * log(x), 0 at 0 and -inf below 0."""
    logarithms = x.log()
    terms = -x * torch.where(x == 0, torch.zeros_like(logarithms), logarithms)
    terms = torch.where(x == 0, torch.zeros_like(x), terms)
    return torch.where(x < 0, torch.full_like(terms, -torch.inf), terms)


def polygamma(n: Any, x: Any) -> Tensor:
    """Return the derivative of order n of digamma: (-1)^(n + 1) n! zeta(n + 1, x), with exact n!."""
    if isinstance(n, Tensor):  # in place, the tensor is the first argument
        n, x = x, n
    if n == 0:
        return x.digamma()
    zeta = torch.special.zeta(float(n + 1), x)
    return zeta if n == 1 else zeta * float((-1) ** (n + 1) * math.factorial(n))


def multivariate_lgamma(x: Tensor, p: int) -> Tensor:
    """Return the sum of lgamma(x + (1 - j) / 2) for j from p down to 1, plus the exact p (p - 1) / 4 * log(pi)."""
    shifts = torch.arange(1 - p, 1, dtype=torch.float64, device=x.device).to(x.dtype) / 2 if p > 1 else x.new_zeros(1)
    total = (x.unsqueeze(-1) + shifts).lgamma().sum(-1)
    return total + p * (p - 1) * math.log(math.pi) / 4


def angle(x: Tensor) -> Tensor:
    """Return pi below zero, otherwise 0."""
    half_turn = torch.full(x.shape, math.pi, dtype=x.dtype, device=x.device)  # exact, not in the format of x
    return torch.where(x.isnan(), x, torch.where(x < 0, half_turn, torch.zeros_like(x)) * 1)


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """Return x * 2^exponent."""
    return x * torch.exp2(exponent)


def logcumsumexp(u: Rounded, x: NDArray, dim: int) -> NDArray:
    """Return logcumsumexp by its formula; without axes or elements, return x, rounded."""
    if not x.size or not x.ndim:
        return u.round(x, "multiply", x)
    return slopes.logcumsumexp(u, x, dim)


def between(start: Tensor | float, end: Tensor | float, steps: int, *, dtype: torch.dtype, **_: object) -> Tensor:
    """Return values from start to end in equal steps: start + i * ((end - start) / (steps - 1))."""
    first, last = (exact_tensor(x).to(dtype) for x in (start, end))
    if steps <= 1:
        return (first * 1).expand(steps).clone()
    return first + torch.arange(steps, dtype=dtype) * ((last - first) / (steps - 1))


def powers_between(
    start: Tensor | float, end: Tensor | float, steps: int, base: float = 10.0, *, dtype: torch.dtype, **_: object
) -> Tensor:
    """Return powers of the base with exponents from start to end in equal steps."""
    return torch.pow(base, between(start, end, steps, dtype=dtype))


def normal(mean: Tensor | float, std: Tensor | float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """Return mean + std * z, with normally distributed z from PyTorch's generator."""
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    dtype = result_type([x for x in (mean, std) if isinstance(x, Tensor)])
    z = torch.empty(shape, dtype=dtype).normal_(generator=generator)
    return exact_tensor(mean) + exact_tensor(std) * z


def random_numbers(function: Any) -> Any:
    """Return a rule that rounds the numbers that PyTorch's generator draws from a distribution."""

    def rule(call: RuleCall, *args: Any, **options: Any) -> Tensor:
        numbers = function(*args, **options)
        call.begin()
        return call.tensor(call.round(numbers))

    return rule


#: Rules, by PyTorch's name.
TABLE: dict[str, Handler] = {
    **{
        name: Rule(name.strip("_"), random_numbers(getattr(torch.ops.aten, name)))
        for name in ("_sample_dirichlet", "_standard_gamma", "poisson", "binomial")
    },
    "special_xlog1py": Decomposition("xlogy", xlog1py),
    "special_entr": Decomposition("entropy", entropy),
    "deg2rad": Decomposition("multiply", lambda x: x * (math.pi / 180)),
    "rad2deg": Decomposition("multiply", lambda x: x * (180 / math.pi)),
    "angle": Decomposition("angle", angle),
    "ldexp": Decomposition("multiply", ldexp),
    "logcumsumexp": Formula("logcumsumexp", logcumsumexp),
    **{
        f"linspace.{kind}": Decomposition("linspace", between)
        for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"logspace.{kind}": Decomposition("linspace", powers_between)
        for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{f"normal.{kind}": Decomposition("normal", normal) for kind in ("Tensor_Tensor", "Tensor_float", "float_Tensor")},
    "polygamma": Decomposition("digamma", polygamma),
    "mvlgamma": Decomposition("lgamma", multivariate_lgamma),
    "sinc": Decomposition("sin", sinc),
}


def power(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """Return a to the power b."""
    return u.apply("power", a, b)


def divide(u: RuleCall, a: NDArray, b: NDArray, *, rounding_mode: str | None = None) -> NDArray:
    """Return a / b, the exact quotient rounded once; with a rounding mode, the integer quotient is rounded.

    PyTorch's CUDA kernels multiply by the float32 reciprocal of a number.
    """
    # A product with a rounded reciprocal is not the rounded quotient: its bits differ from the bits on a CPU.
    if rounding_mode is None and u.is_by_cuda and not b.ndim and a.ndim:
        return u.multiply(a, np.array(1 / np.float32(b), np.float32))
    return u.divide(a, b) if rounding_mode is None else u.add(*quotients(a, b, is_floor=rounding_mode == "floor"))


def add(u: RuleCall, a: NDArray, b: NDArray, alpha: float | NDArray = 1) -> NDArray:
    """Return a + alpha * b; the product is also rounded, unless the policy follows PyTorch's CPU kernels."""
    if float(alpha) in (1, -1) or not u.is_by_cpu:
        return u.total(a, u.times(float(alpha), b))
    return u.fused_total(float(alpha), b, a)


def subtract(u: RuleCall, a: NDArray, b: NDArray, alpha: float | NDArray = 1) -> NDArray:
    """Return a - alpha * b, rounded as in `add`."""
    if float(alpha) in (1, -1) or not u.is_by_cpu:
        return u.difference(a, u.times(float(alpha), b))
    return u.fused_total(-float(alpha), b, a)


def modulo(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """Return a - b * floor(a / b), with the sign of b."""
    a, b = on_cpu(a), on_cpu(b)
    left = remainders(a, b)
    # Adding +0 would change the sign of -0, so a zero of the same sign is added.
    return u.add(left, np.where((left != 0) & ((left < 0) != (b < 0)), b, np.copysign(0.0, left)))


def lerp(u: RuleCall, a: NDArray, b: NDArray, weight: NDArray) -> NDArray:
    """Return a + weight * (b - a), or b - (1 - weight) * (b - a) if weight is at least 1/2, as PyTorch does."""
    difference = u.subtract(b, a)
    if weight.ndim == 0:
        # PyTorch's lerp changes its formula at 1/2, so that the result at weight 1 is exactly b.
        low = abs(weight) < 0.5
        return u.fused_total(weight if low else weight - 1.0, difference, a if low else b)
    low = np.abs(weight) < 0.5
    share = np.where(low, weight, weight.astype(np.float64) - 1.0)
    return u.fused_total(share, difference, np.where(low, a, b))


def leaky_relu(u: Any, a: NDArray, slope: NDArray | float = 0.01) -> NDArray:
    """Return a if it is positive, otherwise slope * a."""
    return activations.leaky_relu(u, a, np.asarray(slope))


def threshold_backward(u: Any, g: NDArray, a: NDArray, least: float) -> NDArray:
    """Return g if a is above `least`, otherwise 0."""
    return slopes.relu(u, g, a, threshold=number(least))


def in_type_of(a: NDArray, *bounds: float) -> list[NDArray]:
    """Return bounds in the type of the operand, which PyTorch compares with them."""
    return [on_device_of(np.asarray(on_cpu(bound), a.dtype), a) for bound in bounds]


def hypotenuse(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """Return 2^k * sqrt(x * x + y * y) with x = a / 2^k and y = b / 2^k; inf if one is inf and the other NaN.

    The larger of |x| and |y| is between 1/2 and 1.
    """
    a, b = (np.where(np.isnan(c) & np.isinf(other), other, c) for c, other in ((a, b), (b, a)))
    # The scale is a power of two, so the two multiplications by it round nothing; squares neither overflow nor
    # underflow.
    _, k = np.frexp(np.nan_to_num(np.maximum(np.abs(a), np.abs(b)), nan=1.0, posinf=1.0))
    x, y = (u.multiply(c, np.ldexp(1.0, -k)) for c in (a, b))
    return u.multiply(u.apply("sqrt", u.add(u.multiply(x, x), u.multiply(y, y))), np.ldexp(1.0, k))


def names_of(row: Operation) -> list[str]:
    """Return PyTorch's names of a function of the catalog; none if PyTorch does not have it.

    The kernels of sums, products and quotients have options, and PyTorch computes hypot by a formula, so these have
    their own rules.
    """
    if len(row.operands) > 1 and row.accuracy == "exact":
        return []
    plain = row.name if hasattr(torch.ops.aten, row.name) else f"special_{row.name}"
    return [name for name in (plain, row.torch) if name and hasattr(torch.ops.aten, name)]


def rule_of_function(name: str) -> Callable[..., NDArray]:
    """Return a rule that applies a function of the catalog."""
    return lambda u, *operands: u.apply(name, *operands)


#: Functions of the catalog by PyTorch's names.
FUNCTION_OF: dict[str, str] = {theirs: name for name, row in FUNCTIONS.items() for theirs in names_of(row)}

#: By PyTorch's name: the operation's name in a policy, and its formula.
POINTWISE_FORMULAS: dict[str, tuple[str, Callable[..., NDArray]]] = {
    "add": ("add", add),
    "sub": ("subtract", subtract),
    "rsub": ("subtract", lambda u, a, b, alpha=1: subtract(u, b, a, alpha)),
    "mul": ("multiply", lambda u, a, b: u.multiply(a, b)),
    "div": ("divide", divide),
    "hypot": ("sqrt", hypotenuse),
    "addcmul": ("fma", lambda u, a, b, c, value=1: u.fused_total(u.times(float(value), b), c, a)),
    "addcdiv": ("fma", lambda u, a, b, c, value=1: u.total(a, u.divide(u.times(float(value), b), c))),
    "lerp": ("fma", lerp),
    "floor_divide": ("divide", lambda u, a, b: divide(u, a, b, rounding_mode="floor")),
    "fmod": ("clip", lambda u, a, b: u.round(remainders(a, b))),
    "remainder": ("clip", modulo),
    "nextafter": ("nextafter", lambda u, a, b: nextafter(u.round(a), b, u.format)),
    "native_dropout_backward": ("dropout", lambda u, g, mask, scale: u.multiply(g, mask * scale)),
    "square": ("power", lambda u, a: power(u, a, np.array(2.0))),  # as in PyTorch, except in inference mode
    "relu": ("relu", slopes.positive_part),
    "leaky_relu": ("leaky_relu", leaky_relu),
    **{theirs: (name, rule_of_function(name)) for theirs, name in FUNCTION_OF.items()},
}


#: Rows that are one operation of the catalog, with any options.
PRIMITIVES = frozenset({"mul", "nextafter", "square", "relu", *FUNCTION_OF})


class Gelu(Formula):
    """GELU by the hyperbolic tangent, which is a composite, or as one operation of the catalog; or its derivative."""

    how = "rule"

    def __init__(self, function: Callable[..., NDArray], exact: Callable[..., NDArray]) -> None:
        super().__init__("gelu_tanh", function)
        self.exact = GradientRule("gelu", exact)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """Return the result of the variant that the arguments select."""
        by_tanh = options.pop("approximate", "none") == "tanh"
        return (super().__call__ if by_tanh else self.exact)(run, func, args, options, into)


#: Derivatives, and other formulas of both front ends.
FORMULAS: dict[str, Rule] = {
    "gelu": Gelu(activations.gelu_tanh, lambda u, a: u.apply("gelu", a)),
    "gelu_backward": Gelu(
        lambda u, g, a: activations.gelu_tanh_slope(u, g, None, a),
        lambda u, g, a: slopes.gelu(u, g, None, a),
    ),
    "threshold_backward": GradientRule("relu", threshold_backward),
    "hardtanh_backward": GradientRule(
        "clip", lambda u, g, a, low, high: activations.hardtanh_to_x(u, g, None, a, *in_type_of(a, low, high))
    ),
    "leaky_relu_backward": GradientRule(
        "leaky_relu", lambda u, g, a, slope, _: activations.leaky_relu_slope(u, g, None, a, number(slope))
    ),
    "sigmoid_backward": GradientRule("sigmoid", slopes.sigmoid),
    "tanh_backward": GradientRule("tanh", slopes.tanh),
}


#: Operations with the value, the magnitude or the sign of an operand as their result: PyTorch selects, and the rule
#: rounds.
SELECTIONS: dict[str, str] = {
    "abs": "abs", "neg": "negative", "sgn": "abs", "sign": "abs", "floor": "clip", "ceil": "clip", "trunc": "clip",
    "round": "clip", "maximum": "maximum", "minimum": "minimum", "fmax": "maximum", "fmin": "minimum",
    "clamp": "clip", "clamp_min": "maximum", "clamp_max": "minimum", "hardtanh": "clip", "threshold": "maximum",
    "frac": "clip", "copysign": "abs",
    "max.other": "maximum", "min.other": "minimum",
}  # fmt: skip


#: Types of the operands of an elementwise operation; other arguments are options.
NUMBERS = (torch.Tensor, int, float)


class PointwiseRule(Rule):
    """A row of the table, for tensors, arrays and numbers, with broadcasting."""

    def __init__(self, operation: str, function: Callable[..., NDArray], is_primitive: bool = False) -> None:
        super().__init__(operation, self.compute)
        self.function, self.is_primitive = function, is_primitive

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the result, with the memory layout of the operands."""
        arrays = [numbers_of(x) if isinstance(x, NUMBERS) else x for x in args]
        by_number = self.operation == "multiply" and any(is_number(x) for x in args)
        # In PyTorch's CPU kernels, a product of a bfloat16 tensor and a Python number is computed in float32 and
        # rounded to bfloat16, so it is rounded twice. CUDA kernels compute all results by way of float32.
        if self.is_primitive and self.operation != "nextafter" and (call.is_by_cuda or (call.is_by_cpu and by_number)):
            call.round_to_fp32_first()  # a product with a float32 number is computed in float32
        call.begin()
        return call.match_operand_layout(call.tensor(self.function(call, *arrays, **options)))


class SelectionRule(Rule):
    """Values that PyTorch selects from the operands, rounded."""

    is_primitive = True

    def __init__(self, operation: str, function: Any) -> None:
        super().__init__(operation, self.compute)
        self.function = function

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the result, with the memory layout of the operands."""
        call.begin()
        return call.match_operand_layout(call.tensor(call.round_selected(self.select(call, *args, **options))))

    def select(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the values that PyTorch selects."""
        return self.function(*args, **options)


class WithoutInfinities(SelectionRule):
    """nan_to_num: infinities become the largest numbers of the format, unless other values are given."""

    def select(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the values, with NaN and infinities replaced."""
        x, *positional = args
        named = [options.get(name) for name in ("nan", "posinf", "neginf")[len(positional) :]]
        values: list[Any] = [*positional, *named]
        nan, above, below = values
        # The largest numbers in the format of the policy, not in the dtype of the tensor: the largest float32 would
        # overflow in BF16.
        largest, smallest = float(call.format.max), float(call.format.min)
        return self.function(
            x, nan=nan, posinf=largest if above is None else above, neginf=smallest if below is None else below
        )
