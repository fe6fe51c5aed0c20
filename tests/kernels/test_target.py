"""Hardware instructions are chosen by LLVM's list of processor features, and give the same bits."""

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from numba.core.caching import NullCache

import simfloat as sf
from simfloat.kernels.compile import processor
from simfloat.kernels.compile.intrinsics import fma
from simfloat.kernels.compile.jit import scalar
from simfloat.kernels.elementwise import half
from simfloat.kernels.lanes import tiles
from simfloat.kernels.sums import rows
from simfloat.sums.accumulator import Around
from simfloat.sums.operands import Problem, operand_bounds
from simfloat.tools.selftest.checks import hard_operands
from tests.bits import assert_bits

#: Processors with FP16 arithmetic, by the architecture of the one that is at hand.
WITH_FP16 = {
    "x86_64": ("sapphirerapids", "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512fp16"),
    "arm64": ("neoverse-n1", "+fullfp16"),
}
PROCESSOR, FEATURES = WITH_FP16["x86_64" if platform.machine() in ("x86_64", "AMD64") else "arm64"]

#: Sums in FP16, in every order that images are summed in.
ORDERS = [
    sf.FP16, sf.sequential(sf.FP16, products=sf.FP16), sf.pairwise(sf.FP16), sf.kahan(sf.FP16),
    sf.blocked(4, "FP16", "FP16"),
]  # fmt: skip


def python(*arguments, **environment):
    """Return the output of another Python process."""
    command = [sys.executable, "-W", "ignore", *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=200).stdout


def features_of(name, features):
    code = "from simfloat.kernels import processor as t; print(t.FUSES, t.CONVERTS_FP16, t.COMPUTES_FP16, t.VECTORS)"
    return python("-c", code, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features).split()


def test_what_llvm_does_not_take_a_processor_to_have_is_not_used():
    arm = processor.ARCHITECTURE in ("aarch64", "arm64")
    assert features_of("generic", "")[1:3] == [str(arm), "False"]
    assert features_of(PROCESSOR, FEATURES)[1:3] == ["True", "True"]


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("kernels"))
    settings = {"NUMBA_CPU_NAME": PROCESSOR, "NUMBA_CPU_FEATURES": FEATURES, "NUMBA_OPT": "0"}
    return json.loads(python("-m", "tests.kernels.assembly", NUMBA_CACHE_DIR=place, **settings))


@pytest.mark.parametrize(
    "processor, vector, fused, unfused",
    [("sapphirerapids", "zmm", ("vfmadd", "ph"), [("vmulph", ""), ("vaddph", "")]),
     ("neoverse-n1", ".8h", ("fmla", ""), [("fmul", ""), ("fadd", "")])],
)  # fmt: skip
def test_steps_in_fp16_are_the_processors_own_instructions(assembly, processor, vector, fused, unfused):
    def count(loop, start, end=""):
        lines = assembly[f"{processor} {loop}"]
        return sum(name.startswith(start) and name.endswith(end) and vector in rest for name, rest in lines)

    assert count("fused_halves", *fused) >= 8, "two rows of four steps"
    assert all(count("unfused_halves", *instruction) >= 1 for instruction in unfused)
    # Nothing is widened to float32 and rounded twice.
    names = {name for loop in ("fused_halves", "unfused_halves") for name, _ in assembly[f"{processor} {loop}"]}
    assert not {name for name in names if name.startswith(("vcvt", "fcvt"))}


def test_vectors_are_as_wide_as_the_processor_has_them(assembly):
    registers = [rest for _, rest in assembly["sapphirerapids fused_plain"]]
    assert sum("zmm" in rest for rest in registers) > sum("ymm" in rest for rest in registers)
    assert assembly["asks for 512 bits"], "loops of scalar functions, too"


def operands(rng):
    """FP16 matrices with ties, cancellations, subnormal products, infinities and NaN; rows longer than a vector."""
    a, b = (sf.round(x, sf.FP16).astype(np.float32) for x in rng.standard_normal((2, 9, 9)))
    b = np.tile(b, (1, 9)) * np.float32(2.0) ** rng.integers(-6, 3, (9, 81)).astype(np.float32)
    b = sf.round(b, sf.FP16)
    a[0], b[:, 0] = a[0] * np.float32(2.0**-10), np.float32(2.0**-14)
    a[1, :3], b[:3, 1] = [1.0, 2.0**-6, -0.0], [1.0, 2.0**-5 + 2.0**-15, 0.0]
    a[2, 4], a[3, 4], b[4, 5], a[4, 0] = np.inf, np.nan, -np.inf, 60000.0
    return sf.round(a, sf.FP16), b


@scalar
def fma_of_images(a, b, c):
    """What an instruction gives of images: float64 holds the product, and what it cuts off a sum decides nothing."""
    x, y, z = np.float64(half.number(a)), np.float64(half.number(b)), np.float64(half.number(c))
    return half.image(half.round_to_half(fma(x, y, z)))


@pytest.fixture
def computing_in_fp16(monkeypatch):
    """The loops on images, compiled, on any processor.

    LLVM rounds sums and products of halves once wherever it runs; only a fused multiply-add needs the instruction, and
    is made of float64's here.
    """
    monkeypatch.setattr(processor, "COMPUTES_FP16", True)
    loop = tiles.chain(tiles.adding_to_row(fma_of_images), tiles.no_tiles)
    loop._cache = NullCache()  # its files would not be named by what stands here
    monkeypatch.setitem(rows.stepwise_loops["fused"], "halves", loop)
    return loop


def test_sums_of_images_are_those_that_are_emulated(computing_in_fp16, monkeypatch):
    rng = np.random.default_rng(5)
    any_number = np.arange(65536, dtype=np.uint16).view(np.float16)
    any_number = any_number[np.isfinite(any_number)]
    given = [operands(rng), *(hard_operands(rng, sf.FP16, 9, k, 81) for k in (1, 7, 40))]
    given += [(rng.choice(any_number, (9, 23)), rng.choice(any_number, (23, 81))) for _ in range(3)]

    def sums():
        return np.concatenate([sf.matmul(*x, inputs=sf.FP16, accumulate=order) for order in ORDERS for x in given])

    native = sums()
    assert computing_in_fp16.signatures, "the loop was called"
    monkeypatch.setattr(processor, "COMPUTES_FP16", False)
    assert_bits(native, sums())
    assert np.isnan(native).any() and np.isinf(native).any() and (abs(native[native != 0]) < 2.0**-14).any()


def test_every_nan_among_images_becomes_the_one_nan():
    images, out = np.array([[0x7E01, 0xFE00, 0xFC01, 0x7C01]], np.uint16), np.empty((1, 4), np.float32)
    half.number_loops["halves"](images, out)
    assert (out.view(np.uint32) == 0x7FC00000).all()


def products_in_fp16():
    """Sums in FP16 of what is hard to sum, in every order, as one vector; and the engine that makes them."""
    a, b = operands(np.random.default_rng(5))
    a, b = a[:4], np.ascontiguousarray(b[:, :12])  # these loops may be plain Python
    engine = sf.sequential(sf.FP16).engine(Problem(operand_bounds(a), operand_bounds(b), 9, sf.FP16))
    kind = engine.engine.kind if isinstance(engine, Around) else type(engine).__name__
    start = sf.round(a[:, :1], sf.FP16)
    sums = [sf.matmul(a, b, accumulate=accumulate) for accumulate in ORDERS]
    return kind, np.concatenate([*sums, sf.matmul(a, b, accumulate=sf.FP16, initial=start)])


def test_the_whole_way_through_images_means_the_same_sums(tmp_path):
    # Without compilation, since this processor may lack the arithmetic; the way is chosen as if it did not.
    path = tmp_path / "sums.npy"
    settings = {"NUMBA_CPU_NAME": PROCESSOR, "NUMBA_CPU_FEATURES": FEATURES, "NUMBA_DISABLE_JIT": "1"}
    assert python("-m", "tests.kernels.test_target", str(path), **settings).strip() == "halves"
    kind, sums = products_in_fp16()
    assert (kind == "halves") is processor.COMPUTES_FP16
    assert_bits(np.load(path), sums)


def test_one_rounding_is_distinguished_from_two():
    # A sum just below a tie; float32 has no room for what it lacks, and by way of it the tie would go to 1 + 2^-9.
    x, y, c = 2.0**-5 * (1 + 2.0**-10), 2.0**-6 * (1 - 2.0**-10), 1 + 2.0**-10
    assert x * y + c == 1 + 2.0**-10 + 2.0**-11 - 2.0**-31
    assert np.float32(x * y) + np.float32(c) == 1 + 2.0**-10 + 2.0**-11
    x, y, c = (np.full((1, 1), number, np.float32) for number in (x, y, c))
    assert sf.matmul(x, y, accumulate=sf.FP16, initial=c) == sf.fma(x, y, c, sf.FP16) == 1 + 2.0**-10


if __name__ == "__main__":
    kind, sums = products_in_fp16()
    print(kind)
    np.save(sys.argv[1], sums)
