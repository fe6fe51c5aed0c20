"""Run code that was compiled for GPUs on a processor: PTX as C, instruction by instruction (`ptx.h`).

Threads run one after the other, in a random order. Registers and local memory contain arbitrary values until they are
written. Reads and writes outside of the arrays of a kernel are counted.
"""

import ctypes
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np

HEADER = Path(__file__).with_suffix(".h")

#: Contraction and the like would change bits. To optimise what runs once takes longer than to run it.
FLAGS = ("-O0", "-w", "-std=gnu17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-shared", "-fPIC")
STRICT = "-Werror=implicit-function-declaration"

#: C's types of registers.
REGISTERS = {"pred": "pred", **{f"{kind}{bits}": f"b{bits}" for kind in "bsuf" for bits in (16, 32, 64)}}

RUN = """
int run(char *received, const s64 *order, s64 threads, s64 of_block, const b64 *given, int count)
{
    array_count = count, strangers = 0;
    memcpy(arrays, given, count * sizeof *arrays);
    for (s64 i = 0; i < threads; i++) thread(received, order[i] % of_block, order[i] / of_block, of_block);
    return strangers;
}
"""


def in_c(ptx, entry):
    """A kernel as a program in C, and how many bytes it receives."""
    head, _, rest = ptx.replace("$", "_").partition(f".entry {entry}(")
    parameters, _, body = rest.partition(")\n{")
    size = int(re.fullmatch(r"\s*\.param \.align 8 \.b8 received\[(\d+)\]\s*", parameters)[1])
    tables = re.findall(r"\.global \.align 8 \.b8 (\w+)\[(\d+)\] = (\{.*?\});", head)
    lines = [f'#include "{HEADER}"']
    lines += [f"static const b8 {name}[{size}] __attribute__((aligned(8))) = {it};" for name, size, it in tables]
    lines += ["static void thread(char *received, b32 tid_x, b32 ctaid_x, b32 ntid_x)", "{"]
    lines += [statement(line.strip()) for line in body.split("\n}")[0].splitlines()]
    return "\n".join([*lines, "}", RUN]), size


def statement(line):
    """A line of PTX in C."""
    line = line.partition("//")[0].strip()
    if not line or line.startswith(".pragma"):
        return ""
    if found := re.fullmatch(r"\.reg \.(\w+)\s+%(\w+)(?:<(\d+)>)?;", line):
        kind, name, count = found.groups()
        names = [f"{name}{i}" for i in range(int(count))] if count else [name]
        return f"{REGISTERS[kind]} {', '.join(f'{one} = (b64)0xA5A5A5A5A5A5A5A5' for one in names)};"
    if found := re.fullmatch(r"\.local \.align \d+ \.b8\s+(\w+)\[(\d+)\];", line):
        name, size = found.groups()
        return f"b8 {name}[{size}] __attribute__((aligned(8))); memset({name}, 0xA5, {size});"
    if line.endswith(":"):
        return f"{line};"
    if found := re.fullmatch(r"ld\.global\.v([24])\.(\D)(\d+)\s+\{(.*)\}, \[(%\w+)\+?(-?\d*)\];", line):
        count, kind, bits, names, base, first = found.groups()
        places = [f"[{base}+{int(first or 0) + int(bits) // 8 * n}]" for n in range(int(count))]
        each = zip(names.split(", "), places, strict=True)
        reads = [statement(f"ld.global.{kind}{bits} {name}, {place};") for name, place in each]
        return f"within({operand(places[0])}, 16); {' '.join(reads)}"
    condition, operation, operands = re.fullmatch(r"(?:@(!?%\w+)\s+)?([\w.]+)\s*(.*);", line).groups()
    prefix = f"if ({condition.replace('%', '')}) " if condition else ""
    return prefix + action(operation, [operand(one) for one in operands.split(", ")])


def action(operation, operands):
    """An instruction: a jump, or the function of its name."""
    if operation in ("ret", "bra", "bra.uni"):
        return "return;" if operation == "ret" else f"goto {operands[0].replace('(b64)', '')};"
    name = operation.replace(".", "_")
    if operation.startswith("st."):
        return f"{name}({', '.join(operands)});"
    return f"{operands[0]} = {name}({', '.join(operands[1:])});"


def operand(text):
    """A register, a number, the name of a table, or an address."""
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return f"{operand(base)} + {offset or 0}"
    if text.startswith("%"):
        return text[1:].replace(".", "_")
    if found := re.fullmatch(r"0[fd]([0-9A-F]+)", text):
        return f"0x{found[1]}"
    if re.fullmatch(r"-?\d+", text):
        return f"((s64){text}ull)" if not text.startswith("-") else f"(-(s64){text[1:]}ull)"
    return f"(b64){text}"


class Cupy:
    """What `launching` asks of CuPy: modules of PTX whose kernels start here. `strangers` counts wrong addresses."""

    def __init__(self, compiler, folder):
        self.compiler, self.folder = compiler, folder
        self.arrays, self.started, self.strangers = [], 0, 0
        device = SimpleNamespace(id=0, compute_capability="80")
        self.cuda = SimpleNamespace(Device=lambda number=0: device, Module=lambda: Module(self))

    def data_of(self, array):
        """The `data` of an array: its address."""
        self.arrays.append((array._host.ctypes.data, array.nbytes))
        return SimpleNamespace(ptr=array._host.ctypes.data, device_id=0)


class Module:
    def __init__(self, cupy):
        self.cupy = cupy

    def load(self, code):
        self.code = code.rstrip(b"\0").decode()

    def get_function(self, name):
        program, size = in_c(self.code, name)
        path = self.cupy.folder / f"{len(list(self.cupy.folder.iterdir()))}.so"
        command = [self.cupy.compiler, *FLAGS, STRICT, "-x", "c", "-", "-o", path, "-lm"]
        subprocess.run(command, input=program, text=True, check=True)
        library = ctypes.CDLL(str(path))
        return lambda blocks, threads, given: self.start(library, size, blocks[0], threads[0], *given)

    def start(self, library, size, blocks, threads, numbers):
        """Carry a kernel out on the structure whose bytes CuPy hands over."""
        assert numbers.itemsize == size
        received = ctypes.create_string_buffer(numbers.tobytes(), size)
        order = np.random.default_rng(blocks).permutation(blocks * threads)
        given, self.cupy.arrays = np.array(self.cupy.arrays, np.uint64), []
        pointers = order.ctypes.data_as(ctypes.c_void_p), given.ctypes.data_as(ctypes.c_void_p)
        count, size = ctypes.c_int64(len(order)), ctypes.c_int64(threads)
        self.cupy.strangers += library.run(received, pointers[0], count, size, pointers[1], len(given))
        self.cupy.started += 1
