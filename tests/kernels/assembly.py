"""Run by test_target.py: the instructions of loops that LLVM compiles for processors that may not be available.

The environment gives Numba a processor with FP16 arithmetic, so that it uses no replacement functions, and turns
optimisation off, because this file optimises for each processor.
"""

import json
import re
import sys

import llvmlite.binding as llvm
from numba import types

from simfloat.kernels.compile import processor

processor.VECTORS = 512  # as for Intel's processors, wherever this runs: read when the kernels are defined
processor.ARCHITECTURE = ""  # the entries of kernels would read the control register of the processor at hand

from simfloat.kernels.compile.intrinsics import fma  # noqa: E402
from simfloat.kernels.lanes import tiles  # noqa: E402
from simfloat.kernels.sums import rows  # noqa: E402

PROCESSORS = {
    "sapphirerapids": ("x86_64-unknown-linux-gnu", ""),
    "neoverse-n1": ("aarch64-unknown-linux-gnu", "+fullfp16"),
}
VECTOR, SCALAR = types.Array(types.float32, 1, "C"), types.float32


def instructions(kernel, element, processor):
    """(instruction, its operands) of every line of the loop for matrices of this type."""
    matrix = types.Array(element, 2, "C")
    kernel.compile((matrix, matrix, matrix, VECTOR, VECTOR, SCALAR))
    triple, features = PROCESSORS[processor]
    text = re.sub("target (triple|datalayout) = .*\n", "", kernel.inspect_llvm(kernel.signatures[-1]))
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}')
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features, opt=3)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return re.findall(r"^\t([a-z]\w+)\t(.*)$", machine.emit_assembly(module), re.MULTILINE)


def asks_for_512_bits(function, *signature):
    """True if LLVM is asked for vectors of 512 bits in a function for these types."""
    function.compile(signature)
    return '"prefer-vector-width"="512"' in function.inspect_llvm(function.signatures[-1])


def main():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    steps, found = rows.stepwise_loops, {}
    for model in PROCESSORS:
        for order in ("fused", "unfused"):
            found[f"{model} {order}_halves"] = instructions(steps[order]["halves"], types.uint16, model)
    found["sapphirerapids fused_plain"] = instructions(steps["fused"]["plain"], types.float32, "sapphirerapids")
    # A scalar function with a loop, which LLVM vectorises before it puts the function where it is called.
    matrix = types.Array(types.float32, 2, "C")
    found["asks for 512 bits"] = asks_for_512_bits(tiles.adding_to_row(fma), VECTOR, VECTOR, matrix, types.int64)
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
