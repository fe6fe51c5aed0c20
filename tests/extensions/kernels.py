"""Extensions with their own kernels, which run as plain Python here."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from tests.bits import assert_bits
from tests.extensions.extension import Extension, Row
from tests.extensions.modes import MODE, every_mode, install_the_stand_in

FUNCTION_TEXT = '''"""softsign(x) = x / (1 + |x|)."""

from __future__ import annotations

import numpy as np

from simfloat.kernels.compile.intrinsics import fma, round_sum_to_odd
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise.exact import quick_two_sum, split, two_sum
from simfloat.kernels.functions.constants import SPECK


@scalar
def _softsign(x):
    """softsign(x) as (high, rest), the rest times 1 + |x|, for 2^-300 <= |x| <= 2^300."""
    s, e = two_sum(1.0, abs(x))
    q = x / s
    q, _ = quick_two_sum(q, fma(-q, e, fma(-q, s, x)) / s)
    return q, fma(-q, e, fma(-q, s, x))


@scalar
def softsign_quick(x):
    """softsign(x) for zero and 2^-300 <= |x| <= 2^300."""
    q, rest = _softsign(x if abs(x) < np.inf else 1.0)
    result = round_sum_to_odd(q, rest) if abs(x) < np.inf else np.nan
    return x if x == 0.0 else result


@scalar
def softsign_wide(x):
    """softsign(x), with the limits -1 and 1."""
    if x == 0.0 or np.isnan(x):
        return x, 0.0, 0
    if np.isinf(x):
        return 1.0 if x > 0.0 else -1.0, 0.0, 0
    significand, exponent = split(x)
    if abs(x) < 2.0**-100:
        return significand, -significand * SPECK, exponent
    if abs(x) > 2.0**100:
        sign = 1.0 if x > 0.0 else -1.0
        return sign, -sign * SPECK, 0
    q, rest = _softsign(x)
    return q, rest / (1.0 + abs(x)), 0
'''


def functions_are_what_their_rows_say():
    """In turn: as functions, on arrays, on tensors, on the stand-in for a GPU, and in PyTorch."""
    import simfloat as sf
    from simfloat.formats.definition import round_value
    from tests.mpfr import ORACLES, to_odd

    x = sf.round(np.random.default_rng(0).standard_normal(24) * 2.0 ** np.arange(-12, 12), sf.BF16)
    exact = {"softsign": [Fraction(v) / (1 + abs(Fraction(v))) for v in x.tolist()]}
    with localcontext(prec=120, Emin=-99_999, Emax=99_999):
        exact["exp2"] = [
            Fraction(2) ** int(v) if v == int(v) else Fraction(Decimal(2) ** Decimal(v)) for v in x.tolist()
        ]
    for name, values in exact.items():
        odd = np.array([round_value(v, sf.FP64, sf.to_odd) for v in values])
        assert_bits(to_odd(ORACLES[name], x), odd)
        for place, mode in enumerate(every_mode()):
            function_rounds_once(name, x, odd, (sf.FP16, sf.E4M3)[place % 2], mode)
        # To others the mode is only passed on.
        for mode in (sf.toward_negative.saturating(), sf.stochastic(5, "A")):
            arrays_have_the_function(name, x, odd, mode)
            front_ends_have_the_function(name, x, odd, mode)
            sums_of_the_function_are_those_of_its_results(name, x, mode)
    assert sf.softsign([0.0, np.inf, -np.inf], sf.FP16).tolist() == [0.0, 1.0, -1.0]
    assert sf.exp2([3.0, -np.inf, np.inf, -2000.0], sf.FP64).tolist() == [8.0, 0.0, np.inf, 0.0]
    assert sf.exp2(2**70 + 1, sf.FP16) == np.inf and sf.softsign(2**70 + 1, sf.FP16, "toward_zero") < 1.0
    assert sf.policies["bf16-standard"].deny("exp2").recipe("", "exp2").activations == sf.FP32
    with sf.simulate("bf16-standard"):
        tensor = sf.Tensor([3.0], requires_grad=True)
        y = tensor.softsign()
        y.backward()
    assert (y.data, tensor.grad) == (0.75, 1 / 16)


def function_rounds_once(name, x, odd, format, mode):
    import cupy

    import simfloat as sf

    function, recorder, rounded = getattr(sf, name), sf.Recorder(), sf.Recorder()
    want = sf.round(odd, format, mode, stream=sf.BitStream(3), observer=rounded)
    assert_bits(function(x, format, mode, stream=sf.BitStream(3), observer=recorder), want, x)
    assert recorder.counts() == rounded.counts()
    assert_bits(function(cupy.asarray(x), format, mode, stream=sf.BitStream(3)).get(), want, x)


def arrays_have_the_function(name, x, odd, mode):
    import simfloat as sf

    for function in (lambda a: getattr(a, name)(), getattr(np, name, None)):
        if function is not None:
            stream, twin = sf.BitStream(3), sf.BitStream(3)
            sf.round(x, sf.BF16, mode, stream=twin)
            got = function(sf.array(x, sf.BF16, rounding=mode, stream=stream))
            assert isinstance(got, sf.Array)
            assert_bits(got, sf.round(odd, sf.BF16, mode, stream=twin), x)


def front_ends_have_the_function(name, x, odd, mode):
    import torch

    import simfloat as sf

    policy = sf.Policy(compute=sf.BF16, accumulate=sf.FP32, rounding=mode)
    ours, theirs = sf.Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    with sf.simulate(policy, 3):
        y = getattr(ours, name)()
        y.backward(np.ones_like(x))
    want = sf.round(odd, sf.BF16, mode) if mode.mode != "stochastic" else y.data
    assert_bits(y.data, want, x)
    if hasattr(torch, name):
        with sf.torch.simulate(torch.nn.Module(), policy, 3):
            z = getattr(torch, name)(theirs)
            z.backward(torch.ones_like(theirs))
        assert_bits(z.detach().numpy(), want, x)
        if mode.mode != "stochastic":  # a draw for each operation of PyTorch's derivative
            assert_bits(theirs.grad.numpy(), ours.grad, x)


def sums_of_the_function_are_those_of_its_results(name, x, mode):
    import cupy

    import simfloat as sf
    from simfloat.tools.selftest.orders import dot

    y, order = getattr(sf, name)(np.clip(x, -4, 4), sf.BF16), sf.sequential(sf.FP16, mode)
    want = [dot(order, y.tolist(), [1.0] * y.size, **{"element": 0, "seed": 3})]
    one = np.ones((y.size, 1), y.dtype)
    got = sf.matmul(y[np.newaxis], one, accumulate=order, stream=sf.BitStream(3))
    assert_bits(got[0], want)
    there = sf.matmul(cupy.asarray(y[np.newaxis]), cupy.asarray(one), accumulate=order, stream=sf.BitStream(3))
    assert_bits(there.get()[0], want)


def functions_are_so_on_a_stand_in():
    """Keep that promise on the stand-in for a GPU."""
    install_the_stand_in()
    functions_are_what_their_rows_say()


FUNCTION = Extension(
    "a function",
    functions_are_so_on_a_stand_in,
    rows=(
        Row(
            "simfloat/arithmetic/catalog.py",
            "_FUNCTIONS = (",
            """    _function(
        "softsign",
        "x",
        "x / (1 + |x|): -1 and 1 at infinities.",
        "elementary",
        example="2.0 -> 0.66796875",
        slopes=(lambda u, g, y, a: u.divide(u.divide(g, d := u.add(ONE, abs(a))), d),),
        specials=(0.0, -0.0, 1.0, -1.0, NAN),
        value=lambda x: x / (1 + abs(x)),
    ),""",
        ),
        Row("docs/specification.md", "sinpi, cospi, asin", "softsign,"),
    ),
    new={"simfloat/kernels/functions/softsign.py": FUNCTION_TEXT},
)


ACCUMULATOR_TEXT = '''"""Sums that are compensated once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from simfloat.formats import as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums.bounds import Bounds
from simfloat.sums.one_format import InOneFormat


def neumaier(format: FormatLike, rounding: RoundingLike = nearest_even) -> Neumaier:
    """Neumaier's sum: what each addition loses is summed beside the sum, and added in the end; all in `format`.

    For ascending k: p = a * b, t = s + p, c = c + ((larger - t) + smaller) of s and p, s = t; the result is s + c.
    (Neumaier, ZAMM 54, 1974.)
    """
    return Neumaier(as_format(format), rounding=as_rounding(rounding))


@dataclass(frozen=True, repr=False)
class Neumaier(InOneFormat):
    """See :func:`neumaier`."""

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "neumaier"
    stages: ClassVar[int] = 6
    chunk: ClassVar[int] = 1

    #: The correction is lost where a sum is interrupted.
    resumes: ClassVar[bool] = False

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """To nearest a sum grows by at most 2|p|, and what an addition loses is no more than that; elsewhere the
        format's largest number is the bound, and twice that of a sum of two."""
        largest = added.high if initial is None else max(added.high, initial.high)
        if self.rounding.is_to_nearest:
            return largest + 2 * math.ceil(math.log2(terms + 1)) + 4
        return max(largest, self.format.last_binade + 1) + 1
'''

STEP_TEXT = '''

def neumaier(multiply: Any, add: Any, subtract: Any) -> Any:
    """Neumaier's sum: p = x * y, t = s + p, c = c + ((larger - t) + smaller) of s and p, s = t; in the end s + c."""

    @scalar
    def step(state, x, y, draws, options):
        s, c = state
        p = multiply(x, y, draws[1], options)
        t = add(s, p, draws[0], options)
        large, small = (s, p) if magnitude(s) >= magnitude(p) else (p, s)
        lost = add(subtract(large, t, draws[2], options), small, draws[3], options)
        return t, add(c, lost, draws[4], options)

    return step


def sum_and_correction(add: Any) -> Any:
    """s + c."""

    @scalar
    def finish(state, draw, options):
        s, c = state
        return add(s, c, draw, options)

    return finish

'''

DEFINITION_TEXT = '''

def neumaier_dot(a: Numbers, b: Numbers, do: RoundedOperations, start: float) -> float:
    """p = ab, t = s + p, c = c + ((larger - t) + smaller), s = t; in the end s + c."""
    s, c = start, 0.0
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        p = do("multiply", x, y, step=k, stage=1)
        t = do("add", s, p, step=k, stage=0)
        large, small = (s, p) if abs(s) >= abs(p) else (p, s)
        lost = do("add", do("subtract", large, t, step=k, stage=2), small, step=k, stage=3)
        s, c = t, do("add", c, lost, step=k, stage=4)
    return do("add", s, c, step=0, stage=5)

'''


def accumulator_sums():
    """In every mode, on the CPU and on the stand-in for a GPU, from an addend and inside of blocked sums."""
    import simfloat as sf
    from simfloat.sums.trees import ROUNDED_ORDERS
    from simfloat.tools.selftest.orders import dot

    assert sf.neumaier in [order.make for order in ROUNDED_ORDERS]
    assert sf.sum(np.full(100, 0.1), inputs=sf.FP16, accumulate=sf.neumaier(sf.FP16)) == 10.0
    assert str(sf.neumaier("bf16", "toward_zero")) == "neumaier(BF16, rounding=toward_zero)"
    install_the_stand_in()
    import cupy

    rng = np.random.default_rng(0)
    a, b = (sf.round(x * 2.0 ** rng.integers(-9, 9, x.shape), sf.BF16) for x in rng.standard_normal((2, 2, 19)))
    b, start = b.T[:, :1], sf.round(rng.standard_normal((2, 1)), sf.E5M2)
    formats = (sf.FP16, sf.BF16, sf.E4M3, sf.FP32, sf.Format(8, 30))
    for place, mode in enumerate(every_mode()):
        format = formats[place % 5]
        order = sf.neumaier(format, mode)
        for accumulate, initial in (
            (order, None),
            (order, sf.round(start, format)),
            (sf.blocked(7, order, order), None),
        ):
            starts = np.zeros(2) if initial is None else initial[:, 0]
            want = [
                dot(accumulate, row.tolist(), b[:, 0].tolist(), start=float(starts[i]), **{"element": i, "seed": 3})
                for i, row in enumerate(a)
            ]
            options = {"accumulate": accumulate, "stream": sf.BitStream(3)}
            got = sf.matmul(a, b, initial=initial, **options)
            assert_bits(got[:, 0], want)
            if initial is None:
                on_gpu = sf.matmul(cupy.asarray(a), cupy.asarray(b), accumulate=accumulate, stream=sf.BitStream(3))
                assert_bits(on_gpu.get()[:, 0], want)
                running = sf.partial_sums(a[0], b[:, 0], accumulate=accumulate, stream=sf.BitStream(3))
                assert_bits(running[-1:], want[:1])


ACCUMULATOR = Extension(
    "an accumulator of one format that adds one product at a time",
    accumulator_sums,
    rows=(
        Row(
            "simfloat/kernels/sums/orders.py",
            "from simfloat.kernels.compile.jit",
            "from simfloat.kernels.elementwise.half import magnitude",
        ),
        Row("simfloat/kernels/sums/orders.py", "on_rows: bool", STEP_TEXT),
        Row(
            "simfloat/kernels/sums/orders.py",
            '"kahan": ',
            '    "neumaier": Order(neumaier, state=2, stages=6, finish=sum_and_correction, on_rows=False),',
        ),
        Row(
            "simfloat/sums/__init__.py", "from simfloat.sums.one_format", "from simfloat.sums.neumaier import neumaier"
        ),
        Row("simfloat/sums/__init__.py", "__all__ = [", '    "neumaier",'),
        Row("simfloat/sums/trees.py", "from simfloat.sums.bounds", "from simfloat.sums.neumaier import neumaier"),
        Row("simfloat/sums/trees.py", "RoundedOrder(kahan", "    RoundedOrder(neumaier, compensates=True),"),
        Row("simfloat/tools/selftest/orders.py", "return nodes[0]", DEFINITION_TEXT),
        Row("simfloat/tools/selftest/orders.py", '"kahan": ', '    "neumaier": neumaier_dot,'),
        Row("docs/reference/sums.rst", "sums.one_format", "   sums.neumaier"),
    ),
    new={"simfloat/sums/neumaier.py": ACCUMULATOR_TEXT},
)


KERNELS = (FUNCTION, MODE, ACCUMULATOR)
