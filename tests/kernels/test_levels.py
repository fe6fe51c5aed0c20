"""Instruction levels: the level of a processor, and that kernels use no instruction above it."""

import json
import os
import subprocess
import sys

from simfloat.kernels.compile import processor
from simfloat.tools.commands.warmup import environments_of

V3, V4, V4_FP16 = (
    next(level for level in processor.X86 if level.name == name)
    for name in ("x86-64-v3", "x86-64-v4", "x86-64-v4-fp16")
)
LINUX, ARM, MAC = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-darwin23.0.0"
MORE = ",+adx,+avx512vbmi,+gfni,-amx-tile"

#: What LLVM finds out about a processor; the level that it reaches, None where it is compiled for by name, ... if it is
#: not asked; and whether it has arithmetic in FP16, of which LLVM names no feature on ARM.
FOUND = [
    (LINUX, "haswell", V3.features + MORE.replace("+avx512vbmi", "-avx512vbmi"), "x86-64-v3", False),
    (LINUX, "znver3", V3.features + ",+sse4a,-avx512f", "x86-64-v3", False),
    (LINUX, "icelake-server", V4.features + MORE, "x86-64-v4", False),
    (LINUX, "znver5", V4.features + MORE, "x86-64-v4", False),
    (LINUX, "sapphirerapids", V4_FP16.features + MORE, "x86-64-v4-fp16", True),
    (LINUX, "sapphirerapids", V4_FP16.features.replace("+fma", "-fma"), None, True),
    (LINUX, "sapphirerapids", V4_FP16.features.replace("+avx512fp16", "-avx512fp16"), ..., False),
    (LINUX, "penryn", "+sse4.1,-avx", None, False),
    (ARM, "neoverse-n1", "+aes,+crc,+fp-armv8,+lse,+neon,-rand,+sha2,-sve", "armv8.2-fp16", True),
    (ARM, "cortex-a72", "+aes,+crc,+fp-armv8,+neon,+sha2", "armv8", False),
    (ARM, "neoverse-v1", "+fp-armv8,+neon,+sve", None, True),
    (MAC, "apple-m3", "", "apple-m1", True),
    ("arm64-apple-ios", "apple-a10", "", ..., False),
    ("riscv64-unknown-linux-gnu", "generic-rv64", "+v", None, False),
]


def in_a_process(code, **environment):
    """Return the JSON output of another Python process."""
    command, environment = [sys.executable, "-c", f"import json\n{code}"], {**os.environ, **environment}
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def test_a_processor_has_the_highest_level_that_it_reaches_and_fp16_where_its_name_says_so():
    # In a process of its own, which knows all processors, not this one's alone.
    code = f"""
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
from simfloat.kernels.compile.processor import computes_fp16, highest_level
print(json.dumps([[highest_level(*found), computes_fp16(*found)] for *found, _, _ in {FOUND}]))
"""
    for (_, name, features, level, has_fp16), (got, computes) in zip(FOUND, in_a_process(code), strict=True):
        if level is not ...:
            assert got[0] == (level or name) and (level is None) == (got == [name, name, features])
        assert computes == has_fp16, (name, features)


def test_functions_are_compiled_for_the_level_that_is_asked_for():
    code = """
from simfloat.kernels.compile import processor
from simfloat.kernels.compile.jit import scalar
function = scalar(lambda x: x + 1.0)
assert function(1.0) == 2.0
made = function.outer.overloads.popitem()[1].library.codegen
print(json.dumps([processor.LEVEL, made.magic_tuple()[1:], processor.VECTORS]))
"""
    level = processor.reachable_levels()[-1]
    got, made, vectors = in_a_process(code, **environments_of(level.name)[0])
    assert got == list(level) and made == [level.processor, level.features]
    assert vectors == (512 if "+avx512f" in level.features else 256 if "+avx2" in level.features else 128)


def test_functions_of_users_are_compiled_for_their_processor():
    import numba

    function = numba.njit(lambda x: x + 1.0)
    assert function(1.0) == 2.0
    assert function.overloads[(numba.float64,)].library.codegen.magic_tuple() == processor.HOST
    assert processor.PROCESSOR == processor.LEVEL.processor
