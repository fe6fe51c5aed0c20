"""What float64's arithmetic can prove: which results rounded to odd may be rounded again."""

from __future__ import annotations

from simfloat.formats import FP64, Format, Rounding

#: Round-to-odd in float64's 53 bits proves a single rounding to at most this many.
MOST_PRECISION = 50


def check_precision(format: Format, rounding: Rounding) -> None:
    """Raise ValueError for formats whose single rounding float64's arithmetic cannot prove."""
    if format.mantissa_bits >= MOST_PRECISION and not (format == FP64 and rounding.mode == "nearest_even"):
        raise ValueError(
            f"An operation is rounded once to formats of at most {MOST_PRECISION} bits of precision, or to FP64 under "
            f"nearest_even; {format} has precision {format.precision}, and the mode is {rounding}."
        )


def odd_suffices(format: Format, rounding: Rounding) -> bool:
    """Whether round-to-odd in float64 holds all that a rounding reads, at every magnitude of the format."""
    # A draw reads `bits` bits below the last place, and two more stand for what lies below.
    bits = rounding.bits + 2
    above = format.emax < 1023 or not rounding.is_stochastic  # without a draw, what lies above is beyond the largest
    return above and format.last_exponent - format.mantissa_bits - bits >= -1074 and format.precision + bits <= 53
