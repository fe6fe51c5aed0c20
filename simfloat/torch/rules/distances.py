"""Distances between all rows of two matrices, forward and backward, in PyTorch's operations."""

from __future__ import annotations

import math

import torch

from simfloat.torch.handlers import Decomposition

Tensor = torch.Tensor


def differences(x: Tensor, y: Tensor) -> Tensor:
    """Every row of x (..., P, M) less every row of y (..., R, M): (..., P, R, M)."""
    return x.unsqueeze(-2) - y.unsqueeze(-3)


def distances(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
    """The p-norms of the differences; ValueError for a negative p."""
    if p < 0:
        raise ValueError(f"cdist takes p from 0 on, got {p}.")
    return torch.linalg.vector_norm(differences(x, y), p, -1)


def distances_backward(g: Tensor, x: Tensor, y: Tensor, p: float, norm: Tensor) -> Tensor:
    """The gradient of x: the sums over y's rows of g * d / n for p = 2, where d is a difference and n its norm.

    In general g * (d * |d|^(p - 2) / n^(p - 1)); for p = 1 and inf g times the sign of d, there of the largest alone.
    A norm of zero passes nothing on.
    """
    if p == 0:
        return torch.zeros_like(x)
    return along_differences(differences(x, y), g.unsqueeze(-1), norm.unsqueeze(-1), p).sum(-2)


def along_differences(d: Tensor, g: Tensor, n: Tensor, p: float) -> Tensor:
    """The gradients of differences d whose norms are n."""
    if p == 2:
        terms = g * d / n
    elif p == 1:
        terms = g * d.sign()
    elif p == math.inf:
        terms = torch.where(d.abs() == n, g * d.sign(), torch.zeros_like(d))
    else:
        terms = g * (d.sign() * d.abs() ** (p - 1) / n ** (p - 1))
    return torch.where((n == 0) | (d == 0), torch.zeros_like(d), terms)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(|x|^2 + |y|^2 - 2 x y), no less than 0, as one product of matrices: what PyTorch takes for many rows."""
    squares, others = ((rows * rows).sum(-1, keepdim=True) for rows in (x, y))
    left = torch.cat([x * -2, squares, torch.ones_like(squares)], -1)
    right = torch.cat([y, torch.ones_like(others), others], -1)
    return (left @ right.mT).clamp(min=0).sqrt()


def distances_of_pairs(x: Tensor, p: float = 2) -> Tensor:
    """The p-norms of the differences of every two rows."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    return torch.linalg.vector_norm(x[first] - x[second], p, 1)


def distances_of_pairs_backward(g: Tensor, x: Tensor, p: float, norm: Tensor) -> Tensor:
    """The gradient of the rows: that of each difference, added to the one row and taken from the other."""
    first, second = torch.triu_indices(len(x), len(x), 1)
    if p == 0:
        return torch.zeros_like(x)
    terms = along_differences(x[first] - x[second], g.unsqueeze(-1), norm.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, torch.cat([first, second]), torch.cat([terms, -terms]))


#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {
    "_cdist_forward": Decomposition("sum", distances),
    "_cdist_backward": Decomposition("sum", distances_backward),
    "_pdist_forward": Decomposition("sum", distances_of_pairs),
    "_pdist_backward": Decomposition("sum", distances_of_pairs_backward),
    "_euclidean_dist": Decomposition("sum", euclidean),
}
