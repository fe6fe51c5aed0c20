"""Every operation that has a name, once: what is derived from it are functions, classes, methods, tests and documents.

A row is what a policy can name, and what an observer receives events of. Rows with an accuracy are computed by a kernel
of their own (`kernels/elementwise.py`, which a test holds to this catalog), and are public functions of the package.

To add a function of one operand: write its pair of kernels in a file of `kernels/functions/`. `quick` gives the exact
result in float64, rounded to odd, for zeros and for 2^-300 <= |x| <= 2^300, and NaN where it leaves it to the other, as
it has to at infinities; `wide` gives (high, low, exponent) for every float64: the result lies at (high + low) *
2^exponent, as far as rounding can tell, and exact results have low = 0. Add one row each

* here, with its operands, meaning and accuracy;
* to the table of `kernels/elementwise.py`, with the pair;
* to the list in `arithmetic/functions.py`, from which type checkers know the name;
* to the table of `autodiff/pointwise.py`, with its derivative, which makes it a method of tensors;
* to the table of `formats/decimal_functions.py`, with its value by decimals;
* to the table of `selftest/function_checks.py`, with its specials;
* to the table of `tests/mpfr.py`, with MPFR's function.

One new file and seven rows. Tests fail for a row that is missing; names, documentation, methods of arrays and NumPy's
functions of them, classes of policies, benchmarks and the tests of specials, of every 16-bit operand and of derivatives
follow.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

Kind = Literal["pointwise", "contraction", "reduction", "movement", "composite"]

#: exact: the exact result rounded once, in every mode, for all operands. elementary: correctly rounded in every
#: deterministic mode for 16-bit operands and results, below 0.5 + 2^-20 units in the last place for others.
Accuracy = Literal["exact", "elementary", ""]


class Operation(NamedTuple):
    """One operation: its name, its operands' names, what it is and how near its result is to the exact one.

    Classes of arithmetic, Micikevicius et al. 2018, section 3.3: vector dot products (contraction), large reductions,
    and pointwise operations. Movement rounds nothing; a composite is made of others.
    """

    name: str
    operands: tuple[str, ...]
    kind: Kind
    meaning: str
    accuracy: Accuracy = ""
    computes: str = ""  # the operation whose kernel it uses, where that has another name

    @property
    def is_function(self) -> bool:
        """Whether it is a public function that rounds exact results once."""
        return bool(self.accuracy) and not self.computes


#: (name, operands, meaning, accuracy)
_POINTWISE: tuple[tuple[str, str, str, Accuracy], ...] = (
    ("add", "a b", "a + b: inf - inf is NaN; a zero sum of unlike signs is +0, and -0 under toward_negative.", "exact"),
    ("subtract", "a b", "a - b, as the sum of a and -b.", "exact"),
    ("multiply", "a b", "a * b: 0 * inf is NaN.", "exact"),
    ("divide", "a b", "a / b: 0 / 0 and inf / inf are NaN, other quotients by 0 infinite.", "exact"),
    ("fma", "a b c", "a * b + c, the product exact.", "exact"),
    ("sqrt", "x", "The square root of x: of -0 it is -0, of other negative numbers NaN.", "exact"),
    ("exp", "x", "e to the power x.", "elementary"),
    ("log", "x", "The natural logarithm of x: -inf at +-0, NaN below zero.", "elementary"),
    ("log2", "x", "The logarithm to base 2: exact at powers of two, -inf at +-0, NaN below zero.", "elementary"),
    ("log10", "x", "The logarithm to base 10: exact at powers of ten, -inf at +-0, NaN below zero.", "elementary"),
    ("expm1", "x", "exp(x) - 1, also where exp(x) would be rounded to 1.", "elementary"),
    ("log1p", "x", "log(1 + x), also where 1 + x would be rounded to 1: -inf at -1, NaN below.", "elementary"),
    ("tanh", "x", "The hyperbolic tangent of x.", "elementary"),
    ("sinh", "x", "The hyperbolic sine of x.", "elementary"),
    ("cosh", "x", "The hyperbolic cosine of x.", "elementary"),
    ("asinh", "x", "The number whose hyperbolic sine is x.", "elementary"),
    ("acosh", "x", "The number from 0 on whose hyperbolic cosine is x: NaN below 1.", "elementary"),
    ("atanh", "x", "The number whose hyperbolic tangent is x: infinite at +-1, NaN beyond.", "elementary"),
    ("sin", "x", "The sine of x in radians, however large: NaN at infinities.", "elementary"),
    ("cos", "x", "The cosine of x in radians, however large: NaN at infinities.", "elementary"),
    ("tan", "x", "The tangent of x in radians, however large: NaN at infinities.", "elementary"),
    ("asin", "x", "The angle from -pi/2 to pi/2 whose sine is x: NaN beyond 1.", "elementary"),
    ("acos", "x", "The angle from 0 to pi whose cosine is x: NaN beyond 1.", "elementary"),
    ("atan", "x", "The angle from -pi/2 to pi/2 whose tangent is x.", "elementary"),
    ("erf", "x", "The error function: 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.", "elementary"),
    ("erfc", "x", "1 - erf(x), also where erf(x) would be rounded to 1.", "elementary"),
    ("erfcx", "x", "exp(x^2) erfc(x), also where erfc(x) would be rounded to 0.", "elementary"),
    ("erfinv", "x", "The number whose error function is x: infinite at +-1, NaN beyond.", "elementary"),
    ("ndtri", "x", "The number that a normal variable is below with probability x: NaN but from 0 to 1.", "elementary"),
    ("log_ndtr", "x", "The logarithm of the probability that a normal variable is below x.", "elementary"),
    ("lgamma", "x", "log(|Gamma(x)|): infinite at 0 and at negative integers.", "elementary"),
    ("digamma", "x", "The derivative of lgamma at x: NaN at negative integers, infinite at +-0.", "elementary"),
    (
        "zeta",
        "a b",
        "The sum of (b + k)^-a over k = 0, 1, ...: infinite at a = 1 and at integers b <= 0; NaN for a < 1, and for b\n"
        "below 0 unless a is an integer.",
        "elementary",
    ),
    ("i0", "x", "The modified Bessel function of order 0.", "elementary"),
    ("i0e", "x", "exp(-|x|) i0(x).", "elementary"),
    ("i1", "x", "The modified Bessel function of order 1, the derivative of i0.", "elementary"),
    ("i1e", "x", "exp(-|x|) i1(x).", "elementary"),
    ("gelu", "x", "x / 2 * (1 + erf(x / sqrt 2)), the exact GELU: at -inf the limit -0.", "elementary"),
    ("sigmoid", "x", "1 / (1 + exp(-x)).", "elementary"),
    ("reciprocal", "x", "1 / x: infinite with the sign of x at +-0.", "exact"),
    ("rsqrt", "x", "1 / sqrt(x): infinite with the sign of x at +-0, NaN below zero.", "exact"),
    ("power", "a b", "a to the power b; specials as of pow in IEEE 754-2019, section 9.2.1.", "elementary"),
    (
        "atan2",
        "a b",
        "The angle of the point (b, a), from -pi to pi; specials as of IEEE 754-2019, 9.2.1.",
        "elementary",
    ),
    ("negative", "x", "-x.", ""),
    ("abs", "x", "|x|.", ""),
    ("relu", "x", "The larger of x and 0.", ""),
    ("leaky_relu", "x slope", "x where it is positive, else slope * x.", ""),
    ("maximum", "a b", "The larger of a and b: NaN if one is; +0 is above -0.", ""),
    ("minimum", "a b", "The smaller of a and b: NaN if one is; -0 is below +0.", ""),
    ("clip", "x min max", "x, but min where it is below, and max where that is above max: NaN if one is.", ""),
)

_OTHERS: tuple[tuple[str, str, Kind, str], ...] = (
    ("matmul", "a b", "contraction", "The product of matrices."),
    ("linear", "x weight", "contraction", "x times the transposed weight."),
    ("conv2d", "x weight", "contraction", "The convolution of images with kernels."),
    ("conv_transpose2d", "x weight", "contraction", "The gradient of a convolution's images, as an operation."),
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
    ("concatenate", "a b", "movement", "Elements of several, one after the other along an axis."),
    ("stack", "a b", "movement", "Elements of several, along a new axis."),
    ("where", "a b", "movement", "Elements of a where a condition holds, else of b."),
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
    ("softplus", "x", "composite", "log(exp(beta * x) + 1) / beta, and x where beta * x is large."),
    ("elu", "x", "composite", "x * scale where x is positive, else (exp(x * input_scale) - 1) * alpha * scale."),
    ("mish", "x", "composite", "x * tanh(softplus(x))."),
    ("log_sigmoid", "x", "composite", "min(x, 0) - log(exp(-|x|) + 1)."),
    ("hardsigmoid", "x", "composite", "x + 3, no less than 0 and no more than 6, divided by 6."),
    ("hardswish", "x", "composite", "x times x + 3, no less than 0 and no more than 6, divided by 6."),
    ("softshrink", "x", "composite", "x moved towards 0 by lambd, and 0 between -lambd and lambd."),
    ("hardshrink", "x", "composite", "x, and 0 between -lambd and lambd."),
    ("prelu", "x weight", "composite", "x where it is positive, else weight * x."),
    ("glu", "x", "composite", "a * sigmoid(b), x being a and b side by side."),
    (
        "scaled_dot_product_attention",
        "query key value",
        "composite",
        "softmax(query key^T * scale + mask) value.",
    ),
    ("embedding_bag", "weight", "composite", "The sum, mean or maximum of rows of a table."),
    ("mse_loss", "input target", "composite", "The mean of (input - target)^2."),
    ("smooth_l1_loss", "input target", "composite", "The mean of d * d / 2 beta below beta, else d - beta / 2."),
    ("huber_loss", "input target", "composite", "The mean of d * d / 2 below delta, else (d - delta / 2) * delta."),
    ("xlogy", "x y", "composite", "x * log(y), and 0 where x is."),
    ("binary_cross_entropy", "input target", "composite", "The mean of (y - 1) * log(1 - x) - y * log(x)."),
    ("cross_entropy", "input target", "composite", "The mean of -log_softmax(input) at the targets."),
    ("ctc_loss", "log_probs", "composite", "-log of the probability of targets, over all ways to spread them."),
    (
        "binary_cross_entropy_with_logits",
        "input target",
        "composite",
        "The mean of (1 - y) * x - (min(x, 0) - log1p(exp(-|x|))).",
    ),
)

_ROWS = (
    *(Operation(name, tuple(xs.split()), "pointwise", meaning, grade) for name, xs, meaning, grade in _POINTWISE),
    Operation(
        "update",
        ("w", "u"),
        "pointwise",
        "w + u, the last addition of an optimizer; unchanged only if u was lost.",
        "exact",
        computes="add",
    ),
    *(Operation(name, tuple(xs.split()), kind, meaning) for name, xs, kind, meaning in _OTHERS),
)

#: Every operation by its name.
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}

#: The kind of every operation by its name.
CLASS_OF: dict[str, Kind] = {row.name: row.kind for row in _ROWS}

#: Those that are public functions: the exact result, rounded once.
FUNCTIONS: dict[str, Operation] = {row.name: row for row in _ROWS if row.is_function}

#: The operations of users, and the modules that define them, by name: see `simfloat.operation`.
_USERS: dict[str, tuple[Operation, str]] = {}


def register(operation: Operation, module: str) -> None:
    """Add an operation of a user's, or put it in the place of the same module's old one.

    Raises ValueError for what is no name, for one that is taken, and for an operation that changes its kind: recipes
    that were found for it would be another kind's.
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
    """The names of all operations, those of users too."""
    return [*OPERATIONS, *_USERS]


def kind_of(name: str) -> Kind | None:
    """The kind of the operation of that name, a user's too; None if there is none."""
    return _USERS[name][0].kind if name in _USERS else CLASS_OF.get(name)
