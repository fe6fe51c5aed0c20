"""The instructions of programs, by their numbers: what `kernels/programs.py` carries out.

An instruction is a row (what, to, a, b, how, grid): what is computed of the operands a and b, into which register it
goes, how it is rounded, and the row of the grids by which.
"""

from __future__ import annotations

#: What an instruction computes. An operand is a register's number; that of a scalar is its place among the scalars.
WHAT = (
    # Numbers as they are. `load` reads an input, `store` writes an output; both are numbered. `largest` is the larger.
    "load", "store", "fill", "negate", "sign", "largest",
    # Exact results, rounded to odd in float64, which are rounded as `how` says.
    "sum", "sum_with_scalar", "product", "product_with_scalar", "quotient", "quotient_by_scalar", "root",
    # Results rounded to nearest even by a plain grid; of sums, operands are numbers of the grid's format.
    "nearest_sum", "nearest_product", "nearest_product_with_scalar", "nearest_quotient", "nearest_root",
    # Results rounded to nearest even in FP32.
    "single_sum", "single_product", "single_quotient", "single_root",
)  # fmt: skip

(
    LOAD, STORE, FILL, NEGATE, SIGN, LARGEST,
    SUM, SUM_WITH_SCALAR, PRODUCT, PRODUCT_WITH_SCALAR, QUOTIENT, QUOTIENT_BY_SCALAR, ROOT,
    NEAREST_SUM, NEAREST_PRODUCT, NEAREST_PRODUCT_WITH_SCALAR, NEAREST_QUOTIENT, NEAREST_ROOT,
    SINGLE_SUM, SINGLE_PRODUCT, SINGLE_QUOTIENT, SINGLE_ROOT,
) = range(len(WHAT))  # fmt: skip

#: How an exact result is rounded; what is rounded where it is made, or is exact, is not.
HOW = ("not", "single", "nearest", "directed", "to_odd", "stochastic", "general")

NOT, SINGLE, NEAREST, DIRECTED, TO_ODD, STOCHASTIC, GENERAL = range(len(HOW))

#: Vectors that a program reads and writes, at most.
INPUTS, OUTPUTS = 6, 5
