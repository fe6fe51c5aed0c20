"""Compiled kernels on disk are complete or absent, also with several processes, and wherever the package is."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np
import pytest
from numba import types

import simfloat
from simfloat.kernels import FAMILIES
from simfloat.kernels.compile import cache, jit
from simfloat.kernels.compile import processor as levels
from simfloat.kernels.compile.jit import KERNELS
from simfloat.terminal import LINE

# Two kernels that compile quickly, but longer than patience lasts, and whose results show that they work.
CODE = """
import numpy as np
from simfloat import terminal
terminal.PATIENCE = 0.01
from simfloat.kernels import fused_loops, rounding_loops
from simfloat.kernels.compile import jit
x, out = np.array([[1.5, -3.0]]), np.empty((1, 2))
fused_loops.fill_powers(x, 0.0, out)
assert out.tolist() == [[1.0, 2.0]], out
rounding_loops.copy(x[0], np.zeros(1, np.uint32), out[0], x[0])
assert out.tolist() == [[1.5, -3.0]], out
used = (fused_loops.fill_powers, rounding_loops.copy)
print(sum(sum(loop.stats.cache_misses.values()) for loop in used), jit.__file__)
"""
SOURCES = Path(simfloat.__file__).parent


def start(folder, **environment):
    """A process that uses the kernels, with warnings as errors, as a user without a home would start it."""
    paths = {"HOME": "/dev/null", "PYTHONPATH": str(SOURCES.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    command = [sys.executable, "-W", "error", "-c", CODE]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, cwd=folder, env={**inherited, **paths, **environment}, **pipes)


def compiled(process):
    """Return the number of kernels that the process compiled; compiling is said once, and loading never."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    count, path = out.split()
    assert err == f"{LINE}\n" * (count != "0")
    return int(count), path


def copied_package(folder):
    """A copy of the package, sources only."""
    shutil.copytree(SOURCES, folder / "simfloat", ignore=lambda _, names: {n for n in names if n == "__pycache__"})
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory in which two processes compiled both kernels at once."""
    place = tmp_path_factory.mktemp("compiled")
    assert sum(compiled(process)[0] for process in [start(place, NUMBA_CACHE_DIR=str(place)) for _ in range(2)]) >= 2
    return place / "simfloat"


@pytest.fixture(scope="module")
def kernels(place, tmp_path_factory):
    """A directory with the kernels only, as in a wheel."""
    kernels = tmp_path_factory.mktemp("kernels") / "simfloat"
    return shutil.copytree(place, kernels, ignore=shutil.ignore_patterns(f"*{cache.FUNCTION_SUFFIX}"))


def kernels_in(place):
    """The files of kernels in a directory, without those of the functions that they call."""
    return sorted(place.glob(f"*{cache.SUFFIX}"))


def test_processes_at_once_on_a_cold_cache_do_not_disturb_each_other(place):
    paths = [*place.iterdir()]
    assert len(kernels_in(place)) == 2 and {path.suffix for path in paths} == {cache.SUFFIX, cache.FUNCTION_SUFFIX}
    assert None not in map(cache.read_kernel, paths)


def test_a_kernel_that_is_compiled_again_reads_its_functions_from_the_disk(place, tmp_path):
    again = shutil.copytree(place, tmp_path / "simfloat", ignore=shutil.ignore_patterns(f"*{cache.SUFFIX}"))
    before = {path: path.stat().st_mtime_ns for path in again.iterdir()}
    assert compiled(start(tmp_path, NUMBA_CACHE_DIR=str(tmp_path)))[0] == 2
    assert before == {path: path.stat().st_mtime_ns for path in again.iterdir() if path.suffix != cache.SUFFIX}


def test_checkouts_and_processors_of_a_level_share_a_directory(kernels, tmp_path):
    _, processor, features = levels.HOST
    if levels.LEVEL.processor != processor:  # another one that reaches the level, and has one feature less or more
        processor = {"x86_64": "broadwell"}.get(levels.HOST[0].partition("-")[0], "generic")
        features = features.replace("+adx", "-adx") if "+adx" in features else features.replace("-adx", "+adx")
    elsewhere = {"PYTHONPATH": str(copied_package(tmp_path)), "NUMBA_CACHE_DIR": str(kernels.parent)}
    process = start(tmp_path, **elsewhere, NUMBA_CPU_NAME=processor, NUMBA_CPU_FEATURES=features)
    count, path = compiled(process)
    assert count == 0 and path.startswith(str(tmp_path))


def test_kernels_that_a_wheel_brings_are_used_where_they_fit_and_damaged_ones_compiled_again(kernels, tmp_path):
    package, elsewhere = copied_package(tmp_path), tmp_path / "elsewhere"
    brought = shutil.copytree(kernels, package / "simfloat" / "compiled")
    assert compiled(start(tmp_path, PYTHONPATH=str(package), NUMBA_CACHE_DIR=str(elsewhere)))[0] == 0
    assert not elsewhere.exists()
    one, other = sorted(brought.iterdir())
    content = bytearray(one.read_bytes())
    content[-100] ^= 1
    other.rename(one)  # whole, but of another function
    place = shutil.copytree(kernels, elsewhere / "simfloat")
    half, flipped = sorted(place.iterdir())
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    flipped.write_bytes(content)
    assert compiled(start(tmp_path, PYTHONPATH=str(package), NUMBA_CACHE_DIR=str(elsewhere)))[0] == 2
    assert None not in map(cache.read_kernel, place.iterdir()) and len(kernels_in(place)) == 2
    assert len(os.listdir(brought)) == 1, "nothing is written there"


def test_without_a_writable_place_kernels_are_compiled_without_a_message(tmp_path):
    package = copied_package(tmp_path)
    (package / "simfloat" / "kernels" / "__pycache__").touch()
    assert compiled(start(tmp_path, PYTHONPATH=str(package)))[0] == 2


def test_kernels_of_a_zipped_package_are_kept_in_the_home(kernels, tmp_path):
    archive = tmp_path / "simfloat.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in SOURCES.rglob("*.py"):
            file.write(path, Path("simfloat") / path.relative_to(SOURCES))
    folder = "Library/Caches" if sys.platform == "darwin" else ".cache"
    shutil.copytree(kernels, tmp_path / folder / "simfloat")
    count, path = compiled(start(tmp_path, PYTHONPATH=str(archive), HOME=str(tmp_path)))
    assert count == 0 and path.startswith(str(archive))


def test_kernels_are_kept_next_to_the_sources_and_outdated_ones_removed(kernels, tmp_path):
    environment = {"PYTHONPATH": str(copied_package(tmp_path))}
    place = shutil.copytree(kernels, tmp_path / "simfloat" / "kernels" / "__pycache__")
    before = kernels_in(place)
    for changed, count in ((("sums/trees.py", "lanes/tiles.py"), 0), (("compile/intrinsics.py",), 2)):
        for name in changed:
            with (tmp_path / "simfloat" / "kernels" / name).open("a") as file:
                file.write("\n# Changed.\n")
        assert compiled(start(tmp_path, **environment))[0] == count
    after = kernels_in(place)
    assert len(before) == len(after) == 2 and not {*before} & {*after}


def test_functions_of_one_name_have_different_files_unless_their_code_and_what_they_close_over_are_equal():
    def name_of(text, **values):
        return jit.scalar_from_text("made", "x", text, **values)._cache.paths((types.float64,))[0].name

    names = [name_of("x + 1.0"), name_of("x + 2.0")]
    names += [name_of("x + y", y=1.0), name_of("x + y", y=1), name_of("x + y[0]", y=(1.0, 2.0))]
    functions = [jit.scalar_from_text("used", "x", text) for text in ("x", "-x")]
    names += [name_of("y(x)", y=function) for function in functions]
    assert len({*names}) == len(names) and names[2] == name_of("x + y", y=1.0)
    # Windows has no files with the characters <>.
    of_lambda = jit.scalar_from_text("<lambda>", "x", "x")._cache.paths((types.float64,))[0].name
    assert re.fullmatch(r"[\w.-]+", of_lambda)


def test_functions_that_depend_on_more_than_the_sources_are_not_stored():
    def foreign(x):
        return x

    for value in (foreign, np.zeros(2), object()):
        function = jit.scalar_from_text("made", "x", "x", value=value)
        assert function._cache.paths((types.float64,)) == []
    own = jit.scalar_from_text("made", "x", "x")._cache
    assert own.paths((types.float64,)) and own.paths((types.Dispatcher(jit.scalar(foreign)),)) == []


def test_the_digest_of_the_sources_covers_every_file_of_the_processors_kernels(tmp_path, monkeypatch):
    paths = [path.relative_to(SOURCES / "kernels") for path in SOURCES.glob("kernels/**/*.py")]
    names = {".".join(("simfloat.kernels", *path.with_suffix("").parts)) for path in paths if path.parts[0] != "gpu"}
    assert set(cache.SOURCES) == {name.removesuffix(".__init__") for name in names}
    assert re.fullmatch("[0-9a-f]{16}", cache.SOURCE_DIGEST)
    assert cache.digest_of(cache.source_files(tmp_path, "package"), ()) == ""
    monkeypatch.setattr(cache, "SOURCE_DIGEST", "")
    assert cache.kernel_directories() == []


def called_functions(function):
    """The Python functions that a compiled function may call, with itself."""
    called, waiting = {}, [function]
    while waiting:
        value = waiting.pop()
        value = getattr(value, "py_func", value)
        if isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, FunctionType) and id(value) not in called:
            called[id(value)] = value
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
            waiting += [value.__globals__[name] for name in names_in(value.__code__) if name in value.__globals__]
    return called.values()


def names_in(code):
    """The global names that a function uses, and the functions inside it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return {*code.co_names, *(name for one in inner for name in names_in(one))}


def test_the_digest_of_a_kernel_covers_every_function_that_it_calls():
    for name in cache.SOURCES:
        importlib.import_module(name)
    assert len(KERNELS) > 200
    for kernel in KERNELS:
        covered = set().union(*map(cache.reachable_modules, cache.closure_modules(kernel.py_func)))
        needed = {function.__module__ for function in called_functions(kernel) if "kernels" in function.__module__}
        assert needed <= covered, kernel


def test_modules_of_kernels_import_only_what_is_found_in_their_texts():
    # Relative imports, and names that a package resolves on its own, would not be found.
    for name, text in cache.SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                if (node.module or "").startswith(cache.PACKAGE):
                    names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
                    assert names & cache.SOURCES.keys() <= cache.imported_modules(name)
                    if node.module == cache.PACKAGE:
                        assert not FAMILIES.keys() & {alias.name for alias in node.names}, (name, node.lineno)
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith(cache.PACKAGE) for alias in node.names), (name, node.lineno)


def test_files_are_written_and_read_whole_and_the_environment_variable_names_their_only_place(tmp_path, monkeypatch):
    new = tmp_path / "new"
    assert cache.read_kernel(tmp_path / "absent") is None
    assert cache.write_kernel(new / "file", b"content") and cache.read_kernel(new / "file") == b"content"
    for place in (new / "file" / "below", Path("/dev/null/simfloat/kernel")):
        assert not cache.write_kernel(place, b"content")

    def interrupted(draft, content):
        draft.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.write_kernel(new / "kernel", b"")
    assert os.listdir(new) == ["file"]
    for variable in ("", "/somewhere"):
        monkeypatch.setattr(cache.config, "CACHE_DIR", variable)
        assert (cache.kernel_directories() == [Path("/somewhere/simfloat")]) == bool(variable)
