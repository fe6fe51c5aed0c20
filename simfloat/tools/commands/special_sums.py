"""Sums of special operands, which are the first cases of every unit that sums products.

Random operands rarely contain two special numbers that meet. A unit that returns a number for inf * 0 or for inf - inf
would therefore pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import simfloat as sf
from simfloat.tools.commands.operand_numbers import special_number

#: Each text describes a sum: its products at the first place, at the last place, at the last place of the first chunk
#: (`near`) and at all other places (`rest`, by default 1*1), the start `c` (by default 1), the first scale of a, and
#: the last scale of b. If a number is not of its format, the factors are exchanged, or the sum is left out.
SPECIAL_SUMS = (
    *("first:inf*0", "last:0*inf", "first:inf*1 near:-inf*1", "last:1*inf c:-inf", "first:-inf*1 last:1*inf"),
    *("first:nan*1", "last:1*nan", "c:nan", "last:inf*1", "c:inf"),
    *("first:0*nan rest:0*1 c:0", "last:nan*0 rest:1*0 c:0", "rest:max*max c:max", "rest:0*1 last:-0*1 c:-0"),
    *("scale_a:nan", "scale_b:nan rest:0*1 c:0"),
    *("first:0*-inf", "last:-inf*0", "first:1*-inf", "c:-inf", "rest:-max*max c:-max", "rest:-0*1 c:-0"),
)


def special_sums(
    kinds: Sequence[sf.Format], terms: int, chunk: int | None = None, block: int = 0, has_addend: bool = True
) -> list[NDArray[np.float64]]:
    """Return the operands of special sums: a, b, the scales of both if there are blocks, and c.

    `kinds` are the formats of these operands, and `chunk` is the number of products that a unit adds at once. Without
    an addend, sums start from +0.
    """
    sums = dict[bytes, list[NDArray[np.float64]]]()
    for text in SPECIAL_SUMS:
        fields = dict(field.split(":") for field in text.split())
        of_sum = _sum(fields, kinds, terms, chunk, block, has_addend)
        if of_sum is None:
            exchanged = {key: "*".join(value.split("*")[::-1]) for key, value in fields.items()}
            of_sum = _sum(exchanged, kinds, terms, chunk, block, has_addend)
        if of_sum is not None:
            sums.setdefault(b"".join(x.tobytes() for x in of_sum), of_sum)
    return [np.array(rows) for rows in zip(*sums.values(), strict=True)]


def _sum(
    fields: dict[str, str],
    kinds: Sequence[sf.Format],
    terms: int,
    chunk: int | None,
    block: int,
    has_addend: bool,
) -> list[NDArray[np.float64]] | None:
    """Return the operands of a special sum; None if a number is not of its format, or if two places are equal."""
    places = {"first": 0, "near": (2 if chunk is None else min(chunk, terms)) - 1, "last": terms - 1}
    named = [places[key] for key in fields if key in places]
    if len(set(named)) < len(named) or max(named, default=0) >= terms:
        return None
    products = [fields.get("rest", "1*1").split("*")] * terms
    for key in places.keys() & fields.keys():
        products[places[key]] = fields[key].split("*")
    rows = [[x for x, _ in products], [y for _, y in products]]
    blocks = -(-terms // block) - 1 if block else 0
    if block:
        rows += [[fields.get("scale_a", "1"), *["1"] * blocks], [*["1"] * blocks, fields.get("scale_b", "1")]]
    elif "scale_a" in fields or "scale_b" in fields:
        return None
    start = fields.get("c", "1")
    if not has_addend:
        if start in ("inf", "-inf", "nan"):
            return None
        start = "0"
    vectors = []
    for row, kind in zip([*rows, [start]], kinds, strict=True):
        numbers = {text: special_number(text, kind) for text in set(row)}
        if None in numbers.values():
            return None
        vectors.append(np.array([numbers[text] for text in row], np.float64))
    return [*vectors[:-1], vectors[-1][0]]
