"""The prose of the project: habits that make sentences hard to read, and public docstrings: python -m benchmarks.prose.

Documents are the pages of Markdown and reStructuredText, without code, headings and tables; docstrings are read
without examples; comments that follow one another are one text. A habit is counted by its words for each 1000 words of
a text. A single match may be right: a habit is a problem if it is frequent. `--file PAGE` prints the sentences of a
page or a source file that match, with the words to write instead; `--public` prints the public functions and classes
whose docstring lacks a section or does not name an argument.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

import simfloat
from benchmarks.shape import statements

ROOT = Path(simfloat.__file__).parents[1]

_ABSTRACT = (
    "sum operation format accumulator policy program layer rule hardware operand result step block loop function "
    "kernel model training reference processor float64 float32 FP32 FP64 pass call element mode type"
).replace(" ", "|")

#: The words of each habit, and the words to write instead.
HABITS = {
    "what as a noun": (r"^What\b(?!.*\?)|[ (,:;]what (?!to\b)", "a noun: the value, the operation that ..."),
    "fronted complement": (
        r"^(Of|To nearest|Toward zero|Beside|Below|Behind|Under|Beyond|Over|Not)\b(?!.*\?$)"
        r"|[;:,] of (a|an|the|several|those|these|all|its|[A-Z`])",
        "the subject first",
    ),
    "that of": (r"\b(that|those) of\b", "the noun again"),
    "those that": (r"\b(those|that) (that|which)\b", "the thing by its name"),
    "where for if": (r"\bwhere\b", "if, when"),
    "whose": (r"\bwhose\b", "two sentences"),
    "as it is": (
        r"\bas (it|they) (is|are|was|were|stands?|comes?)\b|\bas [^.;:]{1,60}? (has|have|had) (it|them)\b",
        "unchanged, as stored",
    ),
    "so many": (r"\bso many\b", "the name of the parameter"),
    "of its own": (r"\b(one's own|of (your|its|their|our|his) own)\b", "custom, your"),
    "software that knows": (
        r"\b(tells?|told|says|knows?|asks?|asked|sees?|looks?|looked|meets?|met|nobody|whoever|no one|anybody)\b",
        "returns, prints, reads, raises",
    ),
    "stands, lies": (
        r"\b(stands?|stood|lies|lie|lay|hangs? on|goes on|go on|went on|goes back|comes? to|came to)\b",
        "is, is stored in, continues, depends on",
    ),
    "is none": (
        r"\b((is|are|was|were) none|there (is|are|was|were) (not|none|no)\b|that there (is|are)|(is|are) no [a-z]+"
        r"|lacks?|lacked)\b",
        "invalid, missing, not a",
    ),
    "what is no": (r"\bwhat (is|are|was) (no|not)\b", "ValueError: if x is not an X"),
    "else as a conjunction": (r"(^Else\b|[,;:] else\b|\band else\b)", "otherwise"),
    "but for": (r"\b(but for|nothing but)\b", "except, only"),
    "beside": (r"\bbesides?\b", "compared with, also"),
    "is made": (r"\b(is|are|was|were) made\b|\bmade (of|by)\b", "compute, create, consist of"),
    "too at the end": (r"\btoo[.,;:)]", "also"),
    "holds": (r"\b(hold|holds|held)\b", "contains, stores, applies to"),
    "private words": (
        r"(?<!--)\b(way back|ways back|kin|quick(er|ly|est)?|mends?|mended|cures?|cured|be it|lest)\b",
        "backward pass, fast, fix",
    ),
    "alone": (r"\b(by itself|by themselves|alone)\b", "only"),
    "possessive of an abstract noun": (rf"\b({_ABSTRACT})s?'s?\b", "of the sum; the range of float64"),
    "from X on": (r"\bfrom [^.;:,]{1,25} on\b", "starting with, after"),
}
_SEARCHES = {habit: re.compile(words) for habit, (words, _) in HABITS.items()}
QUESTION = re.compile(r"(What|Whether|How|Where)\b")

#: Words of a sentence that is too long.
LONG = 40

_SECTION = re.compile(r"(Parameters|Returns|Yields|Raises|Attributes|Examples?|Notes?|Source|See also):\s*$")


#: A string or a comment of Python. A tokenizer takes ten times as long to find the comments.
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|#[^\n]*''', re.DOTALL
)


class Sentence(NamedTuple):
    """A sentence of a file."""

    file: str
    line: int
    text: str

    def habits(self) -> Iterator[str]:
        """The habits that it has, each as often as it occurs."""
        for habit, search in _SEARCHES.items():
            yield from (habit for _ in search.finditer(self.text))


def paragraphs(lines: Iterable[str], first: int = 1) -> Iterator[tuple[str, int]]:
    """Yield the paragraphs and the items of lists with their lines; code, headings and tables are left out."""
    words: list[str] = []
    start, is_code = first, False
    for number, line in enumerate((*lines, ""), first):
        bare = line.strip()
        is_fence = bare.startswith(("```", "~~~"))
        is_code ^= is_fence
        item = re.match(r"\s*(?:[*+-]|\d+\.|:)\s+(.*)", line)
        is_apart = is_code or is_fence or not bare or bare[0] in "#|" or bare.startswith((":::", "+--", "<!--", ".. "))
        is_apart |= re.fullmatch(r"([=\-~^+.\"']{3,} ?)+|:[\w-]+:.*", bare) is not None
        is_apart |= not words and line.startswith("    ")
        if words and (is_apart or item):
            yield " ".join(words), start
            words.clear()
        if not is_apart:
            start = start if words else number
            words.append(item[1] if item else bare)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph, without emphasis and addresses of links."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "").strip()
    ends = r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bal\.)[\"')\]]?\s+(?=[A-Z`\"'(0-9+\-])"
    yield from filter(None, re.split(ends, text))


def page_sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a page."""
    for text, line in paragraphs(path.read_text(encoding="utf-8").split("\n")):
        yield from (Sentence(_name(path), line, sentence) for sentence in sentences(text))


class Docstring(NamedTuple):
    """The docstring of a module, a class or a function."""

    file: str
    line: int
    text: str
    is_module: bool

    def sentences(self) -> Iterator[Sentence]:
        """Yield the sentences, without examples; an entry of a section is an item of a list."""
        lines, is_example, margin = [], False, 0
        for line in inspect.cleandoc(self.text).split("\n"):
            indentation, is_section = len(line) - len(line.lstrip()), _SECTION.match(line) is not None
            if is_section:
                is_example, margin = line.startswith("Example"), 4
            elif line.strip() and not indentation:
                is_example, margin = line.startswith(">>>"), 0
            if is_section or is_example or line.lstrip().startswith(">>>"):
                lines.append("")
            elif margin and line.strip():
                lines.append(("- " if indentation == margin else "") + line.strip())
            else:
                lines.append(line)
        for text, line in paragraphs(lines, self.line):
            yield from (Sentence(self.file, line, sentence) for sentence in sentences(text))


def docstrings(path: Path) -> Iterator[Docstring]:
    """Yield all docstrings of a source file."""
    waiting: list[Any] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        waiting += statements(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield Docstring(_name(path), node.body[0].lineno, text, isinstance(node, ast.Module))


def comments(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of comments; lines of comments that follow one another are one text."""
    words: list[str] = []
    start, after = 0, 0

    def collected() -> Iterator[Sentence]:
        yield from (Sentence(_name(path), start, sentence) for sentence in sentences(" ".join(words)))
        words.clear()

    text, line, place = path.read_text(encoding="utf-8"), 1, 0
    for token in _STRING_OR_COMMENT.finditer(text):
        if not token[0].startswith("#") or re.search(r"noqa|type: ignore|fmt: |^#!", token[0]):
            continue
        line, place = line + text.count("\n", place, token.start()), token.start()
        is_own = not text[text.rfind("\n", 0, place) + 1 : place].strip()
        if not (is_own and line == after):
            yield from collected()
            start = line
        after = line + 1 if is_own else 0
        words.append(token[0].lstrip("#: "))
    yield from collected()


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def pages() -> list[Path]:
    """The pages of the project."""
    folders = ("docs", "benchmarks", "experiments", "simfloat")
    inner = (path for folder in folders for ending in ("md", "rst") for path in (ROOT / folder).rglob(f"*.{ending}"))
    return [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *sorted(inner)]


def measure() -> dict[str, dict[str, float]]:
    """Measure every habit in the documents, the docstrings and the comments, and the public docstrings."""
    paths = sorted((ROOT / "simfloat").rglob("*.py"))
    every_docstring = [docstring for path in paths for docstring in docstrings(path)]
    texts = {
        "documents": [sentence for page in pages() for sentence in page_sentences(page)],
        "docstrings": [sentence for docstring in every_docstring for sentence in docstring.sentences()],
        "comment texts": [sentence for path in paths for sentence in comments(path)],
    }
    measured = {name: _rates(text) for name, text in texts.items()}
    of_definitions = [docstring.text for docstring in every_docstring if not docstring.is_module]
    questions = sum(QUESTION.match(text) is not None for text in of_definitions)
    measured["docstrings"]["first word What, Whether, How or Where, %"] = _share(questions, len(of_definitions))
    callables = list(public())
    measured["public docstrings"] = {
        "without Parameters, Returns or Raises": sum(bool(each.missing_sections) for each in callables),
        "with an argument that is not named": sum(bool(each.unnamed_arguments) for each in callables),
    }
    return measured


def _rates(text: list[Sentence]) -> dict[str, float]:
    words = sum(len(sentence.text.split()) for sentence in text)
    counts = Counter(habit for sentence in text for habit in sentence.habits())
    rates = {habit: round(1000 * counts[habit] / words, 2) for habit in HABITS}
    long = sum(len(sentence.text.split()) > LONG for sentence in text)
    return {**rates, f"sentences of more than {LONG} words, %": _share(long, len(text))}


def _share(count: int, total: int) -> float:
    return round(100 * count / total, 1)


class PublicCallable(NamedTuple):
    """A public function or class, and the things that its docstring does not say."""

    name: str
    missing_sections: list[str]
    unnamed_arguments: list[str]


def public() -> Iterator[PublicCallable]:
    """Yield the public functions and classes of simfloat and of its public packages, each once."""
    modules = [simfloat, *(each for name in simfloat.__all__ if inspect.ismodule(each := getattr(simfloat, name)))]
    known = set[int]()
    for module in (*modules, import_module("simfloat.nn.init")):
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            is_ours = getattr(thing, "__module__", "").startswith("simfloat") and id(thing) not in known
            if is_ours and (inspect.isfunction(thing) or inspect.isclass(thing)) and not _is_plain(thing):
                known.add(id(thing))
                yield _described(f"{module.__name__}.{name}", thing)


def _is_plain(thing: Any) -> bool:
    """True for exceptions and protocols, which users do not construct."""
    return inspect.isclass(thing) and (issubclass(thing, BaseException) or getattr(thing, "_is_protocol", False))


def _described(name: str, thing: Callable[..., Any]) -> PublicCallable:
    text = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and "__init__" in vars(thing):
        text += "\n\n" + (inspect.getdoc(thing.__init__) or "")
    sections = {match[1] for line in text.split("\n") if (match := _SECTION.match(line))}
    signature = _signature(thing)
    arguments = [each for each in signature.parameters if each not in ("self", "cls") and not each.startswith("_")]
    returns = not inspect.isclass(thing) and str(signature.return_annotation) not in ("None", "<class 'NoneType'>")
    missing = ["Parameters"] if arguments and not sections & {"Parameters", "Attributes"} else []
    missing += ["Returns"] if returns and not sections & {"Returns", "Yields"} else []
    missing += ["Raises"] if re.search(r"\b[Rr]aises? \w*Error", text) and "Raises" not in sections else []
    prose = re.sub(r"^\s*>>>.*$", "", text, flags=re.MULTILINE)
    unnamed = [each for each in arguments if not re.search(rf"(?<![\w.]){re.escape(each)}(?!\w)", prose)]
    return PublicCallable(name, missing, unnamed)


def _signature(thing: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(thing)
    except ValueError:
        return inspect.Signature(return_annotation=None)


def print_file(path: Path) -> None:
    """Print the sentences of a file that have a habit, with the words to write instead."""
    if path.suffix == ".py":
        text = [sentence for docstring in docstrings(path) for sentence in docstring.sentences()]
        text += comments(path)
    else:
        text = list(page_sentences(path))
    for sentence in text:
        for habit in dict.fromkeys(sentence.habits()):
            print(f"{sentence.file}:{sentence.line}: {habit} ({HABITS[habit][1]}): {sentence.text}")


@click.command()
@click.option("--file", type=click.Path(exists=True, path_type=Path), help="Print the sentences of one file.")
@click.option("--public", "is_public", is_flag=True, help="Print public docstrings that say too little.")
def main(file: Path | None, is_public: bool) -> None:
    """Print the rates of all habits."""
    if file:
        print_file(file.resolve())
    elif is_public:
        for each in public():
            lacks = [*each.missing_sections, *(f"the argument {name}" for name in each.unnamed_arguments)]
            if lacks:
                print(f"{each.name}: {', '.join(lacks)}")
    else:
        for table, numbers in measure().items():
            print(f"\n{table}")
            for name, number in numbers.items():
                print(f"{number:8.2f}  {name}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.prose")
