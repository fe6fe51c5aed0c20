"""An adder, a multiplier and a divider of small IEEE numbers in integers, with the exceptions of Berkeley SoftFloat.

The rules are those of its `softfloat_roundPackToF16`, for any widths. A result is a sign, an integer significand with a
sticky last bit, and an exponent. Before rounding, it is tiny if it is below the smallest normal number. After rounding,
it is tiny if its significand does not carry into the normal binade when it is rounded with an unbounded exponent. It
underflows if it is tiny and inexact. From simfloat, only the widths of a format are used. Operands and results are
vectors of int64.
"""

from typing import NamedTuple

import numpy as np

NX, UF, OF, DZ, NV = 1, 2, 4, 8, 16


class Unpacked(NamedTuple):
    """Numbers as (-1)^sign * significand * 2^exponent; `kind` is 0 for these, 1 for infinities, 2 for NaN."""

    sign: np.ndarray
    significand: np.ndarray
    exponent: np.ndarray
    kind: np.ndarray


def unpack(codes, format):
    """The numbers of codes."""
    m, codes = format.mantissa_bits, np.asarray(codes, np.int64)
    field, fraction = codes >> m & (1 << format.exponent_bits) - 1, codes & (1 << m) - 1
    significand = np.where(field > 0, fraction | 1 << m, fraction)
    exponent = np.maximum(field, 1) - format.bias - m
    kind = np.where(field == (1 << format.exponent_bits) - 1, np.where(fraction > 0, 2, 1), 0)
    return Unpacked(codes >> (m + format.exponent_bits) & 1, significand, exponent, kind)


def length(x):
    """Bits of integers below 2^53."""
    return np.frexp(x.astype(np.float64))[1].astype(np.int64)


def round_pack(sign, significand, exponent, format, mode, tininess):
    """(codes, flags) of nonzero exact results."""
    p, m = format.mantissa_bits + 1, format.mantissa_bits
    top = exponent + length(significand) - 1  # the exponent of the leading bit
    significand = significand << 12  # room, so that a shift to the right is all that it takes
    exponent = exponent - 12

    def rounded(last):
        """The significand in units of 2^last, and whether bits are lost."""
        shift = np.minimum(last - exponent, 62)
        kept, rest, half = significand >> shift, significand & (1 << shift) - 1, (1 << shift) >> 1
        match mode:
            case "nearest_even":
                up = (rest > half) | ((rest == half) & (kept & 1 == 1))
            case "nearest_away":
                up = rest >= half
            case "nearest_toward_zero":
                up = rest > half
            case "nearest_up":
                up = (rest > half) | ((rest == half) & (sign == 0))
            case "nearest_down":
                up = (rest > half) | ((rest == half) & (sign == 1))
            case "toward_zero":
                up = np.zeros_like(sign, bool)
            case "toward_positive":
                up = (rest > 0) & (sign == 0)
            case "toward_negative":
                up = (rest > 0) & (sign == 1)
            case "to_odd":
                up = (rest > 0) & (kept & 1 == 0)
        return kept + up, rest > 0

    emin = 1 - format.bias
    kept, lost = rounded(np.maximum(top, emin) - m)
    tiny = top < emin
    if tininess == "after_rounding":
        tiny &= ~((top == emin - 1) & (rounded(top - m)[0] >> p == 1))
    # The hidden bit adds one to the field, and a carry out of the significand another.
    codes = ((np.maximum(top, emin) - emin) << m) + kept
    infinity = ((1 << format.exponent_bits) - 1) << m
    over = codes >= infinity
    stops = {"toward_zero": True, "to_odd": True, "toward_positive": sign == 1, "toward_negative": sign == 0}
    codes = np.where(over, infinity - np.where(stops.get(mode, False), 1, 0), codes)
    flags = np.where(over, OF | NX, np.where(lost, NX | np.where(tiny, UF, 0), 0))
    return codes | sign << (m + format.exponent_bits), flags


def finished(sign, significand, exponent, special, format, mode, tininess):
    """(codes, flags), where `special` is (infinite, infinite by a zero, invalid, NaN), of which all else is made."""
    infinite, by_zero, invalid, nan = special
    zero = significand == 0
    codes, flags = round_pack(sign, np.where(zero, 1, significand), exponent, format, mode, tininess)
    signs = sign << (format.mantissa_bits + format.exponent_bits)
    infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits
    codes, flags = np.where(zero, signs, codes), np.where(zero, 0, flags)
    codes = np.where(infinite | by_zero, infinity | signs, codes)
    flags = np.where(by_zero, DZ, np.where(infinite, 0, flags))
    quiet = infinity | 1 << (format.mantissa_bits - 1)
    return np.where(invalid | nan, quiet, codes), np.where(nan, 0, np.where(invalid, NV, flags))


def add(x, y, format, mode, tininess):
    """x + y."""
    a, b = unpack(x, format), unpack(y, format)
    least = np.minimum(a.exponent, b.exponent)
    total = sum(np.where(n.sign == 1, -1, 1) * (n.significand << (n.exponent - least)) for n in (a, b))
    down = int(mode == "toward_negative")
    sign = np.where(total == 0, np.where(a.sign == b.sign, a.sign, down), total < 0)
    infinite = (a.kind == 1) | (b.kind == 1)
    sign = np.where(infinite, np.where(a.kind == 1, a.sign, b.sign), sign)
    invalid = (a.kind == 1) & (b.kind == 1) & (a.sign != b.sign)
    special = infinite, np.zeros_like(infinite), invalid, (a.kind == 2) | (b.kind == 2)
    return finished(sign, abs(total), least, special, format, mode, tininess)


def subtract(x, y, format, mode, tininess):
    """x - y."""
    return add(x, np.asarray(y, np.int64) ^ 1 << (format.mantissa_bits + format.exponent_bits), format, mode, tininess)


def multiply(x, y, format, mode, tininess):
    """x * y."""
    a, b = unpack(x, format), unpack(y, format)
    zero = ((a.kind == 0) & (a.significand == 0)) | ((b.kind == 0) & (b.significand == 0))
    infinite, nan = (a.kind == 1) | (b.kind == 1), (a.kind == 2) | (b.kind == 2)
    special = infinite, np.zeros_like(infinite), infinite & zero, nan
    significand, exponent = a.significand * b.significand, a.exponent + b.exponent
    return finished(a.sign ^ b.sign, significand, exponent, special, format, mode, tininess)


def divide(x, y, format, mode, tininess):
    """x / y."""
    a, b = unpack(x, format), unpack(y, format)
    quotient, rest = np.divmod(a.significand << 24, np.maximum(b.significand, 1))
    significand = quotient << 1 | (rest > 0)
    zeros = [(n.kind == 0) & (n.significand == 0) for n in (a, b)]
    invalid = (zeros[0] & zeros[1]) | ((a.kind == 1) & (b.kind == 1))
    special = a.kind == 1, zeros[1] & (a.kind == 0), invalid, (a.kind == 2) | (b.kind == 2)
    significand = np.where((b.kind == 1) | zeros[0], 0, significand)
    return finished(a.sign ^ b.sign, significand, a.exponent - b.exponent - 25, special, format, mode, tininess)
