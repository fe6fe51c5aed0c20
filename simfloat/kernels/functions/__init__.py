"""Elementary functions to about 80 bits, from float64 additions, multiplications, divisions and roots alone.

The C library's last bit differs between machines; these are the same everywhere. The relative error is below 2^-74,
far below half a unit of any format, and where a result is not exact the low part has the right sign, so that every
mode rounds as it should. Each function comes twice: `*_quick` gives round-to-odd in one float64 without a branch,
and NaN where it does not apply; `*_wide` gives (high, low, exponent) = (high + low) * 2^exponent for any operand.
"""
