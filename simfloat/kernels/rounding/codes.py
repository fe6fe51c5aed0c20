"""Loops that encode values as codes of a format, and decode codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import shift_left, shift_right
from simfloat.kernels.compile.jit import kernel, reader

#: The number of values that are tested at a time.
BLOCK = 1024


class Coding(NamedTuple):
    """The constants by which float64 magnitudes become codes of a format."""

    least: float  # the smallest magnitude with a normal code: 2^emin
    per_subnormal: float  # one over the spacing below `least`
    drop: float  # fraction bits that float64 has and the format does not
    offset: float  # a normal number's bit pattern without the dropped bits, minus its code
    largest: float  # largest code of a finite magnitude
    largest_negative: float  # largest code of a finite magnitude of a negative number
    negative: float  # the bit of the sign; -1 if the format has no negative numbers
    complement: float  # 1 if negative codes are two's complements of magnitudes, 0 if they set the bit of the sign
    has_negative_zero: float  # 1 if -0 has a separate code, otherwise 0
    infinity: float  # its code, or -1 if the format has no infinity
    nan: float  # its code, or -1 if the format has no NaN


class Decoding(NamedTuple):
    """The constants by which codes of a format become values."""

    bits: float
    first: float  # the code of the smallest normal number
    smallest: float  # the number of code 1 below `first`; zero if all codes below `first` are zeros
    drop: float  # fraction bits that float64 has and the format does not
    offset: float  # a normal number's bit pattern without the dropped bits, minus its code
    sign: float  # the bit of the sign, zero for unsigned formats
    infinity: float  # its code, or 2^63 if the format has no infinity
    above: float  # larger codes without the sign are NaN; 2^63 if there are none
    nan_at_sign: float  # 1 if the code with only the bit of the sign is NaN, otherwise 0
    has_negative_zero: float
    complement: float  # 1 if negative codes are two's complements of magnitudes, 0 if they set the bit of the sign


unpack_coding, unpack_decoding = reader(Coding), reader(Decoding)


@kernel
def encode(x, codes, coding_fields):
    """Write the codes of numbers; return False, with undefined `codes`, if one of them has no code."""
    coding = unpack_coding(coding_fields)
    drop, offset = np.uint64(coding.drop), np.int64(coding.offset)
    largest, below, negative = np.int64(coding.largest), np.int64(coding.largest_negative), np.int64(coding.negative)
    complement = coding.complement != 0.0
    zero = negative if coding.has_negative_zero != 0.0 else np.int64(0)  # the code of -0
    infinity, nan = np.int64(coding.infinity), np.int64(coding.nan)
    lost = np.uint64((np.uint64(1) << drop) - np.uint64(1))
    outside = np.int64(0)
    for i in range(x.size):
        image = np.float64(x[i]).view(np.uint64)
        magnitude = abs(np.float64(x[i]))
        # Large numbers, infinities and NaN get a wrong code here, which is replaced below. Both the normal and the
        # subnormal code are computed for every number, and one is selected: with a branch in its body LLVM would not
        # vectorise the loop. `min` keeps the conversion to an integer in range.
        units = min(magnitude, coding.least) * coding.per_subnormal
        small = np.int64(units)
        normal = np.int64(np.uint64(image & np.uint64(0x7FFFFFFFFFFFFFFF)) >> drop) - offset
        is_normal = magnitude >= coding.least
        code = normal if is_normal else small
        inexact = (image & lost) != np.uint64(0) if is_normal else np.float64(small) != units
        is_negative = (image >> np.uint64(63)) != np.uint64(0) and magnitude == magnitude
        bad = np.int64(inexact) | np.int64(code > (below if is_negative else largest))
        special = infinity if magnitude == np.inf else nan
        finite = magnitude < np.inf
        code = code if finite else special
        bad = bad if finite else np.int64(special < 0)
        signed = (negative - code) + negative if complement else code | negative
        signed = zero if magnitude == 0.0 else signed
        code = signed if is_negative else code
        # One flag for all elements is tested after the loop: a loop with an early exit is not vectorised. Codes that
        # were written after an error are undefined, as the docstring says.
        outside |= bad | np.int64(is_negative and code < 0)
        codes[i] = code
    return outside == 0


@kernel
def encode_float32(x, codes, coding_fields):
    """Write the codes of float32 numbers by float32 operations, if 1 / `per_subnormal` is a float32 number."""
    coding, u = unpack_coding(coding_fields), np.uint32
    drop, largest, below = u(coding.drop - 29.0), u(coding.largest), u(coding.largest_negative)
    complement = coding.complement != 0.0
    offset = u(np.int64(coding.offset) - (np.int64(1023 - 127) << np.int64(52.0 - coding.drop)))
    least, per_subnormal, infinite = np.float32(coding.least), np.float32(coding.per_subnormal), np.float32(np.inf)
    signed, has_zero = coding.negative >= 0.0, coding.has_negative_zero != 0.0
    negative = u(coding.negative) if signed else u(0)
    infinity, nan = u(max(coding.infinity, 0.0)), u(max(coding.nan, 0.0))
    bad_infinity, bad_nan, bad_sign = coding.infinity < 0.0, coding.nan < 0.0, not signed
    lost = u(shift_left(u(1), drop) - u(1))
    outside = u(0)
    for i in range(x.size):
        image = np.float32(x[i]).view(u)
        magnitude = abs(np.float32(x[i]))
        units = np.float32(min(magnitude, least) * per_subnormal)
        small = np.int32(units)
        is_normal = magnitude >= least
        code = u(shift_right(u(image & u(0x7FFFFFFF)), drop) - offset) if is_normal else u(small)
        bad = u(image & lost) != u(0) if is_normal else np.float32(small) != units
        is_nan, is_infinite, is_negative = magnitude != magnitude, magnitude == infinite, image >= u(0x80000000)
        bad = bad | (code > (below if is_negative else largest))
        code = infinity if is_infinite else nan if is_nan else code
        bad = bad_infinity if is_infinite else bad_nan if is_nan else bad
        has_sign = is_negative & (magnitude == magnitude) & (has_zero | (magnitude != np.float32(0.0)))
        outside = u(outside | (u(1) if bad | (has_sign & bad_sign) else u(0)))
        signed_code = u(u(negative - code) + negative) if complement else u(code | negative)
        codes[i] = signed_code if has_sign else code
    return outside == u(0)


@kernel
def encode_images(x, codes, coding_fields):
    """Write the codes of float32, or of formats that only shorten its fraction: codes are the upper bits."""
    coding, u = unpack_coding(coding_fields), np.uint32
    drop, nan = u(coding.drop - 29.0), u(coding.nan)
    lost, lost_bits = u(shift_left(u(1), drop) - u(1)), u(0)
    for i in range(x.size):
        image = np.float32(x[i]).view(u)
        is_nan = x[i] != x[i]
        lost_bits = u(lost_bits | (u(0) if is_nan else u(image & lost)))
        codes[i] = nan if is_nan else shift_right(image, drop)
    return lost_bits == u(0)


@kernel
def are_numbers(x, images, limits, anchor):
    """Return True if all values are certain to be numbers of a format; `images` are their bit patterns.

    `limits` has five integers: the bits of a magnitude, the fraction bits that the format does not have, the smallest
    normal magnitude, the first magnitude beyond the largest number, and the number of magnitudes from there up to
    infinity or NaN. Adding `anchor` to a magnitude below the normal ones rounds it to the spacing of subnormal numbers.
    """
    u = limits.dtype.type
    magnitude_bits, lost, normal, beyond, count = limits[0], limits[1], limits[2], limits[3], limits[4]
    for first in range(0, x.size, BLOCK):
        values, patterns = x[first : first + BLOCK], images[first : first + BLOCK]
        # No number of the format has bits of `lost`: subnormal numbers have even fewer fraction bits. Most blocks have
        # only zeros and normal numbers, which the largest and the smallest magnitude show: for the smallest one, each
        # magnitude is reduced by one, so a zero wraps around to the largest integer.
        used, largest, smallest = u(0), u(0), u(~u(0))
        for i in range(patterns.size):
            magnitude = u(patterns[i] & magnitude_bits)
            used, largest = u(used | magnitude), max(largest, magnitude)
            smallest = min(smallest, u(magnitude - u(1)))
        if u(used & lost) != u(0):
            return False
        if largest >= beyond or smallest < u(normal - u(1)):
            others = u(0)
            for i in range(patterns.size):
                magnitude, size = u(patterns[i] & magnitude_bits), abs(values[i])
                is_between = magnitude < normal and (size + anchor) - anchor != size
                others = u(others | (u(1) if is_between or u(magnitude - beyond) < count else u(0)))
            if others != u(0):
                return False
    return True


@kernel
def decode_images(codes, out, bits):
    """Write the numbers of codes that are the upper bits of float32; return False if a code has more bits."""
    u, drop, used = np.uint32, np.uint32(32 - bits), np.uint64(0)
    for i in range(codes.size):
        used |= np.uint64(codes[i])
        number = u(shift_left(u(codes[i]), drop)).view(np.float32)
        out[i] = number if number == number else np.float32(np.nan)
    return used >> np.uint64(bits) == np.uint64(0)


@kernel
def decode_by_table(codes, table, out):
    """Look up the numbers of codes; return False, with undefined `out`, if a code is beyond the table."""
    used, places = np.uint64(0), np.uint64(table.size - 1)
    for i in range(codes.size):
        code = np.uint64(codes[i])
        used |= code
        out[i] = table[code & places]
    return used <= places


@kernel
def decode(codes, out, decoding_fields):
    """Write the numbers of codes; return False if a code has more bits.

    Normal numbers of the format must be normal in float64.
    """
    decoding, u = unpack_decoding(decoding_fields), np.uint64
    first, drop, offset = u(decoding.first), u(decoding.drop), np.int64(decoding.offset)
    sign, infinity, above = u(decoding.sign), u(decoding.infinity), u(decoding.above)
    last = u(u(u(1) << u(decoding.bits - 1.0)) - u(1))
    last = u(u(last << u(1)) | u(1))
    nan_at_sign, has_zero, used = decoding.nan_at_sign != 0.0, decoding.has_negative_zero != 0.0, u(0)
    complement = decoding.complement != 0.0
    for i in range(codes.size):
        code = u(codes[i])
        used |= code
        body = u(code & ~sign)
        body = u(u(sign - body)) if complement and u(code & sign) != u(0) else body
        normal = u(u(np.int64(body) + offset) << drop).view(np.float64)
        magnitude = np.float64(np.int64(body)) * decoding.smallest if body < first else normal
        magnitude = np.inf if body == infinity else magnitude
        is_negative = (u(code & sign) != u(0)) & (has_zero | (magnitude != 0.0))
        is_nan = (code == sign) & nan_at_sign | (body > above)
        out[i] = np.nan if is_nan else -magnitude if is_negative else magnitude
    return used <= last
