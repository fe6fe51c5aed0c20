"""Sums in custom orders and in the order of NumPy, orders as texts and programs, and the table of all orders.

**Texts.** A text is a sum from left to right. Its operands are indices of terms and sums in brackets, such as ``0 + 1
+ (2 + 3)``. In a long run of equally spaced terms only the first two and the last are written: ``0 + 1 + ... + 63``.
Programs are the form that loops execute. Between text and program, an order is a list in postfix form: indices of
terms, and ADD after both operands.

**The table** lists the orders of summation that consist of a format and a rounding mode. The self-test, `simfloat
warmup` and `reveal` go through all of them.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import CPU
from simfloat.arithmetic.operations import compute_in_thread
from simfloat.arithmetic.target import Target, check_precision
from simfloat.common import is_integer
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums.accumulator import Accumulator, Around, Engine, Region
from simfloat.sums.bounds import Bounds, format_bounds
from simfloat.sums.one_format import (
    MOST_CACHED_TERMS,
    InOneFormat,
    InTreeOrder,
    RoundedProducts,
    TreeLoop,
    joined_programs,
    kahan,
    pairwise,
    sum_few_long_ones,
    sum_in_numpys_order,
)
from simfloat.sums.operands import BOUNDS_OF_ONES, OperandBounds, Problem
from simfloat.sums.sequential import sequential

#: In a list in postfix form: add the two operands before it.
ADD = -1

#: The longest run of terms that is written in full.
LONGEST_RUN = 8


#: Marks an addition among nested tuples; -1 could be mistaken for an index.
_ADD = object()


def as_postfix(nesting: Any) -> list[int]:
    """Return the postfix form of an order: nested tuples or lists of terms, added from left to right, or a text.

    Raises ValueError unless every term from 0 to the largest occurs once.
    """
    nesting = getattr(nesting, "text", nesting)  # the trees of simfloat.reveal have a text
    postfix = _flatten_nesting(_read(nesting) if isinstance(nesting, str) else nesting)
    terms = sorted(k for k in postfix if k != ADD)
    wrong = next((n for n, k in enumerate(terms) if k != n), None)
    if wrong is not None:
        fault = f"term {terms[wrong]} twice" if terms[wrong] < wrong else f"no term {wrong}"
        raise ValueError(f"A tree adds every term from 0 to the largest once; {_shorten_text(nesting)} has {fault}.")
    return postfix


def text_of(postfix: Sequence[int]) -> str:
    """Return the text of an order."""
    sums: list[list[int | str]] = []
    for k in postfix:
        if k == ADD:
            right = sums.pop()
            sums[-1].append(right[0] if len(right) == 1 else f"({join_operands(right, ' + ')})")
        else:
            sums.append([k])
    return join_operands(sums[0], " + ")


def program_of(postfix: Sequence[int]) -> list[int]:
    """Return an order as a program for a loop with a stack.

    A code k >= 0 pushes term k. A code -1 - k adds the upper two sums; k is the first term of the right one, and the
    addition uses its draw. The sum that needs more stack is computed first, so that log2(n) + 2 entries suffice for n
    terms.
    """
    waiting: list[tuple[int, int, list[int]]] = []  # the stack that a sum needs, its first term, its program
    for k in postfix:
        if k != ADD:
            waiting.append((1, k, [k]))
            continue
        right_need, begins, right = waiting.pop()
        left_need, first, left = waiting.pop()
        most, code = max(right_need, left_need, min(right_need, left_need) + 1), left
        # Sethi and Ullman's order: while the second sum is computed, the first one occupies a single entry. A draw
        # belongs to a term, not to a step, so the order of computation changes no bit.
        if right_need > left_need:
            right.extend(left)
            code = right
        else:
            code.extend(right)
        code.append(-1 - begins)
        waiting.append((most, first, code))
    return waiting[0][2]


def join_operands(parts: Sequence[int | str], sign: str) -> str:
    """Join operands with a sign; of a long run of equally spaced terms only the first two and the last are written."""
    shown: list[str] = []
    start = 0
    while start < len(parts):
        stop = _end_of_run(parts, start)
        run = [str(part) for part in parts[start:stop]]
        shown += run if len(run) <= LONGEST_RUN else [*run[:2], "...", run[-1]]
        start = stop
    return sign.join(shown)


def _end_of_run(parts: Sequence[int | str], start: int) -> int:
    """Return the end of the run of equally spaced terms that begins at `start`."""
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
    """Return the postfix form of nested tuples."""
    postfix: list[int] = []
    # An explicit stack: an order from left to right may be nested deeper than Python's recursion limit.
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
    """Return the nested lists that a text means."""
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
            raise _reading_error(text, f"{part!r} at a position where it has no meaning")
    if wants_operand or len(sums) > 1:
        raise _reading_error(text, "an end where more is expected")
    return _fill_dots(sums[0], text)


def _fill_dots(operands: list[Any], text: str) -> list[Any]:
    """Return the operands with three dots replaced by the terms that they stand for."""
    whole: list[Any] = []
    for n, operand in enumerate(operands):
        if operand is not ...:
            whole.append(operand)
            continue
        around = [*operands[max(n - 2, 0) : n], *operands[n + 1 : n + 2]]
        if len(around) != 3 or not all(is_integer(k) for k in around):
            raise _reading_error(text, "three dots that are not between two terms and one")
        first, second, last = around
        if first == second or (last - second) % (second - first):
            raise _reading_error(text, f"no run from {first} and {second} to {last}")
        whole.extend(range(2 * second - first, last, second - first))
    return whole


def _reading_error(text: str, fault: str) -> ValueError:
    more = " Terms in square brackets, which are added at once, are a fused sum: sf.fused." if "[" in text else ""
    return ValueError(
        f"The order of a tree's additions reads like '0 + 1 + (2 + 3)' or '0 + 1 + ... + 63'; {_shorten_text(text)} "
        f"has {fault}.{more}"
    )


def _shorten_text(nesting: object) -> str:
    text = repr(nesting)
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-30:]}"


#: In the order of NumPy: the largest number of values that are not divided into halves, and the lanes that sum them.
LARGEST_UNCUT, LANES = 128, 8

#: The kinds of steps for which there is a loop for long sums in NumPy's order.
LONG_KINDS = ("native", "plain", "odd", "directed", "sticky", "converted")


def tree(nesting: Any, format: FormatLike, rounding: RoundingLike = nearest_even) -> TreeSum:
    """Round products to `format`, then add them in the order of a tree and round each sum to `format`.

    Parameters:
        nesting: the order of the additions. Nested tuples of the indices of products, such as ``((0, 1), (2, 3))``, in
            which a tuple of more than two is added from left to right; or a text such as ``"0 + 1 + (2 + 3)"`` or ``"0
            + 1 + ... + 63"``; or the `tree` that :func:`simfloat.reveal` found. All indices
            from 0 to the largest occur exactly once.
        format: the format of all operations, or its name.
        rounding: the mode of all operations; by default to nearest even.

    Returns:
        The accumulator, for sums of exactly this number of products.

    Raises:
        ValueError: if the order omits or repeats a product, or `format` or `rounding` is invalid.
        ValueError: if `format` has more than 50 bits of precision, except for FP64 in a deterministic mode.
        ValueError: when it is used for another number of products.

    Examples:
        >>> x = [2048.0, 1.0, 1.0, 1.0]
        >>> sf.sum(x, accumulate=sf.FP16), sf.sum(x, accumulate=sf.tree("0 + (1 + (2 + 3))", sf.FP16))
        (array(2048.), array(2052.))
    """
    return TreeSum(as_format(format), rounding=as_rounding(rounding), nesting=text_of(as_postfix(nesting)))


def numpy_sum(
    format: FormatLike, rounding: RoundingLike = nearest_even, *, products: FormatLike | None = None
) -> NumPySum:
    """Add products in the order of np.sum, and round each sum to `format`.

    This is the order of NumPy for contiguous values of one dtype. Fewer than 8 values are added one after the other. Up
    to 128 values are added in eight lanes that take every eighth value; the lanes are added as a tree, and remaining
    values after them. More values are divided into two halves, the left one a multiple of 8. The total is added to 0,
    so it is never -0.

    For axes other than the last one NumPy adds row by row, in the order of :func:`simfloat.sequential`. It sums FP16
    values in FP32: use ``numpy_sum(FP32, products=FP16)`` with results in FP16.

    The order is the one of NumPy 2.3 and later. NumPy 2.0 to 2.2 return other bits for some arrays of more than 8192
    values.

    Parameters:
        format: the format of the sums, or its name. Products are rounded to it first.
        rounding: the mode of all roundings; by default to nearest even.
        products: a format that products are rounded to before that, like the elements of an array a * b in NumPy; by
            default none. It cannot be combined with a stochastic mode.

    Returns:
        NumPySum: the accumulator.

    Raises:
        ValueError: if `format`, `rounding` or `products` is invalid.
        ValueError: if a format has more than 50 bits of precision, except for FP64 in a deterministic mode.
        ValueError: if `products` is given with a stochastic mode.

    Examples:
        >>> x = np.random.default_rng(0).standard_normal(8000).astype(np.float32)
        >>> sf.sum(x, accumulate=sf.numpy_sum(sf.FP32)) == np.sum(x)
        np.True_
        >>> half, in_half = x.astype(np.float16), sf.numpy_sum(sf.FP32, products=sf.FP16)
        >>> sf.dot(half, half, accumulate=in_half, output=sf.FP16) == np.sum(half * half)
        np.True_
    """
    mode, products = as_rounding(rounding), None if products is None else as_format(products)
    return NumPySum(as_format(format), rounding=mode, products=products)


@dataclass(frozen=True, repr=False)
class InProgramOrder(InTreeOrder):
    """A sum of products in the order of a program."""

    __hash__ = InOneFormat.__hash__

    @abstractmethod
    def order(self, terms: int) -> list[int]:
        """Return the order of the products in postfix form; index `terms` is the zero that sums start from."""

    def high(self, added: Bounds, terms: int, initial: Bounds | None) -> int:
        """Return an exponent that bounds all sums.

        Modes to nearest and toward zero at most double the contribution of a term. The other modes have the bounds of a
        chain.
        """
        outward = None if self.rounding.is_to_nearest or self.rounding.is_toward_zero else self.format
        return added.after_summation(terms, outward).high


@dataclass(frozen=True, repr=False)
class TreeSum(InProgramOrder):
    """See :func:`tree`."""

    nesting: str = field(kw_only=True)

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "tree"

    def engine(self, problem: Problem) -> Engine:
        """Return the loop, if there is an order for this number of products."""
        self.program(problem.depth)
        return super().engine(problem)

    def program(self, terms: int) -> NDArray[np.int64]:
        program = _program_of_nesting(self.nesting)
        if terms != (len(program) + 1) // 2:
            raise ValueError(
                f"The tree of {self} adds {(len(program) + 1) // 2} products, got {terms}. For sums of any length use "
                "pairwise, numpy_sum or sequential, or blocked and lanes with trees."
            )
        return program

    def order(self, terms: int) -> list[int]:
        return as_postfix(self.nesting)

    def _call(self, write: Callable[[Any], str]) -> str:
        rounding = "" if self.rounding == nearest_even else f", rounding={self.rounding!r}"
        return f"tree({self.nesting!r}, {write(self.format)}{rounding})"


@dataclass(frozen=True, repr=False)
class NumPySum(InProgramOrder):
    """See :func:`numpy_sum`."""

    products: Format | None = field(default=None, kw_only=True)

    __hash__ = InOneFormat.__hash__
    maker: ClassVar[str] = "numpy_sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.products is not None:
            check_precision(self.products, self.rounding, is_exact=True)
            if self.rounding.is_stochastic:
                raise ValueError(
                    f"products= of numpy_sum takes a deterministic rounding, got {self.rounding}: round the products "
                    "with sf.multiply and sum them with sf.sum."
                )

    def engine(self, problem: Problem) -> Engine:
        """Return the loop of the order, or the one for long sums; `products` are rounded first and summed like
        values."""
        if self.products is None:
            return self._engine_for_numbers(problem)
        rounded = problem.products.after_rounding(self.products, self.rounding)
        if not (self.products.has_nan or problem.products.finite):
            raise ValueError(
                f"{self} rounds products to {self.products}, which has no NaN, but these products may be infinite or "
                "NaN: pass finite operands."
            )
        numbers = OperandBounds(rounded, self.products, False)
        # Rounded products are summed like any other values: as products with ones.
        of_numbers = Problem(
            numbers,
            BOUNDS_OF_ONES,
            problem.depth,
            problem.output,
            problem.rounding,
            initial=None,
            device=problem.device,
        )
        engine = self._engine_for_numbers(of_numbers)
        target = Target(self.products, self.rounding, np.float64)
        return Around(engine, partial(_sum_rounded_products, target), carrier=np.float64, added_cost=1.0, stacks=False)

    def engine_for_all(self, a: Format, b: Format) -> Engine | None:
        """Return the loop of the hardware's own steps if the sum needs these and the dtype can represent all
        operands."""
        if self.products is not None or self.rounding != nearest_even or self.format not in (FP32, FP64):
            return None
        any_number = OperandBounds(format_bounds(self.format), self.format, self.format == FP32)
        in_type = self.format == FP64 or (a.fits_float32 and b.fits_float32)
        return (
            self._engine_for_numbers(Problem(any_number, any_number, LARGEST_UNCUT, self.format)) if in_type else None
        )

    def _engine_for_numbers(self, problem: Problem) -> Engine:
        """Return the engine for sums without the option `products`."""
        engine = super().engine(problem)
        if problem.device is not CPU or self.rounding.is_stochastic or not self.format.has_nan:
            return engine
        step, is_inside = engine, True  # if the hardware rounds, values are numbers of the format
        if not isinstance(engine, TreeLoop) or engine.kind != "native":
            rounded = OperandBounds(problem.products.after_rounding(self.format, self.rounding), self.format, True)
            step = super().engine(Problem(rounded, BOUNDS_OF_ONES, problem.depth, problem.output, problem.rounding))
            is_inside = problem.a.bounds.are_in_format(self.format)
        if not isinstance(step, TreeLoop) or step.kind not in LONG_KINDS:
            return engine
        products = RoundedProducts(self.format, self.rounding, step.carrier, is_inside)
        sum_up = partial(sum_few_long_ones, products, partial(sum_in_numpys_order, step, LARGEST_UNCUT))
        return Around(engine, sum_up, takes_ones=True)

    def program(self, terms: int) -> NDArray[np.int64]:
        return _program_of_numpy(terms)

    def order(self, terms: int) -> list[int]:
        return _postfix_of_numpy(terms)


def _sum_rounded_products(target: Target, engine: Engine, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
    """Round the products to a target first, and sum them like values."""
    ones = np.ones_like(a, engine.carrier, shape=(1, a.shape[1]))
    # Row by row: the products of all rows together would need as much memory as there are multiply-adds.
    for i in range(len(a)):
        terms = compute_in_thread("multiply", [a[i][:, np.newaxis], b], target)
        sums = np.zeros_like(out, engine.carrier, shape=(1, out.shape[1]))
        # The products are the left operand, as in simfloat.sum: the tile belongs to the transposed product.
        engine.run(ones, terms.astype(engine.carrier, copy=False), sums, region._replace(is_transposed=True))
        out[i] = sums[0]


@lru_cache(maxsize=64)
def _program_of_nesting(nesting: str) -> NDArray[np.int64]:
    return np.array(program_of(as_postfix(nesting)))


def _program_of_numpy(terms: int) -> NDArray[np.int64]:
    """Return the program of NumPy's order, in which the last step adds the total to 0; programs of long sums are not
    cached."""
    return (_cached_program if terms <= MOST_CACHED_TERMS else _build_program)(terms)


def _build_program(terms: int) -> NDArray[np.int64]:
    if not terms:
        return np.zeros(1, np.int64)
    programs: dict[int, tuple[NDArray[np.int64], int]] = {}
    inner, need = _program_of_numbers(terms, programs)
    # The zero has the index after the last term. Of two sums the one that needs more stack is computed first.
    zero, last = np.array([terms]), np.array([-1])
    return np.concatenate([inner, zero, last] if need > 1 else [zero, inner, last])


_cached_program = lru_cache(maxsize=64)(_build_program)


def _program_of_numbers(
    count: int, programs: dict[int, tuple[NDArray[np.int64], int]]
) -> tuple[NDArray[np.int64], int]:
    """Return the program for `count` values, and the stack that it needs.

    It equals the one of `program_of`. Halves of one length share their program.
    """
    if count in programs:
        return programs[count]
    if count <= LARGEST_UNCUT:
        program = np.array(program_of(numpys_order(0, count)))
        need = _stack_depth(program)
    else:
        middle = count // 2 - count // 2 % LANES
        (left, left_room), (right, right_room) = (
            _program_of_numbers(part, programs) for part in (middle, count - middle)
        )
        program = joined_programs(left, right, middle, swaps=right_room > left_room)
        need = max(left_room, right_room, min(left_room, right_room) + 1)
    programs[count] = program, need
    return program, need


def _stack_depth(program: NDArray[np.int64]) -> int:
    """Return the largest number of sums on the stack at once."""
    return int(np.cumsum(np.where(program >= 0, 1, -1)).max())


def _postfix_of_numpy(terms: int) -> list[int]:
    """Return NumPy's order; index `terms`, after the last term, is the zero that it starts from."""
    return [terms, *numpys_order(0, terms), ADD] if terms else [0]


def numpys_order(first: int, stop: int) -> list[int]:
    """Return NumPy's order of adding values `first` to `stop` - 1 in postfix form, as its C function `pairwise_sum`."""
    count = stop - first
    if count > LARGEST_UNCUT:
        # As in NumPy, n2 = n / 2; n2 -= n2 % 8: the left half consists of complete rounds of its eight lanes.
        middle = first + count // 2 - count // 2 % LANES
        return [*numpys_order(first, middle), *numpys_order(middle, stop), ADD]
    whole = count - count % LANES if count >= LANES else 0
    lanes = [_left_to_right(range(first + lane, first + whole, LANES)) for lane in range(LANES)] if whole else []
    while len(lanes) > 1:
        lanes = [[*left, *right, ADD] for left, right in zip(lanes[::2], lanes[1::2], strict=True)]
    tail = range(first + whole, stop)
    return [*lanes[0], *(x for k in tail for x in (k, ADD))] if lanes else _left_to_right(tail)


def _left_to_right(terms: range) -> list[int]:
    """Return the order that adds terms one after the other."""
    return [terms[0], *(x for k in terms[1:] for x in (k, ADD))]


class RoundedOrder(NamedTuple):
    """An order of summation, as a function of the format and the rounding mode of its sums."""

    make: Callable[[Format, Rounding], Accumulator]
    order: Literal["chain", "neighbours", "numpy"] = "chain"  # one after the other, or one of two kinds of trees
    compensates: bool = False  # True if its corrections may make sums look like sums in other formats and modes


def _with_rounded_products(format: Format, rounding: Rounding) -> Accumulator:
    return sequential(format, rounding, products=format)


#: The orders of summation. Among chains, the likely ones come first.
ROUNDED_ORDERS = (
    RoundedOrder(sequential),
    RoundedOrder(_with_rounded_products),
    RoundedOrder(kahan, compensates=True),
    RoundedOrder(pairwise, "neighbours"),
    RoundedOrder(numpy_sum, "numpy"),
)
