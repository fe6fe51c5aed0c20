"""What is compiled for GPUs, carried out on a processor: PTX as C, instruction by instruction (`ptx.h`).

Threads run one after the other, in an order of chance. Registers and a thread's own memory hold nonsense until they are
written; what reads or writes outside of the arrays that a kernel was given is counted.
"""

import ctypes
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np

HEADER = Path(__file__).with_suffix(".h")

#: Contraction and the like would change bits.
FLAGS = ("-O1", "-w", "-std=gnu17", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv", "-shared", "-fPIC")
STRICT = "-Werror=implicit-function-declaration"

#: C's types of registers.
REGISTERS = {"pred": "pred", **{f"{kind}{bits}": f"b{bits}" for kind in "bsuf" for bits in (16, 32, 64)}}

RUN = """
int run(char **parameters, const s64 *order, s64 threads, s64 of_block, const b64 *given, int count)
{
    array_count = count, strangers = 0;
    memcpy(arrays, given, count * sizeof *arrays);
    for (s64 i = 0; i < threads; i++) thread(parameters, order[i] % of_block, order[i] / of_block, of_block);
    return strangers;
}
"""


def in_c(ptx, entry):
    """A kernel as a program in C, and the types of its parameters."""
    head, _, rest = ptx.replace("$", "_").partition(f".entry {entry}(")
    parameters, _, body = rest.partition(")\n{")
    kinds = dict(reversed(pair) for pair in re.findall(r"\.param \.(\w+) (\w+)", parameters))
    tables = re.findall(r"\.const \.align 8 \.b8 (\w+)\[(\d+)\] = (\{.*?\});", head)
    lines = [f'#include "{HEADER}"']
    lines += [f"static const b8 {name}[{size}] __attribute__((aligned(8))) = {it};" for name, size, it in tables]
    lines += ["static void thread(char **parameters, b32 tid_x, b32 ctaid_x, b32 ntid_x)", "{"]
    places = {name: f"(b64)parameters[{i}]" for i, name in enumerate(kinds)}
    lines += [statement(line.strip(), places) for line in body.split("\n}")[0].splitlines()]
    return "\n".join([*lines, "}", RUN]), list(kinds.values())


def statement(line, places):
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
    condition, operation, operands = re.fullmatch(r"(?:@(!?%\w+)\s+)?([\w.]+)\s*(.*);", line).groups()
    prefix = f"if ({condition.replace('%', '')}) " if condition else ""
    return prefix + action(operation, [operand(one, places) for one in operands.split(", ")])


def action(operation, operands):
    """An instruction: a jump, or the function of its name."""
    if operation in ("ret", "bra", "bra.uni"):
        return "return;" if operation == "ret" else f"goto {operands[0].replace('(b64)', '')};"
    name = operation.replace(".", "_")
    if operation.startswith("st."):
        return f"{name}({', '.join(operands)});"
    return f"{operands[0]} = {name}({', '.join(operands[1:])});"


def operand(text, places):
    """A register, a number, the name of a table, or an address."""
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return places.get(base) or f"{operand(base, places)} + {offset or 0}"
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
        """An array's `data`: where it lies."""
        self.arrays.append((array._host.ctypes.data, array.nbytes))
        return SimpleNamespace(ptr=array._host.ctypes.data)


class Module:
    def __init__(self, cupy):
        self.cupy = cupy

    def load(self, code):
        self.code = code.rstrip(b"\0").decode()

    def get_function(self, name):
        program, kinds = in_c(self.code, name)
        path = self.cupy.folder / f"{len(list(self.cupy.folder.iterdir()))}.so"
        command = [self.cupy.compiler, *FLAGS, STRICT, "-x", "c", "-", "-o", path, "-lm"]
        subprocess.run(command, input=program, text=True, check=True)
        library = ctypes.CDLL(str(path))
        return lambda blocks, threads, numbers: self.start(library, kinds, blocks[0], threads[0], numbers)

    def start(self, library, kinds, blocks, threads, numbers):
        """Carry a kernel out, with parameters as the bytes that CuPy hands over."""
        assert [number.dtype.itemsize for number in numbers] == [int(kind[1:]) // 8 for kind in kinds]
        values = [np.array([number]) for number in numbers]
        parameters = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        order = np.random.default_rng(blocks).permutation(blocks * threads)
        given, self.cupy.arrays = np.array(self.cupy.arrays, np.uint64), []
        pointers = order.ctypes.data_as(ctypes.c_void_p), given.ctypes.data_as(ctypes.c_void_p)
        count, size = ctypes.c_int64(len(order)), ctypes.c_int64(threads)
        self.cupy.strangers += library.run(parameters, pointers[0], count, size, pointers[1], len(given))
        self.cupy.started += 1
