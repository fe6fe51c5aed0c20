"""Functions of numbers as PyTorch's own formulas have them: every operation of the formula is rounded."""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray

from simfloat.formulas import exponentials
from simfloat.formulas.rounded import Rounded
from simfloat.torch.formula import Formula
from simfloat.torch.handlers import Decomposition, Handler
from simfloat.torch.tensor_arrays import exact_tensor, result_type

Tensor = torch.Tensor


def sinc(x: Tensor) -> Tensor:
    """sin(z) / z with z = pi * x, and 1 at 0."""
    z = x * math.pi
    return torch.where(x == 0, torch.ones_like(x), z.sin() / z)


def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x * log1p(y), and 0 where x is."""
    x, y = (exact_tensor(value) for value in (x, y))
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * y.log1p())


def entropy(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0 and -inf below."""
    terms = torch.where(x == 0, torch.zeros_like(x), -x * x.log())
    return torch.where(x < 0, torch.full_like(terms, -torch.inf), terms)


def polygamma(n: Any, x: Any) -> Tensor:
    """The derivative of order n of digamma: (-1)^(n + 1) n! zeta(n + 1, x), n! being exact."""
    if isinstance(n, Tensor):  # in place the tensor comes first
        n, x = x, n
    if n == 0:
        return x.digamma()
    zeta = torch.special.zeta(float(n + 1), x)
    return zeta if n == 1 else zeta * float((-1) ** (n + 1) * math.factorial(n))


def multivariate_lgamma(x: Tensor, p: int) -> Tensor:
    """The sum of lgamma(x + (1 - j) / 2) over j from p down to 1, and p (p - 1) / 4 * log(pi), an exact number."""
    shifts = torch.arange(1 - p, 1, dtype=torch.float64).to(x.dtype) / 2 if p > 1 else torch.zeros(1, dtype=x.dtype)
    total = (x.unsqueeze(-1) + shifts).lgamma().sum(-1)
    return total + p * (p - 1) * math.log(math.pi) / 4


def angle(x: Tensor) -> Tensor:
    """pi below zero, else 0."""
    half_turn = torch.full(x.shape, math.pi, dtype=x.dtype)  # exactly, not in the format of x
    return torch.where(x.isnan(), x, torch.where(x < 0, half_turn, torch.zeros_like(x)) * 1)


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x * 2^exponent."""
    return x * torch.exp2(exponent)


def logcumsumexp(u: Rounded, x: NDArray, dim: int) -> NDArray:
    """The formula of this name; without axes, or elements, x itself, rounded."""
    if not x.size or not x.ndim:
        return u.round(x, "multiply", x)
    return exponentials.logcumsumexp(u, x, dim)


def between(start: Tensor | float, end: Tensor | float, steps: int, *, dtype: torch.dtype, **_: object) -> Tensor:
    """Numbers from start to end in equal steps: start + i * ((end - start) / (steps - 1))."""
    first, last = (exact_tensor(x).to(dtype) for x in (start, end))
    if steps <= 1:
        return (first * 1).expand(steps).clone()
    return first + torch.arange(steps, dtype=dtype) * ((last - first) / (steps - 1))


def powers_between(
    start: Tensor | float, end: Tensor | float, steps: int, base: float = 10.0, *, dtype: torch.dtype, **_: object
) -> Tensor:
    """Powers of the base whose exponents lie between start and end in equal steps."""
    return torch.pow(base, between(start, end, steps, dtype=dtype))


def normal(mean: Tensor | float, std: Tensor | float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    """mean + std * z with normal numbers z, drawn from PyTorch's generator."""
    shape = torch.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    dtype = result_type([x for x in (mean, std) if isinstance(x, Tensor)])
    z = torch.empty(shape, dtype=dtype).normal_(generator=generator)
    return exact_tensor(mean) + exact_tensor(std) * z


#: By PyTorch's name.
TABLE: dict[str, Handler] = {
    "special_xlog1py": Decomposition("xlogy", xlog1py),
    "special_entr": Decomposition("entropy", entropy),
    "deg2rad": Decomposition("multiply", lambda x: x * (math.pi / 180)),
    "rad2deg": Decomposition("multiply", lambda x: x * (180 / math.pi)),
    "angle": Decomposition("angle", angle),
    "ldexp": Decomposition("multiply", ldexp),
    "logcumsumexp": Formula("logsumexp", logcumsumexp),
    **{
        f"linspace.{kind}": Decomposition("linspace", between)
        for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"logspace.{kind}": Decomposition("linspace", powers_between)
        for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{f"normal.{kind}": Decomposition("normal", normal) for kind in ("Tensor_Tensor", "Tensor_float", "float_Tensor")},
    "polygamma": Decomposition("digamma", polygamma),
    "mvlgamma": Decomposition("lgamma", multivariate_lgamma),
    "sinc": Decomposition("sin", sinc),
}
