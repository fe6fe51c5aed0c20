"""The shape of simfloat's sources: files, lines, imports, comments and words: python -m benchmarks.shape.

With `--show modes` (or participles, docstrings, locals) the places are printed that a number counts.

code         lines that are no docstring, comment or blank
modes        strings that name a rounding mode, outside of formats/ and of every folder called selftest
participles  functions that are named by one participle
docstrings   docstrings that begin with "The same"
locals       variables of a function, parameters included, that are called found, given, kept or held
"""

from __future__ import annotations

import ast
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import click

from simfloat import formats

ROOT = Path(formats.__file__).parents[1]
MODES = [name for name in formats.__all__ if isinstance(getattr(formats, name), formats.Rounding)]
NAMES_OF_MODES = re.compile(rf"(\w*_)?({'|'.join(MODES)})(_\w*)?")

#: Participles without -ed, and words in -ed that are no participles or that name a thing of the field.
IRREGULAR = frozenset(
    "begun bent bound built caught chosen done drawn found given gone held hidden kept known left lent lost made met "
    "said seen sent shown taken told written".split()
)
TERMS = frozenset("blocked delayed embed exceed feed fixed fused need scaled seed signed speed".split())

#: Participles that name a variable and do not say of what.
HEADLESS = frozenset(("found", "given", "kept", "held"))


#: Fields of a statement that contain statements.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def statements(node: ast.AST) -> Iterator[Any]:
    """Yield the statements in a node, one level below it: `ast.walk` spends most of its time on expressions."""
    return chain.from_iterable(getattr(node, block, ()) for block in _BLOCKS)


class Source(NamedTuple):
    """The counts of one file; for every kind of word that is counted, line and text of its places."""

    lines: int
    code: int
    imports: int
    comments: int
    places: dict[str, list[tuple[int, str]]]


def read(text: str) -> Source:
    """Count the lines and words of a file."""
    tree = ast.parse(text)
    nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(tree):
        nodes[type(node)].append(node)
    functions = nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef]
    docstrings = [
        owner.body[0].value
        for owner in (tree, *nodes[ast.ClassDef], *functions)
        if ast.get_docstring(owner, clean=False) is not None
    ]
    strings = [node for node in nodes[ast.Constant] if isinstance(node.value, str)]
    # Lines within strings are no comments. A tokenizer, which would know, takes five times as long.
    within = _lines(node for node in strings + nodes[ast.JoinedStr] if node.end_lineno != node.lineno)
    lines = text.splitlines()
    comments = {n for n, line in enumerate(lines, 1) if line.lstrip().startswith("#")} - within
    filled = {n for n, line in enumerate(lines, 1) if line.strip()}
    documented = set(map(id, docstrings))
    return Source(
        lines=len(lines),
        code=len(filled - comments - _lines(docstrings)),
        imports=len(_lines(nodes[ast.Import] + nodes[ast.ImportFrom])),
        comments=len(comments),
        places={
            "modes": [
                (node.lineno, node.value) for node in strings if id(node) not in documented and names_a_mode(node.value)
            ],
            "participles": [(node.lineno, node.name) for node in functions if is_participle(node.name)],
            "docstrings": [(node.lineno, "The same") for node in docstrings if node.value.startswith("The same")],
            "locals": sorted(_locals(nodes, functions)),
        },
    )


def _locals(nodes: dict[type[ast.AST], list[Any]], functions: list[Any]) -> Iterator[tuple[int, str]]:
    """The lines where functions first bind variables of such names; each counts once for every function."""
    bound = [(node, node.id) for node in nodes[ast.Name] if node.id in HEADLESS and isinstance(node.ctx, ast.Store)]
    bound += [(node, node.arg) for node in nodes[ast.arg] if node.arg in HEADLESS]
    owner: dict[ast.AST, ast.AST] = {}
    for function in functions if bound else ():  # outer functions come first, so the innermost one stays
        owner.update(dict.fromkeys(ast.walk(function), function))
    lines: dict[tuple[ast.AST, str], int] = {}
    for node, name in bound:
        if node in owner:
            lines[owner[node], name] = min(node.lineno, lines.get((owner[node], name), node.lineno))
    yield from ((line, name) for (_, name), line in lines.items())


def _lines(nodes: Iterable[ast.stmt | ast.expr]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def names_a_mode(text: str) -> bool:
    """True if a string consists of names, and one of them is a mode or contains one, as `cut_toward_zero` does."""
    names = text.replace(",", " ").split()
    return all(map(str.isidentifier, names)) and any(map(NAMES_OF_MODES.fullmatch, names))


def is_participle(name: str) -> bool:
    """True if the name of a function is a single participle."""
    word = name.removeprefix("_")
    return word in IRREGULAR or (re.fullmatch(r"[a-z]{3,}ed", word) is not None and word not in TERMS)


def sources(root: Path = ROOT) -> dict[str, Source]:
    """The files below a folder, by their paths in it."""
    return {
        path.relative_to(root).as_posix(): read(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.py"))
    }


def places(what: str, files: dict[str, Source] | None = None) -> dict[str, list[tuple[int, str]]]:
    """The places of words that are counted, by file; files without any are left out."""
    by_file = {path: source.places[what] for path, source in (sources() if files is None else files).items()}
    return {path: lines for path, lines in by_file.items() if lines}


def files_naming_modes(files: dict[str, Source] | None = None) -> dict[str, list[tuple[int, str]]]:
    """The files that name a rounding mode by a string, with lines and strings, outside of formats and self-tests."""
    return {
        path: lines
        for path, lines in places("modes", files).items()
        if path.split("/")[0] != "formats" and "selftest" not in path.split("/")[:-1]
    }


def measure(files: dict[str, Source] | None = None) -> dict[str, dict[str, float]]:
    """The numbers of all files, the lines of code of every folder, and the comments of the three largest folders."""
    files = sources() if files is None else files
    folders: dict[str, list[Source]] = defaultdict(list)
    for path, source in files.items():
        folders[path.split("/")[0] if "/" in path else "."].append(source)
    code = {name: sum(source.code for source in folder) for name, folder in sorted(folders.items())}
    largest = sorted(sorted(code, key=code.__getitem__)[-3:])
    lengths = [source.lines for source in files.values()]
    comments = {name: _share("comments", folders[name]) for name in largest}
    return {
        "shape": {
            "folders": len(folders.keys() - {"."}),
            "files": len(files),
            "longest file": max(lengths),
            "median file": statistics.median(lengths),
            "imports, % of lines": _share("imports", list(files.values())),
            "files naming a mode": len(files_naming_modes(files)),
            "functions named by a participle": _count("participles", files),
            "docstrings that begin with The same": _count("docstrings", files),
            "locals called found, given, kept, held": _count("locals", files),
        },
        "code": code,
        "comments": {"all": _share("comments", list(files.values())), **comments},
    }


def _share(what: str, of: list[Source]) -> float:
    return round(100 * sum(getattr(source, what) for source in of) / sum(source.lines for source in of), 2)


def _count(what: str, files: dict[str, Source]) -> int:
    return sum(map(len, places(what, files).values()))


@click.command()
@click.option("--show", type=click.Choice(["modes", "participles", "docstrings", "locals"]), help="Print the places.")
def main(show: str | None) -> None:
    """Print the numbers, or the places that one of them counts."""
    if show:
        for path, lines in (files_naming_modes() if show == "modes" else places(show)).items():
            for line, text in lines:
                print(f"simfloat/{path}:{line} {text}")
        return
    titles = {"shape": "", "code": "lines of code in ", "comments": "comments, % of lines in "}
    for kind, numbers in measure().items():
        for name, number in numbers.items():
            print(f"{titles[kind] + name:45}{number:>9g}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.shape")
