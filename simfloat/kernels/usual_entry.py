"""The entry of a compiled kernel: what is compiled runs in the usual floating-point environment.

What Python calls is a wrapper that Numba writes around a kernel: it reads the arguments, calls the kernel, and makes
Python objects of the results. Here a second function comes between the two. It asks the processor for its control
register, sets the usual content if it finds another one, calls the kernel, and puts the register back. Kernels have no
callbacks and raise errors by the number that they return, so there is no other way out. The kernel is not inlined
there: LLVM would take its arithmetic for a function of the operands, and may move it across a write of the register.

To ask takes too little to be measured beside the call, to set and restore about 0.1 microseconds (AMD Zen 3). See
`simfloat.environment` for everything that is not compiled.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core.callwrapper import PyCallWrapper

from simfloat.kernels import processor

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
    if processor.ARCHITECTURE not in REGISTERS:
        return kernel
    entry = ir.Function(module, kernel.ftype, f"usual_entry.{kernel.name}")
    # The entry is not inlined, nor is the kernel into it: LLVM takes arithmetic for a function of its operands and may
    # move it across the write of the register. To set and restore takes 0.1 microseconds (Zen 3), to ask too little to
    # be measured.
    entry.linkage = "internal"
    builder = ir.IRBuilder(entry.append_basic_block())
    register = REGISTERS[processor.ARCHITECTURE](builder)
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
