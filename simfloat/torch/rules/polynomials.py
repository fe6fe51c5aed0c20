"""Orthogonal polynomials, by their recurrences of three terms: p(k + 1) from p(k) and p(k - 1), each step rounded.

Abramowitz and Stegun, Handbook of Mathematical Functions, 22.7.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from simfloat.torch.handlers import Decomposition
from simfloat.torch.tensor_arrays import exact_tensor

Tensor = torch.Tensor

#: (x, k, p(k), p(k - 1)) -> p(k + 1)
Step = Callable[[Tensor, int, Tensor, Tensor], Tensor]

#: The highest degree, with a step for each: more would take minutes.
HIGHEST = 1 << 16


def chebyshev(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """2 x p(k) - p(k - 1)."""
    return (x + x) * p - before


def hermite(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """2 x p(k) - 2 k p(k - 1)."""
    return (x + x) * p - before * (2 * k)


def probabilists_hermite(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """x p(k) - k p(k - 1)."""
    return x * p - before * k


def laguerre(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """((2 k + 1 - x) p(k) - k p(k - 1)) / (k + 1)."""
    return ((2 * k + 1 - x) * p - before * k) / (k + 1)


def legendre(x: Tensor, k: int, p: Tensor, before: Tensor) -> Tensor:
    """((2 k + 1) x p(k) - k p(k - 1)) / (k + 1)."""
    return (x * (2 * k + 1) * p - before * k) / (k + 1)


def polynomial(first: Callable[[Tensor], Tensor], step: Step, shifted: bool = False) -> Callable[..., Tensor]:
    """The polynomials with p(0) = 1 and this p(1); `shifted` ones are of 2 x - 1. Of a negative degree they are 0."""

    def rule(value: Tensor | float, n: Tensor | float) -> Tensor:
        argument, degree = torch.broadcast_tensors(exact_tensor(value), torch.as_tensor(n))
        degree = degree.trunc().long()
        highest = int(degree.max()) if degree.numel() else 0
        if highest > HIGHEST:
            raise ValueError(
                f"Orthogonal polynomials are computed step by step, up to degree {HIGHEST}; got {highest}. "
                "Compute these in `with run.paused():`."
            )
        x = argument + argument - 1 if shifted else argument
        before, p = torch.ones_like(x), first(x)
        result = torch.where(degree == 0, before, torch.zeros_like(x))
        result = torch.where(degree == 1, p, result)
        for k in range(1, highest):
            before, p = p, step(x, k, p, before)
            result = torch.where(degree == k + 1, p, result)
        return result

    return rule


#: The four kinds of Chebyshev's polynomials by their p(1).
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "t": lambda x: x * 1,
    "u": lambda x: x + x,
    "v": lambda x: x + x - 1,
    "w": lambda x: x + x + 1,
}

#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {
    **{
        f"special_{prefix}chebyshev_polynomial_{kind}": Decomposition(
            "polynomial", polynomial(first, chebyshev, bool(prefix))
        )
        for kind, first in KINDS.items()
        for prefix in ("", "shifted_")
    },
    "special_hermite_polynomial_h": Decomposition("polynomial", polynomial(KINDS["u"], hermite)),
    "special_hermite_polynomial_he": Decomposition("polynomial", polynomial(KINDS["t"], probabilists_hermite)),
    "special_laguerre_polynomial_l": Decomposition("polynomial", polynomial(lambda x: 1 - x, laguerre)),
    "special_legendre_polynomial_p": Decomposition("polynomial", polynomial(KINDS["t"], legendre)),
}
