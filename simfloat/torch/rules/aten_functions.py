"""Functions of numbers as PyTorch's own formulas have them: every operation of the formula is rounded."""

from __future__ import annotations

import math

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.tensor_arrays import exactly

Tensor = torch.Tensor

LN10 = math.log(10)


def log1p(x: Tensor) -> Tensor:
    """log(1 + x), 0 where the sum is rounded to 1."""
    return (x + 1).log()


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, 0 where the exponential is rounded to 1."""
    return x.exp() - 1


def log10(x: Tensor) -> Tensor:
    """log(x) / log(10), the divisor being a float64 number."""
    return x.log() / LN10


def tan(x: Tensor) -> Tensor:
    """sin(x) / cos(x)."""
    return x.sin() / x.cos()


def sinh(x: Tensor) -> Tensor:
    """(exp(x) - exp(-x)) / 2."""
    return (x.exp() - (-x).exp()) / 2


def cosh(x: Tensor) -> Tensor:
    """(exp(x) + exp(-x)) / 2."""
    return (x.exp() + (-x).exp()) / 2


def erfc(x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return 1 - x.erf()


def sinc(x: Tensor) -> Tensor:
    """sin(z) / z with z = pi * x, and 1 at 0."""
    z = x * math.pi
    return torch.where(x == 0, torch.ones_like(x), z.sin() / z)


def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x * log(1 + y), and 0 where x is."""
    x, y = (exactly(value) for value in (x, y))
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * (y + 1).log())


def entropy(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0 and -inf below."""
    terms = torch.where(x == 0, torch.zeros_like(x), -x * x.log())
    return torch.where(x < 0, torch.full_like(terms, -torch.inf), terms)


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "log1p": Composed("log", log1p),
    "log10": Composed("log", log10),
    "special_xlog1py": Composed("xlogy", xlog1py),
    "special_entr": Composed("entropy", entropy),
    "expm1": Composed("exp", expm1),
    "sinh": Composed("exp", sinh),
    "cosh": Composed("exp", cosh),
    "tan": Composed("tan", tan),
    "sinc": Composed("sin", sinc),
    "erfc": Composed("erf", erfc),
}
