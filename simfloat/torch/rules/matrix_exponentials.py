"""The exponential of a matrix, by products and sums of matrices that are simulated."""

from __future__ import annotations

import math

import torch

from simfloat.torch.handlers import Decomposition
from simfloat.torch.open_run import without_dispatch

Tensor = torch.Tensor

#: So many terms follow the first: of a matrix whose norm is at most 1 the next one is below half a unit of float64.
TERMS = 18


def matrix_exp(x: Tensor) -> Tensor:
    """The series of y = x / 2^s by Horner's rule, 1 + (y / 1) (1 + (y / 2) (1 + ...)), squared s times.

    s is the least number with which no column of a matrix has a sum of sizes above 1.
    """
    with without_dispatch(), torch.no_grad():
        largest = float(x.double().abs().sum(-2).amax()) if x.numel() else 0.0
    squarings = math.ceil(math.log2(largest)) if 1 < largest < math.inf else 0
    y = x * 2.0**-squarings
    identity = torch.eye(x.shape[-1], dtype=x.dtype).expand(x.shape)
    result = identity
    for k in range(TERMS, 0, -1):
        result = identity + torch.matmul(y, result) / k
    for _ in range(squarings):
        result = torch.matmul(result, result)
    return result


#: By PyTorch's name.
TABLE: dict[str, Decomposition] = {"linalg_matrix_exp": Decomposition("matmul", matrix_exp)}
