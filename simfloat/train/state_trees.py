"""Serialization of states: trees of dicts, lists, tuples, numbers, text and arrays, to JSON and back.

A number, text, True, False and None stand for themselves; of everything else there is an object with one key that says
what it is: ``{"tuple": [1, 2]}``. Arrays are kept aside, and a tree holds their numbers in the list; of PyTorch's
tensors also the name of their type, of arrays of a format also what they compute with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import BitStream, GivenBits
from simfloat.arithmetic.machines import on_cpu
from simfloat.arrays import Array
from simfloat.arrays.array import new_array as array_of_format
from simfloat.arrays.array_arithmetic import ArrayArithmetic, as_arithmetic
from simfloat.policy.serialization import parse, text_of
from simfloat.train.tensor_trees import array_of_tensor, is_tensor, restore_tensor

#: Kinds of arrays that a file can hold: truth values, integers, floating-point and complex numbers.
KINDS = "biufc"

#: How deep dicts, lists and tuples may be nested.
DEEPEST = 100


def encode(value: Any, arrays: list[NDArray], where: str, depth: int = 0) -> Any:
    """The tree as JSON takes it, its arrays added to `arrays`; ValueError, saying where, for what cannot be kept."""
    if depth > DEEPEST:
        raise ValueError(f"{where.split('[')[0]} contains itself, or is nested more than {DEEPEST} deep.")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if is_tensor(value):
        array, name = array_of_tensor(value, where)
        arrays.append(array)
        return {"tensor": [len(arrays) - 1, name]}
    if isinstance(value, Array):
        arrays.append(on_cpu(value.numbers))
        return {"of format": [len(arrays) - 1, _arithmetic_texts(value.arithmetic, where)]}
    value = on_cpu(value)
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError(f"{where} is a masked array, whose mask a file would lose; save its data and its mask.")
        if array.dtype.kind not in KINDS or not array.dtype.isnative:
            raise ValueError(f"{where} is an array of {array.dtype}; a file holds numbers in the machine's byte order.")
        arrays.append(array)
        return {"array" if isinstance(value, np.ndarray) else "scalar": len(arrays) - 1}
    if isinstance(value, Mapping):
        pairs = [
            [encode(key, arrays, where), encode(x, arrays, f"{where}[{key!r}]", depth + 1)] for key, x in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, list | tuple):
        items = [encode(x, arrays, f"{where}[{number}]", depth + 1) for number, x in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    raise ValueError(
        f"{where} is a {type(value).__name__}; a file holds dicts, lists, tuples, arrays, numbers, text and None."
    )


def decode(tree: Any, arrays: Sequence[NDArray]) -> Any:
    """The value that `encode` made a tree of."""
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "tensor":
        return restore_tensor(arrays[content[0]], content[1])
    if kind == "of format":
        return _formatted_array(arrays[content[0]], content[1])
    if kind == "dict":
        return {decode(key, arrays): decode(x, arrays) for key, x in content}
    items = [decode(x, arrays) for x in content]
    return tuple(items) if kind == "tuple" else items


def _arithmetic_texts(arithmetic: ArrayArithmetic, where: str) -> dict[str, Any]:
    """Return the options of an array as JSON values."""
    accumulate, stream = arithmetic.accumulate, arithmetic.stream
    if isinstance(stream, GivenBits):
        raise ValueError(f"{where} takes its random bits from GivenBits, which a file does not hold; give a BitStream.")
    texts = {"format": repr(arithmetic.format), "rounding": str(arithmetic.rounding)}
    return texts | {
        "accumulate": None if accumulate is None else text_of("accumulate", accumulate),
        "stream": None if stream is None else stream.state,
        "complex_products": arithmetic.complex_products,
    }


def _formatted_array(numbers: NDArray, texts: dict[str, Any]) -> Array:
    """Return the array with these numbers and the options that `_arithmetic_texts` wrote."""
    accumulate, stream = texts["accumulate"], texts["stream"]
    arithmetic = as_arithmetic(
        parse(texts["format"]),
        texts["rounding"],
        None if accumulate is None else parse(accumulate),
        None if stream is None else BitStream.from_state(stream),
        texts["complex_products"],
    )
    return array_of_format(np.array(numbers), arithmetic)
