"""Code that is compiled for GPUs can be inspected without a GPU."""

import re

import pytest

pytest.importorskip("numba_cuda", reason="needs numba-cuda")

from numba.cuda import types  # noqa: E402

from simfloat.kernels.gpu import compiling, elementwise, sums, units  # noqa: E402
from simfloat.kernels.gpu.threads import threads_over  # noqa: E402
from simfloat.kernels.gpu.tiles import ELEMENT, FEW, QUICK, SIDE_BY_SIDE, WARP  # noqa: E402
from simfloat.kernels.rounding.grid import Grid  # noqa: E402
from simfloat.kernels.units.aligned import Unit  # noqa: E402

GRID = types.UniTuple(types.float64, len(Grid._fields))
NO_WORDS, PLACE = types.UniTuple(types.uint32, 1), types.UniTuple(types.uint64, 4)
ONE = types.UniTuple(types.float64, 1)
SINGLE, DOUBLE, COUNTERS = (types.Array(element, 1, "C") for element in (types.float32, types.float64, types.int64))

SINGLE_GRID, COUNTER = types.UniTuple(types.float32, len(Grid._fields)), types.UniTuple(types.int64, 6)
ELEMENTS = types.float32, types.float64, types.uint16, types.uint32
MATRIX, WIDE_MATRIX, IMAGES, PAIRS = (types.Array(element, 2, "C") for element in ELEMENTS)
WITH_EXPONENTS = (WIDE_MATRIX, WIDE_MATRIX, *[types.Array(types.int32, 2, "C")] * 2, WIDE_MATRIX)

#: The types of the arguments of sums: matrices, grids, and a number.
SUMS = (*[MATRIX] * 3, *[SINGLE_GRID] * 2, types.float32)

#: (loop, types, how many fused multiply-adds its functions ask for at most)
KERNELS = {
    "round_nearest": (elementwise.round_nearest, (SINGLE, NO_WORDS, SINGLE, GRID), 2),
    "round_stochastic": (elementwise.round_stochastic, (SINGLE, PLACE, SINGLE, GRID), 24),
    "sqrt, FP32": (elementwise.native_results["sqrt"], (SINGLE, ONE, ONE, SINGLE), 0),
    "divide, FP32": (elementwise.native_results["divide"], (SINGLE, SINGLE, ONE, SINGLE), 0),
    "multiply, single": (
        elementwise.single_results["multiply"], (SINGLE, SINGLE, ONE, types.float64, SINGLE, GRID, types.int64), 12,
    ),
    "sums, E5M2": (sums.stepwise_loops["fused"]["odd"].with_tile(ELEMENT), SUMS, 20),
    "sums, Hopper": (
        units.loops["truncated"]["truncated"].tiles.with_tile(units.ROWS._replace(warp=WARP)),
        (*WITH_EXPONENTS, types.UniTuple(types.float64, len(Unit._fields)), GRID, types.int64, COUNTER, types.uint64),
        0,
    ),
    "sums, pairwise": (
        sums.pairwise_loops["native"],
        (*[MATRIX] * 3, SINGLE_GRID, types.float32, types.int64, COUNTER, types.uint64), 0,
    ),
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("nvvm")


def arithmetic(ptx):
    """The floating-point instructions of a kernel, in their order."""
    return re.findall(r"\b(?:fma|mad|add|sub|mul|div|sqrt|rcp)\.[\w.]*f(?:16|16x2|32|64)\b", ptx)


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_contracted_or_approximated(name):
    loop, kinds, fused = KERNELS[name]
    ptx = compiling.compile_to_ptx(loop.body, kinds).ptx.decode()
    found = arithmetic(ptx)
    assert (".local" in ptx) == (name == "sums, pairwise"), "only a tree's sums that wait lie in memory"
    assert sum(one.startswith(("fma", "mad")) for one in found) <= fused
    # Without a rounding of its own an instruction may be contracted by the driver's assembler.
    assert [one for one in found if ".rn" not in one] == []


#: Loops in tiles: (type of the matrices, instructions of a step). The loops in QUICKLY have 32 sums, which take long to
#: compile; they include the steps with fewest and with most registers. The others have one sum.
QUICKLY = "fused_native", "fused_halves", "unfused_cut_sticky"
STEPS = {
    "fused_native": (MATRIX, {"fma.rn.f32"}), "fused_halves": (IMAGES, {"fma.rn.f16"}),
    "fused_bfloats": (IMAGES, {"fma.rn.bf16"}), "fused_toward_negative": (MATRIX, {"fma.rm.f32"}),
    "pairs fused_halves": (PAIRS, {"fma.rn.f16x2"}), "pairs unfused_bfloats": (PAIRS, {"fma.rn.bf16x2"}),
    "unfused_toward_zero": (MATRIX, {"mul.rz.f32", "add.rz.f32"}), "fused_cut_away": (MATRIX, {"fma.rz.f32"}),
    "fused_lifted_nearest": (MATRIX, {"fma.rm.f32", "fma.rp.f32"}),
    "unfused_cut_sticky": (MATRIX, {"mul.rm.f32", "mul.rp.f32", "add.rm.f32", "add.rp.f32"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_the_hardware_makes_are_its_instructions_on_registers(name):
    matrix, instructions = STEPS[name]
    order, kind = name.split()[-1].split("_", 1)
    loops = sums.pairs[kind] if name.startswith("pairs") else {order: sums.stepwise_loops[order][kind]}
    loop = loops[order].with_tile(QUICK._replace(warp=WARP) if name in QUICKLY else FEW)
    ptx = compiling.compile_to_ptx(loop.body, (*[matrix] * 3, *[SINGLE_GRID] * 2, types.float32)).ptx.decode()
    found = arithmetic(ptx)
    assert set(found) == instructions
    assert ".local" not in ptx
    if name in ("fused_native", "fused_halves"):
        # Twelve numbers are read for 32 multiply-adds, beside what the 32 sums start from.
        assert 32 * (ptx.count("ld.global") - 32) == 12 * len(found)


def test_rows_of_four_bytes_that_begin_where_four_numbers_are_read_at_once_are_read_so():
    loop = sums.stepwise_loops["fused"]["native"]
    wide = {tile: tile._replace(warp=WARP) for tile in (QUICK, SIDE_BY_SIDE)}
    assert loop.tile_for(2048, 2048, 4) == loop.tile_for(4, 1 << 19, 4) == wide[SIDE_BY_SIDE]
    assert loop.tile_for(2048, 2048, 8) == loop.tile_for(2048, 2046, 4) == loop.tile_for(2046, 2048, 4) == wide[QUICK]
    assert loop.tile_for(3, 1 << 20, 4) == loop.tile_for(64, 64, 4) == FEW
    assert sums.stepwise_loops["fused"]["plain"].tile_for(2048, 2048, 4) == ELEMENT
    ptx = compiling.compile_to_ptx(loop.with_tile(wide[SIDE_BY_SIDE]).body, SUMS).ptx.decode()
    assert ptx.count("ld.global.v4.f32") % 3 == 0 and ".local" not in ptx
    assert 32 * (4 * ptx.count("ld.global.v4.f32")) == 12 * len(arithmetic(ptx))


@threads_over("out")
def unfused(i, x, y, out):
    out[i] = x[i] * y[i] + out[i]


def test_a_kernel_has_one_parameter_whose_numbers_lie_where_a_driver_puts_parameters():
    body = elementwise.round_image.body
    ptx = compiling.compile_to_ptx(body, (SINGLE, NO_WORDS, SINGLE, SINGLE_GRID)).ptx.decode()
    # The number of threads, an array, a word, an array, and a grid of 28 numbers.
    assert re.findall(r"\.param .*", ptx) == [f".param .align 8 .b8 received[{8 + 56 + 8 + 56 + 31 * 4}]"]
    read = {int(place): kind for kind, place in re.findall(r"ld\.param\.(\w+)\s+%\w+, \[received\+(\d+)\];", ptx)}
    assert len(read) == ptx.count("ld.param")
    arrays = {start + place for start in (8, 8 + 56 + 8) for place in (32, 40)}  # where they lie, and their lengths
    assert {place for place in read if place < 128} == {0} | arrays
    assert {kind for place, kind in read.items() if place >= 128} == {"f32"}


def test_what_is_no_parameter_of_the_kernel_stays_and_pointers_may_be_declared_as_such():
    ptx = b"""
.visible .entry loop(
	.param .u8 loop_param_0,
	.param .u64 .ptr .align 1 loop_param_1,
	.param .f32 loop_param_2
)
{
	ld.param.u64 %rd1, [loop_param_1];
	ld.param.f32 %f1, [loop_param_2];
	st.global.f32 [%rd1+4], %f1;
	ld.param.b64 %rd2, [other_param_1];
}"""
    assert compiling.with_one_parameter(ptx, b"loop").split(b"\n\t") == [
        *(b"\n.visible .entry loop(", b".param .align 8 .b8 received[20]\n)\n{"),
        *(b"ld.param.u64 %rd1, [received+8];", b"ld.param.f32 %f1, [received+16];"),
        *(b"st.global.f32 [%rd1+4], %f1;", b"ld.param.b64 %rd2, [other_param_1];\n}"),
    ]


def test_code_is_for_every_gpu_from_ampere_on_and_kept_on_disk(monkeypatch, tmp_path):
    from simfloat.kernels.compile import cache

    monkeypatch.setattr(cache, "kernel_directories", lambda: [tmp_path])
    first = compiling.load_or_compile(unfused.body, (SINGLE, SINGLE, SINGLE))
    with monkeypatch.context() as patch:
        patch.delattr(compiling, "compile_to_ptx")
        assert compiling.load_or_compile(unfused.body, (SINGLE, SINGLE, SINGLE)) == first
    ptx = first.ptx.decode()
    assert first.entry in ptx and arithmetic(ptx) == ["mul.rn.f32", "add.rn.f32"]
    # PTX 7.0 came with sm_80 and CUDA 11.0; a driver refuses versions that it does not know, whatever they say.
    assert re.findall(r"^\.(?:version|target) .*", ptx, re.MULTILINE) == [".version 7.0", ".target sm_80"]
    monkeypatch.setitem(compiling.OPTIONS, "fma", 1)
    contracted = compiling.compile_to_ptx(unfused.body, (SINGLE, SINGLE, SINGLE)).ptx.decode()
    assert arithmetic(contracted) == ["fma.rn.f32"], "the count sees a contraction"
