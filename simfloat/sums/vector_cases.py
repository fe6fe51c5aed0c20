"""The operations of test vectors: the kinds of the fields of a line, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic import functions, operations
from simfloat.arithmetic.bit_stream import GivenBits, Stream
from simfloat.arithmetic.catalog import FUNCTIONS, REPRESENTABLE
from simfloat.arithmetic.testfloat import (
    COMPARISONS,
    INVALID_RESULTS,
    SIMFLOAT_NAMES,
    Kind,
    Signature,
    compute_testfloat,
    signature_of,
    width_hint,
)
from simfloat.common import check_flags, did_you_mean, is_integer
from simfloat.environment import in_usual_environment
from simfloat.formats import FP32, FP64, Format, Rounding, as_format, nearest_even
from simfloat.formats.catalog import FormatLike
from simfloat.formats.exceptions import INVALID
from simfloat.formats.rounding import as_rounding
from simfloat.sums.accumulator import Accumulator
from simfloat.sums.by_operations import consists_of_operations
from simfloat.sums.exact import exact
from simfloat.sums.integers import FormatPair, as_formats
from simfloat.sums.product import matmul, refuse_rounding
from simfloat.sums.scales import Scales
from simfloat.sums.sequential import as_accumulator

#: The rows of simfloat's own operations, and the name of a sum of products.
OPERATIONS = FUNCTIONS | REPRESENTABLE
DOT = "dot"


class Case(NamedTuple):
    """The operation of a file: its name, the kinds of its fields, and its options."""

    operation: str
    kinds: tuple[Kind, ...]  # of the operands, and of the result
    rounding: Rounding = nearest_even  # of a sum, the mode of the rounding to its output
    signature: Signature | None = None  # of an operation of TestFloat
    accumulator: Accumulator | None = None  # of a sum
    flags: bool | None = None  # None for the default of the operation
    block: int = 0  # the products of a block with scales; 0 without scales
    wraps: bool = False  # True for an exact sum that is reduced modulo the range of its fixed-point format
    draws: int = 0  # the number of random draws of a case, which are its last operand
    invalid: str = "riscv"  # whose results invalid conversions to integers have

    @property
    def has_flags(self) -> bool:
        """True if lines have flags. By default, sums have flags only if each step is a rounded operation."""
        if self.flags is not None:
            return self.flags
        return self.accumulator is None or consists_of_operations(self.accumulator)

    @property
    def names(self) -> list[str]:
        """The names of the operands."""
        if self.block:
            names = ["a", "b", "scales a", "scales b", "c"]
        else:
            count = len(self.kinds) - 1 - bool(self.draws)
            names = ["a", "b", "c"][:count] if count > 1 else ["x"]
        return [*names, "draws"] if self.draws else names

    @property
    def compares(self) -> bool:
        """True for a comparison."""
        return self.signature is not None and self.signature.operation in COMPARISONS

    @property
    def reads_signalling(self) -> bool:
        """True if signalling NaN among the operands raise invalid (IEEE 754-2019, 5.5.1 and 7.2)."""
        return self.operation != "copysign"

    @property
    def rounds_sums(self) -> bool:
        """True if sums are rounded to another format than the accumulator's."""
        return self.accumulator is not None and self.kinds[-1] != self.accumulator.result

    def columns(self, fields: int) -> tuple[list[Kind], list[int]]:
        """Return the kinds of all operands and of the result in a line, and the number of columns of each operand."""
        if self.operation != DOT:
            return list(self.kinds), [1] * (len(self.kinds) - 1)
        terms = max((fields - 2 - self.draws) // 2, 0)
        if self.block:
            terms -= -(-terms // (self.block + 1))
        blocks = [-(-terms // self.block)] * 2 if self.block else []
        counts = [terms, terms, *blocks, 1, *([self.draws] if self.draws else [])]
        return [kind for kind, count in zip(self.kinds, [*counts, 1], strict=True) for _ in range(count)], counts

    def compute(self, operands: Sequence[NDArray], stream: Stream | None = None) -> tuple[NDArray, NDArray | None]:
        """Return results and flags; None for flags if the operation has none."""
        if self.draws:
            *operands, draws = operands
            stream = GivenBits(draws.astype(np.int64))
        if self.signature is not None:
            results, raised = compute_testfloat(self.signature, operands, self.rounding, stream, self.invalid)
            return results, raised if self.has_flags else None
        result = self.kinds[-1]
        assert isinstance(result, Format)
        if self.accumulator is None:
            pair: tuple[NDArray, NDArray] = _function(self.operation)(
                *operands, result, self.rounding, stream=stream, flags=True
            )
            return pair if self.has_flags else (pair[0], None)
        return self._sums(self.accumulator, operands, stream)

    def signal(
        self, results: NDArray, flags: NDArray | None, signalling: NDArray[np.bool_]
    ) -> tuple[NDArray, NDArray | None]:
        """Return results and flags with invalid, and NaN, in the cases with signalling NaN among their operands.

        A function whose operand is a quiet NaN may have a number as its result: the power 0, or hypot with infinity.
        """
        if not self.reads_signalling:
            return results, flags
        result = self.kinds[-1]
        if self.accumulator is None and isinstance(result, Format) and result.has_nan:
            results = np.where(signalling, results.dtype.type(np.nan), results)
        return results, None if flags is None else np.where(signalling, flags | np.uint8(INVALID), flags)

    def _sums(
        self, accumulator: Accumulator, operands: Sequence[NDArray], stream: Stream | None
    ) -> tuple[NDArray, NDArray | None]:
        """Return the sums of the products of rows, and their flags."""
        a, b, *scales, c = operands
        if self.wraps:
            return self._wrapped_sums(a, b, c), None
        if not accumulator.takes_initial and (c != 0).any():
            raise ValueError(f"{accumulator} has no partial sum that could start from c; pass zeros.")
        initial = c[:, np.newaxis, np.newaxis] if accumulator.takes_initial else None
        of_blocks: Any = Scales(scales[0][:, np.newaxis], scales[1][:, :, np.newaxis], self.block) if scales else None
        pair = matmul(
            a[:, np.newaxis, :], b[:, :, np.newaxis], inputs=(self.kinds[0], self.kinds[1]), accumulate=accumulator,
            output=self.kinds[-1], rounding=self.rounding if self.rounds_sums else None, scales=of_blocks,
            initial=initial, stream=stream, flags=self.has_flags,
        )  # fmt: skip
        sums, raised = pair if self.has_flags else (pair, None)
        return sums.reshape(-1), None if raised is None else raised.reshape(-1)

    def _wrapped_sums(self, a: NDArray, b: NDArray, c: NDArray) -> NDArray[np.float64]:
        """Return exact sums of products and start values, modulo the range of the result's fixed-point format."""
        left, right, *_, result = self.kinds
        assert isinstance(left, Format) and isinstance(right, Format) and isinstance(result, Format)
        terms = _whole_numbers(a, left) * _whole_numbers(b, right)
        shift = result.fraction_bits - left.fraction_bits - right.fraction_bits
        totals = terms.sum(axis=1) * 2**shift + _whole_numbers(c, result)
        low = int(result.min * 2.0**result.fraction_bits)
        wrapped = (totals - low) % 2**result.bits + low
        return wrapped.astype(np.float64) * 2.0**-result.fraction_bits

    def wrapping(self) -> Case:
        """Return this case for sums that wrap; ValueError if there is no such sum."""
        *_, result = self.kinds
        formats = [kind for kind in (*self.kinds[:2], result) if isinstance(kind, Format)]
        is_exact = self.accumulator == exact and all(format.is_fixed for format in formats)
        if not is_exact or formats[-1].special == "fixed_symmetric":
            raise ValueError(
                "wraps = true is for a 'dot' of fixed-point numbers with accumulate = \"exact\" and a fixed-point "
                'output that uses all codes, such as output = "fixed(16, symmetric=False)".'
            )
        left, right, last = (format.fraction_bits for format in formats)
        if left + right > last:
            raise ValueError(
                f"The products of this sum have {left + right} bits after the point, and {result} has {last}. A sum "
                "that wraps is not rounded: write an output with as many."
            )
        if self.flags:
            raise ValueError("A sum that wraps has no flags: leave flags = true out.")
        return self._replace(wraps=True)

    def with_invalid_results(self, variant: Any) -> Case:
        """Return the case with the results of RISC-V, Arm or x86 for invalid conversions to integers."""
        if not isinstance(variant, str) or variant not in INVALID_RESULTS:
            raise ValueError(f"invalid must be {', '.join(map(repr, INVALID_RESULTS))}, got {variant!r}.")
        if self.signature is None or not self.signature.is_to_integer:
            raise ValueError(
                "invalid= determines the results of invalid conversions to integers, such as 'f16_to_i32'; got "
                f"{self.operation!r}."
            )
        return self._replace(invalid=variant)

    def with_draws(self, terms: int) -> Case:
        """Return this case with draws as its last operand, if it rounds in a stochastic mode."""
        modes = (self.rounding, *(self.accumulator.roundings if self.accumulator else ()))
        bits = max(mode.bits for mode in modes)
        if not bits or self.compares:
            return self
        count = 1 if self.accumulator is None else self._draws_of_sum(terms)
        kind = np.dtype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)
        return self._replace(kinds=(*self.kinds[:-1], kind, self.kinds[-1]), draws=count)

    def _draws_of_sum(self, terms: int) -> int:
        """Return the number of draws that a sum takes."""
        stream = GivenBits(np.zeros(16 * (terms + 1), np.int64))
        ones = np.ones((1, terms))
        scales = [np.ones((1, -(-terms // self.block)))] * 2 if self.block else []
        try:
            self._replace(flags=False).compute([ones, ones, *scales, np.zeros(1)], stream)
        except ValueError as error:
            raise ValueError(
                "In vectors with draws, only the steps of a sum or only its rounding to output is stochastic, without "
                f"scales of blocks. {error}"
            ) from None
        return stream.taken


def _whole_numbers(x: NDArray, format: Format) -> NDArray[Any]:
    """Return fixed-point numbers as integers of any size, in units of their last place."""
    return np.round(x * 2.0**format.fraction_bits).astype(np.int64).astype(object)


@in_usual_environment
def case_of(
    operation: Any,
    format: FormatLike | tuple[FormatLike, FormatLike] | None,
    rounding: Any = None,
    output: FormatLike | None = None,
    accumulate: Accumulator | FormatLike | None = None,
    is_single: bool = False,
    flags: bool | None = None,
    blocks: tuple[int, FormatLike] | None = None,
) -> Case:
    """Read the description of an operation; ValueError if something is invalid or missing.

    `is_single` is True for roundings of FP32 numbers; by default they have FP64 operands.
    """
    if flags is not None:
        check_flags(flags=flags)
    if blocks is not None and operation != DOT:
        raise ValueError(f"Only 'dot' has scales of blocks; got {operation!r}.")
    if isinstance(format, tuple):
        if operation == "round" and accumulate is None and output is None:
            mode = nearest_even if rounding is None else as_rounding(rounding)
            return Case(operation, as_formats(format), mode, flags=flags)
        if operation != DOT or accumulate is None:
            raise ValueError(
                "Only 'round' has a pair of formats, of operands and results, and 'dot' with accumulate=, of a and b; "
                f"got ({', '.join(map(str, format))})."
                + " For an fma of other formats than that of the result, write 'dot' with one product: operands of "
                "shape (n, 1), and accumulate=sequential(format of c and of the result)." * (operation == "fma")
            )
        return _case_of_sums(as_formats(format), rounding, output, accumulate, flags, blocks)
    result_format = None if format is None else as_format(format)
    signature = signature_of(operation, result_format)
    if signature is not None:
        if signature.takes_format and result_format is None:
            raise ValueError(
                f"{operation!r} needs the format of its operands, such as FP16; 'f16_{operation}' names it itself."
            )
        _check_format(result_format, signature.kinds, operation)
        if rounding is not None and signature.rounding not in (None, as_rounding(rounding)):
            raise ValueError(f"{operation} names its rounding, {signature.rounding}; got {rounding} as well.")
        mode = signature.rounding or nearest_even if rounding is None else as_rounding(rounding)
        return Case(operation, signature.kinds, mode, signature, flags=flags)
    count = 3 if operation == DOT else operand_count(operation)
    if result_format is None:
        raise ValueError(
            f"read_vectors needs the format of {operation!r}: write read_vectors(path, {operation!r}, simfloat.FP16), "
            "or a name of TestFloat such as 'f16_add'."
        )
    mode = nearest_even if rounding is None else as_rounding(rounding)
    if (operation == DOT) != (accumulate is not None):
        raise ValueError("accumulate= is the accumulator of 'dot', which needs one; other operations have none.")
    if accumulate is not None:
        return _case_of_sums((result_format, result_format), rounding, output, accumulate, flags, blocks)
    of_operands = _format_of_operands(operation, result_format, is_single)
    return Case(operation, (*[of_operands] * count, as_format(output or result_format)), mode, flags=flags)


def _case_of_sums(
    formats: FormatPair,
    rounding: Any,
    output: FormatLike | None,
    accumulate: Accumulator | FormatLike,
    flags: bool | None,
    blocks: tuple[int, FormatLike] | None,
) -> Case:
    """Return the case of sums of products of numbers of two formats."""
    accumulator = as_accumulator(accumulate).for_inputs(*formats)
    if blocks is not None and accumulator.scales:
        raise ValueError(f"{accumulator} has scales of its own, of blocks of {accumulator.scales[0]} products.")
    if blocks is not None and not (isinstance(blocks, tuple) and len(blocks) == 2 and is_integer(blocks[0], 1)):
        raise ValueError(f"Blocks are a number of products and the format of scales, as (32, E8M0); got {blocks!r}.")
    block, scale = blocks or accumulator.scales or (0, FP32)
    result = accumulator.result if output is None else as_format(output)
    if result is None:
        raise ValueError("An exact sum has no format of its own: pass output=, the format it is rounded to.")
    kinds = (*formats, *([as_format(scale)] * 2 if block else []), accumulator.result or result, result)
    mode = nearest_even if rounding is None else as_rounding(rounding)
    case = Case(DOT, kinds, mode, None, accumulator, flags, block)
    if rounding is not None and not case.rounds_sums:
        refuse_rounding(accumulator, mode)
    return case


def _check_format(format: Format | None, kinds: Sequence[Kind], operation: str) -> None:
    """Raise ValueError if an operation of TestFloat does not have this format."""
    if format is not None and format not in kinds:
        names = ", ".join(str(kind) for kind in dict.fromkeys(kinds) if isinstance(kind, Format))
        raise ValueError(f"{operation} is an operation of TestFloat on {names}, got the format {format}; leave it out.")


def operand_count(operation: Any) -> int:
    """Return the number of operands of an operation."""
    if operation == "round":
        return 1
    if not isinstance(operation, str) or operation not in OPERATIONS:
        name = str(operation).rpartition("_")[2]
        hint = f" Did you mean {SIMFLOAT_NAMES[name]!r}?" if name in SIMFLOAT_NAMES else did_you_mean(name, OPERATIONS)
        advice = width_hint(str(operation))
        if str(operation) in SIMFLOAT_NAMES:
            hint = f" TestFloat's {operation!r} is {SIMFLOAT_NAMES[str(operation)]!r} here."
        if "_to_" in str(operation) and not advice:
            raise ValueError(
                f"{operation!r} is no conversion of TestFloat, such as 'f16_to_i32', to integers of 8, 16, 32 or 64 "
                "bits. For others write 'round' with a pair of formats: (FP16, fixed(4, symmetric=False)) for "
                "'f16_to_i4'."
            )
        raise ValueError(
            f"operation is 'round' or one of {', '.join(OPERATIONS)}, or a name of TestFloat such as 'f16_add'; got "
            f"{operation!r}.{advice or hint}"
        )
    return len(OPERATIONS[operation].operands)


def _format_of_operands(operation: str, format: Format, is_single: bool = False) -> Format:
    """Return the format of operands: the format of the result, or FP64 or FP32 for a rounding."""
    if operation != "round":
        return format
    return FP32 if is_single else FP64


def _function(operation: str) -> Any:
    return operations.round if operation == "round" else getattr(functions, operation)
