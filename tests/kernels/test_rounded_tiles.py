"""Compare sums rounded on lanes with float64 loops and fractions; the processor's mode is restored."""

import os
import re
import signal
import subprocess
import sys
from itertools import product
from threading import Thread
from unittest.mock import Mock

import numpy as np
import pytest
from numba.core.caching import NullCache

import simfloat as sf
from simfloat.kernels.compile import processor
from simfloat.kernels.lanes import orders, tiles
from simfloat.kernels.lanes.operations import LANE_OPERATIONS
from simfloat.kernels.rounding import grid
from simfloat.kernels.sums import rows
from simfloat.kernels.sums.orders import KINDS as STEP_KINDS
from simfloat.kernels.sums.orders import native_product
from simfloat.sums.bounds import bounds_of
from simfloat.sums.lanes import TURNED, LaneLoop
from simfloat.sums.operands import Problem, operand_bounds
from simfloat.sums.tiles import UPRIGHT
from simfloat.tools.selftest.checks import all_values
from simfloat.tools.selftest.orders import dot
from tests.bits import DETERMINISTIC, assert_bits
from tests.reference import matrix_product, sequential_dot

pytestmark = pytest.mark.skipif(not processor.ROUNDS_LANES, reason="this processor rounds vectors to nearest only")

#: (format of sums, of operands): float32's exponents and fewer, shifted ones, and as many bits as there may be.
FORMATS = [
    *((format, format) for format in (sf.BF16, sf.FP16, sf.E4M3, sf.E5M2, sf.TF32, sf.FP32)), (sf.BF16, sf.FP32),
    (sf.FP16, sf.E4M3), (sf.Format(8, 22), sf.FP32), (sf.Format(6, 20), sf.FP16), (sf.Format(4, 3, bias=20), sf.E4M3),
]  # fmt: skip

#: The modes that have steps on lanes.
ON_LANES = tuple(mode for mode in DETERMINISTIC if mode.steps)


def spread(rng, shape, lowest, highest):
    return rng.standard_normal(shape) * 2.0 ** rng.integers(lowest, highest, shape)


def operands(kind, format, rng, m, k, n):
    """Operands, as float32 numbers, of a kind of which sums are hard to round."""
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == "ties":
        a, b = rng.integers(-9, 10, (m, k)) / 4, rng.integers(-9, 10, (k, n)) / 4
    elif kind == "sticky bits far below":
        low, high = format.emin // 2 - 6, max(2, min(format.emax // 3, 40))
        a, b = spread(rng, (m, k), low, high), spread(rng, (k, n), low, high)
    elif kind == "underflow":
        low = format.emin // 2
        a, b = spread(rng, (m, k), low - 8, low + 3), spread(rng, (k, n), low - 8, low + 3)
    elif kind == "overflow and back":
        a, b = (x * 2.0 ** ((format.emax + 1) / 2 - 0.5) for x in (a, b))
        a[:, 1::2] = -a[:, : k // 2 * 2 : 2]
    elif kind == "cancellation":
        a[:, 1 : k // 2 * 2 : 2], b[1 : k // 2 * 2 : 2] = -a[:, : k // 2 * 2 : 2], b[: k // 2 * 2 : 2] * (1 + 2.0**-9)
    special = kind == "infinities and NaN"
    if special:
        a[0, k // 2], a[-1, k // 3], b[k // 4, n // 2], b[k // 2, 0], a[0, 0] = np.inf, np.nan, -np.inf, 0.0, -0.0
    rounding = sf.nearest_even if special else sf.nearest_even.saturating()
    a, b = (np.ascontiguousarray(sf.round(x.astype(np.float32), format, rounding)) for x in (a, b))
    for x in (a, b):  # payloads from which a carry would reach the sign
        x.view(np.uint32)[np.isnan(x)] = rng.choice(np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32))
    return a, b


KINDS = ["ties", "sticky bits far below", "underflow", "overflow and back", "cancellation", "infinities and NaN"]


def loops(format, rounding, fused):
    """(loops on lanes that give such sums, the loop in float64)."""
    fusion = "fused" if fused else "unfused"
    steps = TURNED.get(rounding.steps, rounding.steps)
    careful = rows.stepwise_loops[fusion][tiles.CAREFUL.get(steps, "directed")]
    overflows = format.emax == 127 and format.mantissa_bits > 3 and not rounding.saturates
    names = [f"{fusion}_{steps}"] * overflows + [f"{fusion}_{steps}_watched"]
    if format.precision <= 22:  # for anchors
        names.append(f"{fusion}_{steps}_small")
    if format == sf.FP32 and overflows:
        names.append(f"{fusion}_whole_{steps}")
    known = tiles.steps
    return [known[name] for name in names if name in known], careful


def has_tie(format, rounding):
    return format.mantissa_bits < 23 or "nearest" not in rounding.mode


#: All modes of fused steps; an unfused step rounds as they do, and is compared in two modes.
@pytest.mark.parametrize(
    "rounding, fused", [*product(ON_LANES, [True]), *product((sf.toward_negative, sf.to_odd), [False])], ids=repr
)
def test_sums_on_lanes_are_those_of_float64(rounding, fused, rng):
    for (format, inputs), mode in product(FORMATS, (rounding, rounding.saturating())):
        numbers = grid.pack_grid(format, mode)
        fast, careful = loops(format, mode, fused)
        rest = numbers, numbers, mode.zero_sum
        for kind, (m, k, n) in product(KINDS if fast and has_tie(format, mode) else (), ((5, 260, 45), (1, 40, 7))):
            a, b = operands(kind, inputs, rng, m, k, n)
            start = sf.round(spread(rng, (m, n), max(format.emin, -100) - 3, 3).astype(np.float32), format)
            start[0, 0] = -0.0
            with np.errstate(invalid="ignore"):
                want = start.astype(np.float64)
                careful(a.astype(np.float64), b.astype(np.float64), want, *rest)
            for loop in fast:
                got = start.copy()
                loop(a, b, got, *rest)
                assert_bits(got, want.astype(np.float32))


def test_every_step_of_a_small_format_is_the_exact_one_rounded():
    # All x * y + s of numbers of 6 bits: sums that are exact, ties, just beside ties, tiny, and beyond the format.
    all_of_it = all_values(sf.Format(3, 2)).astype(np.float32)
    a, b = all_of_it[:, np.newaxis], all_of_it[np.newaxis]
    for rounding in ON_LANES:
        fast, careful = loops(sf.Format(3, 2), rounding, True)
        numbers = grid.pack_grid(sf.Format(3, 2), rounding)
        if rounding.mode == "nearest_even":
            fast.append(tiles.steps["fused_plain_watched"])  # as float32 holds all of them
        for start in all_of_it:
            want = np.full((a.size, b.size), start, np.float64)
            careful(a.astype(np.float64), b.astype(np.float64), want, numbers, numbers, rounding.zero_sum)
            for loop in fast:
                got = np.full((a.size, b.size), start)
                loop(a, b, got, numbers, numbers, rounding.zero_sum)
                assert_bits(got, want.astype(np.float32))


def engine_of(a, b, accumulator, start=None):
    initial = None if start is None else bounds_of(start)
    bounds = operand_bounds(a), operand_bounds(b)
    return accumulator.engine(Problem(*bounds, a.shape[1], accumulator.result, initial=initial))


#: (format of sums, of operands, of products): sums that float32 rounds without harm.
PLAIN = [
    *((sf.BF16, inputs, None) for inputs in (sf.E4M3, sf.E5M2, sf.E3M4)),
    *((format, format, format) for format in (sf.BF16, sf.TF32, sf.E4M3, sf.E5M2, sf.Format(4, 3, bias=20))),
    *((sf.E4M3, inputs, None) for inputs in (sf.E4M3, sf.Format(3, 2))),
    (sf.Format(5, 10, special="fn"), sf.E4M3, None),
    (sf.TF32, sf.BF16, sf.BF16),
    (sf.BF16, sf.BF16, sf.TF32),
]


@pytest.mark.parametrize("format, inputs, products", PLAIN, ids=str)
def test_plain_sums_on_lanes_are_those_of_float64(format, inputs, products, rng):
    steps, fusion = set(), "fused" if products is None else "unfused"
    careful, shapes = rows.stepwise_loops[fusion]["odd"], ((5, 260, 45), (1, 40, 7))
    for rounding, kind, (m, k, n) in product((sf.nearest_even, sf.nearest_even.saturating()), KINDS, shapes):
        a, b = operands(kind, inputs, rng, m, k, n)
        start = sf.round(spread(rng, (m, n), max(format.emin, -100) - 3, 3).astype(np.float32), format)
        engine = engine_of(a, b, sf.sequential(format, rounding=rounding, products=products), start)
        if isinstance(engine, LaneLoop) and "plain" in engine.step:
            steps.add(engine.step)
            want = start.astype(np.float64)
            with np.errstate(invalid="ignore"):
                careful(a.astype(np.float64), b.astype(np.float64), want, engine.grid, engine.products, 1.0)
            engine.run(a, b, start, UPRIGHT)
            assert_bits(start, want.astype(np.float32))
    has_range = format.exponent_bits == 8
    assert steps == {f"{fusion}_plain_watched"} | ({f"{fusion}_plain"} if has_range else set())


def test_small_sums_have_a_loop_of_their_own_where_subnormal_numbers_are_slow_with_the_same_bits(rng, monkeypatch):
    a, b = (sf.round(spread(rng, shape, -12, -2).astype(np.float32), sf.FP16) for shape in ((9, 40), (40, 9)))
    for rounding in ON_LANES:
        steps, sums = [], []
        for is_slow in (True, False):
            monkeypatch.setattr(processor, "SLOW_WITH_SUBNORMALS", is_slow)
            engine = engine_of(a, b, sf.sequential(sf.FP16, rounding=rounding))
            steps.append(getattr(engine, "step", ""))
            sums.append(np.zeros((9, 9), engine.carrier))
            engine.run(a, b, sums[-1], UPRIGHT)
        assert_bits(*sums)
        has_one = f"fused_{TURNED.get(rounding.steps, rounding.steps)}_small" in tiles.steps
        assert steps[0].endswith("_small") is has_one and not steps[1].endswith("_small")


@pytest.mark.skipif(not processor.CONVERTS_FP16 or processor.COMPUTES_FP16, reason="nothing is converted")
def test_sums_of_a_few_columns_are_made_on_lanes_with_the_bits_of_conversions(rng):
    for m, k, n, is_on_lanes in ((1, 40, 20, False), (9, 40, 7, False), (9, 40, 8, True), (9, 300, 64, False)):
        a, b = (sf.round(rng.standard_normal(shape).astype(np.float32), sf.E4M3) for shape in ((m, k), (k, n)))
        engine, sums = engine_of(a, b, sf.sequential(sf.FP16)), [np.zeros((m, n), np.float32) for _ in range(3)]
        for loop, out in zip((engine.engine, *engine.sum_rows.args, engine), sums, strict=True):
            loop.run(a, b, out, UPRIGHT)
        converted, on_lanes = Mock(), Mock()
        engine.sum_rows.func(on_lanes, converted, a, b, sums[2], UPRIGHT)
        assert (on_lanes.run.called, converted.run.called) == (is_on_lanes, not is_on_lanes)
        assert_bits(sums[1], sums[0])
        assert_bits(sums[2], sums[0])


def test_lanes_are_chosen_where_the_format_and_the_operands_have_float32s_range(rng):
    x = sf.round(rng.standard_normal((16, 16)).astype(np.float32), sf.FP16)

    def step(format, rounding, products=None, x=x):
        engine = engine_of(x, x, sf.sequential(format, rounding=rounding, products=products))
        return engine.step if isinstance(engine, LaneLoop) else None

    for name, *arguments in (
        ("fused_truncated", sf.BF16, sf.toward_zero),
        ("fused_whole_upward", sf.FP32, sf.toward_negative),  # with all signs turned, and none cut off
        ("fused_truncated_watched", sf.FP16, sf.toward_zero),
        ("fused_truncated_watched", sf.Format(5, 22), sf.toward_zero, None, x * np.float32(2.0**-6)),
        ("fused_truncated_watched", sf.BF16, sf.toward_zero.saturating()),
        ("fused_nearest", sf.TF32, sf.nearest_even),
        ("unfused_plain", sf.BF16, sf.nearest_even, sf.BF16),
        (None, sf.BF16, sf.nearest_even, sf.BF16, x * np.float32(2.0**-70)),  # products below float32's range
        ("unfused_sticky_watched", sf.FP16, sf.to_odd, sf.FP16),
        (None, sf.FP32, sf.nearest_away),  # float32 has no bit for ties
        (None, sf.E4M3FNUZ, sf.toward_zero),  # zero has no sign
        (None, sf.FP16, sf.toward_zero, sf.BF16),  # two ranges
        (None, sf.Format(11, 10), sf.toward_zero),
        (None, sf.FP16, sf.toward_zero, None, x * np.float32(2.0**-100)),  # too small for float32, once scaled
        (None, sf.FP16, sf.toward_zero, None, x.astype(np.float64) / 3),  # no float32 numbers
    ):
        assert step(*arguments) == name, arguments[:3]
    if not processor.COMPUTES_FP16:
        assert step(sf.FP16, sf.nearest_even) == "fused_nearest_watched"
        eight = sf.round(x, sf.E4M3)
        assert (step(sf.FP16, sf.nearest_even, x=eight) is None) is processor.CONVERTS_FP16, "one rounding is enough"


#: Sums that float64 rounds to other numbers in every mode but to nearest even.
PROBES = [(1.0, 1.5 * 2.0**-53), (-1.0, -1.5 * 2.0**-53), (1.0, 2.0**-53), (-1.0, -(2.0**-53))]
NEAREST = [1 + 2.0**-52, -1 - 2.0**-52, 1.0, -1.0]


def rounds_to_nearest():
    """True if Python and NumPy, in float32 and float64, round to nearest even in this thread."""
    ones, rests = np.array(PROBES).T
    in_float32 = np.float32(1) + np.float32(1.5 * 2.0**-24) == np.float32(1 + 2.0**-23)
    return [a + b for a, b in PROBES] == NEAREST and (ones + rests == NEAREST).all() and in_float32


def test_the_rounding_mode_is_restored(rng):
    a, b = operands("overflow and back", sf.FP16, rng, 9, 300, 40)
    done = []

    def work():
        for mode in (sf.toward_zero, sf.toward_positive, sf.nearest_away, sf.to_odd):
            for format in (sf.BF16, sf.FP16):
                sf.matmul(a, b, accumulate=sf.sequential(format, rounding=mode))
                done.append(rounds_to_nearest())

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    with pytest.raises(ValueError, match="matmul"):
        sf.matmul(a, a, accumulate=sf.sequential(sf.BF16, rounding=sf.toward_zero))
    assert len(done) == 32 and all(done) and rounds_to_nearest()


def compiled_anew():
    """The loop that asks for both neighbours, compiled for this processor, and its instructions."""
    operations, kind = LANE_OPERATIONS["nearest"], STEP_KINDS["odd"]
    careful = tiles.careful_row(native_product, kind.add)
    loop = tiles.rounded_tile_loop(operations, tiles.fused_step(operations), careful, False)
    loop._cache = NullCache()
    one, numbers = np.ones((4, 64), np.float32), grid.pack_grid(sf.BF16, sf.nearest_even)
    loop(one, np.ones((64, 4), np.float32), np.zeros((4, 4), np.float32), numbers, numbers, 1.0)
    return loop, loop.inspect_asm(loop.signatures[-1])


def check_sums_and_instructions():
    """A loop of which both neighbours of a result are asked, and arithmetic after it."""
    loop, text = compiled_anew()
    # The kernel's entry may set the mode once, and restore it once.
    if processor.ROUNDS_BY_INSTRUCTION:
        assert "{rd-sae}" in text and "{ru-sae}" in text and len(re.findall("ldmxcsr", text)) == 2
    elif processor.ARCHITECTURE == "x86_64":
        # The mode is set once and restored once, and of two products one is the negative one.
        lower, upper = (len(re.findall(name, text)) for name in (r"vfmadd\w+ps", r"vfnmsub\w+ps"))
        assert len(re.findall("ldmxcsr", text)) == 4 and lower == upper >= 8
    else:
        assert len(re.findall(r"msr\s+FPCR", text)) >= 4
    rng, numbers = np.random.default_rng(0), grid.pack_grid(sf.BF16, sf.nearest_even)
    for kind in ("ties", "sticky bits far below", "cancellation"):
        a, b = operands(kind, sf.BF16, rng, 5, 30, 11)
        got = np.zeros((5, 11), np.float32)
        loop(a, b, got, numbers, numbers, 1.0)
        want = matrix_product(a, b, lambda x, y, _: sequential_dot(x, y, sf.BF16, sf.nearest_even, None))
        assert_bits(got, want)
        assert rounds_to_nearest()
    check_another_order(rng)
    for _ in range(5):
        interrupt_sums(rng)
        assert rounds_to_nearest()


def check_another_order(rng):
    """A compensated sum, whose steps are turned upward by a sign."""
    numbers, accumulate = grid.pack_grid(sf.E4M3, sf.toward_negative), sf.kahan(sf.E4M3, rounding=sf.toward_negative)
    a, b = operands("cancellation", sf.E4M3, rng, 5, 21, 9)
    got = np.zeros((5, 9), np.float32)
    assert not orders.loops["kahan"]["upward_watched"](a, b, got, numbers, -1.0)
    assert_bits(got, matrix_product(a, b, lambda x, y, _: dot(accumulate, x, y)))


def interrupt_sums(rng):
    """End sums as Ctrl-C does, wherever they are."""

    def stop(number, frame):
        raise KeyboardInterrupt

    a, b = operands("ties", sf.E4M3, rng, 40, 300, 90)
    accumulate = sf.kahan(sf.E4M3, rounding=sf.toward_negative)
    sf.matmul(a, b, accumulate=accumulate)  # compiles what is interrupted, not its compilation
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.003 * rng.random())
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                sf.matmul(a, b, accumulate=accumulate)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_the_processor_is_asked_for_both_neighbours_and_rounds_to_nearest_again_afterwards():
    check_sums_and_instructions()


@pytest.mark.skipif(not processor.ROUNDS_BY_INSTRUCTION, reason="this processor's own code is that of the mode")
def test_the_same_by_the_processors_mode():
    # As for a processor without vectors of 512 bits, in a process of its own.
    features = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+sse4.2"
    environment = {**os.environ, "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    code = (
        "from tests.kernels import test_rounded_tiles as t; t.check_sums_and_instructions(); print(t.processor.VECTORS)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "256\n"), done.stderr
