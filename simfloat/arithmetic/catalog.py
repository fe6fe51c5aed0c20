"""The catalog of named operations, from which functions, classes, methods, tests and documents are derived.

A row is an operation. A policy can name it, and an observer receives its events. Rows with an accuracy are computed
by a kernel (`kernels/elementwise/loops.py`, which a test compares with this catalog), and are public functions of the
package.

To add a function of one operand, write its pair of kernels, one row here, and its name in docs/specification.md.

* The kernels are in a file of `kernels/functions/`, and `kernels/elementwise/loops.py` finds them by their names.
  `name_quick` returns the exact result in float64, rounded to odd, for zeros and for 2^-300 <= |x| <= 2^300. It returns
  NaN to leave an operand to `name_wide`, as it must at infinities. It may be omitted. `name_wide` returns (high, low,
  exponent) for every float64: the result is (high + low) * 2^exponent, as far as rounding can distinguish, and exact
  results have low = 0.
* The row contains the remaining facts: see `Operation`. A derivative or a value by decimals that is longer than a line
  is a function of `simulation/formulas/slopes.py` or `formats/decimal_functions.py`.

Everything else is derived from the row:

* the public function, the methods of arrays and tensors, and the functions of NumPy and PyTorch on them;
* the classes of policies, documentation and benchmarks;
* the tests of special values, of every 16-bit operand and of derivatives.

Tests fail if one of them is missing, and say how to generate the names for type checkers (`typed_functions.pyi`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from simfloat.formats import decimal_functions as by_decimals
from simfloat.formats.decimal_functions import FAR_BEYOND

Kind = Literal["pointwise", "contraction", "reduction", "movement", "composite"]

#: exact: the exact result is rounded once, in every mode, for all operands. elementary: correctly rounded in every
#: deterministic mode for 16-bit operands and results. For others, the error is below 0.5 + 2^-20 units in the last
#: place under rounding to nearest, and below 1 + 2^-20 in other modes. single: like elementary, but correctly rounded
#: for FP32 operands and results of at most 32 bits. representable: float64 represents the exact result for float64
#: operands, so these operations have no kernel.
Accuracy = Literal["exact", "elementary", "single", "representable", ""]

#: The arrays that derivatives read: the operands, for each operand the other one, the result, or operands and result.
Reads = Literal["", "operands", "other", "result", "both"]

INF, NAN, HALF_PI = math.inf, math.nan, math.pi / 2

#: Constants of the derivatives, as 0-dimensional arrays.
ONE, TWO, LN2, LN10 = np.ones((), np.float32), np.array(2.0), np.array(math.log(2)), np.array(math.log(10))
THREE, PI = np.array(3.0), np.array(math.pi)


class Operation(NamedTuple):
    """An operation: its name, the names of its operands, its kind, and the accuracy of its result.

    The kinds of arithmetic are those of Micikevicius et al. 2018, section 3.3: vector dot products (contraction), large
    reductions, and pointwise operations. Movement rounds nothing, and a composite consists of other operations.
    Functions have the additional fields below.
    """

    name: str
    operands: tuple[str, ...]
    kind: Kind
    meaning: str
    accuracy: Accuracy = ""
    computes: str = ""  # the operation with the kernel that it uses, if that has another name

    #: The operands and the result in BF16 of the example in its documentation: "2.0 -> 1.4140625".
    example: str = ""

    #: The derivative for each operand, a function of (u, g, y, *operands). `u` is the arithmetic of the backward pass,
    #: which rounds every operation as the policy specifies, and `g` is the gradient of the result `y`. A text names a
    #: function of `simulation/formulas/slopes.py`; without an entry here, the function there has the name of the
    #: operation.
    slopes: tuple[Callable[..., Any] | str, ...] = ()

    #: The arrays that the derivatives need; the others may be None.
    reads: Reads = "operands"

    #: True if each derivative is the gradient or its negative, which is rounded by the operation that receives it.
    passes: bool = False

    #: Its name in NumPy, and another name of it in `torch.ops.aten`, if they differ.
    numpy: str = ""
    torch: str = ""

    #: The values at 0, -0, inf, -inf and NaN of a function of one operand: IEEE 754-2019, section 9.2.1, and limits.
    specials: tuple[float, ...] = ()

    #: The operands for tests: positive ones only, |x| < below, x > above.
    positive: bool = False
    below: float = math.inf
    above: float = -math.inf

    #: The value by decimals, with the number of digits of the current context of the decimal module.
    value: Callable[..., Decimal] | None = None

    #: For a function of one operand: beyond these ends it is so near to its limit, or so far outside every format, that
    #: it is rounded as at the end.
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def is_function(self) -> bool:
        """True if it is a public function that rounds the exact result once."""
        return bool(self.accuracy) and not self.computes


def _function(name: str, operands: str, meaning: str, accuracy: Accuracy, **facts: Any) -> Operation:
    return Operation(name, tuple(operands.split()), "pointwise", meaning, accuracy, **facts)


_FUNCTIONS = (
    _function(
        "add", "a b",
        "a + b: inf - inf is NaN; a zero sum of unlike signs is +0, and -0 under toward_negative.", "exact",
        example="256.0, 1.0 -> 256.", slopes=(lambda u, g, y, a, b: g, lambda u, g, y, a, b: g), passes=True,
    ),
    _function(
        "subtract", "a b", "a - b, as the sum of a and -b.", "exact",
        example="1.0, 2.0**-9 -> 1.", slopes=(lambda u, g, y, a, b: g, lambda u, g, y, a, b: -g), passes=True,
    ),
    _function(
        "multiply", "a b", "a * b: 0 * inf is NaN.", "exact",
        example="0.1, 3.0 -> 0.30078125",
        slopes=(lambda u, g, y, a, b: u.multiply(g, b), lambda u, g, y, a, b: u.multiply(g, a)), reads="other",
    ),
    _function(
        "divide", "a b", "a / b: 0 / 0 and inf / inf are NaN, other quotients by 0 are infinite.", "exact",
        example="1.0, 3.0 -> 0.33398438", slopes=(lambda u, g, y, a, b: u.divide(g, b), "divided_to_divisor"),
    ),
    _function(
        "fma", "a b c", "a * b + c, with an exact product.", "exact",
        example="7.0, 37.0, -(2.0**-60) -> 258.",
        slopes=(
            lambda u, g, y, a, b, c: u.multiply(g, b),
            lambda u, g, y, a, b, c: u.multiply(g, a),
            lambda u, g, y, a, b, c: u.round(g) if g.shape == c.shape else g,
        ),
    ),
    _function(
        "sqrt", "x", "The square root of x: sqrt(-0) is -0, other negative operands give NaN.", "exact",
        example="2.0 -> 1.4140625", reads="result", specials=(0.0, -0.0, INF, NAN, NAN), positive=True,
        value=Decimal.sqrt,
    ),
    _function(
        "exp", "x", "e to the power x.", "elementary",
        example="1.0 -> 2.71875", slopes=(lambda u, g, y, a: u.multiply(g, y),), reads="result",
        specials=(1.0, 1.0, INF, 0.0, NAN), value=Decimal.exp, limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "log", "x", "The natural logarithm of x: -inf at +-0, NaN below zero.", "elementary",
        example="10.0 -> 2.296875", slopes=(lambda u, g, y, a: u.divide(g, a),), specials=(-INF, -INF, INF, NAN, NAN),
        positive=True, value=Decimal.ln,
    ),
    _function(
        "log2", "x", "The logarithm to base 2: exact at powers of two, -inf at +-0, NaN below zero.", "elementary",
        example="10.0 -> 3.328125", slopes=(lambda u, g, y, a: u.divide(g, u.multiply(a, LN2)),),
        specials=(-INF, -INF, INF, NAN, NAN), positive=True, value=by_decimals.log2,
    ),
    _function(
        "log10", "x", "The logarithm to base 10: exact at powers of ten, -inf at +-0, NaN below zero.", "elementary",
        example="2.0 -> 0.30078125", slopes=(lambda u, g, y, a: u.divide(g, u.multiply(a, LN10)),),
        specials=(-INF, -INF, INF, NAN, NAN), positive=True, value=Decimal.log10,
    ),
    _function(
        "expm1", "x", "exp(x) - 1, accurate even if exp(x) would be rounded to 1.", "elementary",
        example="0.01 -> 0.0100708", slopes=(lambda u, g, y, a: u.multiply(g, u.add(y, ONE)),), reads="result",
        specials=(0.0, -0.0, INF, -1.0, NAN), value=lambda x: x.exp() - 1, limits=(-400, FAR_BEYOND),
    ),
    _function(
        "exp2", "x", "2 to the power x: exact at integers.", "single",
        example="0.5 -> 1.4140625", slopes=(lambda u, g, y, a: u.multiply(u.multiply(g, y), LN2),), reads="result",
        specials=(1.0, 1.0, INF, 0.0, NAN), value=lambda x: Decimal(2) ** x, limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "exp10", "x", "10 to the power x: exact at integers from 0.", "single",
        example="0.5 -> 3.15625", slopes=(lambda u, g, y, a: u.multiply(u.multiply(g, y), LN10),), reads="result",
        specials=(1.0, 1.0, INF, 0.0, NAN), value=lambda x: Decimal(10) ** x, limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "log1p", "x", "log(1 + x), accurate even if 1 + x would be rounded to 1: -inf at -1, NaN below.", "elementary",
        example="0.01 -> 0.00994873", slopes=(lambda u, g, y, a: u.divide(g, u.add(a, ONE)),),
        specials=(0.0, -0.0, INF, NAN, NAN), below=1, value=lambda x: (1 + x).ln(),
    ),
    _function(
        "tanh", "x", "The hyperbolic tangent of x.", "elementary",
        example="0.5 -> 0.46289062", reads="result", specials=(0.0, -0.0, 1.0, -1.0, NAN), value=by_decimals.tanh,
        limits=(-400, 400),
    ),
    _function(
        "sinh", "x", "The hyperbolic sine of x.", "elementary",
        example="1.0 -> 1.171875", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("cosh", a)),),
        specials=(0.0, -0.0, INF, -INF, NAN), value=lambda x: (x.exp() - (-x).exp()) / 2,
        limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "cosh", "x", "The hyperbolic cosine of x.", "elementary",
        example="1.0 -> 1.546875", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("sinh", a)),),
        specials=(1.0, 1.0, INF, INF, NAN), value=lambda x: (x.exp() + (-x).exp()) / 2,
        limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "asinh", "x", "The inverse hyperbolic sine of x.", "elementary",
        example="1.0 -> 0.8828125", numpy="arcsinh", specials=(0.0, -0.0, INF, -INF, NAN),
        value=lambda x: (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x),
    ),
    _function(
        "acosh", "x", "The nonnegative inverse hyperbolic cosine of x: NaN below 1.", "elementary",
        example="2.0 -> 1.3203125", numpy="arccosh", specials=(NAN, NAN, INF, NAN, NAN), above=1,
        value=lambda x: (x + (x * x - 1).sqrt()).ln(),
    ),
    _function(
        "atanh", "x", "The inverse hyperbolic tangent of x: infinite at +-1, NaN beyond.", "elementary",
        example="0.5 -> 0.55078125", numpy="arctanh", specials=(0.0, -0.0, NAN, NAN, NAN), below=1,
        value=lambda x: ((1 + x) / (1 - x)).ln() / 2,
    ),
    _function(
        "sin", "x", "The sine of x in radians, however large: NaN at infinities.", "elementary",
        example="1e6 -> -0.34960938", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("cos", a)),),
        specials=(0.0, -0.0, NAN, NAN, NAN), value=by_decimals.sin,
    ),
    _function(
        "cos", "x", "The cosine of x in radians, however large: NaN at infinities.", "elementary",
        example="1e6 -> 0.9375", slopes=(lambda u, g, y, a: u.multiply(-g, u.apply("sin", a)),),
        specials=(1.0, 1.0, NAN, NAN, NAN), value=by_decimals.cos,
    ),
    _function(
        "tan", "x", "The tangent of x in radians, however large: NaN at infinities.", "elementary",
        example="1.0 -> 1.5546875", reads="result", specials=(0.0, -0.0, NAN, NAN, NAN),
        value=lambda x: by_decimals.sin(x) / by_decimals.cos(x),
    ),
    _function(
        "sinpi", "x", "The sine of pi x: exact at multiples of 1/2, NaN at infinities.", "single",
        example="0.25 -> 0.70703125",
        slopes=(lambda u, g, y, a: u.multiply(g, u.multiply(u.apply("cospi", a), PI)),),
        specials=(0.0, -0.0, NAN, NAN, NAN), value=lambda x: by_decimals.sin(by_decimals.pi() * (x % 2)),
    ),
    _function(
        "cospi", "x", "The cosine of pi x: exact at multiples of 1/2, NaN at infinities.", "single",
        example="0.25 -> 0.70703125",
        slopes=(lambda u, g, y, a: u.multiply(-g, u.multiply(u.apply("sinpi", a), PI)),),
        specials=(1.0, 1.0, NAN, NAN, NAN), value=lambda x: by_decimals.cos(by_decimals.pi() * (x % 2)),
    ),
    _function(
        "asin", "x", "The arc sine of x, from -pi/2 to pi/2: NaN if |x| > 1.", "elementary",
        example="0.5 -> 0.5234375", numpy="arcsin", specials=(0.0, -0.0, NAN, NAN, NAN), below=1,
        value=lambda x: by_decimals.atan(x / (1 - x * x).sqrt()),
    ),
    _function(
        "acos", "x", "The arc cosine of x, from 0 to pi: NaN if |x| > 1.", "elementary",
        example="0.5 -> 1.046875", numpy="arccos", specials=(HALF_PI, HALF_PI, NAN, NAN, NAN), below=1,
        value=lambda x: 2 * by_decimals.atan(((1 - x) / (1 + x)).sqrt()),
    ),
    _function(
        "atan", "x", "The arc tangent of x, from -pi/2 to pi/2.", "elementary",
        example="1.0 -> 0.78515625", numpy="arctan", specials=(0.0, -0.0, HALF_PI, -HALF_PI, NAN),
        value=by_decimals.atan,
    ),
    _function(
        # Beyond 10, erf is too close to 1 for the digits of the decimals.
        "erf", "x", "The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.", "elementary",
        example="0.5 -> 0.51953125", specials=(0.0, -0.0, 1.0, -1.0, NAN), below=10, value=by_decimals.erf,
        limits=(-30, 30),
    ),
    _function(
        "erfc", "x", "1 - erf(x), accurate even if erf(x) would be rounded to 1.", "elementary",
        example="3.0 -> 2.20537186e-05", specials=(1.0, 1.0, 0.0, 2.0, NAN), below=10, value=by_decimals.erfc,
        limits=(-30, 60),
    ),
    _function(
        # Beyond 6, erf by decimals has too few digits left.
        "erfcx", "x", "exp(x^2) erfc(x), accurate even if erfc(x) would be rounded to 0.", "elementary",
        example="10.0 -> 0.05615234", reads="both", specials=(1.0, 1.0, 0.0, INF, NAN), below=6,
        value=by_decimals.erfcx, limits=(-60, INF),
    ),
    _function(
        "erfinv", "x", "The inverse error function of x: infinite at +-1, NaN beyond.", "elementary",
        example="0.5 -> 0.4765625", specials=(0.0, -0.0, NAN, NAN, NAN), below=1, value=by_decimals.erfinv,
    ),
    _function(
        "ndtri", "x",
        "The quantile of the standard normal distribution for probability x: NaN outside 0 to 1.", "elementary",
        example="0.975 -> 1.9609375", reads="result", specials=(-INF, -INF, NAN, NAN, NAN), positive=True, below=1,
        value=by_decimals.ndtri,
    ),
    _function(
        "log_ndtr", "x", "The logarithm of the probability that a standard normal variable is below x.", "elementary",
        example="-10.0 -> -53.25", reads="both", specials=(-math.log(2), -math.log(2), -0.0, -INF, NAN), below=6,
        value=by_decimals.log_ndtr, limits=(-INF, 90),
    ),
    _function(
        "lgamma", "x", "log(|Gamma(x)|): infinite at 0 and at negative integers.", "elementary",
        example="10.0 -> 12.8125", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("digamma", a)),),
        specials=(INF, INF, INF, INF, NAN), positive=True, value=by_decimals.lgamma,
    ),
    _function(
        "digamma", "x", "The derivative of lgamma at x: NaN at negative integers, infinite at +-0.", "elementary",
        example="10.0 -> 2.25", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("zeta", TWO, a)),),
        specials=(-INF, INF, INF, NAN, NAN), positive=True, value=by_decimals.digamma,
    ),
    _function(
        "zeta", "a b",
        "The sum of (b + k)^-a over k = 0, 1, ...: infinite at a = 1 and at integers b <= 0; NaN for a < 1, and for b\n"
        "below 0 unless a is an integer.", "elementary",
        example="2.0, 1.0 -> 1.6484375", slopes=("zeta_to_power", "zeta_to_start"), value=by_decimals.zeta,
    ),
    _function(
        "i0", "x", "The modified Bessel function of order 0.", "elementary",
        example="1.0 -> 1.265625", slopes=(lambda u, g, y, a: u.multiply(g, u.apply("i1", a)),),
        torch="special_modified_bessel_i0", specials=(1.0, 1.0, INF, INF, NAN), below=40,
        value=lambda x: by_decimals.bessel_i(x, 0), limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "i0e", "x", "exp(-|x|) i0(x).", "elementary",
        example="1.0 -> 0.46484375", reads="both", specials=(1.0, 1.0, 0.0, 0.0, NAN), below=40,
        value=lambda x: by_decimals.bessel_ie(x, 0),
    ),
    _function(
        "i1", "x", "The modified Bessel function of order 1, the derivative of i0.", "elementary",
        example="1.0 -> 0.56640625", reads="both", torch="special_modified_bessel_i1",
        specials=(0.0, -0.0, INF, -INF, NAN), below=40, value=lambda x: by_decimals.bessel_i(x, 1),
        limits=(-FAR_BEYOND, FAR_BEYOND),
    ),
    _function(
        "i1e", "x", "exp(-|x|) i1(x).", "elementary",
        example="1.0 -> 0.20800781", reads="both", specials=(0.0, -0.0, 0.0, -0.0, NAN), below=40,
        value=lambda x: by_decimals.bessel_ie(x, 1),
    ),
    _function(
        "gelu", "x", "x / 2 * (1 + erf(x / sqrt 2)), the exact GELU: -0 at -inf, its limit.", "elementary",
        example="-1.0 -> -0.15820312", specials=(0.0, -0.0, INF, -0.0, NAN), below=10,
        value=lambda x: x / 2 * by_decimals.erfc(-x / Decimal(2).sqrt()), limits=(-90, INF),
    ),
    _function(
        "sigmoid", "x", "1 / (1 + exp(-x)).", "elementary",
        example="2.0 -> 0.87890625", reads="result", specials=(0.5, 0.5, 1.0, 0.0, NAN),
        value=lambda x: 1 / (1 + (-x).exp()), limits=(-FAR_BEYOND, 400),
    ),
    _function(
        "reciprocal", "x", "1 / x: infinite with the sign of x at +-0.", "exact",
        example="3.0 -> 0.33398438", slopes=(lambda u, g, y, a: u.multiply(-g, u.multiply(y, y)),), reads="result",
        specials=(INF, -INF, 0.0, -0.0, NAN), value=lambda x: 1 / x,
    ),
    _function(
        "rsqrt", "x", "1 / sqrt(x): infinite with the sign of x at +-0, NaN below zero.", "exact",
        example="2.0 -> 0.70703125", reads="result", specials=(INF, -INF, 0.0, NAN, NAN), positive=True,
        value=lambda x: 1 / x.sqrt(),
    ),
    _function(
        "cbrt", "x", "The cube root of x.", "exact",
        example="2.0 -> 1.2578125",
        slopes=(lambda u, g, y, a: u.divide(g, u.multiply(THREE, u.multiply(y, y))),), reads="result",
        specials=(0.0, -0.0, INF, -INF, NAN),
        value=lambda x: ((abs(x).ln() / 3).exp()).copy_sign(x) if x else x,
    ),
    _function(
        "hypot", "a b", "The square root of a^2 + b^2: infinite if a or b is, even if the other one is NaN.", "exact",
        example="3.0, 4.0 -> 5.",
        slopes=(
            lambda u, g, y, a, b: u.multiply(g, u.divide(a, y)),
            lambda u, g, y, a, b: u.multiply(g, u.divide(b, y)),
        ),
        reads="both",
    ),
    _function(
        "power", "a b", "a to the power b: special values as for pow in IEEE 754-2019, section 9.2.1.", "elementary",
        example="2.0, 0.5 -> 1.4140625", slopes=("power_to_base", "power_to_exponent"), reads="both", torch="pow",
        value=by_decimals.power,
    ),
    _function(
        "atan2", "a b",
        "The angle of the point (b, a), from -pi to pi: special values as in IEEE 754-2019, 9.2.1.", "elementary",
        example="1.0, -1.0 -> 2.359375", slopes=("atan2_to_ordinate", "atan2_to_abscissa"), reads="both",
        numpy="arctan2", value=by_decimals.atan2,
    ),
)  # fmt: skip

#: The options of functions that are constant between steps, so that their derivative is 0.
STEP: dict[str, Any] = {"slopes": ("no_slope",), "reads": ""}

_REPRESENTABLE = (
    _function("rint", "x", "The integer nearest to x, ties to even.", "representable", example="2.5 -> 2.", **STEP),
    _function("floor", "x", "The largest integer that is not above x.", "representable", example="-0.5 -> -1.", **STEP),
    _function("ceil", "x", "The smallest integer that is not below x.", "representable", example="-0.5 -> -0.", **STEP),
    _function(
        "trunc", "x", "The integer between 0 and x that is nearest to x.", "representable",
        example="-1.5 -> -1.", **STEP,
    ),
    _function(
        "fmod", "a b", "a - n b, where n is a / b truncated, as in C: NaN if a is infinite or b is 0.", "representable",
        example="-5.0, 3.0 -> -2.", slopes=("fmod_to_dividend", "fmod_to_divisor"),
    ),
    _function(
        "remainder", "a b",
        "a - n b, where n is the integer nearest to a / b, ties to even (IEEE 754-2019, 5.3.1): NaN if a is infinite\n"
        "or b is 0.", "representable",
        example="5.0, 3.0 -> -1.", slopes=("fmod_to_dividend", "remainder_to_divisor"),
    ),
    _function(
        "copysign", "a b", "|a| with the sign of b.", "representable",
        example="2.0, -0.0 -> -2.", slopes=("copysign_to_magnitude", "no_slope"),
    ),
)  # fmt: skip

#: The public functions with results that float64 represents. Policies do not name them.
REPRESENTABLE: dict[str, Operation] = {row.name: row for row in _REPRESENTABLE}

#: (name, operands, meaning) of simple operations on elements, which have no kernel of their own.
_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("negative", "x", "-x."),
    ("abs", "x", "|x|."),
    ("relu", "x", "The larger of x and 0."),
    ("leaky_relu", "x slope", "x if it is positive, otherwise slope * x."),
    ("maximum", "a b", "The larger of a and b: NaN if one is NaN; +0 is larger than -0."),
    ("minimum", "a b", "The smaller of a and b: NaN if one is NaN; -0 is smaller than +0."),
    ("clip", "x min max", "minimum(maximum(x, min), max): NaN if one operand is NaN."),
)

_OTHERS: tuple[tuple[str, str, Kind, str], ...] = (
    ("matmul", "a b", "contraction", "The product of matrices."),
    ("linear", "x weight", "contraction", "x times the transposed weight."),
    ("conv2d", "x weight", "contraction", "The convolution of images with kernels."),
    ("conv_transpose2d", "x weight", "contraction", "The gradient of a convolution to its images, as an operation."),
    ("sum", "x", "reduction", "The sum of elements."),
    ("mean", "x", "reduction", "The sum of elements, divided by their number."),
    ("max", "x", "reduction", "The largest of elements."),
    ("min", "x", "reduction", "The smallest of elements."),
    ("max_pool2d", "x", "reduction", "The largest element of every window of images."),
    ("avg_pool2d", "x", "reduction", "The sum of every window of images, divided by the number of its elements."),
    ("reshape", "x", "movement", "The same elements in another shape."),
    ("transpose", "x", "movement", "The same elements with the axes in another order."),
    ("broadcast_to", "x", "movement", "The same elements, repeated to fill a shape."),
    ("index", "x", "movement", "Some of the elements."),
    ("pad", "x", "movement", "The same elements with a constant around them."),
    ("embedding", "weight", "movement", "Rows of a table."),
    ("split", "x", "movement", "The parts along an axis."),
    ("concatenate", "a b", "movement", "The elements of several arrays, one after the other along an axis."),
    ("stack", "a b", "movement", "The elements of several arrays, along a new axis."),
    ("where", "a b", "movement", "Elements of a if a condition is true, otherwise of b."),
    ("var", "x", "composite", "The mean of (x - mean(x))^2."),
    (
        "batch_norm",
        "x weight bias",
        "composite",
        "(x - mean) * rsqrt(var + eps) * weight + bias, with a mean and a variance for each channel.",
    ),
    ("softmax", "x", "composite", "exp(d) / sum(exp(d)) with d = x - max(x)."),
    ("log_softmax", "x", "composite", "d - log(sum(exp(d))) with d = x - max(x)."),
    ("logsumexp", "x", "composite", "log(sum(exp(d))) + m with d = x - m and m = max(x)."),
    ("layer_norm", "x weight bias", "composite", "d * rsqrt(mean(d^2) + eps) * weight + bias with d = x - mean(x)."),
    (
        "group_norm",
        "x weight bias",
        "composite",
        "(x - mean) * rsqrt(var + eps) * weight + bias, with a mean and a variance for each group of channels.",
    ),
    ("gelu_tanh", "x", "composite", "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."),
    ("silu", "x", "composite", "x * sigmoid(x)."),
    ("softplus", "x", "composite", "log(exp(beta * x) + 1) / beta, or x if beta * x is large."),
    ("elu", "x", "composite", "x * scale if x is positive, otherwise (exp(x * input_scale) - 1) * alpha * scale."),
    ("mish", "x", "composite", "x * tanh(softplus(x))."),
    ("log_sigmoid", "x", "composite", "min(x, 0) - log(exp(-|x|) + 1)."),
    ("hardsigmoid", "x", "composite", "min(max(x + 3, 0), 6) / 6."),
    ("hardswish", "x", "composite", "x * min(max(x + 3, 0), 6) / 6."),
    ("softshrink", "x", "composite", "x moved towards 0 by lambd, or 0 between -lambd and lambd."),
    ("hardshrink", "x", "composite", "x, or 0 between -lambd and lambd."),
    ("prelu", "x weight", "composite", "x if it is positive, otherwise weight * x."),
    ("glu", "x", "composite", "a * sigmoid(b), where a and b are the halves of x."),
    ("scaled_dot_product_attention", "query key value", "composite", "softmax(query key^T * scale + mask) value."),
    ("embedding_bag", "weight", "composite", "The sum, mean or maximum of rows of a table."),
    ("mse_loss", "input target", "composite", "The mean of (input - target)^2."),
    ("smooth_l1_loss", "input target", "composite", "The mean of d^2 / (2 beta) if d < beta, otherwise d - beta / 2."),
    ("huber_loss", "input target", "composite", "The mean of d^2 / 2 if d < delta, otherwise (d - delta / 2) * delta."),
    ("xlogy", "x y", "composite", "x * log(y), or 0 if x is 0."),
    ("binary_cross_entropy", "input target", "composite", "The mean of (y - 1) * log(1 - x) - y * log(x)."),
    ("cross_entropy", "input target", "composite", "The mean of -log_softmax(input) at the targets."),
    ("ctc_loss", "log_probs", "composite", "-log of the probability of the targets, summed over all alignments."),
    (
        "binary_cross_entropy_with_logits",
        "input target",
        "composite",
        "The mean of (1 - y) * x - (min(x, 0) - log1p(exp(-|x|))).",
    ),
)

_ROWS = (
    *_FUNCTIONS,
    *(Operation(name, tuple(xs.split()), "pointwise", meaning) for name, xs, meaning in _CHOICES),
    Operation(
        "update",
        ("w", "u"),
        "pointwise",
        "w + u, the last addition of an optimizer step; counted as unchanged only if u is lost.",
        "exact",
        computes="add",
    ),
    *(Operation(name, tuple(xs.split()), kind, meaning) for name, xs, kind, meaning in _OTHERS),
)

#: All operations by name.
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}

#: The kinds of all operations by name.
CLASS_OF: dict[str, Kind] = {row.name: row.kind for row in _ROWS}

#: The operations that are public functions and round the exact result once.
FUNCTIONS: dict[str, Operation] = {row.name: row for row in _ROWS if row.is_function}

#: The operations that users defined, each with the module that defines it, by name: see `simfloat.operation`.
_USERS: dict[str, tuple[Operation, str]] = {}


def register(operation: Operation, module: str) -> None:
    """Add an operation of a user, or replace the operation of that name that the same module added before.

    Raises ValueError if the name is invalid or taken, and if the operation changes its kind: recipes that were found
    for it would be recipes for another kind.
    """
    name = operation.name
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"The name of an operation is an identifier, such as 'swish'; got {name!r}.")
    if name in OPERATIONS or name in get_args(Kind):
        what = (
            f"an operation of simfloat: {OPERATIONS[name].meaning}" if name in OPERATIONS else "a kind of operations."
        )
        raise ValueError(f"{name!r} is {what} Choose another name, by name=.")
    old, owner = _USERS.get(name, (operation, module))
    if owner != module:
        raise ValueError(f"{name!r} is an operation of the module {owner} already; choose another name, by name=.")
    if old.kind != operation.kind:
        raise ValueError(
            f"{name!r} was a {old.kind} before, and cannot become a {operation.kind}; choose another name."
        )
    _USERS[name] = operation, module


def names() -> list[str]:
    """Return the names of all operations, including those of users."""
    return [*OPERATIONS, *_USERS]


def kind_of(name: str) -> Kind | None:
    """Return the kind of the operation of this name, which may be a user's; None if the name is unknown."""
    return _USERS[name][0].kind if name in _USERS else CLASS_OF.get(name)
