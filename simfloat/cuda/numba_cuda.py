"""numba-cuda, which takes the place of Numba's own `numba.cuda`: imported from here, beside NumPy 2.5 as well.

numba-cuda 0.30 asks NumPy for `row_stack`, which is `vstack` and which NumPy 2.5 no longer has, and for times without a
unit, of which that warns.
"""

import warnings

import numpy as np

_has_row_stack = hasattr(np, "row_stack")
if not _has_row_stack:
    np.row_stack = np.vstack
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from numba import cuda
        from numba.cuda.np import arrayobj as _  # noqa: F401
finally:
    if not _has_row_stack:
        del np.row_stack

__all__ = ["cuda"]
