"""The instructions of programs, by their numbers: what `kernels/programs.py` carries out.

An instruction is a row (what, to, a, b, how, grid, quick, counted, either): what is computed of the operands a and b,
into which register it goes, how it is rounded, the row of the grids by which, a quicker way that may serve, the row of
the counts to which its results are added, -1 if to none, and whether a sum may lose either addend, or only the second.
"""

from __future__ import annotations

#: What an instruction computes. An operand is a register's number; that of a scalar is its place among the scalars.
WHAT = (
    # Numbers as they are. `load` reads an input, `store` writes an output; both are numbered. `largest` is the larger.
    "load", "store", "negate", "sign", "largest",
    # Exact results, rounded to odd in float64, which are rounded as `how` says. `fill` is a scalar for all elements.
    "fill", "sum", "sum_with_scalar", "product", "product_with_scalar", "quotient", "quotient_by_scalar", "root",
)  # fmt: skip

(
    LOAD, STORE, NEGATE, SIGN, LARGEST,
    FILL, SUM, SUM_WITH_SCALAR, PRODUCT, PRODUCT_WITH_SCALAR, QUOTIENT, QUOTIENT_BY_SCALAR, ROOT,
) = range(len(WHAT))  # fmt: skip

#: How an exact result is rounded; what is exact is not.
HOW = ("not", "single", "nearest", "directed", "sticky", "stochastic", "general")

NOT, SINGLE, NEAREST, DIRECTED, STICKY, STOCHASTIC, GENERAL = range(len(HOW))

#: Quicker ways to a result that is rounded to nearest even: by float64's own result, rounded once more, by that of
#: float32, and by that of float32, rounded in its image, where numbers have few bits. What the last two leave in doubt
#: is made again in float64.
QUICK = ("exactly", "double", "in_float32", "few_bits")

EXACTLY, DOUBLE, IN_FLOAT32, FEW_BITS = range(len(QUICK))

#: Vectors that a program reads and writes, at most.
INPUTS, OUTPUTS = 6, 5
