"""Functions of numbers as PyTorch's own formulas have them: every operation of the formula is rounded."""

from __future__ import annotations

import math

import torch

from simfloat.torch.handlers import Composed
from simfloat.torch.tensor_arrays import exactly

Tensor = torch.Tensor


def sinc(x: Tensor) -> Tensor:
    """sin(z) / z with z = pi * x, and 1 at 0."""
    z = x * math.pi
    return torch.where(x == 0, torch.ones_like(x), z.sin() / z)


def xlog1py(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x * log1p(y), and 0 where x is."""
    x, y = (exactly(value) for value in (x, y))
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * y.log1p())


def entropy(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0 and -inf below."""
    terms = torch.where(x == 0, torch.zeros_like(x), -x * x.log())
    return torch.where(x < 0, torch.full_like(terms, -torch.inf), terms)


#: By PyTorch's name.
TABLE: dict[str, Composed] = {
    "special_xlog1py": Composed("xlogy", xlog1py),
    "special_entr": Composed("entropy", entropy),
    "sinc": Composed("sin", sinc),
}
