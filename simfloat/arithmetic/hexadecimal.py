"""Codes as hexadecimal text, as they stand in waveforms, memory images and papers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.formats import Format

#: Digits with or without 0x; underscores may stand between digits, as in Verilog and in Python.
CODE = re.compile(r"(?:0x_?)?([0-9a-f](?:_?[0-9a-f])*)", re.IGNORECASE)


def texts_of(codes: NDArray[np.unsignedinteger], format: Format) -> NDArray[np.str_]:
    """Each code in lower-case digits, as many as codes of the format have at most."""
    digits = -(-format.bits // 4)
    texts = [f"{code:0{digits}x}" for code in codes.reshape(-1).tolist()]
    return np.array(texts, f"U{digits}").reshape(codes.shape)


def codes_of(texts: Any, format: Format) -> NDArray[np.uint64]:
    """The codes that a text, or texts in an array or in sequences, are written for.

    Raises ValueError naming the first that is no code of the format.
    """
    array = np.asarray(texts, object)
    codes = [code_of(text, format) for text in array.reshape(-1).tolist()]
    return np.array(codes, np.uint64).reshape(array.shape)


def code_of(text: Any, format: Format) -> int:
    """The code that a text is written for. Raises ValueError for anything else."""
    digits = CODE.fullmatch(text) if isinstance(text, str) else None
    if digits is None:
        example = f"{1:0{-(-format.bits // 4)}x}"
        raise ValueError(
            f"A code of {format} is hexadecimal digits such as {example!r} or '0x{example}', got {text!r}."
        )
    code = int(digits[1], 16)
    if code >> format.bits:
        raise ValueError(f"Code {text!r} is not one of {format}, whose codes have {format.bits} bits.")
    return code
