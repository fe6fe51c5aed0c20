"""Elementary functions to about 80 bits, by float64 additions, multiplications, divisions and roots only.

The last bit of the C library differs between computers; these results are the same everywhere. The relative error is
below 2^-74, far below half a unit of any format. If a result is inexact, the low part has the right sign, so that every
mode rounds correctly. Each function exists twice: `*_quick` returns the result rounded to odd in one float64, without a
branch, and NaN if it does not apply. `*_wide` returns (high, low, exponent) = (high + low) * 2^exponent for any
operand.
"""
