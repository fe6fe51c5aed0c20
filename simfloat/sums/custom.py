"""Sums by a Python function of the user, for units that no other accumulator describes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.machines import on_cpu, write_back_to_device
from simfloat.arithmetic.operands import FloatType
from simfloat.common import check_count, message_text
from simfloat.formats import Format
from simfloat.formats.catalog import FormatLike, as_format
from simfloat.sums.accumulator import Accumulator, Engine, Region
from simfloat.sums.bounds import Bounds, format_bounds
from simfloat.sums.operands import Problem, first_outside_format

#: A function (a, b, start): it adds the products of two vectors to the sum so far, and returns the new sum.
SumFunction = Callable[[NDArray[np.float64], NDArray[np.float64], float], Any]


@dataclass(frozen=True, repr=False)
class CustomSum(Accumulator):
    """The accumulator that `custom` returns."""

    __hash__ = Accumulator.__hash__
    maker: ClassVar[str] = "custom"
    takes_initial: ClassVar[bool] = True

    function: SumFunction
    format: Format
    terms: int | None = None

    @property
    def result(self) -> Format:
        """The format of the sums."""
        return self.format

    @property
    def chunk(self) -> int | None:
        """The number of products of a call; None if one call adds all products of a sum."""
        return self.terms

    def sums(self, products: Bounds, terms: int) -> Bounds:
        """Return the bounds of the format, because the function may return any of its numbers."""
        return format_bounds(self.format)

    def engine(self, problem: Problem) -> Engine:
        """Return an engine that calls the function for each element."""
        return _FunctionEngine(self)

    @property
    def function_name(self) -> str:
        """The name of the function, for messages and for the text of the accumulator."""
        return getattr(self.function, "__name__", repr(self.function))

    def _text(self, name: str, write: Callable[[Any], str]) -> str:
        return self.function_name if name == "function" else super()._text(name, write)

    def _call(self, write: Callable[[Any], str]) -> str:
        return super()._call(write).replace(", None)", ")")


class _FunctionEngine(NamedTuple):
    """Call the function for each element of the result, in C order."""

    accumulator: CustomSum
    carrier: FloatType = np.float64
    cost: float = 1e-9  # one thread makes all calls, because Python runs one function at a time

    def run(self, a: NDArray, b: NDArray, out: NDArray, region: Region) -> None:
        left, right, sums = on_cpu(a), on_cpu(b).T, on_cpu(out)
        for row in range(len(sums)):
            results: list[float] = []  # of all calls: the next one starts from a result, so each must be of the format
            for column in range(sums.shape[1]):
                factors = (right[column], left[row]) if region.is_transposed else (left[row], right[column])
                results += self._results(*factors, float(sums[row, column]))
                sums[row, column] = results[-1] if len(a[row]) else sums[row, column]
            self._check(np.array(results, np.float64))
        write_back_to_device(sums, out)

    def _results(self, a: NDArray, b: NDArray, start: float) -> list[float]:
        """Return the result of each call for an element."""
        size, results = self.accumulator.terms or max(len(a), 1), list[float]()
        for first in range(0, len(a), size):
            chunk = slice(first, first + size)
            result = self.accumulator.function(a[chunk].copy(), b[chunk].copy(), start)
            try:
                start = float(result)
                is_exact = bool(start == result) or math.isnan(start)
            except (TypeError, ValueError, OverflowError):
                is_exact = False
            if not is_exact:
                text = f"{message_text(result)} of {type(result).__name__}"
                raise ValueError(f"{self.accumulator.function_name} must return one number of float64, got {text}.")
            results.append(start)
        return results

    def _check(self, results: NDArray) -> None:
        """Raise ValueError if a result is not a number of the format."""
        outside = first_outside_format(results, self.accumulator.format)
        if outside is not None:
            format, name = self.accumulator.format, self.accumulator.function_name
            raise ValueError(
                f"{name} must return numbers of {format}, got {results[outside]}: return "
                f"float(simfloat.round(total, simfloat.{format}, mode))."
            )


def custom(function: SumFunction, format: FormatLike, terms: int | None = None) -> CustomSum:
    """Create an accumulator that adds by your Python function, for a unit that no other accumulator describes.

    Each element of a result starts from its initial value, or from 0. A call ``function(a, b, start)`` adds the
    products of the vectors `a` and `b` to `start`, and returns the new sum. Only the function rounds. With `terms`, a
    call receives at most this many products, and the next call starts from its result, as in a unit that is narrower
    than the sum. The vectors are copies in float64, and `a` comes from the left operand. At the end of a sum they may
    be shorter than `terms`.

    Each call runs Python code, so these sums are slow: use them to test a unit, or in small models. `write_vectors`,
    policies, :func:`blocked` and :func:`lanes` accept the accumulator. A policy with it cannot be written to a file.

    Parameters:
        function: the function that adds; it returns a number of `format`, which depends only on its arguments.
        format: the format of the sums, with at most 53 bits of precision.
        terms: the largest number of products of a call, at least 1; by default all products of a sum.

    Returns:
        The accumulator.

    Raises:
        ValueError: if `function` cannot be called, or `format` or `terms` is invalid.
        ValueError: when a sum is computed, if the function does not return a number of `format`.

    Examples:
        This unit drops products below an eighth of the largest one:

        >>> def dropping(a, b, start):
        ...     products = a * b
        ...     large = np.abs(products) >= np.abs(products).max() / 8
        ...     return float(sf.round(start + products[large].sum(), sf.FP32))
        >>> sf.dot([1, 1, 1, 1], [8, 0.5, 4, 1], accumulate=sf.custom(dropping, sf.FP32))
        array(13.)
    """
    if not callable(function):
        raise ValueError(f"function must be a function (a, b, start) that returns the new sum, got {function!r}.")
    if terms is not None:
        check_count("terms", terms, 1)
    return CustomSum(function, as_format(format), terms)
