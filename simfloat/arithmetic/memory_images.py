"""Memory images of Verilog: text files of codes, as the system tasks $readmemh and $writememh read and write them.

Source: IEEE 1364-2005, section 17.2.9 (IEEE 1800-2017, section 21.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.codes import decode, encode, hexadecimal_texts, read_code
from simfloat.checks import file_path
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, as_format
from simfloat.formats.format_names import FormatLike

#: What a file consists of besides white space: comments, the start of one that never ends, and words.
PIECES = re.compile(r"//[^\n]*|/\*.*?\*/|(?P<open>/\*)|(?P<word>(?:(?!//|/\*)\S)+)", re.DOTALL)
ADDRESS = re.compile(r"@([0-9a-f](?:_?[0-9a-f])*)", re.IGNORECASE)


@in_usual_environment
def writememh(path: str | PathLike[str], x: ArrayLike, format: FormatLike) -> None:
    """Write the codes of numbers of `format` to a file that $readmemh reads: a word a line, in C order from address 0.

    The first line is a comment with the format and the shape. Raises ValueError for what is not a number of the
    format, as :func:`simfloat.encode` does, before the file is touched.

    Examples:
        >>> sf.writememh(folder / "weights.hex", [1.0, -2.0, 0.5], sf.BF16)
        >>> (folder / "weights.hex").read_text().split()
        ['//', 'BF16:', 'words', 'of', '16', 'bits,', 'in', 'C', 'order', 'of', 'shape', '(3,)', '3f80', 'c000', '3f00']
    """
    path, format = file_path(path), as_format(format)
    codes = encode(x, format)
    words = hexadecimal_texts(codes, format).reshape(-1).tolist()
    head = f"// {format}: words of {format.bits} bits, in C order of shape {codes.shape}"
    path.write_text("\n".join([head, *words, ""]), encoding="utf-8", newline="\n")


@in_usual_environment
def readmemh(path: str | PathLike[str], format: FormatLike) -> NDArray[np.floating]:
    """The numbers whose codes a $readmemh file holds: a vector from the lowest address to the highest.

    Comments, addresses (``@1f``: of the words that follow) and underscores are read as IEEE 1364 has them. The dtype is
    that of :func:`simfloat.decode`.

    Raises ValueError naming file and line for a word that is no code of the format, one with x or z digits among them,
    for an address that is written twice, and for an address between others that has no word.

    Examples:
        >>> sf.writememh(folder / "weights.hex", [1.0, -2.0, 0.5], sf.BF16)
        >>> sf.readmemh(folder / "weights.hex", sf.BF16)
        array([ 1. , -2. ,  0.5], dtype=float32)
    """
    path, format = file_path(path), as_format(format)
    text = path.read_bytes().decode("utf-8-sig", errors="replace")  # comments may be in any encoding
    words: dict[int, int] = {}
    address = 0
    for place, word in _words(text, path):
        try:
            if word.startswith("@"):
                address = _address(word)
                continue
            if address in words:
                raise ValueError(f"Address {address:x} has a word already.")
            words[address] = _code(word, format)
        except ValueError as error:
            raise ValueError(f"{path}, line {_line(text, place)}: {error}") from None
        address += 1
    return decode(np.array([words[at] for at in _addresses(words, path)], np.uint64), format)


def _words(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Everything but white space and comments, with its place."""
    for piece in PIECES.finditer(text):
        if piece["open"]:
            raise ValueError(f"{path}, line {_line(text, piece.start())}: The comment is never closed by */.")
        if piece["word"]:
            yield piece.start(), piece["word"]


def _address(word: str) -> int:
    digits = ADDRESS.fullmatch(word)
    if digits is None:
        raise ValueError(f"An address is @ and hexadecimal digits, without white space, as @1f; got {word!r}.")
    return int(digits[1], 16)


def _code(word: str, format: Format) -> int:
    if word[:2].lower() != "0x" and re.search("[xz]", word, re.IGNORECASE):
        raise ValueError(f"{word!r} has digits that are unknown (x) or not driven (z); a number has neither.")
    if word[:2].lower() == "0x":
        raise ValueError(f"{word!r} has a prefix, where Verilog has digits alone: write {word[2:]!r}.")
    return read_code(word, format)


def _addresses(words: dict[int, int], path: Path) -> list[int]:
    """The addresses in order; ValueError where one is missing."""
    ordered = sorted(words)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if after != before + 1:
            raise ValueError(f"{path}: Address {before + 1:x} has no word, though {before:x} and {after:x} have.")
    return ordered


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
