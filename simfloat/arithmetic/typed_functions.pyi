"""The functions of the catalog as type checkers read them, written by ``python -m tests.typed_functions``."""

from typing import Generic, Literal, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from simfloat.arithmetic.bit_stream import Stream
from simfloat.arithmetic.flags import Flags
from simfloat.arithmetic.operands import OperandLike
from simfloat.arithmetic.target import Observer
from simfloat.formats.catalog import FormatLike
from simfloat.formats.rounding import RoundingLike

_Result = NDArray[np.floating]
_Other = TypeVar("_Other")
_Own = TypeVar("_Own")

__all__ = [
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "cospi",
    "digamma",
    "divide",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "floor",
    "fma",
    "fmod",
    "gelu",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_ndtr",
    "multiply",
    "ndtri",
    "power",
    "reciprocal",
    "remainder",
    "rint",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sinpi",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "zeta",
]

class _OfOne(Protocol):
    @overload
    def __call__(
        self,
        x: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: _Result | None = ...,
    ) -> _Result: ...
    @overload
    def __call__(
        self,
        x: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: _Result | None = ...,
    ) -> tuple[_Result, Flags]: ...

class _OfTwo(Protocol):
    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: _Result | None = ...,
    ) -> _Result: ...
    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: _Result | None = ...,
    ) -> tuple[_Result, Flags]: ...

class _OfThree(Protocol):
    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        c: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[False] = ...,
        out: _Result | None = ...,
    ) -> _Result: ...
    @overload
    def __call__(
        self,
        a: OperandLike,
        b: OperandLike,
        c: OperandLike,
        format: FormatLike,
        rounding: RoundingLike = ...,
        *,
        stream: Stream | None = ...,
        observer: Observer | None = ...,
        flags: Literal[True],
        out: _Result | None = ...,
    ) -> tuple[_Result, Flags]: ...

add: _OfTwo
subtract: _OfTwo
multiply: _OfTwo
divide: _OfTwo
fma: _OfThree
sqrt: _OfOne
exp: _OfOne
log: _OfOne
log2: _OfOne
log10: _OfOne
expm1: _OfOne
exp2: _OfOne
exp10: _OfOne
log1p: _OfOne
tanh: _OfOne
sinh: _OfOne
cosh: _OfOne
asinh: _OfOne
acosh: _OfOne
atanh: _OfOne
sin: _OfOne
cos: _OfOne
tan: _OfOne
sinpi: _OfOne
cospi: _OfOne
asin: _OfOne
acos: _OfOne
atan: _OfOne
erf: _OfOne
erfc: _OfOne
erfcx: _OfOne
erfinv: _OfOne
ndtri: _OfOne
log_ndtr: _OfOne
lgamma: _OfOne
digamma: _OfOne
zeta: _OfTwo
i0: _OfOne
i0e: _OfOne
i1: _OfOne
i1e: _OfOne
gelu: _OfOne
sigmoid: _OfOne
reciprocal: _OfOne
rsqrt: _OfOne
cbrt: _OfOne
hypot: _OfTwo
power: _OfTwo
atan2: _OfTwo
rint: _OfOne
floor: _OfOne
ceil: _OfOne
trunc: _OfOne
fmod: _OfTwo
remainder: _OfTwo
copysign: _OfTwo

class Methods(Generic[_Other, _Own]):
    def add(self, other: _Other) -> _Own: ...
    def subtract(self, other: _Other) -> _Own: ...
    def multiply(self, other: _Other) -> _Own: ...
    def divide(self, other: _Other) -> _Own: ...
    def fma(self, other: _Other, third: _Other) -> _Own: ...
    def sqrt(self) -> _Own: ...
    def exp(self) -> _Own: ...
    def log(self) -> _Own: ...
    def log2(self) -> _Own: ...
    def log10(self) -> _Own: ...
    def expm1(self) -> _Own: ...
    def exp2(self) -> _Own: ...
    def exp10(self) -> _Own: ...
    def log1p(self) -> _Own: ...
    def tanh(self) -> _Own: ...
    def sinh(self) -> _Own: ...
    def cosh(self) -> _Own: ...
    def asinh(self) -> _Own: ...
    def acosh(self) -> _Own: ...
    def atanh(self) -> _Own: ...
    def sin(self) -> _Own: ...
    def cos(self) -> _Own: ...
    def tan(self) -> _Own: ...
    def sinpi(self) -> _Own: ...
    def cospi(self) -> _Own: ...
    def asin(self) -> _Own: ...
    def acos(self) -> _Own: ...
    def atan(self) -> _Own: ...
    def erf(self) -> _Own: ...
    def erfc(self) -> _Own: ...
    def erfcx(self) -> _Own: ...
    def erfinv(self) -> _Own: ...
    def ndtri(self) -> _Own: ...
    def log_ndtr(self) -> _Own: ...
    def lgamma(self) -> _Own: ...
    def digamma(self) -> _Own: ...
    def zeta(self, other: _Other) -> _Own: ...
    def i0(self) -> _Own: ...
    def i0e(self) -> _Own: ...
    def i1(self) -> _Own: ...
    def i1e(self) -> _Own: ...
    def gelu(self) -> _Own: ...
    def sigmoid(self) -> _Own: ...
    def reciprocal(self) -> _Own: ...
    def rsqrt(self) -> _Own: ...
    def cbrt(self) -> _Own: ...
    def hypot(self, other: _Other) -> _Own: ...
    def power(self, other: _Other) -> _Own: ...
    def atan2(self, other: _Other) -> _Own: ...
    def rint(self) -> _Own: ...
    def floor(self) -> _Own: ...
    def ceil(self) -> _Own: ...
    def trunc(self) -> _Own: ...
    def fmod(self, other: _Other) -> _Own: ...
    def remainder(self, other: _Other) -> _Own: ...
    def copysign(self, other: _Other) -> _Own: ...
