"""The programs that compare tensor cores compile without a GPU, and store operands in the right layout."""

import itertools
import re

import numpy as np
import pytest

import simfloat as sf
from benchmarks.tensor_cores import operands, programs
from benchmarks.tensor_cores.instructions import GPUS, Unit, bytes_of, units
from tests.cuda.unit_by_hand import elements


def test_programs_are_compiled_to_machine_code_or_refused_in_the_words_of_the_compiler(nvrtc):
    # Of Hopper a program of each kind; of others, whose programs are the same, the last.
    chosen = [(unit, 90) for unit in list(units(90))[::3]]
    chosen += [(list(units(other))[-1], other) for other in GPUS if other != 90]
    for unit, capability in chosen:
        assert programs.compiled(unit, capability).startswith(b"\x7fELF")
    with pytest.raises(RuntimeError, match=re.escape("wgmma.mma_async")):
        programs.compiled(Unit("wgmma", sf.BF16, sf.BF16, sf.FP16), 90)  # BF16 is not summed in FP16


def test_instructions_are_those_that_the_model_has():
    names = {capability: [unit.name for unit in units(capability)] for capability in GPUS}
    assert names[80] == [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    ]
    assert "mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16" in names[89] and len(names[89]) == 12
    assert [name.replace("wgmma.mma_async.sync.aligned.", "") for name in names[90][12:16]] == [
        "m64n8k16.f32.f16.f16", "m64n8k16.f16.f16.f16", "m64n8k16.f32.bf16.bf16", "m64n8k8.f32.tf32.tf32",
    ]  # fmt: skip
    assert "wgmma.mma_async.sync.aligned.m64n8k32.f16.e5m2.e4m3" in names[90] and len(names[90]) == 24


def test_operands_lie_where_the_isa_says():
    for format, rows in itertools.product((sf.FP16, sf.BF16, sf.TF32, sf.E4M3, sf.E5M2), (8, 16, 64)):
        terms = 32 // bytes_of(format)
        x = np.random.default_rng(0).integers(-2, 3, (2, rows, 3 * terms)).astype(np.float32)
        words = operands.packed(x, format)
        assert words.shape == (2, 3, 2, rows, 4) and np.array_equal(elements(words, format, rows), x)
    # PTX ISA, section Canonical Layouts: K-major without swizzling, TF32, 16 rows, LBO 64 and SBO 32 elements.
    x = np.arange(16 * 8, dtype=np.float32).reshape(1, 16, 8)
    memory = operands.packed(x, sf.TF32).view(np.float32).ravel()
    for i, k in itertools.product(range(16), range(8)):
        assert memory[i % 8 * 4 + i // 8 * 32 + k % 4 + k // 4 * 64] == x[0, i, k]
    # A short chunk is filled with zeros.
    found = elements(operands.packed(np.ones((1, 8, 16), np.float32), sf.E4M3), sf.E4M3, 8)
    assert found.shape == (1, 8, 32) and (found[..., :16] == 1.0).all() and (found[..., 16:] == 0.0).all()


def test_the_descriptor_names_two_blocks_of_128_bytes():
    source = programs.source(list(units(90))[-1])
    (expression,) = re.findall(r"unsigned long long matrix = (.*);", source)
    value = eval(expression.replace("ull", ""), {"address": 1024})
    assert (value & 0x3FFF, value >> 16 & 0x3FFF, value >> 32 & 0x3FFF, value >> 46) == (64, 8, 8, 0)


def test_operands_are_numbers_that_units_take():
    rng = np.random.default_rng(0)
    for kind, unit in itertools.product(operands.KINDS, units(90)):
        x = operands.operands(kind, unit, 2, 48, rng)
        for numbers, format in ((x.a, unit.a), (x.b, unit.b), (x.c, unit.sums)):
            format = sf.FP32 if format == sf.TF32 else format
            assert np.array_equal(sf.round(numbers, format), numbers, equal_nan=True)
        assert np.isfinite(x.a).all() or kind == "special"


def test_kinds_reach_the_ends_of_the_range_of_sums():
    rng = np.random.default_rng(0)

    def sums(kind, format, output):
        unit = Unit("mma", format, format, output)
        x = operands.operands(kind, unit, 8, 64, rng)
        with np.errstate(over="ignore", invalid="ignore"):
            return sf.matmul(x.a, x.b.swapaxes(1, 2), accumulate=unit.model(90), initial=x.c)

    assert np.isinf(sums("large", sf.BF16, sf.FP32)).any() and np.isfinite(sums("large", sf.BF16, sf.FP32)).any()
    assert np.isinf(sums("large", sf.FP16, sf.FP16)).any()
    for format, output in ((sf.BF16, sf.FP32), (sf.FP16, sf.FP16)):
        faint = sums("faint", format, output)
        assert (faint == 0).any() and ((faint != 0) & (np.abs(faint) < output.smallest_normal)).any()
    special = sums("special", sf.FP16, sf.FP32)
    assert np.isnan(special).any() and np.isinf(special).any() and np.isfinite(special).any()
