"""Two rounding modes: one depends only on the part of a spacing, the other also on which number is odd."""

from fractions import Fraction
from itertools import cycle, product

import numpy as np

from tests.bits import assert_bits
from tests.extensions.extension import Extension, Row


def every_mode():
    """Every mode that there is, those of extensions too, some of them saturating, and stochastic ones."""
    import simfloat as sf
    from simfloat.formats.rounding import MODES, Rounding

    saturating = (sf.nearest_even.saturating(), sf.toward_negative.saturating())
    drawn = (sf.stochastic(), sf.stochastic(8), sf.stochastic(5, "A"), sf.stochastic(8, "A"))
    return (*map(Rounding, MODES), *saturating, *drawn)


def install_the_stand_in():
    """Use the stand-in for a GPU."""
    from simfloat.kernels.gpu import threads
    from tests.cuda import simulated, standin

    standin.install()
    threads.launch = simulated.in_a_row


def modes_round_everything():
    """On the CPU and on the stand-in for a GPU."""
    import simfloat as sf

    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 2.5000001, -2.5000001, 1e9])
    for mode, want in (("nearest_zero", [0.5, 1.5, 2.0, -0.5, -2.0]), ("nearest_odd", [0.5, 1.5, 3.0, -0.5, -3.0])):
        assert sf.round(x, sf.Format(5, 1), getattr(sf, mode))[:5].tolist() == want
        assert sf.round(x, sf.Format(5, 1), mode)[5:].tolist() == [3.0, -3.0, np.inf]
    install_the_stand_in()
    what_adds_so_is_revealed(sf.pairwise(sf.E2M1, sf.nearest_odd))
    # Each format in one carrier with each mode, and each kind of sums with one of both.
    one, other = np.float64, np.float32
    sums = (((sf.E4M3, one), (sf.BF16, other), (sf.Format(8, 30), one)), ((sf.FP16, one), (sf.FP32, other)))
    for mode, carriers, formats in zip(
        (sf.nearest_zero, sf.nearest_odd), ((one, other), (other, one)), sums, strict=True
    ):
        numbers_round_so(mode, carriers)
        operations_round_so(mode)
        sums_of_every_accumulator_round_so(mode, formats)
        units_round_so(mode)
        arrays_round_so(mode)
        models_round_so(mode)
        updates_are_programs_that_round_so(mode)


def numbers_round_so(mode, carriers):
    """With flags and counts."""
    import cupy

    import simfloat as sf
    from simfloat.formats.definition import round_value
    from simfloat.formats.exceptions import flags_of

    formats = (sf.E4M3, sf.BF16, sf.FP16, sf.Format(8, 1), sf.p3109(8, 1), sf.Format(5, 3, subnormals=False), sf.E2M1)
    for format, kind in zip(formats, cycle(carriers)):
        exact = sf.decode(np.arange(0, 2 ** min(format.bits, 10), 7), format)
        steps = np.array([0.0, 0.25, 0.5, 0.75])[:, np.newaxis] * sf.ulp(exact, format)
        x = np.concatenate([(exact + steps).ravel(), [1e38, -1e38, 1e-38, -0.0]]).astype(kind)
        x = x[np.isfinite(x)]
        got, flags = sf.round(x, format, mode, flags=True)
        assert_bits(got, [round_value(v, format, mode) for v in x.tolist()], x)
        assert flags.tolist() == [flags_of(v, (), format, mode) for v in x.tolist()]
        here, there = sf.Recorder(), sf.Recorder()
        sf.round(x, format, mode, observer=here)
        assert_bits(sf.round(cupy.asarray(x), format, mode, observer=there).get(), got, x)
        assert here.counts() == there.counts()


def operations_round_so(mode):
    import cupy

    import simfloat as sf
    from simfloat.tools.selftest.definitions import operate, operate_on_arrays

    numbers = np.concatenate([sf.decode(np.arange(0, 256, 9), sf.E4M3), [np.nan]])
    a, b = np.repeat(numbers, numbers.size), np.tile(numbers, numbers.size)
    for operation in ("add", "multiply", "divide"):
        got = getattr(sf, operation)(a, b, sf.E4M3, mode)
        assert_bits(got, operate_on_arrays(operation, (a, b), sf.E4M3, mode), a, b)
        there = getattr(sf, operation)(cupy.asarray(a), cupy.asarray(b), sf.E4M3, mode)
        assert_bits(there.get(), got, a, b)
    for format, kind in product((sf.BF16, sf.FP16, sf.Format(8, 30)), (np.float64, np.float32)):
        x, y = a[::97].astype(kind), b[::97].astype(kind)
        want = [operate("fma", format, mode, *row) for row in zip(x.tolist(), y.tolist(), x.tolist(), strict=True)]
        assert_bits(sf.fma(x, y, x, format, mode), want, x, y)


def sums_of_every_accumulator_round_so(mode, formats):
    import cupy

    import simfloat as sf
    from simfloat.formats.definition import round_value
    from simfloat.sums.trees import ROUNDED_ORDERS
    from simfloat.tools.selftest.orders import dot

    few, tree = np.random.default_rng(0).integers(-7, 8, (3, 19)).astype(np.float64), "0 + (1 + 2) + 3 + 4 + ... + 18"
    for format, kind in formats:
        orders = [order.make(format, mode) for order in ROUNDED_ORDERS]
        orders += [sf.sequential(format, mode.saturating()), sf.tree(tree, format, mode)]
        orders += [sf.blocked(5, orders[0], sf.kahan(format, mode)), sf.lanes(4, orders[0], sf.pairwise(format, mode))]
        if format.precision < 30:
            orders += [sf.fused(4, 9, format, rounding=mode), sf.fused(4, 9, format, rounding=mode, align=sf.to_odd)]
            flushed = sf.Format(format.exponent_bits, format.mantissa_bits, subnormals=False)
            orders += [sf.fused(4, 9, flushed, rounding=mode)]
        a, b = (few * [[1.0], [0.25], [2.0**-9]]).astype(kind), few[:1].T.astype(kind)
        for accumulate in orders:
            want = [dot(accumulate, row.tolist(), b[:, 0].tolist()) for row in a]
            assert_bits(sf.matmul(a, b, accumulate=accumulate)[:, 0], want)
            assert_bits(sf.matmul(cupy.asarray(a), cupy.asarray(b), accumulate=accumulate).get()[:, 0], want)
            if accumulate.chunk is not None:
                running = sf.partial_sums(a[1], b[:, 0], accumulate=accumulate)
                assert_bits(running[-1:], want[1:2])
    total = sf.dot(few[0], few[1] + 2.0**-9, accumulate=sf.exact, output=sf.E4M3, rounding=mode)
    exact = sum(Fraction(x) * (Fraction(y) + Fraction(1, 512)) for x, y in zip(few[0], few[1], strict=True))
    assert total == round_value(exact, sf.E4M3, mode)


def units_round_so(mode):
    """Results of matrix units are rounded once more."""
    import cupy

    import simfloat as sf

    a, b = np.random.default_rng(2).integers(-7, 8, (2, 3, 3)).astype(np.float32)
    for unit in (sf.tensor_core("hopper", sf.FP16), sf.matrix_core("cdna3", sf.FP16)):
        want = sf.round(sf.matmul(a, b, accumulate=unit), sf.E2M1, mode)
        options = {"accumulate": unit, "output": sf.E2M1, "rounding": mode}
        assert_bits(sf.matmul(a, b, **options), want)
        assert_bits(sf.matmul(cupy.asarray(a), cupy.asarray(b), **options).get(), want)


def what_adds_so_is_revealed(accumulate):
    import simfloat as sf
    from simfloat.analysis.reveal import check

    # The usual number of sums takes nine seconds in plain Python.
    check.ROWS = check.BINADE_ROWS = check.MORE_ROWS = 4
    revealed = sf.reveal(lambda a, b: sf.dot(a, b, accumulate=accumulate), 4, inputs=accumulate.format)
    assert revealed.accumulator == accumulate


def arrays_round_so(mode):
    import simfloat as sf
    from simfloat.tools.selftest.definitions import operate_on_arrays
    from simfloat.tools.selftest.orders import dot

    few, order = np.random.default_rng(1).integers(-7, 8, (2, 3, 3)).astype(np.float64), sf.sequential(sf.E4M3, mode)
    A, B = (sf.array(x, sf.E4M3, rounding=mode, accumulate=order) for x in few)
    products = operate_on_arrays("multiply", (few[0], few[1]), sf.E4M3, mode)
    for got in (A * B, np.multiply(A, B)):
        assert_bits(np.asarray(got, np.float64), products)
    assert_bits(np.asarray(np.exp(A), np.float64), sf.exp(few[0], sf.E4M3, mode))
    columns = few[0].T.tolist()
    assert_bits(np.asarray(np.sum(A, axis=0), np.float64), [dot(order, column, [1.0] * 3) for column in columns])
    assert_bits(np.asarray(A @ B, np.float64), products_of(few, order))
    assert (A * B).rounding == mode


def products_of(few, order):
    """The matrix of sums in an order."""
    from simfloat.tools.selftest.orders import dot

    return np.array([[dot(order, row.tolist(), column.tolist()) for column in few[1].T] for row in few[0]])


def models_round_so(mode):
    """PyTorch and the library have the same gradients."""
    import torch

    import simfloat as sf
    from simfloat.tools.selftest.definitions import operate_on_arrays

    few, order = np.random.default_rng(1).integers(-7, 8, (2, 3, 3)).astype(np.float64), sf.sequential(sf.E4M3, mode)
    policy = sf.Policy(compute=sf.E4M3, accumulate=order, rounding=mode)
    model = torch.nn.Linear(3, 3, bias=False)
    model.weight.data = torch.tensor(few[1].T.copy(), dtype=torch.float32)
    with sf.torch.simulate(model, policy):
        result = model(torch.tensor(few[0], dtype=torch.float32)) * 0.8125
        result.sum().backward()
    products = products_of(few, order)
    want = operate_on_arrays("multiply", (products, np.full_like(products, 0.8125)), sf.E4M3, mode)
    assert_bits(result.detach().numpy().astype(np.float64), want)
    weight = sf.Parameter(few[1].astype(np.float32))
    with sf.simulate(policy):
        y = (sf.Tensor(few[0].astype(np.float32)) @ weight) * 0.8125
        y.sum().backward()
    assert_bits(y.data.astype(np.float64), want)
    assert_bits(model.weight.grad.numpy().T, weight.grad)


def updates_are_programs_that_round_so(mode):
    import simfloat as sf
    from simfloat.arithmetic.programs import READINESS
    from simfloat.optim import optimizer as optimizers

    READINESS.compile_at_once()
    run, ran = optimizers.run_as_program, []

    def noted(*given):
        updated = run(*given)
        ran.append(updated is not None)
        return updated

    def trained(format, as_program):
        optimizers.run_as_program = noted if as_program else lambda *_: None
        rng = np.random.default_rng(3)
        p, g = rng.integers(-9, 10, (2, 3, 7)).astype(np.float32)
        parameter = sf.Parameter(p)
        optimizer = sf.optim.SGD([parameter], lr=0.375, momentum=0.5, weight_decay=0.25)
        for _ in range(2):
            parameter.grad = g
            with sf.simulate(sf.Policy(compute=format, rounding=mode)):
                optimizer.step()
        return parameter.data

    try:
        for format in (sf.BF16, sf.FP16, sf.E4M3, sf.Format(5, 3, subnormals=False)):
            assert_bits(trained(format, True), trained(format, False))
    finally:
        optimizers.run_as_program = run
    assert ran and all(ran)


MODE = Extension(
    "a rounding mode",
    modes_round_everything,
    rows=(
        Row(
            "simfloat/formats/rounding.py",
            '"nearest_away": ModeRule(',
            """    "nearest_zero": ModeRule(lambda rest, odd, negative: rest > HALF),
    "nearest_odd": ModeRule(lambda rest, odd, negative: rest > HALF or (rest == HALF and not odd)),""",
        ),
        Row(
            "simfloat/formats/rounding.py",
            "nearest_away = ",
            'nearest_zero = Rounding("nearest_zero")\nnearest_odd = Rounding("nearest_odd")',
        ),
        Row("simfloat/formats/__init__.py", "nearest_away,", "    nearest_odd,\n    nearest_zero,"),
        Row("simfloat/formats/__init__.py", '"nearest_away",', '    "nearest_odd",\n    "nearest_zero",'),
        Row(
            "simfloat/tools/selftest/definitions.py",
            "return side >= 0",
            """        case "nearest_zero":
            return side > 0
        case "nearest_odd":
            return (side > 0) | ((side == 0) & ~odd)""",
        ),
        Row("docs/reference/numbers.rst", "nearest_even nearest_away", "   nearest_zero nearest_odd"),
        Row(
            "docs/entries.py",
            '"This is the default.",',
            """    "simfloat.nearest_zero": "Round to the nearest number; a tie goes to the neighbour nearer to zero.",
    "simfloat.nearest_odd": "Round to the nearest number; a tie goes to the neighbour with an odd significand.",""",
        ),
    ),
)
