"""Packed codes, and memory images: text files of codes that Verilog's $readmemh and $readmemb read.

Source: IEEE 1364-2005, section 17.2.9 (IEEE 1800-2017, section 21.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simfloat.arithmetic.codes import decode, encode, read_code
from simfloat.arithmetic.machines import is_on_gpu, on_cpu, on_device_of
from simfloat.arithmetic.operands import at_index
from simfloat.common import as_rectangular_array, file_path, is_integer, message_text, one_number
from simfloat.environment import in_usual_environment
from simfloat.formats import Format, as_format
from simfloat.formats.catalog import FormatLike

#: The first code of a byte or a word is in its lowest bits ("little"), or in its highest ones ("big").
Order = Literal["little", "big"]

MOST_BITS = 64


def pack(codes: ArrayLike, bits: int, *, order: Order = "little") -> NDArray[np.uint8]:
    """Put codes of a few bits into bytes, without gaps.

    Parameters:
        codes: integers from 0 below 2^bits. The last axis is packed, so that every row begins at a byte; the last byte
            is filled up with zeros.
        bits: the width of a code, from 1 to 64.
        order: ``"little"`` puts the first code into the lowest bits of the first byte, like PyTorch for E2M1 and like
            memory words of little-endian machines; ``"big"`` puts it into the highest bits.

    Returns:
        uint8 with the shape of `codes`, except that the last axis has ceil(n * bits / 8) bytes. For words, view it as
        another dtype: ``pack(codes, 4).view("<u4")`` has eight codes in a word (``">u4"`` for ``"big"``).

    Raises:
        ValueError: if `codes` are not integers below 2^bits, or if `bits` or `order` is invalid.

    Examples:
        >>> sf.pack([1, 2, 3], 4), sf.pack([1, 2, 3], 4, order="big")
        (array([33,  3], dtype=uint8), array([18, 48], dtype=uint8))
    """
    little = _check_layout(bits, order)
    array = _as_integers(codes, "codes")
    is_outside = (array < 0) | (array > np.uint64(2**bits - 1))
    if is_outside.any():
        place = tuple(int(i) for i in np.argwhere(is_outside)[0])
        raise ValueError(f"Code {array[place]}{at_index(place)} does not fit into {bits} bits.")
    ones = np.unpackbits(array.astype("<u8")[..., np.newaxis].view(np.uint8), axis=-1, bitorder="little", count=bits)
    ones = ones if little else ones[..., ::-1]
    return _on_device_of_operand(np.packbits(ones.reshape(*array.shape[:-1], -1), axis=-1, bitorder=order), codes)


def unpack(
    words: ArrayLike, bits: int, count: int | None = None, *, order: Order = "little"
) -> NDArray[np.unsignedinteger]:
    """Return the codes in bytes or words, such as those of :func:`pack`.

    Parameters:
        words: bytes, or an array of an unsigned dtype. The last axis is unpacked.
        bits: the width of a code, from 1 to 64.
        count: the number of codes in a row; by default all that fit, including those of the zeros that fill up the last
            byte.
        order: ``"little"`` if the first code is in the lowest bits of the first byte or word, ``"big"`` if it is in the
            highest bits.

    Returns:
        The codes in the smallest unsigned dtype. The last axis has `count` elements.

    Raises:
        ValueError: if `words` are not such integers, or contain fewer than `count` codes.

    Examples:
        >>> sf.unpack([33, 3], 4, 3)
        array([1, 2, 3], dtype=uint8)
        >>> sf.unpack(np.array([0x54321], np.uint32), 4, 5)
        array([1, 2, 3, 4, 5], dtype=uint8)
        >>> words = np.array([0x54321, 0x98765], np.uint32)  # a row for each word
        >>> sf.unpack(words[:, np.newaxis], 4, 5)
        array([[1, 2, 3, 4, 5],
               [5, 6, 7, 8, 9]], dtype=uint8)
    """
    little = _check_layout(bits, order)
    array = _as_integers(words, "words")
    if array.dtype.kind == "i":
        if not 0 <= array.min() <= array.max() < 256:
            raise ValueError(
                f"words must be bytes, or an array of an unsigned dtype such as np.uint32; got {array.dtype}."
            )
        array = array.astype(np.uint8)
    size = array.dtype.itemsize
    stored = np.ascontiguousarray(array, f"{'<' if little else '>'}u{size}")
    ones = np.unpackbits(stored[..., np.newaxis].view(np.uint8), axis=-1, bitorder=order)
    ones = ones.reshape(*array.shape[:-1], -1)
    room = ones.shape[-1] // bits
    count = room if count is None else count
    if not is_integer(count, 0, room):
        raise ValueError(
            f"count must be an integer from 0 to {room}, the codes of {bits} bits in a row; got {count!r}."
        )
    ones = ones[..., : count * bits].reshape(*array.shape[:-1], count, bits)
    dtype = np.dtype(f"<u{max(1 << (bits - 1).bit_length(), 8) // 8}")
    padding = [(0, 0)] * (ones.ndim - 1) + [(0, 8 * dtype.itemsize - bits)]
    whole = np.packbits(np.pad(ones if little else ones[..., ::-1], padding), axis=-1, bitorder="little")
    return _on_device_of_operand(whole.view(dtype)[..., 0].astype(dtype.newbyteorder("=")), words)


def _on_device_of_operand(array: NDArray, operand: Any) -> NDArray:
    """Return an array on the device of the operand."""
    result: NDArray = on_device_of(array, operand) if is_on_gpu(operand) else array
    return result


def _check_layout(bits: Any, order: Any) -> bool:
    """Return True for little-endian order; ValueError for an invalid width or order."""
    if not is_integer(bits, 1, MOST_BITS):
        hint = (
            f" Numbers of {bits} have codes of {bits.bits} bits: encode returns them."
            if isinstance(bits, Format)
            else ""
        )
        raise ValueError(f"bits, the width of a code, must be an integer from 1 to {MOST_BITS}; got {bits!r}.{hint}")
    if order not in ("little", "big"):
        raise ValueError(f"order must be 'little' (first code in the lowest bits) or 'big'; got {order!r}.")
    return bool(order == "little")


def _as_integers(x: Any, name: str) -> NDArray[np.integer]:
    """Return integers as an array with at least one axis."""
    array = np.atleast_1d(as_rectangular_array(on_cpu(x) if is_on_gpu(x) else x, name))
    if not array.size:
        return array.astype(np.uint8)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers, got dtype {array.dtype}; simfloat.encode returns codes of numbers.")
    return array


class Base(NamedTuple):
    """The digits of a memory image: of $readmemh, or of $readmemb."""

    bits_per_digit: int
    name: str
    digits: re.Pattern[str]
    task: str
    prefix: str  # in other languages

    def text(self, word: int, bits: int) -> str:
        """Return a word of this width in lower-case digits, with leading zeros."""
        return format(word, f"0{-(-bits // self.bits_per_digit)}{'x' if self.bits_per_digit == 4 else 'b'}")


HEXADECIMAL = Base(4, "hexadecimal", re.compile(r"[0-9a-f](?:_?[0-9a-f])*", re.IGNORECASE), "$readmemh", "0x")
BINARY = Base(1, "binary", re.compile(r"[01](?:_?[01])*"), "$readmemb", "0b")


@in_usual_environment
def writememh(path: str | PathLike[str], x: ArrayLike, format: FormatLike, *, per_word: int = 1) -> None:
    """Write the codes of numbers of `format` to a file that $readmemh reads: one word per line, starting at address 0.

    The first line is a comment with the format and the shape.

    Parameters:
        path: the file.
        x: numbers of the format, which are written in C order.
        format: the format, or its name.
        per_word: the number of codes in a word. The first one is in the lowest bits.

    Raises:
        ValueError: if x has an element that is not a number of the format; the file is not written then.
        ValueError: if the numbers do not fill the last word.

    Examples:
        >>> sf.writememh(folder / "weights.hex", [1.0, -2.0, 0.5], sf.BF16)
        >>> (folder / "weights.hex").read_text().split()
        ['//', 'BF16:', 'words', 'of', '16', 'bits,', 'in', 'C', 'order', 'of', 'shape', '(3,)', '3f80', 'c000', '3f00']
        >>> sf.writememh(folder / "pairs.hex", [1.0, -2.0], sf.BF16, per_word=2)
        >>> print((folder / "pairs.hex").read_text(), end="")
        // BF16: words of 32 bits, 2 numbers in each, the first one in the lowest bits, in C order of shape (2,)
        c0003f80
    """
    _write(path, x, format, per_word, HEXADECIMAL)


@in_usual_environment
def writememb(path: str | PathLike[str], x: ArrayLike, format: FormatLike, *, per_word: int = 1) -> None:
    """Write the codes of numbers of `format` in binary digits to a file that $readmemb reads; see :func:`writememh`.

    Parameters:
        path: the file.
        x: numbers of the format, which are written in C order.
        format: the format, or its name.
        per_word: the number of codes in a word. The first one is in the lowest bits.

    Raises:
        ValueError: as :func:`writememh`.

    Examples:
        >>> sf.writememb(folder / "weights.mem", [1.0, -2.0], sf.E2M1)
        >>> (folder / "weights.mem").read_text().splitlines()[1:]
        ['0010', '1100']
    """
    _write(path, x, format, per_word, BINARY)


@in_usual_environment
def readmemh(
    path: str | PathLike[str], format: FormatLike, *, per_word: int = 1, unknown: float | None = None
) -> NDArray[np.floating]:
    """Read the numbers from the codes in a $readmemh file.

    Comments, addresses (``@1f`` for the words that follow) and underscores are read as IEEE 1364 defines them.

    Parameters:
        path: the file.
        format: the format of the codes, or its name.
        per_word: the number of codes in a word. The first one is in the lowest bits.
        unknown: the value of codes with digits x or z: a number of the format, or NaN, even if the format has no NaN.
            If a word begins with x or z and has too few digits, the missing digits are also unknown. By default, such
            codes are an error.

    Returns:
        A vector from the lowest address to the highest, with the dtype of :func:`simfloat.decode`.

    Raises:
        ValueError: naming file and line, if a word is not a code of the format.
        ValueError: if `unknown` is neither NaN nor a number of the format.
        ValueError: if an address is written twice, or if an address between others has no word.

    Examples:
        >>> sf.writememh(folder / "weights.hex", [1.0, -2.0, 0.5], sf.BF16)
        >>> sf.readmemh(folder / "weights.hex", sf.BF16)
        array([ 1. , -2. ,  0.5], dtype=float32)
        >>> _ = (folder / "dump.hex").write_text("3f80 xxxx")
        >>> sf.readmemh(folder / "dump.hex", sf.BF16, unknown=np.nan)
        array([ 1., nan], dtype=float32)
    """
    return _read(path, format, per_word, unknown, HEXADECIMAL)


@in_usual_environment
def readmemb(
    path: str | PathLike[str], format: FormatLike, *, per_word: int = 1, unknown: float | None = None
) -> NDArray[np.floating]:
    """Read the numbers from the codes in a $readmemb file, which has binary digits; see :func:`readmemh`.

    Parameters:
        path: the file.
        format: the format of the codes, or its name.
        per_word: the number of codes in a word. The first one is in the lowest bits.
        unknown: the value of codes with digits x or z.

    Returns:
        A vector from the lowest address to the highest, with the dtype of :func:`simfloat.decode`.

    Raises:
        ValueError: as :func:`readmemh`.

    Examples:
        >>> sf.writememb(folder / "weights.mem", [1.0, -2.0], sf.E2M1, per_word=2)
        >>> sf.readmemb(folder / "weights.mem", sf.E2M1, per_word=2)
        array([ 1., -2.], dtype=float32)
    """
    return _read(path, format, per_word, unknown, BINARY)


def _write(path: Any, x: ArrayLike, format: FormatLike, per_word: Any, base: Base) -> None:
    path, format = file_path(path), as_format(format)
    bits = format.bits * _check_per_word(per_word)
    codes = encode(x, format)
    if codes.size % per_word:
        raise ValueError(
            f"{codes.size} numbers do not fill words of {per_word}: "
            f"append {-codes.size % per_word} more, such as {'zeros' if format.has_zero else 'ones'}."
        )
    words = [sum(code << i * format.bits for i, code in enumerate(row)) for row in _rows(codes, per_word)]
    packed = f", {per_word} numbers in each, the first one in the lowest bits" if per_word > 1 else ""
    head = f"// {format}: words of {bits} bits{packed}, in C order of shape {codes.shape}"
    text = "\n".join([head, *(base.text(word, bits) for word in words), ""])
    path.write_text(text, encoding="utf-8", newline="\n")


def _rows(codes: NDArray, per_word: int) -> list[list[int]]:
    """Return the codes of every word."""
    rows: list[list[int]] = codes.reshape(-1, per_word).tolist()
    return rows


def _read(path: Any, format: FormatLike, per_word: Any, unknown: Any, base: Base) -> NDArray[np.floating]:
    path, format = file_path(path), as_format(format)
    bits = format.bits * _check_per_word(per_word)
    if unknown is not None:
        if (number := one_number(unknown)) is None:
            raise ValueError(f"unknown must be NaN or a number of {format}, got {message_text(unknown)}.")
        encode([] if np.isnan(number) else number, format)
    text = path.read_bytes().decode("utf-8-sig", errors="replace")  # comments may be in any encoding
    words: dict[int, int] = {}
    masks: dict[int, int] = {}  # the unknown bits of words
    address = 0
    for place, word in _words(text, path):
        try:
            if word.startswith("@"):
                address = _address(word)
                continue
            if address in words:
                raise ValueError(f"Address {address:x} has a word already.")
            words[address], masks[address] = _word(word, format, per_word, base, unknown is not None)
        except ValueError as error:
            raise ValueError(f"{path}, line {_line(text, place)}: {error}") from None
        address += 1
    shifts, mask, addresses = range(0, bits, format.bits), 2**format.bits - 1, _addresses(words, path)
    codes = np.array([words[at] >> shift & mask for at in addresses for shift in shifts], np.uint64)
    are_known = np.array([not masks[at] >> shift & mask for at in addresses for shift in shifts], np.bool_)
    numbers = decode(codes * are_known, format)
    return numbers if unknown is None else np.where(are_known, numbers, numbers.dtype.type(unknown))


def _check_per_word(per_word: Any) -> int:
    if not is_integer(per_word, 1):
        raise ValueError(f"per_word, the number of codes in a word, must be an integer from 1; got {per_word!r}.")
    return int(per_word)


#: The contents of a file other than white space: comments, the start of a comment that never ends, and words.
PIECES = re.compile(r"//[^\n]*|/\*.*?\*/|(?P<open>/\*)|(?P<word>(?:(?!//|/\*)\S)+)", re.DOTALL)
UNKNOWN = re.compile("[0-9a-f_]*[xz][0-9a-fxz_]*", re.IGNORECASE)
UNKNOWN_DIGIT = re.compile("[xz]", re.IGNORECASE)
ADDRESS = re.compile(r"@([0-9a-f](?:_?[0-9a-f])*)", re.IGNORECASE)


def unknown_digits_message(word: str) -> str:
    """Return the message for a word with digits x or z."""
    return f"{word!r} has digits that are unknown (x) or not driven (z); a number has neither."


def unknown_hint(code: str) -> str:
    """Return the end of a message on an invalid hexadecimal code, if it has such digits; otherwise the empty text."""
    return f" {unknown_digits_message(code)}" if UNKNOWN.fullmatch(code.lower().removeprefix("0x")) else ""


def _words(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Generate every word that is not white space or a comment, with its position."""
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


def _word(word: str, format: Format, per_word: int, base: Base, reads_unknown: bool) -> tuple[int, int]:
    """Return the word in a text, in which unknown digits are 1, and a mask of the unknown bits.

    Underscores may follow any digit (IEEE 1364-2005, 3.5.1).
    """
    if not word.startswith("_"):
        word = re.sub("_+", "_", word).rstrip("_")
    bits = format.bits * per_word
    unknown = _unknown_bits(word, bits, base)
    if word[:2].lower() == base.prefix and word[2:] and not unknown:
        raise ValueError(f"{word!r} has a prefix, but Verilog has only digits: write {word[2:]!r}.")
    if unknown and not reads_unknown:
        raise ValueError(f"{unknown_digits_message(word)} Write unknown=numpy.nan to read such codes as NaN.")
    digits = UNKNOWN_DIGIT.sub("1", word) if unknown else word
    if base is HEXADECIMAL and per_word == 1:
        try:
            return read_code(digits, format), unknown
        except ValueError as error:
            message = str(error).replace(repr(digits), repr(word))
            count = len(word.replace("_", "")) * base.bits_per_digit // bits
            if count < 2 or base.digits.fullmatch(digits) is None:
                raise ValueError(message) from None
            raise ValueError(f"{message} If it has {count} codes, write per_word={count}.") from None
    if base.digits.fullmatch(digits) is None:
        raise ValueError(f"A word of {base.task} is {base.name} digits such as {base.text(1, bits)!r}, got {word!r}.")
    value = int(digits, 2**base.bits_per_digit)
    if value >> bits:
        raise ValueError(f"The word {word!r} has more than {bits} bits, of {per_word} x {format}.")
    return value, unknown


def _unknown_bits(word: str, bits: int, base: Base) -> int:
    """Return a mask with ones for the digits x and z of a word, and 0 if it has none.

    If the first digit is x or z, it also fills up a short word (IEEE 1364-2005, 3.5.1). In a word that is longer or
    shorter than `bits`, 0x before hexadecimal digits is a prefix.
    """
    digits, width, radix = word.replace("_", "").lower(), -(-bits // base.bits_per_digit), 2**base.bits_per_digit
    is_prefixed = digits.startswith(base.prefix) and len(digits) not in (2, width)
    if is_prefixed or base.digits.fullmatch(UNKNOWN_DIGIT.sub("1", digits)) is None:
        return 0
    return int("".join(f"{(radix - 1) * (digit in 'xz'):x}" for digit in digits.rjust(width, digits[0])), radix)


def _addresses(words: dict[int, int], path: Path) -> list[int]:
    """Return the addresses in order; ValueError if one is missing."""
    ordered = sorted(words)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if after != before + 1:
            raise ValueError(f"{path}: Address {before + 1:x} has no word, though {before:x} and {after:x} have.")
    return ordered


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
