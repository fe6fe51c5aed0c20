"""Compare NVIDIA's machine code for FP8 `mma` with the steps of our models."""

import re
import subprocess

import pytest

import simfloat as sf
from benchmarks.tensor_cores import programs
from benchmarks.tensor_cores.instructions import Unit

pathfinder = pytest.importorskip("cuda.pathfinder", reason="needs NVIDIA's pathfinder (cuda-pathfinder)")

pytestmark = pytest.mark.usefixtures("nvrtc")


def machine_code(unit, capability, path):
    """The instructions of a unit's program, one by one."""
    disassembler = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if disassembler is None:
        pytest.skip("needs NVIDIA's disassembler (nvidia-cuda-nvdisasm)")
    (path / "program").write_bytes(programs.compiled(unit, capability))
    command = [disassembler, "-c", str(path / "program")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", text, re.MULTILINE)


def registers(first, count):
    number = int(re.match(r"R(\d+)", first)[1])
    return [f"R{number + n}" for n in range(count)]


@pytest.mark.parametrize("capability, sums", [(90, sf.FP32), (100, sf.FP16)], ids=str)
def test_fp8_by_mma_is_two_steps_of_the_fp16_unit_and_one_addition(capability, sums, tmp_path):
    # A register holds products k to k + 3; its lower half those with k mod 4 < 2, which come first, from zero.
    halves, steps, additions = {}, [], 0
    for instruction in machine_code(Unit("mma", sf.E4M3, sf.E5M2, sums), capability, tmp_path):
        name, *operands = re.split(r",?\s+", instruction)
        operands = [operand.removesuffix(".reuse") for operand in operands]
        if name.endswith(".UNPACK_B"):
            halves[operands[0]] = "upper" if operands[1].endswith(".H1") else "lower"
        elif name.startswith("HMMA"):
            read = [halves[one] for one in (*registers(operands[1], 4), *registers(operands[2], 2))]
            steps.append((name, {*read}, operands[3] == "RZ"))
        else:
            additions += name == ("FADD" if sums == sf.FP32 else "HADD2")
    kind = "HMMA.16816.F32" if sums == sf.FP32 else "HMMA.16816.F16"
    first, second = (kind, {"lower"}, True), (kind, {"upper"}, False)
    assert steps and steps.count(first) == steps.count(second) == len(steps) / 2
    # Four sums a thread, two of which share a register in FP16.
    assert additions == len(steps) / 2 * (4 if sums == sf.FP32 else 2)


@pytest.mark.parametrize("capability", [89, 120])
def test_fp8_by_mma_is_one_instruction_where_there_is_no_other(capability, tmp_path):
    code = machine_code(Unit("mma", sf.E4M3, sf.E5M2, sf.FP32), capability, tmp_path)
    units = {instruction.split()[0] for instruction in code if "MMA" in instruction}
    assert units == {"QMMA.16832.F32.E4M3.E5M2"}


def test_wgmma_is_one_instruction_that_waits_for_what_it_reads(tmp_path):
    code = machine_code(Unit("wgmma", sf.E4M3, sf.E5M2, sf.FP32), 90, tmp_path)
    steps = [n for n, instruction in enumerate(code) if "MMA" in instruction]
    assert steps
    for n in steps:
        assert code[n].startswith("QGMMA.64x8x32.F32.E4M3.E5M2 ")
        before = [instruction.split()[0] for instruction in code[:n]]
        # Stores are fenced, and all threads meet, before it reads shared memory.
        assert before[::-1].index("BAR.SYNC.DEFER_BLOCKING") < before[::-1].index("FENCE.VIEW.ASYNC.S")
        # Its sums are awaited before anything else is done with them.
        after = [instruction.split()[0] for instruction in code[n:]]
        assert after.index("WARPGROUP.DEPBAR.LE") < after.index("BAR.SYNC.DEFER_BLOCKING")
