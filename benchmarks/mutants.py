"""Small mistakes in the sources, and the share of them that the tests find: `python -m benchmarks.mutants sums`.

A mistake is the opposite sign, `<` instead of `<=`, another rounding mode, the previous index, or a missing copy.
The program copies the sources and plants one mistake at a random place. Then the tests of this part of the package run
until one fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]

#: Name of a part -> its folders in simfloat/, and its tests in tests/ with the fastest tests first.
PARTS = {
    "formats": (["formats"], ["formats", "selftest/test_neighbours.py", "arithmetic"]),
    "elementwise": (["arithmetic"], ["arithmetic", "formats"]),
    "kernels": (["kernels"], ["arithmetic", "accumulate", "kernels"]),
    "gpu": (["kernels/gpu"], ["cuda"]),
    "sums": (["sums"], ["accumulate", "commands/test_check.py", "nn/test_convolution.py", "telemetry"]),
    "autodiff": (["autodiff"], ["autodiff", "optim/test_loss_scale.py"]),
    "updates": (["optim"], ["optim"]),
    "linalg": (["linalg"], ["linalg"]),
    "reveal": (["analysis/reveal"], ["blackbox"]),
    "diagnosis": (["analysis/diagnosis"], ["diagnosis", "torch/test_diagnose.py"]),
}

SIGNS = {ast.Add: "-", ast.Sub: "+"}
BOUNDS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
MODES = ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative", "to_odd")
COPIES = ("copy", "array", "ascontiguousarray")


class Mistake(NamedTuple):
    """A piece of a source, and the text that takes its place."""

    path: Path
    node: ast.expr
    kind: str
    text: str

    def plant(self, root: Path) -> None:
        """Write the mistake into the copy of the sources below `root`."""
        lines = (ROOT / self.path).read_bytes().splitlines(keepends=True)
        first, last = self.node.lineno - 1, (self.node.end_lineno or 0) - 1
        head, tail = lines[first][: self.node.col_offset], lines[last][self.node.end_col_offset :]
        lines[first : last + 1] = [head + self.text.encode() + tail]
        (root / self.path).write_bytes(b"".join(lines))

    def __str__(self) -> str:
        return f"{self.path}:{self.node.lineno}: {self.kind}: {' '.join(ast.unparse(self.node).split())} -> {self.text}"


def mistakes_in(path: Path) -> Iterator[Mistake]:
    """Yield all possible mistakes in a file, except in annotations and messages."""
    waiting: list[ast.AST] = [ast.parse((ROOT / path).read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.AnnAssign):
            continue
        if isinstance(node, ast.FunctionDef):
            waiting += [*node.body, *node.args.defaults]
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.expr):
            yield from (Mistake(path, node, kind, text) for kind, text in _mistakes_of(node))


def _mistakes_of(node: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of every mistake at one place."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right) if not isinstance(left, ast.Constant | ast.List):
            yield "sign", f"({ast.unparse(left)} {SIGNS[type(operator)]} ({ast.unparse(right)}))"
        case ast.UnaryOp(ast.USub(), operand):
            yield "sign", f"({ast.unparse(operand)})"
        case ast.Compare(left, [operator], [right]) if type(operator) in BOUNDS:
            yield "bound", f"({ast.unparse(left)} {BOUNDS[type(operator)]} {ast.unparse(right)})"
        case ast.Constant(str(mode)) if mode in MODES:
            yield "mode", repr(MODES[MODES.index(mode) - 1])
        case ast.Name(mode) if mode in MODES and isinstance(node.ctx, ast.Load):
            yield "mode", f"type({mode})({MODES[MODES.index(mode) - 1]!r})"
        case ast.Subscript(value, ast.Constant(int(place))) if isinstance(node.ctx, ast.Load) and place is not True:
            yield "index", f"{ast.unparse(value)}[{place - 1}]"
        case ast.Call(ast.Name("range"), [*first, last], []):
            yield "index", f"range({''.join(ast.unparse(one) + ', ' for one in first)}({ast.unparse(last)}) - 1)"
        case ast.Call(ast.Attribute(value, name), given, _) if name in COPIES:
            yield "missing copy", f"({ast.unparse(given[0] if given else value)})"


def chosen(sources: list[str], count: int, seed: int) -> Iterator[Mistake]:
    """Yield random mistakes in these sources, as many of one kind as of another."""
    paths = [path for name in sources for path in sorted((ROOT / "simfloat" / name).rglob("*.py"))]
    paths = [path.relative_to(ROOT) for path in paths if "gpu" not in path.parts or "kernels/gpu" in sources]
    rng, by_kind = random.Random(seed), defaultdict(list)
    for mistake in (one for path in paths for one in mistakes_in(path)):
        by_kind[mistake.kind].append(mistake)
    for mistakes in by_kind.values():
        rng.shuffle(mistakes)
    for kind in islice(cycle(sorted(by_kind)), count):
        if by_kind[kind]:
            yield by_kind[kind].pop()


def outcome(mistake: Mistake, tests: list[str], checkout: Path, seconds: float) -> str:
    """Return "dead" if a test fails because of the mistake, "alive" if all tests pass, "late" after so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in (("simfloat", ROOT), ("tests", checkout), ("benchmarks", ROOT), ("docs", ROOT)):
            shutil.copytree(source / name, Path(folder) / name)
        shutil.copy(ROOT / "pyproject.toml", folder)
        mistake.plant(Path(folder))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--assert=plain", "--device", "cpu"]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        command += [f"tests/{name}" for name in tests]
        run: dict[str, Any] = {"cwd": folder, "env": environment, "capture_output": True, "timeout": seconds}
        try:
            return "dead" if subprocess.run(command, **run).returncode else "alive"
        except subprocess.TimeoutExpired:
            return "late"


def main() -> None:
    """Plant mistakes in the named parts; print the share that the tests find, and the mistakes that they miss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--count", type=int, default=20, help="mistakes in each part")
    parser.add_argument("--seed", type=int, default=1, help="which mistakes")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="a folder whose tests/ run instead")
    parser.add_argument("--tests", nargs="+", help="files or folders below tests/ instead of those of the part")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which a run is stopped")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        (sources, tests), outcomes = PARTS[part], Counter[str]()
        for mistake in chosen(sources, options.count, options.seed):
            end = outcome(mistake, options.tests or tests, options.checkout, options.seconds)
            outcomes[end] += 1
            if end != "dead":
                print(f"  {end}: {mistake}", flush=True)
        late = f", {outcomes['late']} ran too long" if outcomes["late"] else ""
        print(f"{part}: {outcomes['dead']} of {outcomes.total()} died{late}", flush=True)


if __name__ == "__main__":
    main()
