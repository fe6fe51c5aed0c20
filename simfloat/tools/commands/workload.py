"""Define tasks that together call every kernel: the checks of the self-test, and calls of the remaining kernels."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

import simfloat as sf
from simfloat.arithmetic.catalog import OPERATIONS
from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.programs import READINESS
from simfloat.arithmetic.sources import BFLOAT16, FLOAT16
from simfloat.kernels.compile import jit, processor
from simfloat.kernels.elementwise.loops import OPERATIONS as OPERATION_LOOPS
from simfloat.kernels.lanes import tiles
from simfloat.kernels.rounding import grid
from simfloat.sums.trees import ROUNDED_ORDERS
from simfloat.tools.selftest import CHECKS

MODES = (sf.nearest_even, sf.toward_zero, sf.to_odd, sf.stochastic(), sf.stochastic(4))


def count_compiled() -> int:
    """Return the number of kernels that this process has compiled because they were not on disk."""
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in jit.KERNELS)


def operations() -> None:
    """Call every operation in FP64, with random bits, and on float32 arrays."""
    for name in OPERATION_LOOPS:
        numbers = [np.array([0.5, 0.75])] * len(OPERATIONS[name].operands)
        getattr(sf, name)(*numbers, sf.FP64)
        getattr(sf, name)(*numbers, sf.FP32, sf.stochastic(), stream=sf.BitStream(0))
        getattr(sf, name)(*[number.astype(np.float32) for number in numbers], sf.TF32)
    sf.add(0.5, 0.75, sf.FP64, sf.toward_zero)


def flags() -> None:
    """Call the loops that compute exception flags: every pair of array types, stochastic modes, and special loops."""
    modes = ((sf.nearest_even, None), (sf.stochastic(), sf.BitStream(0)))
    for dtype, format, (mode, stream) in product((np.float32, np.float64), (sf.FP16, sf.Format(11, 20)), modes):
        sf.round(np.ones(2, dtype), format, mode, stream=stream, flags=True)
        sf.add(np.ones(2, dtype), 1.0, format, mode, stream=stream, flags=True)
    sf.round(np.ones(2, np.float32), sf.BF16, flags=True)
    loops = CPU.loops.flag_loops
    for names, dtype, format in (
        (loops.double_flags, np.float64, sf.FP64),
        (loops.single_flags, np.float32, sf.BF16),
        (loops.converted_flags, np.float32, sf.FP16),
        (loops.native_flags, np.float32, sf.FP32),
    ):
        for name in names:
            getattr(sf, name)(*[np.array([0.5, 0.75], dtype)] * len(OPERATIONS[name].operands), format, flags=True)


def sums_in(order: Callable[..., sf.Accumulator]) -> None:
    """Call an order of sums with every kind of step, including steps that only some operands need."""
    narrow, spread, a = matrices()
    for format, mode in product((sf.E5M2, sf.FP16, sf.TF32, sf.Format(8, 30), sf.FP32, sf.FP64), MODES):
        for operand in (narrow, narrow.astype(np.float32), spread, a, 2.0**300 * a):
            with contextlib.suppress(ValueError):  # an unsupported sum has no kernel
                sf.matmul(operand, operand.T, accumulate=order(format, mode), stream=sf.BitStream(0))


def matrices() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return random matrices of FP16 numbers, of BF16 numbers far apart, and of float64 numbers."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((3, 5))
    return sf.round(a, sf.FP16), sf.round(a * 2.0 ** rng.integers(-60, 60, a.shape), sf.BF16), a


def sums() -> None:
    """Call the remaining loops of sums: for lanes, small and long sums, orders of libraries, and partial sums."""
    narrow, _, a = matrices()
    sums_in(partial(sf.sequential, products=sf.BF16))
    modes = (sf.nearest_even, sf.nearest_away, sf.toward_positive, sf.toward_zero, sf.to_odd)
    for format, mode in product((sf.BF16, sf.FP16, sf.E4M3), modes):
        lanes = [sf.sequential(format, rounding=mode, products=products) for products in (None, format)]
        for operand, accumulate in product((narrow, sf.round(narrow, sf.E4M3)), lanes):
            sf.matmul(operand, operand.T, accumulate=accumulate)
        for order in (sf.kahan, sf.pairwise):
            sf.matmul(sf.round(narrow, sf.E4M3), narrow.T, accumulate=order(format, rounding=mode))
    if processor.ROUNDS_LANES:  # loops for small sums, which other processors of the same level may use
        one, numbers = np.ones((1, 1), np.float32), grid.pack_grid(sf.FP16, sf.to_odd)
        for name, loop in tiles.steps.items():
            if name.endswith("_small"):
                loop(one, one, np.zeros((1, 1), np.float32), numbers, numbers, 1.0)
    long = np.ones(1 << 12)
    for format, mode in product((sf.FP16, sf.BF16, sf.TF32, sf.FP32, sf.FP64), modes):
        with contextlib.suppress(ValueError):
            sf.sum(long, accumulate=sf.numpy_sum(format, mode))
            sf.sum(long.astype(np.float32), accumulate=sf.numpy_sum(format, mode))
    sf.sum(np.random.default_rng(0).standard_normal(1 << 12), accumulate=sf.numpy_sum(sf.Format(8, 30)))
    sf.dot(narrow[0], narrow[0], accumulate=sf.numpy_sum(sf.FP32, products=sf.FP16))
    for name in ("mkl-avx2", "torch-sum"):
        sf.sum(long, accumulate=sf.library_sum(name))
        sf.dot(2 * long, 2 * long, accumulate=sf.library_sum(name))
    for rounded in ROUNDED_ORDERS:
        if rounded.order == "chain":
            sf.partial_sums(a[0], a[0], accumulate=rounded.make(sf.FP16, sf.nearest_even))
    for format in (sf.FP32, sf.FP64):
        sf.matmul(a, a.T, inputs=format, accumulate=sf.sequential(format, products=format))
        sf.matmul(narrow.astype(np.float32), narrow.T, accumulate=sf.sequential(format, products=format))


def units() -> None:
    """Call matrix units that read block scales, one with few bits, and one whose sums need more than 32 bits."""
    sf.dot([2.0**100, 2.0**-100], np.ones(2), accumulate=sf.matrix_core("cdna3", sf.BF16))
    x = np.ones((2, 64))
    sf.matmul(x, x.T, accumulate=sf.tensor_core("hopper", sf.E4M3))
    for format in (sf.E2M1, sf.E4M3):
        unit = sf.tensor_core("blackwell", format, scales=(32, sf.E8M0))
        left, right = sf.block_quantize(x, format), sf.block_quantize(x.T, format, axis=0)
        sf.matmul(left, right, accumulate=unit)


def own_units() -> None:
    """Call every kind of loop of fused sums: in 32 bits, and in float64 for operands that are too far apart."""
    near, far = np.ones((2, 4)), np.array([[2.0**100, 2.0**-100]])
    common = (sf.FP32, None), (sf.BF16, sf.nearest_even), (sf.BF16, sf.stochastic()), (sf.FP64, None)
    units = *((*total, sf.toward_zero) for total in common), (sf.FP32, None, sf.to_odd)
    for (output, rounding, align), x in product(units, (near, far)):
        unit = sf.fused(4, 24, output, rounding=rounding, align=align)
        sf.matmul(x, x.T, inputs=sf.BF16, accumulate=unit, stream=sf.BitStream(0))


def lookups_and_codes() -> None:
    """Call functions on enough 16-bit numbers that a table is used, and encode and decode codes of every size."""
    for operands in (BFLOAT16, FLOAT16):
        for _ in range(2):
            sf.exp(operands.numbers(), sf.BF16)
        sf.exp(operands.numbers(), sf.BF16, flags=True)
    for format, dtype in product((sf.E4M3, sf.BF16, sf.TF32, sf.Format(5, 14)), (np.float32, np.float64)):
        sf.decode(sf.encode(np.ones(2, dtype), format), format)
        sf.array([1.0], format) + np.ones(2, dtype)


def observed_training() -> None:
    """Run a step of every kind of update, with and without a recorder, with results in float32 and in float64."""
    x = np.random.default_rng(0).standard_normal((8, 4))
    READINESS.compile_at_once()
    policies = product((sf.BF16, sf.FP32, sf.Format(11, 10)), ("nearest", "stochastic", "kahan"))
    for seed, (format, update) in enumerate(policies):
        model = sf.nn.MLP([4, 3, 2], rng=0)
        optimizer = sf.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        policy = sf.Policy(compute=format, update=update)
        for half, observer in enumerate((None, sf.Recorder())):
            with sf.simulate(policy, seed=2 * seed + half, observer=observer):
                optimizer.zero_grad()
                sf.nn.cross_entropy(model(x), np.arange(8) % 2).backward()
                optimizer.step()


def first_numbers() -> None:
    """Call what the documentation calls first: roundings, single operations, and sums in four orders."""
    x = np.random.default_rng(0).standard_normal((2, 64, 64))
    for numbers in (0.1, [0.1, 465.0, 1e-9], x, x.astype(np.float32)):
        for format in (sf.E4M3, sf.BF16, sf.FP16):
            sf.round(numbers, format)
            sf.decode(sf.encode(sf.round(numbers, format), format), format)
        sf.round(numbers, sf.E4M3, sf.stochastic(), stream=sf.BitStream(0))
    sf.round(0.1, sf.Format(3, 2), sf.toward_positive)
    sf.fma(7.0, 37.0, -(2.0**-60), sf.BF16)
    sf.add(2048.0, 1.0, sf.FP16, sf.stochastic(), stream=sf.BitStream(0))
    matrix = sf.array(1 + x[0] ** 2, sf.BF16)
    matrix[1:] -= matrix[1:, :1] / matrix[0, 0] * matrix[0]
    for accumulate in (sf.FP16, sf.BF16, sf.FP32, sf.kahan(sf.FP16), sf.blocked(8, sf.FP16, sf.FP32)):
        sf.dot(x[0, 0], x[1, 0], accumulate=accumulate)
        sf.matmul(*x, inputs=sf.FP16, accumulate=accumulate)
    # A recorder needs exact results where a result is zero or as large as possible.
    ones = np.ones(4, np.float32)
    for operation in (sf.add, sf.subtract, sf.multiply, sf.divide):
        operation(ones, ones, sf.BF16, observer=sf.Recorder())
        operation(0 * ones, ones, sf.BF16, observer=sf.Recorder())
    for other in (-ones, np.array(-1.0)):
        sf.add(ones, other, sf.BF16, observer=sf.Recorder())
    sf.sqrt(ones, sf.BF16)
    hopper = sf.tensor_core("hopper")
    for unit in (hopper, sf.blocked(128, hopper, sf.FP32)):
        sf.matmul(*x, inputs=sf.E4M3, accumulate=unit)


def first_trainings() -> None:
    """Train a small model as the documentation does first, under the policies that it names first."""
    READINESS.compile_at_once()
    x = np.random.default_rng(0).standard_normal((64, 8))
    names = ("fp32", "bf16-fp32-weights", "bf16-standard", "bf16-kahan", "fp16-master", "fp8-hybrid")
    for policy, kind in product(names, ("SGD", "AdamW")):
        for dtype in (np.float64, np.float32):
            numbers, recorder = x.astype(dtype), sf.Recorder()
            model = sf.nn.MLP([8, 16, 1], rng=0)
            optimizer = getattr(sf.optim, kind)(model.parameters(), lr=0.01)
            batches = sf.train.Batches(numbers, numbers @ np.ones((8, 1), dtype), batch_size=32, epochs=1, seed=0)
            with sf.simulate(policy, seed=0, observer=recorder):
                sf.train.fit(model, sf.nn.mse_loss, batches, optimizer, progress=False)
            recorder.advise()
    classifier = sf.nn.Sequential(sf.nn.Linear(8, 16, rng=0), sf.nn.GELU(), sf.nn.Linear(16, 4, rng=0))
    optimizer = sf.optim.AdamW(classifier.parameters(), lr=0.01)
    for observer in (None, sf.Recorder()):
        with sf.simulate("bf16-standard", seed=0, observer=observer):
            for _ in range(5):
                optimizer.zero_grad()
                sf.nn.cross_entropy(classifier(x.astype(np.float32)), np.arange(64) % 4).backward()
                optimizer.step()


def first_programs() -> None:
    """Call what the programs of the quick start call: sums, a refined solution, units, and a search for an order."""
    orders = (sf.FP16, sf.pairwise(sf.FP16), sf.kahan(sf.FP16), sf.FP32)
    for accumulate in orders:
        sf.sum(np.full(10_000, 0.1), inputs=sf.FP16, accumulate=accumulate)
    matrix, vectors = np.random.default_rng(0).standard_normal((2, 100, 100))
    sf.linalg.solve(matrix, vectors[0], factor=sf.FP16, work=sf.FP32, residual=sf.FP64)
    narrow = sf.round(matrix, sf.E4M3)
    for unit in (sf.tensor_core("hopper", sf.E4M3), sf.fused(8, 20, sf.Format(8, 13), align=sf.to_odd), sf.FP32):
        sf.to_hex(sf.matmul(narrow, narrow.T, accumulate=unit)[0, :3], sf.FP32)
    sf.reveal(lambda x, y: sf.dot(x, y, accumulate=sf.blocked(8, sf.FP16, sf.FP32)), 29)


#: Tasks that together call the kernels of a first session with the documentation.
FIRST_SESSION: dict[str, Callable[[], object]] = {
    "first trainings": first_trainings,
    "first programs": first_programs,
    "first numbers": first_numbers,
}

#: The tasks by name. Tasks with most compilation come first, so that no process is left with one at the end.
TASKS: dict[str, Callable[[], object]] = {
    "sums": sums,
    **{f"sums in {order.make(sf.FP16, sf.nearest_even)}": partial(sums_in, order.make) for order in ROUNDED_ORDERS},
    "operations": operations,
    **{name: partial(lambda check: deque(check(True), maxlen=0), CHECKS[name]) for name in reversed(CHECKS)},
    "flags": flags,
    "units": units,
    "own units": own_units,
    "lookups and codes": lookups_and_codes,
    "observed training": observed_training,
}
