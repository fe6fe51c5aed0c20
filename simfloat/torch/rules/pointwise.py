"""Rules of pointwise operations: tables of what each is in operations that are rounded once.

Quotients to integers, and their remainders, are exact. Some functions follow PyTorch's own formulas: every operation of
the formula is rounded.

In a row of the table, `u` is the call, whose every operation is rounded as the policy says; `a`, `b`, `c` are arrays of
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
from simfloat.arithmetic.spacing import nextafter
from simfloat.simulation.formulas import Rounded, activations, number, slopes
from simfloat.torch.arguments import Arguments, Options, is_number
from simfloat.torch.formula import Formula, GradientRule
from simfloat.torch.handlers import Decomposition, Handler, Rule
from simfloat.torch.rule_call import RuleCall
from simfloat.torch.run_context import RunContext
from simfloat.torch.tensors import NOTHING, Tag, exact_tensor, numbers_of, result_type

#: From here on the quotient of two float64 numbers may lie on the other side of an integer than the exact one.
LARGE = 2.0**51

Floats = NDArray[np.float64]


def remainders(a: NDArray, b: NDArray) -> Floats:
    """What is left of a behind b times the integer part of a / b: of a's sign, and exact; NaN for b = 0 and a = inf."""
    with np.errstate(invalid="ignore"):
        return np.fmod(np.asarray(a, np.float64), np.asarray(b, np.float64))


def quotients(a: NDArray, b: NDArray, *, is_floor: bool) -> tuple[Floats, Floats]:
    """The integer part of a / b, or the largest integer that is not above a / b, as the exact sum of two numbers.

    The second one is not zero only for integers that float64 lacks; a zero has the sign of the other one.
    """
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    left = remainders(a, b)
    with np.errstate(all="ignore"):
        quotient = a / b
        whole = np.rint((a - left) / b)
        if is_floor:
            whole = whole - ((left != 0) & ((left < 0) != (b < 0)))
        whole = np.where((b == 0) | (np.isinf(a) & (not is_floor)), quotient, whole)
    # The quotient -1 / 3, truncated, is -0: the sign is that of the quotient before.
    whole = np.where(whole == 0, np.copysign(whole, quotient), whole)
    remainder = np.copysign(0.0, whole)
    for at in np.argwhere((np.abs(whole) >= LARGE) & np.isfinite(whole)):
        place = tuple(at)
        whole[place], remainder[place] = _parts(float(a[place]), float(b[place]), is_floor)
    return whole, remainder


def _parts(a: float, b: float, is_floor: bool) -> tuple[float, float]:
    """The integer quotient of two numbers, and what float64 lacks of it."""
    # Few numbers come here: those from 2^51 on.
    exact = Fraction(a) / Fraction(b)
    whole = math.floor(exact) if is_floor else math.trunc(exact)
    high = float(whole)
    return high, float(whole - int(high)) or math.copysign(0.0, high)


Tensor = torch.Tensor


def sinc(x: Tensor) -> Tensor:
    """sin(z) / z with z = pi * x, and 1 at 0."""
    z = x * math.pi
    return torch.where(x == 0, torch.ones_like(x), z.sin() / z)


def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x * log1p(y), and 0 where x is."""
    x, y = (exact_tensor(value) for value in (x, y))
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * y.log1p())


def entropy(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0 and -inf below."""
    terms = torch.where(x == 0, torch.zeros_like(x), -x * x.log())
    return torch.where(x < 0, torch.full_like(terms, -torch.inf), terms)


def polygamma(n: Any, x: Any) -> Tensor:
    """The derivative of order n of digamma: (-1)^(n + 1) n! zeta(n + 1, x), n! being exact."""
    if isinstance(n, Tensor):  # in place the tensor comes first
        n, x = x, n
    if n == 0:
        return x.digamma()
    zeta = torch.special.zeta(float(n + 1), x)
    return zeta if n == 1 else zeta * float((-1) ** (n + 1) * math.factorial(n))


def multivariate_lgamma(x: Tensor, p: int) -> Tensor:
    """The sum of lgamma(x + (1 - j) / 2) over j from p down to 1, and p (p - 1) / 4 * log(pi), an exact number."""
    shifts = torch.arange(1 - p, 1, dtype=torch.float64).to(x.dtype) / 2 if p > 1 else torch.zeros(1, dtype=x.dtype)
    total = (x.unsqueeze(-1) + shifts).lgamma().sum(-1)
    return total + p * (p - 1) * math.log(math.pi) / 4


def angle(x: Tensor) -> Tensor:
    """pi below zero, else 0."""
    half_turn = torch.full(x.shape, math.pi, dtype=x.dtype)  # exactly, not in the format of x
    return torch.where(x.isnan(), x, torch.where(x < 0, half_turn, torch.zeros_like(x)) * 1)


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent."""
    return x * torch.exp2(exponent)


def logcumsumexp(u: Rounded, x: NDArray, dim: int) -> NDArray:
    """The formula of this name; without axes, or elements, x itself, rounded."""
    if not x.size or not x.ndim:
        return u.round(x, "multiply", x)
    return slopes.logcumsumexp(u, x, dim)


def between(start: Tensor | float, end: Tensor | float, steps: int, *, dtype: torch.dtype, **_: object) -> Tensor:
    """Numbers from start to end in equal steps: start + i * ((end - start) / (steps - 1))."""
    first, last = (exact_tensor(x).to(dtype) for x in (start, end))
    if steps <= 1:
        return (first * 1).expand(steps).clone()
    return first + torch.arange(steps, dtype=dtype) * ((last - first) / (steps - 1))


def powers_between(
    start: Tensor | float, end: Tensor | float, steps: int, base: float = 10.0, *, dtype: torch.dtype, **_: object
) -> Tensor:
    """Powers of the base whose exponents lie between start and end in equal steps."""
    return torch.pow(base, between(start, end, steps, dtype=dtype))


def normal(mean: Tensor | float, std: Tensor | float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """mean + std * z with normal numbers z, drawn from PyTorch's generator."""
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    dtype = result_type([x for x in (mean, std) if isinstance(x, Tensor)])
    z = torch.empty(shape, dtype=dtype).normal_(generator=generator)
    return exact_tensor(mean) + exact_tensor(std) * z


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "special_xlog1py": Decomposition("xlogy", xlog1py),
    "special_entr": Decomposition("entropy", entropy),
    "deg2rad": Decomposition("multiply", lambda x: x * (math.pi / 180)),
    "rad2deg": Decomposition("multiply", lambda x: x * (180 / math.pi)),
    "angle": Decomposition("angle", angle),
    "ldexp": Decomposition("multiply", ldexp),
    "logcumsumexp": Formula("logsumexp", logcumsumexp),
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
    """a to the power b."""
    return u.apply("power", a, b)


def divide(u: RuleCall, a: NDArray, b: NDArray, *, rounding_mode: str | None = None) -> NDArray:
    """a / b, the exact quotient rounded once; to an integer first where that is asked for.

    PyTorch's CUDA kernels multiply by the float32 reciprocal of a number.
    """
    # A product with a rounded reciprocal is not the rounded quotient: these are other bits than the CPU's.
    if rounding_mode is None and u.is_by_cuda and not b.ndim and a.ndim:
        return u.multiply(a, np.array(1 / np.float32(b), np.float32))
    return u.divide(a, b) if rounding_mode is None else u.add(*quotients(a, b, is_floor=rounding_mode == "floor"))


def add(u: RuleCall, a: NDArray, b: NDArray, alpha: float | NDArray = 1) -> NDArray:
    """a + alpha * b: in one rounding where PyTorch's CPU kernels are followed, else the product is rounded, too."""
    if float(alpha) in (1, -1) or not u.is_by_cpu:
        return u.total(a, u.times(float(alpha), b))
    return u.fused_total(float(alpha), b, a)


def subtract(u: RuleCall, a: NDArray, b: NDArray, alpha: float | NDArray = 1) -> NDArray:
    """a - alpha * b, in the same way."""
    if float(alpha) in (1, -1) or not u.is_by_cpu:
        return u.difference(a, u.times(float(alpha), b))
    return u.fused_total(-float(alpha), b, a)


def modulo(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """What is left of a behind b times the largest integer that is not above a / b: of b's sign."""
    left = remainders(a, b)
    # Adding zero would lose the sign of a zero, but for a zero of its own sign.
    return u.add(left, np.where((left != 0) & ((left < 0) != (b < 0)), b, np.copysign(0.0, left)))


def lerp(u: RuleCall, a: NDArray, b: NDArray, weight: NDArray) -> NDArray:
    """a + weight * (b - a); where weight is 1/2 or more b - (1 - weight) * (b - a), as PyTorch computes it."""
    difference = u.subtract(b, a)
    if weight.ndim == 0:
        # PyTorch's lerp changes its formula at 1/2, so that the result at weight 1 is b exactly.
        low = abs(weight) < 0.5
        return u.fused_total(weight if low else weight - 1.0, difference, a if low else b)
    low = np.abs(weight) < 0.5
    share = np.where(low, weight, np.asarray(weight, np.float64) - 1.0)
    return u.fused_total(share, difference, np.where(low, a, b))


def leaky_relu(u: RuleCall, a: NDArray, slope: NDArray | float = 0.01) -> NDArray:
    """a where it is positive, else slope * a."""
    return u.multiply(a, np.where(a > 0, 1.0, slope))


def relu(u: Any, a: NDArray) -> NDArray:
    """a where it is positive, else 0."""
    return u.round(slopes.where_above(a, a))


def threshold_backward(u: Any, g: NDArray, a: NDArray, least: float) -> NDArray:
    """g where a is above `least`, else 0."""
    return u.round(slopes.where_above(a, g, number(least)))


def hypotenuse(u: RuleCall, a: NDArray, b: NDArray) -> NDArray:
    """2^k * sqrt(x * x + y * y) with x = a / 2^k and y = b / 2^k, the larger one from 1/2 to 1; inf beside NaN."""
    a, b = (np.where(np.isnan(c) & np.isinf(other), other, c) for c, other in ((a, b), (b, a)))
    # The scale is a power of two, so the two multiplications by it round nothing: squares neither overflow nor vanish.
    _, k = np.frexp(np.nan_to_num(np.maximum(np.abs(a), np.abs(b)), nan=1.0, posinf=1.0))
    x, y = (u.multiply(c, np.ldexp(1.0, -k)) for c in (a, b))
    return u.multiply(u.apply("sqrt", u.add(u.multiply(x, x), u.multiply(y, y))), np.ldexp(1.0, k))


def names_of(row: Operation) -> list[str]:
    """PyTorch's names of a function of the catalog, none if it has no such function.

    The kernels of sums, products and quotients have options: these have rules of their own.
    """
    if len(row.operands) > 1 and row.accuracy == "exact":
        return []
    plain = row.name if hasattr(torch.ops.aten, row.name) else f"special_{row.name}"
    return [name for name in (plain, row.torch) if name and hasattr(torch.ops.aten, name)]


def applied(name: str) -> Callable[..., NDArray]:
    """A function of the catalog."""
    return lambda u, *operands: u.apply(name, *operands)


#: Functions of the catalog by PyTorch's names.
FUNCTION_OF: dict[str, str] = {theirs: name for name, row in FUNCTIONS.items() for theirs in names_of(row)}

#: By PyTorch's name: the operation's name in a policy, and what it is.
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
    "exp2": ("exp2", lambda u, a: u.apply("power", np.array(2.0), a)),
    "square": ("power", lambda u, a: power(u, a, np.array(2.0))),  # as PyTorch has it but in inference mode
    "relu": ("relu", relu),
    "leaky_relu": ("leaky_relu", leaky_relu),
    **{theirs: (name, applied(name)) for theirs, name in FUNCTION_OF.items()},
}


#: Rows that are one operation of the catalog, whatever their options.
PRIMITIVES = frozenset({"mul", "nextafter", "square", "relu", *FUNCTION_OF})


class Gelu(Formula):
    """GELU by the hyperbolic tangent, which is a composite, or in one operation of the catalog; or its derivative."""

    how = "rule"

    def __init__(self, function: Callable[..., NDArray], exact: Callable[..., NDArray]) -> None:
        super().__init__("gelu_tanh", function)
        self.exact = GradientRule("gelu", exact)

    def __call__(self, run: RunContext, func: Any, args: Arguments, options: Options, into: Tag = NOTHING) -> Any:
        """The result of the one that is asked for."""
        by_tanh = options.pop("approximate", "none") == "tanh"
        return (super().__call__ if by_tanh else self.exact)(run, func, args, options, into)


#: Derivatives, and what else is a formula of both front ends.
FORMULAS: dict[str, Rule] = {
    "gelu": Gelu(activations.gelu_tanh, lambda u, a: u.apply("gelu", a)),
    "gelu_backward": Gelu(
        lambda u, g, a: activations.gelu_tanh_slope(u, g, None, a),
        lambda u, g, a: slopes.gelu(u, g, None, a),
    ),
    "threshold_backward": GradientRule("relu", threshold_backward),
    "hardtanh_backward": GradientRule(
        "clip", lambda u, g, a, low, high: slopes.gradient_where(u, g, ~((a <= low) | (a >= high)))
    ),
    "leaky_relu_backward": GradientRule(
        "leaky_relu", lambda u, g, a, slope, _: activations.leaky_relu_slope(u, g, None, a, number(slope))
    ),
    "sigmoid_backward": GradientRule("sigmoid", slopes.sigmoid),
    "tanh_backward": GradientRule("tanh", slopes.tanh),
}


#: Operations whose result is an operand's number, or its size or sign, which PyTorch finds and a rounding finishes.
SELECTIONS: dict[str, str] = {
    "abs": "abs", "neg": "negative", "sgn": "abs", "sign": "abs", "floor": "clip", "ceil": "clip", "trunc": "clip",
    "round": "clip", "maximum": "maximum", "minimum": "minimum", "fmax": "maximum", "fmin": "minimum",
    "clamp": "clip", "clamp_min": "maximum", "clamp_max": "minimum", "hardtanh": "clip", "threshold": "maximum",
    "frac": "clip", "copysign": "abs",
    "max.other": "maximum", "min.other": "minimum",
}  # fmt: skip


#: What an operand of an elementwise operation may be; other arguments are options.
NUMBERS = (torch.Tensor, int, float)


class PointwiseRule(Rule):
    """A row of the table on tensors, arrays and numbers, broadcast."""

    def __init__(self, operation: str, function: Callable[..., NDArray], is_primitive: bool = False) -> None:
        super().__init__(operation, self.compute)
        self.function, self.is_primitive = function, is_primitive

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The result, laid out in memory as the operands are."""
        arrays = [numbers_of(x) if isinstance(x, NUMBERS) else x for x in args]
        by_number = self.operation == "multiply" and any(is_number(x) for x in args)
        # A product of a bfloat16 tensor and a Python number is made in float32 and rounded to bfloat16, so twice, in
        # PyTorch's CPU kernels; results of CUDA's kernels come by way of float32 in general.
        if self.is_primitive and self.operation != "nextafter" and (call.is_by_cuda or (call.is_by_cpu and by_number)):
            call.round_to_fp32_first()  # a product with a float32 number is made there
        call.begin()
        return call.match_operand_layout(call.tensor(self.function(call, *arrays, **options)))


class SelectionRule(Rule):
    """Values that PyTorch selects among those of the operands, rounded."""

    is_primitive = True

    def __init__(self, operation: str, function: Any) -> None:
        super().__init__(operation, self.compute)
        self.function = function

    def compute(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The result, laid out in memory as the operands are."""
        call.begin()
        return call.match_operand_layout(call.tensor(call.round_selected(self.select(call, *args, **options))))

    def select(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """Return the values that PyTorch selects."""
        return self.function(*args, **options)


class WithoutInfinities(SelectionRule):
    """nan_to_num: infinities become the largest numbers of the result's format unless others are given."""

    def select(self, call: RuleCall, *args: Any, **options: Any) -> torch.Tensor:
        """The numbers with others in the place of NaN and infinities."""
        x, *positional = args
        named = [options.get(name) for name in ("nan", "posinf", "neginf")[len(positional) :]]
        values: list[Any] = [*positional, *named]
        nan, above, below = values
        # The largest numbers of the policy's format, not of the tensor's type: that of float32 would overflow in BF16.
        largest, smallest = float(call.format.max), float(call.format.min)
        return self.function(
            x, nan=nan, posinf=largest if above is None else above, neginf=smallest if below is None else below
        )
