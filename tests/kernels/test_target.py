"""What the processor does itself: chosen by LLVM's names of its features, with the same bits."""

import json
import os
import platform
import subprocess
import sys

import numpy as np
import pytest

import simfloat as sf
from simfloat.accumulate.known import Problem, known_of
from simfloat.kernels import halves, kahan, pairwise, sequential, target
from tests.bits import assert_bits

#: Processors with FP16 arithmetic, by the architecture of the one that is at hand.
WITH_FP16 = {
    "x86_64": ("sapphirerapids", "+avx2,+fma,+f16c,+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512fp16"),
    "arm64": ("neoverse-n1", "+fullfp16"),
}
PROCESSOR, FEATURES = WITH_FP16["x86_64" if platform.machine() in ("x86_64", "AMD64") else "arm64"]
EMULATED = sf.nearest_even.saturating()


def python(*arguments, **environment):
    """What another Python prints."""
    command = [sys.executable, "-W", "ignore", *arguments]
    environment = {**os.environ, **environment}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=200).stdout


def features_of(name, features):
    code = "from simfloat.kernels import target as t; print(t.FUSES, t.CONVERTS_FP16, t.COMPUTES_FP16, t.VECTORS)"
    return python("-c", code, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features).split()


def test_a_feature_that_llvm_does_not_name_is_not_used():
    arm = target.ARCHITECTURE in ("aarch64", "arm64")
    assert features_of("generic", "")[1:3] == [str(arm), "False"]
    assert features_of(PROCESSOR, FEATURES)[1:3] == ["True", "True"]
    assert (
        features_of(PROCESSOR, FEATURES.replace("+avx512fp16", "-avx512fp16").replace("+full", "-full"))[2] == "False"
    )


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("kernels"))
    settings = {"NUMBA_CPU_NAME": PROCESSOR, "NUMBA_CPU_FEATURES": FEATURES, "NUMBA_OPT": "0"}
    return json.loads(python("-m", "tests.kernels.assembly", NUMBA_CACHE_DIR=place, **settings))


@pytest.mark.parametrize(
    "processor, vector, fused, unfused",
    [
        ("sapphirerapids", "zmm", ("vfmadd", "ph"), [("vmulph", ""), ("vaddph", "")]),
        ("neoverse-n1", ".8h", ("fmla", ""), [("fmul", ""), ("fadd", "")]),
    ],
)
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


def operands(rng):
    """FP16 matrices with ties, cancellations, subnormal products, infinities and NaN; rows longer than a vector."""
    a, b = (sf.round(x, sf.FP16).astype(np.float32) for x in rng.standard_normal((2, 9, 9)))
    b = np.tile(b, (1, 9)) * np.float32(2.0) ** rng.integers(-6, 3, (9, 81)).astype(np.float32)
    b = sf.round(b, sf.FP16)
    a[0], b[:, 0] = a[0] * np.float32(2.0**-10), np.float32(2.0**-14)
    a[1, :3], b[:3, 1] = [1.0, 2.0**-6, -0.0], [1.0, 2.0**-5 + 2.0**-15, 0.0]
    a[2, 4], a[3, 4], b[4, 5], a[4, 0] = np.inf, np.nan, -np.inf, 60000.0
    return sf.round(a, sf.FP16), b


def test_images_compute_what_is_emulated(rng):
    # Sums and products of images are right on any processor; a fused multiply-add only where there is one.
    a, b = operands(rng)
    a, b = np.where(np.isfinite(a), a, 1.0).astype(np.float32), np.where(np.isfinite(b), b, 1.0).astype(np.float32)
    a[4, 0] = 1.0
    unread, place = np.zeros(30, np.float32), np.zeros(6, np.int64)
    stepwise = (unread, np.float32(1), False, place, np.uint64(0))
    cases = [
        (
            sequential.steps["unfused_halves"],
            (unread, unread, np.float32(1)),
            sf.sequential(sf.FP16, EMULATED, products=sf.FP16),
        ),
        (pairwise.loops["halves"], stepwise, sf.pairwise(sf.FP16, EMULATED)),
        (kahan.loops["halves"], stepwise, sf.kahan(sf.FP16, EMULATED)),
    ]
    for loop, numbers, accumulate in cases:
        images = [np.empty(x.shape, np.uint16) for x in (a, b)]
        for x, out in zip((a, b), images, strict=True):
            halves.images_of(x, out)
        sums, got = np.zeros((9, 81), np.uint16), np.empty((9, 81), np.float32)
        loop(*images, sums, *numbers)
        halves.numbers_of(sums, got)
        assert_bits(got, sf.matmul(a, b, accumulate=accumulate))


ORDERS = [
    sf.FP16,
    sf.sequential(sf.FP16, products=sf.FP16),
    sf.pairwise(sf.FP16),
    sf.kahan(sf.FP16),
    sf.blocked(4, "FP16", "FP16"),
]


def products_in_fp16():
    """Sums in FP16 of what is hard to sum, in every order, as one vector; and the engine that makes them."""
    a, b = operands(np.random.default_rng(5))
    kind = type(sf.sequential(sf.FP16).engine(Problem(known_of(a), known_of(b), 9, sf.FP16))).__name__
    start = sf.round(a[:, :1], sf.FP16)
    sums = [sf.matmul(a, b, accumulate=accumulate) for accumulate in ORDERS]
    return kind, np.concatenate([*sums, sf.matmul(a, b, accumulate=sf.FP16, initial=start)])


def test_the_whole_way_through_images_means_the_same_sums(tmp_path):
    # Without compilation, since this processor may lack the arithmetic; the way is chosen as if it did not.
    path = tmp_path / "sums.npy"
    settings = {"NUMBA_CPU_NAME": PROCESSOR, "NUMBA_CPU_FEATURES": FEATURES, "NUMBA_DISABLE_JIT": "1"}
    assert python("-m", "tests.kernels.test_target", str(path), **settings).strip() == "InHalves"
    kind, sums = products_in_fp16()
    assert (kind == "InHalves") is target.COMPUTES_FP16
    assert_bits(np.load(path), sums)


def test_one_rounding_is_told_from_two():
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
