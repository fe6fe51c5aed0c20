"""The interface between computations and the device that runs them."""

import ast
import importlib.util
import pathlib
import typing

import numpy as np

import simfloat as sf
from simfloat.arithmetic import machines, operands
from simfloat.arithmetic.machines import CPU, GPU, Loops, device_of
from tests.checks import assert_refused

ROOT = pathlib.Path(sf.__file__).parent

#: What is plain numbers in the kernels' room, for every machine alike, and the machine that a GPU is.
PLAIN = {
    "compile.jit.is_compiled", "gpu", "rounding.codes.Coding", "rounding.codes.Decoding", "rounding.random.philox",
    "rounding.random.words_at", "units.aligned.NOTHING", "units.aligned.codes_of_unit",
    "units.integer_operands.IntegerUnit", "units.integer_operands.PASS", "units.integers.codes_of_unit",
    "units.integers.fused_name",
}  # fmt: skip

#: Modules there that hold nothing else.
PLAIN_MODULES = {"compile.processor", "program_table", "rounding.events", "rounding.grid"}

#: Family and name of every loop that a machine provides.
DECLARED = {
    f"{room}.{name}"
    for room, protocol in typing.get_type_hints(Loops).items()
    for name in typing.get_type_hints(protocol)
}


def dotted(node):
    """The names of a chain a.b.c, innermost first; a call, or whatever else a chain may begin with, is (...)."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id if isinstance(node, ast.Name) else "(...)", *reversed(names)]


def reached(tree):
    """(what stands in the kernels' room, the loops of a machine) that a module reaches, by their places."""
    plain, loops, room = set(), set(), "simfloat.kernels"
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    for node in imports:
        if node.module.startswith(room):
            plain |= {f"{node.module}.{name.name}".removeprefix(f"{room}.") for name in node.names}
    of_package = any(node.module == "simfloat" and "kernels" in {n.name for n in node.names} for node in imports)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    for chain in (dotted(node) for node in attributes if id(node) not in inner):
        if chain[0] == "kernels" and of_package:
            plain.add(".".join(chain[1:4]))
        elif "loops" in chain[:-1]:
            loops.add(".".join(chain[chain.index("loops") + 1 :][:2]))
    return plain, loops


def modules():
    """All modules but the kernels' own, and the commands that compile and count them."""
    for path in sorted(ROOT.rglob("*.py")):
        if not {ROOT / "kernels", ROOT / "tools" / "commands"} & set(path.parents):
            text = path.read_text()
            if "kernels" in text or "loops" in text:
                yield path, ast.parse(text)


def test_nothing_but_declared_loops_is_reached_from_outside_of_the_kernels():
    used = set()
    for path, tree in modules():
        plain, loops = reached(tree)
        others = plain - PLAIN - PLAIN_MODULES
        assert {name for name in others if name.rpartition(".")[0] not in PLAIN_MODULES} == set(), path
        assert loops <= DECLARED, path
        used |= loops
    assert used == DECLARED


def test_the_search_sees_what_it_looks_for():
    code = """
from simfloat import kernels
from simfloat.kernels.elementwise.exact import two_sum
kernels.rounding.arrays.copy(x)
machine_of(out).loops.bins.carry(x)
loops, grid = machine.loops, kernels.rounding.grid
loops.rounding_loops.round_to_odd(x)
sums = machine.loops.fused_loops
"""
    assert reached(ast.parse(code)) == (
        {"elementwise.exact.two_sum", "rounding.arrays.copy", "rounding.grid"},
        {"bins.carry", "rounding_loops.round_to_odd", "fused_loops"},  # a family as a whole is no loop, and found out
    )


def innermost(value):
    """The values of dictionaries, or of dictionaries of them; a value that is none itself."""
    return [x for each in value.values() for x in innermost(each)] if isinstance(value, dict) else [value]


#: Threads of a GPU make their random words themselves, and have no lanes; its functions and codes are computed by other
#: loops, and what programs count one by one.
ON_CPU_ALONE = (
    *("random.fill_words", "encoding.", "flag_loops.", "integer_sums.", "lookups.", "lane_orders.", "rounded_tiles."),
    *("long_orders.", "programs.count_stalled", "programs.move_events", "running_sums."),
)


def test_the_cpu_and_the_gpu_provide_every_declared_loop():
    has_cuda = importlib.util.find_spec("numba_cuda") is not None
    for name in DECLARED:
        room, loop = name.split(".")
        own = getattr(getattr(CPU.loops, room), loop)
        assert isinstance(own, bool) or all(map(callable, innermost(own)))
        if has_cuda and not name.startswith(ON_CPU_ALONE):
            value = getattr(getattr(GPU.loops, room), loop)
            # A GPU makes some steps itself that no processor does.
            assert isinstance(value, bool) or callable(value) or [one for one in value if one in own] == list(own), name


class OnGPU:
    """An array on a GPU, as far as can be seen from outside; of a library that is not CuPy."""

    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (0, False), "version": 3}
    shape, size = (2,), 2


class OfCuPy(OnGPU):
    """The same of CuPy's."""

    __module__ = "cupy"


def test_arrays_decide_on_the_machine(monkeypatch):
    monkeypatch.setattr(machines, "keep_subnormal_numbers", lambda: None)  # without CuPy, its flag is not set
    assert device_of(np.ones(3)) is device_of(np.ones(3), np.ones(2, np.float32)) is CPU
    assert device_of(np.ones(3).view(np.memmap)) is CPU and CPU.arrays is np
    assert device_of(OfCuPy()) is device_of(np.ones(()), OfCuPy()) is device_of(OfCuPy(), np.ones((1, 1))) is GPU
    two = "One operand is on a GPU, but another one, of shape .2,., is not: pass cupy.asarray of it"
    foreign = "an operand is an array on a GPU; pass one of CuPy's, cupy.asarray"
    own = "^{0} is an array on a GPU; pass one of CuPy's, cupy.asarray.{0}., or of NumPy's.$"
    assert_refused(
        (lambda: device_of(np.ones(2), OfCuPy()), two),
        (lambda: device_of(OfCuPy(), np.ones(2)), two),
        (lambda: device_of(OnGPU()), foreign),
        (lambda: device_of(np.ones(2), OnGPU()), foreign),
        (lambda: device_of(OnGPU(), np.ones(2)), foreign),
        (lambda: sf.round(OnGPU(), sf.FP16), own.format("x")),
        (lambda: sf.add(1.0, OnGPU(), sf.FP16), own.format("b")),
        (lambda: sf.matmul(OnGPU(), np.ones((2, 2)), accumulate=sf.FP16), own.format("a")),
        (lambda: sf.conv2d(np.ones((1, 1, 2, 2)), OnGPU(), accumulate=sf.FP16), own.format("w")),
    )


def test_a_second_machine_needs_no_other_call_sites(monkeypatch, rng):
    """Every loop of a product, a sum and an operation is found where the arrays' machine says."""
    a, b = (sf.round(x, sf.FP16) for x in rng.standard_normal((2, 5, 5)))
    met = []

    class Room:
        def __init__(self, name):
            self.name = name

        def __getattr__(self, loop):
            met.append(f"{self.name}.{loop}")
            return getattr(getattr(CPU.loops, self.name), loop)

    class Watching:
        def __getattr__(self, name):
            return Room(name)

    watched = machines.Device("numpy", Watching(), in_pieces=True)
    orders = sf.FP16, sf.sequential(sf.FP16, products=sf.FP16), sf.kahan(sf.FP16)
    want = [sf.matmul(a, b, accumulate=x) for x in orders]
    monkeypatch.setattr(machines, "CPU", watched)
    monkeypatch.setattr(operands, "CPU", watched)  # which tells types and machine in one look
    got = [sf.matmul(a, b, accumulate=x) for x in orders]
    sf.add(a, b, sf.E5M2)
    assert [x.tolist() for x in got] == [x.tolist() for x in want]
    assert {"counting.bit_facts", "stepwise.stepwise_loops", "operation_loops.exact_results"} <= set(met)
    assert {"rounding_loops.round_nearest"} <= set(met)
