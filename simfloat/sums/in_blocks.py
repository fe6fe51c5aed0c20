"""Sums of more numbers than fit into memory, read block by block."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic import round as round_numbers
from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.machines import device_of, is_on_gpu, on_cpu
from simfloat.common import check_count, check_flags
from simfloat.environment import in_usual_environment
from simfloat.formats import as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exceptions import INVALID
from simfloat.formats.rounding import RoundingLike, as_rounding
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.blocked import Blocked, SumOfLanes
from simfloat.sums.exact import exact
from simfloat.sums.one_format import Kahan, Pairwise, pairwise
from simfloat.sums.product import refuse_rounding, sum
from simfloat.sums.sequential import as_accumulator
from simfloat.sums.trees import LANES, LARGEST_UNCUT, NumPySum

#: A function that sums an array with an accumulator; sums start from `initial` if it is not None.
Add = Callable[..., NDArray[np.floating]]


@in_usual_environment
def sum_blocks(
    x: NDArray | Iterable[ArrayLike],
    *,
    accumulate: Accumulator | FormatLike,
    inputs: FormatLike | None = None,
    output: FormatLike | None = None,
    rounding: RoundingLike | None = None,
    stream: Stream | None = None,
    block: int = 1 << 20,
    flags: bool = False,
) -> Any:
    """Sum a memory map, or an iterable of arrays, with the bits of :func:`simfloat.sum` of all numbers at once.

    Numbers are read in blocks. Between two blocks, only the partial sum is stored: one number; for `pairwise` and
    `numpy_sum` one for each level of the tree; for `lanes` one for each lane; for `exact` the exact sum.

    Some sums cannot be interrupted: `kahan`, `library_sum`, `tree`, `numpy_sum` of an iterable (its order depends on
    the number of terms), and `blocked` and `lanes` with one of these as `outer`. All numbers are then read at
    once.

    With stochastic rounding every block is a call of the stream, so the random bits depend on the blocks.

    Parameters:
        x: a vector such as a ``np.memmap``, or an iterable of vectors, which are summed one after the other.
        accumulate: an accumulator, or a format, which means `sequential(format)`.
        inputs: a format that numbers are first rounded to; by default none.
        output: the format of the result; by default the format of the accumulator.
        rounding: the mode in which the sum is rounded to `output`; by default to nearest even.
        stream: the random bits of stochastic modes.
        block: the number of elements of a vector that are read at a time.
        flags: True to return the IEEE exceptions of all additions as well, as :func:`simfloat.sum` does. A second then
            suffices for some thousand additions of `kahan`, `tree` and `numpy_sum`, and for far more of other sums.

    Returns:
        The sum, a 0-dimensional float64 array. With ``flags=True`` a pair: the sum, and its exceptions, a 0-dimensional
        uint8 array.

    Raises:
        ValueError: if x or one of its arrays is not a vector, or `block` is not a positive integer.
        ValueError: for the options that :func:`simfloat.sum` rejects.

    Examples:
        >>> path = folder / "numbers.bin"
        >>> np.ones(100_000, np.float32).tofile(path)
        >>> sf.sum_blocks(np.memmap(path, np.float32), accumulate=sf.pairwise(sf.FP32), block=4096)
        array(100000.)
        >>> sf.sum_blocks((np.ones(500) for _ in range(10)), accumulate=sf.FP16)
        array(2048.)
        >>> sf.sum_blocks((np.ones(500) for _ in range(10)), accumulate=sf.FP16, flags=True)  # inexact
        (array(2048.), array(1, dtype=uint8))
    """
    check_count("block", block)
    check_flags(flags=flags)
    order = as_accumulator(accumulate)
    if inputs is not None:
        order = order.for_inputs(as_format(inputs), as_format(inputs))
    format = order.result if output is None else as_format(output)
    if format is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    if rounding is not None and format == order.result:
        refuse_rounding(order, as_rounding(rounding))

    if flags:  # reject the options that a sum with flags rejects, with the same messages
        sum([], accumulate=order, inputs=inputs, output=format, rounding=rounding, stream=stream, flags=True)
    raised = np.zeros((), np.uint8)

    def add(numbers: NDArray, order: Accumulator = order, **options: Any) -> NDArray[np.floating]:
        is_stochastic = any(mode.is_stochastic for mode in order.roundings)
        options |= {"accumulate": order, "stream": stream if is_stochastic else None}
        if not flags:
            return sum(numbers, **options)
        add_with_flags = _sum_with_flags if is_stochastic else _sum_side_by_side
        total, of_total = add_with_flags(numbers, **options)
        raised[...] |= np.bitwise_or.reduce(of_total, axis=None)
        return total

    # A call of `sum` counts the steps of a stochastic sum from its first term, so blocks cannot have the draws of one
    # call. Each block is the next call of the stream instead.
    partial = _partial_sum(order, add, inputs)
    if partial is not None:
        for numbers in _blocks(x, block):
            partial.add(numbers)
        total = partial.total()
    elif _is_array(x) and isinstance(order, NumPySum):
        total = _sum_in_numpys_order(order, _as_vector(x), max(block, LARGEST_UNCUT), add, inputs)
    else:
        numbers = _as_vector(x) if _is_array(x) else np.concatenate([np.zeros(0), *map(_as_vector, x)])
        total = add(numbers, inputs=inputs)
    if output is not None or isinstance(total, Fraction):
        mode = nearest_even if rounding is None else rounding
        if flags:
            of_result = round_numbers(total, format, mode, flags=True)[1]
            raised |= of_result | np.uint8(INVALID * (partial is not None and partial.is_invalid))
        total = round_numbers(total, format, mode, stream=stream)
    results = (np.asarray(total, np.float64), raised)
    if is_on_gpu(x):
        results = (device_of(x).to_device(results[0]), device_of(x).to_device(raised))
    return results if flags else results[0]


def _sum_with_flags(numbers: NDArray, **options: Any) -> tuple[NDArray[np.floating], NDArray[np.uint8]]:
    """Return the sums and their flags, as `sum` computes them."""
    pair: Any = sum(numbers, **options, flags=True)
    return pair


def _sum_side_by_side(
    numbers: NDArray, accumulate: Accumulator, axis: int = 0, initial: NDArray | None = None, **options: Any
) -> tuple[NDArray[np.floating], NDArray[np.uint8]]:
    """Return the sums and their flags of a deterministic accumulator, in fewer calls of operations.

    The steps of a sum with flags are operations on arrays, with an element for each sum. A long sum is therefore cut
    into pieces, about as many as a piece has terms. Fast sums without flags compute the start values of the pieces. A
    pairwise sum is computed level by level.
    """
    options["accumulate"] = accumulate
    numbers = np.moveaxis(numbers, axis, 0)
    if isinstance(accumulate, Pairwise) and len(numbers) > 2 and initial is None:
        even = len(numbers) - len(numbers) % 2
        pairs, raised = _sum_with_flags(numbers[:even].reshape(-1, 2, *numbers.shape[1:]), axis=1, **options)
        if even < len(numbers):
            last, of_last = _sum_with_flags(numbers[even:], axis=0, **options)
            pairs, raised = np.concatenate([pairs, last[np.newaxis]]), np.append(raised, of_last)
        options["inputs"] = None
        total, of_total = _sum_side_by_side(pairs, **options)
        return total, np.append(raised, of_total)
    chunk = accumulate.chunk
    if chunk is None or not _can_continue(accumulate):
        return _sum_with_flags(numbers, axis=0, initial=initial, **options)
    size = chunk * max(1, math.isqrt(len(numbers)) // chunk)
    count = len(numbers) // size
    if count < 2:
        return _sum_with_flags(numbers, axis=0, initial=initial, **options)
    pieces = numbers[: count * size].reshape(count, size, *numbers.shape[1:])
    starts = [np.zeros(numbers.shape[1:]) if initial is None else np.asarray(initial)]
    for piece in pieces:
        starts.append(np.asarray(sum(piece, axis=0, initial=starts[-1], **options)))
    _, raised = _sum_with_flags(pieces, axis=1, initial=np.stack(starts[:-1]), **options)
    total, of_rest = _sum_with_flags(numbers[count * size :], axis=0, initial=starts[-1], **options)
    return total, np.append(raised, of_rest)


def _is_array(x: Any) -> bool:
    """Return True for one vector, also for a list of numbers, and False for an iterable of vectors."""
    if isinstance(x, list | tuple):
        return all(np.ndim(one) == 0 for one in x)
    return hasattr(x, "__array__") or not isinstance(x, Iterable)


def _as_vector(x: Any) -> NDArray:
    vector = np.asanyarray(on_cpu(x) if is_on_gpu(x) else x)
    if vector.ndim != 1:
        raise ValueError(f"sum_blocks reads vectors, got an array of shape {vector.shape}.")
    return vector


def _blocks(x: Any, size: int) -> Iterator[NDArray]:
    """Yield the numbers in blocks of at most `size`."""
    for vector in [_as_vector(x)] if _is_array(x) else map(_as_vector, x):
        for start in range(0, len(vector), size):
            # A copy: the system can then release the pages of a memory map.
            yield np.array(vector[start : start + size])


class _PartialSum(ABC):
    """A sum in progress. It adds pieces of which the length is a multiple of `multiple`, and the rest at the end."""

    multiple = 1

    def __init__(self, add: Add, inputs: FormatLike | None) -> None:
        self.sum, self.inputs, self.rest = add, inputs, np.zeros(0)

    def add(self, numbers: NDArray) -> None:
        """Add further numbers."""
        numbers = np.concatenate([self.rest, numbers]) if len(self.rest) else numbers
        whole = len(numbers) - len(numbers) % self.multiple
        self.rest = numbers[whole:]
        if whole:
            self.add_whole(numbers[:whole])

    @abstractmethod
    def add_whole(self, numbers: NDArray) -> None:
        """Add numbers, of which there are a multiple of `multiple`."""

    @abstractmethod
    def total(self) -> Any:
        """Return the sum of all numbers."""

    @property
    def is_invalid(self) -> bool:
        """True if an addition was invalid and its flags do not show it."""
        return False


class _ContinuedSum(_PartialSum):
    """A sum of an accumulator that can start from a partial sum."""

    def __init__(self, order: Accumulator, *options: Any) -> None:
        super().__init__(*options)
        self.multiple = order.chunk or 1
        self.partial: NDArray | None = None

    def add_whole(self, numbers: NDArray) -> None:
        self.partial = self.sum(numbers, inputs=self.inputs, initial=self.partial)

    def total(self) -> Any:
        return (
            self.partial
            if self.partial is not None and not len(self.rest)
            else self.sum(self.rest, inputs=self.inputs, initial=self.partial)
        )


#: Number of terms of the subtrees of a pairwise sum that are summed at once: a power of two.
SUBTREE = 1 << 16


class _SumOfNeighbours(_PartialSum):
    """A pairwise sum: the sums of complete subtrees are added when there are two of one size."""

    def __init__(self, order: Pairwise, *options: Any) -> None:
        super().__init__(*options)
        self.multiple = SUBTREE
        self.levels: list[tuple[int, NDArray]] = []

    def add_whole(self, numbers: NDArray) -> None:
        for subtree in numbers.reshape(-1, SUBTREE):
            self._push(0, self.sum(subtree, inputs=self.inputs))

    # As in a binary counter: two subtrees of one size are joined as soon as both are complete.
    def _push(self, level: int, value: NDArray) -> None:
        while self.levels and self.levels[-1][0] == level:
            level, value = level + 1, self.sum(np.stack([self.levels.pop()[1], value]))
        self.levels.append((level, value))

    def total(self) -> Any:
        values = [value for _, value in self.levels]
        if len(self.rest) or not values:
            values.append(self.sum(self.rest, inputs=self.inputs))
        # An odd last sum is carried up unchanged, so the smallest subtrees are joined first, each to the one before.
        total = values.pop()
        while values:
            total = self.sum(np.stack([values.pop(), total]))
        return total


class _SumInLanes(_PartialSum):
    """A sum in lanes: the partial sum of every lane is a column."""

    def __init__(self, order: SumOfLanes, *options: Any) -> None:
        super().__init__(*options)
        self.order = order
        self.partial: NDArray | None = None
        self.multiple = order.count * (order.inner.chunk or 1)

    def add_whole(self, numbers: NDArray) -> None:
        rows = numbers.reshape(-1, self.order.count)
        self.partial = self.sum(rows, self.order.inner, axis=0, inputs=self.inputs, initial=self.partial)

    def total(self) -> Any:
        if self.partial is None:  # also if there are fewer numbers than lanes
            return self.sum(self.rest, inputs=self.inputs)
        # The first lanes have one number more than the others, so they are summed by another call.
        rows, longer = divmod(len(self.rest), self.order.count)
        whole = self.rest[: rows * self.order.count].reshape(rows, self.order.count)
        last = self.rest[rows * self.order.count :][np.newaxis]
        columns = [(np.concatenate([whole[:, :longer], last]), self.partial[:longer])] if longer else []
        columns.append((whole[:, longer:], self.partial[longer:]))
        sums = [self.sum(x, self.order.inner, axis=0, inputs=self.inputs, initial=start) for x, start in columns]
        return self.sum(np.concatenate(sums), self.order.outer)


class _SumInRuns(_PartialSum):
    """A sum of runs: their results are summed by the outer accumulator."""

    def __init__(self, order: Blocked, outer: _PartialSum, *options: Any) -> None:
        super().__init__(*options)
        self.inner, self.outer, self.multiple = order.inner, outer, order.size

    # Complete runs are rows, which one call sums; their results are numbers of the outer sum.
    def add_whole(self, numbers: NDArray) -> None:
        runs = numbers.reshape(-1, self.multiple)
        self.outer.add(self.sum(runs, self.inner, axis=1, inputs=self.inputs))

    def total(self) -> Any:
        if len(self.rest):
            self.outer.add(self.sum(self.rest, self.inner, inputs=self.inputs).reshape(1))
        return self.outer.total()


class _ExactSum(_PartialSum):
    """An exact sum, as an integer multiple of the smallest number of float64."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.units, self.special = 0, 0.0
        self.has_nan = False  # whether a term is NaN

    def add_whole(self, numbers: NDArray) -> None:
        x = np.asarray(numbers if self.inputs is None else round_numbers(numbers, self.inputs), np.float64)
        finite = np.isfinite(x)
        if not finite.all():
            self.has_nan |= bool(np.isnan(x).any())
            with np.errstate(invalid="ignore"):
                self.special += float(x[~finite].sum())
            x = x[finite]
        # A number is an integer of 53 bits times 2^(exponent - 53). Sums of halves of 26 bits do not overflow int64 for
        # blocks of fewer than 2^36 numbers.
        significands, exponents = np.frexp(x)
        for exponent in np.unique(exponents):
            integers = np.ldexp(significands[exponents == exponent], 53).astype(np.int64)
            high, low = int((integers >> 26).sum()), int((integers & (1 << 26) - 1).sum())
            self.units += ((high << 26) + low) << (int(exponent) + 1073)

    @property
    def is_invalid(self) -> bool:
        """True if infinities of both signs were added."""
        return math.isnan(self.special) and not self.has_nan

    def total(self) -> Any:
        return Fraction(self.units, 1 << 1126) if self.special == 0 else np.float64(self.special)


def _partial_sum(order: Accumulator, add: Add, inputs: FormatLike | None) -> _PartialSum | None:
    """Return a sum in progress from zero; None if the sum cannot be interrupted."""

    def add_in_order(numbers: NDArray, how: Accumulator = order, **options: Any) -> NDArray[np.floating]:
        return add(numbers, how, **options)

    options = add_in_order, inputs
    if order == exact:
        return _ExactSum(*options)
    if _can_continue(order):
        return _ContinuedSum(order, *options)
    if isinstance(order, Pairwise):
        return _SumOfNeighbours(order, *options)
    if isinstance(order, SumOfLanes) and _can_continue(order.inner):
        return _SumInLanes(order, *options)
    if isinstance(order, Blocked) and (outer := _partial_sum(order.outer, add, None)) is not None:
        return _SumInRuns(order, outer, *options)
    return None


def _can_continue(order: Accumulator) -> bool:
    """Return True if the partial sum is one number from which a sum can continue; Kahan's correction is another."""
    # Kahan's sum cannot be continued from two numbers either: no term gives the next sum a correction to start from.
    outer = order
    while isinstance(outer, Blocked):
        outer = outer.outer
    return outer.chunk is not None and not isinstance(outer, Kahan)


def _sum_in_numpys_order(order: NumPySum, x: NDArray, block: int, add: Add, inputs: FormatLike | None) -> NDArray:
    """Sum a vector of known length: it is halved as NumPy does."""
    if len(x) <= block:
        return add(np.array(x), order, inputs=inputs)
    # The halves of NumPy's order begin at multiples of its eight lanes, and sums of up to 128 numbers are not halved.
    middle = len(x) // 2 - len(x) // 2 % LANES
    halves = [_sum_in_numpys_order(order, part, block, add, inputs) for part in (x[:middle], x[middle:])]
    return add(np.stack(halves), pairwise(order.format, order.rounding))
