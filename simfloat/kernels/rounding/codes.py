"""Codes of a format's numbers, in one loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simfloat.kernels.compile.intrinsics import shift_left, shift_right
from simfloat.kernels.compile.jit import kernel, reader


class Coding(NamedTuple):
    """The numbers of a format that its codes follow from, for magnitudes as float64."""

    least: float  # where the codes of normal numbers start: 2^emin
    per_subnormal: float  # one over the spacing below it
    drop: float  # bits of float64's fraction that the format lacks
    offset: float  # what a normal number's image, without those bits, is larger than its code
    largest: float  # largest code of a finite magnitude
    largest_negative: float  # the same of a negative number's
    negative: float  # the bit of the sign; -1 where there is no number below zero
    complement: float  # 1 if negative codes are two's complements of magnitudes, 0 if they have the bit of the sign
    has_negative_zero: float  # 1 if -0 has a code of its own, else 0
    infinity: float  # -1 where there is none
    nan: float  # -1 where there is none


class Decoding(NamedTuple):
    """What the numbers of a format's codes follow from."""

    bits: float
    first: float  # the code of the smallest normal number
    smallest: float  # the number of code 1 below it, zero where such codes stand for zeros
    drop: float  # bits of float64's fraction that the format lacks
    offset: float  # what a normal number's image, without those bits, is larger than its code
    sign: float  # the bit of the sign, zero without one
    infinity: float  # 2^63 where there is none
    above: float  # codes without a sign above it are NaN; 2^63 where none is
    nan_at_sign: float  # 1 if the bit of the sign alone is NaN, else 0
    has_negative_zero: float
    complement: float  # 1 if negative codes are two's complements of magnitudes, 0 if they have the bit of the sign


unpack_coding, unpack_decoding = reader(Coding), reader(Decoding)


@kernel
def encode(x, codes, coding_fields):
    """Write the codes of numbers; False, and `codes` undefined, if one of them has none."""
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
        # What is large, infinite or NaN makes no code here, and has its own below.
        # Both ways are computed for every number and one is chosen: with a branch in its body LLVM would not vectorise
        # the loop. `min` keeps the conversion to an integer in range.
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
        # One flag for all, looked at once in the end: a loop that can leave in the middle does not vectorise. What is
        # written until then is of no use, as the docstring says.
        outside |= bad | np.int64(is_negative and code < 0)
        codes[i] = code
    return outside == 0


@kernel
def encode_float32(x, codes, coding_fields):
    """Write the codes of float32 numbers in their own lanes, if 1 / spacing below the normal numbers is one of them."""
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
    """Write the codes of formats that are float32 with a shorter fraction, or float32: codes are parts of images."""
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
def decode_images(codes, out, bits):
    """Write the numbers of codes that are parts of images; False if a code has more bits."""
    u, drop, used = np.uint32, np.uint32(32 - bits), np.uint64(0)
    for i in range(codes.size):
        used |= np.uint64(codes[i])
        number = u(shift_left(u(codes[i]), drop)).view(np.float32)
        out[i] = number if number == number else np.float32(np.nan)
    return used >> np.uint64(bits) == np.uint64(0)


@kernel
def decode_by_table(codes, table, out):
    """Look up the numbers of codes; False, and `out` undefined, if one has no place in the table."""
    used, places = np.uint64(0), np.uint64(table.size - 1)
    for i in range(codes.size):
        code = np.uint64(codes[i])
        used |= code
        out[i] = table[code & places]
    return used <= places


@kernel
def decode(codes, out, decoding_fields):
    """Write the numbers of codes, for formats whose normal numbers are float64's; False if a code has more bits."""
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
