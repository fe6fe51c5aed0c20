"""The processor that kernels are compiled for: its instruction level, its capabilities, and the entry of a kernel.

**Levels.** Kernels are compiled for a set of instructions that many processors share, not for one processor. The files
of compiled kernels therefore fit all processors of a level, for example in a shared home directory, a container or a
wheel. The levels of x86 are the levels of its psABI. simfloat adds one for AVX512-FP16, because sums in FP16 are many
times faster with it. Kernels use no instruction beyond their level (91 kernels were searched on an Intel Xeon with
AVX512-FP16), and are as fast as kernels that are compiled for the processor by name
(benchmarks/history/intel-xeon.md). `pipeline.py` requests the width of vectors. Processors below all levels, and
processors with vectors that no level has (SVE), are compiled for by name.

**Capabilities**, as LLVM reports them. They select loops; results are equal on all processors. A capability that LLVM
does not report is not used: without FP16 arithmetic LLVM would widen the operands, round a fused multiply-add twice,
and call library functions that may be missing.

**The entry of a kernel.** Compiled code runs in the usual floating-point environment. Python calls a wrapper that Numba
generates for a kernel: it reads the arguments, calls the kernel, and creates the Python objects of the results. The
entry is a second function between the wrapper and the kernel. It reads the control register of the processor, sets the
usual content if necessary, calls the kernel, and restores the register. Kernels have no callbacks and report errors by
the value that they return, so this is the only way out. The entry does not inline the kernel: LLVM treats its
arithmetic as a function of the operands, and could move it across a write of the register.

Reading the register takes too little time to be measured; setting and restoring it takes about 0.1 microseconds (AMD
Zen 3). `simfloat.environment` covers all code that is not compiled.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from llvmlite import binding as llvm
from llvmlite import ir
from numba.core.callwrapper import PyCallWrapper
from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target


class Level(NamedTuple):
    """A target of compilation: LLVM's name of a processor, and its features in LLVM's notation."""

    name: str
    processor: str
    features: str

    def is_within(self, features: str) -> bool:
        """True if a processor with these features has all features of the level."""
        return set(self.features.split(",")) <= set(features.split(","))


_V2 = "+cx16,+popcnt,+sahf,+sse3,+sse4.1,+sse4.2,+ssse3"
_V3 = f"{_V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"

#: The levels of x86, the highest first.
X86 = (
    Level("x86-64-v4-fp16", "x86-64-v4", f"{_V4},+avx512fp16"),
    Level("x86-64-v4", "x86-64-v4", _V4),
    Level("x86-64-v3", "x86-64-v3", _V3),
)

#: The levels of ARM: all of Apple's computers; ARMv8.2 with arithmetic in FP16; all others.
APPLE = Level("apple-m1", "apple-m1", "+neon,+fullfp16")
ARM_WITH_FP16 = Level("armv8.2-fp16", "generic", "+neon,+fullfp16")
ARM = Level("armv8", "generic", "+neon")

FMA_OF_HALVES = """
declare half @llvm.fma.f16(half, half, half)
define half @step(half %a, half %b, half %c) {
  %sum = call half @llvm.fma.f16(half %a, half %b, half %c)
  ret half %sum
}
"""


def computes_fp16(triple: str, processor: str, features: str) -> bool:
    """True if LLVM compiles a fused multiply-add in FP16 to one instruction.

    The features do not suffice for a decision: LLVM detects few of them on ARM under Linux, and none under macOS. The
    name of the processor implies the others, including FP16 arithmetic.
    """
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{triple}"\n{FMA_OF_HALVES}'))
    return re.search(r"^\t(fmadd\th|vfmadd\d+sh\t)", assembly, re.MULTILINE) is not None


def highest_level(triple: str, processor: str, features: str) -> Level:
    """Return the highest level of a processor; a new level if it reaches none, or has vectors that no level has."""
    architecture, _, system = triple.partition("-")
    host_level = Level(processor, processor, features)
    if architecture == "x86_64":
        return next((level for level in X86 if level.is_within(features)), host_level)
    # SVE vectors have no fixed length and belong to no level: such processors are compiled for by name.
    if architecture not in ("aarch64", "arm64") or "+sve" in features.split(","):
        return host_level
    if "darwin" in system or "macos" in system:
        return APPLE
    return ARM_WITH_FP16 if computes_fp16(triple, processor, features) else ARM


def reachable_levels() -> list[Level]:
    """Return the levels for which this processor can compile: its own, and the lower levels of x86."""
    return [LEVEL, *(level for level in X86 if level != LEVEL and level.is_within(HOST[2]))]


class LevelCodegen(JITCPUCodegen):
    """Numba's code generator for a level. The code generator of the process, which compiles user functions, is
    unchanged."""

    def _get_host_cpu_name(self) -> str:
        return LEVEL.processor

    def _get_host_cpu_features(self) -> str:
        return LEVEL.features


#: The processor (target triple, name, features), detected by LLVM or given by Numba's settings; and its level.
HOST = cpu_target.target_context.codegen().magic_tuple()
LEVEL = highest_level(*HOST)
CODEGEN = LevelCodegen("simfloat")


TRIPLE, PROCESSOR, _features = CODEGEN.magic_tuple()
ARCHITECTURE = TRIPLE.partition("-")[0]
FEATURES = frozenset(name[1:] for name in _features.split(",") if name.startswith("+"))
_is_arm = ARCHITECTURE in ("aarch64", "arm64")

#: Fused multiply-adds in one instruction.
FUSES = _is_arm or "fma" in FEATURES

#: True if instructions convert float32 to FP16, rounded to nearest even, and back: F16C on x86, and every 64-bit ARM.
CONVERTS_FP16 = _is_arm or "f16c" in FEATURES

#: True if instructions add, multiply and fuse both in FP16, each rounded once: AVX512-FP16 on x86, FEAT_FP16 on ARM.
COMPUTES_FP16 = computes_fp16(TRIPLE, PROCESSOR, _features)

#: True for arithmetic in BF16, including subnormal numbers, and for FP32 instructions with a directed rounding mode:
#: only GPUs have them.
COMPUTES_BF16 = COMPUTES_DIRECTED = False

#: Bits of a vector. LLVM's tuning for Intel prefers 256 of 512 bits, which would halve the lanes of all loops here, so
#: `pipeline.py` requests 512. For AMD, LLVM prefers 512 already, and the instructions stay the same.
VECTORS = 512 if "avx512f" in FEATURES else 256 if "avx2" in FEATURES else 128

#: True if a loop can round float32 vectors down, up and toward zero: by instructions with a rounding mode of their own,
#: or by the mode of the processor, which LLVM can set on x86 and on ARM.
ROUNDS_BY_INSTRUCTION = ARCHITECTURE == "x86_64" and VECTORS == 512
ROUNDS_LANES = FUSES and (_is_arm or VECTORS >= 256)

#: True if subnormal float32 numbers slow arithmetic down. An Intel Xeon with AVX-512 takes up to 100 times as long with
#: them. An AMD Zen 3 (family 25, model 1) does not: FP16 sums toward zero (64 x 64 x 64) ran at 9.2e9
#: multiply-adds a second without subnormal sums, and at 8.9e9 with 99 % of them. On an AMD Zen 4 the loops that avoid
#: subnormal numbers halved the rate. Levels do not determine this, so LLVM's name of the processor decides. A processor
#: that was not measured counts as slow.
SLOW_WITH_SUBNORMALS = HOST[1] not in ("znver3", "znver4")


I32, I64 = ir.IntType(32), ir.IntType(64)

#: Bits of x86's MXCSR that decide results (flush to zero, direction, subnormal operands as zero), and the masks of all
#: exceptions, without which an operation could end the process; and their usual values.
MXCSR_BITS, MXCSR_USUAL = 0xFFC0, 0x1F80


def wrap(lowering: Any, release_gil: bool) -> None:
    """Write the function by which Python calls a kernel; `lowering` is Numba's lowering of the kernel."""
    context, fndesc = lowering.context, lowering.fndesc
    module = context.create_module("wrapper")
    kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
    kernel = ir.Function(module, kind, fndesc.llvm_func_name)
    entry = usual_entry(module, kernel)
    PyCallWrapper(context, module, entry, fndesc, lowering.env, lowering.call_helper, release_gil).build()
    lowering.library.add_ir_module(module)


def usual_entry(module: ir.Module, kernel: ir.Function) -> ir.Function:
    """Write a function that calls the kernel in the usual environment.

    Return the kernel if the registers of the processor are unknown.
    """
    if ARCHITECTURE not in REGISTERS:
        return kernel
    entry = ir.Function(module, kernel.ftype, f"usual_entry.{kernel.name}")
    # Neither the entry nor the kernel in it is inlined: LLVM treats arithmetic as a function of its operands, and could
    # move it across the write of the register.
    entry.linkage = "internal"
    builder = ir.IRBuilder(entry.append_basic_block())
    register = REGISTERS[ARCHITECTURE](builder)
    with builder.if_then(register.is_usual, likely=True):
        builder.ret(builder.call(kernel, entry.args, attrs=("noinline",)))
    register.set_usual()
    status = builder.call(kernel, entry.args, attrs=("noinline",))
    register.restore()
    builder.ret(status)
    return entry


class X86ControlWord:
    """MXCSR, which is read and written through memory."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.stored, self.usual = builder.alloca(I32), builder.alloca(I32)
        self._carry_out("stmxcsr", self.stored)
        self.content = builder.load(self.stored)
        control = builder.and_(self.content, I32(MXCSR_BITS))
        self.is_usual = builder.icmp_unsigned("==", control, I32(MXCSR_USUAL))

    def set_usual(self) -> None:
        """Write the usual bits, and keep the flags of exceptions."""
        # The low six bits record which exceptions have occurred. They belong to the caller and stay unchanged.
        others = self.builder.and_(self.content, I32(~MXCSR_BITS & 0xFFFF_FFFF))
        self.builder.store(self.builder.or_(others, I32(MXCSR_USUAL)), self.usual)
        self._carry_out("ldmxcsr", self.usual)

    def restore(self) -> None:
        """Write the content that the entry read."""
        self._carry_out("ldmxcsr", self.stored)

    def _carry_out(self, instruction: str, place: ir.Value) -> None:
        pointer = ir.IntType(8).as_pointer()
        function = find_or_declare(self.builder.module, f"llvm.x86.sse.{instruction}", ir.VoidType(), [pointer])
        self.builder.call(function, [self.builder.bitcast(place, pointer)])


class ArmControlWord:
    """FPCR; its usual content is 0."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.content = builder.call(find_or_declare(builder.module, "llvm.aarch64.get.fpcr", I64, []), [])
        self.is_usual = builder.icmp_unsigned("==", self.content, I64(0))

    def set_usual(self) -> None:
        """Write 0: round to nearest, keep subnormal numbers (in FP16 also), and propagate NaN as in IEEE 754."""
        self._write(I64(0))

    def restore(self) -> None:
        """Write the content that the entry read."""
        self._write(self.content)

    def _write(self, content: ir.Value) -> None:
        self.builder.call(
            find_or_declare(self.builder.module, "llvm.aarch64.set.fpcr", ir.VoidType(), [I64]), [content]
        )


#: By the processor's architecture.
REGISTERS: dict[str, Any] = {"x86_64": X86ControlWord, "aarch64": ArmControlWord, "arm64": ArmControlWord}


def find_or_declare(module: ir.Module, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
    """Return an LLVM function of the module; declare it if it is missing."""
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)
