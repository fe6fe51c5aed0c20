"""python -m benchmarks.tensor_cores FILE: a GPU's tensor cores beside our model of them, bit for bit.

Products of 16 x K and K x 8 matrices, one warp each, by the instruction `mma.sync` itself, so that no library decides
on the order of sums. Prints how many results differ, of random numbers, wide exponents, subnormal numbers and
specials, for K from 16 to 4096, and writes what was found, and some products to be replayed, to FILE: a file among
those of tests/cuda/recorded/ is replayed by the tests, on any machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.arithmetic.machines import what_cuda_lacks
from simfloat.selftest.batch import equal_bits

#: A row of a, of which a chunk is 8 words whatever the format, meets a row of b, its column; PTX ISA, section on mma.
SOURCE = """
extern "C" __global__ void products(const unsigned* a, const unsigned* b, const float* c, float* d, int chunks) {
  int lane = threadIdx.x, group = lane >> 2, t = lane & 3, width = 8 * chunks;
  a += (size_t)blockIdx.x * 16 * width;
  b += (size_t)blockIdx.x * 8 * width;
  int place = blockIdx.x * 128 + group * 8 + 2 * t;
  float x0 = c[place], x1 = c[place + 1], x2 = c[place + 64], x3 = c[place + 65];
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const unsigned* upper = a + group * width + 8 * chunk + t;
    const unsigned* lower = upper + 8 * width;
    const unsigned* column = b + group * width + 8 * chunk + t;
    asm volatile("INSTRUCTION {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(x0), "+f"(x1), "+f"(x2), "+f"(x3)
                 : "r"(upper[0]), "r"(lower[0]), "r"(upper[4]), "r"(lower[4]), "r"(column[0]), "r"(column[4]));
  }
  d[place] = x0; d[place + 1] = x1; d[place + 64] = x2; d[place + 65] = x3;
}
"""


class Unit(NamedTuple):
    """An instruction, the format of its operands, and the compute capability that it needs."""

    instruction: str
    format: sf.Format
    capability: int


UNITS = (
    Unit("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", sf.FP16, 80),
    Unit("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", sf.BF16, 80),
    Unit("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", sf.TF32, 80),
    Unit("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", sf.E4M3, 89),
    Unit("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", sf.E5M2, 89),
)

#: Compute capability -> the architecture's name.
ARCHITECTURES = {80: "ampere", 86: "ampere", 87: "ampere", 89: "ada", 90: "hopper", 100: "blackwell", 120: "blackwell"}

KINDS = ("random", "wide", "subnormal", "special")
DEPTHS = (32, 64, 256, 1024, 4096)
PRODUCTS = 64


def source(unit: Unit) -> str:
    """The program of an instruction."""
    return SOURCE.replace("INSTRUCTION", unit.instruction)


def operands(kind: str, format: sf.Format, shape: tuple[int, ...], rng: Any) -> NDArray[np.floating]:
    """Numbers of a format, of one of KINDS."""
    x = rng.standard_normal(shape)
    if kind == "wide":
        x = np.ldexp(x, rng.integers(format.emin // 2, format.emax // 2 + 1, shape))
    if kind == "subnormal":
        x = np.ldexp(x, format.emin)
    x = sf.round(x, format, sf.nearest_even.saturating())
    if kind == "special":
        specials = [0.0, -0.0, np.nan, *([np.inf, -np.inf] if format.has_infinity else [])]
        x = np.where(rng.random(shape) < 0.02, rng.choice(specials, shape), x)
    return x.astype(np.float32)


def words(x: NDArray[np.floating], format: sf.Format) -> NDArray[np.uint32]:
    """The rows' codes side by side, in words."""
    if format == sf.TF32:
        return np.ascontiguousarray(x, np.float32).view(np.uint32)
    return np.ascontiguousarray(sf.encode(x, format)).view(np.uint32)


def model(architecture: str, unit: Unit) -> sf.Accumulator:
    """Our accumulator for the instruction."""
    named = {"instruction": "mma"} if architecture in ("hopper", "blackwell") else {}
    return sf.tensor_core(architecture, unit.format, **named)  # type: ignore[arg-type]


def compared(cupy: Any, architecture: str, unit: Unit) -> Iterator[dict[str, Any]]:
    """Every kind and depth: how many results differ, and one product that may be replayed."""
    kernel, rng = cupy.RawKernel(source(unit), "products"), np.random.default_rng(0)
    per_chunk = int(unit.instruction.partition("k")[2].partition(".")[0])
    for kind in KINDS:
        for depth in DEPTHS:
            a, b = (operands(kind, unit.format, (PRODUCTS, rows, depth), rng) for rows in (16, 8))
            c = rng.standard_normal((PRODUCTS, 16, 8)).astype(np.float32)
            d = cupy.empty_like(cupy.asarray(c))
            given = [cupy.asarray(x) for x in (words(a, unit.format), words(b, unit.format), c)]
            kernel((PRODUCTS,), (32,), (*given, d, np.int32(depth // per_chunk)))
            got = d.get()
            want = sf.matmul(a, b.swapaxes(1, 2), accumulate=model(architecture, unit), initial=c)
            row = {"kind": kind, "depth": depth, "results": got.size, "differing": int((~equal_bits(got, want)).sum())}
            if depth == DEPTHS[0]:
                row |= {
                    name: x[0].astype(np.float32).tobytes().hex()
                    for name, x in zip("abcd", (a, b, c, got), strict=True)
                }
            yield row


def replayed(path: Path) -> Iterator[tuple[str, NDArray, NDArray]]:
    """Of every product that a file holds what it is, the GPU's results, and our model's."""
    recorded = json.loads(path.read_text())
    units = {unit.instruction: unit for unit in UNITS}
    for part in recorded["units"]:
        accumulate = model(recorded["architecture"], units[part["instruction"]])
        for row in part["cases"]:
            if "d" in row:
                a, b, c, d = (np.frombuffer(bytes.fromhex(row[name]), np.float32) for name in "abcd")
                a, b, c = a.reshape(16, -1), b.reshape(8, -1), c.reshape(16, 8)
                want = sf.matmul(a, b.T, accumulate=accumulate, initial=c)
                yield f"{part['instruction']}, {row['kind']}", d.reshape(16, 8), want


def main(path: str) -> int:
    """Compare every unit of the GPU at hand and write the file; 2 where there is no GPU, 1 if a bit differs."""
    if (missing := what_cuda_lacks()) is not None:
        print(f"benchmarks.tensor_cores: {missing}", file=sys.stderr)
        return 2
    import cupy

    capability = int(cupy.cuda.Device().compute_capability)
    if capability not in ARCHITECTURES:
        print(f"benchmarks.tensor_cores: no model of compute capability {capability}", file=sys.stderr)
        return 2
    facts = {
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "capability": capability,
        "architecture": ARCHITECTURES[capability],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "library": f"CuPy {cupy.__version__}",
    }
    found = []
    for unit in UNITS:
        if unit.capability <= capability:
            rows = list(compared(cupy, facts["architecture"], unit))
            found.append({"instruction": unit.instruction, "format": str(unit.format), "cases": rows})
            for row in rows:
                print(f"{unit.instruction}, {row['kind']}, K = {row['depth']}: {row['differing']} of {row['results']}")
    Path(path).write_text(json.dumps({**facts, "units": found}, indent=1) + "\n")
    return int(any(row["differing"] for unit in found for row in unit["cases"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
