"""The instructions of programs as integers, which `kernels/programs.py` runs.

An instruction is a row (what, to, a, b, how, grid, quick, counted, either):

* what: the operation on the operands a and b; to: the register of the result;
* how: the kind of rounding; grid: the row of the grid; quick: a faster method that may be used instead;
* counted: the row of the event counts to which results are added, or -1;
* either: 1 if loss of either addend of a sum counts as an event, 0 if only loss of the second one does.
"""

from __future__ import annotations

#: The operations. An operand is the index of a register, or of a scalar among the scalars.
WHAT = (
    # Values are moved unrounded. `load` reads an input, `store` writes an output; a and b number them. `largest` is the
    # maximum.
    "load", "store", "negate", "sign", "largest",
    # Exact results, rounded to odd in float64, then rounded by `how`. `fill` sets all elements to a scalar.
    "fill", "sum", "sum_with_scalar", "product", "product_with_scalar", "quotient", "quotient_by_scalar", "root",
)  # fmt: skip

(
    LOAD, STORE, NEGATE, SIGN, LARGEST,
    FILL, SUM, SUM_WITH_SCALAR, PRODUCT, PRODUCT_WITH_SCALAR, QUOTIENT, QUOTIENT_BY_SCALAR, ROOT,
) = range(len(WHAT))  # fmt: skip

#: The kinds of rounding of an exact result; "not" moves values unrounded.
HOW = ("not", "single", "nearest", "directed", "sticky", "stochastic", "general")

NOT, SINGLE, NEAREST, DIRECTED, STICKY, STOCHASTIC, GENERAL = range(len(HOW))

#: Faster methods for results that are rounded to nearest even: round the float64 result once more; take the float32
#: result; or, for numbers of few bits, round the bit pattern of the float32 result. If the last two methods leave a
#: result in doubt, it is computed again in float64.
QUICK = ("exactly", "double", "in_float32", "few_bits")

EXACTLY, DOUBLE, IN_FLOAT32, FEW_BITS = range(len(QUICK))

#: Maximum number of vectors that a program reads and writes.
INPUTS, OUTPUTS = 6, 5

#: Maximum number of its registers.
REGISTERS = 16
