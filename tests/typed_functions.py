"""What type checkers read of the catalog's functions: ``python -m tests.typed_functions`` writes it down."""

from pathlib import Path

from simfloat.arithmetic import catalog

PATH = Path(catalog.__file__).with_name("typed_functions.pyi")

HEAD = '''"""The functions of the catalog as type checkers read them, written by ``python -m tests.typed_functions``."""

from typing import Generic, Literal, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.flags import Flags
from simfloat.arithmetic.operands import OperandLike
from simfloat.arithmetic.target import Observer
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike

_Result = NDArray[np.floating]
_Other = TypeVar("_Other")
_Own = TypeVar("_Own")
'''

#: A public function that returns its results, or a pair of them and their flags.
PROTOCOL = """
class _{kind}(Protocol):
    @overload
    def __call__(
        self,
{operands}
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: _Result | None = ...,
    ) -> _Result: ...
    @overload
    def __call__(
        self,
{operands}
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: _Result | None = ...,
    ) -> tuple[_Result, Flags]: ..."""

#: By the number of operands: the type of a public function, its operands, and what a method takes besides its own.
KINDS = {
    1: ("OfOne", "x", ""),
    2: ("OfTwo", "ab", ", other: _Other"),
    3: ("OfThree", "abc", ", other: _Other, third: _Other"),
}


def text():
    """The file, made from the rows of the catalog."""
    rows = catalog.FUNCTIONS | catalog.REPRESENTABLE
    kinds = {name: KINDS[len(row.operands)] for name, row in rows.items()}
    protocols = [
        PROTOCOL.format(kind=kind, operands="\n".join(f"        {x}: OperandLike," for x in operands))
        for kind, operands, _ in KINDS.values()
    ]
    public = [f'    "{name}",' for name in sorted(kinds)]
    functions = [f"{name}: _{kind}" for name, (kind, *_) in kinds.items()]
    methods = [f"    def {name}(self{others}) -> _Own: ..." for name, (*_, others) in kinds.items()]
    parts = (
        *(HEAD, "__all__ = [", *public, "]", *protocols, "", *functions),
        *("", "class Methods(Generic[_Other, _Own]):", *methods),
    )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
