"""The processor that kernels are compiled for: its instruction level, what it does itself, and the entry of a kernel.

**Levels.** Kernels are compiled for a set of instructions that many processors have, not for one of them. So the files
of compiled kernels fit all processors of a level: a shared home directory, a container's image or a wheel can have
them. The levels of x86 are those of its psABI, with AVX512-FP16 as one of our own, since sums in FP16 are many times
quicker by it. Kernels use no instruction that a processor has beyond its level (91 of them were searched, on an Intel
Xeon with AVX512-FP16), and are as quick as those compiled for the processor by name: benchmarks/README.md. How wide
vectors are is asked for in `jit.py`. Processors below all levels, and those with vectors that no level has (SVE), are
compiled for by name.

**What the processor does itself**, by what LLVM knows of it. Results are the same everywhere; loops are chosen by it.
What LLVM does not take a processor to have is not used: without FP16 arithmetic LLVM would widen the operands, round
twice where a fused multiply-add is meant, and call what may not be there.

**The entry of a kernel.** What is compiled runs in the usual floating-point environment. Python calls a wrapper that
Numba writes around a kernel: it reads the arguments, calls the kernel, and makes Python objects of the results. Here a
second function comes between the two. It asks the processor for its control register, sets the usual content if it
finds another one, calls the kernel, and puts the register back. Kernels have no callbacks and raise errors by the
number that they return, so there is no other way out. The kernel is not inlined there: LLVM would take its arithmetic
for a function of the operands, and may move it across a write of the register.

To ask takes too little to be measured beside the call, to set and restore about 0.1 microseconds (AMD Zen 3). See
`simfloat.environment` for everything that is not compiled.
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
    """What kernels are compiled for: LLVM's name of a processor, and features as LLVM writes them."""

    name: str
    processor: str
    features: str

    def is_within(self, features: str) -> bool:
        """Whether a processor with these features has all of the level's."""
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

#: Those of ARM: all of Apple's computers; ARMv8.2 with arithmetic in FP16; every other one.
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
    """Whether LLVM makes one instruction of a fused multiply-add in FP16: of numbers that stay in their 16 bits.

    Features alone do not tell: of ARM's processors LLVM finds out few of them on Linux, and none on macOS. What else a
    processor has, FP16 arithmetic with it, follows from its name.
    """
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features)
    assembly = machine.emit_assembly(llvm.parse_assembly(f'target triple = "{triple}"\n{FMA_OF_HALVES}'))
    return re.search(r"^\t(fmadd\th|vfmadd\d+sh\t)", assembly, re.MULTILINE) is not None


def highest_level(triple: str, processor: str, features: str) -> Level:
    """The highest level that a processor reaches; one for itself alone where it reaches none, or has more than any."""
    architecture, _, system = triple.partition("-")
    host_level = Level(processor, processor, features)
    if architecture == "x86_64":
        return next((level for level in X86 if level.is_within(features)), host_level)
    # SVE's vectors have no fixed length, and no level here asks for them: such processors are compiled for by name.
    if architecture not in ("aarch64", "arm64") or "+sve" in features.split(","):
        return host_level
    if "darwin" in system or "macos" in system:
        return APPLE
    return ARM_WITH_FP16 if computes_fp16(triple, processor, features) else ARM


def reachable_levels() -> list[Level]:
    """The levels that kernels for this processor can be compiled for: its own, and those of x86 below it."""
    return [LEVEL, *(level for level in X86 if level != LEVEL and level.is_within(HOST[2]))]


class LevelCodegen(JITCPUCodegen):
    """Numba's code generator, for a level. That of the process, with which users' functions are compiled, stays."""

    def _get_host_cpu_name(self) -> str:
        return LEVEL.processor

    def _get_host_cpu_features(self) -> str:
        return LEVEL.features


#: What LLVM finds this processor to be, or Numba's settings say that it is; and its level.
HOST = cpu_target.target_context.codegen().magic_tuple()
LEVEL = highest_level(*HOST)
CODEGEN = LevelCodegen("simfloat")


TRIPLE, PROCESSOR, _features = CODEGEN.magic_tuple()
ARCHITECTURE = TRIPLE.partition("-")[0]
FEATURES = frozenset(name[1:] for name in _features.split(",") if name.startswith("+"))
_is_arm = ARCHITECTURE in ("aarch64", "arm64")

#: Fused multiply-adds in one instruction.
FUSES = _is_arm or "fma" in FEATURES

#: float32 to FP16, rounded to nearest even, and back: F16C on x86; every 64-bit ARM.
CONVERTS_FP16 = _is_arm or "f16c" in FEATURES

#: Sums, products and fused multiply-adds in FP16, each rounded once: AVX512-FP16 on x86, FEAT_FP16 on ARM.
COMPUTES_FP16 = computes_fp16(TRIPLE, PROCESSOR, _features)

#: The same in BF16, subnormal numbers included, and FP32 in a directed mode by the instruction itself: only on GPUs.
COMPUTES_BF16 = COMPUTES_DIRECTED = False

#: Bits of a vector. LLVM's tuning for Intel's processors prefers 256 where there are 512, which halves the lanes of all
#: loops here, so 512 is asked for (see `vectors`); AMD's prefer 512 anyway, and no instruction changes.
VECTORS = 512 if "avx512f" in FEATURES else 256 if "avx2" in FEATURES else 128

#: Whether a loop can have float32 rounded down, up and toward zero, on vectors: by instructions that say so themselves,
#: or by the processor's mode, which LLVM writes on x86 and on ARM.
ROUNDS_BY_INSTRUCTION = ARCHITECTURE == "x86_64" and VECTORS == 512
ROUNDS_LANES = FUSES and (_is_arm or VECTORS >= 256)

#: Whether float32's subnormal numbers slow arithmetic down. An Intel Xeon with AVX-512 takes up to a hundred times as
#: long with them. An AMD Zen 3 (family 25, model 1) does not: it made 9.2e9 multiply-adds a second of FP16 sums toward
#: zero, 64 x 64 x 64, without subnormal numbers, and 8.9e9 where 99 % of the sums were such. On an AMD Zen 4 the loops
#: that avoid them halved that rate. Levels do not tell, so the processor's own name decides, as LLVM has it. A
#: processor that was not measured is taken to be slow.
SLOW_WITH_SUBNORMALS = HOST[1] not in ("znver3", "znver4")


I32, I64 = ir.IntType(32), ir.IntType(64)

#: Bits of x86's MXCSR that decide results (flush to zero, direction, subnormal operands as zero), and the masks of all
#: exceptions, without which an operation could end the process; and their usual values.
MXCSR_BITS, MXCSR_USUAL = 0xFFC0, 0x1F80


def wrap(lowering: Any, release_gil: bool) -> None:
    """Write what Python calls a kernel by; `lowering` is Numba's, of the kernel."""
    context, fndesc = lowering.context, lowering.fndesc
    module = context.create_module("wrapper")
    kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
    kernel = ir.Function(module, kind, fndesc.llvm_func_name)
    entry = usual_entry(module, kernel)
    PyCallWrapper(context, module, entry, fndesc, lowering.env, lowering.call_helper, release_gil).build()
    lowering.library.add_ir_module(module)


def usual_entry(module: ir.Module, kernel: ir.Function) -> ir.Function:
    """Write a function that calls the kernel in the usual environment; itself, on a processor of unknown registers."""
    if ARCHITECTURE not in REGISTERS:
        return kernel
    entry = ir.Function(module, kernel.ftype, f"usual_entry.{kernel.name}")
    # The entry is not inlined, nor is the kernel into it: LLVM takes arithmetic for a function of its operands and may
    # move it across the write of the register. To set and restore takes 0.1 microseconds (Zen 3), to ask too little to
    # be measured.
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
    """MXCSR, which is read and written by way of memory."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.stored, self.usual = builder.alloca(I32), builder.alloca(I32)
        self._carry_out("stmxcsr", self.stored)
        self.content = builder.load(self.stored)
        control = builder.and_(self.content, I32(MXCSR_BITS))
        self.is_usual = builder.icmp_unsigned("==", control, I32(MXCSR_USUAL))

    def set_usual(self) -> None:
        """Write the usual bits beside those that say which exceptions have occurred."""
        # The low six bits say which exceptions have occurred since somebody cleared them: these are the caller's, and
        # stay.
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
    """FPCR, whose usual content is 0."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self.content = builder.call(find_or_declare(builder.module, "llvm.aarch64.get.fpcr", I64, []), [])
        self.is_usual = builder.icmp_unsigned("==", self.content, I64(0))

    def set_usual(self) -> None:
        """Write 0: to nearest, subnormal numbers are kept, in FP16 too, and NaN as IEEE 754 has them."""
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
    """Find a function of LLVM's in the module, or declare it there."""
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)
