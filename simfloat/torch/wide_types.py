"""Run a program that chooses narrow dtypes in one wide dtype instead, as the reference of its rounding errors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simfloat.torch.tensors import FORMAT_OF

#: Optimizers keep their step counters in float32, so this dtype is replaced only in a program that runs in float64.
NARROW_TYPES = tuple(dtype for dtype in FORMAT_OF if dtype.itemsize < 4 and dtype != torch.float8_e8m0fnu)


class ProgramMode(TorchDispatchMode):
    """The base class of blocks inside a run that change the operations of a program."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, which avoids loading all of torch.compile."""
        return False


class WideTypes(ProgramMode):
    """A ``with`` block inside a run: casts of the program to narrower dtypes, and autocast, convert to `dtype`."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype
        self._replaced = (*NARROW_TYPES, torch.float32) if dtype == torch.float64 else NARROW_TYPES

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry out an operation with wide dtypes."""
        return func(*map(self._widen, args), **{name: self._widen(x) for name, x in (kwargs or {}).items()})

    def _widen(self, x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return self._dtype if x in self._replaced else x
        return type(x)(map(self._widen, x)) if type(x) in (list, tuple) else x
