"""Orders of additions as texts, and as programs for the loops that carry them out.

A text is a sum from left to right whose operands are the numbers of terms and sums in brackets, ``0 + 1 + (2 + 3)``;
of a long run of terms at equal distances only the first two and the last are written, ``0 + 1 + ... + 63``.

Between texts and programs an order is a list in postfix form: numbers of terms, and ADD after both operands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from simfloat.checks import is_integer

#: In a list in postfix form: the sum of the two operands before it.
ADD = -1

#: The longest run of terms that is written whole.
LONGEST_RUN = 8


#: ADD among nested tuples, where -1 would be a term that there is not.
_ADD = object()


def as_postfix(nesting: Any) -> list[int]:
    """The postfix form of an order: nested tuples or lists of terms, added from left to right, or a text.

    Raises ValueError unless every term from 0 to the largest occurs once.
    """
    nesting = getattr(nesting, "text", nesting)  # a tree of simfloat.reveal has one
    postfix = _flatten_nesting(_read(nesting) if isinstance(nesting, str) else nesting)
    terms = sorted(k for k in postfix if k != ADD)
    wrong = next((n for n, k in enumerate(terms) if k != n), None)
    if wrong is not None:
        fault = f"term {terms[wrong]} twice" if terms[wrong] < wrong else f"no term {wrong}"
        raise ValueError(f"A tree adds every term from 0 to the largest once; {_shorten_text(nesting)} has {fault}.")
    return postfix


def text_of(postfix: Sequence[int]) -> str:
    """The text of an order."""
    sums: list[list[int | str]] = []
    for k in postfix:
        if k == ADD:
            right = sums.pop()
            sums[-1].append(right[0] if len(right) == 1 else f"({join_operands(right, ' + ')})")
        else:
            sums.append([k])
    return join_operands(sums[0], " + ")


def program_of(postfix: Sequence[int]) -> list[int]:
    """An order for a loop with a stack: k >= 0 lays term k on it; -1 - k adds the upper two sums, and says that the
    right one of them begins with term k, whose draw the addition takes.

    Of two sums the one that needs more room comes first, so that for n terms log2(n) + 2 places suffice.
    """
    waiting: list[tuple[int, int, list[int]]] = []  # places that a sum needs, its first term, its program
    for k in postfix:
        if k != ADD:
            waiting.append((1, k, [k]))
            continue
        right_need, begins, right = waiting.pop()
        left_need, first, left = waiting.pop()
        most, code = max(right_need, left_need, min(right_need, left_need) + 1), left
        # Sethi and Ullman's order: while the second sum is made, the first one takes a single place. A draw
        # belongs to a term, not to a step, so the order in which sums are made changes no bit.
        if right_need > left_need:
            right.extend(left)
            code = right
        else:
            code.extend(right)
        code.append(-1 - begins)
        waiting.append((most, first, code))
    return waiting[0][2]


def join_operands(parts: Sequence[int | str], sign: str) -> str:
    """Operands with a sign between them; of a long run of terms at equal distances only the first two and the last."""
    shown: list[str] = []
    start = 0
    while start < len(parts):
        stop = _end_of_run(parts, start)
        run = [str(part) for part in parts[start:stop]]
        shown += run if len(run) <= LONGEST_RUN else [*run[:2], "...", run[-1]]
        start = stop
    return sign.join(shown)


def _end_of_run(parts: Sequence[int | str], start: int) -> int:
    """Where the run of terms at equal distances that begins at `start` ends."""
    stop = start + 1
    while stop < len(parts):
        near, here = parts[stop - 1], parts[stop]
        if not isinstance(near, int) or not isinstance(here, int):
            break
        first, second = parts[start], parts[start + 1]
        assert isinstance(first, int) and isinstance(second, int)
        if here - near != second - first:
            break
        stop += 1
    return stop


def _flatten_nesting(nesting: Any) -> list[int]:
    """The postfix form of nested tuples."""
    postfix: list[int] = []
    # A stack of our own: an order from left to right may be nested deeper than Python's recursion goes.
    waiting: list[Any] = [nesting]
    while waiting:
        part = waiting.pop()
        if is_integer(part, 0) or part is _ADD:
            postfix.append(ADD if part is _ADD else int(part))
        elif isinstance(part, tuple | list) and part:
            waiting.extend(reversed([part[0], *(x for other in part[1:] for x in (other, _ADD))]))
        else:
            raise ValueError(
                f"The order of a tree's additions is nested tuples of the numbers of its terms, ((0, 1), (2, 3)), or a "
                f"text such as '0 + 1 + (2 + 3)'; got {_shorten_text(part)}."
            )
    return postfix


def _read(text: str) -> list[Any]:
    """The nested lists that a text means."""
    sums: list[list[Any]] = [[]]
    wants_operand = True
    for part in re.findall(r"\d+|\.\.\.|\S", text):
        if wants_operand and part == "(":
            sums.append([])
        elif wants_operand and (part.isdigit() or part == "..."):
            sums[-1].append(int(part) if part.isdigit() else ...)
            wants_operand = False
        elif part == "+" and not wants_operand:
            wants_operand = True
        elif part == ")" and not wants_operand and len(sums) > 1:
            inside = sums.pop()
            sums[-1].append(_fill_dots(inside, text))
        else:
            raise _reading_error(text, f"{part!r} at a place where it means nothing")
    if wants_operand or len(sums) > 1:
        raise _reading_error(text, "an end where more is expected")
    return _fill_dots(sums[0], text)


def _fill_dots(operands: list[Any], text: str) -> list[Any]:
    """The operands with what three dots among them stand for."""
    whole: list[Any] = []
    for n, operand in enumerate(operands):
        if operand is not ...:
            whole.append(operand)
            continue
        around = [*operands[max(n - 2, 0) : n], *operands[n + 1 : n + 2]]
        if len(around) != 3 or not all(is_integer(k) for k in around):
            raise _reading_error(text, "three dots that do not stand between two terms and one")
        first, second, last = around
        if first == second or (last - second) % (second - first):
            raise _reading_error(text, f"no run from {first} and {second} to {last}")
        whole.extend(range(2 * second - first, last, second - first))
    return whole


def _reading_error(text: str, fault: str) -> ValueError:
    more = " What is added at once, in square brackets, is a fused sum: sf.fused." if "[" in text else ""
    return ValueError(
        f"The order of a tree's additions reads like '0 + 1 + (2 + 3)' or '0 + 1 + ... + 63'; {_shorten_text(text)} has "
        f"{fault}.{more}"
    )


def _shorten_text(nesting: object) -> str:
    text = repr(nesting)
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-30:]}"
