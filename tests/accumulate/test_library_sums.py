"""Compare orders of libraries with scalar loops over fractions, and with the libraries on this computer."""

import platform
from fractions import Fraction

import numpy as np
import pytest

import simfloat as sf
from simfloat.formats.definition import round_value
from simfloat.sums import libraries
from simfloat.sums.libraries import ORDERS
from simfloat.tools.selftest.checks import hard_operands
from tests.bits import assert_bits
from tests.checks import assert_refused
from tests.reference import matrix_product


def rounded(x, format=sf.FP32):
    return round_value(x, format, sf.nearest_even)


def added(x, y, format=sf.FP32):
    if np.isinf(x) or np.isinf(y):
        return x + y
    return rounded(Fraction(x) + Fraction(y), format) or x + y  # the sum of zeros has IEEE's sign


def fused(x, y, start):
    if np.isinf(start):
        return start
    exact = Fraction(x) * Fraction(y) + Fraction(start)
    return rounded(exact) or (np.copysign(0.0, exact) if exact else x * y + start)


def vertical(x, y):
    return [added(p, q) for p, q in zip(x, y, strict=True)]


def halves(x):
    return vertical(x[: len(x) // 2], x[len(x) // 2 :])


def pairs(x):
    return vertical(x[::2], x[1::2])


def openblas(a, b, register):
    """The steps of sdot.c after its kernel for a multiple of 32 products."""
    run, rest = len(a) - len(a) % 32, 0.0
    for x, y in zip(a[run:], b[run:], strict=True):
        rest = added(rest, rounded(Fraction(x) * Fraction(y)) or x * y * 0.0, sf.FP64)
    total = pairs(pairs(register(a[:run], b[:run])))
    return rounded(Fraction(t)) if np.isfinite(t := added(rest, total[0], sf.FP64)) else t


def skylake(a, b):
    k, wide = 0, [[0.0] * 16 for _ in range(4)]
    while k + 64 <= len(a):
        for register in wide:
            for lane in range(16):
                register[lane] = fused(a[k], b[k], register[lane])
                k += 1
    narrow = [halves(register) for register in wide]
    while k < len(a):
        for register in narrow:
            for lane in range(8):
                register[lane] = fused(a[k], b[k], register[lane])
                k += 1
    return halves(vertical(vertical(vertical(narrow[0], narrow[1]), narrow[2]), narrow[3]))


def haswell(a, b):
    registers = [[0.0] * 8 for _ in range(4)]
    for k in range(len(a)):
        register = registers[k // 8 % 4]
        register[k % 8] = fused(a[k], b[k], register[k % 8])
    r = [halves(register) for register in registers]
    return vertical(vertical(r[0], r[1]), vertical(r[2], r[3]))


def mkl(a, b, width):
    terms, k, registers = len(a), 0, [[0.0] * width for _ in range(4)]
    a, b = list(a) + [0.0] * width, list(b) + [0.0] * width
    for count, fits in ((4, True), (2, True), (1, True), (1, False)):
        while k < terms and (k + count * width <= terms or not fits):
            for register in registers[:count]:
                for lane in range(width):
                    register[lane] = fused(a[k], b[k], register[lane])
                    k += 1
    return vertical(vertical(registers[0], registers[1]), vertical(registers[2], registers[3]))


def einsum(a, b):
    terms, lanes, starts, k = len(a), [0.0] * 4, [], 0
    a, b = list(a) + [0.0] * 3, list(b) + [0.0] * 3
    while k < terms:
        four = k + 16 <= terms
        starts += [k + 12, k + 8, k + 4, k] if four else [k]
        k += 16 if four else 4
    for start in starts:
        for lane in range(4):
            lanes[lane] = added(lanes[lane], rounded(Fraction(a[start + lane]) * Fraction(b[start + lane])))
    return pairs(pairs(lanes))[0]


DEFINITIONS = {
    "openblas-avx512": lambda a, b: openblas(a, b, skylake),
    "openblas-avx2": lambda a, b: openblas(a, b, haswell),
    "mkl-avx512": lambda a, b: pairs(pairs(halves(halves(mkl(a, b, 16)))))[0],
    "mkl-avx2": lambda a, b: pairs(halves(pairs(mkl(a, b, 8))))[0],
    "numpy-einsum": einsum,
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_an_order_of_a_library_follows_scalar_loops(name, rng):
    for terms in (1, 5, 16, 31, 32, 47, 64, 101):
        a, b = (np.where(np.isfinite(x), x, 1.0) for x in hard_operands(rng, sf.FP32, 1, terms, 2))
        got = sf.matmul(a, b, accumulate=sf.library_sum(name))
        want = matrix_product(a, b, lambda x, y, element: DEFINITIONS[name](list(map(float, x)), list(map(float, y))))
        assert np.array_equal(got, want, equal_nan=True), terms


def give_bits(f, name, lengths, rng):
    for terms in lengths:
        a, b = (rng.standard_normal((2, terms)) * 2.0 ** rng.integers(-20, 20, (2, terms))).astype(np.float32)
        assert_bits(sf.dot(a, b, accumulate=sf.library_sum(name)), np.float32(f(a, b)))


ON_X86 = platform.machine().lower() in ("x86_64", "amd64")
LENGTHS = [*range(1, 140), 300, 513, 2100]


def test_on_x86_libraries_have_the_bits_of_their_orders(rng):
    torch = pytest.importorskip("torch")

    def of_torch(f):
        return lambda *operands: f(*map(torch.from_numpy, operands))

    if ON_X86:
        give_bits(lambda a, b: np.einsum("i,i->", a, b), "numpy-einsum", [*LENGTHS, 8200], rng)
        give_bits(of_torch(lambda a, b: (a * b).sum()), "torch-sum", [*LENGTHS, 9000], rng)
    for f in (np.dot, of_torch(torch.dot)):
        own = sf.reveal(f, 37).accumulator
        if own in [sf.library_sum(name) for name in ORDERS]:  # another library, or another processor, may do otherwise
            give_bits(f, own.name, LENGTHS, rng)
    if torch.backends.cpu.get_cpu_capability() == "AVX2":  # wider registers have another order
        for n in [*range(1, 130), *rng.integers(130, 5000, 20)]:
            a, b = (torch.from_numpy(x).bfloat16() for x in rng.standard_normal((2, n)))
            numbers = (x.float().numpy() for x in (a, b))
            got = sf.dot(*numbers, accumulate=sf.library_sum("torch-bfloat16"), output=sf.BF16)
            assert float(got) == float(torch.dot(a, b))


def test_libraries_take_numbers_of_fp32_in_policies_too():
    accumulate = sf.library_sum("mkl-avx512")
    assert eval(repr(accumulate), {"library_sum": sf.library_sum}) == accumulate
    policy = sf.Policy(compute=sf.BF16, accumulate=accumulate)
    assert sf.Policy.from_dict(policy.to_dict()) == policy
    assert sf.dot([], [], accumulate=accumulate) == 0
    names = "one of openblas-avx512, .*, torch-sum; got .*(blis|mkl)"
    assert_refused(
        (lambda: sf.dot([0.1], [1.0], accumulate=accumulate),
         r"library_sum\('mkl-avx512'\) takes FP32 operands; these have up to 5\d bits .* inputs="),
        (lambda: sf.library_sum("blis"), names),
        (lambda: sf.library_sum(["mkl-avx2"]), names),
    )  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_long_sums_have_the_bits_of_those_of_many_results(name, rng, monkeypatch):
    order = sf.library_sum(name)
    for n in (256, 257, 511, 1000, 4099, 16399, 33000):
        a, b = (rng.standard_normal((2, n)) * 2.0 ** rng.integers(-9, 9, n)).astype(np.float32)
        a[3] = b[5] = np.float32(-0.0)
        results = []
        for least in (1 << 40, libraries.LEAST_LONG_SUM):
            with monkeypatch.context() as patch:
                patch.setattr(libraries, "LEAST_LONG_SUM", least)
                own = sf.library_sum(name)
                sums = sf.sum([a, b], axis=1, accumulate=own, inputs=sf.FP32)
                results.append([sf.dot(a, b, accumulate=own), *sums])
        assert_bits(*results)
        a[n // 2] = np.inf
        assert np.isposinf(sf.sum(a, accumulate=order))
        a[n // 3] = -np.inf
        assert np.isnan(sf.sum(a, accumulate=order))
