"""Tensor cores and matrix cores against MMA-Sim, which its authors hold to the hardware, and worked examples."""

import importlib
import sys
from itertools import product
from types import ModuleType

import numpy as np
import pytest

import simfloat as sf
from tests.bits import assert_bits

NAMES = {
    sf.FP16: "f16", sf.BF16: "bf16", sf.TF32: "tf32", sf.E4M3: "e4m3", sf.E5M2: "e5m2",
    sf.E3M2: "e3m2", sf.E2M3: "e2m3", sf.E2M1: "e2m1", sf.E4M3FNUZ: "fp8", sf.E5M2FNUZ: "bf8", sf.E8M0: "ue8m0",
}  # fmt: skip
SMALL = (sf.E4M3, sf.E5M2, sf.E3M2, sf.E2M3, sf.E2M1)
FP8 = (sf.E4M3, sf.E5M2)
ROWS, COLUMNS, DEPTH = 36, 30, 64


def instructions():
    """(MMA-Sim's module, class, architecture, name) and our accumulator for it."""
    mma = ("nv_ptx", "MMA")
    for arch, ours in [("Volta", "volta"), ("Turing", "turing"), ("Ampere", "ampere"), ("Ada Lovelace", "ada"),
                       ("Hopper", "hopper"), ("Blackwell", "blackwell"), ("RTX Blackwell", "blackwell")]:  # fmt: skip
        shape = {"volta": "m8n8k4", "turing": "m16n8k8"}.get(ours, "m16n8k16")
        yield (*mma, arch, f"{shape}.f32.f16.f16.f32"), sf.tensor_core(ours, sf.FP16)
        yield (*mma, arch, f"{shape}.f16.f16.f16.f16"), sf.tensor_core(ours, sf.FP16, sf.FP16)
        if ours not in ("volta", "turing"):
            yield (*mma, arch, "m16n8k16.f32.bf16.bf16.f32"), sf.tensor_core(ours, sf.BF16)
            yield (*mma, arch, "m16n8k8.f32.tf32.tf32.f32"), sf.tensor_core(ours, sf.TF32)
    for (out, output), a, b in product([("f32", sf.FP32), ("f16", sf.FP16)], FP8, FP8):
        kinds = f"{out}.{NAMES[a]}.{NAMES[b]}"
        yield (*mma, "Ada Lovelace", f"m16n8k32.{kinds}.{out}"), sf.tensor_core("ada", (a, b), output)
        yield ("nv_ptx", "WGMMA", "Hopper", f"m64n8k32.{kinds}"), sf.tensor_core("hopper", (a, b), output)
    for name, output, format in [("f32.f16.f16", sf.FP32, sf.FP16), ("f16.f16.f16", sf.FP16, sf.FP16),
                                 ("f32.bf16.bf16", sf.FP32, sf.BF16)]:  # fmt: skip
        yield ("nv_ptx", "WGMMA", "Hopper", f"m64n8k16.{name}"), sf.tensor_core("hopper", format, output)
        tcgen = f"m64n8k16.kind::f16.{name}"
        yield ("nv_ptx", "TCGen05MMA", "Blackwell", tcgen), sf.tensor_core("blackwell", format, output)
    yield ("nv_ptx", "WGMMA", "Hopper", "m64n8k8.f32.tf32.tf32"), sf.tensor_core("hopper", sf.TF32)
    yield (
        ("nv_ptx", "TCGen05MMA", "Blackwell", "m64n8k8.kind::tf32.f32.tf32.tf32"),
        sf.tensor_core("blackwell", sf.TF32),
    )
    for (out, output), a, b in product([("f32", sf.FP32), ("f16", sf.FP16)], SMALL, SMALL):
        kinds = f"kind::f8f6f4.{out}.{NAMES[a]}.{NAMES[b]}"
        unit = sf.tensor_core("blackwell", (a, b), output)
        yield ("nv_ptx", "TCGen05MMA", "Blackwell", f"m64n8k32.{kinds}"), unit
        yield (*mma, "RTX Blackwell", f"m16n8k32.{kinds}.{out}"), unit
    for arch, names in [
        ("CDNA1", {"f32_4x4x4f16": sf.FP16, "f32_4x4x2bf16": sf.BF16}),
        ("CDNA2", {"f32_4x4x4f16": sf.FP16, "f32_4x4x2bf16": sf.BF16}),
        ("CDNA3", {"f32_16x16x8_xf32": sf.TF32, "f32_32x32x8_f16": sf.FP16, "f32_32x32x8_bf16": sf.BF16}),
    ]:
        for name, format in names.items():
            yield ("amd", "MFMA", arch, name), sf.matrix_core(arch.lower(), format)
    yield ("amd", "MFMA", "CDNA2", "f32_4x4x4bf16_1k"), sf.matrix_core("cdna2", sf.BF16, variant="1k")
    for a, b in product((sf.E4M3FNUZ, sf.E5M2FNUZ), repeat=2):
        name = f"f32_16x16x32_{NAMES[a]}_{NAMES[b]}"
        yield ("amd", "MFMA", "CDNA3", name), sf.matrix_core("cdna3", (a, b))


def scaled_instructions():
    """Block-scaled instructions; a name per architecture."""
    for cls, arch, shape, end in [("TCGen05MMABlockScale", "Blackwell", "m128n8", ""),
                                  ("MMABlockScale", "RTX Blackwell", "m16n8", ".f32")]:  # fmt: skip
        for a, b in product(SMALL, SMALL):
            if (a, b) != (sf.E2M1, sf.E2M1):
                name = f"{shape}k32.kind::mxf8f6f4.block32.f32.{NAMES[a]}.{NAMES[b]}{end}.ue8m0"
                yield ("nv_ptx", cls, arch, name), sf.tensor_core("blackwell", (a, b), scales=(32, sf.E8M0))
        for kind, block, scale in [("mxf4", 32, sf.E8M0), ("mxf4nvf4", 16, sf.E8M0), ("mxf4nvf4", 16, sf.E4M3)]:
            scale_name = "ue8m0" if scale == sf.E8M0 else "ue4m3"
            name = f"{shape}k64.kind::{kind}.block{block}.f32.e2m1.e2m1{end}.{scale_name}"
            yield ("nv_ptx", cls, arch, name), sf.tensor_core("blackwell", sf.E2M1, scales=(block, scale))


@pytest.fixture(scope="module")
def mmasim():
    torch = pytest.importorskip("torch", reason="needs torch, on which MMA-Sim is built")
    # MMA-Sim compiles C++ for its chains of FMA when that module is imported; they are tested without it.
    chains = ModuleType("mmasim.arithmetic.fma")
    chains.MMA_FMA = None
    sys.modules["mmasim.arithmetic.fma"] = chains
    torch.set_num_threads(1)
    return pytest.importorskip("mmasim", reason="needs mmasim as an oracle")


def operands(rng, format, rows, depth):
    """Rows of any numbers of a format, of a few binades with infinities and NaN, of subnormal ones; many zeros."""
    third = rows // 3
    shape = (rows, depth)
    if format == sf.TF32:
        values = (rng.standard_normal(shape) * 2.0 ** rng.integers(-120, 120, shape)).astype(np.float32)
    else:
        values = sf.decode(rng.integers(0, 2**format.bits, shape), format)
    values = np.where(np.isfinite(values), values, 1.0)
    held = sf.FP32 if format == sf.TF32 else format
    near = rng.standard_normal((third, depth)) * 2.0 ** rng.integers(-3, 3, (third, depth))
    values[:third] = sf.round(near, held, sf.nearest_even.saturating())
    small = values[third : 2 * third] / np.abs(values[third : 2 * third]).max() * format.smallest_normal * 8
    values[third : 2 * third] = sf.round(small, held)
    values[rng.random(shape) < 0.1] = 0.0
    values[rng.random(shape) < 0.02] *= -1
    specials = [np.inf, -np.inf] * format.has_infinity + [np.nan] * format.has_nan
    places = rng.random((third, depth)) < (0.01 if specials else 0.0)
    values[:third][places] = rng.choice(specials or [0.0], places.sum())
    # Columns of the other operand meet rows of every kind.
    return values[rng.permutation(rows)].astype(np.float64)


def as_torch(values, format, packed=False):
    """The numbers in the type, and for small formats the layout, that MMA-Sim takes."""
    import torch

    if format == sf.TF32:
        return torch.tensor(values, dtype=torch.float32)
    codes = sf.encode(np.where(np.signbit(values) & (values == 0) & (not format.has_negative_zero), 0, values), format)
    if format in (sf.E3M2, sf.E2M3):
        return torch.tensor(codes)
    if format == sf.E2M1:
        return torch.tensor((codes[..., ::2] << 4) | codes[..., 1::2]) if packed else torch.tensor(codes << 2)
    types = {sf.FP16: "float16", sf.BF16: "bfloat16", sf.E4M3: "float8_e4m3fn", sf.E5M2: "float8_e5m2",
             sf.E4M3FNUZ: "float8_e4m3fnuz", sf.E5M2FNUZ: "float8_e5m2fnuz", sf.E8M0: "float8_e8m0fnu"}  # fmt: skip
    words = codes.astype(np.int16) if codes.dtype == np.uint16 else codes
    return torch.tensor(words).view(getattr(torch, types[format]))


def simulator(mmasim, instruction):
    module, cls, architecture, name = instruction
    return getattr(importlib.import_module(f"mmasim.{module}"), cls)(architecture, name)


def simulate(unit, a, b, formats, output, terms):
    """MMA-Sim's sums, chunk by chunk from zero."""
    import torch

    left, right = as_torch(a, formats[0]), as_torch(np.ascontiguousarray(b.T), formats[1])
    sums = torch.zeros((len(a), b.shape[1]), dtype=torch.float16 if output == sf.FP16 else torch.float32)
    left, right = left[:, None, :].expand(-1, b.shape[1], -1), right[None].expand(len(a), -1, -1)
    for first in range(0, a.shape[1], terms):
        within = slice(first, first + terms)
        sums = unit.dpa(left[..., within].contiguous(), right[..., within].contiguous(), sums)
    return sums.to(torch.float64).numpy()


@pytest.mark.parametrize("instruction, accumulate", [pytest.param(*i, id="-".join(i[0][1:])) for i in instructions()])
def test_units_agree_with_mmasim(instruction, accumulate, mmasim, rng):
    a = operands(rng, accumulate.inputs[0], ROWS, DEPTH)
    b = operands(rng, accumulate.inputs[1], COLUMNS, DEPTH).T
    want = simulate(simulator(mmasim, instruction), a, b, accumulate.inputs, accumulate.result, 32)
    assert_bits(sf.matmul(a, b, accumulate=accumulate), want)


@pytest.mark.parametrize(
    "instruction, accumulate", [pytest.param(*i, id="-".join(i[0][1:])) for i in scaled_instructions()]
)
def test_scaled_units_agree_with_mmasim(instruction, accumulate, mmasim, rng):
    import torch

    unit = simulator(mmasim, instruction)
    block, scale = accumulate.scales
    grouped = accumulate.inputs == (sf.E2M1, sf.E2M1)
    chunk = 64 if grouped else 32
    a = operands(rng, accumulate.inputs[0], ROWS, 2 * chunk)
    b = operands(rng, accumulate.inputs[1], COLUMNS, 2 * chunk)
    s, t = (scales_of(rng, scale, rows, 2 * chunk // block) for rows in (ROWS, COLUMNS))
    sums = torch.zeros((ROWS, COLUMNS), dtype=torch.float32)
    for first in range(0, 2 * chunk, chunk):
        blocks = slice(first // block, (first + chunk) // block)
        left, right = (
            as_torch(x[:, first : first + chunk], format, packed=grouped)
            for x, format in zip((a, b), accumulate.inputs, strict=True)
        )
        alpha, beta = as_torch(s[:, blocks], scale), as_torch(t[:, blocks], scale)
        pairs = [x[:, None].expand(-1, COLUMNS, -1).contiguous() for x in (left, alpha)]
        pairs += [x[None].expand(ROWS, -1, -1).contiguous() for x in (right, beta)]
        sums = unit.dpa(pairs[0], pairs[2], sums, pairs[1], pairs[3])
    got = sf.matmul(a, b.T, accumulate=accumulate, scales=(s, t.T))
    assert_bits(got, sums.double().numpy())


def scales_of(rng, format, rows, blocks):
    """Scales near one, and some of any size; zeros and negative ones in E4M3, whose sign is not read."""
    near = sf.round(2.0 ** rng.integers(-4, 5, (rows, blocks)) * rng.choice([1.0, 1.5], (rows, blocks)), format)
    far = sf.decode(rng.integers(0, 2**format.bits - 1, (rows, blocks)), format)
    far = np.where(np.isfinite(far), far, 1.0)
    return np.where(rng.random((rows, blocks)) < 0.8, near, far).astype(np.float64)
